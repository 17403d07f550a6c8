//! One tenure as its owner sees it: until when it may be relied on, and the permit to poll under it.
//!
//! A lease exists from the grant to its loss or release. Whatever ends it early says so, and takes the abort switch
//! of the poll that runs under it, under the lock that issued the permit (R2); it fires the switch right after, because
//! what stops a poll may take a moment.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use crate::clock::{Clock, Moment};
use crate::model::{Epoch, InstanceId, LeaseDuration, Tenure};
use crate::net::abort::Abort;

/// R13: the heartbeat is a deadline too, for every lease at once.
///
/// A generation ends when the heartbeat was not confirmed in time; leases of an earlier generation
/// are lost for good, even if the next heartbeat succeeds before anybody noticed the lapse.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatDeadline {
    valid_until: AtomicU64,
    generation: AtomicU64,
    /// The epoch of the last confirmed beat.
    epoch: AtomicU64,
}

/// The generation of a pulse that has ended for good.
const CLOSED: u64 = u64::MAX;

impl HeartbeatDeadline {
    /// For roles: a leader's heartbeat is written by what renews the role and lasts longer, so that the
    /// role's own deadline always comes first.
    pub(crate) fn of_renewals() -> Self {
        let heartbeat_deadline = Self::default();
        heartbeat_deadline.valid_until.store(Moment::MAX.as_nanos(), Ordering::SeqCst);
        heartbeat_deadline
    }

    /// A heartbeat asked for at `sent` was answered at `now`. Only the heartbeat thread confirms.
    ///
    /// A generation ends with a lapse, and when the key had vanished within one life of the store:
    /// an operator removed it, and others may have taken our leases meanwhile.
    pub(crate) fn confirm(
        &self,
        sent: Moment,
        now: Moment,
        heartbeat: LeaseDuration,
        seen: (bool, Epoch),
    ) {
        let (unbroken, epoch) = seen;
        let same_life = self.epoch.swap(epoch.0, Ordering::SeqCst) == epoch.0;
        if now >= self.valid_until() || (same_life && !unbroken) {
            // None comes after `CLOSED`.
            let next = |it: u64| it.checked_add(1);
            let _ = self.generation.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        }
        let until = (sent + heartbeat.usable()).as_nanos();
        self.valid_until.fetch_max(until, Ordering::SeqCst);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// R12: no generation follows. What any earlier one had is lost for good, and nothing is granted any more.
    pub(crate) fn close(&self) {
        self.generation.store(CLOSED, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.generation() == CLOSED
    }

    /// Whether a right that was asked for in `generation` may begin at `now`.
    pub(crate) fn admits(&self, generation: u64, now: Moment) -> bool {
        generation != CLOSED && self.is_valid(generation, now)
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::SeqCst))
    }

    /// Whether rights of `generation` stand at `now`. The deadline is read first: a reader that sees the
    /// deadline of a new generation also sees that it is one.
    pub(crate) fn is_valid(&self, generation: u64, now: Moment) -> bool {
        now < self.valid_until() && generation == self.generation()
    }
}

/// What the owner may assume about a lease it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Confirmed: polls may start.
    Held,
    /// A question about it got no answer: no poll may start until a later one does (R3).
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

/// What is known of a lease, behind a lock, and what a permit has to know of it, in one word beside the lock.
///
/// A thread that takes the lock may change anything; letting go of it writes the word anew, before the lock is
/// free. So a change counts from that store on, and nothing that follows from it (an abort, a release that is
/// sent) can come before. A poller that confirms a permit reads the word, and waits for no thread (R2).
#[derive(Debug)]
pub(crate) struct Guarded {
    state: Mutex<TenureState>,
    open_until: AtomicU64,
}

/// The lock of a lease, held.
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

    /// [`TenureState::open_until`] as it was when the lock was last let go of. Never waits.
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
        // The guard itself is dropped after this. A word that stays as it is is not written: readers share it.
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
    /// Only an answer to a question asked after this restores `Held`.
    pub(crate) doubted_at: Moment,
    pub(crate) renewed_at: Moment,
    pub(crate) renew_at: Moment,
    /// The epoch in which its fence was last compared in the store.
    pub(crate) matched_in: Epoch,
    /// When the store last refused it: only a comparison that was asked for later counts.
    pub(crate) fence_check_after: Moment,
    /// Being handed over or given back since then: no new poll, but renewed until the running one ends.
    pub(crate) draining_since: Option<Moment>,
    pub(crate) ended: bool,
    pub(crate) started_ms: u64,
    pub(crate) running: Option<Arc<Abort>>,
}

