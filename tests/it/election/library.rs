//! Elections as a Rust programmer uses them: real threads, a real Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use leasehold::Config;
use leasehold::config::RedisUrl;
use leasehold::election::ElectionEvent::{
    ElectionFailed, LeadershipAcquired, LeadershipLost, StateChanged,
};
use leasehold::election::State::{Candidate, Follower, Leader};
use leasehold::election::{
    Attempt, ElectionBuilder, ElectionEvent, ElectionSettings, Elections, LeaderElection,
    LossReason, State,
};
use leasehold::model::Role;
use leasehold::thread::stop;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use testkit::redis::{RedisServer, eventually};

pub(super) const TTL: Duration = Duration::from_secs(3);
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// A hand-over: not an election interval, not a TTL.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A test that counts threads holds this alone; all other tests share it.
static THREADS: RwLock<()> = RwLock::new(());

pub(super) struct Scene {
    pub(super) redis: RedisServer,
    _not_counted: RwLockReadGuard<'static, ()>,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self { _not_counted: THREADS.read(), redis: RedisServer::start() }
    }

    pub(super) fn builder(&self, role: &str) -> ElectionBuilder {
        builder(&self.redis, role)
    }

    pub(super) fn start(&self, role: &str) -> LeaderElection {
        self.builder(role).start().unwrap()
    }

    /// One that leads.
    pub(super) fn leader(&self, role: &str) -> LeaderElection {
        let election = self.start(role);
        assert!(election.wait_for_leadership(LIMIT), "{election:?}");
        election
    }

    /// One that knows that another leads.
    pub(super) fn follower(&self, role: &str) -> LeaderElection {
        let election = self.start(role);
        eventually(|| election.leader().is_some(), || format!("{election:?}"));
        election
    }
}

fn builder(redis: &RedisServer, role: &str) -> ElectionBuilder {
    let builder = LeaderElection::builder(role).unwrap().redis(&redis.url()).unwrap();
    builder.ttl(TTL).new_fleet()
}

pub(super) fn elections(redis: &RedisServer) -> Elections {
    let redis = RedisUrl::parse(&redis.url()).unwrap();
    let config = Config { redis, new_fleet: true, ..Config::default() };
    Elections::on_redis(&config.checked().unwrap()).unwrap()
}

/// R14: settings are checked even if a program filled them in. Nothing is written that would lock others out.
#[test]
fn settings_that_cannot_work_are_refused_by_every_start() {
    let scene = Scene::new();
    let elections = elections(&scene.redis);
    let settings = Config::default().election_settings(Role::parse("r").unwrap());
    let hour = Duration::from_secs(3_600);
    for (odd, flag) in [
        (ElectionSettings { ttl: Duration::ZERO, ..settings.clone() }, "ttl "),
        (ElectionSettings { ttl: Duration::MAX, ..settings.clone() }, "ttl "),
        (ElectionSettings { heartbeat_interval: hour, ..settings.clone() }, "heartbeat_interval"),
        (ElectionSettings { store_timeout: Duration::MAX, ..settings.clone() }, "store_timeout"),
        (ElectionSettings { startup_jitter: Duration::MAX, ..settings.clone() }, "startup_jitter"),
    ] {
        let said = elections.stand(odd.clone(), None).unwrap_err().to_string();
        assert!(said.contains(flag), "{flag}: {said}");
        let said = elections.try_lead(odd).unwrap_err().to_string();
        assert!(said.contains(flag), "{flag}: {said}");
    }
    for ttl in [Duration::ZERO, Duration::MAX] {
        assert!(scene.builder("r").ttl(ttl).start().is_err());
        assert!(scene.builder("r").ttl(ttl).start_in(&elections).is_err());
        assert!(scene.builder("r").ttl(ttl).try_lead().is_err());
    }
    for odd in ["", "a b", "a\n"] {
        assert!(scene.builder("r").heartbeat_prefix(odd).start().is_err(), "{odd:?}");
        assert!(scene.builder("r").host_name(odd).start().is_err(), "{odd:?}");
    }
    assert_eq!(scene.redis.cli(&["KEYS", "*"]), "");
}

