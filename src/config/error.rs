//! Why are these settings refused? One sentence each, by the names under which they were chosen.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::config::access::AccessError;
use crate::config::duration::show_duration;
use crate::config::setting::{Names, Setting};
use crate::config::value::ValueError;
use crate::config::{HOST_NAME_BYTES_MAX, METRICS_NAME_BYTES_MAX, MS_10, PREFIX_BYTES_MAX};

/// A setting, or two together, that cannot work.
///
/// Its sentence calls a setting by the name under which it was chosen: the method of a builder, the variable that
/// `from_env` has read, the option of the command line, or else the field of [`Config`](crate::Config).
///
/// ```
/// use std::time::Duration;
/// use leasehold::LeaseManager;
///
/// let error = LeaseManager::builder().ttl(Duration::from_millis(1)).start().unwrap_err();
/// assert_eq!(error.to_string(), "ttl 1ms is out of range: choose from 500ms to 1h");
/// ```
#[derive(Debug)]
pub struct ConfigError {
    problem: Problem,
    names: Names,
}

impl ConfigError {
    pub(crate) fn new(problem: impl Into<Problem>, names: Names) -> Self {
        Self { problem: problem.into(), names }
    }
}

/// What cannot work.
#[derive(Debug)]
pub(crate) enum Problem {
    /// A text that is no value of this setting.
    Value { setting: Setting, why: ValueError },
    /// No way into the store.
    Access(AccessError),
    /// A duration that is too short or too long.
    DurationOutOfRange { setting: Setting, value: Duration, min: Duration, max: Duration },
    /// A number that is too small or too large.
    NumberOutOfRange { setting: Setting, value: u64, min: u64, max: u64 },
    /// No room for one failed renewal.
    RenewTooSlow {
        renew_interval: Duration,
        store_timeout: Duration,
        lease_ttl: Duration,
        limit: Duration,
    },
    /// No room for one failed heartbeat.
    BeatTooSlow {
        heartbeat_interval: Duration,
        store_timeout: Duration,
        heartbeat_ttl: Duration,
        limit: Duration,
    },
    /// A prefix that cannot begin a key.
    Prefix { setting: Setting },
    /// Session keys and coordination keys could be taken for each other.
    PrefixesOverlap { prefix: String, session_prefix: String },
    /// The keys of leaders and those of pollers would be the same.
    PrefixesEqual { prefix: String },
    /// Keys that one script changes would be on two shards of a cluster.
    PrefixesApart { prefix: String, leader_prefix: String },
    /// A host name that cannot be part of an instance id.
    HostName,
    /// A poll command without a program.
    PollCommandEmpty,
    /// What runs at a change, without a program.
    OnChangeEmpty,
    /// Metrics that others could read.
    MetricsForAll { address: SocketAddr },
    /// A name that no Host header can have.
    MetricsHost,
    /// A page that others could read, and nobody said so.
    WebForAll { address: SocketAddr },
    /// A name that no Host header can have.
    WebHost,
    /// A label that is empty or too long.
    MetricsName,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.told(self.names))
    }
}

