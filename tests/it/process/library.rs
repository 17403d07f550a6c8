//! The public face of the library, on the in-memory store: what a Rust programmer relies on.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use leasehold::clock::{BootClock, Clock, ManualClock};
use leasehold::config::{CheckedConfig, Config, RedisUrl};
use leasehold::lease::keeper::Connections;
use leasehold::manager::{
    Acquired, Lease, LeaseInfo, LeaseLoss, LeaseManager, LeaseState, Released,
};
use leasehold::model::{EndpointId, InstanceId};
use leasehold::store::Store;
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::store::redis::RedisStore;
use leasehold::thread::{stop, stop_with_wire};
use leasehold::{Daemon, PollPermit, Poller, Revoked, Sample, Session};

use testkit::cluster::endpoint;
use testkit::redis::RedisServer;

const LIMIT: Duration = Duration::from_secs(20);

pub fn config() -> Config {
    Config {
        lease_ttl: Duration::from_secs(3),
        renew_interval: Duration::from_millis(100),
        heartbeat_ttl: Duration::from_secs(3),
        heartbeat_interval: Duration::from_millis(100),
        store_timeout: Duration::from_millis(300),
        interval: Duration::from_millis(100),
        workers: 2,
        new_fleet: true,
        ..Config::default()
    }
}

/// A server whose clock stands still: nothing expires unless a test says so.
fn server() -> Arc<MemoryServer> {
    MemoryServer::new(&Arc::new(ManualClock::at(10_000_000_000_000)))
}

fn manager(server: &Arc<MemoryServer>, name: &str) -> LeaseManager {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(server));
    let lines = Connections::shared(&store);
    let me = InstanceId::new(name);
    LeaseManager::start_on(&config().checked().unwrap(), me, &lines, Arc::new(BootClock)).unwrap()
}

fn taken(manager: &LeaseManager, name: &EndpointId) -> Lease {
    manager.try_acquire(name).unwrap().held().expect("it is free")
}

/// Waits for `condition`, or says what was waited for.
fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let tick = crossbeam_channel::tick(Duration::from_millis(5));
    let late = crossbeam_channel::after(LIMIT);
    while !condition() {
        crossbeam_channel::select! {
            recv(tick) -> _ => (),
            recv(late) -> _ => panic!("{what}: not within {LIMIT:?}"),
        }
    }
}

/// Settings that cannot work, and a part of what is said of each.
fn odd_settings() -> Vec<(Config, &'static str)> {
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3_600));
    vec![
        (Config { lease_ttl: Duration::ZERO, ..config() }, "lease_ttl"),
        (Config { lease_ttl: Duration::MAX, ..config() }, "lease_ttl"),
        (Config { heartbeat_ttl: Duration::ZERO, ..config() }, "heartbeat_ttl"),
        (Config { heartbeat_ttl: Duration::MAX, ..config() }, "heartbeat_ttl"),
        (Config { renew_interval: hour, ..config() }, "renew_interval"),
        (Config { renew_interval: Duration::MAX, ..config() }, "renew_interval"),
        (Config { heartbeat_interval: 3 * second, ..config() }, "heartbeat_interval"),
        (Config { store_timeout: Duration::ZERO, ..config() }, "store_timeout"),
        (Config { store_timeout: Duration::MAX, ..config() }, "store_timeout"),
        (Config { interval: Duration::ZERO, ..config() }, "interval"),
        (Config { drain_timeout: Duration::MAX, ..config() }, "drain_timeout"),
        (Config { startup_jitter: Duration::MAX, ..config() }, "startup_jitter"),
        (Config { workers: 0, ..config() }, "workers"),
        (Config { prefix: String::new(), ..config() }, "prefix"),
        (Config { session_prefix: String::new(), ..config() }, "session_prefix"),
        (Config { leader_prefix: String::new(), ..config() }, "leader_prefix"),
        (
            Config { leader_heartbeat_prefix: Some(String::new()), ..config() },
            "leader_heartbeat_prefix",
        ),
        (Config { host_name: "vm\n1".into(), ..config() }, "host_name"),
    ]
}

