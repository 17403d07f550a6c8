//! Which leases does this instance hold, and until when? Touches only memory and the clock.
//!
//! `requests` builds every request, and reads the clock before the request is sent (R1). `answers` applies every answer to
//! the tenure that the request was about, and to no other (R4). `endings` ends leases, and `tenures` answers
//! for one tenure. No lock is held across I/O, and no lock guard leaves this module.

mod due_index;
mod answers;
mod endings;
mod requests;
mod retired;
mod signals;
mod tenures;
mod timings;
mod verifications;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::clock::{Clock, Moment};
use crate::lease::epoch_tracker::{ClockAnomaly, EpochTracker};
use crate::lease::heartbeat_deadline::HeartbeatDeadline;
use crate::lease::log_limiter::LogLimiter;
use crate::lease::permit::{Lease, PollPermit, SharedClock, Standing};
use crate::lease::table::due_index::{DueIndex, LeaseEdit, LeaseMap};
use crate::lease::table::signals::Signals;
pub use crate::lease::table::timings::LeaseTimings;
use crate::lease::table::verifications::Verifications;
use crate::metrics::Metrics;
use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, Tenure};
use crate::store::{Grant, RequestContext};

/// All leases of one instance. The threads that talk to the store write it; every poller reads it.
pub struct OwnershipTable {
    me: InstanceId,
    timings: LeaseTimings,
    clock: SharedClock,
    heartbeat_deadline: Arc<HeartbeatDeadline>,
    leases: RwLock<LeaseMap>,
    due_index: Mutex<DueIndex>,
    store_clock: StoreClock,
    losses: Losses,
    /// The heartbeat generation at the last `expire`. When a new one has begun, all leases of earlier generations have
    /// ended, even if the due index does not know it.
    generation: AtomicU64,
    metrics: Arc<Metrics>,
    signals: Signals,
    log_limiter: Arc<LogLimiter>,
    verifications: Verifications,
    /// The process whose threads keep the table. A forked child has a copy, but no threads.
    process: AtomicU32,
}

/// How many leases ended without a release, and who is told of each.
#[derive(Default)]
struct Losses {
    count: AtomicU64,
    listener: OnceLock<LossListener>,
}

type LossListener = Box<dyn Fn(&Lost) + Send + Sync>;

/// What the table knows of the store's epoch and clock.
struct StoreClock {
    epoch_tracker: Mutex<EpochTracker>,
    /// When the server's clock was last seen to run ahead.
    ran_ahead_at: Mutex<Moment>,
    /// When this instance may last have been suspended, and in which data epoch. R6: in a later data epoch, a lease that
    /// was last confirmed before that moment may not be reclaimed.
    slept: Mutex<(Moment, Epoch)>,
}

impl StoreClock {
    fn new(epoch_tracker: EpochTracker) -> Self {
        Self {
            epoch_tracker: Mutex::new(epoch_tracker),
            ran_ahead_at: Mutex::new(Moment::MIN),
            slept: Mutex::new((Moment::MIN, Epoch::default())),
        }
    }
}

/// A request about to be sent, and the moment from which its answer counts.
#[derive(Clone, Debug)]
pub struct PendingRequest {
    /// Sent with every request.
    pub context: RequestContext,
    asked_at: Moment,
    generation: u64,
}

/// A grant that was put into the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gained {
    /// The new tenure.
    pub tenure: Tenure,
    /// Why the store granted it.
    pub grant: Grant,
}

/// Why a lease ended without a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its deadline or the heartbeat's passed.
    Expired,
    /// Another instance has revoked this one (R16).
    Revoked,
    /// Another instance holds it.
    Taken(InstanceId),
    /// It may not be held any more, and no other owner is known: it is missing and may not be written back, its fence is
    /// not the stored one, this instance may have slept through a grant (R6), or the fleet has another lease TTL (R14).
    Gone,
}

/// A lease that ended without a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The ended tenure.
    pub tenure: Tenure,
    /// Why it ended.
    pub loss: Loss,
}

