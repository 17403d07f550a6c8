//! Which leases are past their deadline? Ends them and aborts their polls, even if everything else hangs (R3).
//!
//! Asks nobody: this thread only reads the clock, so that no slow store can keep a poll running.

use std::sync::Arc;
use std::time::Duration;

use crate::lease::report::LeaseEventSink;
use crate::lease::table::OwnershipTable;

/// The thread `expiry`: wakes at the next deadline.
pub struct Expiry {
    table: Arc<OwnershipTable>,
    sink: Box<dyn LeaseEventSink>,
}

impl Expiry {
    /// Watches over `table`, and tells what ends.
    pub fn new(table: Arc<OwnershipTable>, sink: impl LeaseEventSink + 'static) -> Self {
        Self { table, sink: Box::new(sink) }
    }

    /// Ends the leases past their deadline; how long until the next deadline can be.
    pub fn step(&self) -> Duration {
        self.sink.lost(&self.table.expire());
        self.sink.tick(); // here, because this thread waits for no store
        // Well within the margin, because leases may be gained and the VM may sleep meanwhile: a wait stands still in a
        // suspend, the deadline does not.
        let timings = self.table.timings();
        let longest = timings.lease.margin().min(timings.heartbeat.margin()) / 4;
        let Some(deadline) = self.table.next_deadline() else { return longest };
        // A moment later: at the deadline itself a lease is already past it.
        (deadline.since(self.table.now()) + Duration::from_micros(100)).min(longest)
    }
}
