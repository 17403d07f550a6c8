//! Can this server be trusted with leases, and is an error of its one that passes?

use std::borrow::Cow;

use redis::{ErrorKind, RedisError};

use crate::config::setting::{Names, Setting};
use crate::store::admin::key_types;
use crate::store::{Fault, StoreError};

/// Ends what is said of a missing right. Commands that know what their user is for say more ([`Purpose::pointed`]).
///
/// [`Purpose::pointed`]: crate::store::admin::acl::Purpose::pointed
pub(crate) const DENIED: &str = ": give the Redis user the permissions docs/redis.md lists (leasehold doctor names what run lacks, doctor --purpose elector what lead and once lack)";

/// Part of what is said of something else than a Redis.
const FOREIGN: &str = ": what answers there does not speak Redis; check host and port of ";

impl StoreError {
    /// The user lacks a right.
    pub fn is_denied(&self) -> bool {
        self.reason.ends_with(DENIED)
    }

    /// What answers is no Redis.
    pub fn is_foreign(&self) -> bool {
        self.reason.contains(FOREIGN)
    }
}

/// Whether trying again can help; what the server said in one line, and what would help.
pub(crate) fn explained(error: &RedisError, in_cluster: bool, names: Names) -> (Fault, String) {
    // A pipeline's error has no code of its own; its first refusal has.
    let refusals = error.clone().into_server_errors();
    let first = refusals.and_then(|it| it.first().map(|it| RedisError::from(it.1.clone())));
    let error = first.as_ref().unwrap_or(error);
    if error.code() == Some("NOHASH") {
        let key = error.detail().unwrap_or_default().split(' ').next().unwrap_or_default();
        return (Fault::Refused, key_types::no_epoch(key));
    }
    let (fault, hint) = match error.code() {
        Some("MOVED" | "CROSSSLOT" | "CLUSTERDOWN") if !in_cluster => (
            Fault::Misconfigured,
            ": this is a node of a cluster, so write redis+cluster://".into(),
        ),
        _ => judge(error, names),
    };
    let code = error.code().unwrap_or("");
    let detail = error.detail().map_or_else(|| error.to_string(), |it| format!("{code} {it}"));
    let line: String = detail.trim().chars().take_while(|it| *it != '\n').take(200).collect();
    (fault, format!("{line}{hint}"))
}

/// Whether a script was denied something, for which there is no code of its own. The first text is that of 7.2
/// and later, the second that of earlier ones, which 6.2 has in the middle of others.
pub(crate) fn is_denial(text: &str) -> bool {
    text.contains("ACL failure in script") || text.contains("The user executing the script can't")
}

/// Whether trying again can help, and what else would.
fn judge(error: &RedisError, names: Names) -> (Fault, Cow<'static, str>) {
    let redis = || names.of(Setting::Redis);
    let login =
        || format!(": check the user and the password in {} or its password file", redis()).into();
    // Match the code only: the texts differ between servers.
    let code = error.code().unwrap_or("");
    let detail = error.detail().unwrap_or("");
    let denied = code == "NOPERM" || is_denial(detail);
    // A question of more than ten words is not even heard out before a password was given.
    let unknown = detail.starts_with("Protocol error: unauthenticated");
    match code {
        "WRONGPASS" | "NOAUTH" => (Fault::Misconfigured, login()),
        "BADTTL" => {
            let ttl = names.of(Setting::LeaseTtl);
            (Fault::Misconfigured, format!(": choose {ttl} from 500ms to 1h").into())
        }
        "NOREPLID" => (Fault::Misconfigured, ": leases need a server that does".into()),
        _ if denied => (Fault::Misconfigured, DENIED.into()),
        _ if unknown || error.kind() == ErrorKind::AuthenticationFailed => {
            (Fault::Misconfigured, login())
        }
        _ if detail.contains("without any password configured") => {
            (Fault::Misconfigured, ": this server wants no password".into())
        }
        _ if detail.contains("DB index is out of range") => {
            (Fault::Misconfigured, format!(": choose another database in {}", redis()).into())
        }
        // Said from 5.0 to 6.2 where lua-replicate-commands was switched off.
        _ if detail.contains("not allowed after non deterministic commands") => (
            Fault::Misconfigured,
            ": set lua-replicate-commands yes, or use Redis 7.0 or later".into(),
        ),
        // The library's own words for bytes that are no reply at all.
        _ if detail.starts_with("Parse error at") => {
            (Fault::Misconfigured, format!("{FOREIGN}{}", redis()).into())
        }
        _ if error.is_io_error() => (Fault::Unreachable, "".into()),
        // What is wrong with a file or a certificate says the way out itself.
        _ if error.kind() == ErrorKind::InvalidClientConfig => (Fault::Misconfigured, "".into()),
        "READONLY" => (Fault::Refused, ": connect to the master".into()),
        _ => (Fault::Refused, "".into()),
    }
}

/// Before this version no script can write once it has asked the time, as each of ours does.
const OLDEST_MAJOR: u32 = 5;