/// Runs `body` on a thread of its own; fails if it has not ended in time, instead of hanging.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, ended) = bounded(1);
    std::thread::spawn(move || drop(done.send(body())));
    ended.recv_timeout(limit).unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// Hears everything, in order.
fn subscription(election: &LeaderElection) -> Receiver<ElectionEvent> {
    let (said, heard) = unbounded();
    let _stays = election.listen(move |event| drop(said.send(event.clone()))).unwrap();
    heard
}

fn next(heard: &Receiver<ElectionEvent>) -> ElectionEvent {
    heard.recv_timeout(LIMIT).expect("no event came")
}

fn changes(events: &[ElectionEvent]) -> Vec<(State, State)> {
    let change = |it: &ElectionEvent| match it {
        StateChanged { from, to, .. } => Some((*from, *to)),
        _ => None,
    };
    events.iter().filter_map(change).collect()
}

/// 003: 30 s, renewed every 10 s; 004: looked at every 15 s, heartbeat 35 s, no delay unless asked for.
#[test]
fn the_defaults_are_the_documents() {
    let scene = Scene::new();
    let usual = Config::default().election_settings(Role::parse("r").unwrap());
    assert_eq!(usual.ttl, Duration::from_secs(30));
    assert_eq!(usual.heartbeat_interval, Duration::from_secs(10));
    assert_eq!(usual.election_interval, Duration::from_secs(15));
    assert_eq!(usual.startup_jitter, Duration::ZERO);
    assert_eq!((usual.priority, usual.stands), (0, true));
    let builder = LeaderElection::builder("r").unwrap().redis(&scene.redis.url()).unwrap();
    let election = builder.host_name("vm-7").new_fleet().start().unwrap();
    assert!(election.wait_for_leadership(LIMIT));
    let id = election.instance_id().to_string();
    assert!(id.starts_with("vm-7-") && id.len() > 20, "{id} could come back");
    assert_eq!(scene.redis.cli(&["GET", "leader:r"]), id);
    let left = |key: &str| scene.redis.cli(&["PTTL", key]).parse::<u64>().unwrap();
    let beat = left(&format!("leader:heartbeat:{id}"));
    assert!((29_000..=30_000).contains(&left("leader:r")), "{}", left("leader:r"));
    assert!((34_000..=35_000).contains(&beat), "{beat}");
    assert_eq!(election.leader().as_ref(), Some(election.instance_id()));
    assert_eq!(election.role().as_str(), "r");
}

/// 004: `leaderKey("my-app:leader")`, `heartbeatKeyPrefix("my-app:heartbeat:")`.
#[test]
fn prefixes_are_taken_literally() {
    let scene = Scene::new();
    let builder = scene.builder("r").leader_prefix("my-app").heartbeat_prefix("beats/");
    let election = builder.start().unwrap();
    assert!(election.wait_for_leadership(LIMIT));
    let mut keys: Vec<String> = scene.redis.cli(&["KEYS", "*"]).lines().map(String::from).collect();
    keys.sort_unstable();
    let beat = format!("beats/{}", election.instance_id());
    assert_eq!(keys, [beat.as_str(), "my-app:epoch", "my-app:r"]);
}

