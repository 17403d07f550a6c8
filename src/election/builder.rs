//! Every setting of an election, with its default.

use std::fmt;
use std::time::Duration;

use crate::config::chosen::{Chosen, shared_methods};
use crate::config::setting::{Builder, Setting};
use crate::config::{CheckedConfig, Config, ConfigError};
use crate::election::listeners::SharedListener;
use crate::election::runtime::Elections;
use crate::election::settings::ElectionSettings;
use crate::election::standing::Candidacy;
use crate::election::{Attempt, ElectionEvent, LeaderElection};
use crate::lease::keeper::StartError;
use crate::model::{InvalidRole, Role};
use crate::thread::Stop;

/// An election to be. A clone has the same listeners. What is not set follows from the TTL: the leader renews the role three times in its time.
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
///     .heartbeat_prefix("reports-leader:heartbeat:")
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
/// let onlooker = LeaderElection::builder("cleanup")?.observer().start()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing before `start`"]
pub struct ElectionBuilder {
    role: Role,
    chosen: Chosen,
    listeners: Vec<SharedListener>,
}

/// Why there is no election.
#[derive(Debug)]
#[non_exhaustive]
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
    ///
    /// ```
    /// use leasehold::{Config, Role};
    ///
    /// let settings = Config::default().election_settings(Role::parse("cleanup").unwrap());
    /// assert_eq!(settings.ttl, Config::default().lease_ttl);
    /// ```
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
        Ok(Self { role, chosen: Chosen::by(Builder::Election), listeners: Vec::new() })
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

    /// Calls `listener` for every event of this election, in order, on a thread of its own. It is registered before the election
    /// stands, so it misses nothing. Several may be given; a stop waits for each to have heard of it, at most 5 s. For thousands of
    /// roles one listener is better: [`Elections::listen`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{ElectionEvent, LeaderElection};
    ///
    /// let election = LeaderElection::builder("cleanup")?
    ///     .on_event(|event| println!("{event:?}"))
    ///     .on_event(|event| {
    ///         if let ElectionEvent::LeadershipLost { term, reason, .. } = event {
    ///             eprintln!("term {term} is over: {reason:?}");
    ///         }
    ///     })
    ///     .start()?;
    /// # Ok(()) }
    /// ```
    pub fn on_event(mut self, listener: impl FnMut(&ElectionEvent) + Send + 'static) -> Self {
        self.listeners.push(SharedListener::new(listener));
        self
    }

    /// Stands, on threads and connections of its own. Fails where a daemon would wait.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// println!("{:?}", election.state());
    /// # Ok(()) }
    /// ```
    pub fn start(self) -> Result<LeaderElection, BuildError> {
        self.begin(None)
    }

    /// The same, but waits for the store to be there, until told to stop.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{LeaderElection, Stop};
    ///
    /// let (source, until) = Stop::pair(); // drop the source to give up
    /// let election = LeaderElection::builder("cleanup")?.start_waiting(&until)?;
    /// # drop(source);
    /// # Ok(()) }
    /// ```
    pub fn start_waiting(self, until: &Stop) -> Result<LeaderElection, BuildError> {
        self.begin(Some(until))
    }

    fn begin(self, until: Option<&Stop>) -> Result<LeaderElection, BuildError> {
        let (config, candidacy) = self.candidacy()?;
        let elections = Elections::on_redis(&config).map_err(BuildError::Start)?;
        elections.stand_as(candidacy, until).map_err(BuildError::Start)
    }

    /// Stands on the threads and connections of `elections`, as its instance. What concerns those is
    /// settled already: the store, the prefixes, the instance's id.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, Elections, LeaderElection};
    ///
    /// let elections = Elections::on_redis(&Config::default().checked()?)?;
    /// let cleanup = LeaderElection::builder("cleanup")?.start_in(&elections)?;
    /// let report = LeaderElection::builder("report")?.priority(1).start_in(&elections)?;
    /// # Ok(()) }
    /// ```
    pub fn start_in(self, elections: &Elections) -> Result<LeaderElection, BuildError> {
        let (_, candidacy) = self.candidacy()?;
        elections.stand_as(candidacy, None).map_err(BuildError::Start)
    }

    /// Stands once: leads until the guard is dropped, or says who leads. Waits out a hold-off, up to the TTL and a margin;
    /// [`Self::try_lead_until`] can be cancelled.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Attempt, LeaderElection};
    ///
    /// match LeaderElection::builder("daily-report")?.try_lead()? {
    ///     Attempt::Elected(leadership) => println!("reports: {}", leadership.holds()),
    ///     Attempt::LedBy(leader) => println!("{leader} reports"),
    ///     other => println!("{other}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn try_lead(self) -> Result<Attempt, BuildError> {
        self.attempt(None)
    }

    /// [`Self::try_lead`], but gives up when `until` is over: [`Attempt::Cancelled`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Attempt, LeaderElection, Stop};
    ///
    /// let (source, until) = Stop::pair(); // drop the source, on any thread, to give up
    /// if let Attempt::Cancelled = LeaderElection::builder("daily-report")?.try_lead_until(&until)? {
    ///     println!("told to stop first");
    /// }
    /// # drop(source);
    /// # Ok(()) }
    /// ```
    pub fn try_lead_until(self, until: &Stop) -> Result<Attempt, BuildError> {
        self.attempt(Some(until))
    }

    fn attempt(self, until: Option<&Stop>) -> Result<Attempt, BuildError> {
        let (config, candidacy) = self.candidacy()?;
        let elections = Elections::on_redis(&config).map_err(BuildError::Start)?;
        elections.try_lead_as(candidacy, until).map_err(BuildError::Start)
    }

    /// Checks everything, and keeps the listeners.
    fn candidacy(mut self) -> Result<(CheckedConfig, Candidacy), BuildError> {
        let listeners = std::mem::take(&mut self.listeners);
        let (config, settings) = self.checked()?;
        Ok((config, Candidacy { settings, listeners }))
    }
}