/// R14: every start takes a `CheckedConfig`, and these settings never become one. Nothing else can start: the example of
/// `CheckedConfig` that must not compile.
#[test]
fn settings_that_cannot_work_never_become_checked_ones() {
    for (config, field) in odd_settings() {
        let said = config.clone().checked().expect_err(field).to_string();
        assert!(said.contains(field), "{field}: {said}");
        assert!(CheckedConfig::try_from(config).is_err(), "{field}");
    }
}

/// R13: as on the command line, a heartbeat that would outlast the leases lasts as long as they do.
#[test]
fn a_heartbeat_that_would_outlast_the_leases_is_cut_to_their_life() {
    let server = server();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
    let (lines, me) = (Connections::shared(&store), InstanceId::new("a"));
    let long = Config { heartbeat_ttl: Duration::from_secs(60), ..config() };
    let manager =
        LeaseManager::start_on(&long.checked().unwrap(), me.clone(), &lines, Arc::new(BootClock))
            .unwrap();
    let nodes = store.heartbeats(&[me], LIMIT).unwrap();
    let left = nodes[0].as_ref().unwrap().left;
    assert!(left <= config().lease_ttl, "{left:?}");
    manager.stop();
}

/// Specification, part 002: TryAcquire, IsOwned, OwnedSessions, Release.
#[test]
fn a_lease_is_acquired_once_and_given_back() {
    let server = server();
    let (a, b) = (manager(&server, "a"), manager(&server, "b"));
    let e = endpoint("e");
    let lease = taken(&a, &e);
    let again = a.try_acquire(&e).unwrap().held().expect("held also when held already");
    assert!(again.fence() == lease.fence() && again.holds());
    assert!(matches!(b.try_acquire(&e).unwrap(), Acquired::HeldBy(it) if it == *a.instance_id()));
    assert!(a.is_owned(&e) && !b.is_owned(&e));
    assert_eq!(a.owned(), std::slice::from_ref(&e));
    assert_eq!(a.release(&e).unwrap(), Released::GivenBack);
    assert!(!a.is_owned(&e) && !lease.holds() && !again.holds());
    assert!(taken(&b, &e).holds());
}

/// Specification, part 002: LeaseState and LeaseInfo.
#[test]
fn a_lease_tells_its_state_and_since_when() {
    let server = server();
    let (a, b) = (manager(&server, "a"), manager(&server, "b"));
    let e = endpoint("e");
    assert_eq!(a.info(&e).unwrap().state, LeaseState::Unknown);
    let _lease = taken(&a, &e);
    let mine = a.info(&e).unwrap();
    assert_eq!((mine.state, mine.owner), (LeaseState::Owned, Some(InstanceId::new("a"))));
    assert_eq!(mine.fence, a.fence(&e));
    let theirs = b.info(&e).unwrap();
    assert_eq!((theirs.state, theirs.owner), (LeaseState::Other, Some(InstanceId::new("a"))));
    let is_renewed = |it: &LeaseInfo| it.renewed_ago < it.acquired_ago;
    wait_for("a renewal", || is_renewed(&a.info(&e).unwrap()));
    let later = a.info(&e).unwrap();
    assert!(later.acquired_ago > mine.acquired_ago && later.fence == mine.fence, "one grant");
    assert!(later.remaining.is_some_and(|it| !it.is_zero() && it < config().lease_ttl));
    assert!(theirs.acquired_ago.is_none() && theirs.remaining.is_none());
}

#[test]
fn a_lease_that_cannot_be_renewed_is_uncertain_and_then_no_longer_owned() {
    let server = server();
    let a = manager(&server, "a");
    let e = endpoint("e");
    let lease = taken(&a, &e);
    server.crash();
    wait_for("a doubt", || a.info(&e).is_ok_and(|it| it.state == LeaseState::Uncertain));
    assert!(!a.is_owned(&e) && a.fence(&e).is_none());
    assert!(!lease.holds() && lease.remaining().is_zero());
    assert!(lease.wait_lost(LIMIT), "its deadline passes");
    assert!(lease.watch().loss().is_none_or(|it| it == LeaseLoss::Expired));
}

