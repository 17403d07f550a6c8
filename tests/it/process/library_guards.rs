//! Guards of a `LeaseManager`: one tenure each, shared by the threads of a process, given back by the last.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use leasehold::clock::{BootClock, Clock, ManualClock};
use leasehold::config::{Config, RedisUrl};
use leasehold::lease::keeper::Connections;
use leasehold::model::InstanceId;
use leasehold::store::Store;
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::{Acquired, Lease, LeaseLoss, LeaseManager, LostLease, Released};

use testkit::cluster::endpoint;
use testkit::hooked::{Hooked, Stage};
use testkit::proxy::Proxy;
use testkit::redis::RedisServer;

const LIMIT: Duration = Duration::from_secs(20);
const THREADS: usize = 64;

fn config() -> Config {
    Config {
        lease_ttl: Duration::from_secs(60),
        heartbeat_ttl: Duration::from_secs(60),
        renew_interval: Duration::from_millis(50),
        new_fleet: true,
        ..Config::default()
    }
}

fn server() -> Arc<MemoryServer> {
    MemoryServer::new(&Arc::new(ManualClock::at(10_000_000_000_000)))
}

fn manager_on(store: Arc<dyn Store>, name: &str) -> LeaseManager {
    let (me, lines) = (InstanceId::new(name), Connections::shared(&store));
    LeaseManager::start_on(&config().checked().unwrap(), me, &lines, Arc::new(BootClock)).unwrap()
}

fn manager(server: &Arc<MemoryServer>, name: &str) -> LeaseManager {
    manager_on(Arc::new(MemoryStore::new(server)), name)
}

fn taken(manager: &LeaseManager, name: &str) -> Lease {
    manager.try_acquire(name).unwrap().held().expect("it is free")
}

/// Holds up the first call of one verb, before it is sent.
struct Gate {
    arrived: Receiver<()>,
    go_on: Sender<()>,
}

impl Gate {
    fn at(verb: &'static str) -> (Self, impl Fn(&'static str, Stage) + Send + Sync) {
        let ((arrives, arrived), (go_on, may_go_on)) = (bounded(1), bounded::<()>(0));
        let first = AtomicBool::new(true);
        let hook = move |called: &'static str, stage: Stage| {
            if called == verb && stage == Stage::Asked && first.swap(false, Ordering::SeqCst) {
                arrives.send(()).unwrap();
                let _ = may_go_on.recv_timeout(LIMIT);
            }
        };
        (Self { arrived, go_on }, hook)
    }
}

#[test]
fn sixty_four_threads_share_one_tenure_and_the_last_guard_gives_it_back() {
    let server = server();
    let releases = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&releases);
    let hook = move |verb: &str, stage: Stage| {
        counted
            .fetch_add(usize::from((verb, stage) == ("release", Stage::Asked)), Ordering::SeqCst);
    };
    let a = manager_on(Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook)), "a");
    let first = taken(&a, "e");
    let dropped = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let lease = taken(&a, "e");
                assert!(lease.holds() && lease.fence() == first.fence());
                drop(lease);
                dropped.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    assert_eq!(dropped.into_inner(), THREADS);
    assert!(first.holds() && releases.load(Ordering::SeqCst) == 0, "the first one holds it yet");
    let second = taken(&a, "e");
    assert_eq!(first.release().unwrap(), Released::StillShared);
    assert!(second.holds());
    assert_eq!(second.release().unwrap(), Released::GivenBack);
    assert_eq!((releases.load(Ordering::SeqCst), server.owner(&endpoint("e"))), (1, None));
}

/// A thread acquires the name while the last guard gives it back: it gets a tenure of its own, after the release.
#[test]
fn nobody_gets_a_guard_of_a_tenure_that_is_being_released() {
    let server = server();
    let (gate, hook) = Gate::at("release");
    let a = manager_on(Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook)), "a");
    let old = taken(&a, "e");
    let (fence, watch) = (old.fence(), old.watch());
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| old.release().unwrap());
        gate.arrived.recv_timeout(LIMIT).expect("the release is about to be sent");
        assert!(!watch.holds() && watch.wait_lost(Duration::ZERO));
        let newcomer = scope.spawn(|| taken(&a, "e"));
        drop(gate.go_on);
        assert_eq!(leaving.join().unwrap(), Released::GivenBack);
        let lease = newcomer.join().unwrap();
        assert!(lease.holds() && lease.fence() > fence);
        assert!(!watch.holds() && watch.loss().is_none(), "it was given back, and not lost");
        assert_eq!(server.owner(&endpoint("e")), Some(InstanceId::new("a")));
    });
}

