//! What an operator's command changes, or would change.

use crate::cli::options::Opt;
use crate::config::value::{ValueError, duration, number, switch, text};

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
        set: |draft, value| text(value).map(|it| draft.fields.push(("name", it.into()))),
    },
    Opt {
        name: "path",
        value: Some("TEXT"),
        default: "",
        help: "add: the path of the request, instead of that of the address.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.fields.push(("path", it.into()))),
    },
    Opt {
        name: "method",
        value: Some("METHOD"),
        default: "",
        help: "add: GET or HEAD.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.fields.push(("method", it.into()))),
    },
    Opt {
        name: "expect-status",
        value: Some("STATUSES"),
        default: "",
        help: "add: the statuses that are ok, such as 200-299,401.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.fields.push(("expectStatus", it.into()))),
    },
    Opt {
        name: "expect-body",
        value: Some("TEXT"),
        default: "",
        help: "add: text that the body must contain.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.fields.push(("expectBody", it.into()))),
    },
    Opt {
        name: "header",
        value: Some("HEADER"),
        default: "",
        help: "add: a header of the request, as NAME:VALUE. May be given several times.",
        commands: &["sessions"],
        set: |draft, value| {
            let text = text(value)?;
            let (name, value) = text.split_once(':').ok_or(ValueError::Header)?;
            draft.headers.push((name.trim().into(), value.trim().into()));
            Ok(())
        },
    },
    Opt {
        name: "dry-run",
        value: None,
        default: "off",
        help: "sync: say what would be done, and do nothing.",
        commands: &["sessions"],
        set: |draft, value| switch(value).map(|it| draft.dry_run = it),
    },
    Opt {
        name: "prune",
        value: None,
        default: "off",
        help: "sync: remove the sessions that are not in the file.",
        commands: &["sessions"],
        set: |draft, value| switch(value).map(|it| draft.prune = it),
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