/// Everything that cannot work is refused before anything begins, in a sentence.
#[test]
fn settings_that_cannot_work_are_refused_in_a_sentence() {
    let scene = Scene::new();
    let refused = |builder: ElectionBuilder| builder.start().unwrap_err().to_string();
    let ms = Duration::from_millis;
    for (role, word) in [("epoch", "epoch or heartbeat"), ("", "1 to 128"), ("a:b", "A-Z a-z 0-9")]
    {
        let error = LeaderElection::builder(role).unwrap_err().to_string();
        assert!(error.contains(word), "{role:?}: {error}");
    }
    let error = LeaderElection::builder("r").unwrap().redis("http://x").unwrap_err().to_string();
    assert!(error.contains("redis://"), "{error}");
    let cases = [
        (scene.builder("r").ttl(ms(100)), "ttl 100ms is out"),
        (scene.builder("r").heartbeat_interval(TTL), "heartbeat_interval"),
        (scene.builder("r").heartbeat_interval(Duration::ZERO), "heartbeat_interval"),
        (scene.builder("r").election_interval(Duration::ZERO), "election_interval"),
        (scene.builder("r").startup_jitter(Duration::from_secs(86_400)), "startup_jitter"),
        (scene.builder("r").leader_prefix("poll"), "poll"),
        (scene.builder("r").leader_prefix(""), "leader_prefix"),
        (scene.builder("r").host_name("a b"), "host_name must"),
    ];
    for (builder, word) in cases {
        let error = refused(builder);
        assert!(error.contains(word) && error.len() > 20, "{word}: {error}");
    }
    assert_eq!(scene.redis.cli(&["DBSIZE"]), "0", "something had begun");
}

/// "Fails where a daemon would wait"; and the other way.
#[test]
fn without_a_store_start_fails_and_start_waiting_waits() {
    let mut scene = Scene::new();
    scene.redis.kill();
    let error = scene.builder("r").start().unwrap_err().to_string();
    assert!(error.contains("connect"), "{error}");
    let (source, until) = stop();
    let waiting = scene.builder("r");
    let (done, ended) = bounded(1);
    std::thread::spawn(move || drop(done.send(waiting.start_waiting(&until))));
    assert!(ended.recv_timeout(Duration::from_millis(400)).is_err(), "it did not wait");
    scene.redis.restart_empty();
    let election = ended.recv_timeout(LIMIT).expect("it waits for ever").unwrap();
    assert!(election.wait_for_leadership(LIMIT));
    drop(source);
}

/// R14: "the first to name it sets it, another is refused with both values".
#[test]
fn another_ttl_is_refused_with_both_values() {
    let scene = Scene::new();
    let _first = scene.leader("r");
    let error = scene.builder("r").ttl(2 * TTL).start().unwrap_err().to_string();
    assert!(error.contains("3000ms") && error.contains("6000ms"), "{error}");
    scene.builder("another-role").ttl(2 * TTL).start().unwrap().stop();
}

/// 003: start, stop, "Leader releases lock immediately".
#[test]
fn a_stop_hands_over_at_once_and_leaves_nothing_behind() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    assert_eq!((leader.state(), follower.state()), (Leader, Follower));
    assert_eq!(follower.leader().as_ref(), Some(leader.instance_id()));
    assert!(follower.term().is_none() && !follower.is_leader());
    assert!(!follower.wait_for_leadership(Duration::from_millis(50)));
    let (term, id) = (leader.term().unwrap(), leader.instance_id().clone());
    let began = Instant::now();
    leader.stop();
    assert!(follower.wait_for_leadership(AT_ONCE), "{follower:?} after {:?}", began.elapsed());
    println!("measured: stop to leader in {:?}", began.elapsed());
    assert!(follower.term().unwrap() > term);
    assert_eq!(scene.redis.cli(&["EXISTS", &format!("leader:heartbeat:{id}")]), "0");
    follower.stop();
    assert_eq!(scene.redis.cli(&["KEYS", "*"]), "leader:epoch");
}

#[test]
fn a_resignation_hands_over_at_once() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    leader.resign();
    assert!(!leader.is_leader());
    assert!(follower.wait_for_leadership(AT_ONCE), "{follower:?}");
    eventually(
        || leader.leader().as_ref() == Some(follower.instance_id()),
        || format!("{leader:?}"),
    );
}

