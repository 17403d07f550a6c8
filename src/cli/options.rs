//! Which commands and options are there? One table, and everything else is read off it.
//!
//! Parsing, `--help` and the names of the environment variables all come from here. An option's
//! meaning is its `set`; whether the values agree with each other is `leasehold::config`'s business.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use leasehold::config::{
    Config, DurationError, LogRenewals, RedisUrl, RedisUrlError, parse_duration,
};

/// A command, as `--help` tells of it.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) about: &'static str,
    /// Hidden commands are started by Leasehold itself: not listed, and deaf to the environment.
    pub(crate) hidden: bool,
}

/// An option: `--name VALUE` and `LEASEHOLD_NAME`.
pub(crate) struct Opt {
    pub(crate) name: &'static str,
    /// What to call the value; `None` for a switch.
    pub(crate) value: Option<&'static str>,
    /// What holds when it is not given: a value, words, or nothing to tell.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    pub(crate) commands: &'static [&'static str],
    pub(crate) set: fn(&mut Draft, &OsStr) -> Result<(), ValueError>,
}

/// What the options of one command line add up to, before it is checked.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) config: Config,
    /// Its default depends on the TTLs.
    pub(crate) store_timeout: Option<Duration>,
    pub(crate) instance: Option<String>,
    pub(crate) force: bool,
    pub(crate) grace: Option<Duration>,
    pub(crate) orders: Option<RawFd>,
    pub(crate) report: Option<RawFd>,
}

