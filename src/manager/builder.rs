//! Every setting of a manager, with its default.

use std::time::Duration;

use crate::config::chosen::{Chosen, shared_methods};
use crate::config::setting::{Builder, Setting};
use crate::config::{CheckedConfig, ConfigError};
use crate::lease::keeper::StartError;
use crate::manager::LeaseManager;

/// The settings of a [`LeaseManager`] to be. What is not set follows from the TTL: the lease is renewed three times in its
/// time, and so is the heartbeat.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use leasehold::LeaseManager;
///
/// let manager = LeaseManager::builder()
///     .redis("rediss://user@redis.internal:6379")?
///     .redis_password_file("/run/secrets/redis")
///     .redis_ca("/etc/ssl/redis-ca.pem")
///     .redis_client_cert("/etc/ssl/app.pem", "/etc/ssl/app.key")
///     .from_env()? // what LEASEHOLD_REDIS, LEASEHOLD_LEASE_TTL and so on say wins
///     .prefix("reports")
///     .ttl(Duration::from_secs(20))
///     .renew_interval(Duration::from_secs(5))
///     .heartbeat_ttl(Duration::from_secs(10))
///     .heartbeat_interval(Duration::from_secs(3))
///     .store_timeout(Duration::from_secs(1))
///     .min_replicas(1)
///     .host_name("reports-1")
///     .new_fleet()
///     .start()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing before `start`"]
pub struct LeaseManagerBuilder {
    chosen: Chosen,
}

/// What `from_env` reads.
const VARIABLES: &[Setting] = &[
    Setting::Redis,
    Setting::RedisPasswordFile,
    Setting::RedisCa,
    Setting::RedisCert,
    Setting::RedisKey,
    Setting::Prefix,
    Setting::SessionPrefix,
    Setting::LeaderPrefix,
    Setting::LeaseTtl,
    Setting::RenewInterval,
    Setting::HeartbeatTtl,
    Setting::HeartbeatInterval,
    Setting::StoreTimeout,
    Setting::HostName,
    Setting::MinReplicas,
    Setting::NewFleet,
];

impl LeaseManagerBuilder {
    pub(super) fn new() -> Self {
        Self { chosen: Chosen::by(Builder::Manager) }
    }

    shared_methods!(ConfigError, VARIABLES);

    /// How long a lease lasts without a renewal: 30 s by default. The same on all instances that share a prefix (R14).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.chosen.put(Setting::LeaseTtl, |it| it.lease_ttl = ttl);
        self
    }

    /// The prefix of all keys: `poll` by default, which is that of `leasehold run`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.chosen.put(Setting::Prefix, |it| it.prefix = prefix.into());
        self
    }

    /// How often every held lease is renewed: a third of the TTL by default.
    pub fn renew_interval(mut self, interval: Duration) -> Self {
        self.chosen.put(Setting::RenewInterval, |it| it.renew_interval = interval);
        self
    }

    /// How long after its last heartbeat this instance counts as alive: the TTL of a lease by default, and never longer (R13).
    pub fn heartbeat_ttl(mut self, ttl: Duration) -> Self {
        self.chosen.put(Setting::HeartbeatTtl, |it| it.heartbeat_ttl = ttl);
        self
    }

    /// How often this instance writes its heartbeat: a third of its TTL by default.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.chosen.put(Setting::HeartbeatInterval, |it| it.heartbeat_interval = interval);
        self
    }

    /// Checks the settings, for [`LeaseManager::start`] or [`Elections::on_redis`](crate::Elections::on_redis). Nothing is
    /// connected.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::ConfigError> {
    /// use std::time::Duration;
    /// use leasehold::LeaseManager;
    ///
    /// let config = LeaseManager::builder().ttl(Duration::from_secs(9)).checked()?;
    /// assert_eq!(config.renew_interval, Duration::from_secs(3));
    /// # Ok(()) }
    /// ```
    pub fn checked(self) -> Result<CheckedConfig, ConfigError> {
        self.chosen.checked()
    }

    /// Connects, and begins to beat. Fails where a daemon would wait.
    pub fn start(self) -> Result<LeaseManager, StartError> {
        LeaseManager::start(&self.checked()?)
    }
}