/// "several roles in one process share threads and connections".
#[test]
fn several_roles_share_threads_and_connections() {
    let _alone = THREADS.write();
    let redis = RedisServer::start();
    let elections = elections(&redis);
    let names = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |it: std::fs::DirEntry| std::fs::read_to_string(it.path().join("comm"));
        let names = tasks.filter_map(|it| name(it.unwrap()).ok()).map(|it| it.trim().to_owned());
        let ours = |it: &String| it == "elector" || it.starts_with("role-");
        let mut names: Vec<String> = names.filter(ours).collect();
        names.sort_unstable();
        names
    };
    let clients = || redis.cli(&["CLIENT", "LIST"]).lines().count() - 1;
    let expected = ["elector", "role-expiry", "role-renewal", "role-watch"];
    let mut all = Vec::new();
    let mut seen = Vec::new();
    for n in 0..6 {
        let election = builder(&redis, &format!("r{n}")).start_in(&elections).unwrap();
        assert!(election.wait_for_leadership(LIMIT));
        all.push(election);
        eventually(|| names() == expected, || format!("with {} roles: {:?}", n + 1, names()));
        seen.push(clients());
    }
    let renewed = |n: usize| redis.cli(&["PTTL", &format!("leader:r{n}")]).parse::<i64>().unwrap();
    eventually(|| (0..6).all(|it| renewed(it) > 2_500), || format!("{:?}", (0..6).map(renewed)));
    seen.push(clients());
    assert!(seen.iter().all(|it| *it <= 4), "connections with one role more each: {seen:?}");
    assert!(all.iter().all(|it| it.instance_id() == elections.instance_id()));
    drop(elections);
    assert!(all.iter().all(LeaderElection::is_leader), "the last role keeps the threads");
    drop(all);
    assert_eq!(names(), Vec::<String>::new());
}

/// R7: under one id both would be the leader.
#[test]
fn one_instance_cannot_stand_twice_for_a_role() {
    let scene = Scene::new();
    let elections = elections(&scene.redis);
    let first = scene.builder("r").start_in(&elections).unwrap();
    assert!(first.wait_for_leadership(LIMIT));
    let term = first.term();
    let error = scene.builder("r").start_in(&elections).unwrap_err().to_string();
    assert!(error.contains("stands for the role r already"), "{error}");
    assert_eq!(first.term(), term, "it was disturbed");
    first.stop();
    let again = scene.builder("r").start_in(&elections).unwrap();
    assert!(again.wait_for_leadership(LIMIT), "stopped is free again");
}

/// "never miss or reorder a transition and cannot block the elector".
#[test]
fn a_slow_listener_hears_everything_in_order_and_late() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    let (go, may_go) = bounded::<()>(0);
    let (said, heard) = unbounded();
    let _stays = follower
        .listen(move |event| {
            let _ = may_go.recv_timeout(LIMIT);
            let _ = said.send(event.clone());
        })
        .unwrap();
    let quick = subscription(&follower);
    leader.stop();
    assert!(follower.wait_for_leadership(AT_ONCE));
    follower.resign();
    assert!(follower.wait_for_leadership(LIMIT), "it stands again though nobody has listened yet");
    let told: Vec<ElectionEvent> = (0..8).map(|_| next(&quick)).collect();
    assert!(heard.is_empty(), "the slow one has not even begun");
    (0..8).for_each(|_| go.send_timeout((), LIMIT).unwrap());
    assert_eq!((0..8).map(|_| next(&heard)).collect::<Vec<_>>(), told);
    let steps = [(Follower, Candidate), (Candidate, Leader), (Leader, Follower)];
    assert_eq!(changes(&told), [&steps[..], &steps[..2]].concat());
    assert!(matches!(&told[2], LeadershipAcquired { .. }), "{told:#?}");
    assert!(matches!(&told[4], LeadershipLost { reason: LossReason::Resigned, .. }), "{told:#?}");
}

/// One that never comes back holds up neither the hand-over nor, for ever, the stop.
#[test]
fn a_blocked_listener_does_not_hold_up_the_hand_over() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    let (release, blocked) = bounded::<()>(0);
    let _stays = leader
        .listen(move |_| {
            let _ = blocked.recv_timeout(LIMIT);
        })
        .unwrap();
    let began = Instant::now();
    let stopping = std::thread::spawn(move || leader.stop());
    assert!(follower.wait_for_leadership(AT_ONCE), "{follower:?} after {:?}", began.elapsed());
    drop(release);
    within(LIMIT, "the stop", move || stopping.join().unwrap());
}

