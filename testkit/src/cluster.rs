//! A whole fleet in memory: the production threads' steps on one manual clock, without a sleep.
//!
//! `pass` lets time go by in small steps. At every step of every thread it checks that at most one
//! instance may start a poll of an endpoint (G1), and that no result is announced that is older, by fence and
//! start, than one before it (G2). Faults: `crash` (gone), `cut_off` (runs, no store), `freeze` (stands still,
//! then wakes).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock, Moment};
use leasehold::config::{Config, LogRenewals};
use leasehold::instance::assembly::{Parts, Queues, assemble};
use leasehold::instance::shutdown::{Phase, Shutdown};
use leasehold::lease::keeper::Connections;
use leasehold::lease::table::{LeaseTimings, OwnershipTable};
use leasehold::model::{EndpointId, FenceToken, InstanceId, LeaseDuration};
use leasehold::store::Store;
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::{PollPermit, Poller, Revoked, Sample, Session};
use parking_lot::Mutex;

use crate::hooked::{Hooked, Reception};
use crate::random::Random;

pub const TTL: Duration = Duration::from_secs(3);
pub const RENEW: Duration = Duration::from_secs(1);
pub const INTERVAL: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(20);

pub fn endpoint(name: &str) -> EndpointId {
    EndpointId::parse(name).unwrap()
}

pub fn timings() -> LeaseTimings {
    LeaseTimings {
        lease: LeaseDuration::new(TTL),
        heartbeat: LeaseDuration::new(TTL),
        renew_interval: RENEW,
        store_timeout: TIMEOUT,
    }
}

/// Random numbers below `n`, the same for a seed every time.
pub fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let random = Random::new(seed);
    move |n| random.below(n)
}

/// Tells the random story of each seed of `LEASEHOLD_SEEDS`, a few by default; names those that fail.
pub fn for_each_seed(story: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let wanted = std::env::var("LEASEHOLD_SEEDS").unwrap_or_else(|_| "1..5".into());
    let (first, last) = wanted.split_once("..").unwrap();
    let seeds = first.parse().unwrap()..last.parse::<u64>().unwrap();
    let failed: Vec<u64> =
        seeds.filter(|seed| std::panic::catch_unwind(|| story(*seed)).is_err()).collect();
    assert!(failed.is_empty(), "run with LEASEHOLD_SEEDS=n..n+1, n one of {failed:?}");
}

/// One poll, as the endpoint saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Moment,
    pub instance: InstanceId,
    pub endpoint: EndpointId,
    pub fence: FenceToken,
}

/// An instance's own clock: the world's, at its own rate, and set off by what it slept through.
pub struct SkewedClock {
    world: Arc<ManualClock>,
    rate_permille: u64,
    slept_nanos: AtomicI64,
}

impl SkewedClock {
    pub fn new(world: &Arc<ManualClock>, rate_permille: u64) -> Arc<Self> {
        let slept_nanos = AtomicI64::new(0);
        Arc::new(Self { world: Arc::clone(world), rate_permille, slept_nanos })
    }

