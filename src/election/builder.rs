//! Every setting of an election, with its default.

use std::fmt;
use std::time::Duration;

use crate::config::chosen::{Chosen, shared_methods};
use crate::config::setting::{Builder, Setting};
use crate::config::{CheckedConfig, Config, ConfigError};
use crate::election::runtime::Elections;
use crate::election::settings::ElectionSettings;
use crate::election::{LeaderElection, Leadership};
use crate::lease::keeper::StartError;
use crate::model::{InstanceId, InvalidRole, Role};
use crate::thread::Stop;

/// An election to be. What is not set follows from the TTL: the leader renews the role three times in its time.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use leasehold::LeaderElection;
///
/// let election = LeaderElection::builder("cleanup")?
///     .redis("rediss://user@redis.internal:6379")?
///     .redis_password_file("/run/secrets/redis")
///     .redis_ca("/etc/ssl/redis-ca.pem")
///     .redis_client_cert("/etc/ssl/app.pem", "/etc/ssl/app.key")
///     .from_env()? // what LEASEHOLD_REDIS, LEASEHOLD_LEASE_TTL and so on say wins
///     .leader_prefix("reports-leader")
///     .ttl(Duration::from_secs(20))
///     .heartbeat_interval(Duration::from_secs(5))
///     .election_interval(Duration::from_secs(10))
///     .startup_jitter(Duration::from_secs(1))
///     .store_timeout(Duration::from_secs(1))
///     .priority(7)
///     .min_replicas(1)
///     .host_name("reports-1")
///     .new_fleet()
///     .start()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing before `start`"]
pub struct ElectionBuilder {
    role: Role,
    chosen: Chosen,
}

/// Why there is no election.
#[derive(Debug)]
pub enum BuildError {
    /// The role cannot be named so.
    Role(InvalidRole),
    /// Settings that cannot work, alone or together.
    Settings(ConfigError),
    /// It could not be started.
    Start(StartError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(error) => error.fmt(f),
            Self::Settings(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Role(error) => Some(error),
            Self::Settings(error) => Some(error),
            Self::Start(error) => Some(error),
        }
    }
}

impl From<ConfigError> for BuildError {
    fn from(error: ConfigError) -> Self {
        Self::Settings(error)
    }
}

/// What `from_env` reads.
const VARIABLES: &[Setting] = &[
    Setting::Redis,
    Setting::RedisPasswordFile,
    Setting::RedisCa,
    Setting::RedisCert,
    Setting::RedisKey,
    Setting::Prefix,
    Setting::LeaderPrefix,
    Setting::LeaseTtl,
    Setting::RenewInterval,
    Setting::ElectionInterval,
    Setting::StartupJitter,
    Setting::Priority,
    Setting::NoCandidate,
    Setting::StoreTimeout,
    Setting::HostName,
    Setting::MinReplicas,
    Setting::NewFleet,
];

impl Config {
    /// How an instance with these settings stands for `role`.
    pub fn election_settings(&self, role: Role) -> ElectionSettings {
        ElectionSettings {
            role,
            ttl: self.lease_ttl,
            heartbeat_interval: self.renew_interval,
            election_interval: self.election_interval,
            startup_jitter: self.startup_jitter,
            priority: self.priority,
            stands: !self.no_candidate,
            store_timeout: self.store_timeout,
        }
    }
}

impl ElectionBuilder {
    pub(crate) fn new(role: &str) -> Result<Self, BuildError> {
        let role = Role::parse(role).map_err(BuildError::Role)?;
        Ok(Self { role, chosen: Chosen::by(Builder::Election) })
    }

    shared_methods!(BuildError, VARIABLES);

    /// What the names of all keys begin with: `leader` by default.
    pub fn leader_prefix(mut self, prefix: &str) -> Self {
        self.chosen.put(Setting::LeaderPrefix, |it| it.leader_prefix = prefix.into());
        self
    }

    /// What the names of leaders' heartbeats begin with: `leader:heartbeat:` by default.
    pub fn heartbeat_prefix(mut self, prefix: &str) -> Self {
        self.chosen.put(Setting::LeaderHeartbeatPrefix, |it| {
            it.leader_heartbeat_prefix = Some(prefix.into())
        });
        self
    }

    /// How long the role lasts without being renewed: 30 s by default, the same for all who stand for it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.chosen.put(Setting::LeaseTtl, |it| it.lease_ttl = ttl);
        self
    }

    /// How often one that does not lead looks even if nothing happened: 15 s by default. Whatever happens
    /// is noticed at once; this is the repair.
    pub fn election_interval(mut self, interval: Duration) -> Self {
        self.chosen.put(Setting::ElectionInterval, |it| it.election_interval = interval);
        self
    }

    /// How often the leader renews the role and its heartbeat: a third of the TTL by default.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.chosen.put(Setting::RenewInterval, |it| it.renew_interval = interval);
        self
    }

    /// Waits by chance up to this long before it first stands: not at all by default.
    pub fn startup_jitter(mut self, longest: Duration) -> Self {
        self.chosen.put(Setting::StartupJitter, |it| it.startup_jitter = longest);
        self
    }

    /// A leader gives way to one with a higher priority: 0 by default.
    pub fn priority(mut self, priority: u32) -> Self {
        self.chosen.put(Setting::Priority, |it| it.priority = priority);
        self
    }

    /// Only looks who leads.
    pub fn observer(mut self) -> Self {
        self.chosen.put(Setting::NoCandidate, |it| it.no_candidate = true);
        self
    }

    /// Checks everything.
    fn checked(self) -> Result<(CheckedConfig, ElectionSettings), BuildError> {
        let config = self.chosen.checked().map_err(BuildError::Settings)?;
        let settings = config.election_settings(self.role);
        Ok((config, settings))
    }

    /// Stands, on threads and connections of its own. Fails where a daemon would wait.
    pub fn start(self) -> Result<LeaderElection, BuildError> {
        self.begin(None)
    }

    /// The same, but waits for the store to be there, until told to stop.
    pub fn start_waiting(self, until: &Stop) -> Result<LeaderElection, BuildError> {
        self.begin(Some(until))
    }

    fn begin(self, until: Option<&Stop>) -> Result<LeaderElection, BuildError> {
        let (config, settings) = self.checked()?;
        let elections = Elections::on_redis(&config).map_err(BuildError::Start)?;
        elections.stand(settings, until).map_err(BuildError::Start)
    }

    /// Stands on the threads and connections of `elections`, as its instance. What concerns those is
    /// settled already: the store, the prefixes, the instance's id.
    pub fn start_in(self, elections: &Elections) -> Result<LeaderElection, BuildError> {
        let (_, settings) = self.checked()?;
        elections.stand(settings, None).map_err(BuildError::Start)
    }

    /// Stands once: leads until the guard is dropped, or says who leads. Waits out a hold-off.
    pub fn try_lead(self) -> Result<Result<Leadership, InstanceId>, BuildError> {
        let (config, settings) = self.checked()?;
        let elections = Elections::on_redis(&config).map_err(BuildError::Start)?;
        elections.try_lead(settings).map_err(BuildError::Start)
    }
}