/// The panic of one is not the business of the others, nor of the elector.
#[test]
fn a_listener_that_panics_misses_one_event_and_disturbs_nobody() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    let called = Arc::new(AtomicUsize::new(0));
    let panics = || {
        let called = Arc::clone(&called);
        move |_: &ElectionEvent| {
            called.fetch_add(1, Ordering::SeqCst);
            panic!("a listener's own affair");
        }
    };
    let _inline = follower.listen_inline(panics());
    let _threaded = follower.listen(panics()).unwrap();
    let heard = subscription(&follower);
    leader.stop();
    assert!(follower.wait_for_leadership(AT_ONCE));
    let told: Vec<ElectionEvent> = (0..3).map(|_| next(&heard)).collect();
    assert_eq!(changes(&told), [(Follower, Candidate), (Candidate, Leader)]);
    let count = || called.load(Ordering::SeqCst);
    eventually(|| count() == 6, || format!("called {} times for 3 events", count()));
}

/// What waits in the queue of a slow listener is not told once it is taken out.
#[test]
fn an_unregistered_listener_is_not_told_what_waits() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    let (entered, has_entered) = bounded(10);
    let (release, may_go) = bounded::<()>(0);
    let registration = follower
        .listen(move |_| {
            let _ = entered.send(());
            let _ = may_go.recv_timeout(LIMIT);
        })
        .unwrap();
    let heard = subscription(&follower);
    leader.stop();
    assert!(follower.wait_for_leadership(AT_ONCE));
    (0..3).for_each(|_| drop(next(&heard)));
    has_entered.recv_timeout(LIMIT).unwrap();
    registration.unregister();
    drop(release);
    follower.resign();
    (0..2).for_each(|_| drop(next(&heard)));
    // Its thread ends, and with it its end of the channel.
    assert!(has_entered.recv_timeout(LIMIT).is_err(), "told after it was taken out");
}

/// "or inline if asked": it may ask and do anything but wait for the elector.
#[test]
fn an_inline_listener_may_ask_and_resign() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    let follower = Arc::new(follower);
    let (weak, seen) = (Arc::downgrade(&follower), Arc::new(Mutex::new(Vec::new())));
    let states = Arc::clone(&seen);
    let _stays = follower.listen_inline(move |event| {
        let Some(election) = weak.upgrade() else { return };
        states.lock().push((election.state(), election.is_leader()));
        if matches!(event, LeadershipAcquired { .. }) {
            election.resign();
        }
    });
    let heard = subscription(&follower);
    leader.stop();
    let told: Vec<ElectionEvent> = (0..5).map(|_| next(&heard)).collect();
    assert!(matches!(told[4], LeadershipLost { reason: LossReason::Resigned, .. }), "{told:#?}");
    let seen = seen.lock().clone();
    assert_eq!(seen[..3], [(Candidate, false), (Leader, true), (Leader, true)]);
    assert!(seen[3..].iter().all(|it| !it.1), "{seen:?}");
}

/// "a guard whose drop resigns", "a one-shot form".
#[test]
fn a_guard_leads_until_it_is_dropped() {
    let scene = Scene::new();
    let guard = scene.builder("r").try_lead().unwrap().elected().expect("nobody leads");
    assert!(guard.holds() && guard.term().is_some());
    let leader = guard.election().instance_id().clone();
    let second = scene.builder("r").try_lead().unwrap();
    assert!(matches!(&second, Attempt::LedBy(it) if *it == leader), "{second}");
    let follower = scene.follower("r");
    drop(guard);
    assert!(follower.wait_for_leadership(AT_ONCE));
}

/// It stands once, whatever else it was told; otherwise it would wait for ever.
#[test]
fn a_single_attempt_of_an_observer_is_an_attempt() {
    let scene = Scene::new();
    let builder = scene.builder("r").observer();
    let led = within(LIMIT, "a verdict", move || builder.try_lead().unwrap().elected().is_some());
    assert!(led);
}

