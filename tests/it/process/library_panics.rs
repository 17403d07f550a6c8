//! In a library user's program a panic unwinds one thread, and the rest goes on (R12). Nothing may keep a lease
//! without polling, or a role without anybody who would notice that it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, ManualClock, Moment};
use leasehold::config::Config;
use leasehold::election::{Elections, RoleConnections};
use leasehold::lease::keeper::Connections;
use leasehold::model::{InstanceId, Role};
use leasehold::store::Store;
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::thread::stop;
use leasehold::{Daemon, LeaseManager, PollPermit, Poller, Revoked, Sample, Session, StartError};

use crate::process::library;
use testkit::cluster::endpoint;
use testkit::hooked::{Hooked, Stage};

const LIMIT: Duration = Duration::from_secs(20);

fn config() -> Config {
    Config { light_after: 1_000, ..library::config() }
}

/// Its clock stands still: nothing expires there. So what another gets was given up.
fn server() -> Arc<MemoryServer> {
    MemoryServer::new(&Arc::new(ManualClock::at(10_000_000_000_000)))
}

fn put_session(server: &MemoryServer, name: &str) {
    let json = format!(r#"{{"id":"{name}","address":"127.0.0.1:1"}}"#);
    server.put_session(name, json.as_bytes());
}

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

/// Panics once, on the thread whose name begins so, when it next reads the clock or asks the store.
struct Trap {
    thread: &'static str,
    is_set: AtomicBool,
}

impl Trap {
    fn on(thread: &'static str) -> Arc<Self> {
        Arc::new(Self { thread, is_set: AtomicBool::new(false) })
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
    }

    fn step_on(&self) {
        let thread = std::thread::current();
        let is_here = thread.name().is_some_and(|it| it.starts_with(self.thread));
        if is_here && self.is_set.swap(false, Ordering::SeqCst) {
            panic!("deliberately");
        }
    }
}

impl Clock for Trap {
    fn now(&self) -> Moment {
        self.step_on();
        BootClock.now()
    }
}

/// A way to `server` with the trap on it.
fn store(server: &Arc<MemoryServer>, trap: &Arc<Trap>) -> Arc<dyn Store> {
    let trap = Arc::clone(trap);
    Arc::new(Hooked::new(Arc::new(MemoryStore::new(server)), move |_, _| trap.step_on()))
}

#[derive(Default)]
struct Fine(AtomicUsize);

impl Poller for Fine {
    fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
        permit.confirm()?;
        self.0.fetch_add(1, Ordering::SeqCst);
        let duration = Duration::ZERO;
        Ok(Sample { ok: true, status: None, error: None, body: vec![], duration })
    }
}

fn daemon(
    name: &str,
    lines: &Connections,
    clock: Arc<dyn Clock>,
    poller: &Arc<impl Poller + 'static>,
) -> Daemon {
    let (_running, until) = stop();
    let poller = Arc::clone(poller);
    Daemon::start(&config().checked().unwrap(), InstanceId::new(name), clock, lines, poller, &until)
        .unwrap()
}

fn lives(server: &Arc<MemoryServer>, name: &str) -> bool {
    let found = MemoryStore::new(server).instances(0, LIMIT).unwrap().found;
    found.contains(&InstanceId::new(name))
}

fn a_daemon_holds_nothing_after_a_panic_of(thread: &'static str) {
    let server = server();
    put_session(&server, "e");
    let (trap, poller) = (Trap::on(thread), Arc::new(Fine::default()));
    let lines = Connections::shared(&store(&server, &trap));
    let a = daemon("a", &lines, Arc::<Trap>::clone(&trap), &poller);
    let e = endpoint("e");
    wait_for("a poll", || a.liveness().is_ready() && poller.0.load(Ordering::SeqCst) > 0);
    assert!(a.failure().is_none() && a.table().holds(&e));
    trap.set();
    put_session(&server, "f"); // something to do for everybody
    assert!(a.failed().within(LIMIT), "{thread}: nobody is told");
    let failure = a.failure().unwrap();
    assert!(failure.thread.starts_with(thread), "{thread}: {failure}");
    assert_eq!(failure.message, "deliberately");
    assert!(a.table().is_closed() && a.table().is_empty() && !a.table().may_poll(&e), "{thread}");
    assert!(!a.liveness().is_ready(), "{thread}");
    wait_for(&format!("{thread}: the heartbeat is withdrawn"), || !lives(&server, "a"));
    // By the server's clock no time has passed: the lease is free because its owner does not beat.
    let plain: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
    let other = Arc::new(Fine::default());
    let b = daemon("b", &Connections::shared(&plain), Arc::new(BootClock), &other);
    wait_for(&format!("{thread}: another polls it"), || {
        b.table().holds(&e) && other.0.load(Ordering::SeqCst) > 0
    });
    let polls = poller.0.load(Ordering::SeqCst);
    assert!(!lives(&server, "a"), "{thread}: it beats again");
    a.stop();
    assert_eq!(poller.0.load(Ordering::SeqCst), polls, "{thread}: polled without a lease");
    assert!(b.table().may_poll(&e), "{thread}: the stop of a took it away from b");
}

