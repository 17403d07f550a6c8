//! `LeaderElection::run`: which thread calls what, when the role is given back, and what a loss, a return and a panic do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use leasehold::election::{Attempt, Duty, LeaderElection, LossReason};
use leasehold::{ElectionEvent, FenceToken, Stop};
use testkit::redis::eventually;

use crate::election::library::{LIMIT, Scene, TTL, elections, within};

/// What `run` did, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Start(FenceToken, ThreadId),
    Stop(FenceToken, ThreadId),
    Return(ThreadId),
}

/// `run` on a thread of its own; `work` is called between start and return.
fn run(
    scope_election: LeaderElection,
    until: Stop,
    mut work: impl FnMut(&Duty) + Send + 'static,
) -> (Receiver<Did>, Receiver<LeaderElection>) {
    let (did, seen) = unbounded();
    let (done, ended) = bounded(1);
    std::thread::spawn(move || {
        let (start, stop) = (did.clone(), did.clone());
        let me = || std::thread::current().id();
        let started = move |duty: &Duty| {
            let _ = start.send(Did::Start(duty.term(), me()));
            work(duty);
        };
        let stopped = move |term| stop.send(Did::Stop(term, me())).unwrap();
        scope_election.run(&until, started, stopped).unwrap();
        let _ = did.send(Did::Return(me()));
        let _ = done.send(scope_election);
    });
    (seen, ended)
}

fn next(seen: &Receiver<Did>) -> Did {
    seen.recv_timeout(LIMIT).expect("nothing was called")
}

/// Work that goes on until the test ends it.
fn held() -> (Sender<()>, impl FnMut(&Duty) + Send + 'static) {
    let (go, may_end) = bounded::<()>(0);
    let wait = move |_: &Duty| {
        let _ = may_end.recv_timeout(LIMIT);
    };
    (go, wait)
}

#[test]
fn work_and_its_end_are_called_on_two_threads_and_the_role_stays_until_the_work_has_returned() {
    let scene = Scene::new();
    let (source, until) = Stop::pair();
    let (go, work) = held();
    let (seen, ended) = run(scene.start("r"), until, work);
    let Did::Start(term, worker) = next(&seen) else { panic!("no start") };
    drop(source);
    let Did::Stop(stopped, caller) = next(&seen) else { panic!("no stop") };
    assert!(stopped == term && caller != worker, "the work still runs");
    assert_eq!(scene.redis.cli(&["EXISTS", "leader:r"]), "1", "given back during the work");
    assert!(seen.is_empty(), "it returned before its work");
    drop(go);
    assert_eq!(next(&seen), Did::Return(caller));
    let election = ended.recv_timeout(LIMIT).unwrap();
    let left = || scene.redis.cli(&["EXISTS", "leader:r"]);
    eventually(|| left() == "0", || format!("{election:?}"));
}

/// Work that returns does not end the leadership: the same term goes on, and the work is not called again.
#[test]
fn work_that_returns_leaves_the_role_as_it_is() {
    let scene = Scene::new();
    let (source, until) = Stop::pair();
    let (seen, _ended) = run(scene.start("r"), until, |_| ());
    let Did::Start(term, _) = next(&seen) else { panic!("no start") };
    let more = seen.recv_timeout(TTL);
    assert!(more.is_err(), "{more:?} although it leads");
    assert_eq!(scene.redis.cli(&["EXISTS", "leader:r"]), "1");
    drop(source);
    assert!(matches!(next(&seen), Did::Stop(it, _) if it == term));
    assert!(matches!(next(&seen), Did::Return(_)));
}

