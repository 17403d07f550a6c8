//! One process: the parts that `assemble` wires, one step of a part at a time, and the phases of its shutdown (R11).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock, Moment};
use leasehold::config::{CheckedConfig, Config, LogRenewals};
use leasehold::fleet::failure_detector::FailureDetector;
use leasehold::fleet::reconcile::Reconcile;
use leasehold::instance::assembly::{Parts, Queues, assemble};
use leasehold::instance::shutdown::{Phase, Shutdown};
use leasehold::lease::keeper::Connections;
use leasehold::lease::parts::LeaseParts;
use leasehold::lease::table::OwnershipTable;
use leasehold::lease::watch::Watch;
use leasehold::model::{InstanceId, Tenure};
use leasehold::net::abort::Abort;
use leasehold::polling::dispatch::Dispatch;
use leasehold::polling::job_queue::JobReceiver;
use leasehold::polling::publisher::Publisher;
use leasehold::polling::reverify::Reverifier;
use leasehold::polling::worker::PollWorker;
use leasehold::store::Store;
use leasehold::store::memory::MemoryStore;
use leasehold::{PollPermit, Poller, Revoked, Sample, Session};

use super::electors::Electors;
use super::judge::THRESHOLDS;
use super::network::{Delivery, SimulatedStore};
use super::scene::Scene;
use super::world::{Happening, MS, START, World, nanos, world};

/// Polls of one process at the same time.
pub const WORKERS: usize = 2;

/// How long polls that run may take in a shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Heartbeat,
    Renewal,
    Expiry,
    Watch,
    Reconcile,
    Dispatch,
    Publish,
    Poller0,
    Poller1,
    RoleElector,
    RoleRenewal,
    RoleExpiry,
    RoleWatch,
    /// The stop, in the order of R11.
    Stop,
    Verify,
    Detect,
}

const PARTS: usize = 16;
const PARTS_IN_ORDER: [Part; PARTS] = [
    Part::Heartbeat,
    Part::Renewal,
    Part::Expiry,
    Part::Watch,
    Part::Reconcile,
    Part::Dispatch,
    Part::Publish,
    Part::Poller0,
    Part::Poller1,
    Part::RoleElector,
    Part::RoleRenewal,
    Part::RoleExpiry,
    Part::RoleWatch,
    Part::Stop,
    Part::Verify,
    Part::Detect,
];

/// What gets through between a process and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Open,
    NoRequests,
    NoReplies,
    Cut,
}

/// A process's own clock: the world's at its own rate, behind by what it did not count.
pub struct SimClock {
    world: Arc<ManualClock>,
    /// In millionths of the server's rate.
    pub rate: u64,
    offset: u64,
    slept: std::sync::atomic::AtomicU64,
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        let gone = self.world.now().as_nanos() - START;
        let slept = self.slept.load(std::sync::atomic::Ordering::Relaxed);
        Moment::from_nanos(self.offset + gone / 1_000 * self.rate / 1_000 - slept)
    }
}

/// One simulated process.
pub struct Member {
    /// It is the n-th process that was started.
    pub n: usize,
    pub name: String,
    pub weight: u32,
    pub table: Arc<OwnershipTable>,
    pub clock: Arc<SimClock>,
    /// The process has ended.
    pub gone: Cell<bool>,
    pub link: Link,
    pub pause: Pause,
    pub observed: Observed,
    pub stages: Stages,
    turns: Turns,
    stopping: Stopping,
}

/// The connection to the store.
pub struct Link {
    pub state: Cell<LinkState>,
    /// When the way that does not let requests through is open again.
    pub mended_at: Cell<u64>,
    /// Latency beyond the usual, in milliseconds each way.
    pub far_ms: Cell<u64>,
    /// How often it broke.
    pub breaks: Cell<u32>,
    /// Until then its results do not arrive, and everything else does.
    pub results_lost_until: Cell<u64>,
}