/// What a reply changed in the table.
#[derive(Debug, Default)]
pub struct Applied {
    /// Confirmed for another TTL.
    pub extended: Vec<Tenure>,
    /// Missing in the store, and written again (R6).
    pub reclaimed: Vec<Tenure>,
    /// Became uncertain, and why.
    pub doubted: Vec<(Tenure, String)>,
    /// Ended.
    pub lost: Vec<Lost>,
    /// What the stamp says about the server's clock.
    pub anomaly: ClockAnomaly,
    /// Nothing was decided: the epoch changed, or a heartbeat arrived too late. Send it again.
    pub ask_again: bool,
}

/// How many leases are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub held: usize,
    /// Not confirmed.
    pub uncertain: usize,
    /// Being handed over or released.
    pub draining: usize,
    /// With a running poll.
    pub running: usize,
}

/// Whether a poll under a tenure can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A poll can begin now.
    Ready,
    /// A poll runs, or its result is not stored yet: no other poll gets a permit.
    Busy,
    /// The lease is uncertain, draining, or past its deadline.
    NotNow,
    /// The tenure has left the table: no poll can begin again.
    Over,
}

/// One held lease, as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its fencing token.
    pub fence: FenceToken,
    /// Confirmed or not.
    pub standing: Standing,
    /// When the grant was requested.
    pub acquired_at: Moment,
    /// When its last confirmation was requested.
    pub renewed_at: Moment,
    /// When it ends unless it is confirmed before.
    pub deadline: Moment,
    /// Being handed over or released.
    pub draining: bool,
}

impl OwnershipTable {
    /// An empty table.
    pub fn new(
        me: InstanceId,
        timings: LeaseTimings,
        clock: Arc<dyn Clock>,
        new_fleet: bool,
    ) -> Self {
        let epoch_tracker = EpochTracker::new(me.clone(), timings.lease, new_fleet);
        Self {
            me,
            timings,
            clock: SharedClock(clock),
            heartbeat_deadline: Arc::default(),
            leases: RwLock::default(),
            due_index: Mutex::default(),
            store_clock: StoreClock::new(epoch_tracker),
            losses: Losses::default(),
            generation: AtomicU64::new(0),
            metrics: Arc::default(),
            signals: Signals::default(),
            log_limiter: Arc::default(),
            verifications: Verifications::default(),
            process: AtomicU32::new(std::process::id()),
        }
    }

    /// An empty table for a role, whose renewal also writes its heartbeat (R13).
    pub fn of_role(
        me: InstanceId,
        timings: LeaseTimings,
        clock: Arc<dyn Clock>,
        new_fleet: bool,
    ) -> Self {
        let heartbeat_deadline = Arc::new(HeartbeatDeadline::of_renewals());
        Self { heartbeat_deadline, ..Self::new(me, timings, clock, new_fleet) }
    }

    /// The instance that holds these leases.
    pub fn instance(&self) -> &InstanceId {
        &self.me
    }

    /// The durations it works with.
    pub fn timings(&self) -> &LeaseTimings {
        &self.timings
    }

    /// The counters of this instance.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Shared by all reporters of this instance.
    pub(crate) fn log_limiter(&self) -> &Arc<LogLimiter> {
        &self.log_limiter
    }

    /// The clock, for a part that outlives a borrow of the table.
    pub(crate) fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// The time by the clock of this table, which tests replace.
    pub fn now(&self) -> Moment {
        self.clock.0.now()
    }

    /// Locks a lease for a change that the due index must follow.
    fn edit<'a>(&'a self, lease: &'a Lease) -> LeaseEdit<'a> {
        LeaseEdit::new(lease, &self.due_index)
    }

    fn find(&self, tenure: &Tenure) -> Option<Arc<Lease>> {
        self.leases.read().find(tenure).cloned()
    }

    /// R2: a permit for one poll. There is no other way to get one.
    pub fn permit(&self, tenure: &Tenure) -> Option<PollPermit> {
        PollPermit::issue(&self.find(tenure)?, &self.me, &self.clock, &self.verifications.running)
    }

    /// The tenure under which `endpoint` is held, uncertain or not.
    pub fn tenure(&self, endpoint: &EndpointId) -> Option<Tenure> {
        self.leases.read().get(endpoint).map(|it| it.tenure.clone())
    }