#[test]
fn a_name_that_no_lease_can_have_is_an_error_that_says_why() {
    let a = manager(&server(), "a");
    assert!(a.try_acquire("nightly-report").unwrap().is_held(), "a plain string is a name");
    for refused in [a.try_acquire("a b").map(drop), a.release("a b").map(drop)] {
        let error = refused.unwrap_err();
        let said = error.to_string();
        assert!(said.contains("\"a b\"") && said.contains("1 to 128 characters"), "{said}");
        assert!(std::error::Error::source(&error).is_some());
    }
    assert!(!a.is_owned("a b") && a.fence("a b").is_none());
}

#[test]
fn a_guard_can_be_sent_to_and_shared_by_threads() {
    fn anywhere<T: Send + Sync + std::fmt::Debug>() {}
    anywhere::<Lease>();
    anywhere::<leasehold::LeaseWatch>();
    anywhere::<LeaseManager>();
}

/// FR-007, FR-013.
#[test]
fn live_instances_agree_on_the_preferred_owner() {
    let server = server();
    let (a, b) = (manager(&server, "a"), manager(&server, "b"));
    assert_eq!(a.live_instances().unwrap().len(), 2);
    for n in 0..20 {
        let e = endpoint(&format!("e{n}"));
        assert_eq!(a.preferred_owner(&e).unwrap(), b.preferred_owner(&e).unwrap());
    }
}

#[test]
fn a_manager_that_is_dropped_leaves_nothing_behind() {
    let server = server();
    let a = manager(&server, "a");
    let lease = taken(&a, &endpoint("e"));
    drop(a);
    assert!(!lease.holds() && lease.wait_lost(Duration::ZERO) && lease.watch().loss().is_none());
    assert_eq!(server.owner(&endpoint("e")), None);
    assert!(MemoryStore::new(&server).instances(0, LIMIT).unwrap().found.is_empty());
}

/// A stop does not wait until the subscription wakes up.
#[test]
fn a_subscription_is_woken_by_a_stop() {
    let redis = RedisServer::start();
    let config = Config { redis: RedisUrl::parse(&redis.url()).unwrap(), ..config() };
    let mut subscription =
        RedisStore::of_endpoints(&config).listen(&InstanceId::new("a"), LIMIT).unwrap();
    let (source, _when, wire) = stop_with_wire().unwrap();
    subscription.interrupt_by(&Arc::new(wire));
    let began = BootClock.now();
    drop(source);
    assert_eq!(subscription.next(LIMIT).unwrap(), None);
    let took = BootClock.now().since(began);
    assert!(took < LIMIT / 2, "it waited for {took:?}");
}

/// Polls for as long as the test wants.
struct Slow {
    began: Sender<()>,
    end: Receiver<()>,
}

impl Poller for Slow {
    fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
        permit.confirm()?;
        let _ = self.began.send(());
        let _ = self.end.recv_timeout(LIMIT);
        if permit.abort().is_fired() {
            return Err(Revoked);
        }
        let duration = Duration::ZERO;
        Ok(Sample { ok: true, status: None, error: None, body: b"last".to_vec(), duration })
    }
}

/// A daemon whose only way to the store is `way`.
fn daemon(way: MemoryStore, config: &Config, poller: Arc<dyn Poller>) -> Daemon {
    let store: Arc<dyn Store> = Arc::new(way);
    let (_running, until) = stop();
    let (me, lines) = (InstanceId::new("a"), Connections::shared(&store));
    Daemon::start(
        &config.clone().checked().unwrap(),
        me,
        Arc::new(BootClock),
        &lines,
        poller,
        &until,
    )
    .unwrap()
}

