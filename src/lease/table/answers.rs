//! What does an answer of the store change? Applies it to the tenure that the request was about, and to no other (R4).

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::lease::epoch_tracker::ClockAnomaly;
use crate::lease::permit::{Lease, Standing, TenureState};
use crate::lease::table::due_index::LeaseEdit;
use crate::lease::table::{Applied, Gained, Loss, OwnershipTable, PendingRequest};
use crate::model::spread;
use crate::model::{EndpointId, Epoch, FenceToken, Tenure};
use crate::store::{Acquire, BATCH_MAX, HeartbeatReply, Renew, RenewItem, Reply, Stamp, Verify};

/// A burst of grants is spread over this many parts of an interval.
const SPREAD: u32 = 64;

impl OwnershipTable {
    fn apply_stamp(&self, request: &PendingRequest, stamp: &Stamp) -> ClockAnomaly {
        let now = self.now();
        let (before, anomaly, after) = {
            let mut epoch_tracker = self.store_clock.epoch_tracker.lock();
            let before = epoch_tracker.epoch();
            let anomaly = epoch_tracker.observe(request.asked_at, now, stamp);
            (before, anomaly, epoch_tracker.epoch())
        };
        if before != after && before != Epoch::default() {
            self.metrics.epoch_changed();
        }
        if let Some(data_epoch) = anomaly.slept_in {
            *self.store_clock.slept.lock() = (now, data_epoch);
        }
        if let Some(until_ms) = stamp.revoked_until_ms {
            self.revoked(until_ms);
        }
        if anomaly.ran_ahead.is_some() {
            // R5: the server may have ended leases early, or this instance was suspended: verify every lease again.
            self.doubt_all(now);
        }
        anomaly
    }

    /// Applies the answer to a heartbeat. R13: leases from before a lapse are lost for good.
    pub fn heartbeat_answered(
        &self,
        request: &PendingRequest,
        reply: &Reply<HeartbeatReply>,
    ) -> Applied {
        let mut applied =
            Applied { anomaly: self.apply_stamp(request, &reply.stamp), ..Applied::default() };
        let Some(beat) = reply.answer else { return Applied { ask_again: true, ..applied } };
        let seen = (beat.unbroken, reply.stamp.epoch);
        self.heartbeat_deadline.confirm(request.asked_at, self.now(), self.timings.heartbeat, seen);
        applied.lost = self.expire();
        applied
    }

    /// Puts grants into the table. R13: except those requested before a lapse of the heartbeat. R4: and except those with a
    /// fence that is not above the last one held for the endpoint, because the store has ended them.
    pub fn granted(
        &self,
        request: &PendingRequest,
        endpoints: &[EndpointId],
        reply: &Reply<Vec<Acquire>>,
    ) -> (Vec<Gained>, ClockAnomaly) {
        let anomaly = self.apply_stamp(request, &reply.stamp);
        let now = self.now();
        let (mut gained, mut newest) = (Vec::new(), FenceToken(0));
        for (endpoint, answer) in endpoints.iter().zip(reply.answer.iter().flatten()) {
            let Acquire::Granted { fence, grant } = answer else { continue };
            newest = newest.max(*fence);
            let tenure = Tenure::new(endpoint.clone(), *fence);
            if self.gain(request, tenure.clone(), now) {
                gained.push(Gained { tenure, grant: *grant });
            }
        }
        self.store_clock.epoch_tracker.lock().observe_fence(newest);
        (gained, anomaly)
    }

