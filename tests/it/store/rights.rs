//! The rules of docs/redis.md: enough for everything that is promised under them, and nothing in them that is
//! not needed or whose lack is not told by name.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use testkit::lead::kill_with_supervisor;
use testkit::process::{Instance, SOON, Scene, TempDir, binary, eventually, leasehold, run_args};
use testkit::redis::{RedisServer, USER_PASSWORD, tells_reading};

const TTL: &str = "--lease-ttl=3s";

/// Everything that a program printed, to be searched for a password at the end.
#[derive(Default)]
struct Printed(Vec<String>);

impl Printed {
    /// Runs a command that must succeed.
    fn by(&mut self, args: &[&str]) -> String {
        let output = leasehold(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        self.0.extend([said, shown.clone()]);
        shown
    }

    fn assert_silent_about(&self, password: &str) {
        assert!(self.0.len() > 10 && self.0.iter().any(|it| it.contains("lease.acquired")));
        for text in &self.0 {
            assert!(!text.contains(password), "it says the password: {text}");
        }
    }
}

/// FR-001…: a whole fleet, a role, a command on the leader, metrics, history, drain and release.
#[test]
fn a_fleet_with_just_the_rights_of_the_page_does_everything_and_never_says_its_password() {
    let scene = Scene::new(6);
    let url = scene.redis.give_rule("leasehold");
    let (redis, dir) = (format!("--redis={url}"), TempDir::new());
    let mut printed = Printed::default();
    let metrics = dir.path().join("leasehold.prom");
    let file = format!("--metrics-file={}", metrics.display());
    let talkative = ["--new-fleet", "--lead=alpha", "--log-level=trace", "--log-renewals=each"];
    let mut one = Instance::start_at(&url, &[&talkative[..], &[&file, "--host-name=one"]].concat());
    one.wait_for("event=daemon.ready");
    one.wait_for("event=leader.elected");
    let runtime_dir = format!("--runtime-dir={}", dir.path().display());
    let args = ["--lead=alpha", "--host-name=two", &runtime_dir];
    let mut two = Instance::start_at(&url, &args);
    scene.wait_for_balance(&[&one, &two], SOON);
    let mut lead = Command::new(binary());
    let mut leader = Instance::spawn(lead.args(["lead", "job", &redis, TTL, "--", "sleep", "60"]));
    leader.wait_for("event=leader.elected");

    // An operator drains one; the instances only read that.
    let admin = format!("--redis={}", scene.redis.url());
    printed.by(&["drain", "two", &admin]);
    scene.wait_for_balance(&[&one], SOON);
    printed.by(&["undrain", "two", &admin]);
    scene.wait_for_balance(&[&one, &two], SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);

    // One is killed, and what systemd runs then gives its leases back.
    two.kill9();
    let told = printed.by(&["release", &redis, "--instance", &two.id(), "--force"]);
    assert!(told.contains("released 3 leases"), "{told}");
    let told = printed.by(&["release", &redis, &runtime_dir]);
    assert!(told.contains(&two.id()), "{told}");
    scene.wait_for_balance(&[&one], SOON);

    let told = printed.by(&["leaders", &redis]);
    assert!(told.contains("alpha") && told.contains("job"), "{told}");
    printed.by(&["resign", "job", &redis]);
    leader.wait_for("event=leader.resigned");
    printed.by(&["once", "daily", &redis, TTL, "--", "true"]);
    let doctor = printed.by(&["doctor", "--for=100ms", &redis, TTL]);
    assert!(doctor.contains("all that is needed"), "{doctor}");

    let url = scene.redis.give_rule("onlooker");
    let onlooker = format!("--redis={url}");
    printed.by(&["doctor", "--purpose=onlooker", "--for=10ms", &onlooker]);
    watch_shows(&url, &[]);
    watch_shows(&url, &["e1"]);
    for args in [&["leaders"][..], &["sessions", "list"]] {
        printed.by(&[args, &[&onlooker]].concat());
    }
    eventually(SOON, "both hand-overs in the history", String::new, || {
        let told = printed.by(&["history", &onlooker]);
        told.contains("drain") && told.contains("handover")
    });
    for args in [
        &["status"][..],
        &["top", "--json"],
        &["get", "e1"],
        &["explain", "e1"],
        &["plan", "--join=1"],
    ] {
        printed.by(&[args, &[&onlooker]].concat());
        // Also on the VM of an instance, with its settings.
        printed.by(&[args, &[&redis]].concat());
    }
    for user in [&redis, &onlooker] {
        let shown = printed.by(&["status", user]);
        assert!(shown.contains("POLLING") && shown.contains(env!("CARGO_PKG_VERSION")), "{shown}");
    }
    printed.by(&["history", &redis]);
    eventually(SOON, "metrics", String::new, || {
        let text = fs::read_to_string(&metrics).unwrap_or_default();
        let mut lines = text.lines();
        lines.any(|it| it.starts_with("leasehold_leases_owned{") && it.ends_with("} 6"))
    });
    printed.0.push(fs::read_to_string(&metrics).unwrap());
    leader.term();
    assert!(one.term().success());
    for it in [&one, &two, &leader] {
        let log = it.log().join("\n");
        for trouble in ["NOPERM", "permission", "can't", "history.failed", "lease.failed"] {
            assert!(!log.contains(trouble), "{trouble}: {log}");
        }
        printed.0.push(log);
    }
    printed.assert_silent_about(USER_PASSWORD);
}

/// A command that is in no row of the page has no rule that is known to be enough for it.
#[test]
fn every_command_that_asks_redis_is_in_the_table_of_rules() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md"));
    let table = page.split("| the user is for |").nth(1).unwrap().split("\n\n").next().unwrap();
    let help = String::from_utf8(leasehold(&["--help"]).stdout).unwrap();
    let listed = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands: Vec<&str> =
        listed.lines().filter_map(|it| it.split_whitespace().next()).collect();
    assert!(commands.len() > 15, "{commands:?}");
    for command in commands {
        let help = String::from_utf8(leasehold(&[command, "--help"]).stdout).unwrap();
        // It runs as the user that it examines.
        if !help.contains("--redis URL") || command == "doctor" {
            continue;
        }
        let is_there = table.contains(&format!("`{command}`"))
            || table.contains(&format!("`{command} "))
            || table.contains(&format!("every verb of `{command}`"));
        assert!(is_there, "{command} is in no row of docs/redis.md: {table}");
    }
}

