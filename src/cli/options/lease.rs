//! Which keys, how long leases and heartbeats last, and how often they are renewed.

use crate::cli::options::Opt;
use crate::cli::options::commands::{ALL, POLLS, RUN, SESSIONS, STAND, TIMED};
use crate::cli::options::values::{duration, text};

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "prefix",
        value: Some("P"),
        default: "poll",
        help: "The prefix of all coordination keys.",
        commands: POLLS,
        set: |draft, value| text(value).map(|it| draft.config.prefix = it),
    },
    Opt {
        name: "session-prefix",
        value: Some("P"),
        default: "session:",
        help: "The prefix of the keys that hold the sessions.",
        commands: SESSIONS,
        set: |draft, value| text(value).map(|it| draft.config.session_prefix = it),
    },
    Opt {
        name: "lease-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long a lease or a role lasts without a renewal. Must be the same on all \
               instances.",
        commands: TIMED,
        set: |draft, value| duration(value).map(|it| draft.config.lease_ttl = it),
    },
    Opt {
        name: "renew-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often every held lease is renewed. With the default, a lease survives one \
               failed renewal.",
        commands: STAND,
        set: |draft, value| {
            draft.renew_given = true;
            duration(value).map(|it| draft.config.renew_interval = it)
        },
    },
    Opt {
        name: "heartbeat-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long after its last heartbeat an instance counts as alive; at most the lease TTL.",
        commands: &["run", "doctor"],
        set: |draft, value| {
            draft.heartbeat_given = true;
            duration(value).map(|it| draft.config.heartbeat_ttl = it)
        },
    },
    Opt {
        name: "heartbeat-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often this instance writes its heartbeat.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.heartbeat_interval = it),
    },
    Opt {
        name: "reconcile-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often to check for changes that were not pushed. The check is made at least \
               every second, so only values below 1s change anything.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.reconcile_interval = it),
    },
    Opt {
        name: "store-timeout",
        value: Some("DURATION"),
        default: "2s, or a tenth of the shortest TTL if that is less",
        help: "The time limit of a whole connect to Redis, and of a whole call.",
        commands: ALL,
        set: |draft, value| duration(value).map(|it| draft.store_timeout = Some(it)),
    },
];
