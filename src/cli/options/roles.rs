//! How a process stands for a role, and runs a command under it.

use crate::cli::options::Opt;
use crate::cli::options::groups::{ELECTING, LEAD, ROLES, RUN, STAND};
use crate::config::setting::Setting;
use crate::config::value::{duration, number, switch, text};

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
    Opt {
        name: "retry",
        value: Some("N"),
        default: "0",
        help: "If the command fails, or its host dies, another host runs it, at most N times. The \
               other hosts wait for that as long as the command runs. It then needs no \
               --at-least-for after a failure.",
        commands: &["once"],
        set: |draft, value| number(value).map(|it: u16| draft.retry = it.into()),
    },
    Opt {
        name: "catch-up",
        value: Some("DURATION"),
        default: "",
        help: "Run the command only if no run of ROLE that began within this time has succeeded. \
               For a second line of the crontab, every few minutes: it runs what was missed while \
               no host was up.",
        commands: &["once"],
        set: |draft, value| duration(value).map(|it| draft.catch_up = Some(it)),
    },
    Opt {
        name: "role",
        value: Some("ROLE"),
        default: "",
        help: "List the runs of this role's command: starts, ends with exit codes, and runs that \
               were skipped because another host led.",
        commands: &["history"],
        set: |draft, value| text(value).map(|it| draft.role = Some(it.into())),
    },
];
