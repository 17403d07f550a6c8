//! One process: the parts that `assemble` wires, one step of a part at a time, and the phases of its shutdown (R11).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock, Moment};
use leasehold::config::{Config, LogRenewals};
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
use leasehold::polling::worker::PollWorker;
use leasehold::store::Store;
use leasehold::store::memory::MemoryStore;
use leasehold::{PollPermit, Poller, Revoked, Sample, Session};

use super::electors::Electors;
use super::line::{Hears, Line};
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
}

const PARTS: usize = 14;
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
];

/// What gets through between a process and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Open,
    NoRequests,
    NoReplies,
    Cut,
}

/// A process's own clock: the world's at its own rate, behind by what it did not count.
pub struct SimClock {
    world: Arc<ManualClock>,
    rate: u64,
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

pub struct Member {
    pub n: usize,
    pub name: String,
    pub id: InstanceId,
    pub rate: u64,
    pub weight: u32,
    pub table: Arc<OwnershipTable>,
    clock: Arc<SimClock>,
    pub gone: Cell<bool>,
    /// How far its shutdown has come, if it has begun.
    shutdown: Cell<Shutdown>,
    /// The leases that the last phase gives back.
    released: RefCell<Vec<Tenure>>,
    pub way: Cell<Way>,
    /// It knew, when last looked at, that its results get no answer.
    pub stuck: Cell<bool>,
    /// Until then its results do not arrive, and everything else does.
    pub results_lost_until: Cell<u64>,
    /// When the way that does not let requests through is open again.
    pub mended_at: Cell<u64>,
    /// How far the store is away, beyond the usual, in milliseconds each way.
    pub far_ms: Cell<u64>,
    pub breaks: Cell<u32>,
    pub frozen_until: Cell<u64>,
    pub thawed_at: Cell<u64>,
    /// Has slept on a clock that did not count it and has not heard from the store since: nothing is promised.
    pub dazed: Cell<bool>,
    /// The same of its roles, each of which finds out by itself: until its lease is over.
    pub roles_dazed_until: Cell<u64>,
    /// The store has answered since this was last looked at.
    pub answered: Cell<bool>,
    /// What it may poll, as last looked at: a bit for each endpoint.
    pub may: RefCell<Vec<u64>>,
    /// What a renewal had no answer about (G3).
    pub uncertain: RefCell<Vec<Tenure>>,
    pub running: RefCell<Vec<(usize, Arc<Abort>)>>,
    due: [Cell<u64>; PARTS],
    started: Cell<bool>,
    lease: LeaseParts,
    watch: RefCell<Watch>,
    reconcile: RefCell<Reconcile>,
    dispatch: RefCell<Dispatch>,
    worker: PollWorker,
    jobs: JobReceiver,
    publisher: RefCell<Publisher>,
    pub electors: RefCell<Option<Electors>>,
    /// Polls that ended with a result.
    pub completed: Cell<u64>,
    busy: Cell<usize>,
    drain_until: Cell<u64>,
}

impl Member {
    /// What this one takes to be the case and is not, said for people.
    pub fn errors(&self, world: &World, living: &[std::rc::Rc<Self>]) -> Vec<String> {
        let Ok(reconcile) = self.reconcile.try_borrow() else { return Vec::new() };
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
            let changes = scene.hears_changes && !of_roles;
            let hears = Hears { words: scene.hears_words || of_roles, changes };
            Arc::new(Line::new(n, MemoryStore::new(server), of_roles, hears))
        };
        let store = line(&world.server, false);
        let own: Arc<dyn Clock> = Arc::<SimClock>::clone(&clock);
        let scene = &world.scene;
        let config = config(scene, weight);
        let connections = Connections::shared(&store);
        let (poller, clock_of) = (Arc::new(Endpoint(n)), Arc::clone(&own));
        let Parts { lease, watch, reconcile, dispatch, worker, jobs, publisher, .. } =
            assemble(&config, id.clone(), clock_of, &connections, poller, Queues::Unbounded);
        let electors = Electors::new(world, &id, &line(&world.roles, true), &own);
        let member = Self {
            n,
            name: format!("{name}{n}"),
            rate,
            weight,
            table: Arc::clone(&lease.table),
            lease,
            watch: RefCell::new(watch),
            reconcile: RefCell::new(reconcile),
            dispatch: RefCell::new(dispatch),
            worker,
            jobs,
            publisher: RefCell::new(publisher),
            id,
            clock,
            gone: Cell::new(false),
            shutdown: Cell::default(),
            released: RefCell::default(),
            way: Cell::new(Way::Open),
            stuck: Cell::new(false),
            results_lost_until: Cell::new(0),
            mended_at: Cell::new(0),
            far_ms: Cell::new(0),
            breaks: Cell::new(1),
            frozen_until: Cell::new(0),
            thawed_at: Cell::new(0),
            dazed: Cell::new(false),
            roles_dazed_until: Cell::new(0),
            answered: Cell::new(false),
            may: RefCell::default(),
            uncertain: RefCell::default(),
            running: RefCell::default(),
            due: std::array::from_fn(|_| Cell::new(u64::MAX)),
            started: Cell::new(false),
            electors: RefCell::new(electors),
            completed: Cell::new(0),
            busy: Cell::new(0),
            drain_until: Cell::new(0),
        };
        world.trace.say(world.now(), || format!("{} starts, weight {weight}", member.name));
        let member = std::rc::Rc::new(member);
        world.members.borrow_mut().push(std::rc::Rc::clone(&member));
        member.wake(world, Part::Heartbeat, 0);
    }