    /// Stood still for that long.
    pub fn sleep(&self, duration: Duration) {
        let nanos = i64::try_from(duration.as_nanos()).unwrap();
        self.slept_nanos.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Moment {
        let world = i64::try_from(self.world.now().as_nanos()).unwrap();
        let ran = world * i64::try_from(self.rate_permille).unwrap() / 1_000;
        let now = ran - self.slept_nanos.load(Ordering::SeqCst);
        Moment::from_nanos(u64::try_from(now).unwrap())
    }
}

struct Recorder {
    world: Arc<ManualClock>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Poller for Recorder {
    fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
        permit.confirm()?;
        self.seen.lock().push(Seen {
            at: self.world.now(),
            instance: permit.instance().clone(),
            endpoint: permit.tenure().endpoint.clone(),
            fence: permit.tenure().fence,
        });
        Ok(Sample { ok: true, status: Some(200), error: None, body: vec![], duration: STEP })
    }
}

pub struct Member {
    pub store: MemoryStore,
    pub table: Arc<OwnershipTable>,
    pub clock: Arc<SkewedClock>,
    parts: Parts,
    reception: Arc<Reception>,
    shutdown: Shutdown,
    frozen: bool,
    /// Reads, plans and moves nothing, but writes heartbeats and renews.
    hung: bool,
    watch_at: Moment,
    beat_at: Moment,
    renew_at: Moment,
    expire_at: Moment,
    reconcile_at: Moment,
    detect_at: Moment,
}

pub struct Cluster {
    pub clock: Arc<ManualClock>,
    pub server: Arc<MemoryServer>,
    pub members: BTreeMap<String, Member>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    endpoints: Vec<EndpointId>,
    timings: LeaseTimings,
    suspect_after: Duration,
    delivers: (bool, bool),
    starts: BTreeMap<String, u32>,
    results: usize,
    /// The newest announced result of each, by fence and start.
    newest: BTreeMap<EndpointId, (FenceToken, u64)>,
}

impl Cluster {
    /// No instance yet; `n` sessions `e0`, `e1`, …
    pub fn empty(n: usize) -> Self {
        let clock = Arc::new(ManualClock::at(10_000_000_000_000));
        let server = MemoryServer::new(&clock);
        let mut cluster = Self {
            clock,
            server,
            members: BTreeMap::new(),
            seen: Arc::default(),
            endpoints: Vec::new(),
            timings: timings(),
            suspect_after: Duration::ZERO,
            delivers: (true, true),
            starts: BTreeMap::new(),
            results: 0,
            newest: BTreeMap::new(),
        };
        (0..n).for_each(|it| cluster.add_session(&format!("e{it}")));
        cluster
    }

    /// These instances, settled, after the first hold-off.
    pub fn new(names: &[&str], n: usize) -> Self {
        let mut cluster = Self::empty(n);
        names.iter().for_each(|it| cluster.join(it));
        cluster.pass(2 * TTL);
        assert_eq!(cluster.owned_total(), n, "a settled fleet owns everything");
        cluster
    }

    /// Instances that join from now on may be revoked, and revoke others (R16).
    pub fn revoking(mut self, suspect_after: Duration) -> Self {
        self.suspect_after = suspect_after;
        self
    }

    /// The heartbeat stays at one a second, and only a short store timeout leaves room for that in a short TTL.
    pub fn with_heartbeat(mut self, ttl: Duration) -> Self {
        self.timings.heartbeat = LeaseDuration::new(ttl);
        let room = self.timings.heartbeat.usable().saturating_sub(RENEW);
        self.timings.store_timeout = self.timings.store_timeout.min(room / 3);
        self
    }

    pub fn add_session(&mut self, name: &str) {
        self.restore_session(name);
        self.endpoints.push(endpoint(name));
    }