impl Opt {
    /// `LEASEHOLD_LEASE_TTL` for `lease-ttl`.
    pub(crate) fn variable(&self) -> String {
        format!("LEASEHOLD_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    pub(crate) fn belongs_to(&self, command: &Spec) -> bool {
        self.commands.contains(&command.name)
    }
}

pub(crate) static COMMANDS: &[Spec] = &[
    Spec {
        name: "run",
        usage: "leasehold run [OPTIONS]",
        summary: "one instance, until SIGTERM or SIGINT",
        about: "Runs one instance until SIGTERM or SIGINT. It finds the others through Redis, takes \
                its share of the stored sessions, polls them, and gives everything back when it \
                stops. Started while Redis is away, it waits for it.",
        hidden: false,
    },
    Spec {
        name: "release",
        usage: "leasehold release (--instance ID | --runtime-dir DIR) [OPTIONS]",
        summary: "give back the leases of an instance that is certainly dead",
        about: "Gives back the leases of an instance that is certainly dead, so that the others need \
                not wait for them to expire. Made for systemd's ExecStopPost. An instance that still \
                runs would go on polling for a moment after its leases are gone.",
        hidden: false,
    },
    Spec {
        name: "guardian",
        usage: "leasehold guardian --grace-ms N -- PROGRAM [ARGUMENTS]",
        summary: "run a program that must not outlive this one",
        about: "Runs PROGRAM in its own process group and ends the group when the daemon that \
                started the guardian is gone. Started by Leasehold itself.",
        hidden: true,
    },
    Spec {
        name: "warden",
        usage: "leasehold warden --grace-ms N --orders-fd N --report-fd N -- PROGRAM…",
        summary: "run a program that must end at a moment",
        about: "Runs PROGRAM and ends its process group at the moment that it was last told, or when \
                nobody is left to tell. Started by Leasehold itself.",
        hidden: true,
    },
    Spec {
        name: "ward",
        usage: "leasehold ward --orders-fd N --report-fd N -- PROGRAM [ARGUMENTS]",
        summary: "become a program when told to",
        about: "Becomes PROGRAM at the word of its warden, and dies with it. Started by the warden.",
        hidden: true,
    },
];

const RUN: &[&str] = &["run"];
const RELEASE: &[&str] = &["release"];
const BOTH: &[&str] = &["run", "release"];

pub(crate) static OPTIONS: &[Opt] = &[
    Opt {
        name: "instance",
        value: Some("ID"),
        default: "",
        help: "The instance whose leases to give back.",
        commands: RELEASE,
        set: |draft, value| text(value).map(|it| draft.instance = Some(it)),
    },
    Opt {
        name: "force",
        value: None,
        default: "off",
        help: "With --instance: do it even if the instance still has a heartbeat. Only for one that \
               is certainly dead.",
        commands: RELEASE,
        set: |draft, value| switch(value).map(|it| draft.force = it),
    },
    Opt {
        name: "redis",
        value: Some("URL"),
        default: "redis://127.0.0.1:6379/0",
        help: "The server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or unix:///PATH[?db=DB]. \
               rediss://, redis+sentinel:// and redis+cluster:// are not in this build yet. \
               Percent-encode special characters in a password. A command line can be read by \
               everybody on the host: better put the password into a file.",
        commands: BOTH,
        set: |draft, value| {
            let url = value.to_str().ok_or(ValueError::NotText)?;
            RedisUrl::parse(url).map(|it| draft.config.redis = it).map_err(ValueError::Redis)
        },
    },
    Opt {
        name: "redis-password-file",
        value: Some("PATH"),
        default: "",
        help: "A file whose one line is the password.",
        commands: BOTH,
        set: |draft, value| path(value).map(|it| draft.config.redis_password_file = Some(it)),
    },
    Opt {
        name: "prefix",
        value: Some("P"),
        default: "poll",
        help: "How the names of all coordination keys begin.",
        commands: BOTH,
        set: |draft, value| text(value).map(|it| draft.config.prefix = it),
    },
    Opt {
        name: "session-prefix",
        value: Some("P"),
        default: "session:",
        help: "How the names of the keys that hold the sessions begin.",
        commands: RUN,
        set: |draft, value| text(value).map(|it| draft.config.session_prefix = it),
    },
    Opt {
        name: "lease-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long a lease lasts without being renewed. The same on all instances.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.lease_ttl = it),
    },
    Opt {
        name: "renew-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often every held lease is renewed. One renewal may fail within the lease's TTL.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.renew_interval = it),
    },
    Opt {
        name: "heartbeat-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long after its last heartbeat an instance counts as alive; at most the lease TTL.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.heartbeat_ttl = it),
    },
    Opt {
        name: "heartbeat-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often this instance says that it is alive.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.heartbeat_interval = it),
    },
    Opt {
        name: "reconcile-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often to look for what was not heard of; once a second at the least.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.reconcile_interval = it),
    },
    Opt {
        name: "store-timeout",
        value: Some("DURATION"),
        default: "2s, or a tenth of the shortest TTL if that is less",
        help: "For a whole connect and for a whole call to Redis.",
        commands: BOTH,
        set: |draft, value| duration(value).map(|it| draft.store_timeout = Some(it)),
    },
    Opt {
        name: "workers",
        value: Some("N"),
        default: "16",
        help: "Poller threads: this many polls at a time.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.workers = it),
    },
    Opt {
        name: "interval",
        value: Some("DURATION"),
        default: "5s",
        help: "From one poll of an endpoint to the next. A session's own intervalMs wins.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.interval = it),
    },
    Opt {
        name: "timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long one poll may take. A session's own timeoutMs wins.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.timeout = it),
    },
    Opt {
        name: "light-after",
        value: Some("N"),
        default: "5",
        help: "After this many failures in a row an endpoint is polled at the light interval, until \
               a poll succeeds.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.light_after = it),
    },
    Opt {
        name: "light-interval",
        value: Some("DURATION"),
        default: "30s",
        help: "The interval for endpoints that keep failing.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.light_interval = it),
    },
    Opt {
        name: "poll-command",
        value: Some("CMD"),
        default: "",
        help: "Poll by running this program instead of the built-in poller. Arguments are split at \
               spaces, without a shell. It gets the session's JSON on stdin and LEASEHOLD_ENDPOINT, \
               LEASEHOLD_INSTANCE and LEASEHOLD_FENCE in its environment; its stdout is the body, \
               exit code 0 is success.",
        commands: RUN,
        set: |draft, value| {
            let words = text(value)?;
            let words = words.split(' ').filter(|it| !it.is_empty()).map(String::from);
            draft.config.poll_command = Some(words.collect());
            Ok(())
        },
    },
    Opt {
        name: "allow-targets",
        value: Some("CIDRS"),
        default: "all",
        help: "Networks that may be polled, separated by commas. Checked on the resolved address at \
               connect time.",
        commands: RUN,
        set: |draft, value| text(value).map(|it| draft.config.allow_targets = it),
    },
    Opt {
        name: "deny-targets",
        value: Some("CIDRS"),
        default: "169.254.0.0/16,fe80::/10",
        help: "Networks that may not be polled, even if allowed.",
        commands: RUN,
        set: |draft, value| text(value).map(|it| draft.config.deny_targets = it),
    },
    Opt {
        name: "max-body",
        value: Some("BYTES"),
        default: "65536",
        help: "How much of a response is read and kept.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.max_body = it),
    },
    Opt {
        name: "weight",
        value: Some("N"),
        default: "1",
        help: "This instance's share relative to the others'; 0 takes none.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.weight = it),
    },
    Opt {
        name: "host-name",
        value: Some("NAME"),
        default: "the host's",
        help: "First part of the instance id; the id is unique whatever it is.",
        commands: RUN,
        set: |draft, value| text(value).map(|it| draft.config.host_name = it),
    },
    Opt {
        name: "drain-timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long a stop or a hand-over waits for a poll that is still running.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.drain_timeout = it),
    },
    Opt {
        name: "min-replicas",
        value: Some("N"),
        default: "0",
        help: "Replicas that must acknowledge each grant and renewal. Only 0 in this build yet.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.min_replicas = it),
    },
    Opt {
        name: "new-fleet",
        value: None,
        default: "off",
        help: "Nobody else is running on this Redis: do not hold off when it has no record of an \
               earlier fleet.",
        commands: RUN,
        set: |draft, value| switch(value).map(|it| draft.config.new_fleet = it),
    },
    Opt {
        name: "runtime-dir",
        value: Some("DIR"),
        default: "$RUNTIME_DIRECTORY",
        help: "Where run keeps its instance id, and release finds it.",
        commands: BOTH,
        set: |draft, value| path(value).map(|it| draft.config.runtime_dir = Some(it)),
    },
    Opt {
        name: "metrics-file",
        value: Some("PATH"),
        default: "",
        help: "Metrics in the Prometheus text format. Not in this build yet.",
        commands: RUN,
        set: |draft, value| path(value).map(|it| draft.config.metrics_file = Some(it)),
    },
    Opt {
        name: "log-level",
        value: Some("LEVEL"),
        default: "info",
        help: "What to log on stderr: off, error, warn, info, debug or trace.",
        commands: BOTH,
        set: |draft, value| {
            let level = text(value)?;
            let known = log::LevelFilter::from_str(&level);
            let choices = "off, error, warn, info, debug or trace";
            draft.config.log_level =
                known.map_err(|_| ValueError::Choice { shown: showable(&level), choices })?;
            Ok(())
        },
    },
    Opt {
        name: "log-renewals",
        value: Some("HOW"),
        default: "auto",
        help: "Log each renewal, or a summary of each round; auto logs each while at most 100 leases \
               are held. One of auto, each or summary.",
        commands: RUN,
        set: |draft, value| {
            let how = text(value)?;
            draft.config.log_renewals = match how.as_str() {
                "auto" => LogRenewals::Auto,
                "each" => LogRenewals::Each,
                "summary" => LogRenewals::Summary,
                _ => {
                    let choices = "auto, each or summary";
                    return Err(ValueError::Choice { shown: showable(&how), choices });
                }
            };
            Ok(())
        },
    },
    Opt {
        name: "grace-ms",
        value: Some("N"),
        default: "",
        help: "Milliseconds between TERM and KILL.",
        commands: &["guardian", "warden"],
        set: |draft, value| {
            number(value).map(|it| draft.grace = Some(Duration::from_millis(u32::into(it))))
        },
    },
    Opt {
        name: "orders-fd",
        value: Some("N"),
        default: "",
        help: "The descriptor to be told through.",
        commands: &["warden", "ward"],
        set: |draft, value| number(value).map(|it| draft.orders = Some(it)),
    },
    Opt {
        name: "report-fd",
        value: Some("N"),
        default: "",
        help: "The descriptor to report through.",
        commands: &["warden", "ward"],
        set: |draft, value| number(value).map(|it| draft.report = Some(it)),
    },
];

/// Why a value does not fit its option. What was given is kept only where it cannot be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    NotText,
    Empty,
    Duration { shown: Option<String>, why: DurationError },
    Number { shown: Option<String> },
    Choice { shown: Option<String>, choices: &'static str },
    Redis(RedisUrlError),
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Duration { shown: Some(shown), .. }
        | Self::Number { shown: Some(shown) }
        | Self::Choice { shown: Some(shown), .. } = self
        {
            write!(f, "{shown} ")?;
        }
        match self {
            Self::NotText => write!(f, "is not valid UTF-8"),
            Self::Empty => write!(f, "is empty: give it a value, or leave it out"),
            Self::Duration { why, .. } => write!(f, "{why}"),
            Self::Number { .. } => {
                write!(f, "is no whole number that fits: write digits, such as 16")
            }
            Self::Choice { choices, .. } => write!(f, "is none of {choices}"),
            Self::Redis(why) => write!(f, "{why}"),
        }
    }
}