    /// It stops, or was told to and has not heard it yet.
    pub fn is_to_stop(&self) -> bool {
        self.is_stopping() || self.due[Part::Stop as usize].get() != u64::MAX
    }

    pub fn is_stopping(&self) -> bool {
        self.shutdown.get().phase().is_some()
    }

    /// R11: the part that this phase ends takes no further step.
    fn runs_until(&self, phase: Phase) -> bool {
        !self.shutdown.get().has_begun(phase)
    }

    /// Its process is there and does not stand still.
    pub fn is_awake(&self, world: &World) -> bool {
        !self.gone.get() && self.frozen_until.get() <= world.now()
    }

    /// Lets a thread step that much later, unless it is to step sooner.
    pub fn wake(&self, world: &World, part: Part, after: u64) {
        let due = &self.due[part as usize];
        let at = world.now() + after + world.dice.below(200_000);
        if at < due.get() && self.busy.get() & (1 << part as usize) == 0 {
            due.set(at);
            world.at(at, Happening::Step(self.n, part));
        }
    }

    /// A thread waits so long by the process's clock, and then for its turn.
    fn wake_after(&self, world: &World, part: Part, wait: Duration) {
        let wait = nanos(wait.min(Duration::from_secs(3_600))) / 1_000 * 1_000_000 / self.rate;
        let late = if world.dice.permille(10) { world.dice.below(20 * MS) } else { 1_000 };
        self.wake(world, part, wait * 1_000 + late);
    }

    /// Goes on at once, if it stood still.
    pub fn thaw(&self, world: &World) {
        let now = world.now();
        if self.frozen_until.get() > now {
            self.frozen_until.set(now);
            self.thawed_at.set(now);
            for part in PARTS_IN_ORDER.iter().filter(|it| self.due[**it as usize].get() != u64::MAX)
            {
                self.wake(world, *part, 0);
            }
        }
    }

    /// Whoever has something to receive wakes up.
    pub fn wake_receivers(&self, world: &World) {
        // A part that steps is awake.
        if !self.lease.heartbeat_requests.is_empty() {
            self.wake(world, Part::Heartbeat, 0);
        }
        if self.reconcile.try_borrow().is_ok_and(|it| it.is_told()) {
            self.wake(world, Part::Reconcile, 0);
        }
        if self.dispatch.try_borrow().is_ok_and(|it| it.is_told()) {
            self.wake(world, Part::Dispatch, 0);
        }
        if !self.jobs.is_empty() {
            self.wake(world, Part::Poller0, 0);
            self.wake(world, Part::Poller1, 0);
        }
        if self.publisher.try_borrow().is_ok_and(|it| it.is_told()) {
            self.wake(world, Part::Publish, 0);
        }
    }

