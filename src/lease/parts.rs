//! Which parts keep leases? Wires heartbeat, renewal, expiry, history and release together, without a thread.
//!
//! [`LeaseKeeper`](crate::lease::keeper::LeaseKeeper) puts threads around these parts. The in-memory cluster of the tests
//! and the simulator call their steps.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::config::Config;
use crate::lease::expiry::Expiry;
use crate::lease::heartbeat::Heartbeat;
use crate::lease::history::{Historian, History};
use crate::lease::keeper::Connections;
use crate::lease::renewal::Renewal;
use crate::lease::report::Reporter;
use crate::lease::shutdown_release::ShutdownRelease;
use crate::lease::table::OwnershipTable;
use crate::model::Weight;

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
    pub release: ShutdownRelease,
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
        let heartbeat = match table.verified_for() {
            Some(_) => heartbeat.suspected_after(config.suspect_after),
            None => heartbeat,
        };
        let (heartbeat_now, heartbeat_requests) = bounded(1);
        let renewals = reporter.clone().renewals(config.log_renewals);
        let heartbeat = Arc::new(heartbeat);
        let release = ShutdownRelease::new(
            Arc::clone(&connections.rest),
            share(),
            reporter.clone(),
            Arc::clone(&heartbeat),
            heartbeat_now.clone(),
        );
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
