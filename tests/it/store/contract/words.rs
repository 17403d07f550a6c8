//! Sessions, instances, owners, the dead, and words between instances.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::model::{EndpointId, SESSION_MAX_BYTES, Weight};
use leasehold::store::{Changes, PeerMessage, Push, RawSession, Renew, Store, Subscription};

use crate::store::contract::asker::{Asker, endpoint};
use crate::store::contract::world::{TIMEOUT, TTL, World};

fn session_names_of(store: &dyn Store) -> BTreeSet<String> {
    let (mut found, mut cursor) = (BTreeSet::new(), 0);
    loop {
        let page = store.session_names(cursor, TIMEOUT).unwrap();
        found.extend(page.found);
        cursor = page.cursor;
        if cursor == 0 {
            return found;
        }
    }
}

/// Every session that can be one, as found.
pub fn sessions_of(store: &dyn Store) -> BTreeMap<String, RawSession> {
    let names = session_names_of(store);
    let ids: Vec<EndpointId> = names.iter().filter_map(|it| EndpointId::parse(it).ok()).collect();
    let found = store.sessions(&ids, TIMEOUT).unwrap();
    let named = ids.iter().map(EndpointId::to_string).zip(found);
    named.filter_map(|(id, it)| Some((id, it?))).collect()
}

/// FR-009: every session, over as many pages as it takes.
pub fn every_session_is_found(world: &mut dyn World) {
    let store = world.store();
    assert!(session_names_of(&*store).is_empty());
    assert_eq!(store.sessions(&[], TIMEOUT).unwrap(), []);
    assert!(!store.any_session(&[], TIMEOUT).unwrap());
    for n in 0..2_500 {
        world.put_session(&format!("s{n}"), b"{}");
    }
    world.remove_session("s7");
    let found = sessions_of(&*store);
    assert_eq!(found.len(), 2_499);
    assert!(!found.contains_key("s7"));
    let any = |names: &[&str]| {
        let asked: Vec<EndpointId> = names.iter().map(|it| endpoint(it)).collect();
        store.any_session(&asked, TIMEOUT).unwrap()
    };
    assert_eq!([any(&["s7", "nowhere"]), any(&["s7", "s8"])], [false, true]);
}

/// Sessions come from strangers.
pub fn a_session_is_read_as_it_is_unless_too_large(world: &mut dyn World) {
    let fits = vec![b'x'; SESSION_MAX_BYTES];
    world.put_session("binary", b"\xff\x00\r\n$5");
    world.put_session("empty", b"");
    world.put_session("fits", &fits);
    world.put_session("large", &vec![b'x'; SESSION_MAX_BYTES + 1]);
    world.put_session("not an id: é*[", b"{}");
    let store = world.store();
    assert!(session_names_of(&*store).contains("not an id: é*["));
    let found = sessions_of(&*store);
    assert_eq!(found["binary"], RawSession::Value(b"\xff\x00\r\n$5".to_vec()));
    assert_eq!(found["empty"], RawSession::Value(vec![]));
    assert_eq!(found["fits"], RawSession::Value(fits));
    assert_eq!(found["large"], RawSession::TooLarge(SESSION_MAX_BYTES + 1));
    let asked = ["empty", "nowhere"].map(endpoint);
    let found = store.sessions(&asked, TIMEOUT).unwrap();
    assert_eq!(found, [Some(RawSession::Value(vec![])), None], "in the order asked");
}

