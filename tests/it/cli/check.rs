//! `leasehold status` for monitoring systems and for scripts: one line and an exit code, some of the endpoints, a width.

use std::process::Output;

use serde_json::{Value, json};

use crate::cli::status::{alive, owns, polled, row, traces};
use testkit::process::{leasehold, leasehold_with, run, said};
use testkit::redis::RedisServer;
use testkit::terminal::Terminal;

const VM1: &str = "vm1-1-aaaaaaaa";
const VM2: &str = "vm2-1-bbbbbbbb";

/// What the check says, with its exit code.
fn check(redis: &RedisServer, args: &[&str]) -> (i32, String) {
    told(&run(redis, &[&["status", "--check"], args].concat()))
}

#[track_caller]
fn told(output: &Output) -> (i32, String) {
    let page = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(page.lines().count(), 1, "{page} {}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), page.trim_end().to_owned())
}

/// `n` endpoints that one instance polls.
fn healthy(n: usize) -> RedisServer {
    let redis = traces(n);
    alive(&redis, VM1, "1");
    for n in 1..=n {
        owns(&redis, VM1, &format!("e{n}"));
        polled(&redis, &format!("e{n}"), 1);
    }
    redis
}

fn fails(redis: &RedisServer, endpoint: &str) {
    redis.cli(&["HSET", &format!("poll:result:{endpoint}"), "ok", "0", "status", "503"]);
}

#[test]
fn the_exit_code_tells_the_fleet_and_its_targets_apart() {
    let redis = healthy(3);
    let fine = "OK: fleet ok (1 instance, 3 endpoints), targets ok (none of 3 failing) \
                | instances=1 endpoints=3 failing=0 late=0 unowned=0";
    assert_eq!(check(&redis, &[]), (0, fine.into()));
    fails(&redis, "e2");
    let now: u64 = redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let since = ((now - 200) * 1_000).to_string();
    redis.cli(&["HSET", "poll:result:e2", "verdict", "failing", "since_ms", &since]);
    let failing = "CRITICAL: fleet ok (1 instance, 3 endpoints), targets critical (1 of 3 failing: \
                   e2 for 3m) | instances=1 endpoints=3 failing=1 late=0 unowned=0";
    assert_eq!(check(&redis, &[]), (2, failing.into()));
    let (code, line) = check(&redis, &["--fleet-only"]);
    assert_eq!(code, 0, "{line}");
    assert!(line.starts_with("OK: fleet ok (1 instance, 3 endpoints) | "), "{line}");
    redis.cli(&["DEL", "poll:lease:e3"]);
    let (code, line) = check(&redis, &["--fleet-only"]);
    assert_eq!(code, 2, "{line}");
    assert!(line.starts_with("CRITICAL: fleet critical (1 unowned) | "), "{line}");
    assert!(line.ends_with("failing=1 late=0 unowned=1"), "{line}");
    redis.cli(&["DEL", &format!("poll:node:{VM1}")]);
    let (code, line) = check(&redis, &["--fleet-only"]);
    assert_eq!(code, 2, "{line}");
    assert!(line.contains("no instance is running"), "{line}");
}

#[test]
fn what_passes_by_itself_or_is_a_mistake_of_an_author_is_a_warning() {
    let redis = healthy(2);
    redis.cli(&["SET", "session:a|b", "{}"]);
    let (code, line) = check(&redis, &[]);
    assert_eq!(code, 1, "{line}");
    assert!(line.contains("targets warning (1 invalid session: a/b)"), "{line}");
    assert_eq!(line.matches('|').count(), 1, "behind the bar are numbers: {line}");
    assert_eq!(check(&redis, &["--fleet-only"]).0, 0);
    redis.cli(&["DEL", "session:a|b"]);
    alive(&redis, VM2, "1");
    let (code, line) = check(&redis, &[]);
    assert_eq!(code, 1, "{line}");
    assert!(line.starts_with("WARNING: fleet warning (1 to move), targets ok "), "{line}");
}

/// With every poll one failure in a row is no outage, if the session says so.
#[test]
fn one_failure_is_no_failing_target_as_long_as_the_verdict_is_ok() {
    let redis = healthy(1);
    fails(&redis, "e1");
    assert_eq!(check(&redis, &[]).0, 2, "without a verdict the last result is one");
    redis.cli(&["HSET", "poll:result:e1", "verdict", "ok", "failures", "1"]);
    assert_eq!(check(&redis, &[]).0, 0);
    redis.cli(&["HSET", "poll:result:e1", "ok", "1", "verdict", "failing"]);
    assert_eq!(check(&redis, &[]).0, 2);
}

/// A check that could not be made is neither good nor bad.
#[test]
fn what_cannot_be_found_out_is_unknown_and_never_critical() {
    let (code, line) = told(&leasehold(&["status", "--check", "--redis=redis://127.0.0.1:1/0"]));
    assert_eq!(code, 3, "{line}");
    assert!(line.starts_with("UNKNOWN: cannot connect to redis://127.0.0.1:1/0"), "{line}");
    for args in [
        &["--json"][..],
        &["--state=failing"],
        &["--no-such-option"],
        &["--redis=nonsense"],
        &["--settings=/nowhere/at/all"],
    ] {
        let (code, line) = told(&leasehold(&[&["status", "--check"], args].concat()));
        assert_eq!(code, 3, "{args:?}: {line}");
        assert!(line.starts_with("UNKNOWN: "), "{args:?}: {line}");
    }
    let wrong = leasehold_with(&["status", "--check"], &[("LEASEHOLD_REDIS", "nonsense")]);
    assert_eq!(told(&wrong).0, 3);
    let output = leasehold(&["status", "--fleet-only"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn endpoints_are_chosen_by_state_and_owner_and_listed_in_the_form_that_was_asked_for() {
    let redis = healthy(6);
    redis.cli(&["SET", "session:e6", r#"{"id":"e6","address":"h:1","isPaused":true}"#]);
    redis.cli(&["DEL", "poll:lease:e6"]);
    alive(&redis, VM2, "1");
    for endpoint in ["e4", "e5"] {
        owns(&redis, VM2, endpoint);
    }
    fails(&redis, "e1");
    fails(&redis, "e4");
    let names = |args: &[&str]| said(&run(&redis, &[&["status", "-o", "names"], args].concat()));
    assert_eq!(names(&["--state=failing"]), "e1\ne4\n");
    assert_eq!(names(&["--state=failing", "--owner", "vm1"]), "e1\n");
    assert_eq!(names(&["--state", "failing,paused"]), "e1\ne4\ne6\n");
    assert_eq!(names(&["--owner", VM2]), "e4\ne5\n");
    assert_eq!(names(&["--state=no-session"]), "");
    assert_eq!(names(&[]).lines().count(), 6);
    let page = said(&run(&redis, &["status", "--state=failing", "--owner=vm2"]));
    let rows: Vec<&str> = page.lines().collect();
    assert_eq!(rows[0], "1 of 6 endpoints:", "{page}");
    assert_eq!(row(&page, "e4")[1..3], ["failing", "vm2"]);
    assert!(!page.contains("e1 ") && !page.contains("INSTANCE"), "{page}");
    let page = said(&run(&redis, &["status", "--state=failing", "-o=wide"]));
    assert!(page.contains("PREFERRED"), "{page}");
    let page = said(&run(&redis, &["status", "--state=late"]));
    assert!(page.starts_with("None of 6 endpoints.\n"), "{page}");
    let told = said(&run(&redis, &["status", "--state=failing", "-o", "json"]));
    let told: Value = serde_json::from_str(&told).unwrap();
    let ids: Vec<&Value> =
        told["endpoints"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(json!(ids), json!(["e1", "e4"]));
    assert_eq!(told["counts"]["sessions"], 6, "counted are all");
    for (args, code, words) in [
        (&["--owner=vm3"][..], 1, "did you mean vm1"),
        (&["--state=broken"], 2, "is none of ok, failing"),
        (&["--state="], 2, "is none of ok, failing"),
        (&["-o", "yaml"], 2, "table, wide, names and json"),
        (&["-o", "names", "--json"], 2, "do not go together"),
    ] {
        let output = run(&redis, &[&["status"], args].concat());
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {why}");
        assert!(why.contains(words), "{args:?}: {why}");
    }
}

/// Point 7: with names of the usual length, at the usual width; and nothing is cut in a pipe.
#[test]
fn eighty_columns_are_enough_on_a_terminal_and_a_pipe_cuts_nothing() {
    let redis = RedisServer::start();
    let vm = "vm1-1794821395633051180-75ceaf55";
    alive(&redis, vm, "1");
    let ids = ["web1", "b7e4a0c2-6a1f-4a53-9d0e-5f1d2c3b4a59"];
    let address = "https://status.internal.example.com:8443/health/of/the/front/page";
    for id in ids {
        let session = json!({"id": id, "address": address}).to_string();
        redis.cli(&["SET", &format!("session:{id}"), &session]);
        owns(&redis, vm, id);
        polled(&redis, id, 1);
    }
    let error = format!("connect to {address}: {}", "no route to host ".repeat(5));
    redis.cli(&["HSET", &format!("poll:result:{}", ids[1]), "ok", "0", "error", &error]);
    let page = said(&run(&redis, &["status"]));
    assert!(page.contains(address) && page.contains(error.trim_end()), "{page}");
    let url = format!("--redis={}", redis.url());
    let mut terminal = Terminal::start_in(&[("COLUMNS", "80")], &["status", &url], 40, 1_000);
    assert!(terminal.wait().success());
    let page = terminal.wait_for("As read from");
    let long: Vec<&str> = page.lines().filter(|it| it.chars().count() > 80).collect();
    assert_eq!(long, [""; 0], "{page}");
    for id in ids {
        assert!(row(&page, id)[3].starts_with("https:/"), "{page}");
    }
}