/// R14: a server that may forget a lease by itself cannot be trusted with one.
pub(crate) fn trustworthy(
    server: &str,
    memory: &str,
    replication: &str,
) -> Result<(), (Fault, String)> {
    let field = |info: &str, name: &str| {
        info.lines()
            .find_map(|it| it.strip_prefix(name)?.strip_prefix(':').map(|it| it.trim().to_owned()))
    };
    // One that keeps its version to itself may be new enough.
    let version = field(server, "redis_version").unwrap_or_default();
    let major = version.split('.').next().and_then(|it| it.parse().ok());
    if major.is_some_and(|it: u32| it < OLDEST_MAJOR) {
        let why = format!(
            "it is Redis {version}, on which no script can write once it has asked the time; use Redis \
             6.2 or later, or Valkey"
        );
        return Err((Fault::Misconfigured, why));
    }
    let limit = field(memory, "maxmemory").unwrap_or_default();
    let policy = field(memory, "maxmemory_policy").unwrap_or_else(|| "noeviction".into());
    if limit != "0" && policy != "noeviction" {
        let why = format!(
            "it may evict leases (maxmemory {limit} with maxmemory-policy {policy}); \
             set maxmemory-policy noeviction, or give Leasehold a Redis of its own"
        );
        return Err((Fault::Misconfigured, why));
    }
    if field(replication, "master_replid").is_none() {
        let why = "it does not tell its master_replid, so a restart could not be noticed".into();
        return Err((Fault::Misconfigured, why));
    }
    if field(replication, "role").is_some_and(|it| it != "master") {
        let (host, port) = (field(replication, "master_host"), field(replication, "master_port"));
        let master = host.zip(port).map(|it| format!("its master, {}:{}", it.0, it.1));
        let master = master.unwrap_or_else(|| "the master".into());
        return Err((Fault::Refused, format!("it is a replica; connect to {master}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redis::Parser;

    use super::*;

    /// What is made of a reply, as it comes over the line.
    fn judged(reply: &str) -> (Fault, Cow<'static, str>) {
        let parsed = Parser::new().parse_value(format!("{reply}\r\n").as_bytes());
        judge(&parsed.and_then(redis::Value::extract_error).unwrap_err(), Names::default())
    }

    #[test]
    fn what_cannot_pass_is_told_from_what_can_in_the_words_of_every_server() {
        for (reply, words) in [
            ("-NOPERM this user has no permissions to run the 'info' command", "permissions"),
            ("-ERR ACL failure in script: No permissions to access a key", "permissions"),
            (
                "-ERR The user executing the script can't run this command or subcommand",
                "permissions",
            ),
            (
                "-ERR Error running script (call to f_1): @user_script:116: @user_script: 116: The \
                 user executing the script can't access at least one of the keys",
                "permissions",
            ),
            (
                "-ERR Error running script (call to f_1): @user_script:54: @user_script: 54: Write \
                 commands not allowed after non deterministic commands.",
                "lua-replicate-commands yes",
            ),
            ("-WRONGPASS invalid username-password pair", "check the user"),
            ("-NOAUTH Authentication required.", "check the user"),
            ("HTTP/1.1 400 Bad Request", "does not speak Redis"),
            ("SSH-2.0-OpenSSH_9.2", "does not speak Redis"),
            ("ERROR", "does not speak Redis"),
        ] {
            let (fault, way_out) = judged(reply);
            assert_eq!(fault, Fault::Misconfigured, "{reply}");
            assert!(way_out.contains(words), "{reply}: {way_out}");
        }
        for reply in ["-LOADING it is", "-READONLY You can't write", "-BUSY it is", "-OOM it is"] {
            assert_eq!(judged(reply).0, Fault::Refused, "{reply}");
        }
    }

    #[test]
    fn a_server_that_is_too_old_evicts_or_is_a_replica_is_named_as_such() {
        let (memory, replication) = ("maxmemory:0", "role:master\r\nmaster_replid:1");
        let told = |server: &str, memory: &str, replication: &str| {
            let refusal = trustworthy(server, memory, replication).err();
            refusal.map_or_else(String::new, |(fault, why)| format!("{fault:?}: {why}"))
        };
        for version in ["5.0.7", "6.2.14", "7.2.4", "8.6.3", "255.255.255", "unstable", ""] {
            assert_eq!(
                told(&format!("redis_version:{version}"), memory, replication),
                "",
                "{version}"
            );
        }
        for version in ["2.8.24", "3.2.12", "4.0.9"] {
            let why = told(&format!("redis_version:{version}\r\n"), memory, replication);
            assert!(
                why.starts_with(&format!("Misconfigured: it is Redis {version}, on ")),
                "{why}"
            );
            assert!(why.contains("use Redis 6.2 or later"), "{why}");
        }
        let why = told("", "maxmemory:9\r\nmaxmemory_policy:allkeys-lru", replication);
        assert!(why.starts_with("Misconfigured") && why.contains("set maxmemory-policy"), "{why}");
        let why = told("", memory, "role:master");
        assert!(why.starts_with("Misconfigured") && why.contains("master_replid"), "{why}");
        let why = told("", memory, "role:slave\r\nmaster_replid:1");
        assert!(why.starts_with("Refused") && why.ends_with("connect to the master"), "{why}");
        let why =
            told("", memory, "role:slave\r\nmaster_host:h\r\nmaster_port:1\r\nmaster_replid:1");
        assert!(why.ends_with("connect to its master, h:1"), "{why}");
    }
}