/// When the process stands still, and whether it knows.
#[derive(Default)]
pub struct Pause {
    pub frozen_until: Cell<u64>,
    pub thawed_at: Cell<u64>,
    /// Has slept on a clock that did not count it and has had no answer of the store since: nothing is promised.
    pub unaware_of_sleep: Cell<bool>,
    /// The same for its roles, each of which finds out by itself: until its lease is over.
    pub roles_unaware_of_sleep_until: Cell<u64>,
}

/// What the judge has seen of the process.
#[derive(Default)]
pub struct Observed {
    /// It knew, at the last check, that its results get no answer.
    pub stuck: Cell<bool>,
    /// The store has answered since the last check.
    pub answered: Cell<bool>,
    /// What it may poll, at the last check: a bit for each endpoint.
    pub may: RefCell<Vec<u64>>,
    /// Tenures whose renewal had no answer (G3).
    pub uncertain: RefCell<Vec<Tenure>>,
    pub running: RefCell<Vec<(usize, Arc<Abort>)>>,
    /// Polls that ended with a result.
    pub completed: Cell<u64>,
}

/// What `assemble` built, and the roles.
pub struct Stages {
    lease: LeaseParts,
    watch: RefCell<Watch>,
    reconcile: RefCell<Reconcile>,
    dispatch: RefCell<Dispatch>,
    detector: RefCell<FailureDetector>,
    reverifier: Reverifier,
    worker: PollWorker,
    jobs: JobReceiver,
    publisher: RefCell<Publisher>,
    pub electors: RefCell<Option<Electors>>,
}

/// When each part steps next, and which parts are stepping.
struct Turns {
    due: [Cell<u64>; PARTS],
    /// A bit for each part that is stepping.
    busy: Cell<usize>,
    /// The first heartbeat was answered, so all parts run.
    started: Cell<bool>,
}

/// The shutdown (R11).
#[derive(Default)]
struct Stopping {
    /// How far the shutdown has come, if it has begun.
    shutdown: Cell<Shutdown>,
    /// The leases that the last phase releases.
    released: RefCell<Vec<Tenure>>,
    /// When running polls are aborted.
    drain_until: Cell<u64>,
}

impl Member {
    /// Where the view of this instance differs from the store, as sentences.
    pub fn errors(&self, world: &World, living: &[std::rc::Rc<Self>]) -> Vec<String> {
        let Ok(reconcile) = self.stages.reconcile.try_borrow() else { return Vec::new() };
        let view = reconcile.view();
        let mut errors = Vec::new();
        for endpoint in &world.endpoints {
            let owner = world.server.owner(endpoint);
            match (view.contains(endpoint), view.owner(endpoint)) {
                (true, seen) if seen != owner.as_ref() => {
                    errors.push(format!("{endpoint} is {seen:?}'s, it is {owner:?}'s"));
                }
                (false, _) if owner.is_some() => errors.push(format!("{endpoint} is not there")),
                (true, None) => errors.push(format!("{endpoint} is there and free")),
                _ => (),
            }
        }
        for (seen, weight) in view.instances() {
            if !living.iter().any(|it| it.table.instance() == seen) {
                errors.push(format!("{seen} is alive ({weight:?})"));
            }
        }
        for it in living.iter().filter(|it| !view.is_live(it.table.instance())) {
            errors.push(format!("{} is dead", it.name));
        }
        errors
    }

