//! Threads that wait for a lease that another instance holds: what wakes them, how often they ask, and what they are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;
use leasehold::clock::{BootClock, Clock, ManualClock, Moment};
use leasehold::config::{Config, RedisUrl};
use leasehold::lease::keeper::Connections;
use leasehold::model::InstanceId;
use leasehold::store::Store;
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::{Acquired, Lease, LeaseManager};

use testkit::cluster::endpoint;
use testkit::hooked::{Hooked, Reception, Stage};
use testkit::redis::RedisServer;

const LIMIT: Duration = Duration::from_secs(20);
const THREADS: usize = 64;

/// A third of the lease TTL, and more than a test takes: what happens sooner was heard.
const REPAIR: Duration = Duration::from_secs(7);

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

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let late = BootClock.now() + LIMIT;
    while !condition() {
        assert!(BootClock.now() < late, "{what}: not within {LIMIT:?}");
        std::thread::yield_now();
    }
}

fn pass(time: Duration) {
    let _ = crossbeam_channel::after(time).recv();
}

/// A manager whose acquires are counted, and its count.
fn counting(server: &Arc<MemoryServer>, name: &str) -> (LeaseManager, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let hook = move |verb: &str, stage: Stage| {
        counted
            .fetch_add(usize::from((verb, stage) == ("acquire", Stage::Asked)), Ordering::SeqCst);
    };
    (manager_on(Arc::new(Hooked::new(Arc::new(MemoryStore::new(server)), hook)), name), asked)
}

/// Until it has asked, is subscribed, and has asked once more because of that.
fn wait_until_it_waits(asked: &AtomicUsize) {
    wait_for("questions", || asked.load(Ordering::SeqCst) > 0);
    let late = BootClock.now() + LIMIT;
    let mut rounds = 0;
    while asked.swap(0, Ordering::SeqCst) > 0 || rounds == 0 {
        rounds += 1;
        assert!(BootClock.now() < late, "it asks again and again");
        pass(Duration::from_millis(800)); // longer than the pause where no messages arrive
    }
}

/// 64 threads of one process wait. One question is asked after the release, and all of them share the grant.
#[test]
fn a_release_by_another_instance_wakes_all_threads_with_one_question() {
    let server = server();
    let (a, (b, asked)) = (manager(&server, "a"), counting(&server, "b"));
    let theirs = taken(&a, "e");
    let fences: Vec<_> = std::thread::scope(|scope| {
        let wait = || b.acquire("e", LIMIT).unwrap().held().expect("it was released");
        let waiting: Vec<_> = (0..THREADS).map(|_| scope.spawn(wait)).collect();
        wait_until_it_waits(&asked);
        drop(theirs);
        let leases: Vec<_> = waiting.into_iter().map(|it| it.join().unwrap()).collect();
        assert!(leases.iter().all(Lease::holds));
        leases.iter().map(Lease::fence).collect()
    });
    assert!(fences.iter().all(|it| *it == fences[0]), "{fences:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one asks for all");
    assert!(b.owned().is_empty(), "the last guard gave it back");
}

#[test]
fn a_wait_ends_with_the_last_answer_and_a_zero_timeout_does_not_wait() {
    let server = server();
    let (a, b) = (manager(&server, "a"), manager(&server, "b"));
    let _theirs = taken(&a, "e");
    for timeout in [Duration::ZERO, Duration::from_millis(200)] {
        let began = BootClock.now();
        let told = b.acquire("e", timeout).unwrap();
        assert!(matches!(&told, Acquired::HeldBy(it) if it == a.instance_id()), "{told}");
        let took = BootClock.now().since(began);
        assert!(took >= timeout && took < timeout + REPAIR, "{took:?}");
    }
    assert!(b.with_lease("e", Duration::ZERO, |_| ()).unwrap().is_none());
    assert!(b.acquire("a b", LIMIT).is_err(), "no name");
}

