//! How a process stands for a role, and runs a command under it.

use crate::cli::options::Opt;
use crate::cli::options::commands::{ELECTING, LEAD, ROLES, RUN, STAND};
use crate::config::setting::Setting;
use crate::config::value::{duration, number, switch};

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "lead",
        value: Some("ROLES"),
        default: "",
        help: "Also stand for these roles, separated by commas. Roles have the same timings as \
               leases.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::Lead, value),
    },
    Opt {
        name: "leader-prefix",
        value: Some("P"),
        default: "leader",
        help: "The prefix of all keys of roles.",
        commands: ROLES,
        set: |draft, value| draft.set(Setting::LeaderPrefix, value),
    },
    Opt {
        name: "election-interval",
        value: Some("DURATION"),
        default: "15s",
        help: "The longest time between two checks of a role by an instance that does not lead \
               it. A pushed change is noticed at once.",
        commands: ELECTING,
        set: |draft, value| draft.set(Setting::ElectionInterval, value),
    },
    Opt {
        name: "startup-jitter",
        value: Some("DURATION"),
        default: "0s",
        help: "Wait a random time, at most this long, before standing for a role for the first \
               time.",
        commands: STAND,
        set: |draft, value| draft.set(Setting::StartupJitter, value),
    },
    Opt {
        name: "priority",
        value: Some("N"),
        default: "0",
        help: "A leader gives way to an instance with a higher priority.",
        commands: ELECTING,
        set: |draft, value| draft.set(Setting::Priority, value),
    },
    Opt {
        name: "no-candidate",
        value: None,
        default: "off",
        help: "Never lead: only observe and log which instance leads.",
        commands: LEAD,
        set: |draft, value| draft.set(Setting::NoCandidate, value),
    },
    Opt {
        name: "restart",
        value: None,
        default: "off",
        help: "Start the command again one second after it ends by itself, and stay the leader.",
        commands: &["lead"],
        set: |draft, value| switch(value).map(|it| draft.restart = it),
    },
    Opt {
        name: "at-least-for",
        value: Some("DURATION"),
        default: "0s",
        help: "Keep the role this long from the start, even if the command ends sooner. A host \
               whose clock is late then does not run the command again.",
        commands: &["once"],
        set: |draft, value| duration(value).map(|it| draft.at_least_for = it),
    },
    Opt {
        name: "skip-code",
        value: Some("N"),
        default: "0",
        help: "The exit code when another host runs the command.",
        commands: &["once"],
        set: |draft, value| number(value).map(|it| draft.skip_code = it),
    },
];
