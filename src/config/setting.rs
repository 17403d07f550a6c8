//! What is a setting called, and how is its text read? The command line, the environment and each builder have names of their
//! own for the settings, and all read the same values.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::config::value::{
    ValueError, address, choice, duration, hosts, number, path, switch, text, words,
};
use crate::config::{Config, LogLevel, LogRenewals, RedisUrl};
use crate::model::Role;

/// A setting of [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Redis,
    RedisPasswordFile,
    RedisCa,
    RedisCert,
    RedisKey,
    PollCa,
    SecretsDir,
    AllowTlsInsecure,
    CertWarnDays,
    MetricsEndpoints,
    Prefix,
    SessionPrefix,
    LeaseTtl,
    RenewInterval,
    HeartbeatTtl,
    HeartbeatInterval,
    SuspectAfter,
    ReconcileInterval,
    StoreTimeout,
    Workers,
    Interval,
    Timeout,
    LightAfter,
    FailAfter,
    OkAfter,
    LightInterval,
    PollCommand,
    AllowTargets,
    DenyTargets,
    MaxBody,
    Weight,
    HostName,
    DrainTimeout,
    LeaderPrefix,
    LeaderHeartbeatPrefix,
    ElectionInterval,
    StartupJitter,
    Priority,
    NoCandidate,
    Lead,
    NewFleet,
    MinReplicas,
    RuntimeDir,
    MetricsFile,
    MetricsName,
    Settings,
    MetricsListen,
    MetricsHosts,
    OnChange,
    OnChangeTimeout,
    OnChangeRetries,
    WebListen,
    WebHosts,
    WebRemote,
    LogLevel,
    LogRenewals,
}

use Setting as S;

impl Setting {
    /// The name of the option without its dashes.
    pub(crate) fn option(self) -> &'static str {
        match self {
            S::Redis => "redis",
            S::RedisPasswordFile => "redis-password-file",
            S::RedisCa => "redis-ca",
            S::RedisCert => "redis-cert",
            S::RedisKey => "redis-key",
            S::PollCa => "poll-ca",
            S::SecretsDir => "secrets-dir",
            S::AllowTlsInsecure => "allow-tls-insecure",
            S::CertWarnDays => "cert-warn-days",
            S::MetricsEndpoints => "metrics-endpoints",
            S::Prefix => "prefix",
            S::SessionPrefix => "session-prefix",
            S::LeaseTtl => "lease-ttl",
            S::RenewInterval => "renew-interval",
            S::HeartbeatTtl => "heartbeat-ttl",
            S::HeartbeatInterval => "heartbeat-interval",
            S::SuspectAfter => "suspect-after",
            S::ReconcileInterval => "reconcile-interval",
            S::StoreTimeout => "store-timeout",
            S::Workers => "workers",
            S::Interval => "interval",
            S::Timeout => "timeout",
            S::LightAfter => "light-after",
            S::FailAfter => "fail-after",
            S::OkAfter => "ok-after",
            S::LightInterval => "light-interval",
            S::PollCommand => "poll-command",
            S::AllowTargets => "allow-targets",
            S::DenyTargets => "deny-targets",
            S::MaxBody => "max-body",
            S::Weight => "weight",
            S::HostName => "host-name",
            S::DrainTimeout => "drain-timeout",
            S::LeaderPrefix => "leader-prefix",
            S::LeaderHeartbeatPrefix => "leader-heartbeat-prefix",
            S::ElectionInterval => "election-interval",
            S::StartupJitter => "startup-jitter",
            S::Priority => "priority",
            S::NoCandidate => "no-candidate",
            S::Lead => "lead",
            S::NewFleet => "new-fleet",
            S::MinReplicas => "min-replicas",
            S::RuntimeDir => "runtime-dir",
            S::MetricsFile => "metrics-file",
            S::MetricsName => "metrics-name",
            S::Settings => "settings",
            S::MetricsListen => "metrics-listen",
            S::MetricsHosts => "metrics-hosts",
            S::OnChange => "on-change",
            S::OnChangeTimeout => "on-change-timeout",
            S::OnChangeRetries => "on-change-retries",
            S::WebListen => "web-listen",
            S::WebHosts => "web-hosts",
            S::WebRemote => "web-remote",
            S::LogLevel => "log-level",
            S::LogRenewals => "log-renewals",
        }
    }

    /// The name of the field of [`Config`].
    fn field(self) -> String {
        match self {
            S::RedisPasswordFile => "access.password".into(),
            S::PollCa => "poll_access.ca".into(),
            S::SecretsDir => "poll_access.secrets_dir".into(),
            S::AllowTlsInsecure => "poll_access.allow_insecure".into(),
            S::CertWarnDays => "poll_access.cert_warn_days".into(),
            S::OnChange => "on_change.command".into(),
            S::OnChangeTimeout => "on_change.timeout".into(),
            S::OnChangeRetries => "on_change.retries".into(),
            S::FailAfter => "thresholds.fail_after".into(),
            S::OkAfter => "thresholds.ok_after".into(),
            S::RedisCa | S::RedisCert | S::RedisKey => self.option().replace("redis-", "access."),
            _ => self.option().replace('-', "_"),
        }
    }

    /// The method of a builder. `None` if the builder has no method for it.
    fn method(self, builder: Builder) -> Option<String> {
        let method = match (self, builder) {
            (S::LeaseTtl, _) => "ttl",
            (
                S::Redis
                | S::RedisPasswordFile
                | S::RedisCa
                | S::MinReplicas
                | S::StoreTimeout
                | S::HostName
                | S::NewFleet,
                _,
            ) => self.option(),
            (S::RedisCert | S::RedisKey, _) => "redis-client-cert",
            (S::Prefix | S::HeartbeatTtl, Builder::Manager) => self.option(),
            (S::RenewInterval | S::HeartbeatInterval, Builder::Manager) => self.option(),
            (S::RenewInterval | S::HeartbeatInterval, Builder::Election) => "heartbeat-interval",
            (S::LeaderHeartbeatPrefix, Builder::Election) => "heartbeat-prefix",
            (
                S::LeaderPrefix | S::ElectionInterval | S::StartupJitter | S::Priority,
                Builder::Election,
            ) => self.option(),
            (S::NoCandidate, Builder::Election) => "observer",
            _ => return None,
        };
        Some(method.replace('-', "_"))
    }

    /// `LEASEHOLD_LEASE_TTL` for `lease-ttl`.
    pub(crate) fn variable(self) -> String {
        variable(self.option())
    }
}

