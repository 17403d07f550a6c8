//! `leasehold get`: one endpoint, with the real binary on a real Redis.

use serde_json::{Value, json};

use testkit::process::{SOON, Scene, eventually, run, said};
use testkit::redis::RedisServer;
use testkit::target::Answer;

/// What stands behind `name` on the page.
#[track_caller]
fn value<'a>(page: &'a str, name: &str) -> &'a str {
    let line = page.lines().find_map(|it| it.strip_prefix(&format!("{name:<12}")));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}"))
}

#[test]
fn an_endpoint_is_shown_with_all_that_is_known_of_it() {
    let scene = Scene::new(2);
    scene.target.answer("e2", Answer { status: 503, ..Answer::default() });
    scene.put_session("e1", json!({"name": "front page"}));
    let one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, std::time::Instant::now(), SOON);
    let get = |args: &[&str]| said(&run(&scene.redis, &[&["get"], args].concat()));
    eventually(
        SOON,
        "results",
        || get(&["e2"]),
        || get(&["e1"]).contains("last result") && get(&["e2"]).contains("last result"),
    );
    let page = get(&["e1"]);
    assert_eq!((value(&page, "endpoint"), value(&page, "name")), ("e1", "front page"));
    assert!(value(&page, "address").starts_with("http://127.0.0.1:"), "{page}");
    assert_eq!(value(&page, "state"), "ok");
    assert!(value(&page, "verdict").starts_with("ok"), "{page}");
    let last = value(&page, "last result");
    assert!(last.starts_with("ok 200 in ") && last.contains(&one.id()), "{page}");
    let fence = &scene.result("e1")["fence"];
    assert!(last.ends_with(&format!("fence {fence}")), "{page}");
    assert!(value(&page, "next poll").ends_with("every 0.2s"), "{page}");
    assert!(value(&page, "owner").starts_with(&one.id()), "{page}");
    let page = get(&["e2"]);
    assert_eq!(value(&page, "state"), "failing");
    assert!(value(&page, "verdict").starts_with("failing"), "{page}");
    assert!(value(&page, "last result").starts_with("failed 503"), "{page}");
    let told: Value = serde_json::from_str(&get(&["e2", "--json"])).unwrap();
    assert_eq!(
        json!([told["id"], told["state"], told["verdict"]]),
        json!(["e2", "failing", "failing"])
    );
    assert_eq!(json!([told["owner"], told["ownerAlive"]]), json!([one.id(), true]));
    assert_eq!(told["lastResult"]["status"], 503);
    assert!(told["nextPollMs"].as_u64().unwrap() <= 200, "{told:#}");
    assert_eq!(told.get("body"), None, "unless asked for");
}

/// Written by hand, as a version writes it that counts failures.
#[test]
fn the_verdict_is_the_stored_one_and_without_it_that_of_the_last_result() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "session:e1", r#"{"id":"e1","address":"tcp://h:1"}"#]);
    let put = |fields: &[&str]| redis.cli(&[&["HSET", "poll:result:e1"], fields].concat());
    let get = || said(&run(&redis, &["get", "e1"]));
    let document = || -> Value {
        serde_json::from_str(&said(&run(&redis, &["get", "e1", "--json"]))).unwrap()
    };
    let page = get();
    assert_eq!((value(&page, "address"), value(&page, "state")), ("tcp://h:1", "unowned"));
    assert_eq!(value(&page, "owner"), "nobody");
    assert!(!page.contains("verdict") && !page.contains("next poll"), "{page}");
    let error = format!("no route to host, {}", "x".repeat(300));
    put(&["ok", "0", "error", &error, "started_at_ms", "1700000000000"]);
    let page = get();
    assert_eq!(value(&page, "verdict"), "failing");
    assert_eq!(value(&page, "error"), error, "as a whole");
    assert_eq!(document()["sinceMs"], Value::Null);
    put(&["verdict", "ok", "since_ms", "1700000000000", "failures", "1"]);
    let page = get();
    let verdict = value(&page, "verdict");
    assert!(verdict.starts_with("ok since 2023-11-14T22:13:20.000Z, for "), "{page}");
    assert!(verdict.ends_with(", 1 failure in a row"), "{page}");
    let told = document();
    assert_eq!(
        json!([told["verdict"], told["sinceMs"], told["failures"], told["lastResult"]["ok"]]),
        json!(["ok", 1_700_000_000_000_u64, 1, false])
    );
    put(&["verdict", "failing", "ok", "1", "failures", "0"]);
    assert!(value(&get(), "verdict").starts_with("failing since"), "recovery takes more than one");
}

#[test]
fn the_body_is_printed_as_it_is_and_nothing_else() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "session:e1", r#"{"id":"e1","address":"h:1"}"#]);
    let none = run(&redis, &["get", "e1", "--body"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("no result yet"), "{none:?}");
    let body = b"{\"up\": 1}\n\xff\x1b[31m\n";
    let put = [&b"HSET"[..], b"poll:result:e1", b"ok", b"1", b"body", body];
    redis.query(&put).unwrap();
    let output = run(&redis, &["get", "e1", "--body"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &body[..]));
    let told = said(&run(&redis, &["get", "e1", "--body", "--json"]));
    assert!(!told.contains('\x1b'), "{told}");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["body"], "{\"up\": 1}\n\u{fffd}\u{1b}[31m\n");
}

#[test]
fn an_endpoint_that_is_not_there_is_an_error_that_says_which_was_meant() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "session:front-page", r#"{"id":"front-page","address":"h:1"}"#]);
    for (args, code, words) in [
        (&["get", "front-pgae"][..], 1, "did you mean front-page?"),
        (&["get", "nothing-like-it"], 1, "neither a session nor a lease"),
        (&["get"], 2, "needs the id"),
        (&["get", "a b"], 2, "1 to 128"),
    ] {
        let output = run(&redis, args);
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {why}");
        assert!(why.contains(words), "{args:?}: {why}");
    }
}
