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

use crossbeam_channel::{Receiver, Sender, bounded};
use leasehold::clock::{Clock, ManualClock, Moment};
use leasehold::config::LogRenewals;
use leasehold::fleet::lease_change::LeaseChange;
use leasehold::fleet::reconcile::Reconcile;
use leasehold::lease::expiry::Expiry;
use leasehold::lease::heartbeat::Heartbeat;
use leasehold::lease::renewal::Renewal;
use leasehold::lease::report::Reporter;
use leasehold::lease::table::{LeaseTimings, OwnershipTable};
use leasehold::lease::watch::Nudge;
use leasehold::model::{EndpointId, FenceToken, InstanceId, LeaseDuration, Weight};
use leasehold::polling::dispatch::{Dispatch, PollDone};
use leasehold::polling::job_queue::{JobReceiver, jobs};
use leasehold::polling::publisher::Publisher;
use leasehold::polling::schedule::PollIntervals;
use leasehold::polling::worker::PollWorker;
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::store::{Changes, Push, Store, Subscription};
use leasehold::{PollPermit, Poller, Revoked, Sample, Session};
use parking_lot::Mutex;

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

/// Numbers below `n`, by chance, the same for a seed every time.
pub fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % n
    }
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
    heartbeat: Heartbeat,
    renewal: Renewal,
    expiry: Expiry,
    reconcile: Reconcile,
    dispatch: Dispatch,
    poller: PollWorker,
    publisher: Publisher,
    changes: Receiver<LeaseChange>,
    jobs: JobReceiver,
    dones: Receiver<PollDone>,
    nudges: Receiver<Nudge>,
    subscription: Option<Box<dyn Subscription>>,
    frozen: bool,
    /// Looks, plans and moves nothing, but beats and renews.
    hung: bool,
    /// Whether words of others and changes of keys reach it; it knows.
    hears: (bool, bool),
    /// Loses every word of the others, and does not know it.
    no_words: bool,
    told: bool,
    listen_at: Moment,
    beat_at: Moment,
    renew_at: Moment,
    expire_at: Moment,
    reconcile_at: Moment,
}

pub struct Cluster {
    pub clock: Arc<ManualClock>,
    pub server: Arc<MemoryServer>,
    pub members: BTreeMap<String, Member>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    endpoints: Vec<EndpointId>,
    timings: LeaseTimings,
    hears: (bool, bool),
    starts: BTreeMap<String, u32>,
    results: usize,
    /// The newest announced result of each, by fence and start.
    newest: BTreeMap<EndpointId, (FenceToken, u64)>,
}

impl Cluster {
    /// Nobody yet; `n` sessions `e0`, `e1`, …
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
            hears: (true, true),
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

    pub fn with_heartbeat(mut self, ttl: Duration) -> Self {
        self.timings.heartbeat = LeaseDuration::new(ttl);
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
        let store = MemoryStore::new(&self.server);
        let line: Arc<dyn Store> = Arc::new(store.same_way());
        let own_clock: Arc<dyn Clock> = Arc::<SkewedClock>::clone(&clock);
        let table = Arc::new(OwnershipTable::new(id, self.timings, own_clock, new_fleet));
        let member = self.assemble(store, &line, table, clock);
        self.members.insert(name.into(), member);
    }

    fn assemble(
        &self,
        store: MemoryStore,
        line: &Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        clock: Arc<SkewedClock>,
    ) -> Member {
        let (change, changes): (Sender<LeaseChange>, _) = bounded(10_000);
        let (job, jobs) = jobs();
        let (done, dones) = bounded(1_000);
        let (sample, samples) = bounded(1_000);
        let (nudge, nudges) = bounded(1_000);
        let pace = PollIntervals {
            interval: INTERVAL,
            timeout: TIMEOUT,
            light_after: 5,
            light_interval: TTL,
        };
        let recorder = Recorder { world: Arc::clone(&self.clock), seen: Arc::clone(&self.seen) };
        let share = || Arc::clone(&table);
        let reporter = Reporter::new(&table).renewals(LogRenewals::Summary);
        Member {
            heartbeat: Heartbeat::new(Arc::clone(line), share(), Weight(1), RENEW),
            renewal: Renewal::new(Arc::clone(line), share(), reporter),
            expiry: Expiry::new(share(), Reporter::new(&table)),
            reconcile: Reconcile::new(Arc::clone(line), share(), change, TTL, TTL),
            dispatch: Dispatch::new(Arc::clone(line), share(), pace, job, 16),
            poller: PollWorker::new(Arc::new(recorder), share(), sample, done, nudge.clone()),
            publisher: Publisher::new(Arc::clone(line), share(), samples, nudge),
            store,
            table,
            clock,
            changes,
            jobs,
            dones,
            nudges,
            subscription: None,
            frozen: false,
            hung: false,
            hears: self.hears,
            no_words: false,
            told: false,
            listen_at: Moment::MIN,
            beat_at: Moment::MIN,
            renew_at: Moment::MIN,
            expire_at: Moment::MIN,
            reconcile_at: Moment::MIN,
        }
    }

