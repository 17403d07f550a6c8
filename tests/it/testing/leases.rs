//! Leases of a user's program in a user's tests: kept, lost, given back and waited for.

use std::sync::Arc;
use std::time::Duration;

use leasehold::testing::TestRedis;
use leasehold::{
    Acquired, Config, FenceToken, Lease, LeaseLoss, LeaseManager, LostLease, NotNow, Released,
};
use parking_lot::Mutex;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than a lease lasts by default.
const LONG: Duration = Duration::from_secs(40);

fn held(manager: &LeaseManager, name: &str) -> Lease {
    match manager.try_acquire(name).unwrap() {
        Acquired::Held(lease) => lease,
        refused => panic!("{refused}"),
    }
}

/// What a listener has heard.
fn losses(manager: &LeaseManager) -> Arc<Mutex<Vec<LostLease>>> {
    let heard = Arc::<Mutex<Vec<LostLease>>>::default();
    let tell = Arc::clone(&heard);
    let _ = manager.on_lost(move |lost| tell.lock().push(lost.clone())).unwrap();
    heard
}

#[test]
fn a_lease_is_renewed_for_as_long_as_its_guard_lives() {
    let redis = TestRedis::new();
    let (a, b) = (redis.manager("a").unwrap(), redis.manager("b").unwrap());
    let heard = losses(&a);
    let lease = held(&a, "report");
    redis.clock().advance(3_600 * SECOND);
    assert!(lease.holds() && lease.remaining() > 15 * SECOND);
    assert!(matches!(b.try_acquire("report"), Ok(Acquired::HeldBy(it)) if it == *a.instance_id()));
    assert_eq!(redis.owner("report").as_ref(), Some(a.instance_id()));
    assert_eq!(redis.clock().elapsed(), 3_600 * SECOND);
    let fence = lease.fence();
    drop(lease);
    assert_eq!(redis.owner("report"), None);
    assert!(held(&b, "report").fence() > fence);
    assert!(heard.lock().is_empty(), "given back, not lost");
}

#[test]
fn a_lease_is_lost_at_its_deadline_while_redis_is_away() {
    let redis = TestRedis::new();
    let a = redis.manager("a").unwrap();
    let heard = losses(&a);
    let lease = held(&a, "report");
    redis.clock().advance(SECOND);
    redis.pause();
    redis.clock().advance(20 * SECOND);
    assert!(!lease.holds(), "in doubt since the first renewal");
    assert!(heard.lock().is_empty() && !lease.wait_lost(Duration::ZERO));
    redis.clock().advance(10 * SECOND);
    assert!(lease.wait_lost(Duration::ZERO));
    let lost: Vec<_> = heard.lock().iter().map(|it| it.reason().clone()).collect();
    assert_eq!(lost, [LeaseLoss::Expired]);
    assert!(a.try_acquire("report").is_err());
    redis.resume();
    redis.clock().advance(5 * SECOND);
    assert!(held(&a, "report").fence() > lease.fence());
    assert!(!lease.holds());
}

#[test]
fn a_short_outage_costs_no_lease() {
    let redis = TestRedis::new();
    let a = redis.manager("a").unwrap();
    let heard = losses(&a);
    let lease = held(&a, "report");
    redis.cut_off(a.instance_id());
    redis.clock().advance(20 * SECOND);
    redis.restore(a.instance_id());
    redis.clock().advance(5 * SECOND);
    assert!(lease.holds() && heard.lock().is_empty());
}

#[test]
fn another_instance_takes_over_from_one_that_is_cut_off() {
    let redis = TestRedis::new();
    let (a, b) = (redis.manager("a").unwrap(), redis.manager("b").unwrap());
    let heard = losses(&a);
    let lease = held(&a, "report");
    redis.cut_off(a.instance_id());
    redis.clock().advance(LONG);
    let taken = held(&b, "report");
    assert!(!lease.holds() && taken.holds() && taken.fence() > lease.fence());
    assert_eq!(heard.lock().len(), 1);
    redis.restore(a.instance_id());
    redis.clock().advance(LONG);
    assert!(!lease.holds() && taken.holds());
}

#[test]
fn a_lease_that_is_taken_away_is_lost_with_the_next_renewal() {
    let redis = TestRedis::new();
    let a = redis.manager("a").unwrap();
    let heard = losses(&a);
    assert!(!redis.take_away("report"), "nobody holds it");
    let lease = held(&a, "report");
    assert!(redis.take_away("report"));
    redis.clock().advance(11 * SECOND);
    assert!(!lease.holds());
    let other = redis.owner("report").unwrap();
    assert_eq!(*heard.lock()[0].reason(), LeaseLoss::Taken(other.clone()));
    assert!(matches!(a.try_acquire("report"), Ok(Acquired::HeldBy(it)) if it == other));
    redis.clock().advance(LONG);
    assert!(held(&a, "report").fence() > lease.fence());
}

