//! Publishing: only under the lease a result was polled under, and once (G2).

use std::time::Duration;

use leasehold::store::{Acquire, Publish, Release, Renew};

use crate::store::contract::asker::{Asker, endpoint, publication};
use crate::store::contract::world::{AnnouncedResult, TIMEOUT, World};

/// FR-011, G2.
pub fn a_result_is_announced_under_the_lease_it_was_polled_under(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    assert_eq!(a.publish(&tenure, 77), Publish::Stored(None));
    let heard = AnnouncedResult {
        endpoint: "e".into(),
        instance: "a".into(),
        fence: tenure.fence.get(),
        started_at_ms: 77,
        interval_ms: 500,
    };
    assert_eq!(world.announced(), [heard]);
}

/// "a lost reply cannot publish twice".
pub fn a_result_said_twice_is_announced_once(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    assert_eq!(a.publish(&tenure, 1), Publish::Stored(None));
    assert_eq!(a.publish(&tenure, 1), Publish::Stored(None));
    assert_eq!(world.announced().len(), 1);
    assert_eq!(a.publish(&tenure, 2), Publish::Stored(None));
    assert_eq!(world.announced().len(), 2, "the next result was taken for the one before");
}

/// The same start under another grant is another result.
pub fn a_result_of_the_next_grant_is_not_taken_for_the_one_before(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let old = a.grant(&e);
    assert_eq!(a.publish(&old, 1), Publish::Stored(None));
    let new = a.grant(&e);
    assert_eq!(a.publish(&new, 1), Publish::Stored(None));
    assert_eq!(world.announced().len(), 2);
}

/// G2: results are ordered by (fence, start). A publish that timed out may be executed after newer results of
/// its tenure, because the kernel goes on retransmitting what a closed socket owed.
pub fn a_late_publish_does_not_bring_back_an_older_result_of_its_tenure(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    // As strings, 9 would be after 10.
    for start in [9, 10, 1_700_000_000_000, 1_700_000_000_001] {
        assert_eq!(a.publish(&tenure, start), Publish::Stored(None));
    }
    for late in [1_700_000_000_000, 10, 9, 1_700_000_000_001] {
        assert_eq!(a.publish(&tenure, late), Publish::Stored(None), "it was, or a newer one is");
        assert_eq!(a.last_polled(&e), Some(1_700_000_000_001), "{late} was stored");
    }
    let started: Vec<u64> = world.announced().iter().map(|it| it.started_at_ms).collect();
    assert_eq!(started, [9, 10, 1_700_000_000_000, 1_700_000_000_001]);
    // The same of a tenure that the store forgot and its owner put back (R6).
    world.delete_lease(&e);
    assert_eq!(a.renew(&tenure), Renew::Reclaimed);
    assert_eq!(a.publish(&tenure, 1_700_000_000_000), Publish::Stored(None));
    assert_eq!(a.last_polled(&e), Some(1_700_000_000_001));
    assert_eq!(a.publish(&tenure, 1_700_000_000_002), Publish::Stored(None));
    assert_eq!(world.announced().len(), 5);
}

/// G2: the fence comes first. The server's clock may have been set back between two tenures.
pub fn a_later_grant_counts_for_more_than_a_later_start(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let old = a.grant(&e);
    assert_eq!(a.publish(&old, 1_700_000_000_000), Publish::Stored(None));
    let new = a.grant(&e);
    assert_eq!(a.publish(&new, 5), Publish::Stored(None));
    assert_eq!(a.last_polled(&e), Some(5));
    assert_eq!(a.publish(&old, 1_700_000_000_001), Publish::Fenced);
    assert_eq!(a.last_polled(&e), Some(5));
    assert_eq!(world.announced().len(), 2);
}