    pub fn member(&self, name: &str) -> &Member {
        &self.members[name]
    }

    /// Gone without a word.
    pub fn crash(&mut self, name: &str) {
        self.members.remove(name).unwrap();
    }

    pub fn cut_off(&mut self, name: &str, cut: bool) {
        self.members[name].store.cut_off(cut);
    }

    /// Stands still, as after SIGSTOP; its clock goes on.
    pub fn freeze(&mut self, name: &str, frozen: bool) {
        self.members.get_mut(name).unwrap().frozen = frozen;
    }

    /// Hears nothing for a while and knows it; whatever is said meanwhile is lost.
    pub fn break_ear(&mut self, name: &str, duration: Duration) {
        let member = self.members.get_mut(name).unwrap();
        member.subscription = None;
        member.listen_at = member.clock.now() + duration;
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

    /// Whoever joins from now on hears nothing.
    pub fn deafen_all(&mut self) {
        self.hears(false, false);
    }

    /// Whoever joins from now on hears words of others or not, changes of keys or not; and knows it.
    pub fn hears(&mut self, words: bool, changes: bool) {
        self.hears = (words, changes);
    }

    /// What others say does not reach it; the store's own words do.
    pub fn lose_words(&mut self, name: &str, lost: bool) {
        self.members.get_mut(name).unwrap().no_words = lost;
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
                for thread in 0..7 {
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
            let may = self.members.iter().filter(|it| it.1.table.may_poll(endpoint));
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

    /// Who holds `endpoint` and may poll it.
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
    fn step(&mut self, thread: usize) {
        let now = self.clock.now();
        match thread {
            0 if now >= self.beat_at => self.beat_at = now + self.heartbeat.step(),
            1 if now >= self.renew_at => self.renew_at = now + self.renewal.step(),
            2 if now >= self.expire_at => self.expire_at = now + self.expiry.step(),
            3 if !self.hung => self.reconcile(now),
            4 => self.dispatch(),
            5 => std::iter::from_fn(|| self.jobs.take()).for_each(|job| self.poller.step(job)),
            6 => {
                self.publisher.take_waiting();
                self.publisher.step();
            }
            _ => (),
        }
    }

    fn reconcile(&mut self, now: Moment) {
        let mut nudges: Vec<Nudge> = self.nudges.try_iter().collect();
        self.listen(now, &mut nudges);
        if !nudges.is_empty() || now >= self.reconcile_at {
            self.reconcile_at = now + self.reconcile.step(&nudges);
        }
    }

    /// As the thread `watch` does.
    fn listen(&mut self, now: Moment, nudges: &mut Vec<Nudge>) {
        let Some(subscription) = &mut self.subscription else {
            if now >= self.listen_at {
                self.listen_at = now + TIMEOUT;
                self.subscription = self.store.listen(self.table.instance(), TIMEOUT).ok();
                let changes = self.subscription.as_ref().is_some_and(|it| it.hears_changes());
                if self.subscription.is_some() || !std::mem::replace(&mut self.told, true) {
                    let words = self.subscription.is_some() && self.hears.0;
                    let changes = changes && self.hears.1;
                    nudges.push(Nudge::Listening { words, changes, refused: None });
                }
            }
            return;
        };
        loop {
            match subscription.next(Duration::ZERO) {
                Ok(None) => break,
                Ok(Some(heard)) => {
                    if matches!(heard, Push::Changed(Changes { drain: true, .. })) {
                        self.beat_at = Moment::MIN;
                    }
                    let lost = match heard {
                        Push::Word(_) => self.no_words || !self.hears.0,
                        Push::Changed(_) | Push::Everything => !self.hears.1,
                    };
                    if !lost {
                        nudges.push(Nudge::Push(heard));
                    }
                }
                Err(_) => {
                    self.subscription = None;
                    nudges.push(Nudge::Listening { words: false, changes: false, refused: None });
                    break;
                }
            }
        }
    }

    fn dispatch(&mut self) {
        self.changes.try_iter().for_each(|it| self.dispatch.change(it));
        self.dones.try_iter().for_each(|it| self.dispatch.done(&it));
        self.dispatch.step();
    }
}
