//! Which leases are due, and are they still ours? Renews in batches, on a connection that no slow request ever blocks.

use std::sync::Arc;
use std::time::Duration;

use crate::lease::report::LeaseEventSink;
use crate::lease::table::{OwnershipTable, PendingRequest};
use crate::store::{BATCH_MAX, Renew, RenewItem, StampedResult, Store};

/// A lease can be due, and have too little time left to be renewed: the least wait until the thread `expiry` has ended it.
pub(crate) const TOO_LATE_PAUSE: Duration = Duration::from_millis(1);

/// The thread `renewal`: wakes when the next lease is due, and soon after a failure.
pub struct Renewal {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    sink: Box<dyn LeaseEventSink>,
}

impl Renewal {
    /// Renews the leases of `table`, and reports the outcome to `sink`.
    pub fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        sink: impl LeaseEventSink + 'static,
    ) -> Self {
        Self { store, table, sink: Box::new(sink) }
    }

    /// Renews one batch. Returns how long to wait for the next.
    pub fn step(&self) -> Duration {
        let Some((request, items)) = self.due() else { return self.wait().max(TOO_LATE_PAUSE) };
        let reply = self.store.renew(&request.context, &items);
        self.answered(&request, &items, reply);
        self.wait()
    }

    /// The leases to renew now, if any.
    pub(crate) fn due(&self) -> Option<(PendingRequest, Vec<RenewItem>)> {
        self.table.renewals()
    }

    /// The longest wait for a reply.
    pub(crate) fn store_timeout(&self) -> Duration {
        self.table.timings().store_timeout
    }

    /// Applies the reply to a renewal, and reports the outcome.
    pub(crate) fn answered(
        &self,
        request: &PendingRequest,
        items: &[RenewItem],
        reply: StampedResult<Vec<Renew>>,
    ) {
        self.table.metrics().renewal.observe(self.table.now().since(request.asked_at()));
        let applied = match reply {
            Ok(reply) => self.table.renewed(request, items, &reply),
            Err(error) if error.is_other_timing() => self.table.ttl_changed(items),
            Err(error) => self.table.unanswered(items, &error.to_string()),
        };
        self.table.metrics().renewed(applied.extended.len());
        self.sink.applied(&applied);
        self.sink.round(&applied);
    }

    /// How long until the next lease is due. At most the retry interval, because a lease that becomes uncertain is due at
    /// once (R3). Batches are spread over half the renewal interval, so that leases granted in one burst are not renewed in
    /// one burst for ever; but not when renewals are late, as after an outage.
    pub(crate) fn wait(&self) -> Duration {
        let timings = self.table.timings();
        let retry = timings.retry_interval();
        let Some(next) = self.table.next_renewal() else { return retry };
        let now = self.table.now();
        let n_batches = u32::try_from(self.table.len().div_ceil(BATCH_MAX)).unwrap_or(u32::MAX);
        let pace = timings.renew_interval / 2 / n_batches.max(1);
        let late = now.since(next) > pace || self.table.is_doubtful();
        let pace = if n_batches > 1 && !late { pace } else { Duration::ZERO };
        next.since(now).max(pace).min(retry)
    }
}
