//! Several threads of one process use one `LeaseManager`: one owner, one fence, one answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;
use leasehold::clock::{BootClock, ManualClock};
use leasehold::config::Config;
use leasehold::lease::keeper::Connections;
use leasehold::model::InstanceId;
use leasehold::store::Store;
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::{Acquired, FenceToken, Lease, LeaseManager, Released};

use testkit::cluster::endpoint;
use testkit::hooked::{Hooked, Stage};

const LIMIT: Duration = Duration::from_secs(20);
const THREADS: usize = 64;

/// Nothing expires while a test runs.
fn config() -> Config {
    Config {
        lease_ttl: Duration::from_secs(60),
        heartbeat_ttl: Duration::from_secs(60),
        new_fleet: true,
        ..Config::default()
    }
}

fn server() -> Arc<MemoryServer> {
    MemoryServer::new(&Arc::new(ManualClock::at(10_000_000_000_000)))
}

fn manager(store: Arc<dyn Store>, name: &str) -> LeaseManager {
    let (me, lines) = (InstanceId::new(name), Connections::shared(&store));
    LeaseManager::start_on(&config().checked().unwrap(), me, &lines, Arc::new(BootClock)).unwrap()
}

/// A thread is descheduled between the answer of the store and its application. Meanwhile the lease is
/// acquired again, released, and granted to another instance.
#[test]
fn r4_a_thread_that_is_held_up_with_an_old_grant_revives_nothing() {
    let server = server();
    let e = endpoint("e");
    let (held_up, is_held_up) = bounded::<()>(1);
    let (go_on, may_go_on) = bounded::<()>(0);
    let first = AtomicBool::new(true);
    let hook = move |verb: &str, stage: Stage| {
        let is_first = || first.swap(false, Ordering::SeqCst);
        if verb == "acquire" && stage == Stage::Answered && is_first() {
            held_up.send(()).unwrap();
            let _ = may_go_on.recv_timeout(LIMIT);
        }
    };
    let a = manager(Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook)), "a");
    let b = manager(Arc::new(MemoryStore::new(&server)), "b");
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| a.try_acquire(&e).unwrap());
        is_held_up.recv_timeout(LIMIT).expect("the first acquire is answered");
        // The second waits for the first, or asks the store itself.
        let (told, second) = bounded(1);
        scope.spawn({
            let (a, e) = (&a, &e);
            move || told.send(a.try_acquire(e).unwrap()).unwrap()
        });
        let ahead = second.recv_timeout(Duration::from_millis(300));
        let mut theirs = None;
        if ahead.as_ref().is_ok_and(Acquired::is_held) {
            a.release(&e).unwrap();
            theirs = b.try_acquire(&e).unwrap().held();
            assert!(theirs.is_some());
        }
        drop(go_on);
        let first = slow.join().unwrap();
        assert!(!(a.is_owned(&e) && b.is_owned(&e)), "two instances own one lease");
        if theirs.is_none() {
            let second = second.recv_timeout(LIMIT).expect("an answer");
            assert!(first.is_held() && second.is_held());
            assert!(a.is_owned(&e), "both threads were told that it is held");
        }
    });
}

/// Every thread that asks gets the table's answer, under one fence.
#[test]
fn threads_that_ask_for_one_name_at_once_get_one_answer_under_one_fence() {
    for round in 0..20 {
        let server = server();
        let acquires = Arc::new(AtomicUsize::new(0));
        let hook = {
            let acquires = Arc::clone(&acquires);
            move |verb: &str, stage: Stage| {
                if verb == "acquire" && stage == Stage::Answered {
                    acquires.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                }
            }
        };
        let a = manager(Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook)), "a");
        let e = endpoint("e");
        let ready = std::sync::Barrier::new(THREADS);
        let ask = || {
            ready.wait();
            let lease = a.try_acquire(&e).unwrap().held();
            (lease, a.fence(&e))
        };
        let told: Vec<(Option<Lease>, Option<FenceToken>)> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let fence = a.fence(&e);
        assert!(fence.is_some());
        let is_right = |(lease, told): &(Option<Lease>, Option<FenceToken>)| {
            lease.as_ref().is_some_and(|it| it.holds() && Some(it.fence()) == fence)
                && *told == fence
        };
        let wrong = told.iter().filter(|it| !is_right(it)).count();
        assert_eq!(wrong, 0, "round {round}: {wrong} of {THREADS} were told something else");
        // One for the epoch that is new to it, one for the lease.
        let acquires = acquires.load(Ordering::SeqCst);
        assert!(acquires <= 2, "round {round}: the store was asked {acquires} times");
    }
}

/// What is asked for while a question hangs is not answered by that one: the answer may be from before.
#[test]
fn a_refusal_that_was_on_its_way_is_no_answer_for_who_asks_later() {
    let server = server();
    let e = endpoint("e");
    let b = manager(Arc::new(MemoryStore::new(&server)), "b");
    let theirs = b.try_acquire(&e).unwrap().held().unwrap();
    let (held_up, is_held_up) = bounded::<()>(1);
    let (go_on, may_go_on) = bounded::<()>(0);
    let first = AtomicBool::new(true);
    let hook = move |verb: &str, stage: Stage| {
        if verb == "acquire" && stage == Stage::Answered && first.swap(false, Ordering::SeqCst) {
            held_up.send(()).unwrap();
            let _ = may_go_on.recv_timeout(LIMIT);
        }
    };
    let a = manager(Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook)), "a");
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| a.try_acquire(&e).unwrap());
        is_held_up.recv_timeout(LIMIT).expect("the first acquire is refused");
        assert_eq!(theirs.release().unwrap(), Released::GivenBack);
        let later = scope.spawn(|| a.try_acquire(&e).unwrap());
        // Whether it waits already cannot be seen; it must be right in both cases.
        drop(go_on);
        let _first = refused.join().unwrap();
        assert!(later.join().unwrap().is_held(), "it was free before this was asked for");
    });
}

/// A store that cannot be asked is not waited for once more by each thread in turn.
#[test]
fn threads_that_wait_for_one_question_share_its_failure() {
    let server = server();
    let store = MemoryStore::new(&server);
    let way = store.share();
    let asked = Arc::new(AtomicUsize::new(0));
    let hook = {
        let asked = Arc::clone(&asked);
        move |verb: &str, stage: Stage| {
            if verb == "acquire" && stage == Stage::Asked {
                asked.fetch_add(1, Ordering::SeqCst);
                let _ = crossbeam_channel::after(Duration::from_millis(100)).recv(); // a timeout
            }
        }
    };
    let a = manager(Arc::new(Hooked::new(Arc::new(store), hook)), "a");
    way.cut_off(true);
    let e = endpoint("e");
    let ready = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let ask = || {
            ready.wait();
            a.try_acquire(&e).is_err()
        };
        let asking: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        assert!(asking.into_iter().all(|it| it.join().unwrap()), "an error is no answer");
    });
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked < THREADS / 2, "{asked} questions for {THREADS} threads that asked at once");
}