#[test]
fn an_observer_follows_whoever_leads() {
    let scene = Scene::new();
    let observer = scene.builder("r").observer().start().unwrap();
    let leader = scene.leader("r");
    let sees = || observer.leader().as_ref() == Some(leader.instance_id());
    eventually(sees, || format!("{observer:?} sees {:?}", observer.leader()));
    assert!(observer.run_if_leader(|_| ()).is_none() && observer.enter().is_none());
}

/// `run_if_leader` from several threads, and a resignation in the midst of it: nothing runs beside the next
/// leader's work.
#[test]
fn work_on_several_threads_ends_before_another_leads() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    let running = AtomicUsize::new(0);
    let began = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let work = |duty: &leasehold::election::Duty| {
                    running.fetch_add(1, Ordering::SeqCst);
                    began.fetch_add(1, Ordering::SeqCst);
                    assert!(duty.term().get() > 0);
                    crossbeam_channel::after(Duration::from_millis(3)).recv().unwrap();
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                while leader.run_if_leader(work).is_some() {}
            });
        }
        eventually(|| began.load(Ordering::SeqCst) > 20, || "nothing runs".into());
        leader.resign();
        assert!(follower.wait_for_leadership(AT_ONCE), "{follower:?}");
        assert_eq!(running.load(Ordering::SeqCst), 0, "something runs beside the next leader");
        follower.run_if_leader(|duty| assert!(duty.holds())).expect("the next leader works");
    });
}

/// However a stop meets an attempt that is on its way, it ends and leaves the role to others.
#[test]
fn a_stop_in_the_midst_of_an_attempt_leaves_nothing_behind() {
    let scene = Scene::new();
    let elections = elections(&scene.redis);
    for n in 0..60 {
        let election = scene.builder("r").start_in(&elections).unwrap();
        // Each time a little later.
        let pause = Duration::from_micros(n * 40);
        let began = Instant::now();
        while began.elapsed() < pause {
            std::hint::spin_loop();
        }
        within(LIMIT, &format!("stop number {n}"), move || election.stop());
        assert_eq!(scene.redis.cli(&["EXISTS", "leader:r"]), "0", "stop number {n}");
    }
}

/// The same for a resignation: it may come too early to mean anything, but never gets stuck.
#[test]
fn a_resignation_in_the_midst_of_an_attempt_gets_nobody_stuck() {
    let scene = Scene::new();
    let elections = elections(&scene.redis);
    for n in 0..60 {
        let election = scene.builder("r").start_in(&elections).unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(n * 40) {
            election.resign();
        }
        election.resign();
        within(LIMIT, &format!("stop number {n}"), move || election.stop());
        assert_eq!(scene.redis.cli(&["EXISTS", "leader:r"]), "0", "stop number {n}");
    }
}

/// R3: a store that hangs ends a leadership at its deadline, and a stop does not wait for it.
#[test]
fn while_redis_hangs_nobody_leads_and_a_stop_ends() {
    let scene = Scene::new();
    let leader = scene.leader("r");
    let heard = subscription(&leader);
    scene.redis.pause();
    let began = Instant::now();
    eventually(|| leader.state() == Follower, || format!("{leader:?}"));
    assert!(!leader.is_leader() && began.elapsed() < TTL, "{:?}", began.elapsed());
    assert!(leader.run_if_leader(|_| ()).is_none());
    let expired = LossReason::Expired;
    eventually(
        || {
            heard
                .try_iter()
                .any(|it| matches!(it, LeadershipLost { reason, .. } if reason == expired))
        },
        || "no word of it".into(),
    );
    let took = within(LIMIT, "the stop", move || {
        let began = Instant::now();
        leader.stop();
        began.elapsed()
    });
    println!("measured: stop with a store that hangs in {took:?}");
    assert!(took < 2 * TTL, "{took:?}");
    scene.redis.resume();
}

/// R6, R5: a Redis that is killed and comes back empty; then one that comes back with the data of another fleet.
#[test]
fn a_redis_that_comes_back_empty_keeps_its_leader() {
    let mut scene = Scene::new();
    let leader = scene.leader("r");
    let term = leader.term();
    scene.redis.restart_empty();
    eventually(
        || leader.is_leader() && scene.redis.cli(&["EXISTS", "leader:r"]) == "1",
        || format!("{leader:?}"),
    );
    assert_eq!(leader.term(), term);
}

