//! What was this instance told to do? Every setting, its default, and the relations between settings.
//!
//! Only this module checks settings, and its errors name them as they were chosen (`setting.rs`). Every start takes a [`CheckedConfig`], so no later
//! code checks again. `cli::args` reads the command line and the environment.

pub(crate) mod access;
mod checked;
pub(crate) mod chosen;
mod defaults;
mod duration;
mod error;
mod log;
mod on_change;
mod poll_access;
mod redis_url;
pub(crate) mod setting;
pub(crate) mod value;
mod web;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::setting::{Names, Setting};
use crate::model::{LeaseDuration, Role, Thresholds, Weight};

pub use crate::config::access::Access;
pub(crate) use crate::config::access::AccessError;
pub use crate::config::checked::CheckedConfig;
pub use crate::config::duration::{DurationError, parse_duration};
pub use crate::config::error::ConfigError;
pub(crate) use crate::config::error::Problem;
pub use crate::config::log::{LogLevel, LogRenewals};
pub use crate::config::on_change::OnChange;
pub use crate::config::poll_access::PollAccess;
pub(crate) use crate::config::redis_url::Login;
pub use crate::config::redis_url::{HostPort, RedisUrl, RedisUrlError, Topology};

/// The settings of one instance: a manager, a daemon or elections. A builder sets those that concern its instance; here are all.
///
/// More may come, so take the defaults and assign what differs:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::Config;
///
/// let mut config = Config::default();
/// config.redis = "redis://10.0.0.7:6379/2".parse()?;
/// config.workers = 32;
/// let config = config.checked()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each field is the option of its name, which docs/contract.md explains"
)]
// Tests and labs write it as `Config { .., ..Config::default() }`.
#[cfg_attr(not(feature = "__internals"), non_exhaustive)]
pub struct Config {
    pub redis: RedisUrl,
    pub access: Access,
    pub prefix: String,
    pub session_prefix: String,
    pub lease_ttl: Duration,
    pub renew_interval: Duration,
    pub heartbeat_ttl: Duration,
    pub heartbeat_interval: Duration,
    pub suspect_after: Duration,
    pub reconcile_interval: Duration,
    pub store_timeout: Duration,
    pub workers: usize,
    pub interval: Duration,
    pub timeout: Duration,
    pub light_after: u32,
    pub light_interval: Duration,
    pub thresholds: Thresholds,
    pub poll_command: Option<Vec<String>>,
    pub on_change: OnChange,
    pub allow_targets: String,
    pub deny_targets: String,
    pub max_body: usize,
    pub poll_access: PollAccess,
    pub weight: u32,
    pub host_name: String,
    pub drain_timeout: Duration,
    pub leader_prefix: String,
    pub leader_heartbeat_prefix: Option<String>,
    pub election_interval: Duration,
    pub startup_jitter: Duration,
    pub priority: u32,
    pub no_candidate: bool,
    pub lead: Vec<Role>,
    pub new_fleet: bool,
    pub min_replicas: u32,
    pub runtime_dir: Option<PathBuf>,
    pub metrics_file: Option<PathBuf>,
    pub metrics_name: Option<String>,
    pub settings: Vec<PathBuf>,
    pub metrics_listen: Option<SocketAddr>,
    pub metrics_hosts: Vec<String>,
    pub metrics_endpoints: usize,
    pub web_listen: Option<SocketAddr>,
    pub web_hosts: Vec<String>,
    pub web_remote: bool,
    pub log_level: LogLevel,
    pub log_renewals: LogRenewals,
    /// What errors call the settings.
    #[doc(hidden)]
    pub names: Names,
}

const PREFIX_BYTES_MAX: usize = 64;
const HOST_NAME_BYTES_MAX: usize = 64;
const METRICS_NAME_BYTES_MAX: usize = 128;
const MIN_REPLICAS_MAX: u64 = 100;
const RETRIES_MAX: u64 = 20;
const SERIES_MAX: u64 = 10_000;
const MAX_BODY_MAX: u64 = 16 * 1024 * 1024;
const CERT_WARN_DAYS_MAX: u64 = 3_650;

const MS_10: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The second part of every coordination key.
const KEY_FAMILIES: [&str; 12] = [
    "revoked:", "lease:", "node:", "result:", "results:", "wake:", "ask:", "epoch:", "history:",
    "changes:", "drain:", "doctor:",
];

