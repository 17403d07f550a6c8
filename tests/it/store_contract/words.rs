//! Sessions, instances, owners, the dead, and words between instances.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::model::{EndpointId, SESSION_MAX_BYTES, Weight};
use leasehold::store::{Ear, RawSession, Renew, Store, Wake};

use crate::store_contract::asker::{Asker, endpoint};
use crate::store_contract::world::{TIMEOUT, World};

pub fn sessions_of(store: &dyn Store) -> BTreeMap<String, RawSession> {
    let (mut found, mut cursor) = (BTreeMap::new(), 0);
    loop {
        let page = store.sessions(cursor, TIMEOUT).unwrap();
        found.extend(page.sessions);
        cursor = page.cursor;
        if cursor == 0 {
            return found;
        }
    }
}

/// FR-009: every session, over as many pages as it takes.
pub fn every_session_is_found(world: &mut dyn World) {
    let store = world.store();
    assert!(sessions_of(&*store).is_empty());
    for n in 0..2_500 {
        world.put_session(&format!("s{n}"), b"{}");
    }
    world.remove_session("s7");
    let found = sessions_of(&*store);
    assert_eq!(found.len(), 2_499);
    assert!(!found.contains_key("s7"));
}

/// Sessions come from strangers.
pub fn a_session_is_read_as_it_is_unless_too_large(world: &mut dyn World) {
    let fits = vec![b'x'; SESSION_MAX_BYTES];
    world.put_session("binary", b"\xff\x00\r\n$5");
    world.put_session("empty", b"");
    world.put_session("fits", &fits);
    world.put_session("large", &vec![b'x'; SESSION_MAX_BYTES + 1]);
    world.put_session("not an id: é*[", b"{}");
    let found = sessions_of(&*world.store());
    assert_eq!(found["binary"], RawSession::Value(b"\xff\x00\r\n$5".to_vec()));
    assert_eq!(found["empty"], RawSession::Value(vec![]));
    assert_eq!(found["fits"], RawSession::Value(fits));
    assert_eq!(found["large"], RawSession::TooLarge(SESSION_MAX_BYTES + 1));
    assert_eq!(found["not an id: é*["], RawSession::Value(b"{}".to_vec()));
}

/// FR-007.
pub fn every_live_instance_is_listed_with_its_weight(world: &mut dyn World) {
    let (mut a, b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    a.answered(|store, ask| store.beat(ask, TIMEOUT, Weight(4)));
    let live = a.store.instances(TIMEOUT).unwrap().found;
    assert_eq!(live, [(a.me.clone(), Weight(4)), (b.me.clone(), Weight(1))]);
}

pub fn owners_are_told_in_the_order_asked(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let all: Vec<EndpointId> = ["x", "y", "z"].map(endpoint).into();
    a.grant(&all[2]);
    b.grant(&all[0]);
    let owners = a.store.owners(&all, TIMEOUT).unwrap().found;
    assert_eq!(owners, [Some(b.me.clone()), None, Some(a.me.clone())]);
    assert_eq!(a.store.owners(&[], TIMEOUT).unwrap().found, []);
}

/// R12: `leasehold release` on behalf of a process that is gone.
pub fn burying_frees_the_leases_of_the_dead_and_no_other(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let kept = b.grant(&endpoint("kept"));
    let graves: Vec<_> = (0..20).map(|n| a.grant(&endpoint(&format!("e{n}")))).collect();
    assert_eq!(b.store.bury(&a.me, false, TIMEOUT).unwrap(), None, "it has a heartbeat");
    assert_eq!(b.owner(&endpoint("e0")).as_deref(), Some("a"));
    assert_eq!(b.store.bury(&a.me, true, TIMEOUT).unwrap(), Some(20));
    assert_eq!(b.store.bury(&a.me, false, TIMEOUT).unwrap(), Some(0), "buried twice");
    assert_eq!(b.store.instances(TIMEOUT).unwrap().found, [(b.me.clone(), Weight(1))]);
    assert_eq!(b.renew(&kept), Renew::Extended);
    for tenure in graves {
        assert_eq!(a.renew(&tenure), Renew::NotOwner(None), "the dead came back");
        assert!(b.grant(&tenure.endpoint).fence > tenure.fence);
    }
}

fn hear(ear: &mut dyn Ear) -> Wake {
    ear.next(TIMEOUT).unwrap().expect("no word came")
}

fn word(from: &Asker, to: Option<&Asker>, wants: &[&str], freed: &[&str]) -> Wake {
    let ids = |names: &[&str]| names.iter().map(|it| endpoint(it)).collect();
    let to = to.map(|it| it.me.clone());
    Wake { to, from: from.me.clone(), wants: ids(wants), freed: ids(freed) }
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
    for ear in &mut ears {
        assert_eq!(ear.next(Duration::from_millis(1)).unwrap(), None);
    }
}

/// R8: the heir hears of a release after it has happened, so that it can acquire at once.
pub fn a_release_tells_those_who_wait(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    let mut ear = b.store.listen(&b.me, TIMEOUT).unwrap();
    let freed = word(&a, Some(&b), &[], &["e"]);
    a.store.release(&a.ask(), &[tenure], std::slice::from_ref(&freed)).unwrap();
    assert_eq!(hear(&mut *ear), freed);
    b.grant(&e);
}

/// R11, R12: whoever leaves is missed at once, not at the next tick.
pub fn all_hear_of_a_withdrawal_and_of_a_burial(world: &mut dyn World) {
    let [a, b, c] = ["a", "b", "c"].map(|it| Asker::alive(world, it));
    let mut ear = c.store.listen(&c.me, TIMEOUT).unwrap();
    a.withdraw();
    assert_eq!(hear(&mut *ear), word(&a, None, &[], &[]));
    c.store.bury(&b.me, true, TIMEOUT).unwrap();
    assert_eq!(hear(&mut *ear), word(&b, None, &[], &[]));
}

/// Words may have been missed, so whoever listens must learn that the line was cut.
pub fn an_ear_does_not_outlive_its_server(world: &mut dyn World) {
    let a = Asker::alive(world, "a");
    let mut ear = a.store.listen(&a.me, TIMEOUT).unwrap();
    world.restart_empty();
    assert!(ear.next(TIMEOUT).is_err());
    let _ = a.store.wake(&[], TIMEOUT);
    let mut ear = a.store.listen(&a.me, TIMEOUT).unwrap();
    assert_eq!(ear.next(Duration::from_millis(1)).unwrap(), None);
}
