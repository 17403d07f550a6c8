//! `leasehold sessions`, `drain` and `undrain`: what people change, with the real binary on a real Redis.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::process::{BINARY, SOON, Scene, eventually, leasehold};
use crate::support::redis::RedisServer;

fn run(redis: &RedisServer, args: &[&str]) -> Output {
    let redis = format!("--redis={}", redis.url());
    leasehold(&[args, &[redis.as_str()]].concat())
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let why = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(why.trim_end().lines().count(), 1, "one sentence: {why}");
    why
}

fn stored(redis: &RedisServer, id: &str) -> String {
    redis.cli(&["GET", &format!("session:{id}")])
}

#[test]
fn a_session_is_added_paused_resumed_and_removed() {
    let redis = RedisServer::start();
    let id = said(&run(&redis, &["sessions", "add", "10.0.0.7:8080", "--name", "front page"]));
    let id = id.trim_end();
    assert_eq!(id.len(), 36, "a UUID: {id}");
    let session: Value = serde_json::from_str(&stored(&redis, id)).unwrap();
    assert_eq!(session["address"], "10.0.0.7:8080");
    assert_eq!((&session["id"], &session["name"]), (&id.into(), &"front page".into()));
    assert_eq!(said(&run(&redis, &["sessions", "pause", id])), format!("paused {id}\n"));
    let session: Value = serde_json::from_str(&stored(&redis, id)).unwrap();
    assert_eq!(session["isPaused"], true);
    assert_eq!(said(&run(&redis, &["sessions", "resume", id])), format!("resumed {id}\n"));
    let session: Value = serde_json::from_str(&stored(&redis, id)).unwrap();
    assert_eq!(session["isPaused"], false);
    assert_eq!(said(&run(&redis, &["sessions", "remove", id])), format!("removed {id}\n"));
    assert_eq!(stored(&redis, id), "(nil)");
}

#[test]
fn what_is_there_is_neither_overwritten_nor_reformatted() {
    let redis = RedisServer::start();
    let text = r#"{ "id":"e1", "address":"h:1", "mine": [1, 2.50, "ä\u00e4"], "isPaused" : null }"#;
    redis.cli(&["SET", "session:e1", text]);
    let why = refused(&run(&redis, &["sessions", "add", "h:2", "--id", "e1"]));
    assert!(why.contains("there is a session e1 already"), "{why}");
    assert_eq!(stored(&redis, "e1"), text);
    said(&run(&redis, &["sessions", "pause", "e1"]));
    assert_eq!(stored(&redis, "e1"), text.replace("null", "true"), "every other byte stays");
    redis.cli(&["PEXPIRE", "session:e1", "100000"]);
    said(&run(&redis, &["sessions", "resume", "e1"]));
    assert!(redis.cli(&["PTTL", "session:e1"]).parse::<u64>().unwrap() > 1, "and its end");
}

