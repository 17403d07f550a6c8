//! May a poll begin, or go on, under this lease? Knows the deadline of one tenure and issues its poll permits. Reads only the clock.
//!
//! A [`Lease`] exists from the grant to its loss or release. A thread that ends a lease marks it as ended under the lock that
//! also issues permits (R2). It fires the abort switch of the running poll after it has released the lock, because stopping
//! a poll can take a while.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use crate::clock::{Clock, Moment};
use crate::lease::heartbeat_deadline::HeartbeatDeadline;
use crate::lease::running_polls::RunningPolls;
use crate::model::{CertificateLeft, Epoch, InstanceId, Tenure};
use crate::net::abort::Abort;

/// What the owner may assume about a lease it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Confirmed: polls may start.
    Held,
    /// A request about it got no answer: no poll may start until a later request gets one (R3).
    Uncertain,
}

/// A tenure from grant to loss or release.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) tenure: Tenure,
    pub(crate) acquired_at: Moment,
    generation: u64,
    heartbeat_deadline: Arc<HeartbeatDeadline>,
    pub(crate) state: Guarded,
}

/// The state of a lease behind a lock, and beside the lock an atomic copy of [`TenureState::open_until`], which is all that a
/// permit needs.
///
/// A thread that holds the lock may change the state. [`Locked`] writes the atomic before it releases the lock. So a change
/// is visible before anything that follows from it, such as an abort or a release. A poller that confirms a permit reads
/// the atomic, and waits for no thread (R2).
#[derive(Debug)]
pub(crate) struct Guarded {
    state: Mutex<TenureState>,
    open_until: AtomicU64,
}

/// The held lock of a lease.
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, TenureState>,
    open_until: &'a AtomicU64,
}

impl Guarded {
    fn new(state: TenureState) -> Self {
        let open_until = AtomicU64::new(state.open_until().as_nanos());
        Self { state: Mutex::new(state), open_until }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { state: self.state.lock(), open_until: &self.open_until }
    }

    /// [`TenureState::open_until`] as it was when the lock was last released. Never waits.
    fn open_until(&self) -> Moment {
        Moment::from_nanos(self.open_until.load(Ordering::SeqCst))
    }
}

impl Deref for Locked<'_> {
    type Target = TenureState;
    fn deref(&self) -> &TenureState {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut TenureState {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The lock is released after this. An unchanged value is not stored, so that readers keep the cache line shared.
        let until = self.state.open_until().as_nanos();
        if self.open_until.load(Ordering::Relaxed) != until {
            self.open_until.store(until, Ordering::SeqCst);
        }
    }
}

#[derive(Debug)]
pub(crate) struct TenureState {
    pub(crate) standing: Standing,
    pub(crate) valid_until: Moment,
    /// R15: a poll may start and run only before this. `Moment::MAX` for an instance that cannot be revoked.
    pub(crate) verified_until: Moment,
    /// Only the answer to a request sent after this restores `Held`.
    pub(crate) doubted_at: Moment,
    pub(crate) renewed_at: Moment,
    pub(crate) renew_at: Moment,
    /// The epoch in which the store last compared the fence.
    pub(crate) fence_checked_in: Epoch,
    /// When the store last reported another fence: only a comparison requested after this counts.
    pub(crate) fence_check_after: Moment,
    /// Since when it is being handed over or released: no new poll starts, and it is renewed until the running poll ends.
    pub(crate) draining_since: Option<Moment>,
    pub(crate) ended: bool,
    pub(crate) started_ms: u64,
    pub(crate) running: Option<Arc<Abort>>,
}

impl TenureState {
    /// R3: until when the lease is held. `Moment::MIN` while it is uncertain or has ended.
    fn held_until(&self) -> Moment {
        let is_held = !self.ended && self.standing == Standing::Held;
        if is_held { self.valid_until } else { Moment::MIN }
    }

    /// R3, R15: until when a poll with a permit may begin.
    fn open_until(&self) -> Moment {
        self.held_until().min(self.verified_until)
    }
}

