//! What do the server's own words mean for the promises? Each function judges one thing; pure.

use std::time::Duration;

use crate::config::Topology;
use crate::inspect::doctor::{Finding, ms};
use crate::store::admin::probe::Info;

/// Settings that `INFO` does not tell; `None` where the server does not say.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub save: Option<String>,
    pub appendfsync: Option<String>,
    pub maxmemory_policy: Option<String>,
    pub min_replicas_to_write: Option<String>,
    pub stop_writes_on_bgsave_error: Option<String>,
}

impl Settings {
    /// Each by the name to ask for.
    pub fn all(&mut self) -> [(&'static str, &mut Option<String>); 5] {
        [
            ("save", &mut self.save),
            ("appendfsync", &mut self.appendfsync),
            ("maxmemory-policy", &mut self.maxmemory_policy),
            ("min-replicas-to-write", &mut self.min_replicas_to_write),
            ("stop-writes-on-bgsave-error", &mut self.stop_writes_on_bgsave_error),
        ]
    }
}

/// How fast it answers, against the time it is given.
pub fn latency(median: Duration, worst: Duration, timeout: Duration) -> Finding {
    let found = format!("median {}, worst {}", ms(median), ms(worst));
    let way_out = "find what is slow (SLOWLOG GET, LATENCY DOCTOR, the network), or raise --store-timeout \
                   and --lease-ttl";
    if worst > timeout / 2 || median > timeout / 10 {
        let found = format!(
            "{found}: close to --store-timeout {timeout:?}, after which a lease is uncertain and its \
             endpoint pauses"
        );
        return Finding::warn("latency", found, way_out);
    }
    Finding::ok("latency", format!("{found}; a call may take {timeout:?}"))
}

/// The first number of the version; zero if it has none.
pub fn major(info: &Info) -> u32 {
    version_of(info).0
}

fn version_of(info: &Info) -> (u32, u32) {
    let mut parts = info.get("redis_version").unwrap_or_default().split('.');
    let mut next = || parts.next().and_then(|it| it.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Which server it is.
pub fn version(info: &Info) -> Finding {
    let check = "version";
    let redis = info.get("redis_version").unwrap_or("unknown");
    let fork = |name: &str, field: &str| {
        info.get(field).map(|its| format!("{name} {its} (as Redis {redis})"))
    };
    let name = fork("Valkey", "valkey_version").or_else(|| fork("Redict", "redict_version"));
    let name = name.unwrap_or_else(|| format!("Redis {redis}"));
    let lacks = match version_of(info) {
        (7.., _) => return Finding::ok(check, name),
        (6, 2..) => "its users cannot be kept from writing sessions",
        (6, _) => {
            "its users cannot be given rights to channels, so the rule below is refused there"
        }
        (5, _) => "it has no users to give rights to, and pushes only keyspace events",
        (0, _) => {
            return Finding::warn(
                check,
                "it tells no version",
                "see that it is Redis 6.2 or later",
            );
        }
        _ => {
            let found = format!("{name}: no script can write there once it has asked the time");
            return Finding::fail(check, found, "use Redis 6.2 or later, or Valkey");
        }
    };
    Finding::warn(
        check,
        format!("{name}: works, but {lacks}"),
        "upgrade to 7.0 or later when you can",
    )
}

/// A master, of the kind that the URL says.
pub fn role(info: &Info, topology: Topology) -> Finding {
    let check = "role";
    if info.get("redis_mode") == Some("sentinel") {
        let way_out = "write redis+sentinel://HOST:PORT,HOST:PORT/NAME with all of them";
        return Finding::fail(check, "it is a Sentinel, which keeps no keys", way_out);
    }
    if info.get("cluster_enabled") == Some("1") && topology != Topology::Cluster {
        let found =
            "it is part of a cluster, whose nodes refuse scripts over keys of several slots";
        return Finding::fail(check, found, "write redis+cluster:// in --redis");
    }
    match (info.get("role"), topology) {
        (Some("master"), Topology::Sentinel) => {
            Finding::ok(check, "a master, and the one that most sentinels name")
        }
        (Some("master"), Topology::Cluster) => {
            Finding::ok(check, "a master of a cluster, and the one that has the fleet's keys")
        }
        (Some("master"), _) => Finding::ok(check, "a master"),
        (Some("slave"), _) => {
            let (host, port) = (info.get("master_host"), info.get("master_port"));
            let master = host.zip(port).map(|it| format!("{}:{}", it.0, it.1));
            Finding::fail(
                check,
                "it is a replica: it grants nothing and takes no results",
                format!(
                    "connect to its master, {}",
                    master.as_deref().unwrap_or("wherever that is")
                ),
            )
        }
        _ => Finding::fail(check, "it does not tell its role", "use a server that does"),
    }
}

/// R14: a lease has a TTL, so it is among the first to go.
pub fn eviction(info: &Info, settings: &Settings) -> Finding {
    let check = "eviction";
    let told = settings.maxmemory_policy.as_deref().or(info.get("maxmemory_policy"));
    let policy = told.unwrap_or("noeviction");
    let way_out = "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; or give \
                   Leasehold a Redis of its own";
    if policy == "noeviction" {
        return Finding::ok(check, "maxmemory-policy noeviction: no lease is evicted");
    }
    if info.number("maxmemory").unwrap_or(0) == 0 {
        let found = format!(
            "maxmemory-policy {policy}, harmless as long as there is no maxmemory; with one, leases would \
             be evicted and run would be refused"
        );
        return Finding::warn(check, found, way_out);
    }
    let found = format!(
        "maxmemory-policy {policy}: under pressure leases are evicted, and then two instances poll one \
         endpoint; run refuses this server"
    );
    Finding::fail(check, found, way_out)
}

/// How much room there is.
pub fn memory(info: &Info) -> Finding {
    let check = "memory";
    let used = info.number("used_memory").unwrap_or(0);
    let limit = info.number("maxmemory").unwrap_or(0);
    if limit == 0 {
        return Finding::ok(check, format!("{} used, no maxmemory", mib(used)));
    }
    let found = format!("{} of {} used", mib(used), mib(limit));
    if used > limit / 10 * 9 {
        let found = format!(
            "{found}: when it is full, what is held is still renewed, but nothing is granted and no result \
             stored"
        );
        return Finding::warn(check, found, "raise maxmemory, or remove what is not needed");
    }
    Finding::ok(check, found)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1024 * 1024))
}

/// What a restart leaves.
pub fn persistence(info: &Info, settings: &Settings, hold_off: Duration) -> Finding {
    let check = "persistence";
    let wait = format!("for {} s after a restart nothing new is granted", hold_off.as_secs());
    if info.get("loading") == Some("1") {
        return Finding::fail(check, "it is still loading what it saved", "wait until it is done");
    }
    let aof = info.get("aof_enabled") == Some("1");
    if aof && info.get("aof_last_write_status").is_some_and(|it| it != "ok") {
        let found = "it cannot write its append-only file, and refuses every write";
        return Finding::fail(check, found, "make room on its disk, and see its log");
    }
    let stops = settings.stop_writes_on_bgsave_error.as_deref() != Some("no");
    let saves = settings.save.as_deref().is_none_or(|it| !it.is_empty());
    if saves && stops && info.get("rdb_last_bgsave_status").is_some_and(|it| it != "ok") {
        let found = "its last save failed, and until one succeeds it refuses every write";
        return Finding::fail(
            check,
            found,
            "make room on its disk, see its log, then redis-cli BGSAVE",
        );
    }
    if aof {
        let lost = match settings.appendfsync.as_deref() {
            Some("always") => "nothing that was acknowledged is lost",
            Some("no") => {
                "a power cut loses what the kernel had not written yet, often half a minute"
            }
            Some(_) => "a power cut loses up to a second of grants and results",
            None => "a power cut loses what was not on disk yet",
        };
        return Finding::ok(check, format!("append-only file: {lost}; {wait}, owners go on"));
    }
    match settings.save.as_deref() {
        Some("") => Finding::warn(
            check,
            format!(
                "none: a restart forgets everything. Leases are put back by their owners ({wait}), but the \
                 stored sessions and results are gone"
            ),
            "redis-cli CONFIG SET appendonly yes, and the same in redis.conf; or store the sessions anew \
             after each restart",
        ),
        Some(save) => Finding::ok(
            check,
            format!(
                "snapshots (save {save}): a crash loses the sessions changed since the last; {wait}"
            ),
        ),
        None => Finding::ok(
            check,
            format!(
                "no append-only file; whether there are snapshots the server does not tell; {wait}"
            ),
        ),
    }
}

/// What a failover can lose.
pub fn replicas(info: &Info, settings: &Settings, min_replicas: u32) -> Finding {
    let check = "replicas";
    let n = info.number("connected_slaves").unwrap_or(0);
    if n < u64::from(min_replicas) {
        let found =
            format!("{n}, and --min-replicas {min_replicas}: nothing is granted or renewed");
        return Finding::fail(check, found, "bring the replicas back, or lower --min-replicas");
    }
    let good = info.number("min_slaves_good_slaves");
    let told = settings.min_replicas_to_write.as_deref().and_then(|it| it.parse::<u64>().ok());
    // INFO tells of good ones only where some are asked for.
    let wanted = told.or(good.is_none().then_some(0));
    let few = good.zip(wanted).is_some_and(|it| it.0 < it.1);
    if few {
        let found = format!(
            "min-replicas-to-write {}, and {} are there: every write is refused",
            wanted.unwrap_or(0),
            good.unwrap_or(0)
        );
        return Finding::fail(
            check,
            found,
            "bring the replicas back, or lower min-replicas-to-write",
        );
    }
    if n > 0 && u64::from(min_replicas) == n {
        let found = format!(
            "{n}, and --min-replicas {min_replicas}: no failover forgets who owns what; while one of them is \
             away nothing is renewed"
        );
        return Finding::ok(check, found);
    }
    match (n, wanted) {
        (0, _) => Finding::ok(
            check,
            "none: nothing can fail over, and while this server is away nobody polls",
        ),
        (_, Some(0)) => Finding::warn(
            check,
            format!(
                "{n}, and min-replicas-to-write 0: a failover can lose grants that were acknowledged (the \
                 hold-off covers that), and an old master that is cut off together with some instances can \
                 grant what the new one grants, too"
            ),
            "redis-cli CONFIG SET min-replicas-to-write 1, and min-replicas-max-lag at most a third of \
             --lease-ttl; the same in redis.conf; and --min-replicas, as docs/redis.md says",
        ),
        (_, Some(wanted)) => Finding::ok(
            check,
            format!(
                "{n}, and min-replicas-to-write {wanted}: an old master that is cut off stops granting"
            ),
        ),
        (_, None) => {
            Finding::ok(check, format!("{n}, and the server wants some of them for each write"))
        }
    }
}

/// Whether changes are heard of.
pub fn pushes(heard: bool) -> Finding {
    let check = "pushes";
    if heard {
        return Finding::ok(check, "changes of sessions are pushed, and noticed at once");
    }
    Finding::warn(
        check,
        "changes of sessions are not pushed: they are noticed within 2 s, or later with many thousands",
        "allow CLIENT TRACKING (the right +client|tracking), or switch on notify-keyspace-events Kg$sx \
         and allow CONFIG GET, by which that is seen",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::doctor::Grade;

    fn info(text: &str) -> Info {
        Info::parse(&text.replace(' ', "\r\n"))
    }

    #[test]
    fn versions_are_told_apart() {
        for (text, grade, words) in [
            ("redis_version:7.0.15", Grade::Ok, "Redis 7.0.15"),
            ("redis_version:7.2.4 valkey_version:9.1.2", Grade::Ok, "Valkey 9.1.2"),
            ("redis_version:8.0.2", Grade::Ok, "Redis 8.0.2"),
            ("redis_version:7.2.4 redict_version:7.3.6", Grade::Ok, "Redict 7.3.6"),
            ("redis_version:6.2.14", Grade::Warn, "kept from writing sessions"),
            ("redis_version:6.0.16", Grade::Warn, "rights to channels"),
            ("redis_version:5.0.7", Grade::Warn, "has no users"),
            ("redis_version:4.0.9", Grade::Fail, "no script can write"),
            ("", Grade::Warn, "tells no version"),
        ] {
            let it = version(&info(text));
            assert!(it.grade == grade && it.found.contains(words), "{text}: {it:?}");
        }
    }

    #[test]
    fn only_a_master_by_itself_will_do() {
        for (text, grade) in [
            ("role:master redis_mode:standalone cluster_enabled:0", Grade::Ok),
            ("role:slave master_host:h master_port:1", Grade::Fail),
            ("role:master redis_mode:cluster cluster_enabled:1", Grade::Fail),
            ("redis_mode:sentinel", Grade::Fail),
            ("", Grade::Fail),
        ] {
            assert_eq!(role(&info(text), Topology::Tcp).grade, grade, "{text}");
        }
    }

    #[test]
    fn eviction_is_a_fault_where_it_can_happen() {
        let unknown = Settings::default();
        for (text, grade) in [
            ("maxmemory:0 maxmemory_policy:noeviction", Grade::Ok),
            ("maxmemory:100 maxmemory_policy:noeviction", Grade::Ok),
            ("maxmemory:0 maxmemory_policy:allkeys-lru", Grade::Warn),
            ("maxmemory:100 maxmemory_policy:volatile-ttl", Grade::Fail),
        ] {
            assert_eq!(eviction(&info(text), &unknown).grade, grade, "{text}");
        }
    }

    #[test]
    fn writes_that_are_refused_are_a_fault_whatever_refuses_them() {
        let hold_off = Duration::from_secs(31);
        let none = Settings { save: Some(String::new()), ..Settings::default() };
        let some = Settings { save: Some("3600 1".into()), ..Settings::default() };
        let careless = Settings { stop_writes_on_bgsave_error: Some("no".into()), ..some.clone() };
        for (text, settings, grade) in [
            ("aof_enabled:0", &none, Grade::Warn),
            ("aof_enabled:0", &some, Grade::Ok),
            ("aof_enabled:1", &none, Grade::Ok),
            ("aof_enabled:1 aof_last_write_status:err", &none, Grade::Fail),
            ("rdb_last_bgsave_status:err", &some, Grade::Fail),
            ("rdb_last_bgsave_status:err", &careless, Grade::Ok),
            ("loading:1", &some, Grade::Fail),
        ] {
            let it = persistence(&info(text), settings, hold_off);
            assert_eq!(it.grade, grade, "{text} {settings:?}: {it:?}");
        }
        let wants =
            |n: &str| Settings { min_replicas_to_write: Some(n.into()), ..Settings::default() };
        for (text, settings, grade) in [
            ("connected_slaves:0", wants("0"), Grade::Ok),
            ("connected_slaves:2", wants("0"), Grade::Warn),
            ("connected_slaves:2 min_slaves_good_slaves:2", wants("1"), Grade::Ok),
            ("connected_slaves:1 min_slaves_good_slaves:0", wants("1"), Grade::Fail),
            ("connected_slaves:2 min_slaves_good_slaves:2", Settings::default(), Grade::Ok),
            ("connected_slaves:2", Settings::default(), Grade::Warn),
        ] {
            let it = replicas(&info(text), &settings, 0);
            assert_eq!(it.grade, grade, "{text} {settings:?}: {it:?}");
        }
    }

    #[test]
    fn replicas_that_are_waited_for_have_to_be_there() {
        let two = info("role:master connected_slaves:2");
        let few = replicas(&two, &Settings::default(), 3);
        assert!(few.grade == Grade::Fail && few.found.contains("nothing is granted"), "{few:?}");
        let all = replicas(&two, &Settings::default(), 2);
        assert!(all.grade == Grade::Ok && all.found.contains("no failover forgets"), "{all:?}");
        assert_eq!(replicas(&two, &Settings::default(), 1).grade, Grade::Warn);
    }

    #[test]
    fn a_server_has_to_be_of_the_kind_that_the_url_says() {
        let node = info("role:master cluster_enabled:1");
        assert_eq!(role(&node, Topology::Cluster).grade, Grade::Ok);
        assert!(role(&node, Topology::Tcp).way_out.contains("redis+cluster://"));
        let sentinel = info("redis_mode:sentinel");
        assert!(role(&sentinel, Topology::Tcp).way_out.contains("redis+sentinel://"));
    }

    #[test]
    fn latency_is_measured_against_what_a_call_may_take() {
        let ms = Duration::from_millis;
        assert_eq!(latency(ms(1), ms(20), ms(2_000)).grade, Grade::Ok);
        assert_eq!(latency(ms(201), ms(300), ms(2_000)).grade, Grade::Warn);
        assert_eq!(latency(ms(1), ms(1_001), ms(2_000)).grade, Grade::Warn);
    }
}