    pub fn start(world: &World, name: &str, rate: u64, weight: u32) {
        let n = world.members.borrow().len();
        // Never reused: the id names one start.
        let id = InstanceId::new(&format!("{name}-{n}-0"));
        let offset = START / 2 + world.dice.below(1_000_000) * MS;
        let slept = std::sync::atomic::AtomicU64::new(0);
        let clock = Arc::new(SimClock { world: Arc::clone(&world.clock), rate, offset, slept });
        let line = |server, of_roles: bool| -> Arc<dyn Store> {
            let scene = &world.scene;
            let changes = scene.delivers_changes && !of_roles;
            let delivery = Delivery { messages: scene.delivers_messages || of_roles, changes };
            Arc::new(SimulatedStore::new(n, MemoryStore::new(server), of_roles, delivery))
        };
        let store = line(&world.server, false);
        let own: Arc<dyn Clock> = Arc::<SimClock>::clone(&clock);
        let scene = &world.scene;
        let config = config(scene, weight);
        let connections = Connections::shared(&store);
        let (poller, clock_of) = (Arc::new(Endpoint(n)), Arc::clone(&own));
        let parts =
            assemble(&config, id.clone(), clock_of, &connections, poller, Queues::Unbounded);
        let Parts { lease, watch, reconcile, detector, dispatch, reverifier, .. } = parts;
        let Parts { worker, jobs, publisher, .. } = parts;
        let electors = Electors::new(world, &id, &line(&world.roles, true), &own);
        let member = Self {
            n,
            name: format!("{name}{n}"),
            weight,
            table: Arc::clone(&lease.table),
            clock,
            gone: Cell::new(false),
            link: Link {
                state: Cell::new(LinkState::Open),
                mended_at: Cell::new(0),
                far_ms: Cell::new(0),
                breaks: Cell::new(1),
                results_lost_until: Cell::new(0),
            },
            pause: Pause::default(),
            observed: Observed::default(),
            stages: Stages {
                lease,
                watch: RefCell::new(watch),
                reconcile: RefCell::new(reconcile),
                dispatch: RefCell::new(dispatch),
                detector: RefCell::new(detector),
                reverifier,
                worker,
                jobs,
                publisher: RefCell::new(publisher),
                electors: RefCell::new(electors),
            },
            turns: Turns {
                due: std::array::from_fn(|_| Cell::new(u64::MAX)),
                busy: Cell::new(0),
                started: Cell::new(false),
            },
            stopping: Stopping::default(),
        };
        world.trace.say(world.now(), || format!("{} starts, weight {weight}", member.name));
        let member = std::rc::Rc::new(member);
        world.members.borrow_mut().push(std::rc::Rc::clone(&member));
        member.wake(world, Part::Heartbeat, 0);
    }

    /// It stops, or was told to and has not heard it yet.
    pub fn is_to_stop(&self) -> bool {
        self.is_stopping() || self.turns.due[Part::Stop as usize].get() != u64::MAX
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.shutdown.get().phase().is_some()
    }

    /// R11: the part that this phase ends takes no further step.
    fn runs_until(&self, phase: Phase) -> bool {
        !self.stopping.shutdown.get().has_begun(phase)
    }

    /// Its process is there and does not stand still.
    pub fn is_awake(&self, world: &World) -> bool {
        !self.gone.get() && self.pause.frozen_until.get() <= world.now()
    }

    /// Lets a thread step that much later, unless it is to step sooner.
    pub fn wake(&self, world: &World, part: Part, after: u64) {
        let due = &self.turns.due[part as usize];
        let at = world.now() + after + world.dice.below(200_000);
        if at < due.get() && self.turns.busy.get() & (1 << part as usize) == 0 {
            due.set(at);
            world.at(at, Happening::Step(self.n, part));
        }
    }

    /// A thread waits this long by the process's clock, and then for its turn.
    fn wake_after(&self, world: &World, part: Part, wait: Duration) {
        let wait =
            nanos(wait.min(Duration::from_secs(3_600))) / 1_000 * 1_000_000 / self.clock.rate;
        let late = if world.dice.permille(10) { world.dice.below(20 * MS) } else { 1_000 };
        self.wake(world, part, wait * 1_000 + late);
    }

    /// Goes on at once, if it stood still.
    pub fn thaw(&self, world: &World) {
        let now = world.now();
        if self.pause.frozen_until.get() > now {
            self.pause.frozen_until.set(now);
            self.pause.thawed_at.set(now);
            for part in
                PARTS_IN_ORDER.iter().filter(|it| self.turns.due[**it as usize].get() != u64::MAX)
            {
                self.wake(world, *part, 0);
            }
        }
    }

