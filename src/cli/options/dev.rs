//! What `leasehold dev` starts, and what it leaves behind.

use crate::cli::options::Opt;
use crate::cli::options::groups::DEV;
use crate::config::value::{at_least_one, path};

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "instances",
        value: Some("N"),
        default: "3",
        help: "How many instances to start.",
        commands: DEV,
        set: |draft, value| at_least_one(value).map(|it| draft.instances = Some(it)),
    },
    Opt {
        name: "sessions",
        value: Some("FILE"),
        default: "",
        help: "Poll the sessions of this file, one JSON document per line, instead of the sample \
               endpoints.",
        commands: DEV,
        set: |draft, value| path(value).map(|it| draft.sessions = Some(it)),
    },
    Opt {
        name: "data",
        value: Some("DIR"),
        default: "",
        help: "Keep the data of Redis and the logs in this directory, and go on with them at the \
               next start. Without it, everything is removed at the end.",
        commands: DEV,
        set: |draft, value| path(value).map(|it| draft.data = Some(it)),
    },
];
