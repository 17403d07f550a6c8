//! With which settings does an instance stand for a role, and which outcomes are there? Plain values.

use std::time::Duration;

use crate::config::setting::{Builder, Names};
use crate::config::{Config, ConfigError};
use crate::lease::table::LeaseTimings;
use crate::model::{LeaseDuration, Role};

/// How one instance stands for one role.
#[derive(Clone, Debug)]
pub struct ElectionSettings {
    /// The role.
    pub role: Role,
    /// How long it lasts without being renewed: the same for everybody who stands for it (R14).
    pub ttl: Duration,
    /// How often a leader renews it, and its heartbeat with it.
    pub heartbeat_interval: Duration,
    /// How often one that does not lead looks even if nothing happened.
    pub election_interval: Duration,
    /// Waits by chance up to this long before it first stands.
    pub startup_jitter: Duration,
    /// A leader gives way to one with a higher priority.
    pub priority: u32,
    /// Stands at all; otherwise it only knows who leads.
    pub stands: bool,
    /// Longest wait for any answer.
    pub store_timeout: Duration,
}

impl ElectionSettings {
    /// Refuses what [`Config::checked`] refuses.
    pub fn check(&self) -> Result<(), ConfigError> {
        let config = Config {
            lease_ttl: self.ttl,
            renew_interval: self.heartbeat_interval,
            heartbeat_ttl: self.ttl,
            heartbeat_interval: self.heartbeat_interval,
            election_interval: self.election_interval,
            startup_jitter: self.startup_jitter,
            store_timeout: self.store_timeout,
            host_name: "any".into(),
            names: Names::methods(Builder::Election),
            ..Config::default()
        };
        config.checked().map(drop)
    }

    /// The durations for its ownership table.
    #[doc(hidden)]
    pub fn timings(&self) -> LeaseTimings {
        let lease = LeaseDuration::new(self.ttl);
        let (renew_interval, store_timeout) = (self.heartbeat_interval, self.store_timeout);
        LeaseTimings { lease, heartbeat: lease, renew_interval, store_timeout }
    }
}