/// The release comes while the question is on its way that it makes out of date, or right after the lease was looked at.
#[test]
fn a_release_that_is_heard_while_a_question_is_on_its_way_is_not_missed() {
    for held_up_at in ["acquire", "heartbeats"] {
        let server = server();
        let a = manager(&server, "a");
        let (armed, first) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(true));
        let (held_up, is_held_up) = bounded::<()>(1);
        let (go_on, may_go_on) = bounded::<()>(0);
        let is_armed = Arc::clone(&armed);
        let hook = move |verb: &str, stage: Stage| {
            let is_mine = (verb, stage) == (held_up_at, Stage::Answered);
            if is_mine && is_armed.load(Ordering::SeqCst) && first.swap(false, Ordering::SeqCst) {
                held_up.send(()).unwrap();
                let _ = may_go_on.recv_timeout(LIMIT);
            }
        };
        let b = manager_on(Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook)), "b");
        let theirs = taken(&a, "e");
        // Subscribes, and knows the epoch.
        assert!(!b.acquire("e", Duration::from_millis(500)).unwrap().is_held());
        armed.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| b.acquire("e", LIMIT).unwrap().held());
            is_held_up.recv_timeout(LIMIT).expect("the question is refused");
            drop(theirs);
            pass(Duration::from_millis(300)); // it is heard meanwhile
            let began = BootClock.now();
            drop(go_on);
            assert!(waiting.join().unwrap().is_some());
            let took = BootClock.now().since(began);
            assert!(took < REPAIR, "{held_up_at}: it was missed, and found after {took:?}");
        });
    }
}

/// What was said while there was no subscription is lost: the lease is asked for when that is noticed.
#[test]
fn a_subscription_that_breaks_makes_a_wait_no_longer() {
    let server = server();
    let (loses_messages, is_broken) = (AtomicBool::new(false), AtomicBool::new(false));
    let reception =
        Arc::new(Reception { messages: true, changes: true, loses_messages, is_broken });
    let plain: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
    let (a, b) =
        (manager(&server, "a"), manager_on(Arc::new(Hooked::receiving(plain, &reception)), "b"));
    let theirs = taken(&a, "e");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| b.acquire("e", LIMIT).unwrap().is_held());
        pass(Duration::from_millis(1_500)); // it hears, and asks seldom
        reception.is_broken.store(true, Ordering::SeqCst);
        pass(Duration::from_millis(100));
        drop(theirs);
        let began = BootClock.now();
        assert!(waiting.join().unwrap());
        let took = BootClock.now().since(began);
        assert!(took < REPAIR / 2, "{took:?}");
    });
}

/// On a real server: from the release to the grant of the other instance.
#[test]
fn a_wait_is_over_within_milliseconds_of_a_release_and_of_an_expiry() {
    let redis = RedisServer::start();
    let config = || Config { redis: RedisUrl::parse(&redis.url()).unwrap(), ..config() };
    let (a, b) = (
        LeaseManager::start(&config().checked().unwrap()).unwrap(),
        LeaseManager::start(&config().checked().unwrap()).unwrap(),
    );
    let hand_over = |n: u64| {
        std::thread::scope(|scope| {
            let theirs = taken(&a, "e");
            let wait = || {
                let lease = b.acquire("e", LIMIT).unwrap().held().expect("it was released");
                assert!(lease.holds());
                BootClock.now()
            };
            let waiting = scope.spawn(wait);
            // The first time until it has subscribed.
            pass(Duration::from_millis(if n == 0 { 1_500 } else { 200 }));
            let began = BootClock.now();
            drop(theirs);
            waiting.join().unwrap().since(began)
        })
    };
    // The quickest, because the machine may be busy. Without messages each takes up to half a second.
    let times: Vec<Duration> = (0..5).map(hand_over).collect();
    println!("hand-overs: {times:?}");
    assert!(times.iter().any(|it| *it < Duration::from_millis(50)), "{times:?}");
    // R9: an instance that died. Its node key is there, so the lease lasts until its own end.
    let lasts = Duration::from_millis(1_200);
    redis.cli(&["SET", "poll:node:dead", "1", "PX", "60000"]);
    redis.cli(&["SET", "poll:lease:f", "dead", "PX", &lasts.as_millis().to_string()]);
    let began = BootClock.now();
    assert!(b.acquire("f", LIMIT).unwrap().is_held());
    let took = BootClock.now().since(began);
    println!("an expiry after {lasts:?}: {took:?}");
    assert!(took < lasts + Duration::from_secs(2), "it ended after {lasts:?}, heard {took:?}");
}

/// Redis is away for a while: the wait goes on, and says so only if it is over before Redis is back.
#[test]
fn an_outage_is_waited_out() {
    let server = server();
    let store = MemoryStore::new(&server);
    let way = store.share();
    let b = manager_on(Arc::new(store), "b");
    way.cut_off(true);
    assert!(b.acquire("e", Duration::from_millis(100)).is_err(), "nothing is known");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| b.acquire("e", LIMIT).map(|it| it.is_held()));
        pass(Duration::from_millis(300));
        way.cut_off(false);
        assert!(waiting.join().unwrap().unwrap());
    });
}

