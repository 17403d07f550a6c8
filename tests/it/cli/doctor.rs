//! `leasehold doctor`, on servers that were set up badly on purpose.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use testkit::fake::Fake;
use testkit::process::{Instance, TempDir, leasehold_with};
use testkit::redis::{RedisServer, eventually};

/// What it says, with a `systemctl` that prints `units`, or knows no systemd.
struct Doctor {
    bin: TempDir,
}

impl Doctor {
    fn new() -> Self {
        let doctor = Self { bin: TempDir::new() };
        doctor.systemctl("exit 1");
        doctor
    }

    fn systemctl(&self, script: &str) {
        let path = self.bin.path().join("systemctl");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, url: &str, args: &[&str]) -> Output {
        let url = format!("--redis={url}");
        let path = self.bin.path().to_str().unwrap();
        leasehold_with(&[&["doctor", &url, "--for=300ms"], args].concat(), &[("PATH", path)])
    }

    /// Its exit code and its page.
    fn page(&self, url: &str, args: &[&str]) -> (i32, String) {
        let output = self.run(url, args);
        assert!(output.stderr.is_empty(), "{output:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    }

    /// The line of a check, which must have this grade; a failure is the exit code, too.
    #[track_caller]
    fn finds(&self, url: &str, args: &[&str], check: &str, grade: &str) -> String {
        let (code, page) = self.page(url, args);
        assert_eq!(
            code,
            i32::from(page.contains("\nfail ") || page.starts_with("fail ")),
            "{page}"
        );
        let line = page.lines().find(|it| it.split_whitespace().nth(1) == Some(check));
        let line = line.unwrap_or_else(|| panic!("no {check} in\n{page}")).to_owned();
        assert!(line.starts_with(grade), "{page}");
        assert_eq!(line.contains(" → "), grade != "ok", "the way out: {line}");
        line
    }
}

impl Doctor {
    /// What could not be looked at is not called ok.
    #[track_caller]
    fn finds_refusal(&self, url: &str, check: &str) {
        let (_, page) = self.page(url, &[]);
        let line = page.lines().find(|it| it.split_whitespace().nth(1) == Some(check));
        assert!(line.is_some_and(|it| it.starts_with("fail") && it.contains("NOPERM")), "{page}");
    }
}

/// Digits that differ from run to run become one `#`.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' | '.' if out.ends_with('#') => (),
            '0'..='9' => out.push('#'),
            _ => out.push(c),
        }
    }
    out
}

const HEALTHY: &str = "\
ok    connect      redis://#:#/# answers, after # ms
ok    login        as the user default, without a password
ok    latency      median # ms, worst # ms; a call may take #s
ok    version      Redis #
ok    role         a master
ok    eviction     maxmemory-policy noeviction: no lease is evicted
ok    memory       # MiB used, no maxmemory
ok    persistence  append-only file: a power cut loses up to a second of grants and results; for # s after a restart nothing new is granted, owners go on
ok    replicas     none: nothing can fail over, and while this server is away nobody polls
ok    rights       all that is needed: # checked by asking what the server would say
ok    pushes       changes of sessions are pushed, and noticed at once
ok    keys         poll:epoch, poll:drain, poll:history and poll:changes are of their types, or not there
ok    fleet        nobody has run here yet: the first start waits # s before it polls, or not at all with --new-fleet
ok    clock        its rate differs from ours by -# to +# % (# readings in # s); leases allow for # %
ok    descriptors  # open files are enough for --workers #
ok    systemd      no systemd here

# checks: # ok, # to look at, # failed. Nothing was changed; what had to be tried was tried on keys poll:doctor:… that expire.
";

