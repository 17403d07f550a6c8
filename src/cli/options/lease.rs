//! Which keys, how long leases and heartbeats last, and how often they are renewed.

use crate::cli::options::Opt;
use crate::cli::options::groups::{ALL, POLLS, RUN, SESSIONS, STAND, TIMED};
use crate::config::setting::Setting;

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "prefix",
        value: Some("P"),
        default: "poll",
        help: "The prefix of all coordination keys.",
        commands: POLLS,
        set: |draft, value| draft.set(Setting::Prefix, value),
    },
    Opt {
        name: "session-prefix",
        value: Some("P"),
        default: "session:",
        help: "The prefix of the keys that hold the sessions.",
        commands: SESSIONS,
        set: |draft, value| draft.set(Setting::SessionPrefix, value),
    },
    Opt {
        name: "lease-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long a lease or a role lasts without a renewal. Must be the same on all \
               instances.",
        commands: TIMED,
        set: |draft, value| draft.set(Setting::LeaseTtl, value),
    },
    Opt {
        name: "renew-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often every held lease is renewed. With the default, a lease survives one \
               failed renewal.",
        commands: STAND,
        set: |draft, value| draft.set(Setting::RenewInterval, value),
    },
    Opt {
        name: "heartbeat-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long after its last heartbeat an instance counts as alive; at most the lease TTL.",
        commands: &["run", "doctor"],
        set: |draft, value| draft.set(Setting::HeartbeatTtl, value),
    },
    Opt {
        name: "heartbeat-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often this instance writes its heartbeat.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::HeartbeatInterval, value),
    },
    Opt {
        name: "suspect-after",
        value: Some("DURATION"),
        default: "3s",
        help: "After how long without a sign of life an instance is revoked, so that the others take its \
               leases over; 0 waits until they expire. Counts as 0 with a TTL below three times this.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::SuspectAfter, value),
    },
    Opt {
        name: "reconcile-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often to check for changes that were not pushed. The check is made at least \
               every second, so only values below 1s change anything.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::ReconcileInterval, value),
    },
    Opt {
        name: "store-timeout",
        value: Some("DURATION"),
        default: "2s, or a tenth of the shortest TTL if that is less",
        help: "The time limit of a whole connect to Redis, and of a whole call.",
        commands: ALL,
        set: |draft, value| draft.set(Setting::StoreTimeout, value),
    },
];