    fn gain(&self, request: &PendingRequest, tenure: Tenure, now: Moment) -> bool {
        let valid_until = request.asked_at + self.timings.lease.usable();
        let mut leases = self.leases.write();
        let renew_at = request.asked_at + self.first_interval(&tenure.endpoint, leases.len());
        let fresh = self.heartbeat_deadline.admits(request.generation, now) && now < valid_until;
        if !fresh || !leases.is_newer(&tenure) {
            return false;
        }
        let older = leases.remove(&tenure.endpoint, now, self.timings.lease.usable());
        if let Some(older) = &older {
            self.edit(older).ended = true;
        }
        let heartbeat_deadline = (&self.heartbeat_deadline, request.generation);
        let lease = Lease::new(tenure, heartbeat_deadline, request.asked_at, valid_until, renew_at);
        let ran_ahead_at = *self.store_clock.ran_ahead_at.lock();
        let mut state = LeaseEdit::first(&lease, &self.due_index);
        state.fence_checked_in = request.context.epoch;
        // R15: a grant is a verification, too.
        let verified_until = self.verifications.lasts.map(|it| request.asked_at + it);
        state.verified_until = verified_until.unwrap_or(Moment::MAX);
        // R5: requested before the server's clock was seen to run ahead, so uncertain until it is renewed.
        if request.asked_at < ran_ahead_at {
            self.mark_uncertain(&mut state, ran_ahead_at);
        }
        drop(state);
        leases.put(Arc::new(lease));
        drop(leases);
        // A later grant has ended the earlier one in the store.
        older.iter().for_each(|it| it.stop_poll());
        true
    }

    /// From the grant of a lease to its first renewal. Leases granted together would be renewed together for ever, so above
    /// one batch the first renewals are spread over half the interval.
    fn first_interval(&self, endpoint: &EndpointId, held: usize) -> Duration {
        let interval = self.timings.renew_interval;
        if held < BATCH_MAX {
            return interval;
        }
        let step = u32::try_from(spread(endpoint.as_str(), SPREAD.into())).unwrap_or_default();
        interval - interval / 2 * step / SPREAD
    }

    /// R3: extends the leases that the store confirmed, ends those it denied, and marks those it could not decide as uncertain.
    pub fn renewed(
        &self,
        request: &PendingRequest,
        items: &[RenewItem],
        reply: &Reply<Vec<Renew>>,
    ) -> Applied {
        let anomaly = self.apply_stamp(request, &reply.stamp);
        let mut applied = Applied { anomaly, ..Applied::default() };
        let Some(answers) = &reply.answer else {
            self.retry_soon(items, Duration::ZERO);
            return Applied { ask_again: true, ..applied };
        };
        for (item, answer) in items.iter().zip(answers) {
            let tenure = item.tenure.clone();
            match answer {
                // R6: while this instance was suspended, another may have taken the lease over (R13), and the store may
                // have lost that grant. The older key that it kept proves nothing.
                Renew::Extended if !item.may_reclaim => {
                    self.lose(tenure, Loss::Gone, &mut applied.lost);
                }
                Renew::Extended => self.extend(request, item, &mut applied, false),
                Renew::Reclaimed => self.extend(request, item, &mut applied, true),
                Renew::NotOwner(owner) => {
                    let loss = owner.clone().map_or(Loss::Gone, Loss::Taken);
                    self.lose(tenure, loss, &mut applied.lost);
                }
                Renew::Late => self.doubt(tenure, "the renewal arrived late", &mut applied),
                Renew::Failed(why) => self.doubt(tenure, why, &mut applied),
            }
        }
        applied
    }

    fn extend(
        &self,
        request: &PendingRequest,
        item: &RenewItem,
        applied: &mut Applied,
        reclaimed: bool,
    ) {
        let (now, tenure) = (self.now(), item.tenure.clone());
        let Some(lease) = self.find(&tenure) else { return };
        let mut state = self.edit(&lease);
        if !lease.stands(&state, now) {
            // R3: a lease is lost at its deadline, even if the answer arrives right after it.
            drop(state);
            return self.lose(tenure, Loss::Expired, &mut applied.lost);
        }
        let asked_at = request.asked_at;
        state.valid_until = state.valid_until.max(asked_at + self.timings.lease.usable());
        state.renewed_at = state.renewed_at.max(asked_at);
        // R4: a renewal by owner name compared no fence. A comparison requested before `fence_check_after` may have been made
        // before the fence changed.
        if !item.fence_checked && asked_at >= state.fence_check_after {
            state.fence_checked_in = request.context.epoch;
        }
        let is_fence_checked = state.fence_checked_in == request.context.epoch;
        if asked_at >= state.doubted_at {
            state.standing = Standing::Held;
            if is_fence_checked {
                state.renew_at = asked_at + self.timings.renew_interval;
            }
        }
        drop(state);
        if reclaimed { applied.reclaimed.push(tenure) } else { applied.extended.push(tenure) }
    }