    /// Whether `endpoint` is held, uncertain or not.
    pub fn holds(&self, endpoint: &EndpointId) -> bool {
        self.leases.read().get(endpoint).is_some()
    }

    /// False in a forked child: it has a copy of the table, but no thread that renews or ends leases, and its connections
    /// belong to the parent.
    pub fn is_of_this_process(&self) -> bool {
        self.process.load(Ordering::Relaxed) == std::process::id()
    }

    /// Makes the table behave as in a forked child.
    #[cfg(test)]
    pub(crate) fn fork(&self) {
        self.process.store(0, Ordering::Relaxed);
    }

    /// The tenure under which a poll of `endpoint` could start now, once it is verified, in this process.
    pub fn usable(&self, endpoint: &EndpointId) -> Option<Tenure> {
        let leases = self.leases.read();
        let lease = leases.get(endpoint)?;
        let usable = lease.is_open(&lease.state.lock(), self.now()) && self.is_of_this_process();
        usable.then(|| lease.tenure.clone())
    }

    /// Whether a poll under this tenure could begin once it is verified.
    pub fn readiness(&self, tenure: &Tenure) -> Readiness {
        let leases = self.leases.read();
        let Some(lease) = leases.find(tenure) else { return Readiness::Over };
        let state = lease.state.lock();
        if !lease.is_open(&state, self.now()) {
            Readiness::NotNow
        } else if state.running.is_some() {
            Readiness::Busy
        } else {
            Readiness::Ready
        }
    }

    /// Whether this tenure is still in the table.
    pub fn has(&self, tenure: &Tenure) -> bool {
        self.find(tenure).is_some()
    }

    /// Whether a poll of `endpoint` could start now, once it is verified.
    pub fn may_poll(&self, endpoint: &EndpointId) -> bool {
        self.usable(endpoint).is_some()
    }

    /// The lease on `endpoint`, if it is held.
    pub fn holding(&self, endpoint: &EndpointId) -> Option<Holding> {
        let leases = self.leases.read();
        let lease = leases.get(endpoint).filter(|_| self.is_of_this_process())?;
        let state = lease.state.lock();
        Some(Holding {
            fence: lease.tenure.fence,
            standing: state.standing,
            acquired_at: lease.acquired_at,
            renewed_at: state.renewed_at,
            deadline: lease.deadline(&state),
            draining: state.draining_since.is_some(),
        })
    }

    /// All held endpoints. Walks over the whole table.
    pub fn endpoints(&self) -> Vec<EndpointId> {
        self.leases.read().all().map(|it| it.tenure.endpoint.clone()).collect()
    }

    /// How many leases are in which state.
    pub fn tally(&self) -> Tally {
        let leases = self.leases.read();
        let mut tally = Tally { held: leases.len(), ..Tally::default() };
        for lease in leases.all() {
            let state = lease.state.lock();
            tally.uncertain += usize::from(state.standing == Standing::Uncertain);
            tally.draining += usize::from(state.draining_since.is_some());
            tally.running += usize::from(state.running.is_some());
        }
        tally
    }

    /// Whether the standing of any lease is uncertain.
    pub fn is_doubtful(&self) -> bool {
        self.due_index.lock().is_doubtful()
    }

    /// How many leases are in the table.
    pub fn len(&self) -> usize {
        self.leases.read().len()
    }

    /// Whether no lease is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The epoch of the last reply.
    pub fn epoch(&self) -> Epoch {
        self.store_clock.epoch_tracker.lock().epoch()
    }

    /// R5: how long the store still grants nothing.
    pub fn hold_off(&self) -> Option<Duration> {
        self.store_clock.epoch_tracker.lock().hold_off(self.now())
    }

    /// R13: whether the heartbeat has been confirmed in time.
    pub fn is_beating(&self) -> bool {
        self.now() < self.heartbeat_deadline.valid_until() && !self.is_closed()
    }

    /// Estimate of the server's clock, in milliseconds; `None` before the first reply.
    pub fn server_ms(&self) -> Option<u64> {
        self.store_clock.epoch_tracker.lock().server_ms(self.now())
    }
}

#[cfg(test)]
mod tests;
