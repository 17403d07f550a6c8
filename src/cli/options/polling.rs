//! How endpoints are polled.

use crate::cli::options::Opt;
use crate::cli::options::commands::{CHECKED, RUN};
use crate::cli::options::values::{duration, number, text, words};

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "workers",
        value: Some("N"),
        default: "256",
        help: "The most polls at a time. Threads start when a poll waits and end when idle. Slow \
               endpoints get at most half of them. Each poll needs 4 open files, with \
               --poll-command 8. run raises its own limit of open files as far as it may; doctor \
               says whether that is enough.",
        commands: CHECKED,
        set: |draft, value| number(value).map(|it| draft.config.workers = it),
    },
    Opt {
        name: "interval",
        value: Some("DURATION"),
        default: "5s",
        help: "The time from one poll of an endpoint to the next. A session's own intervalMs \
               takes precedence.",
        commands: &["run", "sessions"],
        set: |draft, value| duration(value).map(|it| draft.config.interval = it),
    },
    Opt {
        name: "timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long one poll may take. A session's own timeoutMs takes precedence.",
        commands: &["run", "sessions"],
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
        help: "The shortest interval of endpoints that keep failing. Each is polled at this \
               interval or at twice its own, whichever is longer; from its second light poll on, \
               at four times its own.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.light_interval = it),
    },
    Opt {
        name: "fail-after",
        value: Some("N"),
        default: "1",
        help: "After this many failures in a row an endpoint is failing, and the change is told. A \
               session's own failAfter takes precedence.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.thresholds.fail_after = it),
    },
    Opt {
        name: "ok-after",
        value: Some("N"),
        default: "1",
        help: "After this many successes in a row a failing endpoint is ok again, and the change is \
               told. A session's own okAfter takes precedence.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.thresholds.ok_after = it),
    },
    Opt {
        name: "poll-command",
        value: Some("CMD"),
        default: "",
        help: "Poll by running this program instead of the built-in poller. Arguments are split \
               at spaces, without a shell. The program gets the session's JSON on stdin, and \
               LEASEHOLD_ENDPOINT, LEASEHOLD_INSTANCE and LEASEHOLD_FENCE in its environment. Its \
               stdout is the body; exit code 0 is success. If it fails, the end of its stderr \
               becomes part of the result's error and is never logged.",
        commands: CHECKED,
        set: |draft, value| words(value).map(|it| draft.config.poll_command = Some(it)),
    },
    Opt {
        name: "on-change",
        value: Some("CMD"),
        default: "",
        help: "Run this program for each change of a verdict that a result of this instance caused. \
               Arguments are split at spaces, without a shell. The program gets the change as JSON \
               on stdin, and LEASEHOLD_ENDPOINT, LEASEHOLD_INSTANCE and LEASEHOLD_FENCE in its \
               environment. At most 4 run at a time, and 1,000 changes wait. It is ended when the \
               lease is lost or handed over.",
        commands: RUN,
        set: |draft, value| words(value).map(|it| draft.config.on_change.command = Some(it)),
    },
    Opt {
        name: "on-change-timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long one run of --on-change may take.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.on_change.timeout = it),
    },
    Opt {
        name: "on-change-retries",
        value: Some("N"),
        default: "3",
        help: "How often --on-change is run again when it fails: after 1s, 2s, 4s and so on, at most \
               30s.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.on_change.retries = it),
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
        help: "How many bytes of a response are read and kept.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.max_body = it),
    },
];