    /// R3: the renewal got no answer. Its leases become uncertain, and are renewed again soon.
    pub fn unanswered(&self, items: &[RenewItem], error: &str) -> Applied {
        let mut applied = Applied::default();
        for item in items {
            self.doubt(item.tenure.clone(), error, &mut applied);
        }
        applied
    }

    fn doubt(&self, tenure: Tenure, why: &str, applied: &mut Applied) {
        let now = self.now();
        let Some(lease) = self.find(&tenure) else { return };
        let mut state = self.edit(&lease);
        let news = state.standing == Standing::Held;
        self.mark_uncertain(&mut state, now);
        state.renew_at = now + self.timings.retry_interval();
        drop(state);
        if news {
            applied.doubted.push((tenure, why.into()));
        }
    }

    fn doubt_all(&self, now: Moment) {
        *self.store_clock.ran_ahead_at.lock() = now;
        // `gain` checks `ran_ahead_at`, so the map need not stay locked: a lease added meanwhile becomes uncertain, too.
        let all: Vec<Arc<Lease>> = self.leases.read().all().cloned().collect();
        for lease in all {
            self.mark_uncertain(&mut self.edit(&lease), now);
        }
    }

    fn mark_uncertain(&self, state: &mut TenureState, now: Moment) {
        state.standing = Standing::Uncertain;
        state.doubted_at = now;
        state.renew_at = now;
    }

    /// The store reported another fence, or none: the lease is renewed at once, and that renewal compares the fence. The answer
    /// to a renewal sent before does not count.
    pub fn require_fence_check(&self, tenure: &Tenure) {
        if let Some(lease) = self.find(tenure) {
            let mut state = self.edit(&lease);
            state.fence_checked_in = Epoch::default();
            state.fence_check_after = self.now();
            state.renew_at = state.fence_check_after;
        }
    }

    fn retry_soon(&self, items: &[RenewItem], after: Duration) {
        let at = self.now() + after;
        for item in items {
            if let Some(lease) = self.find(&item.tenure) {
                self.edit(&lease).renew_at = at;
            }
        }
    }

    /// FR-010: applies the answer to a verification. Returns the tenures that may be dispatched.
    pub fn verified(
        &self,
        request: &PendingRequest,
        tenures: &[Tenure],
        reply: &Reply<Vec<Verify>>,
    ) -> (Vec<Tenure>, Applied) {
        let anomaly = self.apply_stamp(request, &reply.stamp);
        let mut applied = Applied { anomaly, ..Applied::default() };
        let mut held = Vec::new();
        let Some(answers) = &reply.answer else {
            return (held, Applied { ask_again: true, ..applied });
        };
        for (tenure, answer) in tenures.iter().zip(answers) {
            let tenure = tenure.clone();
            match answer {
                Verify::Held => {
                    self.note_verified(&tenure, request.asked_at);
                    held.push(tenure);
                }
                Verify::Missing => {
                    self.doubt(tenure.clone(), "the lease is missing in the store", &mut applied);
                    self.retry_soon(&[RenewItem::new(tenure)], Duration::ZERO);
                }
                Verify::NotOwner(owner) => {
                    let loss = owner.clone().map_or(Loss::Gone, Loss::Taken);
                    self.lose(tenure, loss, &mut applied.lost);
                }
                Verify::Failed(why) => self.doubt(tenure, why, &mut applied),
            }
        }
        (held, applied)
    }

    /// Takes only the stamp of a reply: its items do not concern the table.
    pub fn observe_stamp<T>(&self, request: &PendingRequest, reply: &Reply<T>) -> ClockAnomaly {
        self.apply_stamp(request, &reply.stamp)
    }
}