/// An operator deletes the lease and another instance takes it: the guard is over for good, whatever comes later.
#[test]
fn a_guard_of_a_lost_lease_is_not_revived_by_a_new_grant_and_ends_none() {
    let server = server();
    let (a, e) = (manager(&server, "a"), endpoint("e"));
    let old = taken(&a, "e");
    server.put_lease(&e, &InstanceId::new("thief"), LIMIT);
    assert!(old.wait_lost(LIMIT), "a renewal finds that another owns it");
    assert_eq!(old.watch().loss(), Some(LeaseLoss::Taken(InstanceId::new("thief"))));
    server.delete_lease(&e);
    let new = taken(&a, "e");
    assert!(new.fence() > old.fence() && new.holds() && !old.holds());
    assert!(old.remaining().is_zero() && !new.remaining().is_zero());
    drop(old);
    assert!(new.holds(), "the drop of an old guard ends no newer tenure");
    assert_eq!(server.owner(&e), Some(InstanceId::new("a")));
    assert_eq!(new.release().unwrap(), Released::GivenBack);
}

/// Many threads take and drop one name of each of two managers. No guard is good while the other manager has one.
#[test]
fn guards_that_come_and_go_are_never_good_on_two_instances() {
    let server = server();
    let managers = [manager(&server, "a"), manager(&server, "b")];
    let (grants, highest) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (mine, other) = (&managers[thread % 2], &managers[(thread + 1) % 2]);
            let (grants, highest) = (&grants, &highest);
            scope.spawn(move || {
                for _ in 0..300 {
                    let Acquired::Held(lease) = mine.try_acquire("e").unwrap() else {
                        std::thread::yield_now();
                        continue;
                    };
                    grants.fetch_add(1, Ordering::SeqCst);
                    let fence = usize::try_from(lease.fence().get()).unwrap();
                    let before = highest.fetch_max(fence, Ordering::SeqCst);
                    // Good under an older fence than one seen before: then that one must be over.
                    let both = lease.holds() && other.is_owned("e") && lease.holds();
                    assert!(!both, "both own it under {fence}");
                    assert!(before <= fence || !lease.holds(), "{fence} holds after {before}");
                }
            });
        }
    });
    assert!(grants.into_inner() > 100);
    managers.iter().for_each(|it| assert!(it.owned().is_empty(), "{it:?}"));
    assert_eq!(server.owner(&endpoint("e")), None);
}

/// Everything that can end a lease happens while a listener hears: the losses, each once, and nothing that was given back.
#[test]
fn a_listener_hears_each_loss_once_in_order_and_no_release() {
    let server = server();
    let a = manager(&server, "a");
    let (tell, heard) = unbounded();
    let tell_and_panic = move |lost: &LostLease| {
        tell.send(lost.clone()).unwrap();
        panic!("deliberately");
    };
    let _ = a.on_lost(tell_and_panic).unwrap();
    let thief = InstanceId::new("thief");
    let mut lost = Vec::new();
    for round in 0..20 {
        drop(taken(&a, "given-back"));
        let old = taken(&a, "lost");
        let shared = taken(&a, "lost");
        lost.push(old.fence());
        if round % 2 == 0 {
            server.put_lease(&endpoint("lost"), &thief, LIMIT);
        } else {
            server.delete_lease(&endpoint("lost"));
            server.put_lease(&endpoint("lost"), &thief, LIMIT);
        }
        let told = heard.recv_timeout(LIMIT).expect("it was lost");
        assert!(!old.holds() && !shared.holds(), "no guard holds when it is heard");
        assert_eq!((told.name(), told.fence()), ("lost", old.fence()));
        assert_eq!(told.reason(), &LeaseLoss::Taken(thief.clone()));
        server.delete_lease(&endpoint("lost"));
    }
    let _released_by_the_stop = taken(&a, "e");
    a.release("lost").unwrap();
    a.stop();
    assert!(heard.try_recv().is_err(), "nothing twice");
}