impl Config {
    /// The least `--suspect-after` that is not 0.
    const SUSPECT_AFTER_MIN: Duration = Duration::from_millis(200);

    /// The most `--workers` there can be.
    pub const WORKERS_MAX: usize = 4_096;

    /// The store timeout when none is set: two seconds, or a tenth of the shortest TTL.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::Config;
    ///
    /// let ttl = Duration::from_secs(3);
    /// assert_eq!(Config::usual_store_timeout(ttl, ttl), Duration::from_millis(300));
    /// ```
    pub fn usual_store_timeout(lease_ttl: Duration, heartbeat_ttl: Duration) -> Duration {
        // Never out of range by itself: a TTL that is too short is to be named, and not what follows from it.
        Duration::from_secs(2).min(lease_ttl.min(heartbeat_ttl) / 10).max(MS_10)
    }

    /// The part of [`Self::checked`] that a command needs which only talks to the store.
    #[cfg(feature = "cli")]
    pub(crate) fn checked_store(self) -> Result<Self, ConfigError> {
        let names = self.names;
        self.with_store_checked().map_err(|problem| ConfigError::new(problem, names))
    }

    /// The part of [`Self::checked`] that a command needs which reads sessions, too.
    #[cfg(feature = "cli")]
    pub(crate) fn checked_reading(self) -> Result<Self, ConfigError> {
        let names = self.names;
        self.with_reading_checked().map_err(|problem| ConfigError::new(problem, names))
    }

    fn with_store_checked(mut self) -> Result<Self, Problem> {
        self.check_access()?;
        check_duration(Setting::StoreTimeout, self.store_timeout, MS_10, HOUR)?;
        check_prefix(Setting::Prefix, &self.prefix)?;
        check_prefix(Setting::LeaderPrefix, &self.leader_prefix)?;
        if let Some(prefix) = &self.leader_heartbeat_prefix {
            check_prefix(Setting::LeaderHeartbeatPrefix, prefix)?;
        }
        if self.prefix == self.leader_prefix {
            return Err(Problem::PrefixesEqual { prefix: self.prefix });
        }
        if self.redis.topology() == Topology::Cluster {
            self.prefix = tagged(&self.prefix);
            self.leader_prefix = tagged(&self.leader_prefix);
            let heartbeats = self.leader_heartbeat_prefix();
            if hash_tag(&heartbeats) != hash_tag(&self.leader_prefix) {
                let (prefix, leader_prefix) = (heartbeats, self.leader_prefix);
                return Err(Problem::PrefixesApart { prefix, leader_prefix });
            }
        }
        Ok(self)
    }

    fn check_access(&self) -> Result<(), AccessError> {
        let Access { password, ca, cert, key } = &self.access;
        if let Some(path) = password
            && self.redis.has_password()
        {
            return Err(AccessError::TwoPasswords { path: path.clone() });
        }
        if cert.is_some() != key.is_some() {
            return Err(AccessError::HalfACertificate);
        }
        let named = [(Setting::RedisCa, ca), (Setting::RedisCert, cert)];
        match named.into_iter().find(|it| it.1.is_some()) {
            Some((setting, _)) if !self.redis.uses_tls() => Err(AccessError::NoTls { setting }),
            _ if self.redis.uses_tls() && !cfg!(feature = "https") => {
                Err(AccessError::TlsUnsupported)
            }
            _ => Ok(()),
        }
    }

    /// What the names of leaders' heartbeats begin with.
    pub fn leader_heartbeat_prefix(&self) -> String {
        let usual = || format!("{}:heartbeat:", self.leader_prefix);
        self.leader_heartbeat_prefix.clone().unwrap_or_else(usual)
    }

    fn with_reading_checked(self) -> Result<Self, Problem> {
        let config = self.with_store_checked()?;
        check_prefix(Setting::SessionPrefix, &config.session_prefix)?;
        config.check_prefixes()?;
        config.check_web()?;
        Ok(config)
    }