/// The rights in the rule of docs/redis.md for `user`.
fn rights_of(user: &str) -> Vec<String> {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md"));
    let rule = page.split(&format!("redis-cli ACL SETUSER {user} ")).nth(1).unwrap();
    let rule = rule.split("```").next().unwrap().replace(['\'', '\\'], " ");
    let rights = rule.split_whitespace().filter(|it| it.starts_with(['+', '~', '%', '&']));
    rights.map(as_known_here).collect()
}

/// As the page says itself, of older servers.
fn as_known_here(right: &str) -> String {
    if tells_reading() { right.into() } else { right.replace("%R~", "~") }
}

/// A user with the rights of the daemon, but for one.
fn lacking(redis: &RedisServer, right: &str) -> String {
    user_lacking(redis, "leasehold", right)
}

/// The `user` of docs/redis.md, with all of its rights but one.
fn user_lacking(redis: &RedisServer, user: &str, right: &str) -> String {
    let url = redis.give_rule(user);
    let rights = rights_of(user);
    let mut rule = vec!["ACL", "SETUSER", user, "resetkeys", "resetchannels", "-@all"];
    rule.extend(rights.iter().map(String::as_str).filter(|it| *it != right));
    assert_eq!(redis.cli(&rule), "OK");
    url
}

/// Nothing can be taken away unnoticed, so the rule has nothing in it that nobody knows the use of.
#[test]
fn each_right_of_the_rule_is_named_when_it_is_the_only_one_that_is_missing() {
    let redis = RedisServer::start();
    let rights = rights_of("leasehold");
    assert!(rights.len() > 30, "{rights:?}");
    for right in rights {
        let url = lacking(&redis, &right);
        let redis = format!("--redis={url}");
        let output = leasehold(&["doctor", "--json", "--for=10ms", &redis]);
        let text = String::from_utf8(output.stdout).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{right}: {text}"));
        let missing = json["missingRights"].as_array().unwrap();
        let named = missing.iter().any(|it| it["right"] == right.as_str());
        assert!(named, "{right} is not named: {text}");
        assert!(!text.contains(USER_PASSWORD), "{text}");
    }
}

/// What ARCHITECTURE lists; a rule that is narrower than ours and forgets one of them.
const FAMILIES: [&str; 8] =
    ["lease:*", "node:*", "result:*", "ask:*", "grants:*", "epoch", "drain", "fence"];