/// G2: nothing is written after the loss.
pub fn a_result_after_the_loss_of_its_lease_is_refused(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let lost = a.grant(&e);
    world.delete_lease(&e);
    assert_eq!(a.publish(&lost, 1), Publish::Missing, "stored without a lease");
    let next = b.grant(&e);
    assert_eq!(a.publish(&lost, 1), Publish::Fenced, "stored under another's lease");
    assert_eq!(a.publish(&next, 1), Publish::Fenced, "stored with another's fence");
    a.release(&lost);
    assert_eq!(b.publish(&lost, 1), Publish::Fenced, "stored with an old fence");
    assert!(world.announced().is_empty());
    assert!(matches!(b.acquire(&e), Acquire::Granted { .. }));
    assert_eq!(b.last_polled(&e), None);
}

/// R4: one answer per item.
pub fn a_refused_result_does_not_spoil_its_batch(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let (mine, also_mine) = (a.grant(&endpoint("e")), a.grant(&endpoint("g")));
    let other = b.grant(&endpoint("f"));
    let batch = [publication(&mine, 1), publication(&other, 2), publication(&also_mine, 3)];
    let answers = a.publish_all(&batch);
    assert_eq!(answers, [Publish::Stored(None), Publish::Fenced, Publish::Stored(None)]);
    let started: Vec<u64> = world.announced().iter().map(|it| it.started_at_ms).collect();
    assert_eq!(started, [1, 3]);
}

/// CONTRACT: "an endpoint handed or taken over keeps its rhythm".
pub fn the_next_owner_learns_when_it_was_last_polled(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    a.publish(&tenure, 1_700_000_000_123);
    a.release(&tenure);
    b.grant(&e);
    assert_eq!(b.last_polled(&e), Some(1_700_000_000_123));
}

/// What was removed is forgotten after a day, and what comes back is not. Whatever is forgotten, the next
/// fence is greater, and an old one counts for nothing (G2).
pub fn what_nobody_is_to_poll_is_forgotten_unless_it_comes_back(world: &mut dyn World) {
    const DAY: Duration = Duration::from_secs(86_400);
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let store = world.store();
    let retire = |world: &mut dyn World| {
        store.retire(std::slice::from_ref(&e), TIMEOUT).unwrap();
        world.result_left(&e)
    };
    assert_eq!(retire(world), None, "there is nothing to forget");
    let first = a.grant(&e);
    assert_eq!(a.publish(&first, 1), Publish::Stored(None));
    assert_eq!(retire(world), None, "it has an owner");
    a.release(&first);
    let left = retire(world).unwrap();
    assert!(left <= DAY && left > DAY / 2, "{left:?}");
    let again = retire(world).unwrap();
    assert!(again <= left, "nobody puts it off: {again:?}");
    // It comes back, and stays.
    let second = b.grant(&e);
    assert!(second.fence > first.fence);
    assert_eq!(b.last_polled(&e), Some(1));
    assert_eq!(world.result_left(&e), None);
    assert_eq!(b.publish(&second, 2), Publish::Stored(None));
    assert_eq!(a.publish(&first, 3), Publish::Fenced);
    // Forgotten by the server, retired by another instance, and put back by its owner: that one stays, too.
    world.delete_lease(&e);
    assert!(retire(world).is_some());
    assert_eq!(b.renew(&second), Renew::Reclaimed);
    assert_eq!(world.result_left(&e), None);
    // And one whose new owner could not say so when it was granted it: with its first result.
    b.release(&second);
    assert!(retire(world).is_some());
    let unsaid = b.grant(&e);
    assert_eq!(b.publish(&unsaid, 3), Publish::Stored(None));
    assert_eq!(world.result_left(&e), None);
    // And when the end has come.
    b.release(&unsaid);
    assert!(retire(world).is_some());
    world.delete_result(&e);
    assert_eq!(b.publish(&unsaid, 4), Publish::Missing);
    let third = a.grant(&e);
    assert!(third.fence > second.fence);
    assert_eq!(b.publish(&second, 5), Publish::Fenced);
    assert_eq!(b.release(&second), Release::NotOwner);
    assert_eq!(a.publish(&third, 6), Publish::Stored(None));
}