/// Every thread.
#[test]
fn r12_whichever_thread_of_a_daemon_panics_it_holds_nothing_and_says_so() {
    let threads = [
        "heartbeat",
        "renewal",
        "expiry",
        "reconcile",
        "watch",
        "dispatch",
        "poller-",
        "publish",
        "history",
    ];
    std::thread::scope(|scope| {
        let each = |thread| scope.spawn(move || a_daemon_holds_nothing_after_a_panic_of(thread));
        let all: Vec<_> = threads.into_iter().map(each).collect();
        let failed =
            all.into_iter().zip(threads).filter_map(|(it, thread)| it.join().err().map(|_| thread));
        let failed: Vec<&str> = failed.collect();
        assert!(failed.is_empty(), "{failed:?}");
    });
}

#[test]
fn r12_whichever_thread_of_a_manager_panics_it_holds_nothing_and_says_so() {
    for thread in ["heartbeat", "renewal", "expiry", "history"] {
        let server = server();
        let trap = Trap::on(thread);
        let lines = Connections::shared(&store(&server, &trap));
        let clock = Arc::<Trap>::clone(&trap);
        let a = LeaseManager::start_on(
            &config().checked().unwrap(),
            InstanceId::new("a"),
            &lines,
            clock,
        )
        .unwrap();
        let (e, f) = (endpoint("e"), endpoint("f"));
        let lease = a.try_acquire(&e).unwrap().held().unwrap();
        assert!(lease.holds() && a.failure().is_none());
        trap.set();
        let _ = a.try_acquire(&f); // something to remember
        assert!(a.failed().within(LIMIT), "{thread}: nobody is told");
        assert!(a.failure().is_some_and(|it| it.thread == thread));
        assert!(!lease.holds() && lease.wait_lost(Duration::ZERO), "{thread}");
        assert!(!a.is_owned(&e) && a.fence(&e).is_none() && a.owned().is_empty(), "{thread}");
        let refused = a.try_acquire(&e).unwrap_err().to_string();
        assert!(refused.contains(thread) && refused.contains("start another"), "{refused}");
        let heartbeats = || server.journal().iter().filter(|it| **it == "heartbeat").count();
        let before = heartbeats();
        let _ = crossbeam_channel::after(config().heartbeat_interval * 4).recv();
        assert!(heartbeats() <= before + 1, "{thread}: it sends heartbeats"); // one was on its way
        let plain: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
        let (me, lines) = (InstanceId::new("b"), Connections::shared(&plain));
        let b =
            LeaseManager::start_on(&config().checked().unwrap(), me, &lines, Arc::new(BootClock))
                .unwrap();
        wait_for(&format!("{thread}: the lease is free"), || b.try_acquire(&e).unwrap().is_held());
    }
}