impl TenureState {
    /// R3: until when a poll that has its permit may begin: never, while the lease is in doubt or over.
    fn open_until(&self) -> Moment {
        let is_open = !self.ended && self.standing == Standing::Held;
        if is_open { self.valid_until } else { Moment::MIN }
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
            doubted_at: Moment::MIN,
            renewed_at: asked_at,
            renew_at,
            matched_in: Epoch::default(),
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

    /// R2, R3, R13: whether a poll may start at `now`. The one place that says so.
    pub(crate) fn may_poll(&self, state: &TenureState, now: Moment) -> bool {
        state.draining_since.is_none() && self.is_valid(state.open_until(), now)
    }

    /// R3, R13: past its deadline, or after a lapse of the heartbeat, a lease is lost.
    pub(crate) fn stands(&self, state: &TenureState, now: Moment) -> bool {
        self.is_valid(state.valid_until, now)
    }

    /// Whether a right that lasts `until` is one at `now`, and the heartbeat says so, too.
    fn is_valid(&self, until: Moment, now: Moment) -> bool {
        now < until && self.heartbeat_deadline.is_valid(self.generation, now)
    }

    /// [`Self::may_poll`] for a poll that has its permit, without the lock: a hand-over that began meanwhile
    /// lets it go on, it is the "running one".
    ///
    /// A yes was true at one moment of this call: when the word was read, which comes first. It says that the
    /// lease was held then, and until when (R3); the clock is read later, so it had not ended then either. The
    /// heartbeat's deadline is read after both, and may be a later one than it was at that moment. But a beat
    /// that raises it either was answered before the deadline it found, and then there was a right all along;
    /// or it ended the generation first (`HeartbeatDeadline::confirm`), which is read last, and never comes back (R13).
    fn may_go_on(&self, clock: &SharedClock) -> bool {
        let until = self.state.open_until();
        self.is_valid(until, clock.0.now())
    }

    /// Stops the running poll of a tenure that has ended. That it has is said by whoever keeps it, and before: a
    /// lease that had ended without the table's knowledge would stay in its due index for ever.
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
    deferred: OnceLock<Deferral>,
}

#[derive(Clone)]
pub(crate) struct SharedClock(pub(crate) Arc<dyn Clock>);

impl fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Why a poll was put off.
#[derive(Debug)]
pub(crate) struct Deferral {
    pub(crate) reason: String,
    /// Every other poll would have been put off, too.
    pub(crate) is_full: bool,
}

/// The lease is no longer held: the poll must not start, or must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked;

impl fmt::Display for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lease is no longer held")
    }
}

impl std::error::Error for Revoked {}

impl PollPermit {
    /// Registers the abort switch under the lock that decides, so that no loss can fall in between.
    pub(crate) fn issue(lease: &Arc<Lease>, me: &InstanceId, clock: &SharedClock) -> Option<Self> {
        let mut state = lease.state.lock();
        if state.running.is_some() || !lease.may_poll(&state, clock.0.now()) {
            return None;
        }
        let abort = Arc::new(Abort::default());
        state.running = Some(Arc::clone(&abort));
        drop(state);
        let (lease, instance, clock) = (Arc::clone(lease), me.clone(), clock.clone());
        Some(Self { lease, instance, abort, clock, deferred: OnceLock::new() })
    }

    /// R2: asked again right before the first byte of the request (or before exec), after name
    /// lookup, connect and TLS. What takes long belongs before this call, never after it. Takes no lock.
    pub fn confirm(&self) -> Result<(), Revoked> {
        // A switch that fired stays fired: not now means not at that moment either.
        let held = self.lease.may_go_on(&self.clock);
        if held && !self.abort.is_fired() { Ok(()) } else { Err(Revoked) }
    }

    /// The start of this poll by the server's clock: `server_ms`, but later than any before it under this
    /// grant, because a result with the start of an earlier one would count as said already.
    pub(crate) fn start(&self, server_ms: u64) -> u64 {
        let mut state = self.lease.state.lock();
        state.started_ms = server_ms.max(state.started_ms + 1);
        state.started_ms
    }

    /// For a poll that could not be made because this process lacks something, such as a descriptor, a thread, memory
    /// or a local port: return `Err(permit.defer(why))`. Nothing is published, and the endpoint is polled again soon.
    /// `why` should be the same from poll to poll, because the log tells each reason once.
    pub fn defer(&self, why: impl Into<String>) -> Revoked {
        self.defer_as(why.into(), false)
    }

    /// The same where there is no room for any other poll either, until one ends.
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

    /// What may be polled, under which grant.
    pub fn tenure(&self) -> &Tenure {
        &self.lease.tenure
    }

    /// Who polls.
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
        let mut state = self.lease.state.lock();
        if state.running.as_ref().is_some_and(|it| Arc::ptr_eq(it, &self.abort)) {
            state.running = None;
        }
    }
}