    /// Wakes every part that has input.
    pub fn wake_receivers(&self, world: &World) {
        // A part that steps is awake.
        if !self.stages.lease.heartbeat_requests.is_empty() {
            self.wake(world, Part::Heartbeat, 0);
        }
        if self.stages.reconcile.try_borrow().is_ok_and(|it| it.is_told()) {
            self.wake(world, Part::Reconcile, 0);
        }
        if self.stages.dispatch.try_borrow().is_ok_and(|it| it.is_told()) {
            self.wake(world, Part::Dispatch, 0);
        }
        if self.table.verified_for().is_some() && self.table.first_poll_began().try_recv().is_ok() {
            self.wake(world, Part::Verify, 0);
        }
        if !self.stages.jobs.is_empty() {
            self.wake(world, Part::Poller0, 0);
            self.wake(world, Part::Poller1, 0);
        }
        if self.stages.publisher.try_borrow().is_ok_and(|it| it.is_told()) {
            self.wake(world, Part::Publish, 0);
        }
    }

    pub fn step(&self, world: &World, part: Part) {
        let due = &self.turns.due[part as usize];
        if self.gone.get() || due.get() > world.now() {
            return; // it is dead, or steps at another time
        }
        due.set(u64::MAX);
        if self.pause.frozen_until.get() > world.now() {
            let after = self.pause.frozen_until.get() - world.now();
            return self.wake(world, part, after);
        }
        let bit = 1 << part as usize;
        self.turns.busy.set(self.turns.busy.get() | bit);
        world.steps.set(world.steps.get() + 1);
        let wait = self.act(world, part);
        self.turns.busy.set(self.turns.busy.get() & !bit);
        if self.gone.get() {
            return;
        }
        world.judge.stepped(world, self, part);
        if let Some(wait) = wait {
            self.wake_after(world, part, wait);
        }
        self.wake_receivers(world);
    }

    /// One step of a thread; how long it waits for the next, if it does not only wait to be woken.
    fn act(&self, world: &World, part: Part) -> Option<Duration> {
        match part {
            Part::Heartbeat if self.runs_until(Phase::EndHeartbeat) => {
                self.stages.lease.heartbeat_requests.try_iter().for_each(drop);
                let wait = self.stages.lease.heartbeat.step();
                if self.table.is_beating() && !self.turns.started.replace(true) {
                    self.begin(world);
                }
                Some(wait)
            }
            Part::Renewal if self.runs_until(Phase::ReleaseLeases) => {
                Some(self.stages.lease.renewal.step())
            }
            Part::Expiry if self.runs_until(Phase::ReleaseLeases) => {
                let wait = self.stages.lease.expiry.step();
                Some(wait.max(until_deadline(&self.table)))
            }
            Part::Watch if self.runs_until(Phase::EndMoves) => {
                let mut watch = self.stages.watch.borrow_mut();
                let wait = watch.step();
                // With a subscription it would wait for pushes: it is woken for each, and now and then.
                let mut before = 0;
                while watch.passed_on() > before {
                    before = watch.passed_on();
                    watch.step();
                }
                Some(if wait.is_zero() { Duration::from_secs(2) } else { wait })
            }
            Part::Reconcile if self.runs_until(Phase::EndMoves) => {
                let mut reconcile = self.stages.reconcile.borrow_mut();
                let nudges = reconcile.take_waiting();
                Some(reconcile.step(&nudges))
            }
            Part::Dispatch if self.runs_until(Phase::EndDispatch) => {
                let mut dispatch = self.stages.dispatch.borrow_mut();
                dispatch.take_waiting();
                Some(dispatch.step())
            }
            Part::Poller0 | Part::Poller1 => {
                // The end of dispatch closes the queue.
                let job =
                    self.stages.jobs.take().filter(|_| self.runs_until(Phase::EndDispatch))?;
                self.stages.worker.step(job);
                (!self.stages.jobs.is_empty()).then_some(Duration::ZERO)
            }
            // From then on the shutdown itself publishes the rest.
            Part::Publish if self.runs_until(Phase::PublishRest) => {
                let mut publisher = self.stages.publisher.borrow_mut();
                publisher.take_waiting();
                let calls = world.calls.get();
                let wait = publisher.step();
                // As long as it has something to say.
                (!wait.is_zero() || world.calls.get() != calls).then_some(wait)
            }
            Part::Stop => self.stop(world),
            // R15: until the last poll has ended.
            Part::Verify if self.runs_until(Phase::PublishRest) => {
                Some(self.stages.reverifier.step())
            }
            Part::Detect if self.runs_until(Phase::EndMoves) => {
                Some(self.stages.detector.borrow_mut().step())
            }
            Part::Verify | Part::Detect => None,
            _ if part >= Part::RoleElector => {
                self.stages.electors.borrow().as_ref().and_then(|it| it.step(world, self, part))
            }
            _ => None,
        }
    }

