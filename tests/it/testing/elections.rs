//! Leaderships of a user's program in a user's tests: won, lost, given back and waited for.

use std::sync::Arc;
use std::time::Duration;

use leasehold::testing::TestRedis;
use leasehold::{Attempt, ElectionEvent, Elections, LeaderElection, LossReason, State, Stop};
use parking_lot::Mutex;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than a role lasts by default.
const LONG: Duration = Duration::from_secs(40);

fn stand(elections: &Elections, role: &str) -> LeaderElection {
    LeaderElection::builder(role).unwrap().start_in(elections).unwrap()
}

fn events(election: &LeaderElection) -> Arc<Mutex<Vec<ElectionEvent>>> {
    let heard = Arc::<Mutex<Vec<ElectionEvent>>>::default();
    let tell = Arc::clone(&heard);
    let _ = election.listen(move |it| tell.lock().push(it.clone())).unwrap();
    heard
}

fn reasons(heard: &Mutex<Vec<ElectionEvent>>) -> Vec<LossReason> {
    let lost = |it: &ElectionEvent| match it {
        ElectionEvent::LeadershipLost { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    heard.lock().iter().filter_map(lost).collect()
}

#[test]
fn a_leadership_is_lost_while_redis_is_away_and_another_instance_takes_over() {
    let redis = TestRedis::new();
    let (one, two) = (redis.elections("a").unwrap(), redis.elections("b").unwrap());
    let (a, b) = (stand(&one, "cleanup"), stand(&two, "cleanup"));
    let heard = events(&a);
    assert!(a.is_leader() && !b.is_leader());
    redis.clock().advance(3_600 * SECOND);
    assert!(a.is_leader() && b.leader().as_ref() == Some(a.instance_id()));
    let term = a.term().unwrap();
    redis.cut_off(a.instance_id());
    redis.clock().advance(LONG);
    assert!(!a.is_leader() && b.is_leader() && b.term() > Some(term));
    assert_eq!(reasons(&heard), [LossReason::Expired]);
    redis.restore(a.instance_id());
    redis.clock().advance(LONG);
    assert_eq!((a.state(), a.leader()), (State::Follower, Some(b.instance_id().clone())));
}

#[test]
fn a_role_that_is_taken_away_is_lost_and_won_again() {
    let redis = TestRedis::new();
    let elections = redis.elections("a").unwrap();
    let a = stand(&elections, "cleanup");
    let heard = events(&a);
    assert!(redis.take_role_away("cleanup"));
    redis.clock().advance(11 * SECOND);
    assert_eq!(reasons(&heard), [LossReason::Taken(redis.leader("cleanup").unwrap())]);
    redis.clock().advance(2 * LONG);
    assert!(a.is_leader());
}

#[test]
fn a_resignation_and_a_stop_wake_the_thread_that_waits_to_lead() {
    let redis = TestRedis::new();
    let (one, two) = (redis.elections("a").unwrap(), redis.elections("b").unwrap());
    let (a, b) = (stand(&one, "cleanup"), Arc::new(stand(&two, "cleanup")));
    std::thread::scope(|scope| {
        let heir = Arc::clone(&b);
        let waits = scope.spawn(move || heir.wait_for_leadership(LONG));
        redis.clock().wait_for_waiters(1);
        a.resign();
        assert!(waits.join().unwrap());
        let waits = scope.spawn(|| a.wait_for_leadership(LONG));
        redis.clock().wait_for_waiters(1);
        drop(b);
        redis.clock().advance(3 * SECOND); // it has resigned and rests
        assert!(waits.join().unwrap());
    });
}

#[test]
fn a_duty_sees_the_end_of_the_leadership() {
    let redis = TestRedis::new();
    let elections = redis.elections("a").unwrap();
    let a = stand(&elections, "cleanup");
    let seen = a.run_if_leader(|duty| {
        assert!(duty.holds());
        redis.pause();
        redis.clock().advance(LONG);
        duty.holds()
    });
    assert_eq!(seen, Some(false));
    assert!(a.run_if_leader(|_| ()).is_none());
    redis.resume();
    redis.clock().advance(LONG);
    let duty = a.enter().unwrap();
    a.resign();
    redis.clock().advance(LONG);
    assert_eq!(redis.leader("cleanup").as_ref(), Some(a.instance_id()), "its work has not ended");
    drop(duty);
    redis.clock().advance(SECOND);
    assert_eq!(redis.leader("cleanup"), None);
}

#[test]
fn a_single_attempt_says_who_leads() {
    let redis = TestRedis::new();
    let (one, two) = (redis.elections("a").unwrap(), redis.elections("b").unwrap());
    let settings = |role: &str| {
        let role = leasehold::Role::parse(role).unwrap();
        leasehold::Config::default().election_settings(role)
    };
    let leadership = one.try_lead(settings("migrate")).unwrap().elected().unwrap();
    assert!(leadership.holds());
    let told = two.try_lead(settings("migrate")).unwrap();
    assert!(matches!(told, Attempt::LedBy(leader) if leader == *one.instance_id()));
    drop(leadership);
    assert!(two.try_lead(settings("migrate")).unwrap().elected().is_some());
    // Nothing is granted now, and another thread gives up waiting for it.
    redis.lose_data();
    let (source, stop) = Stop::pair();
    std::thread::scope(|scope| {
        let tries = scope.spawn(|| two.try_lead_until(settings("other"), &stop).unwrap());
        redis.clock().wait_for_waiters(1);
        drop(source);
        assert!(matches!(tries.join().unwrap(), Attempt::Cancelled));
        let waits = scope.spawn(|| two.try_lead(settings("other")).unwrap().elected().is_some());
        redis.clock().wait_for_waiters(1);
        redis.clock().advance(LONG);
        assert!(waits.join().unwrap(), "after the hold-off");
    });
}

/// Works on another thread for as long as it leads.
#[test]
fn a_leaders_work_is_begun_and_ended_by_the_clock_of_the_test() {
    let redis = TestRedis::new();
    let (one, two) = (redis.elections("a").unwrap(), redis.elections("b").unwrap());
    let (a, b) = (stand(&one, "cleanup"), stand(&two, "cleanup"));
    let told = Mutex::new(Vec::new());
    let (source, until) = Stop::pair();
    let (begun, began) = crossbeam_channel::unbounded();
    std::thread::scope(|scope| {
        let (told, begun, until) = (&told, &begun, &until);
        let runs = [&a, &b].map(|it| {
            let started = move |duty: &leasehold::Duty| begun.send(duty.term()).unwrap();
            scope.spawn(move || it.run(until, started, |term| told.lock().push(term)))
        });
        let first = began.recv_timeout(10 * SECOND).unwrap();
        redis.clock().wait_for_waiters(2);
        redis.cut_off(a.instance_id());
        redis.clock().advance(LONG);
        assert_eq!(*told.lock(), [first], "told before the clock has moved on");
        let second = began.recv_timeout(10 * SECOND).unwrap();
        assert!(second > first && b.term() == Some(second));
        drop(source);
        runs.into_iter().for_each(|it| it.join().unwrap().unwrap());
        assert_eq!(*told.lock(), [first, second]);
    });
}

#[test]
fn elections_that_stop_give_all_roles_back_also_while_redis_is_away() {
    let redis = TestRedis::new();
    let elections = redis.elections("a").unwrap();
    let heard = Arc::<Mutex<usize>>::default();
    let count = Arc::clone(&heard);
    let _stays = elections.listen(move |_| *count.lock() += 1).unwrap();
    let all = [stand(&elections, "one"), stand(&elections, "two")];
    redis.clock().advance(Duration::ZERO);
    assert_eq!(*heard.lock(), 6, "three events of each role");
    assert!(elections.stop_within(SECOND));
    assert_eq!((redis.leader("one"), all[0].is_leader()), (None, false));
    let others = redis.elections("b").unwrap();
    let all = [stand(&others, "one"), stand(&others, "two")];
    redis.pause();
    assert!(!others.stop_within(SECOND) && !all[1].is_leader());
}

#[test]
fn dozens_of_roles_are_led_at_once_and_an_election_ends_while_its_work_goes_on() {
    let redis = TestRedis::new();
    let elections = redis.elections("a").unwrap();
    let all: Vec<LeaderElection> =
        (0..40).map(|it| stand(&elections, &format!("role-{it}"))).collect();
    assert!(all.iter().all(LeaderElection::is_leader));
    let duty = all[0].enter().unwrap();
    drop(all);
    assert_eq!(redis.leader("role-1"), None);
    assert_eq!(redis.leader("role-0").as_ref(), Some(elections.instance_id()));
    drop(duty);
    redis.clock().advance(Duration::ZERO);
    assert_eq!(redis.leader("role-0"), None);
}

#[test]
fn an_inline_listener_that_waits_does_not_hang_the_test() {
    let redis = TestRedis::new();
    let (one, two) = (redis.elections("a").unwrap(), redis.elections("b").unwrap());
    let (a, b) = (stand(&one, "cleanup"), Arc::new(stand(&two, "cleanup")));
    let same = Arc::clone(&b);
    let waited = Arc::<Mutex<u32>>::default();
    let count = Arc::clone(&waited);
    let _ = a.listen_inline(move |event| {
        if let ElectionEvent::LeadershipLost { .. } = event {
            same.wait_for_leadership(LONG);
            *count.lock() += 1;
        }
    });
    redis.take_role_away("cleanup");
    redis.clock().advance(LONG);
    assert_eq!(
        (*waited.lock(), redis.clock().elapsed()),
        (0, LONG),
        "it panicked, and was told why"
    );
}
