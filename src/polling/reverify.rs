//! Are the leases of running polls still confirmed? Verifies each again before its last verification ends (R15).
//!
//! A poll that is not verified in time is aborted by the thread `expiry`, which waits for no store. So this thread may be slow,
//! and has a connection of its own, so that it rarely is. It runs until the last poll has ended (R11).

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::lease::report::{LeaseEventSink, Reporter};
use crate::lease::table::OwnershipTable;
use crate::store::Store;

/// The wait while no poll runs. A poll that begins ends it.
const IDLE: Duration = Duration::from_secs(3_600);

/// The thread `verify`: wakes when a poll begins while no other runs, and then when a verification is half over.
pub struct Reverifier {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
}

impl Reverifier {
    /// Verifies the leases of `table` under which polls run.
    pub fn new(store: Arc<dyn Store>, table: Arc<OwnershipTable>, reporter: &Reporter) -> Self {
        Self { store, table, reporter: reporter.clone() }
    }

    /// Receives a nudge when the next step has to come at once.
    pub fn nudges(&self) -> Receiver<()> {
        self.table.first_poll_began()
    }

    /// Verifies one batch. Returns how long to wait for the next step.
    pub fn step(&self) -> Duration {
        let Some(lasts) = self.table.verified_for() else { return IDLE };
        let tenures = self.table.polls_to_verify();
        // A poll that begins during the wait may have a verification that is half over already.
        let longest = lasts / 8;
        if !tenures.is_empty() {
            let mut request = self.table.verification(&tenures);
            request.answer_within(lasts / 2);
            // Without an answer nothing is confirmed, and the polls are aborted in time. Renewal finds out whose the leases are.
            if let Ok(reply) = self.store.verify(&request.context, &tenures) {
                let (held, applied) = self.table.verified(&request, &tenures, &reply);
                self.reporter.applied(&applied);
                if held.len() == tenures.len() {
                    return Duration::ZERO; // there may be another batch
                }
            }
            return longest / 4;
        }
        // A poll that was aborted may take its time to end, and meanwhile others begin without a nudge.
        if !self.table.is_polling() {
            return IDLE;
        }
        let next = self.table.next_verification();
        next.map_or(longest, |at| at.since(self.table.now()).min(longest))
    }
}