/// The end of a term is told at once, although the work goes on; no other work begins beside it.
#[test]
fn work_that_goes_on_after_a_loss_is_told_and_no_other_begins_beside_it() {
    let scene = Scene::new();
    let (source, until) = Stop::pair();
    let (go, work) = held();
    let running = Arc::new(AtomicUsize::new(0));
    let (count, mut work) = (Arc::clone(&running), work);
    let counted = move |duty: &Duty| {
        assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        work(duty);
        count.fetch_sub(1, Ordering::SeqCst);
    };
    let (seen, _ended) = run(scene.start("r"), until, counted);
    let Did::Start(first, _) = next(&seen) else { panic!("no start") };
    // Longer than the leader's next renewal can be away.
    scene.redis.cli(&["SET", "leader:r", "thief", "PX", "3000"]);
    assert!(matches!(next(&seen), Did::Stop(it, _) if it == first));
    assert_eq!(running.load(Ordering::SeqCst), 1, "the work was not waited for");
    // The same instance leads again while the old work still runs.
    let leads = || scene.redis.cli(&["GET", "leader:r"]);
    eventually(|| !["thief", ""].contains(&leads().as_str()), leads);
    assert!(seen.is_empty(), "work began beside the work of an earlier term");
    go.send_timeout((), LIMIT).unwrap();
    assert!(matches!(next(&seen), Did::Start(second, _) if second > first));
    drop((go, source));
    assert!(matches!(next(&seen), Did::Stop(second, _) if second > first));
    assert!(matches!(next(&seen), Did::Return(_)));
}

#[test]
fn work_that_panics_resigns_and_the_panic_goes_on_in_the_caller() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    let (_source, until) = Stop::pair();
    let ended = within(LIMIT, "the panic", move || {
        let mut stopped = Vec::new();
        let run = || leader.run(&until, |_| panic!("no such luck"), |term| stopped.push(term));
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it goes on");
        let said = panic.downcast_ref::<&str>().copied();
        assert_eq!((said, stopped.len()), (Some("no such luck"), 1));
        leader
    });
    assert!(follower.wait_for_leadership(LIMIT), "{ended:?} did not resign");
}

/// For other work of the process the election goes on being usable, and a stop of all elections ends it.
#[test]
fn a_stop_of_all_elections_ends_it() {
    let scene = Scene::new();
    let elections = elections(&scene.redis);
    let election = scene.builder("r").start_in(&elections).unwrap();
    let (_source, until) = Stop::pair();
    let (seen, _ended) = run(election, until, |duty| while duty.holds() {});
    let Did::Start(term, _) = next(&seen) else { panic!("no start") };
    elections.stop();
    assert!(matches!(next(&seen), Did::Stop(it, _) if it == term));
    assert!(matches!(next(&seen), Did::Return(_)));
}

/// Point 4: nothing is missed between start and registration, whatever the machine does in between.
#[test]
fn listeners_of_the_builder_hear_everything_from_the_beginning() {
    let scene = Scene::new();
    let (first, second) = (unbounded(), unbounded());
    let (tell, also) = (first.0, second.0);
    let builder = scene
        .builder("r")
        .on_event(move |event| drop(tell.send(event.clone())))
        .on_event(move |event| drop(also.send(event.clone())));
    let election = builder.start().unwrap();
    assert!(election.wait_for_leadership(LIMIT));
    election.stop();
    for heard in [first.1, second.1] {
        let heard: Vec<ElectionEvent> = heard.iter().collect();
        assert_eq!(heard.len(), 5, "{heard:#?}");
        let resigned = LossReason::Resigned;
        assert!(matches!(&heard[2], ElectionEvent::LeadershipAcquired { .. }));
        assert!(
            matches!(&heard[4], ElectionEvent::LeadershipLost { reason, .. } if *reason == resigned)
        );
    }
}

/// A hold-off is waited out for half a minute; a program that stops does not wait for it.
#[test]
fn a_single_attempt_in_a_hold_off_can_be_given_up() {
    let scene = Scene::new();
    let redis = leasehold::RedisUrl::parse(&scene.redis.url()).unwrap();
    let config = leasehold::Config { redis, ..leasehold::Config::default() };
    let elections = leasehold::Elections::on_redis(&config.clone().checked().unwrap()).unwrap();
    let settings = leasehold::Config::default().election_settings("r".parse().unwrap());
    let (source, until) = Stop::pair();
    let (tell, told) = bounded(1);
    std::thread::spawn(move || drop(tell.send(elections.try_lead_until(settings, &until))));
    let early = told.recv_timeout(Duration::from_millis(300));
    assert!(early.is_err(), "{early:?} in a hold-off");
    drop(source);
    let attempt = told.recv_timeout(LIMIT).expect("it waits on").unwrap();
    assert!(matches!(attempt, Attempt::Cancelled), "{attempt}");
    assert_eq!(scene.redis.cli(&["EXISTS", "leader:r"]), "0");
}
