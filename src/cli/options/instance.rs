//! What one instance is, and how it starts and stops.

use crate::cli::options::Opt;
use crate::cli::options::groups::{KEPT, RUN, STAND, TIMED, WAITING};
use crate::config::setting::Setting;

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "weight",
        value: Some("N"),
        default: "1",
        help: "This instance's share relative to the others'; 0 takes none.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::Weight, value),
    },
    Opt {
        name: "host-name",
        value: Some("NAME"),
        default: "the host's",
        help: "The first part of the instance id. The id is unique, whatever the name.",
        commands: STAND,
        set: |draft, value| draft.set(Setting::HostName, value),
    },
    Opt {
        name: "drain-timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "run: how long a stop or a hand-over waits for a running poll. lead, once: how long a \
               stop waits for the command before TERM; KILL follows after this time or a fifth of \
               the usable TTL, whichever is shorter. The same limit holds when the role is given \
               up or lost.",
        commands: TIMED,
        set: |draft, value| draft.set(Setting::DrainTimeout, value),
    },
    Opt {
        name: "min-replicas",
        value: Some("N"),
        default: "0",
        help: "How many replicas must acknowledge each grant and renewal before it counts. If N \
               is the number of replicas that could be promoted, a failover cannot forget the \
               owner of a lease.",
        commands: WAITING,
        set: |draft, value| draft.set(Setting::MinReplicas, value),
    },
    Opt {
        name: "new-fleet",
        value: None,
        default: "off",
        help: "Declares that no other instance runs on this Redis: if Redis has no record of an \
               earlier fleet, grant leases without a hold-off.",
        commands: STAND,
        set: |draft, value| draft.set(Setting::NewFleet, value),
    },
    Opt {
        name: "runtime-dir",
        value: Some("DIR"),
        default: "$RUNTIME_DIRECTORY",
        help: "The directory in which the process keeps its instance id.",
        commands: KEPT,
        set: |draft, value| draft.set(Setting::RuntimeDir, value),
    },
];