/// The environment variable of an option.
pub(crate) fn variable(option: &str) -> String {
    format!("LEASEHOLD_{}", option.to_ascii_uppercase().replace('-', "_"))
}

/// Some of the settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given(u64);

impl Given {
    pub(crate) fn insert(&mut self, setting: Setting) {
        self.0 |= 1 << setting as u64;
    }

    pub(crate) fn remove(&mut self, setting: Setting) {
        self.0 &= !(1 << setting as u64);
    }

    pub(crate) fn contains(self, setting: Setting) -> bool {
        self.0 & (1 << setting as u64) != 0
    }
}

/// What an error calls the settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    face: Face,
    /// These came from the environment and are called by their variables.
    pub(crate) from_env: Given,
}

/// Where a program or a person chose the settings.
#[derive(Clone, Copy, Debug, Default)]
enum Face {
    #[default]
    Fields,
    #[cfg(feature = "cli")]
    Options,
    Methods(Builder),
}

/// Which builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builder {
    Manager,
    Election,
}

/// Settings do not differ because errors call them by other names.
impl PartialEq for Names {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Names {}

impl Names {
    /// Those of the command line.
    #[cfg(feature = "cli")]
    pub(crate) const OPTIONS: Self = Self { face: Face::Options, from_env: Given(0) };

    /// Those of a builder.
    pub(crate) const fn methods(builder: Builder) -> Self {
        Self { face: Face::Methods(builder), from_env: Given(0) }
    }

