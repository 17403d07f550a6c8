//! What may this instance poll, until when, and how does every answer of the store change that?
//!
//! The table is the truth inside the process; channels carry hints, and Redis has the last word. No
//! lock is held across I/O and no guard leaves this module. In `answers` every question is framed (so that
//! its deadline is counted from before it is sent, R1) and every answer applied to the tenure it was
//! asked for, and to no other (R4).

mod due_index;
mod answers;
mod endings;
mod requests;
mod retired;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Mutex, RwLock};

use crate::clock::{Clock, Moment};
use crate::lease::epoch_tracker::{ClockAnomaly, EpochTracker};
use crate::lease::log_limiter::LogLimiter;
use crate::lease::permit::{HeartbeatDeadline, Lease, PollPermit, SharedClock, Standing};
use crate::lease::table::due_index::{DueIndex, LeaseEdit, LeaseMap};
use crate::metrics::Metrics;
use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, LeaseDuration, Tenure};
use crate::store::{Grant, RequestContext};

/// The times a table keeps.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimings {
    /// Life of a lease.
    pub lease: LeaseDuration,
    /// Life of a heartbeat.
    pub heartbeat: LeaseDuration,
    /// How long after an answer a lease is renewed.
    pub renew_interval: Duration,
    /// Longest wait for any answer.
    pub store_timeout: Duration,
}

impl LeaseTimings {
    /// R3: an unanswered renewal is asked again this soon, not at the next tick.
    pub fn retry_interval(&self) -> Duration {
        let shortest = self.lease.ttl.min(self.heartbeat.ttl);
        Duration::from_secs(1).min(shortest / 12).max(Duration::from_millis(50))
    }
}

/// Written by the threads that ask, read by every poller.
pub struct OwnershipTable {
    me: InstanceId,
    timings: LeaseTimings,
    clock: SharedClock,
    heartbeat_deadline: Arc<HeartbeatDeadline>,
    leases: RwLock<LeaseMap>,
    due_index: Mutex<DueIndex>,
    store_clock: StoreClock,
    losses: AtomicU64,
    /// The generation of heartbeats when it was last looked for what has ended. Where it is another now, all that are
    /// of an earlier one have ended, even if the due index does not know it.
    generation: AtomicU64,
    /// Results get an answer, as far as is known.
    publishing: AtomicBool,
    metrics: Arc<Metrics>,
    /// Wakes a shutdown.
    shutdown_progress: (Sender<()>, Receiver<()>),
    log_limiter: Arc<LogLimiter>,
    /// The process that keeps it. In a child that was forked nobody does.
    process: AtomicU32,
}

/// What the table knows of the store's epoch and clock.
struct StoreClock {
    epoch_tracker: Mutex<EpochTracker>,
    /// When the server's clock was last seen to run ahead.
    ran_ahead_at: Mutex<Moment>,
    /// R6: a lease not confirmed since that moment may not be reclaimed in another life of the store than this one.
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

/// A request about to be sent, with the moment its answer counts from.
#[derive(Clone, Debug)]
pub struct PendingRequest {
    /// What to send along.
    pub context: RequestContext,
    asked_at: Moment,
    generation: u64,
}

/// A grant that was taken into the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gained {
    /// Which grant.
    pub tenure: Tenure,
    /// Why it could be had.
    pub grant: Grant,
}

/// Why a lease ended against our will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its deadline, or the heartbeat's, passed unconfirmed.
    Expired,
    /// Another instance holds it.
    Taken(InstanceId),
    /// It is gone and cannot be reclaimed.
    Gone,
}

/// A lease that ended against our will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which grant.
    pub tenure: Tenure,
    /// Why.
    pub loss: Loss,
}

/// What a round of answers did.
#[derive(Debug, Default)]
pub struct Applied {
    /// Still held.
    pub extended: Vec<Tenure>,
    /// Put back after the store had forgotten them.
    pub reclaimed: Vec<Tenure>,
    /// No longer known to be held, and why.
    pub doubted: Vec<(Tenure, String)>,
    /// Ended.
    pub lost: Vec<Lost>,
    /// What the stamp revealed.
    pub anomaly: ClockAnomaly,
    /// The epoch changed under the question: ask again at once.
    pub ask_again: bool,
}

/// How many leases are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub held: usize,
    /// Not confirmed.
    pub uncertain: usize,
    /// On their way out.
    pub draining: usize,
    /// Under which a poll runs.
    pub running: usize,
}

/// Whether a poll under a tenure could begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It could.
    Ready,
    /// One runs, or its result is still on its way: no other gets a permit.
    Busy,
    /// The lease is in doubt, about to be given away, or just about over.
    NotNow,
    /// Never again: the tenure is not in the table any more.
    Over,
}

