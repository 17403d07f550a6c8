//! The commands that show whether a user has the rights of a rule.

use crate::store::admin::acl::Need;
use crate::store::admin::acl::rule::{
    CLIENT_TRACKING, EVALSHA, MSETNX, NUMSUB, Over, PEXPIREAT, Purpose, Rule, SHOWING, WAIT, XADD,
};
use crate::store::keys::Keys;

/// The name that the keys and channels of a trial end with.
pub(super) const NOBODY: &str = "doctor";
/// How long a key of a trial lasts at most.
const TRIAL_LASTS_MS: &str = "10000";

/// A command that shows whether a right is there.
pub(super) struct Trial {
    pub(super) right: String,
    pub(super) command: Vec<String>,
    pub(super) need: Need,
}

impl Trial {
    fn of<T: AsRef<str>>(right: impl Into<String>, command: &[T], need: Need) -> Self {
        let command = command.iter().map(|it| it.as_ref().to_owned()).collect();
        Self { right: right.into(), command, need }
    }

    /// Would make a key that stays, unless there is one of another type already.
    pub(super) fn needs_a_string(&self) -> bool {
        ["HSET", "MSETNX", "SADD", "XADD"].contains(&self.command[0].as_str())
    }
}

/// Every right of the rule for `purpose`, in an order in which it can be tried: a string that expires is made first,
/// and everything else has no effect on it or elsewhere.
pub(super) fn trials(rule: &Rule, purpose: Purpose, keys: &Keys, db: &str) -> Vec<Trial> {
    let prefix = match purpose {
        Purpose::Elector => &rule.leader_prefix,
        _ => &rule.prefix,
    };
    let probe = format!("{prefix}:{NOBODY}:{}", uuid::Uuid::new_v4());
    let channel = match purpose {
        Purpose::Onlooker => format!("{prefix}:results:{NOBODY}"),
        _ => format!("{prefix}:wake:{NOBODY}"),
    };
    let place = Place { probe: &probe, channel: &channel, db };
    let names = rule.commands(purpose).concat();
    let (first, last) = (["set"], ["del"]);
    let has = |wanted: [&'static str; 1]| wanted.into_iter().filter(|it| names.contains(it));
    let rest = names.iter().copied().filter(|it| !first.contains(it) && !last.contains(it));
    let of_command = |name: &'static str| {
        Trial::of(format!("+{name}"), &place.command(name), need(name, purpose))
    };
    let mut all: Vec<Trial> = has(first).chain(rest).map(of_command).collect();
    all.extend(key_trials(rule, purpose, keys));
    all.extend(has(last).map(of_command));
    all
}

/// What a right for a command is needed for.
fn need(name: &str, purpose: Purpose) -> Need {
    match name {
        EVALSHA => Need::RoundTrips,
        XADD => Need::History,
        "xrevrange" if purpose == Purpose::Elector => Need::History,
        _ if purpose != Purpose::Daemon => Need::Run,
        CLIENT_TRACKING => Need::Pushes,
        NUMSUB => Need::Failover,
        _ if SHOWING.contains(&name) => Need::Reading,
        "publish" | "subscribe" => Need::Messages,
        MSETNX | PEXPIREAT => Need::ServerLoad,
        _ => Need::Run,
    }
}

/// What commands are tried on.
struct Place<'a> {
    probe: &'a str,
    channel: &'a str,
    db: &'a str,
}

