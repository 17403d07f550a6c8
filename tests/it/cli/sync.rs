//! `leasehold sessions set`, `add` with fields, `pause --for`, `export` and `sync`, with the real binary on a real Redis.

use std::process::Output;

use serde_json::{Value, json};

use testkit::process::{TempDir, leasehold_with, run, said};
use testkit::redis::RedisServer;

fn stored(redis: &RedisServer, id: &str) -> String {
    redis.cli(&["GET", &format!("session:{id}")])
}

fn session(redis: &RedisServer, id: &str) -> Value {
    serde_json::from_str(&stored(redis, id)).unwrap()
}

fn put(redis: &RedisServer, text: &str) {
    let session: Value = serde_json::from_str(text).unwrap();
    redis.cli(&["SET", &format!("session:{}", session["id"].as_str().unwrap()), text]);
}

fn why(output: &Output, code: i32) -> String {
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{why}");
    why
}

#[test]
fn a_session_is_added_with_all_its_fields() {
    let redis = RedisServer::start();
    let args = [
        "sessions",
        "add",
        "https://h/",
        "--id=e1",
        "--name=front page",
        "--interval=30s",
        "--timeout",
        "500ms",
        "--path=/health",
        "--method=GET",
        "--expect-status=200-299,401",
        "--expect-body=up",
        "--header",
        "Accept: text/plain",
        "--header=X-Team:web",
        "team=\"web\"",
        "weight=2.5",
    ];
    said(&run(&redis, &args));
    let wanted = json!({
        "id": "e1", "address": "https://h/", "name": "front page", "intervalMs": 30_000,
        "timeoutMs": 500, "path": "/health", "method": "GET", "expectStatus": "200-299,401",
        "expectBody": "up", "headers": {"Accept": "text/plain", "X-Team": "web"},
        "team": "web", "weight": 2.5,
    });
    assert_eq!(session(&redis, "e1"), wanted);
    for (args, words) in [
        (&["--expect-status=ok"][..], "expectStatus must be"),
        (&["--method=POST"], "GET or HEAD"),
        (&["--interval=1ms"], "intervalMs"),
        (&["--header=Connection: close"], "only Leasehold sets"),
    ] {
        let output = run(&redis, &[&["sessions", "add", "h:1", "--id=e2"], args].concat());
        assert!(why(&output, 1).contains(words), "{args:?}: {output:?}");
    }
    let output = run(&redis, &["sessions", "add", "h:1", "--header=Accept"]);
    assert!(why(&output, 2).contains("NAME:VALUE"), "{output:?}");
    assert_eq!(stored(&redis, "e2"), "(nil)");
}

/// The settings of the service have an interval, too: it is not that of every session which is added on that host.
#[test]
fn the_interval_of_the_services_settings_is_not_that_of_a_new_session() {
    let redis = RedisServer::start();
    let url = redis.url();
    let env =
        [("LEASEHOLD_REDIS", &*url), ("LEASEHOLD_INTERVAL", "7s"), ("LEASEHOLD_TIMEOUT", "9s")];
    said(&leasehold_with(&["sessions", "add", "h:1", "--id=e1"], &env));
    assert_eq!(session(&redis, "e1"), json!({"id": "e1", "address": "h:1"}));
}