impl Lease {
    pub(crate) fn new(
        tenure: Tenure,
        (heartbeat_deadline, generation): (&Arc<HeartbeatDeadline>, u64),
        asked_at: Moment,
        valid_until: Moment,
        renew_at: Moment,
    ) -> Self {
        let state = TenureState {
            standing: Standing::Held,
            valid_until,
            verified_until: Moment::MAX,
            doubted_at: Moment::MIN,
            renewed_at: asked_at,
            renew_at,
            fence_checked_in: Epoch::default(),
            fence_check_after: Moment::MIN,
            draining_since: None,
            ended: false,
            started_ms: 0,
            running: None,
        };
        Self {
            tenure,
            acquired_at: asked_at,
            generation,
            heartbeat_deadline: Arc::clone(heartbeat_deadline),
            state: Guarded::new(state),
        }
    }

    /// R1, R13: the moment from which this lease can only be lost.
    pub(crate) fn deadline(&self, state: &TenureState) -> Moment {
        state.valid_until.min(self.heartbeat_deadline.valid_until())
    }

    /// R16: whether a revocation has ended the lease.
    pub(crate) fn was_revoked(&self) -> bool {
        self.heartbeat_deadline.was_revoked(self.generation)
    }

    /// R2, R3, R13: whether a poll may start at `now` once the lease is verified.
    pub(crate) fn is_open(&self, state: &TenureState, now: Moment) -> bool {
        state.draining_since.is_none() && self.is_valid(state.held_until(), now)
    }

    /// R2, R3, R13, R15: whether a poll may start at `now`. No other code decides this.
    pub(crate) fn may_poll(&self, state: &TenureState, now: Moment) -> bool {
        state.draining_since.is_none() && self.is_valid(state.open_until(), now)
    }

    /// R3, R13: whether the lease is before its deadline, and the heartbeat has not lapsed.
    pub(crate) fn stands(&self, state: &TenureState, now: Moment) -> bool {
        self.is_valid(state.valid_until, now)
    }

    /// Whether `now` is before `until`, and the heartbeat is valid.
    fn is_valid(&self, until: Moment, now: Moment) -> bool {
        now < until && self.heartbeat_deadline.is_valid(self.generation, now)
    }

    /// [`Self::may_poll`] for a poll that has its permit, without the lock. A draining lease lets such a poll go on.
    ///
    /// `true` means that the lease was held at the moment of the first read, that of `open_until`: it was `Held` then, and
    /// the clock, read later, is still before `open_until` (R3). The heartbeat's deadline is read after both, and a
    /// heartbeat may have raised it since the first read. Either that heartbeat was answered before the deadline it
    /// found, so that the lease was valid all the time; or it ended the generation before it raised the deadline
    /// (`HeartbeatDeadline::confirm`). The generation is read last, and an ended generation never comes back (R13).
    fn may_go_on(&self, clock: &SharedClock) -> bool {
        let until = self.state.open_until();
        self.is_valid(until, clock.0.now())
    }

    /// Stops the running poll of an ended tenure. The table marks the tenure as ended before, because only `LeaseEdit`
    /// (`table/due_index.rs`) also takes it out of the due index.
    pub(crate) fn stop_poll(&self) {
        let running = self.state.lock().running.take();
        if let Some(abort) = running {
            abort.fire();
        }
    }
}

/// The right to one poll. The library issues a permit and passes it to [`Poller::poll`](crate::Poller::poll). The permit ends
/// with the poll. Polls of one endpoint never overlap, because at most one permit exists.
#[derive(Debug)]
pub struct PollPermit {
    lease: Arc<Lease>,
    instance: InstanceId,
    abort: Arc<Abort>,
    clock: SharedClock,
    running: Arc<RunningPolls>,
    deferred: OnceLock<Deferral>,
    certificate: OnceLock<CertificateLeft>,
}

#[derive(Clone)]
pub(crate) struct SharedClock(pub(crate) Arc<dyn Clock>);

impl fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Why a poll was deferred.
#[derive(Debug)]
pub(crate) struct Deferral {
    pub(crate) reason: String,
    /// Any other poll would have been deferred, too.
    pub(crate) is_full: bool,
}

/// The lease is not held, or is uncertain: the poll must not start, or must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked;

impl fmt::Display for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lease is no longer held")
    }
}

impl std::error::Error for Revoked {}