#[test]
fn a_rule_that_lacks_some_of_the_keys_lacks_them_all_as_doctor_says() {
    let redis = RedisServer::start();
    for family in FAMILIES {
        let url = lacking(&redis, "~poll:*");
        for other in FAMILIES.iter().filter(|it| **it != family) {
            redis.cli(&["ACL", "SETUSER", "leasehold", &format!("~poll:{other}")]);
        }
        redis.cli(&["ACL", "SETUSER", "leasehold", "~poll:doctor:*", "~poll:history"]);
        let output = leasehold(&["doctor", "--json", "--for=10ms", &format!("--redis={url}")]);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let missing = json["missingRights"].as_array().unwrap();
        let named = missing.iter().any(|it| it["right"] == "~poll:*");
        assert!(named, "without poll:{family} nothing is said to be missing: {missing:?}");
    }
}

/// What an instance does before it polls anything needs these.
const AT_THE_START: [&str; 19] = [
    "~poll:*",
    "%R~session:*",
    "+eval",
    "+info",
    "+time",
    "+scan",
    "+type",
    "+exists",
    "+get",
    "+mget",
    "+del",
    "+strlen",
    "+getrange",
    "+pexpire",
    "+pttl",
    "+hget",
    "+hset",
    "+hmget",
    "+set",
];

/// Keys that an acquire writes: a rule that is narrower than ours and forgets one of them.
const TAKEN_WITH: [&str; 5] = ["lease:*", "result:*", "grants:*", "fence", "epoch"];