/// The text in quotes, if it can be shown: a URL that strayed here may have a password in it.
pub(crate) fn showable(text: &str) -> Option<String> {
    let harmless = |c: char| c.is_ascii_graphic() && c != '@' && c != ':' || c == ' ';
    (text.len() <= 40 && text.chars().all(harmless)).then(|| format!("{text:?}"))
}

fn text(value: &OsStr) -> Result<String, ValueError> {
    value.to_str().map(String::from).ok_or(ValueError::NotText)
}

fn path(value: &OsStr) -> Result<PathBuf, ValueError> {
    if value.is_empty() { Err(ValueError::Empty) } else { Ok(value.into()) }
}

fn duration(value: &OsStr) -> Result<Duration, ValueError> {
    let value = text(value)?;
    parse_duration(&value).map_err(|why| ValueError::Duration { shown: showable(&value), why })
}

fn number<T: FromStr>(value: &OsStr) -> Result<T, ValueError> {
    let value = text(value)?;
    // FromStr would take a sign, too.
    let digits = value.bytes().all(|c| c.is_ascii_digit());
    let parsed = value.parse().ok().filter(|_| digits);
    parsed.ok_or_else(|| ValueError::Number { shown: showable(&value) })
}

fn switch(value: &OsStr) -> Result<bool, ValueError> {
    let value = text(value)?;
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" | "" => Ok(false),
        _ => Err(ValueError::Choice { shown: showable(&value), choices: "true or false" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_that_help_shows_are_the_defaults() {
        for opt in OPTIONS {
            let worded = ["store-timeout", "host-name", "runtime-dir"].contains(&opt.name);
            if opt.default.is_empty() || worded {
                continue;
            }
            let mut draft = Draft::default();
            (opt.set)(&mut draft, OsStr::new(opt.default)).unwrap();
            assert_eq!(draft.config, Config::default(), "--{}", opt.name);
            assert!(!draft.force, "--{}", opt.name);
        }
    }

    #[test]
    fn every_option_has_one_name_and_belongs_to_a_command() {
        for (i, opt) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..i].iter().all(|it| it.name != opt.name), "--{} twice", opt.name);
            assert!(COMMANDS.iter().any(|it| opt.belongs_to(it)), "--{}", opt.name);
        }
    }

    #[test]
    fn a_switch_is_said_in_several_ways_and_in_no_other() {
        for yes in ["1", "true", "yes", "on", "TRUE"] {
            assert_eq!(switch(OsStr::new(yes)), Ok(true), "{yes}");
        }
        for no in ["0", "false", "no", "off", "", "Off"] {
            assert_eq!(switch(OsStr::new(no)), Ok(false), "{no}");
        }
        for bad in ["2", "maybe", "y", " "] {
            assert!(switch(OsStr::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_is_digits_that_fit() {
        assert_eq!(number::<u32>(OsStr::new("16")), Ok(16));
        for bad in ["", "-1", "+1", "1.0", "1e3", "0x10", " 1", "NaN", "4294967296", "١"] {
            assert!(number::<u32>(OsStr::new(bad)).is_err(), "{bad}");
        }
    }
}
