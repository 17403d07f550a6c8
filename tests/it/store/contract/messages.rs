//! Messages between instances, and what a subscription pushes.

use std::time::Duration;

use leasehold::store::{Changes, PeerMessage, Push, Subscription};

use crate::store::contract::asker::{Asker, endpoint};
use crate::store::contract::world::{TIMEOUT, World};

/// The next message; changes are passed over.
fn next_message(subscription: &mut dyn Subscription) -> PeerMessage {
    loop {
        if let Push::Message(word) = subscription.next(TIMEOUT).unwrap().expect("no message came") {
            return word;
        }
    }
}

/// The next change; messages are passed over.
fn next_change(subscription: &mut dyn Subscription) -> Push {
    loop {
        match subscription.next(TIMEOUT).unwrap().expect("no change came") {
            Push::Message(_) => (),
            change => return change,
        }
    }
}

fn no_message_waits(subscription: &mut dyn Subscription) -> bool {
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
pub fn a_message_reaches_whom_it_is_for(world: &mut dyn World) {
    let [a, b, c] = ["a", "b", "c"].map(|it| Asker::alive(world, it));
    let mut subscriptions = [&b, &c].map(|it| it.store.listen(&it.me, TIMEOUT).unwrap());
    let to_b = word(&a, Some(&b), &["e1", "e2"], &["e3"]);
    let to_all = word(&a, None, &[], &["e4"]);
    a.store.wake(&[to_b.clone(), to_all.clone()], TIMEOUT).unwrap();
    assert_eq!(next_message(&mut *subscriptions[0]), to_b);
    assert_eq!(next_message(&mut *subscriptions[0]), to_all);
    assert_eq!(next_message(&mut *subscriptions[1]), to_all, "a message to b reached c");
    for subscription in &mut subscriptions {
        assert!(no_message_waits(&mut **subscription));
    }
}

/// R8, G5: so that nobody has to read who owns what.
pub fn all_hear_what_was_granted_and_only_that(world: &mut dyn World) {
    let [mut a, mut b] = ["a", "b"].map(|it| Asker::alive(world, it));
    let mut subscription = b.store.listen(&b.me, TIMEOUT).unwrap();
    b.grant(&endpoint("held"));
    assert_eq!(next_message(&mut *subscription).took, [endpoint("held")]);
    let wanted = ["x", "held", "y"].map(endpoint);
    a.answered(|store, context| store.acquire(context, &wanted));
    let took = ["x", "y"].map(endpoint).to_vec();
    assert_eq!(
        next_message(&mut *subscription),
        PeerMessage { took, ..PeerMessage::new(&a.me, None) }
    );
    a.answered(|store, context| store.acquire(context, &[endpoint("held")]));
    assert!(no_message_waits(&mut *subscription), "nothing was granted");
}

/// Discovery: whatever is touched is named, and nothing else is.
pub fn a_subscription_hears_which_sessions_and_heartbeats_were_touched(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    assert!(subscription.receives_changes());
    let sessions = |name: &str| Changes { sessions: vec![name.into()], ..Changes::default() };
    let node = |it: &Asker| Changes { nodes: vec![it.me.clone()], ..Changes::default() };
    world.put_session("s", b"{}");
    assert_eq!(next_change(&mut *subscription), Push::Changed(sessions("s")));
    world.remove_session("s");
    assert_eq!(next_change(&mut *subscription), Push::Changed(sessions("s")));
    world.put_session("no id", b"{}");
    assert_eq!(next_change(&mut *subscription), Push::Changed(sessions("no id")));
    let tenure = a.grant(&endpoint("e"));
    a.renew(&tenure);
    a.publish(&tenure, 1);
    a.beat();
    assert_eq!(
        next_change(&mut *subscription),
        Push::Changed(node(&a)),
        "leases and results are not told"
    );
    let b = Asker::alive(world, "b");
    assert_eq!(next_change(&mut *subscription), Push::Changed(node(&b)));
    b.withdraw();
    assert_eq!(next_change(&mut *subscription), Push::Changed(node(&b)));
    world.set_drain("b", true);
    let drain = Changes { drain: true, ..Changes::default() };
    assert_eq!(next_change(&mut *subscription), Push::Changed(drain));
    world.flush();
    assert_eq!(next_change(&mut *subscription), Push::Everything);
}

/// R8: the heir hears of a release after it has happened, so that it can acquire at once.
pub fn a_release_tells_those_who_wait(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    let mut subscription = b.store.listen(&b.me, TIMEOUT).unwrap();
    let freed = word(&a, Some(&b), &[], &["e"]);
    a.store.release(&a.context(), &[tenure], std::slice::from_ref(&freed)).unwrap();
    assert_eq!(next_message(&mut *subscription), freed);
    b.grant(&e);
}

/// R11, R12: other instances notice at once that an instance leaves, not at the next tick.
pub fn all_hear_of_a_withdrawal_and_of_a_revocation(world: &mut dyn World) {
    let [a, b, c] = ["a", "b", "c"].map(|it| Asker::alive(world, it));
    let mut subscription = c.store.listen(&c.me, TIMEOUT).unwrap();
    a.withdraw();
    assert_eq!(next_message(&mut *subscription), word(&a, None, &[], &[]));
    c.store.revoke(&b.me, true, TIMEOUT).unwrap();
    assert_eq!(next_message(&mut *subscription), word(&b, None, &[], &[]));
}

/// Messages may have been missed, so a subscriber must learn that its connection was cut.
pub fn a_subscription_does_not_outlive_its_server(world: &mut dyn World) {
    let a = Asker::alive(world, "a");
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    world.restart_empty();
    assert!(subscription.next(TIMEOUT).is_err());
    let _ = a.store.wake(&[], TIMEOUT);
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    assert!(no_message_waits(&mut *subscription));
}