impl PollPermit {
    /// Decides and registers the abort switch under one lock, so that a loss cannot come in between.
    pub(crate) fn issue(
        lease: &Arc<Lease>,
        me: &InstanceId,
        clock: &SharedClock,
        running: &Arc<RunningPolls>,
    ) -> Option<Self> {
        let mut state = lease.state.lock();
        if state.running.is_some() || !lease.may_poll(&state, clock.0.now()) {
            return None;
        }
        let abort = Arc::new(Abort::default());
        state.running = Some(Arc::clone(&abort));
        drop(state);
        running.add(lease);
        let (lease, instance, clock) = (Arc::clone(lease), me.clone(), clock.clone());
        let running = Arc::clone(running);
        let (deferred, certificate) = (OnceLock::new(), OnceLock::new());
        Some(Self { lease, instance, abort, clock, running, deferred, certificate })
    }

    /// R2, R15: checks the lease and its verification again. A poller calls this after name lookup, connect and TLS, right before the first byte of its
    /// request or before exec. Do everything slow before this call. Takes no lock.
    pub fn confirm(&self) -> Result<(), Revoked> {
        // A fired switch stays fired. If it is not fired now, it was not fired when the lease was checked.
        let held = self.lease.may_go_on(&self.clock);
        if held && !self.abort.is_fired() { Ok(()) } else { Err(Revoked) }
    }

    /// The start of this poll by the server's clock: `server_ms`, raised above every earlier start under this tenure. The
    /// store ignores a result whose start is not later than that of the stored result.
    pub(crate) fn start(&self, server_ms: u64) -> u64 {
        let mut state = self.lease.state.lock();
        state.started_ms = server_ms.max(state.started_ms + 1);
        state.started_ms
    }

    /// For a poll that could not be made because this process lacks something, such as a descriptor, a thread, memory
    /// or a local port: return `Err(permit.defer(why))`. Nothing is published, and the endpoint is polled again soon.
    /// `why` should be the same from poll to poll, because the log tells each reason once.
    ///
    /// ```
    /// use leasehold::{PollPermit, Revoked};
    ///
    /// fn thread_for(permit: &PollPermit) -> Result<std::thread::JoinHandle<()>, Revoked> {
    ///     std::thread::Builder::new().spawn(|| ()).map_err(|_| permit.defer("no thread"))
    /// }
    /// ```
    pub fn defer(&self, why: impl Into<String>) -> Revoked {
        self.defer_as(why.into(), false)
    }

    /// [`Self::defer`] when no other poll can begin either until one ends.
    pub(crate) fn defer_for_room(&self, why: String) -> Revoked {
        self.defer_as(why, true)
    }

    fn defer_as(&self, reason: String, is_full: bool) -> Revoked {
        let _ = self.deferred.set(Deferral { reason, is_full }); // the first reason counts
        Revoked
    }

    /// Why this poll was deferred, if it was.
    pub(crate) fn deferred(&self) -> Option<&Deferral> {
        self.deferred.get()
    }

    /// Goes with the result of this poll: the certificate that the endpoint showed.
    pub(crate) fn note_certificate(&self, left: CertificateLeft) {
        let _ = self.certificate.set(left); // there is one connection, and so one certificate
    }

    /// The certificate that the endpoint showed, if it did.
    pub(crate) fn certificate(&self) -> Option<CertificateLeft> {
        self.certificate.get().copied()
    }

    /// The endpoint to poll, and the fence it was granted with.
    pub fn tenure(&self) -> &Tenure {
        &self.lease.tenure
    }

    /// The instance that polls.
    pub fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// The switch that stops this poll. Arm it before anything that can block.
    pub fn abort(&self) -> &Arc<Abort> {
        &self.abort
    }

    /// Whether a hand-over waits for this poll to end.
    pub fn is_awaited(&self) -> bool {
        self.lease.state.lock().draining_since.is_some()
    }
}

impl Drop for PollPermit {
    fn drop(&mut self) {
        // First: while the lease still names this poll as running, no other poll of it can be added.
        self.running.remove(&self.lease);
        let mut state = self.lease.state.lock();
        if state.running.as_ref().is_some_and(|it| Arc::ptr_eq(it, &self.abort)) {
            state.running = None;
        }
    }
}
