//! Which ACL rules does an operator paste, and which commands do they allow? Pure: asks nothing.

use crate::store::redis::server_check::DENIED;

/// Every command, in the lines of the rule. Keep each under 100 columns.
pub(crate) const COMMANDS: [&[&str]; 3] = [
    &[
        "eval", EVALSHA, "get", "mget", "set", MSETNX, "del", "strlen", "getrange", "type",
        "exists", "pexpire", "pttl",
    ],
    &[
        "hget",
        "hset",
        "hmget",
        "hkeys",
        "sismember",
        "scan",
        XADD,
        "publish",
        "subscribe",
        "ping",
        "select",
        "info",
        "time",
    ],
    &[CLIENT_TRACKING, NUMSUB, PEXPIREAT, "smembers", "xrange", "xrevrange"],
];
/// For `status`, `top` and `history` with the settings of the daemon.
pub(crate) const SHOWING: [&str; 3] = ["smembers", "xrange", "xrevrange"];
/// Plain reading commands of onlookers and operators.
const READING_ROW: &[&str] =
    &["scan", "strlen", "getrange", "type", "pttl", "hmget", "hkeys", "smembers", "time", "select"];
/// [`Purpose::Onlooker`]: plain reading commands.
const LOOKING: [&[&str]; 2] =
    [READING_ROW, &["xrange", "xrevrange", "subscribe", "psubscribe", "ping"]];
/// [`Purpose::Operator`]: the reading commands of an onlooker, and what the scripts of `drain`, `sessions`, `release`
/// and `resign` call.
const OPERATING: [&[&str]; 3] = [
    READING_ROW,
    &["xrange", "xrevrange", "subscribe", "psubscribe", "ping", "eval", EVALSHA, "get", "mget"],
    &[
        "exists",
        "set",
        "del",
        "sadd",
        "srem",
        "sismember",
        "hget",
        "hset",
        "pexpire",
        "publish",
        "info",
    ],
];
/// [`Purpose::Elector`]: the scripts of roles, the messages between candidates, and the history of runs.
const ELECTING: [&[&str]; 2] = [
    &["eval", EVALSHA, "get", "mget", "set", "del", "pexpire", "pttl", "hget", "hset", "hmget"],
    &["hkeys", "publish", "subscribe", "ping", "select", "info", "time", XADD, "xrevrange"],
];
/// With these, which no rule has, `doctor` tells more of the server; it works without.
#[cfg(test)]
pub(crate) const EXAMINING: [&str; 3] = ["config|get", "acl|whoami", "acl|dryrun"];
/// A user that has none of these was meant to look only.
pub(crate) const WRITING: [&str; 5] = ["+eval", "+evalsha", "+set", "+del", "+publish"];
/// Without it nothing is remembered for `history`, and everything else works.
pub(crate) const XADD: &str = "xadd";
/// Without it every script is sent whole, once it was refused by its hash.
pub(crate) const EVALSHA: &str = "evalsha";
/// Without it leases are granted one by one, and everything else works.
pub(crate) const MSETNX: &str = "msetnx";
/// Without it leases are granted and kept by saying for how long, which costs a server more.
pub(crate) const PEXPIREAT: &str = "pexpireat";
/// Without it nothing is pushed, and everything else works.
pub(crate) const CLIENT_TRACKING: &str = "client|tracking";

/// Without it a killed instance is noticed by its silence, a few seconds later, and everything else works.
pub(crate) const NUMSUB: &str = "pubsub|numsub";

/// On a cluster: who has which keys, and to read those that are on their way.
const SHARDS: [&str; 2] = ["cluster|slots", "asking"];
/// With --min-replicas.
pub(crate) const WAIT: &str = "wait";

/// What a Redis user is for. Each purpose has a rule of its own, with the rights that its commands need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `run`, `release --runtime-dir`; with `--lead`, `lead` or `once`, roles too.
    Daemon,
    /// Commands that only read.
    Onlooker,
    /// Commands that change what instances do.
    Operator,
    /// `lead` and `once`, without polling.
    Elector,
}

impl Purpose {
    /// In the order of docs/redis.md.
    pub const ALL: [Self; 4] = [Self::Daemon, Self::Onlooker, Self::Operator, Self::Elector];

