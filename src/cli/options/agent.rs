//! Where an agent listens, and to whom.

use std::ffi::OsStr;

use crate::cli::options::Opt;
use crate::config::value::{ValueError, at_least_one, path, text};

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "socket",
        value: Some("PATH"),
        default: "",
        help: "The unix socket of the agent.",
        commands: &["agent", "connect"],
        set: |draft, value| path(value).map(|it| draft.socket = Some(it)),
    },
    Opt {
        name: "socket-mode",
        value: Some("MODE"),
        default: "0660",
        help: "The mode of the socket, in octal. Every user who may write to the socket may hold \
               any lease and stand for any role.",
        commands: &["agent"],
        set: |draft, value| mode(value).map(|it| draft.socket_mode = Some(it)),
    },
    Opt {
        name: "max-clients",
        value: Some("N"),
        default: "1024",
        help: "The most clients at a time. A client needs a thread and an open file.",
        commands: &["agent"],
        set: |draft, value| at_least_one(value).map(|it| draft.clients_max = Some(it)),
    },
];

fn mode(value: &OsStr) -> Result<u32, ValueError> {
    let value = text(value)?;
    let is_octal = !value.is_empty() && value.bytes().all(|it| (b'0'..=b'7').contains(&it));
    let mode = u32::from_str_radix(value, 8).ok().filter(|it| is_octal && *it <= 0o777);
    mode.ok_or(ValueError::Mode)
}
