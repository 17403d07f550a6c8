//! How long does a lease last, and how often is it renewed? The durations of one table.

use std::time::Duration;

use crate::model::LeaseDuration;

/// The durations that a table works with.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimings {
    /// TTL and margin of a lease.
    pub lease: LeaseDuration,
    /// TTL and margin of the heartbeat.
    pub heartbeat: LeaseDuration,
    /// From one renewal of a lease to the next.
    pub renew_interval: Duration,
    /// Longest wait for a reply of the store.
    pub store_timeout: Duration,
}

impl LeaseTimings {
    /// R3: an unanswered renewal is sent again after this time, and not at the next tick.
    pub fn retry_interval(&self) -> Duration {
        let shortest = self.lease.ttl.min(self.heartbeat.ttl);
        Duration::from_secs(1).min(shortest / 12).max(Duration::from_millis(50))
    }
}
