//! How endpoints are polled.

use crate::cli::options::Opt;
use crate::cli::options::groups::{CHECKED, RUN};
use crate::config::setting::Setting;

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
        set: |draft, value| draft.set(Setting::Workers, value),
    },
    Opt {
        name: "interval",
        value: Some("DURATION"),
        default: "5s",
        help: "The time from one poll of an endpoint to the next. A session's own intervalMs \
               takes precedence.",
        commands: &["run", "sessions"],
        set: |draft, value| draft.set(Setting::Interval, value),
    },
    Opt {
        name: "timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long one poll may take. A session's own timeoutMs takes precedence.",
        commands: &["run", "sessions"],
        set: |draft, value| draft.set(Setting::Timeout, value),
    },
    Opt {
        name: "light-after",
        value: Some("N"),
        default: "5",
        help: "After this many failures in a row an endpoint is polled at the light interval, until \
               a poll succeeds.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::LightAfter, value),
    },
    Opt {
        name: "light-interval",
        value: Some("DURATION"),
        default: "30s",
        help: "The shortest interval of endpoints that keep failing. Each is polled at this \
               interval or at twice its own, whichever is longer; from its second light poll on, \
               at four times its own.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::LightInterval, value),
    },
    Opt {
        name: "fail-after",
        value: Some("N"),
        default: "1",
        help: "After this many failures in a row an endpoint is failing, and the change is told. A \
               session's own failAfter takes precedence.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::FailAfter, value),
    },
    Opt {
        name: "ok-after",
        value: Some("N"),
        default: "1",
        help: "After this many successes in a row a failing endpoint is ok again, and the change is \
               told. A session's own okAfter takes precedence.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::OkAfter, value),
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
        set: |draft, value| draft.set(Setting::PollCommand, value),
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
        set: |draft, value| draft.set(Setting::OnChange, value),
    },
    Opt {
        name: "on-change-timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long one run of --on-change may take.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::OnChangeTimeout, value),
    },
    Opt {
        name: "on-change-retries",
        value: Some("N"),
        default: "3",
        help: "How often --on-change is run again when it fails: after 1s, 2s, 4s and so on, at most \
               30s.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::OnChangeRetries, value),
    },
    Opt {
        name: "allow-targets",
        value: Some("CIDRS"),
        default: "all",
        help: "Networks that may be polled, separated by commas. Checked on the resolved address at \
               connect time.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::AllowTargets, value),
    },
    Opt {
        name: "deny-targets",
        value: Some("CIDRS"),
        default: "169.254.0.0/16,fe80::/10",
        help: "Networks that may not be polled, even if allowed.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::DenyTargets, value),
    },
    Opt {
        name: "max-body",
        value: Some("BYTES"),
        default: "65536",
        help: "How many bytes of a response are read and kept.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::MaxBody, value),
    },
    Opt {
        name: "poll-ca",
        value: Some("PATH"),
        default: "",
        help: "A PEM file of certificate authorities that polls trust beside the public ones. Read \
               at the start and at a reload. A session's own tlsCa takes the place of both.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::PollCa, value),
    },
    Opt {
        name: "secrets-dir",
        value: Some("DIR"),
        default: "",
        help: "A directory of secrets for polls. A header of a session may name a file in it \
               instead of a value: {\"file\": \"NAME\"}. The file is read for each poll. Every \
               session may send every file of DIR to its address, so keep nothing else there.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::SecretsDir, value),
    },
    Opt {
        name: "allow-tls-insecure",
        value: None,
        default: "off",
        help: "Lets sessions with tlsInsecure be polled, without a check of the endpoint's \
               certificate. Without this option such a poll fails.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::AllowTlsInsecure, value),
    },
    Opt {
        name: "cert-warn-days",
        value: Some("N"),
        default: "14",
        help: "A certificate that is valid for fewer days deserves attention: the log has a \
               warning, and status and explain say so. A session's own certWarnDays takes \
               precedence.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::CertWarnDays, value),
    },
];
