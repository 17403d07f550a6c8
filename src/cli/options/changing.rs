//! What an operator's command changes, or would change.

use crate::cli::options::Opt;
use crate::config::value::{duration, number, switch, text};

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "id",
        value: Some("ID"),
        default: "",
        help: "add: the id of the new session.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.id = Some(it.into())),
    },
    Opt {
        name: "name",
        value: Some("TEXT"),
        default: "",
        help: "add: a name for people to read.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.name = Some(it.into())),
    },
    Opt {
        name: "wait",
        value: Some("DURATION"),
        default: "0s",
        help: "Wait at most this long until the drained instances own nothing. Exit code 1 if \
               they still own something.",
        commands: &["drain"],
        set: |draft, value| duration(value).map(|it| draft.wait = it),
    },
    Opt {
        name: "absent",
        value: None,
        default: "off",
        help: "Drain a host on which no instance has run yet, so that instances started there \
               take nothing. Without it, such a name is refused as a likely typing error.",
        commands: &["drain"],
        set: |draft, value| switch(value).map(|it| draft.absent = it),
    },
    Opt {
        name: "join",
        value: Some("N"),
        default: "0",
        help: "Assume that this many instances join.",
        commands: &["plan"],
        set: |draft, value| number(value).map(|it: u16| draft.join = it.into()),
    },
    Opt {
        name: "leave",
        value: Some("INSTANCE"),
        default: "",
        help: "Assume that this instance, or every instance of this host, leaves. May be given \
               several times.",
        commands: &["plan"],
        set: |draft, value| text(value).map(|it| draft.leave.push(it.into())),
    },
];