#[test]
fn what_cannot_be_done_is_a_sentence_and_says_how_far_it_got() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "session:e1", r#"{"id":"e1","address":"h:1"}"#]);
    redis.cli(&["RPUSH", "session:list", "x"]);
    redis.cli(&["SET", "session:text", "hello"]);
    let why = refused(&run(&redis, &["sessions", "pause", "e1", "nobody"]));
    assert!(why.contains("no session nobody") && why.contains("paused e1"), "{why}");
    assert!(refused(&run(&redis, &["sessions", "pause", "list"])).contains("is not a string"));
    assert!(refused(&run(&redis, &["sessions", "remove", "list"])).contains("session:list"));
    assert!(refused(&run(&redis, &["sessions", "pause", "text"])).contains("not a JSON object"));
    assert!(refused(&run(&redis, &["sessions", "add", "nonsense"])).contains("address"));
    for args in [&["sessions"][..], &["sessions", "list", "x"], &["sessions", "pause"]] {
        assert_eq!(run(&redis, args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(run(&redis, &["sessions", "pause", "a b"]).status.code(), Some(2));
}

#[test]
fn the_list_shows_what_is_polled_paused_and_not_understood() {
    let redis = RedisServer::start();
    assert_eq!(said(&run(&redis, &["sessions", "list"])), "no sessions stored\n");
    redis.cli(&["SET", "session:a", r#"{"id":"a","address":"h:1"}"#]);
    redis.cli(&["SET", "session:b", r#"{"id":"b","address":"tcp://h:1","isPaused":true}"#]);
    redis.cli(&["SET", "session:c", "\u{1b}[31m"]);
    let page = said(&run(&redis, &["sessions", "list"]));
    let rows: Vec<&str> = page.lines().collect();
    assert!(rows[1].contains("http://h:1") && rows[1].ends_with("polled"), "{page}");
    assert!(rows[2].contains("tcp://h:1") && rows[2].ends_with("paused"), "{page}");
    assert!(rows[3].contains("not JSON") && !page.contains('\u{1b}'), "{page}");
    let json = said(&run(&redis, &["sessions", "list", "--json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sessions"][1]["paused"], true, "{json}");
    assert!(json["sessions"][2]["error"].is_string(), "{json}");
}

fn import(redis: &RedisServer, lines: &str) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["sessions", "import", &format!("--redis={}", redis.url())]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = lines.to_owned();
    let feed = std::thread::spawn(move || drop(stdin.write_all(lines.as_bytes())));
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    output
}

#[test]
fn a_hundred_thousand_lines_are_imported_in_seconds() {
    let redis = RedisServer::start();
    let line = |n: usize| format!(r#"{{"id":"s{n}","address":"10.0.0.1:80","mine":{n}}}"#);
    let lines: Vec<String> = (0..100_000).map(line).collect();
    let began = Instant::now();
    let done = said(&import(&redis, &lines.join("\n")));
    println!("100,000 sessions imported in {:?}", began.elapsed());
    assert_eq!(done, "100000 added, 0 changed, 0 as they were\n");
    assert_eq!(redis.cli(&["DBSIZE"]), "100000");
    assert_eq!(stored(&redis, "s77777"), line(77_777));
    let again = format!("{}\n\n{}\n", line(5), line(6).replace("10.0.0.1", "10.0.0.2"));
    assert_eq!(said(&import(&redis, &again)), "0 added, 1 changed, 1 as they were\n");
}

#[test]
fn an_import_with_a_line_that_is_wrong_stores_nothing() {
    let redis = RedisServer::start();
    let lines = "{\"id\":\"a\",\"address\":\"h:1\"}\nnonsense\n{\"id\":\"b\"}\n";
    let why = refused(&import(&redis, lines));
    for part in ["nothing was imported", "2 lines", "line 2", "line 3: address is missing"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
    let endless = format!("{{\"id\":\"a\",\"x\":\"{}\"}}", "y".repeat(5_000_000));
    assert!(refused(&import(&redis, &endless)).contains("nothing was imported"));
}

#[test]
fn a_drained_host_hands_over_and_comes_back() {
    let scene = Scene::new(6);
    let first = scene.first(&["--host-name=one"]);
    let second = scene.join(&["--host-name=two"]);
    scene.wait_for_balance(&[&first, &second], SOON);
    let began = Instant::now();
    let done = said(&run(&scene.redis, &["drain", "one", "--wait", "10s"]));
    assert!(done.contains("has handed over 3 leases"), "{done}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(scene.counts(&[&first, &second]), [0, 6]);
    let why = refused(&run(&scene.redis, &["drain", &second.id()]));
    assert!(why.contains("nobody would be left to poll 6 endpoints"), "{why}");
    let page = said(&run(&scene.redis, &["status"]));
    assert!(page.contains("Drained: one"), "{page}");
    assert!(said(&run(&scene.redis, &["undrain", "one"])).contains("takes its share again"));
    scene.wait_for_balance(&[&first, &second], SOON);
    assert!(said(&run(&scene.redis, &["undrain", "one"])).contains("was not drained"));
    let later = said(&run(&scene.redis, &["drain", "elsewhere"]));
    assert!(later.contains("no instance of that name"), "{later}");
    let alone = said(&run(&scene.redis, &["drain", &second.id(), "--force"]));
    assert!(alone.contains("hands over 3 leases"), "{alone}");
    let told = || format!("{:?}", scene.counts(&[&first, &second]));
    eventually(SOON, "a hand-over", told, || scene.counts(&[&first, &second]) == [6, 0]);
}