    /// Stores a session that is known already, as after a loss.
    pub fn restore_session(&self, name: &str) {
        let json = format!(r#"{{"id":"{name}","address":"127.0.0.1:1"}}"#);
        self.server.put_session(name, json.as_bytes());
    }

    pub fn pause_session(&mut self, name: &str) {
        let json = format!(r#"{{"id":"{name}","address":"127.0.0.1:1","isPaused":true}}"#);
        self.server.put_session(name, json.as_bytes());
    }

    pub fn join(&mut self, name: &str) {
        self.join_at_rate(name, 1_000, false);
    }

    pub fn join_at_rate(&mut self, name: &str, rate_permille: u64, new_fleet: bool) {
        // Never reused, as in life: the n-th start of "b" is "b", "b~2", "b~3" …
        let starts = self.starts.entry(name.into()).or_insert(0);
        *starts += 1;
        let id = match starts {
            1 => InstanceId::new(name),
            n => InstanceId::new(&format!("{name}~{n}")),
        };
        let clock = SkewedClock::new(&self.clock, rate_permille);
        let member = self.assemble(id, clock, new_fleet);
        self.members.insert(name.into(), member);
    }

    fn assemble(&self, id: InstanceId, clock: Arc<SkewedClock>, new_fleet: bool) -> Member {
        let config = Config {
            lease_ttl: self.timings.lease.ttl,
            heartbeat_ttl: self.timings.heartbeat.ttl,
            renew_interval: self.timings.renew_interval,
            store_timeout: self.timings.store_timeout,
            heartbeat_interval: RENEW,
            suspect_after: self.suspect_after,
            weight: 1,
            interval: INTERVAL,
            timeout: TIMEOUT,
            light_after: 5,
            light_interval: TTL,
            reconcile_interval: TTL,
            drain_timeout: TTL,
            workers: 16,
            log_renewals: LogRenewals::Summary,
            new_fleet,
            ..Config::default()
        };
        let config = config.checked().unwrap();
        let (messages, changes) = self.delivers;
        let (loses_messages, is_broken) = Default::default();
        let reception = Arc::new(Reception { messages, changes, loses_messages, is_broken });
        let store = MemoryStore::new(&self.server);
        let line: Arc<dyn Store> = Arc::new(store.share());
        let rest = Arc::new(Hooked::receiving(Arc::clone(&line), &reception));
        let connections = Connections { rest, ..Connections::shared(&line) };
        let recorder = Recorder { world: Arc::clone(&self.clock), seen: Arc::clone(&self.seen) };
        let own_clock: Arc<dyn Clock> = Arc::<SkewedClock>::clone(&clock);
        let poller = Arc::new(recorder);
        let parts = assemble(&config, id, own_clock, &connections, poller, Queues::Unbounded);
        Member {
            store,
            table: Arc::clone(&parts.lease.table),
            clock,
            parts,
            reception,
            shutdown: Shutdown::default(),
            frozen: false,
            hung: false,
            watch_at: Moment::MIN,
            beat_at: Moment::MIN,
            renew_at: Moment::MIN,
            expire_at: Moment::MIN,
            reconcile_at: Moment::MIN,
            detect_at: Moment::MIN,
        }
    }

    /// Stops it in the phases of R11, checking safety after each.
    pub fn stop(&mut self, name: &str) {
        self.begin_stop(name, Phase::ReleaseLeases);
        self.members.remove(name);
        self.check_results();
    }

    /// Begins the phases of R11 up to this one, which lasts until [`Self::stop`] ends it.
    pub fn begin_stop(&mut self, name: &str, last: Phase) {
        while !self.members[name].shutdown.has_begun(last) {
            let member = self.members.get_mut(name).unwrap();
            let phase = member.shutdown.begin_next().unwrap();
            member.shut_down(phase);
            self.check_owners();
        }
    }

    pub fn member(&self, name: &str) -> &Member {
        &self.members[name]
    }

    /// Crashes: it releases nothing and announces nothing. Its host is gone, too, so no connection is closed.
    pub fn crash(&mut self, name: &str) {
        self.members.remove(name).unwrap();
    }

    /// Crashes, and the kernel closes its connections.
    pub fn kill(&mut self, name: &str) {
        let member = self.members.remove(name).unwrap();
        self.server.hang_up(member.table.instance());
    }

    pub fn cut_off(&mut self, name: &str, cut: bool) {
        self.members[name].store.cut_off(cut);
    }

    /// Stands still, as after SIGSTOP; its clock goes on.
    pub fn freeze(&mut self, name: &str, frozen: bool) {
        self.members.get_mut(name).unwrap().frozen = frozen;
    }

    /// Has no subscription for a while and knows it; whatever is said meanwhile is lost.
    pub fn break_subscription(&mut self, name: &str, duration: Duration) {
        let member = self.members.get_mut(name).unwrap();
        member.reception.is_broken.store(true, Ordering::SeqCst);
        member.watch(); // notices it
        member.reception.is_broken.store(false, Ordering::SeqCst);
        member.watch_at = member.clock.now() + duration;
    }

    /// A poll that a hand-over waits for has ended.
    pub fn poll_ended(&mut self, name: &str) {
        self.members.get_mut(name).unwrap().reconcile_at = Moment::MIN;
    }

    /// Its leases end, although it beats.
    pub fn stop_renewing(&mut self, name: &str) {
        self.members.get_mut(name).unwrap().renew_at = Moment::MAX;
    }

    pub fn hang(&mut self, name: &str, hung: bool) {
        self.members.get_mut(name).unwrap().hung = hung;
    }

    /// Instances that join from now on receive neither messages nor changes.
    pub fn deliver_nothing(&mut self) {
        self.deliver(false, false);
    }

    /// Says whether instances that join from now on receive messages of others, and changes of keys. Each knows it.
    pub fn deliver(&mut self, messages: bool, changes: bool) {
        self.delivers = (messages, changes);
    }

    /// Loses the messages of other instances without knowing it; the pushes of the store still arrive.
    pub fn lose_messages(&mut self, name: &str, lost: bool) {
        self.members[name].reception.loses_messages.store(lost, Ordering::SeqCst);
    }

    pub fn drain(&self, name: &str, drained: bool) {
        self.server.set_drain(self.members[name].table.instance().as_str(), drained);
    }

    /// Passes until `holds`, for at most `limit`; how long it took.
    #[track_caller]
    pub fn pass_until(&mut self, limit: Duration, holds: impl Fn(&Self) -> bool) -> Duration {
        let from = self.clock.now();
        while !holds(self) {
            let waited = self.clock.now().since(from);
            assert!(waited < limit, "not within {limit:?}: {:?}", self.counts());
            self.pass(STEP);
        }
        self.clock.now().since(from)
    }

    /// How many each owns, in the order of names.
    pub fn counts(&self) -> Vec<usize> {
        self.members.values().map(|it| it.table.len()).collect()
    }

    /// G5, for equal weights.
    pub fn is_balanced(&self, endpoints: usize) -> bool {
        let counts = self.counts();
        let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
        counts.iter().sum::<usize>() == endpoints && spread <= 1
    }

    /// Paused by its hypervisor for `duration`, on a clock that does not count the pause.
    pub fn sleep(&mut self, name: &str, duration: Duration) {
        self.freeze(name, true);
        self.pass(duration);
        self.members[name].clock.sleep(duration);
        self.freeze(name, false);
    }

    /// Lets time go by, step by step, checking safety at each.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.clock.now() + duration;
        while self.clock.now() < end {
            self.clock.pass(STEP);
            self.server.catch_up();
            let names: Vec<String> = self.members.keys().cloned().collect();
            for name in names {
                for thread in 0..11 {
                    let member = self.members.get_mut(&name).unwrap();
                    if !member.frozen {
                        member.step(thread);
                    }
                    self.check_owners();
                }
            }
            self.check_results();
        }
    }

    /// G1.
    fn check_owners(&self) {
        for endpoint in &self.endpoints {
            let may = self.members.iter().filter(|it| it.1.table.may_start_poll(endpoint));
            if may.clone().count() > 1 {
                let names: Vec<&String> = may.map(|it| it.0).collect();
                panic!("{endpoint} may be polled by {names:?}");
            }
        }
    }

    /// G2.
    fn check_results(&mut self) {
        let news = self.server.announced_since(self.results);
        self.results += news.len();
        for it in news {
            let tenure = it.publication.tenure;
            let order = (tenure.fence, it.publication.started_at_ms);
            let before = self.newest.insert(tenure.endpoint.clone(), order);
            assert!(
                before <= Some(order),
                "{} {order:?} announced after {before:?}",
                tenure.endpoint
            );
        }
    }

    pub fn owned(&self, name: &str) -> usize {
        self.members[name].table.len()
    }

    pub fn owned_total(&self) -> usize {
        self.members.values().map(|it| it.table.len()).sum()
    }

    /// The instance that may poll `endpoint`.
    pub fn holder(&self, endpoint: &EndpointId) -> Option<&str> {
        let held = self.members.iter().find(|it| it.1.table.may_poll(endpoint));
        held.map(|it| it.0.as_str())
    }

    /// The polls since `from`.
    pub fn polls_since(&self, from: Moment) -> Vec<Seen> {
        self.seen.lock().iter().filter(|it| it.at > from).cloned().collect()
    }

    /// The longest time any endpoint went without a poll since `from`.
    pub fn longest_gap(&self, from: Moment) -> Duration {
        let polls = self.polls_since(from);
        let gap = |endpoint: &EndpointId| {
            let mut last = from;
            let mut gap = Duration::ZERO;
            for poll in polls.iter().filter(|it| it.endpoint == *endpoint) {
                gap = gap.max(poll.at.since(last));
                last = poll.at;
            }
            gap.max(self.clock.now().since(last))
        };
        self.endpoints.iter().map(gap).max().unwrap_or_default()
    }
}

impl Member {
    /// What this instance believes about the fleet.
    pub fn view(&self) -> &leasehold::fleet::view::View {
        self.parts.reconcile.view()
    }