impl Problem {
    /// A sentence that calls the settings by `names`.
    fn told(&self, names: Names) -> String {
        let name = |setting| names.of(setting);
        match self {
            Self::Value { setting, why } => format!("{} {why}", name(*setting)),
            Self::Access(error) => error.told(names),
            Self::DurationOutOfRange { setting, value, min, max } => {
                out_of_range(names, *setting, [*value, *min, *max].map(show_duration))
            }
            Self::NumberOutOfRange { setting, value, min, max } => {
                out_of_range(names, *setting, [value, min, max].map(u64::to_string))
            }
            Self::RenewTooSlow { renew_interval, store_timeout, lease_ttl, limit } => {
                let settings = [Setting::RenewInterval, Setting::LeaseTtl];
                let values = [*renew_interval, *lease_ttl, *store_timeout, *limit];
                too_slow(names, settings, "renewal", values)
            }
            Self::BeatTooSlow { heartbeat_interval, store_timeout, heartbeat_ttl, limit } => {
                let settings = [Setting::HeartbeatInterval, Setting::HeartbeatTtl];
                let values = [*heartbeat_interval, *heartbeat_ttl, *store_timeout, *limit];
                too_slow(names, settings, "heartbeat", values)
            }
            Self::Prefix { setting } => {
                let setting = name(*setting);
                format!(
                    "{setting} must be 1 to {PREFIX_BYTES_MAX} bytes without spaces, control \
                     characters or any of * ? [ ] \\"
                )
            }
            Self::PrefixesOverlap { prefix, session_prefix } => {
                prefixes_overlap(names, prefix, session_prefix)
            }
            Self::PrefixesEqual { prefix } => prefixes_equal(names, prefix),
            Self::PrefixesApart { prefix, leader_prefix } => {
                prefixes_apart(names, prefix, leader_prefix)
            }
            Self::HostName => {
                let setting = name(Setting::HostName);
                format!(
                    "{setting} must be 1 to {HOST_NAME_BYTES_MAX} bytes without spaces, control \
                     characters or /: it becomes part of the instance id"
                )
            }
            Self::MetricsForAll { address } => {
                let setting = name(Setting::MetricsListen);
                format!(
                    "{setting} {address} is no loopback address: use 127.0.0.1 or [::1], and let a \
                     proxy or node_exporter show them to others"
                )
            }
            Self::MetricsHost => no_hosts(names, Setting::MetricsHosts),
            Self::WebForAll { address } => {
                let remote = name(Setting::WebRemote);
                format!(
                    "{address} is no loopback address, so other hosts could read the page: use \
                     127.0.0.1 or [::1], or say {remote}"
                )
            }
            Self::WebHost => no_hosts(names, Setting::WebHosts),
            Self::MetricsName => {
                let setting = name(Setting::MetricsName);
                format!("{setting} must be 1 to {METRICS_NAME_BYTES_MAX} bytes")
            }
            Self::OnChangeEmpty => no_program(names, Setting::OnChange),
            Self::PollCommandEmpty => no_program(names, Setting::PollCommand),
        }
    }
}

fn out_of_range(names: Names, setting: Setting, [value, min, max]: [String; 3]) -> String {
    format!("{} {value} is out of range: choose from {min} to {max}", names.of(setting))
}

fn no_program(names: Names, setting: Setting) -> String {
    format!("{} names no program: give one, or leave the option out", names.of(setting))
}

fn no_hosts(names: Names, setting: Setting) -> String {
    let setting = names.of(setting);
    format!(
        "{setting} has something that is no host: write names or addresses without spaces or slashes, \
         separated by commas"
    )
}

fn prefixes_overlap(names: Names, prefix: &str, session_prefix: &str) -> String {
    let (sessions, ours) = (names.of(Setting::SessionPrefix), names.of(Setting::Prefix));
    format!(
        "{sessions} {session_prefix:?} and {ours} {prefix:?} mix sessions up with the keys \
         {prefix}:lease:… and their like: choose a session prefix such as session: or \
         {prefix}:session:"
    )
}

fn prefixes_equal(names: Names, prefix: &str) -> String {
    let (ours, leaders) = (names.of(Setting::Prefix), names.of(Setting::LeaderPrefix));
    format!("{ours} and {leaders} are both {prefix}: leaders and pollers need keys of their own")
}

fn prefixes_apart(names: Names, prefix: &str, leader_prefix: &str) -> String {
    let heartbeats = names.of(Setting::LeaderHeartbeatPrefix);
    format!(
        "on a cluster the keys of a role must be on one shard: give {heartbeats} {prefix:?} the part \
         in braces that {leader_prefix:?} has"
    )
}

fn too_slow(names: Names, settings: [Setting; 2], what: &str, values: [Duration; 4]) -> String {
    let [interval_name, ttl_name] = settings.map(|it| names.of(it));
    let timeout_name = names.of(Setting::StoreTimeout);
    let [interval, ttl, store_timeout, limit] = values.map(show_duration);
    let way_out = if values[3] <= MS_10 {
        format!("shorten {timeout_name} or lengthen {ttl_name}")
    } else {
        format!("set {interval_name} under {limit}, or lengthen {ttl_name}")
    };
    format!(
        "{interval_name} {interval} leaves no room for one failed {what} within {ttl_name} {ttl} at \
         {timeout_name} {store_timeout}: {way_out}"
    )
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Access(error) => error.source(),
            Problem::Value { why, .. } => Some(why),
            _ => None,
        }
    }
}