#[test]
fn a_healthy_server_is_told_so_line_by_line() {
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let doctor = Doctor::new();
    let (code, page) = doctor.page(&redis.url(), &["--for=1s"]);
    let shown = without_numbers(&page);
    let shown = shown.replace("by +#", "by -#").replace("to -#", "to +#");
    assert_eq!(shown, HEALTHY, "{page}");
    assert_eq!(code, 0);
    let json = doctor.run(&redis.url(), &["--json", "--for=1s"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["healthy"], true);
    assert_eq!(json["missingRights"], Value::Array(vec![]));
    assert!(json["aclRule"].as_str().unwrap().starts_with("redis-cli ACL SETUSER leasehold on"));
    let checks = json["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 16);
    for (check, line) in checks.iter().zip(HEALTHY.lines()) {
        assert_eq!(check.as_object().unwrap().len(), 4, "{check}");
        assert_eq!(check["check"].as_str(), line.split_whitespace().nth(1));
        assert_eq!((check["grade"].as_str(), &check["wayOut"]), (Some("ok"), &Value::Null));
        assert!(check["found"].is_string());
    }
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
}

#[test]
fn eviction_and_no_persistence_are_found_with_the_way_out() {
    let doctor = Doctor::new();
    let redis = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let url = redis.url();
    let line = doctor.finds(&url, &[], "eviction", "warn");
    assert!(line.contains("allkeys-lru"), "{line}");
    redis.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let line = doctor.finds(&url, &[], "eviction", "fail");
    assert!(line.contains("CONFIG SET maxmemory-policy noeviction"), "{line}");
    let line = doctor.finds(&url, &[], "persistence", "warn");
    assert!(line.contains("put back by their owners") && line.contains("sessions"), "{line}");
    // A user who may not see the settings learns of it all the same.
    let rule = ["ACL", "SETUSER", "joe", "on", ">pw", "~*", "&*", "+@all", "-config"];
    assert_eq!(redis.cli(&rule), "OK");
    let joe = url.replace("redis://", "redis://joe:pw@");
    doctor.finds(&joe, &[], "eviction", "fail");
    doctor.finds(&joe, &[], "persistence", "ok");
}

#[test]
fn a_replica_is_no_place_for_leases_and_a_master_with_one_is_warned() {
    let doctor = Doctor::new();
    let master = RedisServer::start();
    let port = master.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let line = doctor.finds(&replica.url(), &[], "role", "fail");
    assert!(line.contains(&format!("connect to its master, 127.0.0.1:{port}")), "{line}");
    eventually(
        || master.cli(&["INFO", "replication"]).contains("state=online"),
        || master.cli(&["INFO", "replication"]),
    );
    let line = doctor.finds(&master.url(), &[], "replicas", "warn");
    assert!(line.contains("min-replicas-to-write 1"), "{line}");
    master.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    doctor.finds(&master.url(), &[], "replicas", "ok");
    master.cli(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    doctor.finds(&master.url(), &[], "replicas", "fail");
}

/// The words behind `ACL` of the rule that a page ends with.
fn rule_of(page: &str) -> Vec<String> {
    let rule = page.split("redis-cli ").nth(1).unwrap().split("\n\n").next().unwrap();
    rule.replace("\\\n", " ").replace('\'', "").split_whitespace().map(String::from).collect()
}

#[test]
fn a_missing_right_is_named_and_the_rule_that_is_shown_gives_it() {
    let doctor = Doctor::new();
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let url = redis.url().replace("redis://", "redis://joe:hunter2@");
    let all = "+@all ~* &*";
    for (rights, missing, grade) in [
        ("-hset", "+hset", "fail"),
        ("-evalsha", "+evalsha", "warn"),
        ("-msetnx", "+msetnx", "warn"),
        ("-pexpireat", "+pexpireat", "warn"),
        ("-subscribe", "+subscribe", "warn"),
        ("-set -pexpire", "+set, +pexpire", "fail"),
        ("-client|tracking", "+client|tracking", "warn"),
        ("resetkeys ~poll:* ~leader:*", "%R~session:* (denied: STRLEN session:doctor)", "fail"),
        ("resetkeys %R~poll:* ~session:* ~leader:*", "~poll:* (denied: EVAL return 1 1", "fail"),
        ("resetkeys ~poll:* ~session:*", "~leader:* (denied: ", "warn"),
        ("resetchannels &leader:*", "&poll:* (denied: ", "warn"),
        ("resetchannels &poll:*", "&leader:* (denied: ", "warn"),
    ] {
        // Both ways to find out: asking what the server would say, and trying.
        for way in ["+acl", "-acl"] {
            let rule = format!("ACL SETUSER joe reset on >hunter2 {all} {rights} {way}");
            let rule: Vec<&str> = rule.split(' ').collect();
            assert_eq!(redis.cli(&rule), "OK", "{rule:?}");
            let line = doctor.finds(&url, &[], "rights", grade);
            assert!(line.contains(missing), "{way}: {missing} is not in {line}");
            assert!(line.contains("paste the rule below"), "{line}");
            let (_, page) = doctor.page(&url, &[]);
            let rule = rule_of(&page);
            assert_eq!(rule[..4], ["ACL", "SETUSER", "joe", "on"]);
            assert!(!page.contains("hunter2"), "{page}");
            let pasted: Vec<&str> = rule.iter().map(String::as_str).collect();
            assert_eq!(redis.cli(&pasted), "OK");
            let line = doctor.finds(&url, &[], "rights", "ok");
            assert!(line.contains("by trying"), "this rule gives no more than is needed: {line}");
            let (code, page) = doctor.page(&url, &[]);
            assert!(code == 0 && !page.contains("warn  "), "{page}");
        }
    }
    assert_eq!(redis.cli(&["KEYS", "*"]), "", "nothing is left behind");
    let mut daemon = Instance::start_at(&url, &["--new-fleet"]);
    daemon.wait_for("event=daemon.ready");
    assert!(daemon.term().success());
}

/// A pasted rule must not give a user more rights than it had, nor lock others out.
#[test]
fn no_rule_that_is_shown_changes_a_user_unsaid() {
    let doctor = Doctor::new();
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let url = redis.give_rule("onlooker");
    for way in ["+acl", "-acl"] {
        redis.cli(&["ACL", "SETUSER", "onlooker", way]);
        let line = doctor.finds(&url, &[], "rights", "fail");
        assert!(line.contains("may only look") && line.contains("a user of its own"), "{line}");
        let (_, page) = doctor.page(&url, &[]);
        let rules: Vec<&str> = page.lines().filter(|it| it.contains("ACL SETUSER")).collect();
        assert_eq!(rules.len(), 2, "{page}");
        assert!(rules[0].starts_with("redis-cli ACL SETUSER leasehold on '>PASSWORD'"), "{page}");
        assert!(rules[1].starts_with("redis-cli ACL SETUSER onlooker on resetkeys"), "{page}");
        assert!(page.contains("no other user is changed:\nredis-cli"), "{page}");
        assert!(page.contains("For people who only look:\nredis-cli"), "{page}");
    }
    redis.cli(&["ACL", "SETUSER", "onlooker", "-type"]);
    doctor.finds_refusal(&url, "keys");
    redis.cli(&["ACL", "SETUSER", "joe", "on", ">pw", "~*", "&*", "+@all", "-hset"]);
    let (_, page) = doctor.page(&redis.url().replace("redis://", "redis://joe:pw@"), &[]);
    assert!(page.contains("For the daemon: the user joe may do this and nothing else"), "{page}");
    redis.cli(&["ACL", "SETUSER", "default", "-hset"]);
    let (_, page) = doctor.page(&redis.url(), &[]);
    assert!(page.contains("SETUSER leasehold on") && !page.contains("SETUSER default"), "{page}");
}

#[test]
fn a_wrong_password_is_told_without_it() {
    let doctor = Doctor::new();
    let redis = RedisServer::start_with(&["--requirepass", "hunter2"]);
    for user in ["", ":wrong-one@", "joe:wrong-one@"] {
        let url = redis.url().replace("redis://", &format!("redis://{user}"));
        let (code, page) = doctor.page(&url, &[]);
        assert!(code == 1 && page.starts_with("fail  login"), "{page}");
        assert!(page.contains("check the user and the password"), "{page}");
        assert!(!page.contains("wrong-one") && !page.contains("hunter2"), "{page}");
    }
}

#[test]
fn a_server_that_is_away_or_silent_is_told_within_the_timeout() {
    let doctor = Doctor::new();
    let (code, page) = doctor.page("redis://127.0.0.1:1", &[]);
    assert!(code == 1 && page.starts_with("fail  connect"), "{page}");
    assert!(page.contains("refused") && page.contains("check that it runs"), "{page}");
    let silent = Fake::serving(|mut stream| {
        let mut bytes = [0; 1024];
        while stream.read(&mut bytes).is_ok_and(|it| it > 0) {}
    });
    let began = Instant::now();
    let (code, page) = doctor.page(&silent.url(), &["--store-timeout=300ms"]);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(code == 1 && page.starts_with("fail  connect") && page.contains("no answer"), "{page}");
    let json = doctor.run(&silent.url(), &["--store-timeout=300ms", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["healthy"], &json["checks"][0]["grade"]), (&false.into(), &"fail".into()));
    let nonsense = Fake::serving(|mut stream| drop(stream.write_all(b"HTTP/1.1 400 Bad\r\n\r\n")));
    let (code, page) = doctor.page(&nonsense.url(), &["--store-timeout=300ms"]);
    assert!(code == 1 && page.starts_with("fail  connect"), "{page}");
}

/// Passes everything on to `port`, but tells the time by `clock`, of the seconds since it began.
fn with_clock(port: u16, clock: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Fake {
    let (began, wall) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
    Fake::serving(move |mut near: TcpStream| {
        let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)) else { return };
        near.set_nodelay(true).unwrap();
        let (mut from, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || drop(std::io::copy(&mut from, &mut to)));
            let mut bytes = [0; 16 * 1024];
            // One question at a time: each is one read.
            while let Ok(n @ 1..) = near.read(&mut bytes) {
                if bytes[..n].ends_with(b"\r\nTIME\r\n") {
                    let time = wall.as_secs_f64() + clock(began.elapsed().as_secs_f64());
                    let (s, us) = (time.floor(), (time.fract() * 1e6).floor());
                    let (s, us) = (s.to_string(), us.to_string());
                    let reply = format!("*2\r\n${}\r\n{s}\r\n${}\r\n{us}\r\n", s.len(), us.len());
                    drop(near.write_all(reply.as_bytes()));
                } else if far.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
            drop(far.shutdown(std::net::Shutdown::Both));
        });
    })
}

#[test]
fn a_clock_that_drifts_or_steps_is_noticed() {
    let doctor = Doctor::new();
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let watch = ["--for=1s"];
    let steady = with_clock(redis.port(), |it| it);
    doctor.finds(&steady.url(), &watch, "clock", "ok");
    let fast = with_clock(redis.port(), |it| it * 1.10);
    let line = doctor.finds(&fast.url(), &watch, "clock", "fail");
    assert!(line.contains("its rate differs from ours by +"), "{line}");
    let slow = with_clock(redis.port(), |it| it * 0.99);
    doctor.finds(&slow.url(), &watch, "clock", "warn");
    let steps = with_clock(redis.port(), |it| it + (it / 0.7).floor() * 2.0);
    let line = doctor.finds(&steps.url(), &watch, "clock", "fail");
    assert!(line.contains("it stepped forward by "), "{line}");
}

#[test]
fn another_timing_and_a_hold_off_are_told() {
    let doctor = Doctor::new();
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let url = redis.url();
    let epoch = |since_ms: &str, ttl_ms: &str| {
        let fields =
            ["epoch", "7", "since_ms", since_ms, "lease_ttl_ms", ttl_ms, "margin_ms", "1000"];
        redis.cli(&[&["HSET", "poll:epoch"], &fields[..]].concat());
    };
    epoch("1", "30000");
    let line = doctor.finds(&url, &[], "fleet", "ok");
    assert!(line.contains("no hold-off"), "{line}");
    let line = doctor.finds(&url, &["--lease-ttl=20s"], "fleet", "fail");
    assert!(line.contains("--lease-ttl 30s, and we have 20s: run will be refused"), "{line}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().to_string();
    epoch(&now, "30000");
    let line = doctor.finds(&url, &[], "fleet", "warn");
    assert!(line.contains("hold-off: nothing is granted for another 3"), "{line}");
}

/// Deleting is all that helps, so what that means is said.
#[test]
fn keys_of_a_wrong_type_are_told_with_what_deleting_them_means() {
    let doctor = Doctor::new();
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let url = redis.url();
    for (key, grade, means) in [
        ("poll:epoch", "fail", "redis-cli DEL poll:epoch; costs one hold-off"),
        ("poll:drain", "warn", "redis-cli DEL poll:drain; nobody is drained then"),
        ("poll:history", "warn", "redis-cli DEL poll:history; nothing else depends on it"),
    ] {
        redis.cli(&["SET", key, "no more"]);
        let line = doctor.finds(&url, &[], "keys", grade);
        assert!(line.contains(&format!("{key} is of the type string, not ")), "{line}");
        assert!(line.contains(means), "{line}");
        let (_, page) = doctor.page(&url, &[]);
        assert_eq!(page.contains("nobody has run here yet"), key != "poll:epoch", "{page}");
        redis.cli(&["DEL", key]);
    }
    doctor.finds(&url, &[], "keys", "ok");
}

#[test]
fn the_unit_and_the_directories_of_this_host_are_looked_at() {
    let doctor = Doctor::new();
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let url = redis.url();
    doctor.systemctl("echo Id=leasehold.service; echo Type=simple; echo TimeoutStopUSec=5s");
    let line = doctor.finds(&url, &[], "systemd", "warn");
    for words in ["no ExecStopPost", "not notify", "no WatchdogSec", "TimeoutStopSec is not above"]
    {
        assert!(line.contains(words), "{words}: {line}");
    }
    doctor.systemctl("exec sleep 1000");
    fs::copy("/bin/sleep", doctor.bin.path().join("sleep")).unwrap();
    let began = Instant::now();
    doctor.finds(&url, &[], "systemd", "ok");
    assert!(began.elapsed() < Duration::from_secs(12), "one that hangs is not waited for");
    doctor.systemctl("exit 1");
    let dir = TempDir::new();
    doctor.finds(&url, &[&dir.option("runtime-dir")], "files", "ok");
    let line = doctor.finds(&url, &["--runtime-dir=/nonexistent/dir"], "files", "fail");
    assert!(line.contains("RuntimeDirectory=leasehold"), "{line}");
    let line = doctor.finds(&url, &["--metrics-file=/nonexistent/m.prom"], "files", "warn");
    assert!(line.contains("no metrics"), "{line}");
}
