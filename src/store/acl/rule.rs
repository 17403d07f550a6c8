//! The rules to paste, and the commands that are in them.

/// Every command, in the lines of the rule. Keep each under 100 columns.
pub(crate) const COMMANDS: [&[&str]; 3] = [
    &[
        "eval", BY_HASH, "get", "mget", "set", TOGETHER, "del", "strlen", "getrange", "type",
        "exists", "pexpire", "pttl",
    ],
    &[
        "hget",
        "hset",
        "hmget",
        "hkeys",
        "sismember",
        "scan",
        REMEMBERS,
        "publish",
        "subscribe",
        "ping",
        "select",
        "info",
        "time",
    ],
    &[PUSHES, UNTIL, "smembers", "xrange", "xrevrange"],
];
/// For `status`, `top` and `history` with the settings of the daemon.
pub(crate) const SHOWING: [&str; 3] = ["smembers", "xrange", "xrevrange"];
/// What is enough for looking: `status`, `top`, `explain`, `plan`, `watch`, `history`.
const LOOKING: [&[&str]; 2] = [
    &["scan", "strlen", "getrange", "type", "pttl", "hmget", "hkeys", "smembers", "time", "select"],
    &["xrange", "xrevrange", "subscribe", "psubscribe", "ping"],
];
/// Whoever has none of these was meant to look only.
pub(crate) const WRITING: [&str; 5] = ["+eval", "+evalsha", "+set", "+del", "+publish"];
/// Without it nothing is remembered for `history`, and everything else works.
pub(crate) const REMEMBERS: &str = "xadd";
/// Without it every script is sent whole, once it was refused by its hash.
pub(crate) const BY_HASH: &str = "evalsha";
/// Without it leases are granted one by one, and everything else works.
pub(crate) const TOGETHER: &str = "msetnx";
/// Without it leases are granted and kept by saying for how long, which costs a server more.
pub(crate) const UNTIL: &str = "pexpireat";
/// Without it nothing is pushed, and everything else works.
pub(crate) const PUSHES: &str = "client|tracking";

/// On a cluster: who has which keys, and to read those that are on their way.
const SHARDS: [&str; 2] = ["cluster|slots", "asking"];
/// With --min-replicas.
pub(crate) const WAITS: &str = "wait";

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
    fn sessions(&self) -> String {
        let read = if self.tells_reading { "%R" } else { "" };
        format!("{read}~{}*", self.session_prefix)
    }

    pub(crate) fn patterns(&self) -> [String; 5] {
        let Self { prefix, leader_prefix, .. } = self;
        [
            format!("~{prefix}:*"),
            self.sessions(),
            format!("&{prefix}:*"),
            format!("~{leader_prefix}:*"),
            format!("&{leader_prefix}:*"),
        ]
    }

    /// What to paste into a shell. A user of its own is made; one that is there keeps its password.
    pub fn to_paste(&self, user: Option<&str>) -> String {
        let (name, password) = match user.filter(|it| *it != "default") {
            Some(name) => (name, ""),
            None => ("leasehold", " '>PASSWORD'"),
        };
        pasted(name, password, &self.patterns(), &[&COMMANDS, &self.extras()[..]].concat())
    }

    /// The same for people who only look. One that is there keeps its password.
    pub fn to_paste_for_looking(&self, user: Option<&str>) -> String {
        let (name, password) = user.map_or(("onlooker", " '>PASSWORD'"), |it| (it, ""));
        let read = if self.tells_reading { "%R" } else { "" };
        let keys = [
            &format!("{}:", self.prefix),
            &self.session_prefix,
            &format!("{}:", self.leader_prefix),
        ];
        let mut patterns = keys.map(|it| format!("{read}~{it}*")).to_vec();
        patterns.push(format!("&{}:results:*", self.prefix));
        let shards: &[&[&str]] = if self.in_cluster { &[&SHARDS] } else { &[] };
        pasted(name, password, &patterns, &[&LOOKING, shards].concat())
    }

    /// What only some need.
    pub(crate) fn extras(&self) -> Vec<&'static [&'static str]> {
        let shards = self.in_cluster.then_some(&SHARDS[..]);
        shards.into_iter().chain(self.waits.then_some(&[WAITS][..])).collect()
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