    pub fn step(&self, world: &World, part: Part) {
        let due = &self.due[part as usize];
        if self.gone.get() || due.get() > world.now() {
            return; // it is dead, or steps at another time
        }
        due.set(u64::MAX);
        if self.frozen_until.get() > world.now() {
            let after = self.frozen_until.get() - world.now();
            return self.wake(world, part, after);
        }
        let bit = 1 << part as usize;
        self.busy.set(self.busy.get() | bit);
        world.steps.set(world.steps.get() + 1);
        let wait = self.act(world, part);
        self.busy.set(self.busy.get() & !bit);
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
                self.lease.heartbeat_requests.try_iter().for_each(drop);
                let wait = self.lease.heartbeat.step();
                if self.table.is_beating() && !self.started.replace(true) {
                    self.begin(world);
                }
                Some(wait)
            }
            Part::Renewal if self.runs_until(Phase::ReleaseLeases) => {
                Some(self.lease.renewal.step())
            }
            Part::Expiry if self.runs_until(Phase::ReleaseLeases) => {
                let wait = self.lease.expiry.step();
                Some(wait.max(until_deadline(&self.table)))
            }
            Part::Watch if self.runs_until(Phase::EndMoves) => {
                let mut watch = self.watch.borrow_mut();
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
                let mut reconcile = self.reconcile.borrow_mut();
                let nudges = reconcile.take_waiting();
                Some(reconcile.step(&nudges))
            }
            Part::Dispatch if self.runs_until(Phase::EndDispatch) => {
                let mut dispatch = self.dispatch.borrow_mut();
                dispatch.take_waiting();
                Some(dispatch.step())
            }
            Part::Poller0 | Part::Poller1 => {
                // The end of dispatch closes the queue.
                let job = self.jobs.take().filter(|_| self.runs_until(Phase::EndDispatch))?;
                self.worker.step(job);
                (!self.jobs.is_empty()).then_some(Duration::ZERO)
            }
            // From then on the shutdown itself publishes the rest.
            Part::Publish if self.runs_until(Phase::PublishRest) => {
                let mut publisher = self.publisher.borrow_mut();
                publisher.take_waiting();
                let calls = world.calls.get();
                let wait = publisher.step();
                // As long as it has something to say.
                (!wait.is_zero() || world.calls.get() != calls).then_some(wait)
            }
            Part::Stop => self.stop(world),
            _ if part >= Part::RoleElector => {
                self.electors.borrow().as_ref().and_then(|it| it.step(world, self, part))
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
        if self.electors.borrow().is_some() {
            let all = [RoleElector, RoleRenewal, RoleExpiry, RoleWatch];
            all.iter().for_each(|it| self.wake(world, *it, 0));
        }
    }

    fn is_busy(&self, parts: &[Part]) -> bool {
        parts.iter().any(|it| self.busy.get() & (1 << *it as usize) != 0)
    }