    fn check_ranges(&self) -> Result<(), Problem> {
        let durations = [
            (Setting::LeaseTtl, self.lease_ttl, LeaseDuration::TTL_MIN, LeaseDuration::TTL_MAX),
            (Setting::RenewInterval, self.renew_interval, MS_10, HOUR),
            (
                Setting::HeartbeatTtl,
                self.heartbeat_ttl,
                LeaseDuration::TTL_MIN,
                LeaseDuration::TTL_MAX,
            ),
            (Setting::HeartbeatInterval, self.heartbeat_interval, MS_10, HOUR),
            (Setting::SuspectAfter, self.suspect_after, Duration::ZERO, HOUR),
            (Setting::ReconcileInterval, self.reconcile_interval, MS_10, HOUR),
            (Setting::Interval, self.interval, MS_10, DAY),
            (Setting::Timeout, self.timeout, Duration::from_millis(1), HOUR),
            (Setting::LightInterval, self.light_interval, MS_10, DAY),
            (Setting::OnChangeTimeout, self.on_change.timeout, MS_10, HOUR),
            (Setting::DrainTimeout, self.drain_timeout, Duration::ZERO, HOUR),
            (Setting::ElectionInterval, self.election_interval, MS_10, HOUR),
            (Setting::StartupJitter, self.startup_jitter, Duration::ZERO, HOUR),
        ];
        for (setting, value, min, max) in durations {
            check_duration(setting, value, min, max)?;
        }
        check_number(Setting::Workers, self.workers as u64, 1, Self::WORKERS_MAX as u64)?;
        check_number(Setting::LightAfter, self.light_after.into(), 1, u32::MAX.into())?;
        let Thresholds { fail_after, ok_after } = self.thresholds;
        check_number(Setting::FailAfter, fail_after.into(), 1, Thresholds::MAX.into())?;
        check_number(Setting::OkAfter, ok_after.into(), 1, Thresholds::MAX.into())?;
        check_number(Setting::OnChangeRetries, self.on_change.retries.into(), 0, RETRIES_MAX)?;
        check_number(Setting::MetricsEndpoints, self.metrics_endpoints as u64, 0, SERIES_MAX)?;
        check_number(Setting::MinReplicas, self.min_replicas.into(), 0, MIN_REPLICAS_MAX)?;
        check_number(Setting::MaxBody, self.max_body as u64, 0, MAX_BODY_MAX)?;
        let warn_days = self.poll_access.cert_warn_days.into();
        check_number(Setting::CertWarnDays, warn_days, 0, CERT_WARN_DAYS_MAX)?;
        check_number(Setting::Weight, self.weight.into(), 0, Weight::MAX.into())
    }

    /// R13: a heartbeat must not outlast a lease. An instance that finds a node key gone may take its leases once
    /// the hold-off is over, which lasts as long as a lease; and a longer one adds nothing, because a
    /// dead owner's leases are free when they expire. Intervals keep their proportion.
    fn with_heartbeat_capped(mut self) -> Self {
        if self.heartbeat_ttl > self.lease_ttl {
            self.heartbeat_ttl = self.lease_ttl;
            self.heartbeat_interval = self.heartbeat_interval.min(self.lease_ttl / 3);
        }
        self
    }

    /// R16: with a TTL that short a dead instance's leases expire as soon, and a suspicion would gain nothing.
    fn with_suspicion_capped(mut self) -> Self {
        if self.lease_ttl.min(self.heartbeat_ttl) < self.suspect_after * 3 {
            self.suspect_after = Duration::ZERO;
        }
        self
    }

    /// A sign of life is given four times in this time, and read twenty times.
    fn check_suspicion(&self) -> Result<(), Problem> {
        match self.suspect_after {
            Duration::ZERO => Ok(()),
            value => check_duration(Setting::SuspectAfter, value, Self::SUSPECT_AFTER_MIN, HOUR),
        }
    }

    /// One renewal may time out, and the next must still be answered while the right is usable.
    fn check_rhythms(&self) -> Result<(), Problem> {
        let Self { lease_ttl, renew_interval, heartbeat_ttl, heartbeat_interval, .. } = *self;
        let store_timeout = self.store_timeout;
        let limit =
            |ttl| LeaseDuration::new(ttl).usable().saturating_sub(store_timeout.saturating_mul(2));
        if renew_interval >= limit(lease_ttl) {
            let limit = limit(lease_ttl);
            return Err(Problem::RenewTooSlow { renew_interval, store_timeout, lease_ttl, limit });
        }
        if heartbeat_interval >= limit(heartbeat_ttl) {
            let limit = limit(heartbeat_ttl);
            return Err(Problem::BeatTooSlow {
                heartbeat_interval,
                store_timeout,
                heartbeat_ttl,
                limit,
            });
        }
        Ok(())
    }

