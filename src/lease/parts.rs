//! Which parts keep leases? Wires heartbeat, renewal, expiry, history and release together, without a thread.
//!
//! [`LeaseKeeper`](crate::lease::keeper::LeaseKeeper) puts threads around these parts. The in-memory cluster of the tests
//! and the simulator call their steps.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use crate::config::Config;
use crate::event::Event;
use crate::lease::expiry::Expiry;
use crate::lease::heartbeat::Heartbeat;
use crate::lease::history::{Historian, History};
use crate::lease::keeper::Connections;
use crate::lease::renewal::Renewal;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::model::{Tenure, Weight};
use crate::store::{BATCH_MAX, PeerMessage, Store, StoreError};

/// The parts that keep leases.
pub struct LeaseParts {
    /// The held leases.
    pub table: Arc<OwnershipTable>,
    /// Reports every change of a lease, and notes it in the history.
    pub reporter: Reporter,
    /// Shared with the fail-stop, which withdraws it.
    pub heartbeat: Arc<Heartbeat>,
    /// Asks for a heartbeat before its interval is over.
    pub heartbeat_now: Sender<()>,
    /// Receives the requests of `heartbeat_now`.
    pub heartbeat_requests: Receiver<()>,
    /// Renews leases.
    pub renewal: Renewal,
    /// Ends leases at their deadline.
    pub expiry: Expiry,
    /// Queues notes for the history.
    pub history: History,
    /// Writes the queued notes.
    pub historian: Historian,
    /// Releases leases in a shutdown.
    pub release: Release,
}

impl LeaseParts {
    /// Wires the parts around `table`.
    pub fn assemble(
        config: &Config,
        table: &Arc<OwnershipTable>,
        connections: &Connections,
    ) -> Self {
        let share = || Arc::clone(table);
        let (history, historian) = Historian::new(&connections.history, table);
        let reporter = Reporter::new(table).with_history(&history);
        let store = Arc::clone(&connections.heartbeat);
        let (weight, interval) = (Weight(config.weight), config.heartbeat_interval);
        let heartbeat = Heartbeat::new(store, share(), weight, interval).with_reporter(&reporter);
        let (heartbeat_now, heartbeat_requests) = bounded(1);
        let renewals = reporter.clone().renewals(config.log_renewals);
        let heartbeat = Arc::new(heartbeat);
        let release = Release {
            store: Arc::clone(&connections.rest),
            table: share(),
            reporter: reporter.clone(),
            heartbeat: Arc::clone(&heartbeat),
            heartbeat_now: heartbeat_now.clone(),
            unconfirmed: Mutex::default(),
        };
        Self {
            expiry: Expiry::new(share(), renewals.clone()),
            renewal: Renewal::new(Arc::clone(&connections.renewal), share(), renewals),
            release,
            table: share(),
            heartbeat,
            reporter,
            heartbeat_now,
            heartbeat_requests,
            history,
            historian,
        }
    }
}

/// R11: how a stopping instance releases its leases.
pub struct Release {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    heartbeat: Arc<Heartbeat>,
    heartbeat_now: Sender<()>,
    /// Forgotten leases whose release was not sent, or got no answer. The release is sent again.
    unconfirmed: Mutex<Vec<Tenure>>,
}

impl Release {
    /// Announces weight 0 with a heartbeat that is sent at once. Without it the plan of another instance could name this
    /// instance as the heir of a lease that it releases.
    pub fn leave_plan(&self) {
        self.heartbeat.set_weight(Weight(0));
        let _ = self.heartbeat_now.try_send(()); // one queued request is enough
    }

    /// Releases the drained leases that no poll runs under, and wakes the heirs. A result that is not stored yet counts as
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

    /// Deletes the leases in the store and wakes the heirs. The threads that renew have ended. A store that did not
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