    /// R11: one look at the phase under way; when it is over, the next begins.
    fn stop(&self, world: &World) -> Option<Duration> {
        let soon = Some(Duration::from_millis(1));
        let mut shutdown = self.shutdown.get();
        if shutdown.phase().is_some_and(|it| !self.has_ended(world, it)) {
            return soon;
        }
        let Some(phase) = shutdown.begin_next() else {
            self.gone.set(true);
            world.trace.say(world.now(), || format!("{} has stopped", self.name));
            return None;
        };
        self.shutdown.set(shutdown);
        world.trace.say(world.now(), || format!("{} stops: {phase:?}", self.name));
        match phase {
            Phase::EndMoves => {
                if let Some(electors) = &*self.electors.borrow() {
                    electors.stop();
                    self.wake(world, Part::RoleElector, 0);
                }
            }
            Phase::EndDispatch => self.table.drain_all(),
            Phase::LeavePlan => self.lease.release.leave_plan(),
            Phase::EndPolls => self.drain_until.set(world.now() + nanos(DRAIN_TIMEOUT)),
            Phase::ReleaseLeases => *self.released.borrow_mut() = self.lease.release.forget_all(),
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
            Phase::EndMoves => !self.is_busy(&[Reconcile, Watch]),
            Phase::EndDispatch => !self.is_busy(&[Dispatch]),
            Phase::LeavePlan => true,
            Phase::EndPolls => {
                if self.table.shutdown_progress().try_recv().is_ok() {
                    world.faults.in_shutdown(world, self, phase);
                    self.lease.release.release_idle();
                }
                let polls = self.is_busy(&[Poller0, Poller1]);
                if polls && world.now() >= self.drain_until.get() {
                    self.table.abort_all();
                }
                !polls
            }
            Phase::PublishRest => {
                if self.is_busy(&[Publish]) {
                    return false;
                }
                let mut publisher = self.publisher.borrow_mut();
                publisher.take_waiting();
                publisher.step();
                true
            }
            Phase::EndHeartbeat => {
                if self.is_busy(&[Heartbeat]) {
                    return false;
                }
                let _ = self.lease.heartbeat.withdraw();
                true
            }
            Phase::ReleaseLeases => {
                let roles = self.electors.borrow().as_ref().is_some_and(|it| !it.is_finished());
                if self.is_busy(&[Renewal, Expiry]) || roles {
                    return false;
                }
                self.lease.release.give_back(&self.released.take());
                true
            }
        }
    }

    /// Paused by its hypervisor; on wakening its clock has not counted it.
    pub fn slept(&self, world: &World, slept: u64) {
        let life = nanos(world.scene.timings.lease.ttl);
        self.roles_dazed_until.set(world.now() + life + life / 20);
        let gone = slept / 1_000 * self.rate / 1_000;
        self.clock.slept.fetch_add(gone, std::sync::atomic::Ordering::Relaxed);
        self.dazed.set(true);
    }
}

/// The expiry looks at its clock many times before a deadline, in case it has slept; nobody sleeps unseen here,
/// and looks that change nothing are left out.
pub fn until_deadline(table: &OwnershipTable) -> Duration {
    let wait = |at: Moment| at.since(table.now()) + Duration::from_micros(100);
    table.next_deadline().map_or(Duration::from_secs(1), wait)
}

fn config(scene: &Scene, weight: u32) -> Config {
    Config {
        lease_ttl: scene.timings.lease.ttl,
        heartbeat_ttl: scene.timings.heartbeat.ttl,
        renew_interval: scene.timings.renew_interval,
        store_timeout: scene.timings.store_timeout,
        heartbeat_interval: scene.heartbeat_interval,
        weight,
        interval: scene.poll_interval,
        timeout: Duration::from_secs(3),
        light_after: 5,
        light_interval: scene.poll_interval * 2,
        reconcile_interval: Duration::from_secs(10),
        drain_timeout: DRAIN_TIMEOUT,
        workers: WORKERS,
        log_renewals: LogRenewals::Summary,
        ..Config::default()
    }
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
            return Err(Revoked); // nobody polls from the grave
        }
        permit.confirm()?;
        let endpoint = index(permit.tenure().endpoint.as_str());
        world.judge.poll_begins(world, member, endpoint, permit);
        let takes = if dice.permille(20) { dice.below(3_000) } else { dice.skewed(30) };
        member.running.borrow_mut().push((endpoint, Arc::clone(permit.abort())));
        world.wait(member, world.now() + takes * MS, &|| permit.abort().is_fired());
        member.running.borrow_mut().retain(|it| !Arc::ptr_eq(&it.1, permit.abort()));
        if permit.abort().is_fired() {
            permit.confirm()?;
        }
        let duration = Duration::from_millis(takes);
        member.completed.set(member.completed.get() + 1);
        Ok(Sample { ok: true, status: Some(200), error: None, body: vec![], duration })
    }
}

/// The number of an endpoint, by its name.
pub fn index(name: &str) -> usize {
    name[1..].parse().unwrap_or(0)
}