    /// The first beat was answered: everything else begins.
    fn begin(&self, world: &World) {
        use Part::{Dispatch, Expiry, Reconcile, Renewal, Watch};
        use Part::{RoleElector, RoleExpiry, RoleRenewal, RoleWatch};
        let all = [Renewal, Expiry, Watch, Reconcile, Dispatch];
        all.iter().for_each(|it| self.wake(world, *it, 0));
        if self.table.verified_for().is_some() {
            [Part::Verify, Part::Detect].iter().for_each(|it| self.wake(world, *it, 0));
        }
        if self.stages.electors.borrow().is_some() {
            let all = [RoleElector, RoleRenewal, RoleExpiry, RoleWatch];
            all.iter().for_each(|it| self.wake(world, *it, 0));
        }
    }

    fn is_busy(&self, parts: &[Part]) -> bool {
        parts.iter().any(|it| self.turns.busy.get() & (1 << *it as usize) != 0)
    }

    /// R11: one look at the phase under way; when it is over, the next begins.
    fn stop(&self, world: &World) -> Option<Duration> {
        let soon = Some(Duration::from_millis(1));
        let mut shutdown = self.stopping.shutdown.get();
        if shutdown.phase().is_some_and(|it| !self.has_ended(world, it)) {
            return soon;
        }
        let Some(phase) = shutdown.begin_next() else {
            self.gone.set(true);
            world.server.hang_up(self.table.instance());
            world.trace.say(world.now(), || format!("{} has stopped", self.name));
            return None;
        };
        self.stopping.shutdown.set(shutdown);
        world.trace.say(world.now(), || format!("{} stops: {phase:?}", self.name));
        match phase {
            Phase::EndMoves => {
                if let Some(electors) = &*self.stages.electors.borrow() {
                    electors.stop();
                    self.wake(world, Part::RoleElector, 0);
                }
            }
            Phase::EndDispatch => self.table.drain_all(),
            Phase::LeavePlan => self.stages.lease.release.leave_plan(),
            Phase::EndPolls => self.stopping.drain_until.set(world.now() + nanos(DRAIN_TIMEOUT)),
            Phase::ReleaseLeases => {
                *self.stopping.released.borrow_mut() = self.stages.lease.release.forget_all()
            }
            Phase::PublishRest | Phase::EndHeartbeat => (),
        }
        world.faults.in_shutdown(world, self, phase);
        soon
    }

    /// Whether what this phase ends has ended. Does the last bit of it.
    fn has_ended(&self, world: &World, phase: Phase) -> bool {
        use Part::{
            Dispatch, Expiry, Heartbeat, Poller0, Poller1, Publish, Reconcile, Renewal, Watch,
        };
        match phase {
            Phase::EndMoves => !self.is_busy(&[Reconcile, Watch, Part::Detect]),
            Phase::EndDispatch => !self.is_busy(&[Dispatch]),
            Phase::LeavePlan => true,
            Phase::EndPolls => {
                if self.table.shutdown_progress().try_recv().is_ok() {
                    world.faults.in_shutdown(world, self, phase);
                    self.stages.lease.release.release_idle();
                }
                let polls = self.is_busy(&[Poller0, Poller1]);
                if !polls && self.is_busy(&[Part::Verify]) {
                    return false;
                }
                if polls && world.now() >= self.stopping.drain_until.get() {
                    self.table.abort_all();
                }
                !polls
            }
            Phase::PublishRest => {
                if self.is_busy(&[Publish]) {
                    return false;
                }
                let mut publisher = self.stages.publisher.borrow_mut();
                publisher.take_waiting();
                publisher.step();
                true
            }
            Phase::EndHeartbeat => {
                if self.is_busy(&[Heartbeat]) {
                    return false;
                }
                let _ = self.stages.lease.heartbeat.withdraw();
                true
            }
            Phase::ReleaseLeases => {
                let roles =
                    self.stages.electors.borrow().as_ref().is_some_and(|it| !it.is_finished());
                if self.is_busy(&[Renewal, Expiry]) || roles {
                    return false;
                }
                self.stages.lease.release.give_back(&self.stopping.released.take());
                true
            }
        }
    }

