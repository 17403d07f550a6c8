//! The rules of the README: enough for everything that is promised under them, and nothing in them that is
//! not needed or whose lack is not told by name.

use std::fs;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::support::process::{
    BINARY, Instance, SOON, Scene, TempDir, eventually, leasehold, run_args,
};
use crate::support::redis::{RedisServer, USER_PASSWORD, tells_reading};

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
fn a_fleet_with_just_the_rights_of_the_readme_does_everything_and_never_says_its_password() {
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
    let mut two = Instance::start_at(&url, &["--lead=alpha", "--host-name=two"]);
    scene.wait_for_balance(&[&one, &two], SOON);
    let mut lead = Command::new(BINARY);
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
    scene.wait_for_balance(&[&one], SOON);

    let told = printed.by(&["leaders", &redis]);
    assert!(told.contains("alpha") && told.contains("job"), "{told}");
    printed.by(&["resign", "job", &redis]);
    leader.wait_for("event=leader.resigned");
    printed.by(&["once", "daily", &redis, TTL, "--", "true"]);
    let doctor = printed.by(&["doctor", "--for=100ms", &redis, TTL]);
    assert!(doctor.contains("all that is needed"), "{doctor}");

    let onlooker = format!("--redis={}", scene.redis.give_rule("onlooker"));
    eventually(SOON, "both hand-overs in the history", String::new, || {
        let told = printed.by(&["history", &onlooker]);
        told.contains("drain") && told.contains("handover")
    });
    for args in [&["status"][..], &["top", "--json"], &["explain", "e1"], &["plan", "--join=1"]] {
        printed.by(&[args, &[&onlooker]].concat());
        // Also on the VM of an instance, with its settings.
        printed.by(&[args, &[&redis]].concat());
    }
    printed.by(&["history", &redis]);
    eventually(SOON, "metrics", String::new, || {
        let text = fs::read_to_string(&metrics).unwrap_or_default();
        text.contains("leasehold_leases_owned 6")
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

/// The rights in the README's rule for `user`.
fn rights_of(user: &str) -> Vec<String> {
    let readme = include_str!("../../README.md");
    let rule = readme.split(&format!("redis-cli ACL SETUSER {user} ")).nth(1).unwrap();
    let rule = rule.split("```").next().unwrap().replace(['\'', '\\'], " ");
    let rights = rule.split_whitespace().filter(|it| it.starts_with(['+', '~', '%', '&']));
    rights.map(as_known_here).collect()
}

/// As the README says itself, of older servers.
fn as_known_here(right: &str) -> String {
    if tells_reading() { right.into() } else { right.replace("%R~", "~") }
}

/// A user with the rights of the daemon, but for one.
fn lacking(redis: &RedisServer, right: &str) -> String {
    let url = redis.give_rule("leasehold");
    let rights = rights_of("leasehold");
    let mut rule = vec!["ACL", "SETUSER", "leasehold", "resetkeys", "resetchannels", "-@all"];
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
const AT_THE_START: [&str; 10] = [
    "~poll:*",
    "%R~session:*",
    "+info",
    "+time",
    "+scan",
    "+type",
    "+exists",
    "+hget",
    "+hmget",
    "+set",
];

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

/// What is denied only later is told in the log, with the way to find out.
#[test]
fn an_instance_that_is_denied_something_later_says_who_names_the_right() {
    let scene = Scene::new(1);
    let one = Instance::start_at(&lacking(&scene.redis, "+mget"), &["--new-fleet"]);
    let line = one.wait_for("event=store.unreachable");
    assert!(line.contains("leasehold doctor names what run lacks"), "{line}");
}
