//! Which polls may start and run by the age of their verification (R15), and what does a revocation end (R16)?

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::clock::Moment;
use crate::lease::running_polls::RunningPolls;
use crate::lease::table::OwnershipTable;
#[cfg(any(test, feature = "__internals"))]
use crate::model::EndpointId;
use crate::model::Tenure;
use crate::store::BATCH_MAX;

/// R15: what a poll needs besides its lease.
#[derive(Default)]
pub(super) struct Verifications {
    /// How long a verification counts. `None`: for ever, and this instance cannot be revoked.
    pub(super) lasts: Option<Duration>,
    pub(super) running: Arc<RunningPolls>,
}

impl OwnershipTable {
    /// R15: from now on a poll needs a fresh verification, so this instance may be revoked (R16).
    pub fn revocable(mut self) -> Self {
        self.verifications.lasts = Some(self.timings.lease.verification().ttl);
        self
    }

    /// R15: whether a poll of `endpoint` could start now without another request to the store.
    #[cfg(any(test, feature = "__internals"))]
    pub fn may_start_poll(&self, endpoint: &EndpointId) -> bool {
        let leases = self.leases.read();
        let lease = leases.get(endpoint);
        lease.is_some_and(|it| it.may_poll(&it.state.lock(), self.now()))
    }

    /// R15: how long a verification counts; `None` for an instance that cannot be revoked.
    pub fn verified_for(&self) -> Option<Duration> {
        self.verifications.lasts
    }

    /// R15: the polls that run and are to be verified again: half of the time of their verification is over.
    pub fn polls_to_verify(&self) -> Vec<Tenure> {
        let Some(lasts) = self.verifications.lasts else { return Vec::new() };
        let mut tenures = self.verifications.running.ending_by(self.now() + lasts / 2);
        tenures.truncate(BATCH_MAX);
        tenures
    }

    /// When [`Self::polls_to_verify`] has something; `None` while no poll runs.
    pub fn next_verification(&self) -> Option<Moment> {
        let (lasts, running) = (self.verifications.lasts?, &self.verifications.running);
        running.next_end().map(|it| it - lasts / 2)
    }

    /// Whether a poll runs, aborted or not.
    pub fn is_polling(&self) -> bool {
        !self.verifications.running.is_empty()
    }

    /// Receives a wake-up when a poll begins while no other runs.
    pub fn first_poll_began(&self) -> Receiver<()> {
        self.verifications.running.first_began().clone()
    }

    /// R15: the store has confirmed this tenure after `asked_at`.
    pub(super) fn note_verified(&self, tenure: &Tenure, asked_at: Moment) {
        let (Some(lasts), Some(lease)) = (self.verifications.lasts, self.find(tenure)) else {
            return;
        };
        let mut state = self.edit(&lease);
        state.verified_until = state.verified_until.max(asked_at + lasts);
    }

    /// R16: another instance has revoked this one. Ends every lease for good; [`Self::expire`] aborts their polls and reports
    /// them. Whether this is news.
    pub fn revoked(&self, until_ms: u64) -> bool {
        self.heartbeat_deadline.revoke(until_ms)
    }

    /// R16: the revocation that this instance has obeyed; 0 for none.
    pub fn obeyed_ms(&self) -> u64 {
        self.heartbeat_deadline.obeyed_ms()
    }
}