/// FR-007.
pub fn every_live_instance_is_listed_with_its_weight(world: &mut dyn World) {
    let (mut a, b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    a.answered(|store, context| store.heartbeat(context, TIMEOUT, Weight(4), None));
    assert_eq!(a.live(), [(a.me.clone(), Weight(4)), (b.me.clone(), Weight(1))]);
}

pub fn owners_are_told_in_the_order_asked(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let all: Vec<EndpointId> = ["x", "y", "z"].map(endpoint).into();
    a.grant(&all[2]);
    b.grant(&all[0]);
    let owners = a.store.leases(&all, TIMEOUT).unwrap();
    let names: Vec<_> = owners.iter().map(|it| it.as_ref().map(|it| it.value.clone())).collect();
    assert_eq!(names, [Some(b.me.clone()), None, Some(a.me.clone())]);
    assert_eq!(a.store.owners(&all, TIMEOUT).unwrap(), names);
    assert_eq!(a.store.owners(&[], TIMEOUT).unwrap(), []);
    assert_eq!(a.store.leases(&[], TIMEOUT).unwrap(), []);
    for lasting in owners.into_iter().flatten() {
        assert!(lasting.left <= TTL && lasting.left + TIMEOUT >= TTL, "{lasting:?}");
    }
}

/// R9.
pub fn a_lease_that_is_free_or_soon_will_be_is_named(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let all: Vec<EndpointId> = ["x", "y", "z", "free"].map(endpoint).into();
    all[..3].iter().for_each(|it| drop(a.grant(it)));
    world.set_lease_left(&all[1], Some(Duration::from_secs(9)));
    world.set_lease_left(&all[2], None);
    let expiring = a.store.expiring(&all, Duration::from_secs(10), TIMEOUT).unwrap();
    assert_eq!(expiring, all[1..], "ends soon, never ends, is free");
    assert_eq!(a.store.expiring(&[], TTL, TIMEOUT).unwrap(), []);
}

/// R12: `leasehold release` on behalf of a process that is gone.
pub fn burying_frees_the_leases_of_the_dead_and_no_other(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let kept = b.grant(&endpoint("kept"));
    let graves: Vec<_> = (0..20).map(|n| a.grant(&endpoint(&format!("e{n}")))).collect();
    assert_eq!(b.store.revoke(&a.me, false, TIMEOUT).unwrap(), None, "it has a heartbeat");
    assert_eq!(b.owner(&endpoint("e0")).as_deref(), Some("a"));
    assert_eq!(b.store.revoke(&a.me, true, TIMEOUT).unwrap(), Some(20));
    assert_eq!(b.store.revoke(&a.me, false, TIMEOUT).unwrap(), Some(0), "buried twice");
    assert_eq!(b.live(), [(b.me.clone(), Weight(1))]);
    assert_eq!(b.renew(&kept), Renew::Extended);
    for tenure in graves {
        assert_eq!(a.renew(&tenure), Renew::NotOwner(None), "the dead came back");
        assert!(b.grant(&tenure.endpoint).fence > tenure.fence);
    }
}

/// The next word; changes are passed over.
fn hear(subscription: &mut dyn Subscription) -> PeerMessage {
    loop {
        if let Push::Message(word) = subscription.next(TIMEOUT).unwrap().expect("no word came") {
            return word;
        }
    }
}

/// The next change; words are passed over.
fn hear_change(subscription: &mut dyn Subscription) -> Push {
    loop {
        match subscription.next(TIMEOUT).unwrap().expect("no change came") {
            Push::Message(_) => (),
            change => return change,
        }
    }
}

fn no_word_waits(subscription: &mut dyn Subscription) -> bool {
    while let Some(heard) = subscription.next(Duration::from_millis(1)).unwrap() {
        if matches!(heard, Push::Message(_)) {
            return false;
        }
    }
    true
}

fn word(from: &Asker, to: Option<&Asker>, wants: &[&str], freed: &[&str]) -> PeerMessage {
    let ids = |names: &[&str]| names.iter().map(|it| endpoint(it)).collect();
    let to = to.map(|it| it.me.clone());
    PeerMessage { wants: ids(wants), freed: ids(freed), ..PeerMessage::new(&from.me, to) }
}

/// R8.
pub fn a_word_reaches_whom_it_is_for(world: &mut dyn World) {
    let [a, b, c] = ["a", "b", "c"].map(|it| Asker::alive(world, it));
    let mut ears = [&b, &c].map(|it| it.store.listen(&it.me, TIMEOUT).unwrap());
    let to_b = word(&a, Some(&b), &["e1", "e2"], &["e3"]);
    let to_all = word(&a, None, &[], &["e4"]);
    a.store.wake(&[to_b.clone(), to_all.clone()], TIMEOUT).unwrap();
    assert_eq!(hear(&mut *ears[0]), to_b);
    assert_eq!(hear(&mut *ears[0]), to_all);
    assert_eq!(hear(&mut *ears[1]), to_all, "a word to b reached c");
    for subscription in &mut ears {
        assert!(no_word_waits(&mut **subscription));
    }
}

/// R8, G5: so that nobody has to read who owns what.
pub fn all_hear_what_was_granted_and_only_that(world: &mut dyn World) {
    let [mut a, mut b] = ["a", "b"].map(|it| Asker::alive(world, it));
    let mut subscription = b.store.listen(&b.me, TIMEOUT).unwrap();
    b.grant(&endpoint("held"));
    assert_eq!(hear(&mut *subscription).took, [endpoint("held")]);
    let wanted = ["x", "held", "y"].map(endpoint);
    a.answered(|store, context| store.acquire(context, &wanted));
    let took = ["x", "y"].map(endpoint).to_vec();
    assert_eq!(hear(&mut *subscription), PeerMessage { took, ..PeerMessage::new(&a.me, None) });
    a.answered(|store, context| store.acquire(context, &[endpoint("held")]));
    assert!(no_word_waits(&mut *subscription), "nothing was granted");
}

/// Discovery: whatever is touched is named, and nothing else is.
pub fn an_ear_hears_which_sessions_and_heartbeats_were_touched(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    assert!(subscription.receives_changes());
    let sessions = |name: &str| Changes { sessions: vec![name.into()], ..Changes::default() };
    let node = |it: &Asker| Changes { nodes: vec![it.me.clone()], ..Changes::default() };
    world.put_session("s", b"{}");
    assert_eq!(hear_change(&mut *subscription), Push::Changed(sessions("s")));
    world.remove_session("s");
    assert_eq!(hear_change(&mut *subscription), Push::Changed(sessions("s")));
    world.put_session("no id", b"{}");
    assert_eq!(hear_change(&mut *subscription), Push::Changed(sessions("no id")));
    let tenure = a.grant(&endpoint("e"));
    a.renew(&tenure);
    a.publish(&tenure, 1);
    a.beat();
    assert_eq!(
        hear_change(&mut *subscription),
        Push::Changed(node(&a)),
        "leases and results are not told"
    );
    let b = Asker::alive(world, "b");
    assert_eq!(hear_change(&mut *subscription), Push::Changed(node(&b)));
    b.withdraw();
    assert_eq!(hear_change(&mut *subscription), Push::Changed(node(&b)));
    world.set_drain("b", true);
    let drain = Changes { drain: true, ..Changes::default() };
    assert_eq!(hear_change(&mut *subscription), Push::Changed(drain));
    world.flush();
    assert_eq!(hear_change(&mut *subscription), Push::Everything);
}

/// R8: the heir hears of a release after it has happened, so that it can acquire at once.
pub fn a_release_tells_those_who_wait(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    let mut subscription = b.store.listen(&b.me, TIMEOUT).unwrap();
    let freed = word(&a, Some(&b), &[], &["e"]);
    a.store.release(&a.context(), &[tenure], std::slice::from_ref(&freed)).unwrap();
    assert_eq!(hear(&mut *subscription), freed);
    b.grant(&e);
}

/// R11, R12: other instances notice at once that an instance leaves, not at the next tick.
pub fn all_hear_of_a_withdrawal_and_of_a_burial(world: &mut dyn World) {
    let [a, b, c] = ["a", "b", "c"].map(|it| Asker::alive(world, it));
    let mut subscription = c.store.listen(&c.me, TIMEOUT).unwrap();
    a.withdraw();
    assert_eq!(hear(&mut *subscription), word(&a, None, &[], &[]));
    c.store.revoke(&b.me, true, TIMEOUT).unwrap();
    assert_eq!(hear(&mut *subscription), word(&b, None, &[], &[]));
}

/// Messages may have been missed, so a subscriber must learn that its connection was cut.
pub fn an_ear_does_not_outlive_its_server(world: &mut dyn World) {
    let a = Asker::alive(world, "a");
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    world.restart_empty();
    assert!(subscription.next(TIMEOUT).is_err());
    let _ = a.store.wake(&[], TIMEOUT);
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    assert!(no_word_waits(&mut *subscription));
}