/// "ElectionFailed": told with its reason when the store refuses.
#[test]
fn a_role_whose_key_is_something_else_fails_in_a_sentence() {
    let scene = Scene::new();
    let observer = scene.builder("r").observer().start().unwrap();
    scene.redis.cli(&["LPUSH", "leader:r", "1"]);
    let election = scene.start("r");
    let heard = subscription(&election);
    let failed = loop {
        if let ElectionFailed { winner, reason, .. } = next(&heard) {
            break (winner, reason);
        }
    };
    assert_eq!(failed.0, None);
    assert!(failed.1.contains("WRONGTYPE"), "{}", failed.1);
    assert_eq!((election.is_leader(), observer.leader()), (false, None));
    scene.redis.cli(&["DEL", "leader:r"]);
    assert!(election.wait_for_leadership(LIMIT));
}

/// A listener may keep the election itself, and drop it last: nothing waits for itself.
#[test]
fn a_listener_that_drops_the_election_ends() {
    let scene = Scene::new();
    let (leader, follower) = (scene.leader("r"), scene.follower("r"));
    let kept = Arc::new(Mutex::new(None));
    let (ended, has_ended): (Sender<()>, _) = bounded(1);
    let own = Arc::clone(&kept);
    let _stays = follower
        .listen(move |event| {
            if matches!(event, LeadershipAcquired { .. }) {
                let mine: Option<LeaderElection> = own.lock().take();
                drop(mine);
                let _ = ended.send(());
            }
        })
        .unwrap();
    *kept.lock() = Some(follower);
    leader.stop();
    has_ended.recv_timeout(LIMIT).expect("it waits for itself");
    assert_eq!(scene.redis.cli(&["EXISTS", "leader:r"]), "0");
}

/// One store timeout (2 s at this TTL) and a second, for all roles of a process together.
#[test]
fn many_roles_stop_within_one_store_timeout_while_redis_hangs() {
    let scene = Scene::new();
    let elections = elections(&scene.redis);
    let start = |n: usize| {
        let ttl = Duration::from_secs(30);
        scene.builder(&format!("r{n}")).ttl(ttl).start_in(&elections).unwrap()
    };
    let all: Vec<LeaderElection> = (0..40).map(start).collect();
    all.iter().for_each(|it| assert!(it.wait_for_leadership(LIMIT), "{it:?}"));
    scene.redis.pause();
    let began = Instant::now();
    within(Duration::from_secs(60), "the stop", move || {
        drop(all);
        drop(elections);
    });
    let took = began.elapsed();
    println!("measured: 40 roles stopped in {took:?} while Redis hangs");
    // A second more than is promised, on a machine that is busy.
    assert!(took < Duration::from_secs(4), "{took:?}");
    scene.redis.resume();
}

/// A role of each kind of order in which a struct can drop its fields.
#[test]
fn an_election_that_is_dropped_before_its_duty_ends() {
    struct Job {
        election: LeaderElection,
        duty: leasehold::election::Duty,
    }
    let scene = Scene::new();
    let shared = elections(&scene.redis);
    for election in [scene.start("own"), scene.builder("shared").start_in(&shared).unwrap()] {
        assert!(election.wait_for_leadership(LIMIT));
        let role = election.role().to_string();
        let job = Job { duty: election.enter().unwrap(), election };
        assert!(job.duty.holds() && job.election.is_leader());
        within(2 * TTL, "the drop", move || drop(job));
        // The work has ended with it, so the role is given back and not left to its TTL.
        let key = format!("leader:{role}");
        eventually(
            || scene.redis.cli(&["EXISTS", &key]) == "0",
            || scene.redis.cli(&["PTTL", &key]),
        );
    }
}

