//! Jobs for tests of polling.

use std::sync::Arc;

use crate::lease::testing::Holder;
use crate::model::{Session, Thresholds};
use crate::polling::dispatch::PollJob;
use crate::polling::schedule::Due;

impl Holder {
    /// A job that was verified just now: a poll under the lease with this number.
    pub(crate) fn job(&self, n: usize) -> PollJob {
        let tenure = self.held[n].clone();
        let id = tenure.endpoint.as_str();
        let json = format!(r#"{{"id":"{id}","address":"h:1"}}"#);
        let session = Arc::new(Session::parse(id, json.as_bytes()).unwrap());
        let (timeout, due_at) = (self.table.timings().lease.ttl, self.table.now());
        let (next_after_ok, next_after_failure) = (timeout, timeout);
        let skipped = None;
        let thresholds = Thresholds::default();
        let due = Due {
            tenure,
            session,
            timeout,
            due_at,
            next_after_ok,
            next_after_failure,
            thresholds,
            skipped,
        };
        PollJob { due, verified_at: due_at }
    }
}