/// A panic in a thread that keeps leases: nothing can be granted any more, so nobody waits for it.
#[test]
fn a_wait_ends_when_a_thread_of_the_manager_panics() {
    let server = server();
    let a = manager(&server, "a");
    let _theirs = taken(&a, "e");
    let trap = Arc::new(AtomicBool::new(false));
    let is_set = Arc::clone(&trap);
    let hook = move |verb: &str, stage: Stage| {
        let beats = (verb, stage) == ("heartbeat", Stage::Asked);
        assert!(!(beats && is_set.load(Ordering::SeqCst)), "deliberately");
    };
    let store: Arc<dyn Store> = Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook));
    let config = Config { heartbeat_interval: Duration::from_millis(50), ..config() };
    let (me, lines) = (InstanceId::new("b"), Connections::shared(&store));
    let b = LeaseManager::start_on(&config.checked().unwrap(), me, &lines, Arc::new(BootClock))
        .unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| (b.acquire("e", LIMIT).map(drop), BootClock.now()));
        pass(Duration::from_millis(300));
        let began: Moment = BootClock.now();
        trap.store(true, Ordering::SeqCst);
        let (told, at) = waiting.join().unwrap();
        assert!(told.unwrap_err().to_string().contains("deliberately"));
        assert!(at.since(began) < REPAIR);
    });
}

#[test]
fn work_under_a_lease_gives_it_back_also_when_it_panics() {
    let server = server();
    let a = manager(&server, "a");
    let fence = a.with_lease("e", LIMIT, |lease| lease.holds().then(|| lease.fence())).unwrap();
    assert!(fence.flatten().is_some());
    assert_eq!(server.owner(&endpoint("e")), None);
    let work = || a.with_lease("e", LIMIT, |_| panic!("deliberately"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
    assert_eq!((server.owner(&endpoint("e")), a.owned().len()), (None, 0));
}

/// Whether the manager knows that no message arrives, or every message is lost: asking again finds what was missed.
#[test]
fn a_release_that_is_not_heard_is_found_by_asking_again() {
    for messages in [false, true] {
        let server = server();
        let reception = Arc::new(Reception {
            messages,
            changes: true,
            loses_messages: AtomicBool::new(true),
            is_broken: AtomicBool::new(false),
        });
        let plain: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
        let store: Arc<dyn Store> = Arc::new(Hooked::receiving(plain, &reception));
        let ttl = Duration::from_secs(3);
        let store_timeout = Duration::from_millis(300);
        let config =
            Config { lease_ttl: ttl, heartbeat_ttl: ttl, store_timeout, ..Config::default() };
        let config = Config {
            renew_interval: ttl / 3,
            heartbeat_interval: ttl / 3,
            new_fleet: true,
            ..config
        };
        let config = config.checked().unwrap();
        let (me, lines) = (InstanceId::new("b"), Connections::shared(&store));
        let b = LeaseManager::start_on(&config, me, &lines, Arc::new(BootClock)).unwrap();
        let (me, plain) = (InstanceId::new("a"), Arc::new(MemoryStore::new(&server)));
        let lines = Connections::shared(&(plain as Arc<dyn Store>));
        let a = LeaseManager::start_on(&config, me, &lines, Arc::new(BootClock)).unwrap();
        let theirs = taken(&a, "e");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| b.acquire("e", LIMIT).unwrap().is_held());
            pass(Duration::from_millis(300));
            drop(theirs);
            assert!(waiting.join().unwrap(), "messages {messages}");
        });
    }
}

/// While a lease is in doubt nothing is asked for it: it becomes good again, or ends.
#[test]
fn a_wait_for_a_lease_that_is_held_in_doubt_ends_when_it_is_confirmed() {
    let server = server();
    let store = MemoryStore::new(&server);
    let way = store.share();
    let store: Arc<dyn Store> = Arc::new(store);
    let config = Config { renew_interval: Duration::from_millis(50), ..config() };
    let (me, lines) = (InstanceId::new("a"), Connections::shared(&store));
    let a = LeaseManager::start_on(&config.checked().unwrap(), me, &lines, Arc::new(BootClock))
        .unwrap();
    let lease = taken(&a, "e");
    way.cut_off(true);
    wait_for("a doubt", || !lease.holds());
    assert!(!a.try_acquire("e").unwrap().is_held() && !lease.wait_lost(Duration::ZERO));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| a.acquire("e", LIMIT).unwrap().held());
        way.cut_off(false);
        let shared = waiting.join().unwrap().expect("it is confirmed");
        assert!(shared.fence() == lease.fence() && shared.holds() && lease.holds());
    });
}