/// A beat that is executed after the heartbeat was withdrawn must not keep the leases for another TTL.
#[test]
fn r12_a_beat_on_its_way_does_not_outlast_the_withdrawal() {
    let server = server();
    let trap = Trap::on("renewal");
    let (hold, withdrawn) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (held, is_held) = crossbeam_channel::bounded(1);
    let hook = {
        let (trap, hold, withdrawn) =
            (Arc::clone(&trap), Arc::clone(&hold), Arc::clone(&withdrawn));
        move |verb: &str, stage: Stage| {
            trap.step_on();
            if (verb, stage) == ("withdraw", Stage::Answered) {
                withdrawn.fetch_add(1, Ordering::SeqCst);
            }
            if (verb, stage) == ("heartbeat", Stage::Asked) && hold.swap(false, Ordering::SeqCst) {
                held.send(()).unwrap();
                wait_for("the withdrawal", || withdrawn.load(Ordering::SeqCst) > 0);
            }
        }
    };
    let store: Arc<dyn Store> = Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook));
    let clock = Arc::<Trap>::clone(&trap);
    let (me, lines) = (InstanceId::new("a"), Connections::shared(&store));
    let a = LeaseManager::start_on(&config().checked().unwrap(), me, &lines, clock).unwrap();
    let _lease = a.try_acquire(endpoint("e")).unwrap().held().unwrap();
    hold.store(true, Ordering::SeqCst);
    is_held.recv_timeout(LIMIT).expect("a beat is about to be sent");
    trap.set();
    assert!(a.failed().within(LIMIT));
    wait_for("it is withdrawn again", || withdrawn.load(Ordering::SeqCst) > 1);
    assert!(!lives(&server, "a"));
}

#[test]
fn r12_whichever_thread_that_keeps_roles_panics_nothing_is_led() {
    for thread in ["elector", "role-renewal", "role-expiry", "role-watch"] {
        let server = MemoryServer::of_roles(&Arc::new(ManualClock::at(10_000_000_000_000)));
        let trap = Trap::on(thread);
        let way = store(&server, &trap);
        let lines =
            RoleConnections { renewal: Arc::clone(&way), elector: Arc::clone(&way), messages: way };
        let clock = Arc::<Trap>::clone(&trap);
        let me = InstanceId::new("a");
        let elections = Elections::start(me, lines, clock, true, LIMIT).unwrap();
        let config = config();
        let role = |name: &str| config.election_settings(Role::parse(name).unwrap());
        let election = elections.stand(role("r"), None).unwrap();
        wait_for("a leader", || election.is_leader());
        trap.set();
        wait_for(&format!("{thread}: a listener is told"), || elections.failure().is_some());
        wait_for(&format!("{thread}: nothing is led"), || !election.is_leader());
        assert!(elections.failure().is_some_and(|it| it.thread == thread));
        assert_eq!(election.failure(), elections.failure());
        let (_source, until) = stop();
        let ran = election.run(&until, |_| panic!("a start"), |_| panic!("a stop"));
        assert!(matches!(ran, Err(StartError::Failed(_))), "{thread}: {ran:?}");
        assert!(!elections.stop_within(LIMIT), "{thread}: who should give it back?");
        let refused = elections.stand(role("other"), None).map(drop);
        assert!(matches!(refused, Err(StartError::Failed(_))), "{thread}: {refused:?}");
    }
}

/// Panics in every poll of one endpoint, and says in others how often it was asked.
#[derive(Default)]
struct Panicking {
    fine: Fine,
    panics: AtomicUsize,
}

impl Poller for Panicking {
    fn poll(&self, session: &Session, permit: &PollPermit, t: Duration) -> Result<Sample, Revoked> {
        if session.endpoint.as_str() == "bad" {
            self.panics.fetch_add(1, Ordering::SeqCst);
            panic!("no such luck");
        }
        self.fine.poll(session, permit, t)
    }
}

/// A panic of the poller is a failed sample, and its thread goes on: with two workers, after many panics.
#[test]
fn r12_a_poll_that_panics_is_a_failed_sample() {
    let server = server();
    ["bad", "good"].iter().for_each(|it| put_session(&server, it));
    let poller = Arc::new(Panicking::default());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
    let daemon = daemon("a", &Connections::shared(&store), Arc::new(BootClock), &poller);
    wait_for("ten panics", || poller.panics.load(Ordering::SeqCst) >= 10);
    let polls = poller.fine.0.load(Ordering::SeqCst);
    wait_for("polls of the other", || poller.fine.0.load(Ordering::SeqCst) > polls + 2);
    wait_for("a result", || {
        let error = |it: &leasehold::store::memory::Announced| it.publication.sample.error.clone();
        let announced = server.announced_since(0);
        let of_bad =
            announced.iter().filter(|it| it.publication.tenure.endpoint == endpoint("bad"));
        of_bad.filter_map(error).any(|it| it == "the poller panicked: no such luck")
    });
    assert!(daemon.failure().is_none() && daemon.liveness().is_ready());
    daemon.stop();
}