    pub(crate) fn of(self, setting: Setting) -> String {
        match self.face {
            _ if self.from_env.contains(setting) => setting.variable(),
            #[cfg(feature = "cli")]
            Face::Options => format!("--{}", setting.option()),
            Face::Fields => setting.field(),
            Face::Methods(builder) => {
                setting.method(builder).unwrap_or_else(|| format!("Config::{}", setting.field()))
            }
        }
    }
}

impl Config {
    /// Reads the text of one setting.
    pub(crate) fn set(&mut self, setting: Setting, value: &OsStr) -> Result<(), ValueError> {
        match setting {
            S::Redis => self.redis = RedisUrl::parse(text(value)?).map_err(ValueError::Redis)?,
            S::RedisPasswordFile => self.access.password = Some(path(value)?),
            S::RedisCa => self.access.ca = Some(path(value)?),
            S::RedisCert => self.access.cert = Some(path(value)?),
            S::RedisKey => self.access.key = Some(path(value)?),
            S::PollCa => self.poll_access.ca = Some(path(value)?),
            S::SecretsDir => self.poll_access.secrets_dir = Some(path(value)?),
            S::AllowTlsInsecure => self.poll_access.allow_insecure = switch(value)?,
            S::CertWarnDays => self.poll_access.cert_warn_days = number(value)?,
            S::MetricsEndpoints => self.metrics_endpoints = number(value)?,
            S::Prefix => self.prefix = text(value)?.into(),
            S::SessionPrefix => self.session_prefix = text(value)?.into(),
            S::LeaseTtl => self.lease_ttl = duration(value)?,
            S::RenewInterval => self.renew_interval = duration(value)?,
            S::HeartbeatTtl => self.heartbeat_ttl = duration(value)?,
            S::HeartbeatInterval => self.heartbeat_interval = duration(value)?,
            S::SuspectAfter => self.suspect_after = duration(value)?,
            S::ReconcileInterval => self.reconcile_interval = duration(value)?,
            S::StoreTimeout => self.store_timeout = duration(value)?,
            S::Workers => self.workers = number(value)?,
            S::Interval => self.interval = duration(value)?,
            S::Timeout => self.timeout = duration(value)?,
            S::LightAfter => self.light_after = number(value)?,
            S::FailAfter => self.thresholds.fail_after = number(value)?,
            S::OkAfter => self.thresholds.ok_after = number(value)?,
            S::LightInterval => self.light_interval = duration(value)?,
            S::PollCommand => self.poll_command = Some(words(value)?),
            S::OnChange => self.on_change.command = Some(words(value)?),
            S::OnChangeTimeout => self.on_change.timeout = duration(value)?,
            S::OnChangeRetries => self.on_change.retries = number(value)?,
            S::AllowTargets => self.allow_targets = text(value)?.into(),
            S::DenyTargets => self.deny_targets = text(value)?.into(),
            S::MaxBody => self.max_body = number(value)?,
            S::Weight => self.weight = number(value)?,
            S::HostName => self.host_name = text(value)?.into(),
            S::DrainTimeout => self.drain_timeout = duration(value)?,
            S::LeaderPrefix => self.leader_prefix = text(value)?.into(),
            S::LeaderHeartbeatPrefix => self.leader_heartbeat_prefix = Some(text(value)?.into()),
            S::ElectionInterval => self.election_interval = duration(value)?,
            S::StartupJitter => self.startup_jitter = duration(value)?,
            S::Priority => self.priority = number(value)?,
            S::NoCandidate => self.no_candidate = switch(value)?,
            S::Lead => {
                for role in text(value)?.split(',').map(str::trim) {
                    self.lead.push(Role::parse(role).map_err(ValueError::Role)?);
                }
            }
            S::NewFleet => self.new_fleet = switch(value)?,
            S::MinReplicas => self.min_replicas = number(value)?,
            S::RuntimeDir => self.runtime_dir = Some(path(value)?),
            S::MetricsFile => self.metrics_file = Some(path(value)?),
            S::MetricsName => self.metrics_name = Some(text(value)?.into()),
            S::Settings => {
                let files = value.as_bytes().split(|c| *c == b':').map(OsStr::from_bytes);
                self.settings = files.map(path).collect::<Result<_, _>>()?;
            }
            S::MetricsListen => self.metrics_listen = Some(address(value)?),
            S::MetricsHosts => self.metrics_hosts = hosts(value)?,
            S::WebListen => self.web_listen = Some(address(value)?),
            S::WebHosts => self.web_hosts = hosts(value)?,
            S::WebRemote => self.web_remote = switch(value)?,
            S::LogLevel => self.log_level = choice(value, LogLevel::CHOICES, LogLevel::ALL)?,
            S::LogRenewals => {
                self.log_renewals = choice(value, "auto, each or summary", LogRenewals::ALL)?;
            }
        }
        Ok(())
    }
}