    /// A look for sessions must find no coordination key, and the other way round.
    fn check_prefixes(&self) -> Result<(), Problem> {
        let ours = format!("{}:", self.prefix);
        let mixed = match self.session_prefix.strip_prefix(&ours) {
            // Below our own keys there is room for sessions, but not inside a family.
            Some(rest) => {
                KEY_FAMILIES.iter().any(|it| it.starts_with(rest) || rest.starts_with(it))
            }
            None => ours.starts_with(&self.session_prefix),
        };
        if mixed {
            let (prefix, session_prefix) = (self.prefix.clone(), self.session_prefix.clone());
            return Err(Problem::PrefixesOverlap { prefix, session_prefix });
        }
        Ok(())
    }

    fn check_metrics(&self) -> Result<(), Problem> {
        if let Some(address) = self.metrics_listen.filter(|it| !it.ip().is_loopback()) {
            return Err(Problem::MetricsForAll { address });
        }
        if !web::are_hosts(&self.metrics_hosts) {
            return Err(Problem::MetricsHost);
        }
        let name = self.metrics_name.as_ref();
        if name.is_some_and(|it| it.is_empty() || it.len() > METRICS_NAME_BYTES_MAX) {
            return Err(Problem::MetricsName);
        }
        Ok(())
    }

    /// The label `daemon` of all metrics. Two processes can neither write one file nor share one directory and have
    /// files of the same name, so the file's name tells them apart, also after a restart.
    pub fn metrics_name(&self) -> String {
        let stem = || self.metrics_file.as_ref()?.file_stem().map(|it| it.to_string_lossy().into());
        self.metrics_name.clone().or_else(stem).unwrap_or_else(|| "leasehold".into())
    }

    fn check_host_name(&self) -> Result<(), Problem> {
        let name = &self.host_name;
        let illegal = |c: char| c.is_whitespace() || c.is_control() || c == '/';
        if name.is_empty() || name.len() > HOST_NAME_BYTES_MAX || name.chars().any(illegal) {
            return Err(Problem::HostName);
        }
        Ok(())
    }
}

fn check_duration(
    setting: Setting,
    value: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), Problem> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Problem::DurationOutOfRange { setting, value, min, max })
}

fn check_number(setting: Setting, value: u64, min: u64, max: u64) -> Result<(), Problem> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Problem::NumberOutOfRange { setting, value, min, max })
}

/// What a cluster places a key by: the part in its first braces, if there is any.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|it| it.0).filter(|it| !it.is_empty())
}

/// All keys of a fleet have to be on one shard of a cluster, because scripts change several at once.
fn tagged(prefix: &str) -> String {
    if hash_tag(prefix).is_some() { prefix.into() } else { format!("{{{prefix}}}") }
}