    /// Paused by its hypervisor; on wakening its clock has not counted it.
    pub fn slept(&self, world: &World, slept: u64) {
        let life = nanos(world.scene.timings.lease.ttl);
        self.pause.roles_unaware_of_sleep_until.set(world.now() + life + life / 20);
        let gone = slept / 1_000 * self.clock.rate / 1_000;
        self.clock.slept.fetch_add(gone, std::sync::atomic::Ordering::Relaxed);
        self.pause.unaware_of_sleep.set(true);
    }
}

/// The expiry looks at its clock many times before a deadline, in case it has slept; nobody sleeps unseen here,
/// and looks that change nothing are left out.
pub fn until_deadline(table: &OwnershipTable) -> Duration {
    let wait = |at: Moment| at.since(table.now()) + Duration::from_micros(100);
    table.next_deadline().map_or(Duration::from_secs(1), wait)
}

fn config(scene: &Scene, weight: u32) -> CheckedConfig {
    let config = Config {
        lease_ttl: scene.timings.lease.ttl,
        heartbeat_ttl: scene.timings.heartbeat.ttl,
        renew_interval: scene.timings.renew_interval,
        store_timeout: scene.timings.store_timeout,
        heartbeat_interval: scene.heartbeat_interval,
        suspect_after: scene.suspect_after,
        weight,
        interval: scene.poll_interval,
        timeout: Duration::from_secs(3),
        light_after: 5,
        light_interval: scene.poll_interval * 2,
        thresholds: THRESHOLDS,
        reconcile_interval: Duration::from_secs(10),
        drain_timeout: DRAIN_TIMEOUT,
        workers: WORKERS,
        log_renewals: LogRenewals::Summary,
        ..Config::default()
    };
    config.checked().unwrap()
}

/// What is polled: takes its time, and tells the judge.
struct Endpoint(usize);

impl Poller for Endpoint {
    fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
        let world = &*world();
        let member = &*world.member(self.0);
        let dice = &world.dice;
        // Name lookup, connect, TLS.
        world.wait(member, world.now() + dice.skewed(5 * MS), &|| permit.abort().is_fired());
        if member.gone.get() {
            return Err(Revoked); // a dead process makes no poll
        }
        permit.confirm()?;
        let endpoint = index(permit.tenure().endpoint.as_str());
        world.judge.poll_begins(world, member, endpoint, permit);
        // Its verification may end before anything that the thread expiry waits for.
        member.wake_after(world, Part::Expiry, until_deadline(&member.table));
        let takes = if dice.permille(20) { dice.below(3_000) } else { dice.skewed(30) };
        member.observed.running.borrow_mut().push((endpoint, Arc::clone(permit.abort())));
        world.wait(member, world.now() + takes * MS, &|| permit.abort().is_fired());
        member.observed.running.borrow_mut().retain(|it| !Arc::ptr_eq(&it.1, permit.abort()));
        if permit.abort().is_fired() {
            permit.confirm()?;
        }
        let duration = Duration::from_millis(takes);
        member.observed.completed.set(member.observed.completed.get() + 1);
        let ok = !is_down(world, endpoint);
        let error = (!ok).then(|| "down".into());
        Ok(Sample { ok, status: Some(200), error, body: vec![], duration })
    }
}

/// Each endpoint answers for five polls, and fails for three: too few for light polling.
fn is_down(world: &World, endpoint: usize) -> bool {
    let poll = (world.now() - START) / nanos(world.scene.poll_interval);
    (poll + endpoint as u64) % 8 >= 5
}

/// The number of an endpoint, by its name.
pub fn index(name: &str) -> usize {
    name[1..].parse().unwrap_or(0)
}