/// One held lease, as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its token.
    pub fence: FenceToken,
    /// Confirmed or not.
    pub standing: Standing,
    /// When the grant was asked for.
    pub acquired_at: Moment,
    /// When its last confirmation was asked for.
    pub renewed_at: Moment,
    /// From when on it can only be lost.
    pub deadline: Moment,
    /// On its way out.
    pub draining: bool,
}

impl OwnershipTable {
    /// Holds nothing yet.
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
            losses: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            publishing: AtomicBool::new(true),
            metrics: Arc::default(),
            shutdown_progress: bounded(1),
            log_limiter: Arc::default(),
            process: AtomicU32::new(std::process::id()),
        }
    }

    /// The same for a role, whose heartbeat is part of its renewal (R13).
    pub fn of_role(
        me: InstanceId,
        timings: LeaseTimings,
        clock: Arc<dyn Clock>,
        new_fleet: bool,
    ) -> Self {
        let heartbeat_deadline = Arc::new(HeartbeatDeadline::of_renewals());
        Self { heartbeat_deadline, ..Self::new(me, timings, clock, new_fleet) }
    }

    /// Whose table this is.
    pub fn instance(&self) -> &InstanceId {
        &self.me
    }

    /// The times it keeps.
    pub fn timings(&self) -> &LeaseTimings {
        &self.timings
    }

    /// What this instance counts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Shared by all reporters of this instance.
    pub(crate) fn log_limiter(&self) -> &Arc<LogLimiter> {
        &self.log_limiter
    }

    /// For a part that outlives a borrow of the table.
    pub(crate) fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// The moment it is.
    pub fn now(&self) -> Moment {
        self.clock.0.now()
    }

    /// To change a lease.
    fn edit<'a>(&'a self, lease: &'a Lease) -> LeaseEdit<'a> {
        LeaseEdit::new(lease, &self.due_index)
    }

    fn find(&self, tenure: &Tenure) -> Option<Arc<Lease>> {
        self.leases.read().find(tenure).cloned()
    }

    /// R2: the only way to a poll.
    pub fn permit(&self, tenure: &Tenure) -> Option<PollPermit> {
        PollPermit::issue(&self.find(tenure)?, &self.me, &self.clock)
    }

    /// The tenure under which `endpoint` is held, in any standing.
    pub fn tenure(&self, endpoint: &EndpointId) -> Option<Tenure> {
        self.leases.read().get(endpoint).map(|it| it.tenure.clone())
    }

    /// Whether `endpoint` is held, in any standing.
    pub fn holds(&self, endpoint: &EndpointId) -> bool {
        self.leases.read().get(endpoint).is_some()
    }

    /// Whether this is the process that keeps the table, and not a child that was forked: the child has a copy, but no
    /// thread that renews or loses anything, and connections that belong to its parent.
    pub fn is_of_this_process(&self) -> bool {
        self.process.load(Ordering::Relaxed) == std::process::id()
    }

    /// As it is in a child that was forked.
    #[cfg(test)]
    pub(crate) fn fork(&self) {
        self.process.store(0, Ordering::Relaxed);
    }

    /// The tenure under which a poll of `endpoint` could start now, in this process.
    pub fn usable(&self, endpoint: &EndpointId) -> Option<Tenure> {
        let leases = self.leases.read();
        let lease = leases.get(endpoint)?;
        let usable = lease.may_poll(&lease.state.lock(), self.now()) && self.is_of_this_process();
        usable.then(|| lease.tenure.clone())
    }

    /// Whether a poll under this tenure could begin now.
    pub fn readiness(&self, tenure: &Tenure) -> Readiness {
        let leases = self.leases.read();
        let Some(lease) = leases.find(tenure) else { return Readiness::Over };
        let state = lease.state.lock();
        if !lease.may_poll(&state, self.now()) {
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

    /// Whether a poll of `endpoint` could start now.
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

    /// Everything in the table.
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

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The epoch last heard of.
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

    /// Whether results of this instance get an answer. One whose results do not wants no share of the fleet.
    pub fn is_publishing(&self) -> bool {
        self.publishing.load(Ordering::Relaxed)
    }

    /// What `publish` has found out about that.
    pub fn set_publishing(&self, publishing: bool) {
        self.publishing.store(publishing, Ordering::Relaxed);
    }

    /// The server's clock about now.
    pub fn server_ms(&self) -> Option<u64> {
        self.store_clock.epoch_tracker.lock().server_ms(self.now())
    }
}

#[cfg(test)]
mod tests;
