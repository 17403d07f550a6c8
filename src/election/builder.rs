//! Every setting of an election, with its default.

use std::fmt;
use std::time::Duration;

use crate::config::{CheckedConfig, Config, ConfigError, RedisUrl, RedisUrlError};
use crate::election::runtime::Elections;
use crate::election::settings::ElectionSettings;
use crate::election::{LeaderElection, Leadership};
use crate::lease::keeper::StartError;
use crate::model::{InstanceId, InvalidRole, Role};
use crate::thread::Stop;

/// An election to be: [`LeaderElection::builder`].
#[derive(Clone, Debug)]
pub struct ElectionBuilder {
    role: Role,
    config: Config,
    /// Its default depends on the TTL.
    heartbeat_interval: Option<Duration>,
}

/// Why there is no election.
#[derive(Debug)]
pub enum BuildError {
    /// The role cannot be named so.
    Role(InvalidRole),
    /// The URL of the store cannot be understood.
    Redis(RedisUrlError),
    /// Settings that cannot work together.
    Settings(ConfigError),
    /// It could not be started.
    Start(StartError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(error) => error.fmt(f),
            Self::Redis(error) => error.fmt(f),
            Self::Settings(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}

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
        Ok(Self { role, config: Config::default(), heartbeat_interval: None })
    }

    /// Where the others are: `redis://127.0.0.1:6379/0` by default.
    pub fn redis(mut self, url: &str) -> Result<Self, BuildError> {
        self.config.redis = RedisUrl::parse(url).map_err(BuildError::Redis)?;
        Ok(self)
    }

    /// What the names of all keys begin with: `leader` by default.
    pub fn leader_prefix(mut self, prefix: &str) -> Self {
        self.config.leader_prefix = prefix.into();
        self
    }

    /// What the names of leaders' heartbeats begin with: `leader:heartbeat:` by default.
    pub fn heartbeat_prefix(mut self, prefix: &str) -> Self {
        self.config.leader_heartbeat_prefix = Some(prefix.into());
        self
    }

    /// How long the role lasts without being renewed: 30 s by default, the same for all who stand for it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.lease_ttl = ttl;
        self
    }

    /// How often one that does not lead looks even if nothing happened: 15 s by default. Whatever happens
    /// is noticed at once; this is the repair.
    pub fn election_interval(mut self, interval: Duration) -> Self {
        self.config.election_interval = interval;
        self
    }

    /// How often the leader renews the role and its heartbeat: a third of the TTL by default.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = Some(interval);
        self
    }

    /// Waits by chance up to this long before it first stands: not at all by default.
    pub fn startup_jitter(mut self, longest: Duration) -> Self {
        self.config.startup_jitter = longest;
        self
    }

    /// A leader gives way to one with a higher priority: 0 by default.
    pub fn priority(mut self, priority: u32) -> Self {
        self.config.priority = priority;
        self
    }

    /// Only looks who leads.
    pub fn observer(mut self) -> Self {
        self.config.no_candidate = true;
        self
    }

    /// What the instance's id begins with: the host's name by default. The rest of the id makes it unique:
    /// one that came back would be taken for the process that had it before (R7).
    pub fn instance_id(mut self, name: &str) -> Self {
        self.config.host_name = name.into();
        self
    }

    /// Nobody else runs on this store: nothing to wait for if it has never seen an election.
    pub fn new_fleet(mut self) -> Self {
        self.config.new_fleet = true;
        self
    }

    /// Checks everything.
    fn checked(mut self) -> Result<(CheckedConfig, ElectionSettings), BuildError> {
        let ttl = self.config.lease_ttl;
        self.config.heartbeat_ttl = ttl;
        self.config.renew_interval = self.heartbeat_interval.unwrap_or(ttl / 3);
        self.config.heartbeat_interval = self.config.renew_interval;
        self.config.store_timeout = Config::usual_store_timeout(ttl, ttl);
        let config = self.config.checked().map_err(BuildError::Settings)?;
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
