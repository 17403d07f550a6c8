//! Ends every lease at its deadline and aborts its poll, whatever hangs elsewhere (R3).
//!
//! Asks nobody: this thread only reads the clock, so that no slow store can keep a poll running.

use std::sync::Arc;
use std::time::Duration;

use crate::lease::report::LeaseEventSink;
use crate::lease::table::OwnershipTable;

/// The thread `expiry`: wakes at the next deadline.
pub struct Expiry {
    table: Arc<OwnershipTable>,
    hearer: Box<dyn LeaseEventSink>,
}

impl Expiry {
    /// Watches over `table`, and tells what ends.
    pub fn new(table: Arc<OwnershipTable>, hearer: impl LeaseEventSink + 'static) -> Self {
        Self { table, hearer: Box::new(hearer) }
    }

    /// Ends what is past its deadline; how long until the next one can be.
    pub fn step(&self) -> Duration {
        self.hearer.lost(&self.table.expire());
        // Well within the margin, whatever is gained meanwhile and whatever the VM slept through: a wait
        // stands still in a suspend, the deadline does not.
        let timings = self.table.timings();
        let longest = timings.lease.margin().min(timings.heartbeat.margin()) / 4;
        let Some(deadline) = self.table.next_deadline() else { return longest };
        // A moment later: at the deadline itself a lease is already past it.
        (deadline.since(self.table.now()) + Duration::from_micros(100)).min(longest)
    }
}