    /// What `--purpose` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Onlooker => "onlooker",
            Self::Operator => "operator",
            Self::Elector => "elector",
        }
    }

    /// The purpose that `word` names.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }

    /// The commands that work with its rule.
    pub fn commands(self) -> &'static str {
        match self {
            Self::Daemon => "run",
            Self::Onlooker => {
                "status, top, web, get, explain, plan, watch, audit, history, leaders and sessions \
                 list"
            }
            Self::Operator => "drain, undrain, sessions, resign and release",
            Self::Elector => "lead and once",
        }
    }

    /// Where a denial sends the user: to the rule that has the right.
    fn way_out(self) -> String {
        let (commands, word) = (self.commands(), self.word());
        format!(
            ": give the Redis user the permissions docs/redis.md lists for {commands} (leasehold \
             doctor --purpose {word} prints them)"
        )
    }

    /// A sentence about a denial, with the way to this purpose's rule; `None` for any other sentence.
    pub fn pointed(self, sentence: &str) -> Option<String> {
        sentence.contains(DENIED).then(|| sentence.replace(DENIED, &self.way_out()))
    }

    /// The name that docs/redis.md gives such a user.
    pub fn user(self) -> &'static str {
        match self {
            Self::Daemon => "leasehold",
            other => other.word(),
        }
    }

    fn rights(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Daemon => &COMMANDS,
            Self::Onlooker => &LOOKING,
            Self::Operator => &OPERATING,
            Self::Elector => &ELECTING,
        }
    }
}

/// What the keys or channels of a pattern are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Polls,
    Sessions,
    Messages,
    Results,
    Roles,
    RoleMessages,
}

/// Who is to be given what.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `poll`.
    pub prefix: String,
    /// `session:`.
    pub session_prefix: String,
    /// `leader`.
    pub leader_prefix: String,
    /// Whether the server can tell reading from writing: Redis 7.0 or later.
    pub tells_reading: bool,
    /// Whether sessions are on several shards.
    pub in_cluster: bool,
    /// Whether replicas are waited for.
    pub waits: bool,
}

impl Rule {
    /// Keys and channels, as patterns of the rule, each with what it is about.
    pub(crate) fn patterns(&self, purpose: Purpose) -> Vec<(Over, String)> {
        let Self { prefix, session_prefix, leader_prefix, .. } = self;
        let read = if self.tells_reading { "%R" } else { "" };
        let [polls, roles] = [prefix, leader_prefix].map(|it| format!("{it}:*"));
        let sessions = format!("{session_prefix}*");
        let of_roles =
            [(Over::Roles, format!("~{roles}")), (Over::RoleMessages, format!("&{roles}"))];
        let words = (Over::Messages, format!("&{polls}"));
        // Who listens by a pattern needs that very pattern, not one that includes it.
        let results = (Over::Results, format!("&{prefix}:results:*"));
        let mut all = vec![];
        match purpose {
            Purpose::Daemon => {
                all.push((Over::Polls, format!("~{polls}")));
                all.extend([(Over::Sessions, format!("{read}~{sessions}")), words]);
                all.extend(of_roles);
            }
            Purpose::Onlooker => {
                all.push((Over::Polls, format!("{read}~{polls}")));
                all.push((Over::Sessions, format!("{read}~{sessions}")));
                all.push((Over::Roles, format!("{read}~{roles}")));
                all.push(results);
            }
            Purpose::Operator => {
                all.push((Over::Polls, format!("~{polls}")));
                all.extend([(Over::Sessions, format!("~{sessions}")), words, results]);
                all.extend(of_roles);
            }
            Purpose::Elector => all.extend(of_roles),
        }
        all
    }

    /// Every command of the rule, by its lines.
    pub(crate) fn commands(&self, purpose: Purpose) -> Vec<&'static [&'static str]> {
        let shards = self.in_cluster.then_some(&SHARDS[..]);
        let changes_leases = matches!(purpose, Purpose::Daemon | Purpose::Elector);
        let waits = (self.waits && changes_leases).then_some(&[WAIT][..]);
        purpose.rights().iter().copied().chain(shards).chain(waits).collect()
    }

    /// What to paste into a shell. A user of its own is made; one that is there keeps its password.
    pub fn to_paste(&self, purpose: Purpose, user: Option<&str>) -> String {
        let (name, password) = match user.filter(|it| *it != "default") {
            Some(name) => (name, ""),
            None => (purpose.user(), " '>PASSWORD'"),
        };
        let patterns: Vec<String> = self.patterns(purpose).into_iter().map(|it| it.1).collect();
        pasted(name, password, &patterns, &self.commands(purpose))
    }
}

fn pasted(name: &str, password: &str, patterns: &[String], commands: &[&[&str]]) -> String {
    let head = format!(
        "redis-cli ACL SETUSER {} on{password} resetkeys resetchannels -@all",
        quoted(name)
    );
    let patterns: Vec<String> = patterns.iter().map(|it| quoted(it)).collect();
    let mut lines = vec![head, patterns.join(" ")];
    for row in commands {
        let rights: Vec<String> = row.iter().map(|it| quoted(&format!("+{it}"))).collect();
        lines.push(rights.join(" "));
    }
    lines.join(" \\\n  ")
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-_.,:/".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