/// All leases are lost at once when the heartbeat lapses (R13).
#[test]
fn a_listener_hears_of_a_thousand_leases_that_end_together_and_one_that_left_of_none() {
    const MANY: usize = 1_000;
    let server = server();
    let store = MemoryStore::new(&server);
    let way = store.share();
    let store: Arc<dyn Store> = Arc::new(store);
    let ttl = Duration::from_secs(2);
    let store_timeout = Duration::from_millis(100);
    let config = Config { lease_ttl: ttl, heartbeat_ttl: ttl, store_timeout, ..config() };
    let config = Config { heartbeat_interval: Duration::from_millis(200), ..config };
    let (me, lines) = (InstanceId::new("a"), Connections::shared(&store));
    let a = LeaseManager::start_on(&config.checked().unwrap(), me, &lines, Arc::new(BootClock))
        .unwrap();
    let names: Vec<String> = (0..MANY).map(|it| format!("name-{it}")).collect();
    let told = a.try_acquire_many(&names);
    let leases: Vec<Lease> = told.into_iter().filter_map(|it| it.unwrap().held()).collect();
    let (tell, heard) = unbounded();
    let not_told = tell.clone();
    let left = a.on_lost(move |it| not_told.send(it.clone()).unwrap()).unwrap();
    left.unregister();
    let _ = a.on_lost(move |it| tell.send(it.clone()).unwrap()).unwrap();
    way.cut_off(true);
    let lost: HashSet<String> = (0..MANY)
        .map(|_| heard.recv_timeout(LIMIT).expect("it was lost").name().to_owned())
        .collect();
    assert_eq!(lost.len(), MANY, "each once");
    assert!(leases.iter().all(|it| it.wait_lost(Duration::ZERO)));
    drop(leases); // nothing is sent for them: that would take a timeout each
    drop(a);
    assert!(heard.try_recv().is_err(), "nothing twice");
}

/// Redis hangs. A stop is bounded; one that is given a time keeps to it, and no guard holds when it returns.
#[test]
fn a_stop_while_redis_hangs_is_bounded_and_holds_nothing() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port());
    let store_timeout = Duration::from_millis(300);
    let config =
        || Config { redis: RedisUrl::parse(&proxy.url()).unwrap(), store_timeout, ..config() };
    let (a, b) = (
        LeaseManager::start(&config().checked().unwrap()).unwrap(),
        LeaseManager::start(&config().checked().unwrap()).unwrap(),
    );
    let (of_a, of_b) = (taken(&a, "e"), taken(&b, "f"));
    assert!(!b.acquire("e", Duration::from_millis(100)).unwrap().is_held()); // it listens, too
    proxy.clog();
    let (began, short) = (BootClock.now(), Duration::from_millis(50));
    assert!(!a.stop_within(short), "it cannot be done while Redis hangs");
    let took = BootClock.now().since(began);
    assert!(took < store_timeout, "{took:?}");
    assert!(!of_a.holds(), "nothing is held all the same");
    drop(of_a);
    let began = BootClock.now();
    b.stop();
    let took = BootClock.now().since(began);
    assert!(took < store_timeout * 6 + Duration::from_secs(2), "{took:?}");
    assert!(!of_b.holds() && of_b.wait_lost(Duration::ZERO));
    proxy.heal();
}

#[test]
fn a_stop_with_time_enough_gives_everything_back() {
    let server = server();
    let a = manager(&server, "a");
    let lease = taken(&a, "e");
    assert!(a.stop_within(LIMIT));
    assert_eq!((server.owner(&endpoint("e")), lease.holds()), (None, false));
}

#[test]
fn a_release_without_an_answer_blocks_no_longer_than_the_store_timeout() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port());
    let store_timeout = Duration::from_millis(300);
    let config =
        Config { redis: RedisUrl::parse(&proxy.url()).unwrap(), store_timeout, ..config() };
    let a = LeaseManager::start(&config.checked().unwrap()).unwrap();
    let (dropped, released) = (taken(&a, "e"), taken(&a, "f"));
    let (watch, slack) = (dropped.watch(), Duration::from_secs(2));
    proxy.clog();
    let began = BootClock.now();
    drop(dropped);
    let took = BootClock.now().since(began);
    assert!(took < store_timeout + slack, "the drop took {took:?}");
    assert!(!watch.holds(), "it is over here, whatever Redis knows");
    assert!(released.release().is_err(), "no answer is an error");
    assert!(a.owned().is_empty());
    proxy.heal();
}