/// The server's own words seldom say which right it was.
#[test]
fn an_instance_that_is_denied_something_at_its_start_names_the_right() {
    let redis = RedisServer::start();
    for right in AT_THE_START.map(as_known_here) {
        let args = run_args(&lacking(&redis, &right), &["--new-fleet"]);
        let output = leasehold(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{right}: {said}");
        let last = said.lines().last().unwrap();
        assert!(
            last.contains("permissions") && last.ends_with(&format!("it lacks {right}")),
            "{said}"
        );
        assert!(!said.contains(USER_PASSWORD), "{said}");
    }
}

/// One that could ask and not take would pull leases off the fleet again and again.
#[test]
fn an_instance_that_may_not_touch_a_key_that_an_acquire_needs_ends_at_its_start() {
    let redis = RedisServer::start();
    for family in TAKEN_WITH {
        let url = lacking(&redis, "~poll:*");
        for other in FAMILIES.iter().filter(|it| **it != family) {
            redis.cli(&["ACL", "SETUSER", "leasehold", &format!("~poll:{other}")]);
        }
        let output = leasehold(&run_args(&url, &["--new-fleet"]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{family}: {said}");
        assert!(said.lines().last().unwrap().contains("permissions"), "{family}: {said}");
        assert_eq!(redis.cli(&["KEYS", "poll:node:*"]), "", "{family}: nobody is counted");
    }
}

/// What is denied only later is told in the log, with the way to find out.
#[test]
fn an_instance_that_is_denied_something_later_says_who_names_the_right() {
    let scene = Scene::new(1);
    // Where nothing is pushed, everything is read every second.
    let one = Instance::start_at(&lacking(&scene.redis, "+client|tracking"), &["--new-fleet"]);
    one.wait_for("event=lease.acquired");
    assert_eq!(scene.redis.cli(&["ACL", "SETUSER", "leasehold", "-mget"]), "OK");
    let line = one.wait_for("event=store.unreachable");
    assert!(line.contains("leasehold doctor names what run lacks"), "{line}");
}

/// `watch` as this user shows a result, and complains of nothing.
#[track_caller]
fn watch_shows(url: &str, args: &[&str]) {
    let mut command = Command::new(binary());
    let redis = format!("--redis={url}");
    command.args(["watch", &redis]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let found = lines.find(|it| it.as_ref().is_ok_and(|it| it.contains("duration_ms=")));
        let _ = tell.send(found.is_some());
    });
    let found = told.recv_timeout(SOON);
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    reader.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(found == Ok(true) && said.is_empty(), "watch {args:?} shows no result: {said}");
}

/// What an operator does, each under exactly its rule; what onlookers do is part of it.
#[test]
fn an_operator_with_just_its_rights_does_everything_that_the_readme_says() {
    let scene = Scene::new(4);
    let url = scene.redis.give_rule("operator");
    let redis = format!("--redis={url}");
    let one = scene.first(&["--host-name=one"]);
    let mut two = scene.join(&["--host-name=two"]);
    scene.wait_for_balance(&[&one, &two], SOON);
    let admin = format!("--redis={}", scene.redis.url());
    let mut lead = Command::new(binary());
    let leader = Instance::spawn(lead.args([
        "lead",
        "job",
        &admin,
        TTL,
        "--new-fleet",
        "--",
        "sleep",
        "60",
    ]));
    leader.wait_for("event=leader.elected");
    let mut printed = Printed::default();
    let mut by = |args: &[&str]| printed.by(&[args, &[&redis]].concat());
    by(&["sessions", "add", "127.0.0.1:1", "--id", "x1"]);
    by(&["sessions", "pause", "x1"]);
    by(&["sessions", "resume", "x1"]);
    by(&["sessions", "list"]);
    by(&["sessions", "remove", "x1"]);
    let dir = TempDir::new();
    let file = dir.path().join("sessions");
    fs::write(&file, scene.target.session("e1").to_string()).unwrap();
    by(&["sessions", "import", file.to_str().unwrap()]);
    // An administrator finds the rule where the errors send people.
    let page = printed.by(&["doctor", "--purpose=operator", "--for=10ms", &admin]);
    assert!(page.contains("redis-cli ACL SETUSER operator on '>PASSWORD'"), "{page}");
    let mut by = |args: &[&str]| printed.by(&[args, &[&redis]].concat());
    by(&["drain", "two", "--wait=15s"]);
    by(&["undrain", "two"]);
    scene.wait_for_balance(&[&one, &two], SOON);
    for args in [
        &["status"][..],
        &["top", "--json"],
        &["explain", "e1"],
        &["plan", "--join=1"],
        &["history"],
        &["leaders"],
        &["resign", "job"],
        &["doctor", "--purpose=operator", "--for=10ms"],
    ] {
        by(args);
    }
    watch_shows(&url, &[]);
    leader.wait_for("event=leader.resigned");
    two.kill9();
    let told = by(&["release", "--instance", &two.id(), "--force"]);
    assert!(told.contains("released 2 leases"), "{told}");
    scene.wait_for_balance(&[&one], SOON);
}

/// `lead`, `once`, and what systemd runs after one of them was killed.
#[test]
fn an_elector_with_just_its_rights_leads_and_is_released() {
    let redis = RedisServer::start();
    let (url, dir) = (redis.give_rule("elector"), TempDir::new());
    let (redis_is, runtime_dir) =
        (format!("--redis={url}"), format!("--runtime-dir={}", dir.path().display()));
    let mut lead = Command::new(binary());
    let mut leader = Instance::spawn(lead.args([
        "lead",
        "job",
        &redis_is,
        TTL,
        "--new-fleet",
        &runtime_dir,
        "--",
        "sleep",
        "60",
    ]));
    leader.wait_for("event=leader.elected");
    let beat =
        || redis.cli(&["GET", &format!("leader:heartbeat:{}", redis.cli(&["GET", "leader:job"]))]);
    let first = beat();
    eventually(SOON, "a renewal", beat, || beat() != first);
    let output = leasehold(&["once", "daily", &redis_is, TTL, "--log-level=info", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("WARN"), "{said}");
    kill_with_supervisor(&mut leader);
    let output = leasehold(&["release", &redis_is, &runtime_dir]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.starts_with("released 1 role of"), "{output:?}");
    assert_eq!(redis.cli(&["EXISTS", "leader:job"]), "0");
    let output = leasehold(&["doctor", "--purpose=elector", "--for=10ms", &redis_is]);
    assert!(output.status.success(), "{output:?}");
    let log = leader.log().join("\n");
    assert!(!log.contains("permission") && !log.contains("can't"), "{log}");
}

/// Rights whose lack makes nothing fail. `doctor` names them all the same.
const UNFELT: [(&str, &[&str]); 3] = [
    // Types are told to those who may ask; `watch` says on stderr what it does not show; a connection that was idle is
    // made anew where it may not be pinged.
    ("onlooker", &["&poll:results:*", "+type", "+xrange", "+subscribe", "+psubscribe", "+ping"]),
    // The same; a script that is not known by its hash is sent whole, and the other way round; messages are hints;
    // the fence of a dead instance is raised if it can be; a result that is remembered without end does no harm.
    (
        "operator",
        &[
            "&poll:*",
            "&poll:results:*",
            "+type",
            "+xrange",
            "+subscribe",
            "+psubscribe",
            "+ping",
            "+eval",
            "+evalsha",
            "+publish",
            "&leader:*",
            "+hget",
            "+hset",
            "+pexpire",
        ],
    ),
    (
        "elector",
        // Without a history, a run is not remembered.
        &[
            "+xadd",
            "+xrevrange",
            "&leader:*",
            "+eval",
            "+evalsha",
            "+publish",
            "+subscribe",
            "+ping",
            "+pexpire",
            "+hkeys",
        ],
    ),
];

/// Something of everything that the scripts and the readers touch, in the database 1.
fn furnish(redis: &RedisServer) {
    let mut to = redis.connect().unwrap();
    let mut put = |words: &[&str]| {
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut to).unwrap_or_else(|it| panic!("{it}"));
    };
    put(&["FLUSHALL"]);
    put(&["SELECT", "1"]);
    put(&["SET", "session:e1", r#"{"id":"e1","address":"h:1"}"#]);
    for host in ["vm1", "vm2"] {
        put(&["SET", &format!("poll:node:{host}-1794821395633051180-75ceaf55"), "1"]);
    }
    put(&["SET", "poll:lease:e1", "dead-1", "PX", "100000"]);
    put(&["HSET", "poll:result:e1", "granted", "5"]);
    put(&["XADD", "poll:history", "*", "event", "started", "instance", "dead-1", "endpoint", ""]);
    put(&["HSET", "leader:epoch", "epoch", "5", "term:job", "7", "lease_ttl_ms:job", "30000"]);
    put(&["SET", "leader:job", "dead-1", "PX", "20000"]);
}

fn commands_of(user: &str) -> Vec<Vec<&'static str>> {
    let looking = [
        "status",
        "top --json",
        "get e1 --body",
        "explain e1",
        "plan",
        "history",
        "history --role job",
        "sessions export",
        "leaders",
        "sessions list",
    ];
    let operating = [
        "sessions add h:1 --id x",
        "sessions set x name=y",
        "sessions pause x --for 1h",
        "sessions remove x",
        "drain vm1",
        "undrain vm1",
        "release --instance dead-1",
    ];
    let electing = ["once daily --lease-ttl 3s --new-fleet --log-level info -- true"];
    let lines: Vec<&str> = match user {
        "onlooker" => looking.to_vec(),
        "operator" => looking.into_iter().chain(operating).collect(),
        _ => electing.to_vec(),
    };
    lines.into_iter().map(|it| it.split(' ').collect()).collect()
}

/// The error points to the rule that has the right, and names it.
#[test]
fn each_right_that_a_purpose_lacks_is_named_by_doctor_and_by_the_command_that_needs_it() {
    let redis = RedisServer::start();
    for (user, unfelt) in UNFELT {
        let unfelt: Vec<String> = unfelt.iter().map(|it| as_known_here(it)).collect();
        for right in rights_of(user) {
            let url = user_lacking(&redis, user, &right).replace("/0", "/1");
            let doctor = ["doctor", "--json", "--for=10ms", "--purpose", user, "--redis", &url];
            let doctor = String::from_utf8(leasehold(&doctor).stdout).unwrap();
            assert!(doctor.contains(&right), "doctor does not name {right} of {user}: {doctor}");
            furnish(&redis);
            if user == "elector" {
                redis.cli(&["FLUSHALL"]);
            }
            let mut said = String::new();
            for args in commands_of(user) {
                let options = [&["--redis", &url][..], &args[1..]].concat();
                let output = leasehold(&[&args[..1], &options].concat());
                said += &String::from_utf8_lossy(&output.stderr);
                said += &String::from_utf8_lossy(&output.stdout);
                if said.lines().any(|it| names(it, user, &right)) {
                    break;
                }
            }
            assert!(!said.contains(USER_PASSWORD), "{said}");
            let felt = said.lines().any(|it| names(it, user, &right));
            assert_eq!(felt, !unfelt.contains(&right), "without {right} {user} is told: {said}");
        }
    }
}

/// Whether this error names the right, and points to the rule of the purpose or to one that it includes.
fn names(line: &str, user: &str, right: &str) -> bool {
    let purposes = if user == "operator" { &["operator", "onlooker"][..] } else { &[user] };
    // Onlookers only need to read what operators change.
    let rights = [right.to_owned(), as_known_here(&format!("%R{right}"))];
    let named = rights.iter().any(|it| line.ends_with(&format!("it lacks {it}")))
        || line.contains(&format!("'{}'", right.trim_start_matches('+')));
    // What is denied later is told in the log, with the way to find out; the server's words do not name it.
    let later = user == "elector" && line.contains("event=store.unreachable");
    later && line.contains("doctor --purpose elector what lead and once lack")
        || named
            && purposes
                .iter()
                .any(|it| line.contains(&format!("doctor --purpose {it} prints them")))
}
