//! What an operator's command reads, shows and forces.

use crate::cli::options::Opt;
use crate::cli::options::groups::{AUDIT, READ, RELEASE, SHOWN, STATUS};
use crate::cli::task::Output;
use crate::config::value::{ValueError, at_least_one, duration, path, showable, switch, text};
use crate::inspect::status::State;
use crate::store::admin::acl::Purpose;

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "instance",
        value: Some("ID"),
        default: "",
        help: "The instance whose leases to release.",
        commands: RELEASE,
        set: |draft, value| text(value).map(|it| draft.instance = Some(it.into())),
    },
    Opt {
        name: "force",
        value: None,
        default: "off",
        help: "Release even if the instance still has a heartbeat. It is revoked first, and stops \
               polling within a second or so if it is alive.",
        commands: &["release", "drain"],
        set: |draft, value| switch(value).map(|it| draft.force = it),
    },
    Opt {
        name: "json",
        value: None,
        default: "off",
        help: "Print one JSON document for programs.",
        commands: READ,
        set: |draft, value| switch(value).map(|it| draft.json = it),
    },
    Opt {
        name: "all",
        value: None,
        default: "off",
        help: "List every endpoint, with results of any length. Without it, a fleet of more than \
               20 endpoints shows only those that need attention, at most 50; and a terminal \
               shows each result cut at the end of the line.",
        commands: STATUS,
        set: |draft, value| switch(value).map(|it| draft.all = it),
    },
    Opt {
        name: "output",
        value: Some("FORMAT"),
        default: "table",
        help: "How to list the endpoints; -o for short: table, wide (with preferred owner and \
               fence, and nothing cut), names (one endpoint a line, and nothing else) or json \
               (the same as --json).",
        commands: STATUS,
        set: |draft, value| {
            let word = text(value)?;
            let output = match word {
                "table" => Output::Table,
                "wide" => Output::Wide,
                "names" => Output::Names,
                "json" => Output::Json,
                _ => {
                    let choices = "table, wide, names and json";
                    return Err(ValueError::Choice { shown: showable(word), choices });
                }
            };
            draft.output = Some(output);
            Ok(())
        },
    },
    Opt {
        name: "state",
        value: Some("STATES"),
        default: "",
        help: "Show only endpoints in one of these states, by commas: ok, failing, late, stale, \
               paused, invalid, unowned, abandoned, uncertain, moving, new, no-session.",
        commands: STATUS,
        set: |draft, value| {
            draft.which.states = states(text(value)?)?;
            Ok(())
        },
    },
    Opt {
        name: "owner",
        value: Some("INSTANCE"),
        default: "",
        help: "Show only endpoints of this instance, or of every instance of this host.",
        commands: STATUS,
        set: |draft, value| text(value).map(|it| draft.which.owner = Some(it.into())),
    },
    Opt {
        name: "check",
        value: None,
        default: "off",
        help: "For monitoring systems: print one line about the fleet and its targets. Exit code \
               0: all is well; 1: warning; 2: critical; 3: it could not be found out.",
        commands: &["status", "audit"],
        set: |draft, value| switch(value).map(|it| draft.check = it),
    },
    Opt {
        name: "fleet-only",
        value: None,
        default: "off",
        help: "With --check: whether the fleet does its work, whatever its targets answer.",
        commands: STATUS,
        set: |draft, value| switch(value).map(|it| draft.fleet_only = it),
    },
    Opt {
        name: "body",
        value: None,
        default: "off",
        help: "Print the stored body of the last result and nothing else: as it is in a pipe, and \
               without control characters on a terminal. With --json the body is one more field.",
        commands: &["get"],
        set: |draft, value| switch(value).map(|it| draft.body = it),
    },
    Opt {
        name: "stale-after",
        value: Some("DURATION"),
        default: "2m",
        help: "An endpoint with an owner but without a result for this long is called stale. An \
               endpoint is called late sooner: after two missed polls. If a tenth of the \
               endpoints of one owner are overdue by half an interval, these are called late, \
               too.",
        commands: SHOWN,
        set: |draft, value| duration(value).map(|it| draft.stale_after = Some(it)),
    },
    Opt {
        name: "refresh",
        value: Some("DURATION"),
        default: "1s",
        help: "How often to read everything. If reading takes long, top reads less often, so that \
               reading takes at most a tenth of the time.",
        commands: &["top"],
        set: |draft, value| duration(value).map(|it| draft.refresh = Some(it)),
    },
    Opt {
        name: "limit",
        value: Some("N"),
        default: "50",
        help: "Print at most the last N events; N is at least 1.",
        commands: &["history"],
        set: |draft, value| at_least_one(value).map(|it| draft.limit = Some(it)),
    },
    Opt {
        name: "for",
        value: Some("DURATION"),
        default: "2s",
        help: "How long to watch the server's clock. The longer, the more precisely its rate is \
               measured.",
        commands: &["doctor", "sessions", "audit"],
        set: |draft, value| duration(value).map(|it| draft.watch_for = Some(it)),
    },
    Opt {
        name: "since",
        value: Some("DURATION"),
        default: "",
        help: "Audit what Redis remembers of the last hour (1h) or of another span, instead of \
               the live fleet: the streams of lease events and of changes, and the last result \
               of each endpoint.",
        commands: AUDIT,
        set: |draft, value| duration(value).map(|it| draft.since = Some(it)),
    },
    Opt {
        name: "record",
        value: Some("FILE"),
        default: "",
        help: "Also write everything that is observed to FILE, one JSON document per line: no \
               bodies, addresses or errors.",
        commands: AUDIT,
        set: |draft, value| path(value).map(|it| draft.record = Some(it)),
    },
    Opt {
        name: "replay",
        value: Some("FILE"),
        default: "",
        help: "Judge what --record or leasehold watch --json wrote to FILE, and ask no \
               Redis. --replay=- reads stdin.",
        commands: AUDIT,
        set: |draft, value| path(value).map(|it| draft.replay = Some(it)),
    },
    Opt {
        name: "purpose",
        value: Some("PURPOSE"),
        default: "daemon",
        help: "What the Redis user is for. It decides which rights are checked and which ACL rule \
               is printed: daemon (run), onlooker (status, top, web, get, explain, plan, watch, audit, \
               history, leaders, sessions list), operator (also drain, undrain, sessions, resign, release) \
               or elector (lead, once).",
        commands: &["doctor"],
        set: |draft, value| {
            let word = text(value)?;
            let choices = "daemon, onlooker, operator or elector";
            let known = Purpose::named(word);
            let known = known.ok_or(ValueError::Choice { shown: showable(word), choices })?;
            draft.purpose = Some(known);
            Ok(())
        },
    },
];

/// `failing,late`; `no-session` for the state of two words.
fn states(list: &str) -> Result<Vec<State>, ValueError> {
    let named = |word: &str| {
        let word = word.trim();
        let is_it = |it: &&State| it.word().replace(' ', "-") == word;
        let choices = "ok, failing, late, stale, paused, invalid, unowned, abandoned, uncertain, \
                       moving, new and no-session";
        let unknown = || ValueError::Choice { shown: showable(word), choices };
        State::ALL.iter().find(is_it).copied().ok_or_else(unknown)
    };
    list.split(',').map(named).collect()
}