    fn step(&mut self, thread: usize) {
        let now = self.clock.now();
        let is_over = |it: Phase| self.shutdown.has_begun(it);
        let has_ended = match thread {
            0 => is_over(Phase::EndHeartbeat),
            1 | 2 => is_over(Phase::ReleaseLeases),
            3 | 4 | 10 => is_over(Phase::EndMoves),
            5 | 6 => is_over(Phase::EndDispatch),
            7 | 9 => is_over(Phase::PublishRest),
            _ => self.shutdown.phase() != Some(Phase::EndPolls),
        };
        if has_ended {
            return;
        }
        let parts = &mut self.parts;
        match thread {
            0 if now >= self.beat_at || !parts.lease.heartbeat_requests.is_empty() => {
                parts.lease.heartbeat_requests.try_iter().for_each(drop);
                self.beat_at = now + parts.lease.heartbeat.step();
            }
            1 if now >= self.renew_at => self.renew_at = now + parts.lease.renewal.step(),
            2 if now >= self.expire_at => self.expire_at = now + parts.lease.expiry.step(),
            3 if !self.hung && now >= self.watch_at => self.watch(),
            4 if !self.hung => {
                let nudges = parts.reconcile.take_waiting();
                if !nudges.is_empty() || now >= self.reconcile_at {
                    self.reconcile_at = now + parts.reconcile.step(&nudges);
                }
            }
            5 => {
                parts.dispatch.take_waiting();
                parts.dispatch.step();
            }
            6 => std::iter::from_fn(|| parts.jobs.take()).for_each(|it| parts.worker.step(it)),
            7 => {
                parts.publisher.take_waiting();
                parts.publisher.step();
            }
            8 if self.table.shutdown_progress().try_recv().is_ok() => {
                parts.lease.release.release_idle();
            }
            9 if self.table.verified_for().is_some() => drop(parts.reverifier.step()),
            10 if self.table.verified_for().is_some() && now >= self.detect_at => {
                self.detect_at = now + parts.detector.step();
            }
            _ => (),
        }
    }

    /// Everything that waits in the subscription.
    fn watch(&mut self) {
        let watch = &mut self.parts.watch;
        loop {
            let before = watch.passed_on();
            let wait = watch.step();
            if !wait.is_zero() {
                self.watch_at = self.clock.now() + wait;
            }
            if watch.passed_on() == before {
                return;
            }
        }
    }

    /// Polls take no time here. A test that holds a permit has one that runs.
    fn shut_down(&mut self, phase: Phase) {
        let Parts { lease, jobs, publisher, .. } = &mut self.parts;
        match phase {
            Phase::EndMoves | Phase::EndPolls => (),
            Phase::EndDispatch => {
                self.table.drain_all();
                std::iter::from_fn(|| jobs.take()).for_each(drop);
            }
            Phase::LeavePlan => lease.release.leave_plan(),
            Phase::PublishRest => {
                publisher.take_waiting();
                publisher.step();
            }
            Phase::EndHeartbeat => drop(lease.heartbeat.withdraw()),
            Phase::ReleaseLeases => lease.release.give_back(&lease.release.forget_all()),
        }
    }
}