/// Registered while it is being elected, at whatever moment: the leadership is heard of once.
#[test]
fn a_listener_hears_of_the_leadership_once_whenever_it_begins_to_listen() {
    let scene = Scene::new();
    let elections = elections(&scene.redis);
    for n in 0..30 {
        let election = scene.builder(&format!("r{n}")).start_in(&elections).unwrap();
        let pause = Duration::from_micros(200 * n);
        let _ = crossbeam_channel::after(pause).recv();
        let heard = subscription(&election);
        assert!(election.wait_for_leadership(LIMIT));
        let mut acquired = 0;
        while acquired == 0 {
            acquired += usize::from(matches!(next(&heard), LeadershipAcquired { .. }));
        }
        election.stop();
        let more = heard.iter().filter(|it| matches!(it, LeadershipAcquired { .. })).count();
        assert_eq!(acquired + more, 1, "after {pause:?}");
    }
}

/// Hundreds of roles on a real server: one that has just forgotten the scripts, too.
#[test]
fn three_hundred_roles_are_led_and_kept() {
    let scene = Scene::new();
    let elections = elections(&scene.redis);
    let start = |n: usize| scene.builder(&format!("r{n}")).start_in(&elections).unwrap();
    let all: Vec<LeaderElection> = (0..300).map(start).collect();
    all.iter().for_each(|it| assert!(it.wait_for_leadership(LIMIT), "{it:?}"));
    let terms: Vec<_> = all.iter().map(LeaderElection::term).collect();
    let renewals = || {
        let stats = scene.redis.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find(|it| it.contains("evalsha:calls=")).unwrap_or("").to_owned();
        let calls = line.split(['=', ',']).nth(1).and_then(|it| it.parse::<u64>().ok());
        calls.unwrap_or(0)
    };
    scene.redis.cli(&["SCRIPT", "FLUSH"]);
    let before = renewals();
    eventually(|| renewals() > before + 900, || format!("{} renewals", renewals() - before));
    let now: Vec<_> = all.iter().map(LeaderElection::term).collect();
    assert_eq!(now, terms, "some were lost and won again");
    let began = Instant::now();
    drop(all);
    println!("measured: 300 roles given back in {:?}", began.elapsed());
    let left = scene.redis.cli(&["KEYS", "leader:r*"]);
    assert_eq!(left, "", "not given back");
}

/// Point 1, for roles: as many threads as you like, one instance or several, one leader at a time, and no wrong answer.
#[test]
fn a_role_that_many_threads_try_at_once_has_one_leader_and_every_answer_is_true() {
    let scene = Scene::new();
    let processes: Vec<Elections> = (0..3).map(|_| elections(&scene.redis)).collect();
    let ids: Vec<_> = processes.iter().map(|it| it.instance_id().clone()).collect();
    let (leading, newest) = (AtomicUsize::new(0), Mutex::new(0));
    let led = AtomicUsize::new(0);
    let until = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        for n in 0..64 {
            let (elections, ids) = (&processes[n % 3], &ids);
            let (scene, leading, newest, led) = (&scene, &leading, &newest, &led);
            scope.spawn(move || {
                while Instant::now() < until {
                    let config = Config::default();
                    let settings = config.election_settings(Role::parse("r").unwrap());
                    match elections.try_lead(settings) {
                        Ok(Attempt::Elected(leadership)) => {
                            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
                            if let Some(term) = leadership.term() {
                                let mut newest = newest.lock();
                                assert!(term.get() > *newest, "{term} after {newest}");
                                *newest = term.get();
                            }
                            led.fetch_add(1, Ordering::SeqCst);
                            leading.fetch_sub(1, Ordering::SeqCst);
                            drop(leadership);
                        }
                        Ok(Attempt::LedBy(leader)) => {
                            assert!(ids.contains(&leader), "{leader} is nobody");
                        }
                        Ok(other) => panic!("{other}"),
                        Err(error) => panic!("{error} on {}", scene.redis.url()),
                    }
                }
            });
        }
    });
    println!("measured: led {} times in 4 s by 64 threads", led.load(Ordering::SeqCst));
    assert!(led.load(Ordering::SeqCst) > 0);
    drop(processes);
    assert_eq!(scene.redis.cli(&["EXISTS", "leader:r"]), "0", "not given back");
}