#[test]
fn fields_are_set_and_every_other_byte_stays() {
    let redis = RedisServer::start();
    let text = r#"{ "id":"e1", "address":"h:1", "mine": [1, 2.50, "ä\u00e4"], "isPaused" : null }"#;
    put(&redis, text);
    let set = |fields: &[&str]| run(&redis, &[&["sessions", "set", "e1"], fields].concat());
    assert_eq!(said(&set(&["address=h:2"])), "changed e1\n");
    assert_eq!(stored(&redis, "e1"), text.replace("h:1", "h:2"));
    said(&set(&["intervalMs=5000", "name=123", "isPaused=true", "owners=[\"a\"]", "note=so what"]));
    let now = session(&redis, "e1");
    assert_eq!(
        json!([now["intervalMs"], now["name"], now["isPaused"], now["owners"], now["note"]]),
        json!([5_000, "123", true, ["a"], "so what"])
    );
    said(&set(&["intervalMs=null"]));
    assert_eq!(session(&redis, "e1")["intervalMs"], Value::Null);
    let told = said(&set(&["name=x", "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), json!({"changed": ["e1"]}));
    let before = stored(&redis, "e1");
    for (fields, code, words) in [
        (&["intervalMs=soon"][..], 1, "the session e1 would be wrong: intervalMs"),
        (&["address=nowhere"], 1, "has no port"),
        (&["id=e2"], 2, "the id of a session is that of its key"),
        (&["name"], 2, "is no field: write field=value"),
        (&["=x"], 2, "names no field"),
        (&[], 2, "set ID field=value"),
    ] {
        let why = why(&set(fields), code);
        assert!(why.contains(words), "{fields:?}: {why}");
    }
    assert_eq!(stored(&redis, "e1"), before);
    let odd = set(&["timeout=5"]);
    assert!(why(&odd, 0).contains("did you mean timeoutMs?"), "{odd:?}");
    let output = run(&redis, &["sessions", "set", "nobody", "name=x"]);
    assert!(why(&output, 1).contains("there is no session nobody"), "{output:?}");
}

#[test]
fn a_pause_has_an_end_only_if_it_was_given_one() {
    let redis = RedisServer::start();
    put(&redis, r#"{"id":"e1","address":"h:1"}"#);
    let now: u64 = redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    said(&run(&redis, &["sessions", "pause", "e1", "--for", "2h"]));
    let paused = session(&redis, "e1");
    let until = paused["pausedUntilMs"].as_u64().unwrap() / 1_000;
    assert!((now + 7_200..=now + 7_220).contains(&until), "{paused}");
    assert_eq!(paused["isPaused"], true, "for a version that does not know the end");
    said(&run(&redis, &["sessions", "pause", "e1"]));
    assert_eq!(session(&redis, "e1")["pausedUntilMs"], Value::Null);
    said(&run(&redis, &["sessions", "pause", "e1", "--for=1h"]));
    said(&run(&redis, &["sessions", "resume", "e1"]));
    let resumed = session(&redis, "e1");
    assert_eq!(json!([resumed["isPaused"], resumed["pausedUntilMs"]]), json!([false, null]));
    redis.cli(&[
        "SET",
        "session:e2",
        r#"{"id":"e2","address":"h:1","isPaused":true,"pausedUntilMs":5}"#,
    ]);
    redis.cli(&["SET", "session:e3", r#"{"id":"e3","address":"h:1","pausedUntilMs":"soon"}"#]);
    let list: Value =
        serde_json::from_str(&said(&run(&redis, &["sessions", "list", "--json"]))).unwrap();
    assert_eq!(list["sessions"][1]["paused"], false, "its end is over");
    assert!(list["sessions"][2]["error"].as_str().unwrap().contains("milliseconds since 1970"));
}

#[test]
fn what_is_exported_can_be_imported_and_what_cannot_be_is_named() {
    let redis = RedisServer::start();
    let texts = [
        r#"{"id":"a","address":"h:1","mine":1.50,"x":{"y":[]}}"#,
        "{\n  \"id\": \"b\",\r\n  \"address\": \"tcp://h:1\"\n}",
    ];
    texts.iter().for_each(|it| put(&redis, it));
    let lines = said(&run(&redis, &["sessions", "export"]));
    assert_eq!(lines.lines().next(), Some(texts[0]), "as it is stored");
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let dir = TempDir::new();
    let file = dir.path().join("all");
    std::fs::write(&file, &lines).unwrap();
    let other = RedisServer::start();
    let file = file.to_str().unwrap();
    assert!(said(&run(&other, &["sessions", "import", file])).starts_with("2 added"));
    assert_eq!(session(&other, "b"), session(&redis, "b"));
    let told = said(&run(&redis, &["sessions", "sync", file]));
    assert_eq!(told, "0 added, 0 changed, 0 removed, 2 as they were\n");
    redis.cli(&["SET", "session:c", "nonsense"]);
    redis.cli(&["RPUSH", "session:d", "x"]);
    let output = run(&redis, &["sessions", "export"]);
    assert!(why(&output, 1).contains("left out 2 sessions that cannot be understood (c, d)"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), lines, "the others are there");
}

#[test]
fn a_file_is_the_truth_but_for_what_an_operator_paused() {
    let redis = RedisServer::start();
    for text in [
        r#"{"id":"same","address":"h:1", "n":1}"#,
        r#"{"id":"moved","address":"h:1","isPaused":true,"pausedUntilMs":99}"#,
        r#"{"id":"woken","address":"h:1","isPaused":true}"#,
        r#"{"id":"extra","address":"h:1"}"#,
    ] {
        put(&redis, text);
    }
    redis.cli(&["HSET", "poll:result:extra", "granted", "7"]);
    let dir = TempDir::new();
    let file = dir.path().join("wanted");
    let lines = r#"{"id":"same", "address":"h:1","n":1}
        {"id":"moved","address":"h:2"}
        {"id":"woken","address":"h:1","isPaused":false}
        {"id":"new","address":"h:1"}"#;
    std::fs::write(&file, lines).unwrap();
    let sync = |args: &[&str]| {
        run(&redis, &[&["sessions", "sync", file.to_str().unwrap()], args].concat())
    };
    let before = redis.cli(&["GET", "session:moved"]);
    let wanted = "change moved: address\nadd new\nchange woken: isPaused\nremove extra\n\
                  1 to add, 2 to change, 1 to remove, 1 as they were\n";
    assert_eq!(said(&sync(&["--dry-run", "--prune"])), wanted);
    assert_eq!(
        (redis.cli(&["GET", "session:moved"]), redis.cli(&["EXISTS", "session:new"])),
        (before, "0".into())
    );
    let told = said(&sync(&[]));
    assert_eq!(
        told,
        "1 added, 2 changed, 0 removed, 1 as they were; 1 not in the file: --prune removes them\n"
    );
    let moved = json!({"id": "moved", "address": "h:2", "isPaused": true, "pausedUntilMs": 99});
    assert_eq!(session(&redis, "moved"), moved, "an operator paused it, and the file does not say");
    assert_eq!(session(&redis, "woken")["isPaused"], false, "the file says so");
    assert_eq!(stored(&redis, "same"), r#"{"id":"same","address":"h:1", "n":1}"#, "not written");
    let told: Value = serde_json::from_str(&said(&sync(&["--prune", "--json"]))).unwrap();
    let wanted = json!({
        "added": 0, "changed": 0, "removed": 1, "unchanged": 4, "kept": 0, "repeated": 0,
        "dryRun": false,
    });
    assert_eq!((told, stored(&redis, "extra")), (wanted, "(nil)".into()));
    assert!(redis.cli(&["PTTL", "poll:result:extra"]).parse::<i64>().unwrap() > 0, "it ends");
}

#[test]
fn a_file_with_a_mistake_or_without_a_session_changes_nothing() {
    let redis = RedisServer::start();
    put(&redis, r#"{"id":"e1","address":"h:1"}"#);
    let dir = TempDir::new();
    let file = dir.path().join("wanted");
    let sync = |text: &str, args: &[&str]| {
        std::fs::write(&file, text).unwrap();
        run(&redis, &[&["sessions", "sync", file.to_str().unwrap()], args].concat())
    };
    let wrong = sync("{\"id\":\"e2\",\"address\":\"h:1\"}\nnonsense\n", &["--prune"]);
    assert!(why(&wrong, 1).contains("nothing was synced: 1 lines of"), "{wrong:?}");
    assert!(why(&sync("\n", &["--prune"]), 1).contains("would remove them all"));
    assert_eq!(
        said(&sync("", &[])),
        "0 added, 0 changed, 0 removed, 0 as they were; 1 not in the file: --prune removes them\n"
    );
    assert_eq!(redis.cli(&["KEYS", "session:*"]), "session:e1");
    for (args, words) in [
        (&["sessions", "sync"][..], "sync needs a file"),
        (&["sessions", "puase", "e1"], "unknown verb \"puase\" of sessions: did you mean pause?"),
        (&["sessions", "frobnicate"], "list, add ADDRESS, set ID"),
    ] {
        let output = run(&redis, args);
        assert!(why(&output, 2).contains(words), "{args:?}: {output:?}");
    }
}
