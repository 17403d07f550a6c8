//! How does a stopping instance give its leases back (R11)?

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::event::Event;
use crate::lease::heartbeat::Heartbeat;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::model::{Tenure, Weight};
use crate::store::{BATCH_MAX, PeerMessage, Store, StoreError};

/// R11: how a stopping instance releases its leases.
pub struct ShutdownRelease {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    heartbeat: Arc<Heartbeat>,
    heartbeat_now: Sender<()>,
    /// Forgotten leases whose release was not sent, or got no answer. The release is sent again.
    unconfirmed: Mutex<Vec<Tenure>>,
}

impl ShutdownRelease {
    /// Releases the leases of `table` through `store`.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        reporter: Reporter,
        heartbeat: Arc<Heartbeat>,
        heartbeat_now: Sender<()>,
    ) -> Self {
        Self { store, table, reporter, heartbeat, heartbeat_now, unconfirmed: Mutex::default() }
    }

    /// Announces weight 0 with a heartbeat that is sent at once. Without it the plan of another instance could name this
    /// instance as the heir of a lease that it releases.
    pub fn leave_plan(&self) {
        self.heartbeat.set_weight(Weight(0));
        let _ = self.heartbeat_now.try_send(()); // one queued request is enough
    }

    /// Releases the drained leases that no poll runs under, and tells all instances. A result that is not stored yet counts as
    /// a running poll. Does nothing before the store has confirmed weight 0 (R10: not into a void). A store that does not
    /// answer is asked again at the next progress of the shutdown ([`OwnershipTable::shutdown_progress`]).
    pub fn release_idle(&self) {
        if self.heartbeat.confirmed_weight() != Some(Weight(0)) {
            return;
        }
        let mut tenures = std::mem::take(&mut *self.unconfirmed.lock());
        tenures.extend(self.table.take_drained(Duration::MAX));
        let mut released = 0;
        for batch in tenures.chunks(BATCH_MAX) {
            if self.release(batch).is_err() {
                break;
            }
            for tenure in batch {
                self.reporter.report(&Event::LeaseReleased {
                    tenure,
                    reason: "shutdown",
                    heir: None,
                });
            }
            released += batch.len();
        }
        *self.unconfirmed.lock() = tenures.split_off(released);
    }

    /// Takes every lease out of the table, so that no renewal is begun any more. Polls have ended or were aborted.
    pub fn forget_all(&self) -> Vec<Tenure> {
        let mut tenures = std::mem::take(&mut *self.unconfirmed.lock());
        self.table.drain_all();
        tenures.extend(self.table.take_drained(Duration::ZERO));
        tenures
    }

    /// Deletes the leases in the store and tells all instances. The threads that renew have ended. A store that did not
    /// answer once is not waited for again.
    pub fn give_back(&self, tenures: &[Tenure]) {
        let mut failure = None;
        for batch in tenures.chunks(BATCH_MAX) {
            failure = failure.or_else(|| self.release(batch).err());
            for tenure in batch {
                self.reporter.report(&Event::LeaseReleased {
                    tenure,
                    reason: "shutdown",
                    heir: None,
                });
                if let Some(error) = &failure {
                    self.reporter.report(&Event::LeaseFailed { endpoint: &tenure.endpoint, error });
                }
            }
        }
    }

    fn release(&self, tenures: &[Tenure]) -> Result<(), StoreError> {
        let freed = tenures.iter().map(|it| it.endpoint.clone()).collect();
        let message = PeerMessage { freed, ..PeerMessage::new(self.table.instance(), None) };
        self.store.release(&self.table.release_request().context, tenures, &[message]).map(drop)
    }
}
