//! Options of the commands that Leasehold itself starts.

use std::time::Duration;

use crate::cli::options::Opt;
use crate::config::value::number;

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "grace-ms",
        value: Some("N"),
        default: "",
        help: "Milliseconds between TERM and KILL.",
        commands: &["poll-supervisor", "supervisor"],
        set: |draft, value| {
            number(value).map(|it| draft.grace = Some(Duration::from_millis(u32::into(it))))
        },
    },
    Opt {
        name: "soft-files",
        value: Some("N"),
        default: "",
        help: "The soft limit of open files for the program.",
        commands: &["poll-supervisor"],
        set: |draft, value| number(value).map(|it| draft.soft_files = Some(it)),
    },
    Opt {
        name: "orders-fd",
        value: Some("N"),
        default: "",
        help: "The file descriptor to read orders from.",
        commands: &["supervisor", "exec-shim"],
        set: |draft, value| number(value).map(|it| draft.orders = Some(it)),
    },
    Opt {
        name: "report-fd",
        value: Some("N"),
        default: "",
        help: "The file descriptor to report to.",
        commands: &["supervisor", "exec-shim"],
        set: |draft, value| number(value).map(|it| draft.report = Some(it)),
    },
];
