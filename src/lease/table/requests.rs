//! What is to be asked of the store about held leases? Builds each request, and reads the clock before it is sent (R1).

use std::time::Duration;

use crate::clock::Moment;
use crate::lease::epoch_tracker::EpochTracker;
use crate::lease::table::{OwnershipTable, PendingRequest};
use crate::model::Tenure;
use crate::store::{BATCH_MAX, RenewItem, RequestContext, StoreResult};

/// Least timeout of a request, even if its leases have ended.
const SHORTEST: Duration = Duration::from_millis(1);
/// A lease with less than this left is not renewed, because no answer would arrive in time.
const LEFT_MIN: Duration = Duration::from_millis(10);

impl PendingRequest {
    /// R1: when the clock was read, right before the request is sent.
    pub fn asked_at(&self) -> Moment {
        self.asked_at
    }

    /// R15: an answer that takes longer than `longest` is of no use.
    pub fn answer_within(&mut self, longest: Duration) {
        self.context.timeout = self.context.timeout.min(longest);
    }

    /// R4: the timeout of a request ends at `first_end`, when the first of its leases ends.
    fn limit(&mut self, first_end: Moment) {
        let left = first_end.since(self.asked_at).max(SHORTEST);
        self.context.timeout = self.context.timeout.min(left);
    }
}

impl OwnershipTable {
    /// R1: reads the clock before the request is sent. Redis starts the TTL later.
    pub fn request(&self) -> PendingRequest {
        self.framed(|epoch_tracker, now, timeout| epoch_tracker.context(now, timeout))
    }

    /// R4: reads the server's clock before the first request, so that the first request has a latest execution time, too.
    /// `read_time` is given the timeout, and returns the server's time in microseconds. Not called once a time is known.
    pub fn ensure_time_known(
        &self,
        read_time: impl FnOnce(Duration) -> StoreResult<u64>,
    ) -> StoreResult<()> {
        if self.store_clock.epoch_tracker.lock().knows_time() {
            return Ok(());
        }
        let asked_at = self.now();
        let server_us = read_time(self.timings.store_timeout)?;
        self.learn_time(asked_at, server_us);
        Ok(())
    }

    /// The same for a time that was read for many tables: it was asked for at `asked_at`.
    pub(crate) fn learn_time(&self, asked_at: Moment, server_us: u64) {
        self.store_clock.epoch_tracker.lock().observe_time(asked_at, server_us);
    }

    /// The request context of a release. Raises the floor first, so that every renewal sent before has a lower floor and
    /// cannot bring the leases back (R4). Only for the thread that acquires, because it knows every granted fence.
    pub fn release_request(&self) -> PendingRequest {
        self.framed(EpochTracker::release_request)
    }

    fn framed(
        &self,
        frame: impl FnOnce(&mut EpochTracker, Moment, Duration) -> RequestContext,
    ) -> PendingRequest {
        let asked_at = self.now();
        // R4: a reply after the heartbeat's deadline is useless. After a lapse there is no lease left to protect.
        let timeout = match self.heartbeat_deadline.valid_until().since(asked_at) {
            Duration::ZERO => self.timings.store_timeout,
            left => self.timings.store_timeout.min(left),
        };
        // R16: read before the generation, so that a request names no revocation that its generation has not ended by.
        let obeyed_ms = self.heartbeat_deadline.obeyed_ms();
        let mut context = frame(&mut self.store_clock.epoch_tracker.lock(), asked_at, timeout);
        (context.revocable, context.obeyed_ms) = (self.verifications.lasts.is_some(), obeyed_ms);
        PendingRequest { context, asked_at, generation: self.heartbeat_deadline.generation() }
    }

    /// A request to verify these tenures in the store (FR-010): by owner name if all fences were compared in this epoch (R4).
    pub fn verification(&self, tenures: &[Tenure]) -> PendingRequest {
        let mut request = self.request();
        let (mut all_fences_checked, mut first_end) = (true, Moment::MAX);
        let leases = self.leases.read();
        for tenure in tenures {
            let Some(lease) = leases.find(tenure) else {
                all_fences_checked = false;
                continue;
            };
            let state = lease.state.lock();
            all_fences_checked &= state.fence_checked_in == request.context.epoch;
            first_end = first_end.min(lease.deadline(&state));
        }
        drop(leases);
        request.context.owner_only = all_fences_checked;
        request.limit(first_end);
        request
    }

    /// The leases to renew now: at most one batch, earliest end first. `None` when none is due.
    pub fn renewals(&self) -> Option<(PendingRequest, Vec<RenewItem>)> {
        let mut request = self.request();
        let now = request.asked_at;
        let slept_until = self.slept_until();
        // R3: past its deadline no lease can be renewed. Close to it, its short timeout would also apply to the others.
        if self.heartbeat_deadline.valid_until().since(now) < LEFT_MIN {
            return None;
        }
        let next = self.due_index.lock().due(now, now + LEFT_MIN, BATCH_MAX);
        let mut due: Vec<RenewItem> = Vec::with_capacity(next.len());
        let (mut due_since, mut first_end) = (now, Moment::MAX);
        let leases = self.leases.read();
        for lease in next.iter().filter_map(|it| leases.get(it)) {
            let state = lease.state.lock();
            if lease.stands(&state, now) {
                // R6: the lease is valid now, so no other instance was granted it, unless this one was suspended.
                let may_reclaim = state.renewed_at >= slept_until;
                // R4: within an epoch one comparison of the fence is enough; after it the owner's name is.
                let fence_checked = state.fence_checked_in == request.context.epoch;
                let tenure = lease.tenure.clone();
                due_since = due_since.min(state.renew_at);
                first_end = first_end.min(lease.deadline(&state));
                due.push(RenewItem { tenure, may_reclaim, fence_checked });
            }
        }
        drop(leases);
        if due.is_empty() {
            return None;
        }
        self.metrics.renewal_lag.observe(now.since(due_since));
        request.limit(first_end);
        Some((request, due))
    }

    /// R6: a lease last confirmed before this may have been granted to another instance, by a store that has lost that
    /// grant since. `Moment::MIN` if the store has lost nothing.
    fn slept_until(&self) -> Moment {
        let (until, data_epoch) = *self.store_clock.slept.lock();
        let is_same = data_epoch == self.store_clock.epoch_tracker.lock().data_epoch();
        if is_same { Moment::MIN } else { until }
    }

    /// When the next renewal is due, or was due; `None` while no lease is held.
    pub fn next_renewal(&self) -> Option<Moment> {
        self.due_index.lock().next_renewal()
    }
}