fn put_session(server: &MemoryServer, name: &str) {
    let json = format!(r#"{{"id":"{name}","address":"127.0.0.1:1"}}"#);
    server.put_session(name, json.as_bytes());
}

/// R11: polls end, their results are published, the heartbeat is withdrawn, the leases are released;
/// renewal goes on until the last poll has ended.
fn ends_in_the_safe_order(ending: fn(Daemon)) {
    let server = server();
    put_session(&server, "e");
    let (began, begun) = bounded(8);
    let (finish, end) = bounded(8);
    let poller = Arc::new(Slow { began, end });
    let daemon = daemon(MemoryStore::new(&server), &config(), poller);
    begun.recv_timeout(LIMIT).expect("a poll begins");
    let renewals = || server.journal().iter().filter(|it| **it == "renew").count();
    let stopping = std::thread::spawn(move || ending(daemon));
    let before = renewals();
    wait_for("renewals while the last poll runs", || renewals() >= before + 3);
    let poll_ended = server.journal().len();
    assert!(!server.journal().contains(&"withdraw"), "withdrawn while a poll ran");
    finish.send(()).unwrap();
    stopping.join().unwrap();
    let journal = server.journal();
    let at =
        |op: &str| journal.iter().rposition(|it| *it == op).unwrap_or_else(|| panic!("no {op}"));
    assert!(at("publish") >= poll_ended);
    // The lease is released once its result is stored, before or after the heartbeat is withdrawn.
    let (publish, release, withdraw) = (at("publish"), at("release"), at("withdraw"));
    assert!(publish < withdraw && publish < release, "{journal:?}");
    assert!(at("renew") < release.max(withdraw) && at("heartbeat") < withdraw, "{journal:?}");
    assert_eq!(server.announced_since(0).len(), 1, "the last result was published");
    assert_eq!(server.owner(&endpoint("e")), None);
}

#[test]
fn r11_the_order_of_a_stop_is_polls_results_heartbeat_leases() {
    ends_in_the_safe_order(Daemon::stop);
}

/// R11: dropping is stopping.
#[test]
fn r11_a_daemon_that_is_dropped_stops_in_the_same_order() {
    ends_in_the_safe_order(drop);
}

/// A result that is too large for one call with others, or cannot be stored for long, blocks nobody.
#[test]
fn one_result_that_cannot_be_published_does_not_stop_the_others() {
    use leasehold::store::memory::Mishap;
    let server = server();
    ["e", "f"].iter().for_each(|it| put_session(&server, it));
    let way = MemoryStore::new(&server);
    (0..4).for_each(|_| way.plan("publish", Mishap::LoseRequest));
    let (began, _begun) = bounded(1_000);
    let (finish, end) = bounded(1_000);
    (0..1_000).for_each(|_| finish.send(()).unwrap());
    let poller = Arc::new(Slow { began, end });
    let daemon = daemon(way, &config(), poller);
    wait_for("results of both after four failures", || {
        let announced = server.announced_since(0);
        ["e", "f"].iter().all(|name| {
            announced.iter().filter(|it| it.publication.tenure.endpoint == endpoint(name)).count()
                >= 2
        })
    });
    daemon.stop();
}

/// The drain timeout bounds a stop: a poll that goes on is aborted, and then nothing is published.
#[test]
fn a_stop_aborts_a_poll_that_outlasts_the_drain_timeout() {
    let server = server();
    put_session(&server, "e");
    let (began, begun) = bounded(8);
    let (finish, end) = bounded::<()>(0);
    struct UntilAborted(Slow, Sender<()>);
    impl Poller for UntilAborted {
        fn poll(&self, s: &Session, permit: &PollPermit, t: Duration) -> Result<Sample, Revoked> {
            let finish = self.1.clone();
            permit.abort().arm(move || {
                let _ = finish.send_timeout((), LIMIT);
            });
            self.0.poll(s, permit, t)
        }
    }
    let poller = Arc::new(UntilAborted(Slow { began, end }, finish));
    let config = Config { drain_timeout: Duration::from_millis(200), ..config() };
    let daemon = daemon(MemoryStore::new(&server), &config, poller);
    begun.recv_timeout(LIMIT).expect("a poll begins");
    daemon.stop();
    assert!(server.announced_since(0).is_empty());
    assert_eq!(server.owner(&endpoint("e")), None);
}