fn check_prefix(setting: Setting, prefix: &str) -> Result<(), Problem> {
    // The last five mean something in a SCAN pattern.
    let illegal = |c: char| c.is_whitespace() || c.is_control() || "*?[]\\".contains(c);
    if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || prefix.chars().any(illegal) {
        return Err(Problem::Prefix { setting });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config =
            Config { host_name: "vm1".into(), names: Names::OPTIONS, ..Config::default() };
        change(&mut config);
        config.checked().unwrap_err().to_string()
    }

    fn accepted(change: impl FnOnce(&mut Config)) {
        let mut config = Config { host_name: "vm1".into(), ..Config::default() };
        change(&mut config);
        if let Err(error) = config.checked() {
            panic!("refused: {error}");
        }
    }

    #[test]
    fn the_defaults_agree_with_each_other() {
        accepted(|_| ());
        assert_eq!(Config::default().store_timeout, ms(2_000));
    }

    #[test]
    fn the_usual_store_timeout_is_a_tenth_of_the_shortest_ttl_if_that_is_less_than_two_seconds() {
        assert_eq!(Config::usual_store_timeout(ms(30_000), ms(30_000)), ms(2_000));
        assert_eq!(Config::usual_store_timeout(ms(3_000), ms(30_000)), ms(300));
        assert_eq!(Config::usual_store_timeout(ms(30_000), ms(6_000)), ms(600));
    }

    #[test]
    fn short_terms_with_room_for_a_failure_are_accepted() {
        for (ttl, renew, timeout) in
            [(3_000, 1_000, 300), (500, 150, 50), (6_000, 2_000, 600), (3_600_000, 10, 10)]
        {
            accepted(|it| {
                (it.lease_ttl, it.renew_interval) = (ms(ttl), ms(renew));
                (it.heartbeat_ttl, it.heartbeat_interval) = (ms(ttl), ms(renew));
                it.store_timeout = ms(timeout);
            });
        }
    }

    #[test]
    fn a_renewal_that_may_not_fail_once_is_refused_naming_both_flags() {
        let error = refused(|it| it.renew_interval = ms(25_000));
        assert_eq!(
            error,
            "--renew-interval 25s leaves no room for one failed renewal within --lease-ttl 30s at \
             --store-timeout 2s: set --renew-interval under 25s, or lengthen --lease-ttl"
        );
        accepted(|it| it.renew_interval = ms(24_999));
        let error = refused(|it| it.store_timeout = ms(14_500));
        assert!(error.ends_with("shorten --store-timeout or lengthen --lease-ttl"), "{error}");
    }

    #[test]
    fn a_heartbeat_that_may_not_fail_once_is_refused_naming_both_flags() {
        let error = refused(|it| it.heartbeat_ttl = ms(10_000));
        assert!(error.contains("--heartbeat-interval 10s"), "{error}");
        assert!(error.contains("--heartbeat-ttl 10s"), "{error}");
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_name_and_never_overflows() {
        type Change = fn(&mut Config);
        let cases: [(&str, Change); 23] = [
            ("--lease-ttl 499ms", |it| it.lease_ttl = ms(499)),
            ("--lease-ttl 3600001ms", |it| it.lease_ttl = ms(3_600_001)),
            ("--lease-ttl ", |it| it.lease_ttl = Duration::MAX),
            ("--heartbeat-ttl ", |it| it.heartbeat_ttl = Duration::MAX),
            ("--heartbeat-ttl 0s", |it| it.heartbeat_ttl = Duration::ZERO),
            ("--renew-interval 0s", |it| it.renew_interval = Duration::ZERO),
            ("--renew-interval ", |it| it.renew_interval = Duration::MAX),
            ("--heartbeat-interval 9ms", |it| it.heartbeat_interval = ms(9)),
            ("--reconcile-interval 0s", |it| it.reconcile_interval = Duration::ZERO),
            ("--store-timeout 9ms", |it| it.store_timeout = ms(9)),
            ("--store-timeout ", |it| it.store_timeout = Duration::MAX),
            ("--interval 9ms", |it| it.interval = ms(9)),
            ("--interval ", |it| it.interval = Duration::MAX),
            ("--timeout 0s", |it| it.timeout = Duration::ZERO),
            ("--light-interval 0s", |it| it.light_interval = Duration::ZERO),
            ("--drain-timeout ", |it| it.drain_timeout = Duration::MAX),
            ("--workers 0", |it| it.workers = 0),
            ("--workers 4097", |it| it.workers = 4_097),
            ("--workers ", |it| it.workers = usize::MAX),
            ("--light-after 0", |it| it.light_after = 0),
            ("--max-body 16777217", |it| it.max_body = 16_777_217),
            ("--weight 1001", |it| it.weight = 1_001),
            ("--weight ", |it| it.weight = u32::MAX),
        ];
        for (start, change) in cases {
            let error = refused(change);
            assert!(error.starts_with(start), "{error}");
            assert!(error.contains("choose from"), "{error}");
        }
        accepted(|it| (it.weight, it.max_body, it.workers) = (0, 16_777_216, 4_096));
    }

    #[test]
    fn a_prefix_that_cannot_begin_a_key_is_refused() {
        let long = "x".repeat(65);
        for bad in ["", " ", "a b", "a\n", "a\u{7f}", "a\u{a0}", "a*", "a[b]", "a\\", &long] {
            let error = refused(|it| it.prefix = bad.into());
            assert!(error.starts_with("--prefix must be"), "{bad:?}: {error}");
            let error = refused(|it| it.session_prefix = bad.into());
            assert!(error.starts_with("--session-prefix must be"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn prefixes_that_mix_sessions_up_with_leases_are_refused_naming_both_flags() {
        for (prefix, sessions) in [
            ("poll", "poll:"),
            ("poll", "poll"),
            ("poll", "p"),
            ("poll", "poll:lease:"),
            ("poll", "poll:lease:x"),
            ("poll", "poll:l"),
            ("poll", "poll:node"),
            ("a:b", "a:"),
        ] {
            let error =
                refused(|it| (it.prefix, it.session_prefix) = (prefix.into(), sessions.into()));
            assert!(error.contains(&format!("--prefix {prefix:?}")), "{error}");
            assert!(error.contains(&format!("--session-prefix {sessions:?}")), "{error}");
        }
        for (prefix, sessions) in
            [("poll", "session:"), ("poll", "poll:session:"), ("poll", "polls:"), ("{poll}", "s")]
        {
            accepted(|it| (it.prefix, it.session_prefix) = (prefix.into(), sessions.into()));
        }
    }

    #[test]
    fn a_host_name_that_would_break_an_instance_id_is_refused() {
        for bad in ["", "a b", "a/b", "a\nb", &"x".repeat(65)] {
            let error = refused(|it| it.host_name = bad.into());
            assert!(error.starts_with("--host-name must be"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn metrics_are_for_this_host_only() {
        for address in ["0.0.0.0:9464", "10.0.0.1:9464", "[::]:9464"] {
            let error = refused(|it| it.metrics_listen = address.parse().ok());
            assert!(error.contains("--metrics-listen") && error.contains("loopback"), "{error}");
        }
        for address in ["127.0.0.1:9464", "127.1.2.3:1", "[::1]:9464"] {
            accepted(|it| it.metrics_listen = address.parse().ok());
        }
    }

    fn accepted_on(url: &str, change: impl FnOnce(&mut Config)) -> Config {
        let redis = RedisUrl::parse(url).unwrap();
        let mut config = Config { redis, host_name: "vm1".into(), ..Config::default() };
        change(&mut config);
        config.checked().unwrap().into()
    }

    #[test]
    fn on_a_cluster_all_keys_of_a_fleet_are_in_braces() {
        let config = accepted_on("redis+cluster://h", |_| ());
        assert_eq!((&*config.prefix, &*config.leader_prefix), ("{poll}", "{leader}"));
        assert_eq!(config.leader_heartbeat_prefix(), "{leader}:heartbeat:");
        let config = accepted_on("redis+cluster://h", |it| it.prefix = "a{b}c".into());
        assert_eq!(config.prefix, "a{b}c");
        assert_eq!(accepted_on("redis+sentinel://h/m", |_| ()).prefix, "poll");
        let error = refused(|it| {
            it.redis = RedisUrl::parse("redis+cluster://h").unwrap();
            it.leader_heartbeat_prefix = Some("beats:".into());
        });
        assert!(error.contains("the part in braces that \"{leader}\" has"), "{error}");
    }

    #[test]
    fn files_for_tls_need_a_url_with_tls_and_each_other() {
        let error = refused(|it| it.access.ca = Some("/ca".into()));
        assert!(
            error.starts_with("--redis-ca is for TLS, and --redis is a URL without"),
            "{error}"
        );
        let error = refused(|it| {
            it.redis = RedisUrl::parse("rediss://h").unwrap();
            it.access.cert = Some("/cert".into());
        });
        assert!(error.starts_with("--redis-cert and --redis-key belong together"), "{error}");
    }

    #[test]
    fn a_poll_command_without_a_program_is_refused() {
        assert!(refused(|it| it.poll_command = Some(vec![])).starts_with("--poll-command"));
    }

    #[test]
    fn a_password_in_the_url_and_another_in_a_file_contradict_each_other() {
        let error = refused(|it| {
            it.redis = RedisUrl::parse("redis://user:hunter2@h/0").unwrap();
            it.access.password = Some("/run/secret".into());
        });
        assert!(error.contains("--redis has a password"), "{error}");
        assert!(error.contains("--redis-password-file \"/run/secret\""), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
