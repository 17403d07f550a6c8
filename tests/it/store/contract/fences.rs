//! The token grows with every grant, whatever the server has forgotten.

use std::time::Duration;

use leasehold::model::{FenceToken, Tenure};
use leasehold::store::{Acquire, Publish, Renew, RequestContext};

use crate::store::contract::asker::{Asker, endpoint};
use crate::store::contract::world::{DURATION, World};

fn grown(fences: &[FenceToken]) -> bool {
    fences.windows(2).all(|pair| pair[0] < pair[1])
}

pub fn a_fence_grows_over_grants_releases_and_losses(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let mut fences = Vec::new();
    for _ in 0..3 {
        let tenure = a.grant(&e);
        a.release(&tenure);
        fences.push(tenure.fence);
        fences.push(b.grant(&e).fence);
        fences.push(b.grant(&e).fence);
        world.delete_lease(&e);
        fences.push(a.grant(&e).fence);
        world.delete_result(&e);
        world.delete_lease(&e);
    }
    assert!(grown(&fences), "{fences:?}");
}

/// "even when Redis forgets everything".
pub fn a_fence_grows_over_a_flush(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let mut fences = vec![a.grant(&e).fence];
    world.flush();
    a.beat();
    world.end_hold_off();
    a.beat();
    fences.push(a.grant(&e).fence);
    assert!(grown(&fences), "{fences:?}");
}

/// "server TIME in µs": enough for one who has seen nothing, on a server that has forgotten.
pub fn a_fence_grows_by_the_servers_clock_alone(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let before = a.grant(&e).fence;
    world.delete_lease(&e);
    world.delete_result(&e);
    world.pass(Duration::from_millis(1));
    let context = RequestContext { floor_us: 0, ..a.context() };
    let answer = a.store.acquire(&context, std::slice::from_ref(&e)).unwrap().answer.unwrap();
    assert!(
        matches!(answer[..], [Acquire::Granted { fence, .. }] if fence > before),
        "{answer:?} after {before}"
    );
}

/// The highest fence is remembered apart from the epoch, which may be deleted, and from every endpoint.
pub fn a_fence_grows_over_a_deleted_epoch_and_a_clock_set_back(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let ahead = a.stamp.unwrap().server_us + 3_600_000_000;
    a.observe_fence(ahead);
    let before = a.grant(&e).fence;
    world.delete_lease(&e);
    world.delete_epoch();
    // An instance that has seen nothing, by the clock of a server that is behind now.
    let mut b = Asker::alive(world, "b");
    let after = b.grant(&e).fence;
    assert!(after > before && before.get() > ahead, "{after} after {before}");
}

/// What is put back into a store that has forgotten everything (R6) is remembered with its fence.
pub fn a_fence_grows_over_a_reclaim_and_a_deleted_epoch(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    a.observe_fence(a.stamp.unwrap().server_us + 3_600_000_000);
    let before = a.grant(&e);
    world.flush();
    a.beat();
    assert_eq!(a.renew(&before), Renew::Reclaimed);
    world.delete_lease(&e);
    world.delete_epoch();
    let mut b = Asker::alive(world, "b");
    let after = b.grant(&e).fence;
    assert!(after > before.fence, "{after} after {}", before.fence);
}

/// The stored fence is raised by a grant however far ahead of the clock it already is.
pub fn a_fence_grows_beyond_one_that_is_ahead_of_the_clock(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let ahead = a.stamp.unwrap().server_us + 3_600_000_000;
    a.observe_fence(ahead);
    let mut fences = vec![FenceToken::new(ahead)];
    for _ in 0..3 {
        let tenure = a.grant(&e);
        a.release(&tenure);
        let next = b.grant(&e);
        b.release(&next);
        fences.extend([tenure.fence, next.fence]);
    }
    assert!(grown(&fences), "{fences:?}");
}

/// "every instance brings its own along": also one that is granted nothing.
pub fn what_one_has_seen_raises_the_fences_of_all(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let ahead = a.stamp.unwrap().server_us + 3_600_000_000;
    a.observe_fence(ahead);
    a.beat();
    let granted = b.grant(&endpoint("e")).fence;
    assert!(granted.get() > ahead, "{granted} is not beyond {ahead}");
}

/// A server whose clock is a little behind must not let the tokens run away from it.
pub fn fences_do_not_run_away_once_they_are_ahead_of_the_clock(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let ahead = a.stamp.unwrap().server_us + 3_600_000_000;
    a.observe_fence(ahead);
    let first = a.grant(&endpoint("e0")).fence.get();
    let mut last = first;
    for n in 1..=50 {
        let asker = if n % 2 == 0 { &mut a } else { &mut b };
        last = asker.grant(&endpoint(&format!("e{n}"))).fence.get();
    }
    assert!(last > ahead && last - first < 1_000, "grew by {} in fifty grants", last - first);
}

/// After a loss of memory, others may have seen more than who asks first.
pub fn in_a_hold_off_fences_are_raised_beyond_what_others_may_have_seen(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let ahead = a.stamp.unwrap().server_us + 3_600_000_000;
    a.observe_fence(ahead);
    a.suspect();
    a.beat();
    world.end_hold_off();
    a.beat();
    let granted = a.grant(&e).fence.get();
    assert!(granted > ahead + DURATION.hold_off().as_micros() as u64, "{granted} after {ahead}");
}

/// "never `tostring` or `..`, which round". Lua's numbers are exact up to 2^53.
pub fn a_fence_is_exact_above_two_to_the_fifty_second(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let large = (1 << 52) + 12_345;
    a.observe_fence(large);
    let granted = a.grant(&e);
    assert_eq!(granted.fence, FenceToken::new(large + 1));
    assert_eq!(a.publish(&granted, 1), Publish::Stored(None));
    assert_eq!(a.publish(&Tenure::new(e.clone(), FenceToken::new(large)), 2), Publish::Fenced);
    a.release(&granted);
    assert_eq!(
        a.grant(&e).fence,
        FenceToken::new(large + 3),
        "release raises it by one, a grant too"
    );
}
