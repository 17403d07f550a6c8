//! Servers on which commands were renamed away, as managed ones do, and users who may not use them: found out,
//! done without, and told by `doctor`.

use std::time::Instant;

use serde_json::Value;

use testkit::process::{Instance, SOON, Scene, eventually, leasehold};
use testkit::redis::RedisServer;
use testkit::target::Target;

/// What none of this may depend on.
const OPTIONAL: [&str; 6] = ["CONFIG", "SCRIPT", "EVALSHA", "HELLO", "CLIENT", "ACL"];

/// A server that does not know these commands.
fn without(commands: &[&str]) -> RedisServer {
    let options = commands.iter().flat_map(|it| ["--rename-command", it, ""]);
    RedisServer::start_with(&options.collect::<Vec<_>>())
}

/// The URL of a user who may do all but these.
fn denying(redis: &RedisServer, commands: &[&str]) -> String {
    let mut rule = vec!["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all"];
    let denied: Vec<String> = commands.iter().map(|it| format!("-{}", it.to_lowercase())).collect();
    rule.extend(denied.iter().map(String::as_str));
    assert_eq!(redis.cli(&rule), "OK");
    redis.url().replace("redis://", "redis://poor:pw@")
}

fn scene(redis: RedisServer) -> Scene {
    let endpoints = (1..=4).map(|n| format!("e{n}")).collect();
    let scene = Scene { redis, target: Target::start(), endpoints };
    scene.put_sessions();
    scene
}

/// Two instances share the work and everybody can look at it; one stops, and the other goes on alone.
fn shares_and_hands_over(scene: &Scene, url: &str) -> Instance {
    let first = Instance::start_at(url, &["--new-fleet"]);
    let mut second = Instance::start_at(url, &[]);
    scene.wait_for_balance(&[&first, &second], SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    look_around(url);
    assert_eq!(second.term().code(), Some(0));
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.wait_for_balance(&[&first], SOON);
    first
}

/// Every command that only looks has something to show, and nothing to complain of.
fn look_around(url: &str) {
    let redis = format!("--redis={url}");
    let what = "a history";
    let history = || leasehold(&["history", &redis]);
    eventually(SOON, what, || format!("{:?}", history()), || history().stdout.lines_of() > 4);
    for args in [
        &["status"][..],
        &["top", "--json"],
        &["explain", "e1"],
        &["plan", "--join=1"],
        &["history", "e1"],
        &["leaders"],
        &["sessions", "list"],
    ] {
        let output = leasehold(&[args, &[&redis]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
    // `watch` has no end of its own; `head` ends it.
    let watch = format!("{} watch {redis} | head -n 2", env!("CARGO_BIN_EXE_leasehold"));
    let watched = std::process::Command::new("sh").args(["-c", &watch]).output().unwrap();
    assert_eq!(watched.stdout.lines_of(), 2, "{watched:?}");
    assert!(watched.stderr.is_empty(), "{watched:?}");
}

trait Connections {
    fn lines_of(&self) -> usize;
}

impl Connections for Vec<u8> {
    fn lines_of(&self) -> usize {
        self.iter().filter(|it| **it == b'\n').count()
    }
}

/// What `doctor` warns of; nothing may have failed.
fn warnings(url: &str) -> Vec<(String, String)> {
    let redis = format!("--redis={url}");
    let output = leasehold(&["doctor", "--json", "--for=100ms", "--lease-ttl=3s", &redis]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = json["checks"].as_array().unwrap();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let failed: Vec<_> = checks.iter().filter(|it| it["grade"] == "fail").collect();
    assert!(failed.is_empty() && output.status.code() == Some(0), "{failed:?}");
    // Nothing is saved on any server of a test.
    let warned = checks.iter().filter(|it| it["grade"] == "warn" && it["check"] != "persistence");
    warned
        // That depends on which server it is, and on how busy this machine is.
        .filter(|it| it["check"] != "version" && it["check"] != "latency")
        .map(|it| (text(&it["check"]), format!("{} → {}", text(&it["found"]), text(&it["wayOut"]))))
        .collect()
}

/// A server without just this one does everything, and `doctor` warns of what that costs.
fn assert_done_without(command: &str, costs: &[(&str, &str)]) {
    let scene = scene(without(&[command]));
    let url = scene.redis.url();
    let _first = shares_and_hands_over(&scene, &url);
    let denied = command != "ACL";
    for url in [Some(url), denied.then(|| denying(&scene.redis, &[command]))].iter().flatten() {
        let warned = warnings(url);
        let checks: Vec<&str> = warned.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(checks, costs.iter().map(|it| it.0).collect::<Vec<_>>(), "{warned:?}");
        for (told, (_, words)) in warned.iter().zip(costs) {
            assert!(told.1.contains(words), "{told:?}");
        }
    }
    scene.target.assert_sound();
}

#[test]
fn a_server_without_config_is_done_with() {
    assert_done_without("CONFIG", &[]);
}

#[test]
fn a_server_without_script_is_done_with() {
    assert_done_without("SCRIPT", &[]);
}

#[test]
fn a_server_without_evalsha_is_done_with() {
    assert_done_without("EVALSHA", &[("rights", "every call takes a second round")]);
}

#[test]
fn a_server_without_hello_is_done_with() {
    assert_done_without("HELLO", &[("pushes", "noticed within 2 s")]);
}

#[test]
fn a_server_without_client_is_done_with() {
    let costs = [("rights", "changes are noticed later"), ("pushes", "noticed within 2 s")];
    assert_done_without("CLIENT", &costs);
}

#[test]
fn a_server_without_acl_is_done_with() {
    assert_done_without("ACL", &[]);
}

/// The same, and one dies: its leases go to the other when its heartbeat has ended.
fn hands_and_fails_over(scene: &Scene, url: &str) {
    let first = shares_and_hands_over(scene, url);
    let mut dying = Instance::start_at(url, &[]);
    scene.wait_for_balance(&[&first, &dying], SOON);
    dying.kill9();
    scene.wait_for_balance(&[&first], SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    for trouble in ["lease.failed", "lease.lost", "history.failed", "heartbeat.failed"] {
        assert!(!first.says(trouble), "{:?}", first.lines(&[trouble]));
    }
    scene.target.assert_sound();
}

#[test]
fn a_server_without_any_of_them_is_done_with() {
    let scene = scene(without(&OPTIONAL));
    let url = scene.redis.url();
    hands_and_fails_over(&scene, &url);
    let warned = warnings(&url);
    assert!(warned[0].1.contains("no rule can give what a server does not know"), "{warned:?}");
    assert_eq!(warned.iter().map(|it| it.0.as_str()).collect::<Vec<_>>(), ["rights", "pushes"]);
}

#[test]
fn a_user_who_may_use_none_of_them_does_without() {
    let scene = scene(RedisServer::start());
    let url = denying(&scene.redis, &OPTIONAL);
    hands_and_fails_over(&scene, &url);
    let warned = warnings(&url);
    assert!(warned[0].1.contains("paste the rule below"), "{warned:?}");
    assert_eq!(warned.iter().map(|it| it.0.as_str()).collect::<Vec<_>>(), ["rights", "pushes"]);
}