#[test]
fn a_redis_that_loses_its_data_grants_nothing_for_a_while_and_costs_no_lease() {
    let redis = TestRedis::new();
    let (a, b) = (redis.manager("a").unwrap(), redis.manager("b").unwrap());
    let lease = held(&a, "report");
    redis.lose_data();
    assert_eq!(redis.owner("report"), None);
    redis.clock().advance(11 * SECOND);
    assert!(lease.holds() && redis.owner("report").as_ref() == Some(a.instance_id()));
    assert!(matches!(b.try_acquire("other"), Ok(Acquired::HoldOff(_))));
    redis.clock().advance(LONG);
    assert!(lease.holds() && held(&b, "other").holds());
}

#[test]
fn a_release_wakes_a_thread_that_waits_and_no_clock_moves() {
    let redis = TestRedis::new();
    let (a, b) = (redis.manager("a").unwrap(), redis.manager("b").unwrap());
    let lease = held(&a, "report");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| b.acquire("report", LONG).unwrap().held().unwrap().fence());
        redis.clock().wait_for_waiters(1);
        let fence = lease.fence();
        assert_eq!(lease.release().unwrap(), Released::GivenBack);
        assert!(waits.join().unwrap() > fence);
    });
    assert_eq!(redis.clock().elapsed(), Duration::ZERO);
}

#[test]
fn a_thread_that_waits_is_woken_by_the_clock_of_the_test() {
    let redis = TestRedis::new();
    let (a, b) = (redis.manager("a").unwrap(), redis.manager("b").unwrap());
    let lease = held(&a, "report");
    std::thread::scope(|scope| {
        let in_vain = scope.spawn(|| {
            let answer = b.acquire("report", 10 * SECOND).unwrap();
            (matches!(answer, Acquired::HeldBy(_)), redis.clock().elapsed())
        });
        redis.clock().wait_for_waiters(1);
        redis.clock().advance(10 * SECOND);
        assert_eq!(in_vain.join().unwrap(), (true, 10 * SECOND));
        // Woken by the end of a lease that nobody renews, and of its owner's heartbeat.
        let heir = scope.spawn(|| b.with_lease("report", LONG, |it| it.fence()).unwrap());
        let watch = lease.watch();
        let ends = scope.spawn(move || watch.wait_lost(LONG));
        redis.clock().wait_for_waiters(2);
        redis.cut_off(a.instance_id());
        redis.clock().advance(LONG);
        assert!(heir.join().unwrap() > Some(lease.fence()));
        assert!(ends.join().unwrap() && !lease.holds());
    });
}

#[test]
fn waiting_with_a_zero_timeout_is_for_tests_with_one_thread() {
    let redis = TestRedis::new();
    let (a, b) = (redis.manager("a").unwrap(), redis.manager("b").unwrap());
    let lease = held(&a, "report");
    assert!(!b.acquire("report", Duration::ZERO).unwrap().is_held());
    assert!(!lease.wait_lost(Duration::ZERO));
    assert_eq!(b.with_lease("report", Duration::ZERO, |_| ()).unwrap(), None);
    assert_eq!(redis.clock().elapsed(), Duration::ZERO);
}

#[test]
fn a_listener_may_call_the_manager_and_wait_in_it() {
    let redis = TestRedis::new();
    let (a, b) = (redis.manager("a").unwrap(), redis.manager("b").unwrap());
    let a = Arc::new(a);
    let fences = Arc::<Mutex<Vec<FenceToken>>>::default();
    let (again, told) = (Arc::downgrade(&a), Arc::clone(&fences));
    let _ = a
        .on_lost(move |lost| {
            told.lock().push(lost.fence());
            let Some(manager) = again.upgrade() else { return };
            assert!(!manager.is_owned(lost.name()));
            let lease = manager.acquire(lost.name(), 10 * LONG).unwrap().held().unwrap();
            told.lock().push(lease.fence());
            let _ = manager.release(lost.name());
        })
        .unwrap();
    let lease = held(&a, "report");
    redis.cut_off(a.instance_id());
    redis.clock().advance(LONG);
    let taken = held(&b, "report");
    redis.restore(a.instance_id());
    redis.clock().advance(LONG);
    assert_eq!(*fences.lock(), [lease.fence()], "it waits");
    drop(taken);
    redis.clock().advance(Duration::ZERO);
    let fences = fences.lock().clone();
    assert!(fences.len() == 2 && fences[1] > fences[0]);
    assert!(held(&b, "report").holds());
}

