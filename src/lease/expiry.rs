//! Which leases are past their deadline? Ends them and aborts their polls, even if everything else hangs (R3).
//!
//! Never touches the store: the thread only reads the clock, so that a slow store cannot keep a poll running.

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
    /// Ends the leases of `table`, and reports each to `sink`.
    pub fn new(table: Arc<OwnershipTable>, sink: impl LeaseEventSink + 'static) -> Self {
        Self { table, sink: Box::new(sink) }
    }

    /// Ends the leases past their deadline. Returns how long to wait for the next deadline.
    pub fn step(&self) -> Duration {
        self.sink.lost(&self.table.expire());
        self.sink.tick(); // here, because this thread waits for no store
        // At most a quarter of the margin: a lease may be granted during the wait. And the clock of a wait stops while the VM
        // is suspended; the clock of a deadline does not.
        let timings = self.table.timings();
        let longest = timings.lease.margin().min(timings.heartbeat.margin()) / 4;
        let Some(deadline) = self.table.next_deadline() else { return longest };
        // A little later than the deadline, so that the next step finds the lease past it.
        (deadline.since(self.table.now()) + Duration::from_micros(100)).min(longest)
    }
}
