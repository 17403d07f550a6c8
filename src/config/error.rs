//! Why are these settings refused? One sentence each, in the words of the flags.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::config::access::AccessError;
use crate::config::duration::show_duration;
use crate::config::{HOST_NAME_BYTES_MAX, METRICS_NAME_BYTES_MAX, MS_10, PREFIX_BYTES_MAX};

/// A setting, or two together, that cannot work.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields carry the values of the flags that the message names")]
pub enum ConfigError {
    /// No way into the store.
    Access(AccessError),
    /// A duration that is too short or too long.
    DurationOutOfRange { flag: &'static str, value: Duration, min: Duration, max: Duration },
    /// A number that is too small or too large.
    NumberOutOfRange { flag: &'static str, value: u64, min: u64, max: u64 },
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
    Prefix { flag: &'static str },
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
        match self {
            Self::Access(error) => error.fmt(f),
            Self::DurationOutOfRange { flag, value, min, max } => {
                let [value, min, max] = [value, min, max].map(|it| show_duration(*it));
                write!(f, "{flag} {value} is out of range: choose from {min} to {max}")
            }
            Self::NumberOutOfRange { flag, value, min, max } => {
                write!(f, "{flag} {value} is out of range: choose from {min} to {max}")
            }
            Self::RenewTooSlow { renew_interval, store_timeout, lease_ttl, limit } => {
                let flags = ["--renew-interval", "--lease-ttl", "renewal"];
                too_slow(f, flags, [*renew_interval, *lease_ttl, *store_timeout, *limit])
            }
            Self::BeatTooSlow { heartbeat_interval, store_timeout, heartbeat_ttl, limit } => {
                let flags = ["--heartbeat-interval", "--heartbeat-ttl", "heartbeat"];
                too_slow(f, flags, [*heartbeat_interval, *heartbeat_ttl, *store_timeout, *limit])
            }
            Self::Prefix { flag } => {
                write!(f, "{flag} must be 1 to {PREFIX_BYTES_MAX} bytes without spaces, control ")?;
                write!(f, "characters or any of * ? [ ] \\")
            }
            Self::PrefixesOverlap { prefix, session_prefix } => {
                write!(f, "--session-prefix {session_prefix:?} and --prefix {prefix:?} mix ")?;
                write!(f, "sessions up with the keys {prefix}:lease:… and their like: choose a ")?;
                write!(f, "session prefix such as session: or {prefix}:session:")
            }
            Self::PrefixesEqual { prefix } => {
                write!(f, "--prefix and --leader-prefix are both {prefix}: ")?;
                write!(f, "leaders and pollers need keys of their own")
            }
            Self::PrefixesApart { prefix, leader_prefix } => {
                write!(f, "on a cluster the keys of a role must be on one shard: give ")?;
                write!(f, "--leader-heartbeat-prefix {prefix:?} the part in braces that ")?;
                write!(f, "{leader_prefix:?} has")
            }
            Self::HostName => {
                write!(f, "--host-name must be 1 to {HOST_NAME_BYTES_MAX} bytes without spaces, ")?;
                write!(f, "control characters or /: it becomes part of the instance id")
            }
            Self::MetricsForAll { address } => {
                write!(f, "--metrics-listen {address} is no loopback address: use 127.0.0.1 or ")?;
                write!(f, "[::1], and let a proxy or node_exporter show them to others")
            }
            Self::MetricsHost => {
                write!(
                    f,
                    "--metrics-hosts has something that is no host: write names or addresses "
                )?;
                write!(f, "without spaces or slashes, separated by commas")
            }
            Self::WebForAll { address } => {
                write!(
                    f,
                    "{address} is no loopback address, so other hosts could read the page: "
                )?;
                write!(f, "use 127.0.0.1 or [::1], or say --web-remote")
            }
            Self::WebHost => {
                write!(f, "--web-hosts has something that is no host: write names or addresses ")?;
                write!(f, "without spaces or slashes, separated by commas")
            }
            Self::MetricsName => {
                write!(f, "--metrics-name must be 1 to {METRICS_NAME_BYTES_MAX} bytes")
            }
            Self::OnChangeEmpty => {
                write!(f, "--on-change names no program: give one, or leave the option out")
            }
            Self::PollCommandEmpty => {
                write!(f, "--poll-command names no program: give one, or leave the option out")
            }
        }
    }
}

fn too_slow(f: &mut fmt::Formatter<'_>, words: [&str; 3], values: [Duration; 4]) -> fmt::Result {
    let [interval_flag, ttl_flag, what] = words;
    let [interval, ttl, store_timeout, limit] = values.map(show_duration);
    write!(
        f,
        "{interval_flag} {interval} leaves no room for one failed {what} within {ttl_flag} "
    )?;
    write!(f, "{ttl} at --store-timeout {store_timeout}: ")?;
    if values[3] <= MS_10 {
        return write!(f, "shorten --store-timeout or lengthen {ttl_flag}");
    }
    write!(f, "set {interval_flag} under {limit}, or lengthen {ttl_flag}")
}

impl From<AccessError> for ConfigError {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Access(error) => error.source(),
            _ => None,
        }
    }
}