impl Place<'_> {
    fn command(&self, name: &str) -> Vec<String> {
        let Self { probe, channel, db } = *self;
        let verb = name.to_ascii_uppercase();
        let (nothing, nowhere) = ("0".repeat(40), format!("{probe}:nowhere"));
        let words: Vec<&str> = match name {
            "eval" => vec!["EVAL", "return 1", "0"],
            EVALSHA => vec!["EVALSHA", &nothing, "0"],
            "set" => vec!["SET", probe, "1", "PX", TRIAL_LASTS_MS],
            "getrange" => vec!["GETRANGE", probe, "0", "1"],
            "pexpire" => vec!["PEXPIRE", probe, TRIAL_LASTS_MS],
            // Of what is not there: it would be gone.
            PEXPIREAT => vec!["PEXPIREAT", &nowhere, "1"],
            "hget" | "hmget" | "sismember" => vec![&verb, probe, "x"],
            "hset" => vec!["HSET", probe, "x", "1"],
            // Of a string they are refused, and change nothing.
            "sadd" | "srem" => vec![&verb, probe, "x"],
            MSETNX => vec!["MSETNX", probe, "1"],
            XADD => vec!["XADD", probe, "*", "x", "1"],
            "xrange" => vec!["XRANGE", probe, "-", "+", "COUNT", "1"],
            "xrevrange" => vec!["XREVRANGE", probe, "+", "-", "COUNT", "1"],
            "scan" => vec!["SCAN", "0", "COUNT", "1"],
            "publish" => vec!["PUBLISH", channel, ""],
            "subscribe" => vec!["SUBSCRIBE", channel],
            "psubscribe" => vec!["PSUBSCRIBE", channel],
            "ping" | "time" => vec![&verb],
            "select" => vec!["SELECT", db],
            "info" => vec!["INFO", "replication"],
            CLIENT_TRACKING => vec!["CLIENT", "TRACKING", "OFF"],
            NUMSUB => vec!["PUBSUB", "NUMSUB", channel],
            "cluster|slots" => vec!["CLUSTER", "SLOTS"],
            "asking" => vec!["ASKING"],
            WAIT => vec!["WAIT", "0", "1"],
            _ => vec![&verb, probe],
        };
        words.into_iter().map(String::from).collect()
    }
}

/// The keys that a script declares must be ours to read and to write, whether it touches them or not. Where nothing
/// is written they are read.
fn key_trials(rule: &Rule, purpose: Purpose, keys: &Keys) -> Vec<Trial> {
    let mut all = Vec::new();
    for (over, pattern) in rule.patterns(purpose) {
        let need = match over {
            _ if purpose != Purpose::Daemon => Need::Run,
            Over::Polls | Over::Sessions => Need::Run,
            Over::Messages | Over::Results => Need::Messages,
            Over::Roles | Over::RoleMessages => Need::Roles,
        };
        let only_read =
            purpose == Purpose::Onlooker || purpose == Purpose::Daemon && over == Over::Sessions;
        let touch = |key: &str| match only_read {
            true => Trial::of(&pattern, &["STRLEN", key], need),
            false => Trial::of(&pattern, &["EVAL", "return 1", "1", key], need),
        };
        match over {
            Over::Messages => {
                let results = format!("{}:results:{NOBODY}", rule.prefix);
                all.push(Trial::of(&pattern, &["PUBLISH", &results, ""], need));
                all.push(Trial::of(&pattern, &["SUBSCRIBE", &keys.message_channel(None)], need));
            }
            Over::Results => {
                let results = format!("{}:results:*", rule.prefix);
                all.push(Trial::of(&pattern, &["PSUBSCRIBE", &results], need));
            }
            Over::RoleMessages => {
                let wake = format!("{}:wake:{NOBODY}", rule.leader_prefix);
                all.push(Trial::of(&pattern, &["PUBLISH", &wake, ""], need));
            }
            Over::Polls | Over::Sessions | Over::Roles => {
                all.extend(key_names(rule, over, keys).iter().map(|it| touch(it)));
            }
        }
    }
    all
}

/// One key of each kind.
fn key_names(rule: &Rule, over: Over, keys: &Keys) -> Vec<String> {
    let Rule { prefix, leader_prefix, session_prefix, .. } = rule;
    match over {
        Over::Polls => {
            let families = ["lease:", "node:", "result:", "ask:", "grants:", "revoked:"]
                .map(|it| format!("{prefix}:{it}{NOBODY}"));
            families
                .into_iter()
                .chain([keys.epoch(), keys.drain(), keys.highest_fence_key()])
                .collect()
        }
        Over::Sessions => vec![format!("{session_prefix}{NOBODY}")],
        Over::Roles => {
            ["epoch", NOBODY, "heartbeat:doctor"].map(|it| format!("{leader_prefix}:{it}")).to_vec()
        }
        Over::Messages | Over::Results | Over::RoleMessages => vec![],
    }
}