#[test]
fn a_listener_that_moves_the_clock_is_told_not_to_and_the_test_goes_on() {
    let redis = TestRedis::new();
    let a = redis.manager("a").unwrap();
    let (clock, passed) = (redis.clock(), Arc::<Mutex<u32>>::default());
    let same = Arc::clone(&passed);
    let _ = a
        .on_lost(move |_| {
            clock.advance(SECOND);
            *same.lock() += 1;
        })
        .unwrap();
    let _lease = held(&a, "report");
    redis.take_away("report");
    redis.clock().advance(LONG);
    assert_eq!((*passed.lock(), redis.clock().elapsed()), (0, LONG));
}

#[test]
fn two_managers_never_hold_one_lease_and_fences_never_go_back() {
    let redis = TestRedis::new();
    let managers = [redis.manager("a").unwrap(), redis.manager("b").unwrap()];
    let (mut random, mut highest) = (testkit::cluster::random(7), FenceToken::new(0));
    let mut leases: [Option<Lease>; 2] = [None, None];
    let mut grants = 0;
    for _ in 0..2_000 {
        let one = random(2) as usize;
        match random(8) {
            0 => redis.cut_off(managers[one].instance_id()),
            1 | 2 => redis.restore(managers[one].instance_id()),
            3 => leases[one] = None,
            _ => redis.clock().advance(Duration::from_millis(random(15_000))),
        }
        if let Ok(Acquired::Held(lease)) = managers[one].try_acquire("report") {
            assert!(lease.fence() >= highest, "{} after {highest}", lease.fence());
            grants += u32::from(lease.fence() > highest);
            highest = lease.fence();
            leases[one] = Some(lease);
        }
        let holding = leases.iter().flatten().filter(|it| it.holds()).count();
        assert!(holding <= 1, "both hold it at {:?}", redis.clock());
        assert!(managers.iter().filter(|it| it.is_owned("report")).count() <= 1);
    }
    assert!(grants > 50, "{grants}");
}

#[test]
fn settings_prefixes_and_ttls_are_those_of_a_real_redis() {
    let redis = TestRedis::new();
    let a = redis.manager("a").unwrap();
    let lease = held(&a, "report");
    let other = Config { prefix: "other".into(), host_name: "b".into(), ..Config::default() };
    let b = redis.start_manager(&other.checked().unwrap()).unwrap();
    assert!(held(&b, "report").holds() && lease.holds(), "two prefixes, two leases");
    let short = Config {
        lease_ttl: 3 * SECOND,
        renew_interval: SECOND,
        store_timeout: SECOND / 4,
        host_name: "c".into(),
        ..Config::default()
    };
    let error = redis.start_manager(&short.clone().checked().unwrap()).unwrap_err();
    assert!(error.to_string().contains("3"), "{error}");
    let short = Config { prefix: "short".into(), ..short }.checked().unwrap();
    let c = redis.start_manager(&short).unwrap();
    let short = held(&c, "report");
    redis.pause();
    redis.clock().advance(3 * SECOND);
    assert!(short.wait_lost(Duration::ZERO) && lease.holds());
    assert!(redis.manager("d").is_err());
}

#[test]
fn a_manager_stops_and_is_replaced_also_while_redis_is_away() {
    let redis = TestRedis::new();
    let a = redis.manager("a").unwrap();
    let lease = held(&a, "report");
    assert!(a.stop_within(10 * SECOND) && !lease.holds());
    let b = redis.manager("b").unwrap();
    let lease = held(&b, "report");
    redis.pause();
    b.stop();
    assert!(!lease.holds() && lease.wait_lost(Duration::ZERO));
    redis.resume();
    let c = redis.manager("c").unwrap();
    assert!(matches!(c.try_acquire("report"), Ok(Acquired::HeldBy(_))));
    redis.clock().advance(LONG);
    assert!(held(&c, "report").holds());
}

#[test]
fn a_lease_in_doubt_is_no_lease() {
    let redis = TestRedis::new();
    let a = redis.manager("a").unwrap();
    let _lease = held(&a, "report");
    redis.pause();
    redis.clock().advance(12 * SECOND);
    assert!(matches!(a.try_acquire("report"), Ok(Acquired::NotNow(NotNow::Uncertain))));
    redis.resume();
    redis.clock().advance(2 * SECOND);
    assert!(a.is_owned("report"));
}
