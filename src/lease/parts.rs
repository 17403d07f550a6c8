//! Everything that keeps leases, wired and without a thread: heartbeat, renewal, expiry, history, release.
//!
//! [`LeaseKeeper`](crate::lease::keeper::LeaseKeeper) puts threads around these parts. The in-memory cluster of the tests
//! and the simulator call their steps.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

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

/// The stages that keep leases, each ready to step.
pub struct LeaseParts {
    /// What is held.
    pub table: Arc<OwnershipTable>,
    /// Reports every change of a lease, and notes it in the history.
    pub reporter: Reporter,
    /// Shared with the fail-stop, which withdraws it.
    pub heartbeat: Arc<Heartbeat>,
    /// Asks for a heartbeat before the next tick.
    pub beat_now: Sender<()>,
    /// Those requests.
    pub beats: Receiver<()>,
    /// Renews leases.
    pub renewal: Renewal,
    /// Ends leases at their deadline.
    pub expiry: Expiry,
    /// Queues notes for the history.
    pub history: History,
    /// Writes them.
    pub historian: Historian,
    /// Gives leases back in a shutdown.
    pub release: Release,
}

impl LeaseParts {
    /// Wires the stages for what `table` will hold.
    pub fn assemble(
        config: &Config,
        table: &Arc<OwnershipTable>,
        connections: &Connections,
    ) -> Self {
        let share = || Arc::clone(table);
        let (history, historian) = Historian::new(&connections.history, table);
        let reporter = Reporter::new(table).remembering(&history);
        let store = Arc::clone(&connections.heartbeat);
        let (weight, interval) = (Weight(config.weight), config.heartbeat_interval);
        let heartbeat = Heartbeat::new(store, share(), weight, interval).reporting(&reporter);
        let (beat_now, beats) = bounded(1);
        let renewals = reporter.clone().renewals(config.log_renewals);
        let store = Arc::clone(&connections.rest);
        Self {
            expiry: Expiry::new(share(), renewals.clone()),
            renewal: Renewal::new(Arc::clone(&connections.renewal), share(), renewals),
            release: Release { store, table: share(), reporter: reporter.clone() },
            table: share(),
            heartbeat: Arc::new(heartbeat),
            reporter,
            beat_now,
            beats,
            history,
            historian,
        }
    }
}

/// R11: how an instance that stops gives its leases back.
pub struct Release {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
}

impl Release {
    /// Takes every lease out of the table, so that no renewal is begun any more. Polls have ended or were aborted.
    pub fn forget_all(&self) -> Vec<Tenure> {
        self.table.drain_all();
        self.table.drained(std::time::Duration::ZERO)
    }

    /// Deletes the leases in the store and wakes the heirs. The threads that renew have ended. A store that did not
    /// answer once is not waited for again.
    pub fn give_back(&self, tenures: &[Tenure]) {
        let mut failure = None;
        for batch in tenures.chunks(BATCH_MAX) {
            failure = failure.or_else(|| self.release(batch).err());
            for tenure in batch {
                self.reporter.say(&Event::LeaseReleased { tenure, reason: "shutdown", heir: None });
                if let Some(error) = &failure {
                    self.reporter.say(&Event::LeaseFailed { endpoint: &tenure.endpoint, error });
                }
            }
        }
    }

    fn release(&self, tenures: &[Tenure]) -> Result<(), StoreError> {
        let freed = tenures.iter().map(|it| it.endpoint.clone()).collect();
        let message = PeerMessage { freed, ..PeerMessage::new(self.table.instance(), None) };
        self.store.release(&self.table.farewell().context, tenures, &[message]).map(drop)
    }
}
