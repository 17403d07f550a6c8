//! The clock that a user's test moves: one course of things, and no time.

use std::sync::Arc;
use std::time::Duration;

use leasehold::testing::TestRedis;
use leasehold::{Acquired, LeaderElection};
use parking_lot::Mutex;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(40);

/// Two managers and two candidates, each with listeners and threads that wait, through every fault: all that they see, with the
/// time at which they see it.
fn story() -> Vec<String> {
    let redis = TestRedis::new();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let see = |what: String| {
        let at = redis.clock().elapsed();
        seen.lock().push(format!("{at:?} {what}"));
    };
    let managers = ["a", "b"].map(|it| redis.manager(it).unwrap());
    let elections = ["c", "d"].map(|it| redis.elections(it).unwrap());
    let stand = |at: usize| {
        let builder = LeaderElection::builder("cleanup").unwrap();
        builder.start_in(&elections[at]).unwrap()
    };
    let candidates = [stand(0), stand(1)];
    for manager in &managers {
        let (tell, clock) = (Arc::clone(&seen), redis.clock());
        let _ = manager
            .on_lost(move |it| tell.lock().push(format!("{:?} {it}", clock.elapsed())))
            .unwrap();
    }
    for candidate in &candidates {
        let (tell, clock) = (Arc::clone(&seen), redis.clock());
        let me = candidate.instance_id().clone();
        let hear = move |it: &_| tell.lock().push(format!("{:?} {me} {it:?}", clock.elapsed()));
        let _ = candidate.listen(hear).unwrap();
    }
    std::thread::scope(|scope| {
        let lease = managers[0].try_acquire("report").unwrap().held().unwrap();
        let wait = |at: usize| {
            let manager = &managers[at];
            scope.spawn(move || manager.acquire("report", 20 * LONG).unwrap())
        };
        let threads = [1, 2].map(|count| {
            let thread = wait(1);
            redis.clock().wait_for_waiters(count);
            thread
        });
        redis.clock().advance(15 * SECOND);
        redis.cut_off(managers[0].instance_id());
        redis.cut_off(candidates[0].instance_id());
        redis.clock().advance(LONG);
        // What a thread does after its call is its own affair: here it ends.
        let leases = threads.map(|it| it.join().unwrap());
        see(format!("{leases:?} {:?} {:?}", lease.holds(), redis.owner("report")));
        drop(leases);
        redis.restore(managers[0].instance_id());
        redis.restore(candidates[0].instance_id());
        redis.clock().advance(SECOND);
        let _other = managers[1].try_acquire("other").unwrap();
        redis.lose_data();
        redis.clock().advance(LONG);
        redis.take_role_away("cleanup");
        redis.take_away("other");
        redis.clock().advance(2 * LONG);
        let told = managers.each_ref().map(|it| it.try_acquire("report").unwrap().to_string());
        see(format!("{told:?} {:?}", candidates.each_ref().map(LeaderElection::term)));
    });
    seen.lock().clone()
}

#[test]
fn a_story_has_one_course() {
    let first = story();
    assert!(first.len() > 12, "{first:#?}");
    for _ in 1..100 {
        let again = story();
        assert_eq!(first, again);
    }
}

#[test]
fn threads_that_move_the_clock_at_once_move_it_one_after_the_other() {
    let redis = TestRedis::new();
    let (a, b) = (redis.manager("a").unwrap(), redis.manager("b").unwrap());
    let lease = a.try_acquire("report").unwrap().held().unwrap();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (clock, a, b) = (redis.clock(), &a, &b);
            scope.spawn(move || {
                for round in 0..50 {
                    clock.advance(SECOND);
                    for manager in [a, b] {
                        let told = manager.try_acquire(format!("{}", (n + round) % 4));
                        assert!(matches!(told, Ok(Acquired::Held(_) | Acquired::HeldBy(_))));
                    }
                }
            });
        }
    });
    assert_eq!(redis.clock().elapsed(), 400 * SECOND);
    assert!(lease.holds());
}

#[test]
fn a_day_goes_by_in_no_time() {
    let redis = TestRedis::new();
    let (a, elections) = (redis.manager("a").unwrap(), redis.elections("b").unwrap());
    let lease = a.try_acquire("report").unwrap().held().unwrap();
    let leader = LeaderElection::builder("cleanup").unwrap().start_in(&elections).unwrap();
    redis.clock().advance(24 * 3_600 * SECOND);
    assert!(lease.holds() && leader.is_leader());
}
