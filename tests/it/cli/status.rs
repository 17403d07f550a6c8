//! `leasehold status` on a real Redis: true, read-only, quick, and not to be confused by strangers.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::{Value, json};

use testkit::process::{Instance, SOON, Scene, binary, leasehold, ms};
use testkit::redis::{RedisServer, USER_PASSWORD};
use testkit::target::Answer;

fn status_at(url: &str, args: &[&str]) -> Output {
    let mut all = vec!["status".to_owned(), format!("--redis={url}")];
    all.extend(args.iter().map(|it| (*it).to_owned()));
    leasehold(&all)
}

/// What it prints on stdout; it must succeed, and say nothing else.
#[track_caller]
fn shown_at(url: &str, args: &[&str]) -> String {
    let output = status_at(url, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub fn shown(redis: &RedisServer, args: &[&str]) -> String {
    let page = shown_at(&redis.url(), args);
    let end = format!("\nAs read from {}.\n", redis.url());
    page.strip_suffix(&end).map_or_else(|| page.clone(), String::from)
}

#[track_caller]
pub fn document(redis: &RedisServer) -> Value {
    serde_json::from_str(&shown(redis, &["--json"])).unwrap()
}

pub fn verdict(page: &str) -> &str {
    page.lines().next().unwrap()
}

/// The page that says so, waiting for it.
#[track_caller]
fn wait_for_verdict(redis: &RedisServer, wanted: &str) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let page = shown(redis, &[]);
        if verdict(&page) == wanted {
            return page;
        }
        assert!(Instant::now() < deadline, "instead of {wanted:?}:\n{page}");
    }
}

/// The words of the line that begins with `name`.
#[track_caller]
pub fn row<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let named = |it: &&str| it.split_whitespace().next() == Some(name);
    let line = page.lines().find(named).unwrap_or_else(|| panic!("no {name} in\n{page}"));
    line.split_whitespace().collect()
}

#[track_caller]
pub fn entry<'a>(document: &'a Value, list: &str, id: &str) -> &'a Value {
    let entries = document[list].as_array().unwrap();
    entries.iter().find(|it| it["id"] == id).unwrap_or_else(|| panic!("no {id} in {document:#}"))
}

#[test]
fn a_fleet_of_three_shares_nine_endpoints_and_the_document_says_what_the_tables_say() {
    let scene = Scene::new(9);
    let fleet = scene.fleet(3);
    let page =
        wait_for_verdict(&scene.redis, "3 instances share 9 endpoints: all polled, balanced.");
    assert!(!page.contains('\x1b'), "colours without a terminal");
    let told = document(&scene.redis);
    assert_eq!(told["verdict"], verdict(&page));
    assert_eq!((&told["healthy"], &told["holdOffMs"]), (&json!(true), &json!(null)));
    for instance in &fleet {
        let id = instance.id();
        assert_eq!(row(&page, &id)[1..4], ["1", "3", "3.0"], "{page}");
        let it = entry(&told, "instances", &id);
        let facts = json!([it["alive"], it["weight"], it["owned"], it["fairShare"]]);
        assert_eq!(facts, json!([true, 1, 3, 3.0]));
        assert!((1..=3_000).contains(&it["heartbeatLeftMs"].as_u64().unwrap()), "{it}");
    }
    let owners = scene.owners();
    let page = shown(&scene.redis, &["-o", "wide"]);
    for endpoint in &scene.endpoints {
        let cells = row(&page, endpoint);
        let (owner, fence) = (&owners[endpoint], &scene.result(endpoint)["granted"]);
        // All on one host: the last digits tell them apart.
        let short = format!("vm-{}", owner.rsplit('-').next().unwrap());
        assert_eq!(cells[1..5], ["ok", &short, &short, fence], "{page}");
        assert!(cells[6].starts_with("127.0.0.1:"), "{page}");
        assert_eq!(cells[8..11], ["ago:", "ok", "200"], "{page}");
        let it = entry(&told, "endpoints", endpoint);
        assert_eq!(
            json!([it["state"], it["owner"], it["preferredOwner"]]),
            json!(["ok", owner, owner])
        );
        assert_eq!(it["fence"].to_string(), *fence);
        assert!((1..=3_000).contains(&it["leaseLeftMs"].as_u64().unwrap()), "{it}");
        let last = &it["lastResult"];
        assert_eq!(
            json!([last["ok"], last["status"], last["instance"]]),
            json!([true, 200, owner])
        );
    }
    assert_eq!(told["counts"]["ok"], 9);
    assert_eq!(told["unowned"], json!([]));
}

#[test]
fn what_is_paused_invalid_or_failing_is_told_by_name() {
    let scene = Scene::new(9);
    let failing = Answer { status: 503, ..Answer::default() };
    scene.target.answer("e3", failing);
    scene.put_session("e1", json!({"isPaused": true}));
    scene.put_session("e2", json!({"address": "nowhere"}));
    let _one = scene.first(&[]);
    let wanted = "1 instance has 7 endpoints to itself: all polled, 1 failing, balanced; \
                  1 paused, 1 invalid.";
    let page = wait_for_verdict(&scene.redis, wanted);
    assert_eq!(row(&page, "e1")[1..3], ["paused", "-"]);
    assert_eq!(row(&shown(&scene.redis, &["-o=wide"]), "e1")[1..4], ["paused", "-", "-"]);
    assert!(page.contains("9 endpoints: 6 ok, 1 paused, 1 invalid, 1 failing."), "{page}");
    assert_eq!(row(&page, "e2")[1], "invalid");
    assert!(row(&page, "e2").join(" ").ends_with("address has no port: write host:port"), "{page}");
    assert!(row(&page, "e3").join(" ").contains("ago: failed 503"), "{page}");
    let told = document(&scene.redis);
    assert_eq!(told["healthy"], false);
    assert_eq!(entry(&told, "endpoints", "e1")["state"], "paused");
    assert_eq!(entry(&told, "endpoints", "e2")["error"], "address has no port: write host:port");
    assert_eq!(entry(&told, "endpoints", "e3")["lastResult"]["status"], 503);
}

#[test]
fn where_nobody_runs_everything_is_unowned_and_nothing_is_nothing() {
    let scene = Scene::new(0);
    let page = shown(&scene.redis, &[]);
    assert_eq!(page, "No sessions are stored, and no instance is running.\n");
    let scene = Scene::new(2);
    let page = shown(&scene.redis, &[]);
    assert_eq!(verdict(&page), "No instance is running: nobody polls 2 endpoints.");
    let page = shown(&scene.redis, &["-o", "wide"]);
    let cells = row(&page, "e1");
    assert_eq!(cells[..6], ["e1", "unowned", "-", "-", "-", "-"]);
    assert!(cells[6].starts_with("127.0.0.1:") && cells[7..] == ["-"], "{page}");
    assert_eq!(document(&scene.redis)["unowned"], json!(["e1", "e2"]));
}

/// R5.
#[test]
fn a_hold_off_is_told_with_what_is_left_of_it() {
    let scene = Scene::new(1);
    let one = Instance::start(&scene.redis, &["--lease-ttl=30s"]);
    one.wait_for("event=store.holdoff");
    let page = shown(&scene.redis, &[]);
    assert_eq!(verdict(&page), "1 instance has 1 endpoint to itself: 1 unowned.");
    assert!(page.lines().nth(1).unwrap().starts_with("Hold-off: "), "{page}");
    let told = document(&scene.redis);
    let left = told["holdOffMs"].as_u64().unwrap();
    assert!((1..=31_000).contains(&left) && told["healthy"] == false, "{told:#}");
    scene.redis.cli(&["HSET", "poll:epoch", "since_ms", "1"]);
    assert_eq!(document(&scene.redis)["holdOffMs"], json!(null));
}

/// A Redis with the traces of a fleet, without its processes.
pub fn traces(n_sessions: usize) -> RedisServer {
    let redis = RedisServer::start();
    for n in 1..=n_sessions {
        let session = json!({"id": format!("e{n}"), "address": "127.0.0.1:1"}).to_string();
        redis.cli(&["SET", &format!("session:e{n}"), &session]);
    }
    redis
}

pub fn alive(redis: &RedisServer, id: &str, weight: &str) {
    redis.cli(&["SET", &format!("poll:node:{id}"), weight, "PX", "60000"]);
}

pub fn owns(redis: &RedisServer, id: &str, endpoint: &str) {
    redis.cli(&["SET", &format!("poll:lease:{endpoint}"), id, "PX", "60000"]);
    redis.cli(&["HSET", &format!("poll:result:{endpoint}"), "granted", "7"]);
}

pub fn polled(redis: &RedisServer, endpoint: &str, seconds_ago: u64) {
    let now: u64 = redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let at = ((now - seconds_ago) * 1_000).to_string();
    let key = format!("poll:result:{endpoint}");
    redis.cli(&["HSET", &key, "ok", "1", "status", "200", "started_at_ms", &at]);
}

#[test]
fn what_the_dead_left_what_must_move_and_what_nobody_polls_any_more_is_told() {
    let redis = traces(5);
    redis.cli(&["SADD", "poll:drain", "vm2"]);
    alive(&redis, "vm1-1-aaaaaaaa", "1");
    alive(&redis, "vm2-1-bbbbbbbb", "0");
    for (endpoint, owner) in
        [("e1", "vm1-1-aaaaaaaa"), ("e2", "vm2-1-bbbbbbbb"), ("e3", "vm3-1-cccccccc")]
    {
        owns(&redis, owner, endpoint);
        polled(&redis, endpoint, 1);
    }
    owns(&redis, "vm1-1-aaaaaaaa", "e4");
    owns(&redis, "vm1-1-aaaaaaaa", "e5");
    polled(&redis, "e5", 150);
    let page = shown(&redis, &[]);
    let wanted = "2 instances share 5 endpoints: 1 left by the dead, 1 not polled for long, \
                  1 not polled yet, 1 to move. \
                  1 endpoint is polled late: e5 (last poll 2m ago).";
    assert_eq!(verdict(&page), wanted);
    assert!(page.contains("\nDrained: vm2\n"), "{page}");
    assert_eq!(row(&page, "vm1-1-aaaaaaaa")[1..4], ["1", "3", "5.0"]);
    assert_eq!(row(&page, "vm2-1-bbbbbbbb")[1..4], ["0", "1", "0.0"]);
    assert!(row(&page, "vm2-1-bbbbbbbb").join(" ").ends_with("left, drained"), "{page}");
    let narrow = page;
    let page = shown(&redis, &["-o", "wide"]);
    assert_eq!(row(&page, "vm3-1-cccccccc")[1..], ["-", "1", "-", "gone"]);
    assert_eq!(row(&page, "e1")[1..5], ["ok", "vm1", "vm1", "7"]);
    assert_eq!(row(&page, "e2")[1..5], ["moving", "vm2", "vm1", "7"]);
    assert_eq!(row(&page, "e3")[1..5], ["abandoned", "vm3", "vm1", "7"]);
    assert_eq!(row(&page, "e4")[1..5], ["new", "vm1", "vm1", "7"]);
    assert_eq!(row(&page, "e5")[1..5], ["stale", "vm1", "vm1", "7"]);
    assert_eq!(row(&narrow, "e2")[1..3], ["moving", "vm2"]);
    assert!(!narrow.contains("PREFERRED") && !narrow.contains("FENCE"), "{narrow}");
    let patient = shown(&redis, &["--stale-after=1h"]);
    assert_eq!(row(&patient, "e5")[1], "ok");
    alive(&redis, "vm1-1-aaaaaaaa", "0");
    let stuck = shown(&redis, &[]);
    assert!(
        verdict(&stuck).ends_with("Every instance has weight 0: nothing new is taken."),
        "{stuck}"
    );
}

/// Whatever is in these keys, it is shown, and nothing in it does anything to a terminal.
#[test]
fn nothing_that_strangers_left_in_redis_confuses_it() {
    let redis = traces(4);
    let evil = "vm\x1b[2J-1-\u{9b}\x07\u{7f}";
    alive(&redis, evil, "heavy");
    owns(&redis, evil, "e1");
    redis.cli(&["HSET", "poll:lease:e2", "a", "b"]);
    redis.cli(&["SET", "poll:result:e2", "no hash"]);
    redis.cli(&["HSET", "poll:result:e3", "ok", "maybe", "granted", "-5"]);
    redis.cli(&["SET", "poll:lease:e3", ""]);
    redis.cli(&["LPUSH", "poll:node:list", "1"]);
    redis.cli(&["SET", "poll:epoch", "none"]);
    redis.cli(&["HSET", "poll:drain", "a", "b"]);
    redis.cli(&["HSET", "session:hash", "a", "b"]);
    redis.cli(&["SET", "session:e4", "\x1b]0;title\x07"]);
    redis.cli(&["SET", "session:\x1b[31mred", "{}"]);
    redis.cli(&["SET", "session:", "{}"]);
    redis.query(&[&b"SET"[..], b"session:\xff\xfe", b"{}"]).unwrap();
    redis.query(&[&b"SET"[..], b"poll:node:\xff\xfe", b"1"]).unwrap();
    redis.query(&[&b"SET"[..], b"poll:lease:a b\n", b"1"]).unwrap();
    redis.cli(&["SET", "poll:lease:nightly", "somebody"]);
    let error = "\x1b[31m".repeat(500);
    redis.cli(&["HSET", "poll:result:nightly", "ok", "0", "status", "x", "error", &error]);
    for args in [&[][..], &["--all"], &["--json"]] {
        let page = shown(&redis, args);
        let raw: Vec<char> = page.chars().filter(|it| it.is_control() && *it != '\n').collect();
        assert!(raw.is_empty(), "{raw:?} in\n{page}");
    }
    let page = shown(&redis, &[]);
    assert_eq!(
        verdict(&page),
        "1 instance has 3 endpoints to itself: 1 unowned, 1 left by the dead, 1 not polled yet; 5 invalid. \
         poll:epoch is of the type string, not hash: nothing is granted, renewed or published, so nobody \
         polls for long; redis-cli DEL poll:epoch; costs one hold-off: nothing new is granted for a lease \
         TTL and a margin, and whoever is still within its rights goes on. poll:drain is of the type hash, \
         not set: it drains nobody; redis-cli DEL poll:drain; nobody is drained then: leasehold drain each \
         of them again."
    );
    assert_eq!(row(&page, "vm\\u{1b}[2J-1-\\u{9b}\\u{7}\\u{7f}")[1..4], ["1", "1", "3.0"]);
    assert!(page.contains("the key holds a hash, not a string"), "{page}");
    let wide = shown(&redis, &["-o", "wide"]);
    assert!(
        row(&wide, "nightly").join(" ").contains("no session somebody - - no end - failed, "),
        "{wide}"
    );
    for (key, why) in [
        ("poll:lease:e2", "is not a string"),
        ("poll:result:e2", "is not a hash"),
        ("poll:result:e3", "holds no result: its ok is neither 0 nor 1"),
        ("poll:node:list", "is not a string"),
        ("poll:epoch", "is no record of an epoch"),
        ("poll:drain", "is not a set: it drains nobody"),
        ("poll:lease:a b\\n", "has no name of ours"),
    ] {
        assert!(page.contains(&format!("\n{key} {why}\n")), "no {key} {why} in\n{page}");
    }
    let told = document(&redis);
    assert_eq!(entry(&told, "instances", evil)["owned"], 1, "ids are told as they are");
    assert_eq!(entry(&told, "endpoints", "nightly")["leaseLeftMs"], json!(null));
    assert!(entry(&told, "endpoints", "nightly")["lastResult"]["status"].is_null());
    assert_eq!(told["oddKeys"].as_array().unwrap().len(), 8);
}

/// Whatever else is well: it will not be for long.
#[test]
fn a_key_of_a_wrong_type_is_in_the_verdict() {
    let redis = traces(1);
    alive(&redis, "vm1-1-aaaaaaaa", "1");
    owns(&redis, "vm1-1-aaaaaaaa", "e1");
    polled(&redis, "e1", 1);
    for (key, told) in [
        ("poll:epoch", "poll:epoch is of the type list, not hash: nothing is granted"),
        ("poll:drain", "poll:drain is of the type list, not set: it drains nobody"),
        ("poll:history", "poll:history is of the type list, not stream: nothing is remembered"),
    ] {
        assert_eq!(document(&redis)["healthy"], true);
        redis.cli(&["LPUSH", key, "x"]);
        let page = shown(&redis, &[]);
        assert!(verdict(&page).contains(told), "{page}");
        assert!(verdict(&page).contains(&format!("redis-cli DEL {key}")), "{page}");
        assert_eq!(document(&redis)["healthy"], false);
        redis.cli(&["DEL", key]);
    }
}

/// The rule for onlookers in docs/redis.md is enough, and lets them write nothing.
#[test]
fn a_user_who_may_only_read_can_ask() {
    let scene = Scene::new(3);
    scene.redis.cli(&["HSET", "session:odd", "a", "b"]);
    let _one = scene.first(&[]);
    let wanted = "1 instance has 3 endpoints to itself: all polled, balanced; 1 invalid.";
    wait_for_verdict(&scene.redis, wanted);
    let url = scene.redis.give_rule("onlooker");
    assert_eq!(verdict(&shown_at(&url, &[])), wanted);
    for write in
        [&["SET", "poll:lease:x", "y"][..], &["EVAL", "return 1", "0"], &["DEL", "session:e1"]]
    {
        let mut onlooker = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
        let denied = redis::cmd(write[0]).arg(&write[1..]).exec(&mut onlooker).unwrap_err();
        assert_eq!(denied.code(), Some("NOPERM"), "{write:?}: {denied}");
    }
    scene.redis.cli(&["ACL", "SETUSER", "onlooker", "-hmget"]);
    let refused = status_at(&url, &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{said}");
    assert!(
        said.lines().count() == 1 && said.contains("permissions docs/redis.md lists"),
        "{said}"
    );
    assert!(!said.contains(USER_PASSWORD), "{said}");
}

/// "every other command fails after its timeout with a sentence".
#[test]
fn it_fails_with_a_sentence_when_redis_is_away_or_does_not_answer() {
    let refused = status_at("redis://127.0.0.1:1/0", &["--json"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.starts_with("leasehold: cannot connect to redis://127.0.0.1:1/0: "), "{said}");
    assert!(said.ends_with("check that it runs, and --redis\n"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://:hunter2@{}/0", silent.local_addr().unwrap());
    let asked_at = Instant::now();
    let output = status_at(&url, &["--store-timeout=500ms"]);
    let (took, said) = (asked_at.elapsed(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(took >= ms(450) && took < ms(3_000), "took {took:?}");
    assert!(said.lines().count() == 1 && !said.contains("hunter2"), "{said}");
}

/// Stores `n` sessions, owned and polled by `owner`.
fn many(redis: &RedisServer, n: usize, owner: &str) {
    let mut connection = redis.connect().unwrap();
    let now: u64 = redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let numbers: Vec<usize> = (0..n).collect();
    for chunk in numbers.chunks(1_000) {
        let mut pipe = redis::pipe();
        for it in chunk {
            let session = json!({"id": format!("s{it}"), "address": "10.0.0.7:8080"}).to_string();
            pipe.cmd("SET").arg(format!("session:s{it}")).arg(session);
            pipe.cmd("SET").arg(format!("poll:lease:s{it}")).arg(owner).arg("PX").arg(600_000);
            pipe.cmd("HSET").arg(format!("poll:result:s{it}")).arg(&["granted", "7", "ok", "1"]);
            pipe.cmd("HSET")
                .arg(format!("poll:result:s{it}"))
                .arg("started_at_ms")
                .arg(now * 1_000);
        }
        pipe.exec(&mut connection).unwrap();
    }
}

/// How often each command was called since the last `CONFIG RESETSTAT`.
fn calls(redis: &RedisServer, command: &str) -> usize {
    let stats = redis.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|it| it.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |it| it.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn ten_thousand_endpoints_are_read_once_each_and_only_what_needs_attention_is_listed() {
    let redis = RedisServer::start();
    alive(&redis, "vm1-1-aaaaaaaa", "1");
    many(&redis, 10_000, "vm1-1-aaaaaaaa");
    redis.cli(&["CONFIG", "RESETSTAT"]);
    let asked_at = Instant::now();
    let page = shown(&redis, &[]);
    println!("10,000 endpoints in {:?}", asked_at.elapsed());
    assert_eq!(verdict(&page), "1 instance has 10000 endpoints to itself: all polled, balanced.");
    assert_eq!(page.lines().count(), 6, "{page}");
    assert!(page.ends_with("10000 endpoints: 10000 ok. --all lists them.\n"), "{page}");
    // 30,001 keys are walked over twice, a thousand at a time, more or less.
    assert!((30..=140).contains(&calls(&redis, "scan")), "{} scans", calls(&redis, "scan"));
    // One more for each instance: whether it was revoked.
    assert_eq!((calls(&redis, "hmget"), calls(&redis, "strlen")), (10_002, 10_001));
    assert_eq!((calls(&redis, "getrange"), calls(&redis, "pttl")), (20_001, 10_001));
    assert_eq!((calls(&redis, "eval"), calls(&redis, "evalsha")), (0, 0));

    redis.cli(&["DEL", "poll:lease:s77", "poll:lease:s9999"]);
    let page = shown(&redis, &["-o", "wide"]);
    assert!(page.contains(": 9998 ok, 2 unowned. Those that need attention (--all"), "{page}");
    assert_eq!(
        (row(&page, "s77")[1..4].join(" "), page.lines().count()),
        ("unowned - vm1".into(), 9)
    );
    redis.cli(&["DEL", "poll:node:vm1-1-aaaaaaaa"]);
    let page = shown(&redis, &[]);
    assert_eq!(verdict(&page), "No instance is running: nobody polls 10000 endpoints.");
    assert!(page.contains("9998 abandoned, 2 unowned. The 50 worst (--all"), "{page}");
    assert_eq!(page.lines().filter(|it| it.starts_with('s')).count(), 50);
    let all = shown(&redis, &["--all"]);
    assert_eq!(all.lines().filter(|it| it.starts_with('s')).count(), 10_000);
    assert_eq!(document(&redis)["endpoints"].as_array().unwrap().len(), 10_000);
}

#[test]
fn a_closed_pipe_is_no_crash() {
    let redis = RedisServer::start();
    many(&redis, 2_000, "nobody");
    let url = redis.url();
    for how in ["--all", "--json"] {
        let command = format!(
            "{} status {how} --redis={url} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}",
            binary()
        );
        let output = Command::new("bash").args(["-c", &command]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    }
}

#[test]
fn prefixes_are_followed() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "mine:e1", r#"{"id":"e1","address":"127.0.0.1:1"}"#]);
    redis.cli(&["SET", "p[1]:node:vm1-1-aaaaaaaa", "1"]);
    redis.cli(&["SET", "other:node:vm2-1-bbbbbbbb", "2"]);
    redis.cli(&["SET", "other:lease:e1", "vm2-1-bbbbbbbb"]);
    let page = shown(&redis, &["--session-prefix=mine:", "--prefix=other"]);
    assert_eq!(verdict(&page), "1 instance has 1 endpoint to itself: 1 not polled yet, balanced.");
    assert_eq!(row(&page, "e1")[2], "vm2");
    assert!(row(&page, "vm2-1-bbbbbbbb").join(" ").ends_with("never ends"), "{page}");
    let page = shown(&redis, &["--prefix=nothing"]);
    assert_eq!(page, "No sessions are stored, and no instance is running.\n");
    assert_eq!(redis.cli(&["DBSIZE"]), "4", "nothing is written");
}

/// "who left recently": by a stop, and by a kill.
#[test]
fn who_left_lately_is_told_and_how() {
    let scene = Scene::new(9);
    let mut fleet = scene.fleet(3);
    let ids: Vec<String> = fleet.iter().map(Instance::id).collect();
    assert_eq!(document(&scene.redis)["left"], json!([]));
    assert!(!shown(&scene.redis, &[]).contains("Left in the last hour"));
    assert!(fleet[1].term().success());
    fleet[2].kill9();
    let wanted = "1 instance has 9 endpoints to itself: all polled, balanced.";
    let page = wait_for_verdict(&scene.redis, wanted);
    let line = page.lines().find(|it| it.starts_with("Left in the last hour: "));
    let line = line.unwrap_or_else(|| panic!("{page}"));
    assert!(line.contains(&format!("{} stopped ", ids[1])), "{page}");
    assert!(line.contains(&format!("{} died or was cut off ", ids[2])), "{page}");
    assert!(!line.contains(&ids[0]), "{page}");
    let told = document(&scene.redis);
    let how = |id: &str| entry(&told, "left", id)["how"].clone();
    assert_eq!((how(&ids[1]), how(&ids[2])), (json!("stopped"), json!("died")));
    assert_eq!(told["healthy"], true, "it is past");
}

#[test]
fn a_renewal_that_is_overdue_is_told() {
    let redis = traces(2);
    alive(&redis, "vm1-1-aaaaaaaa", "1");
    redis.cli(&["HSET", "poll:epoch", "epoch", "1", "since_ms", "1", "lease_ttl_ms", "60000"]);
    redis.cli(&["HSET", "poll:epoch", "margin_ms", "1900"]);
    for endpoint in ["e1", "e2"] {
        owns(&redis, "vm1-1-aaaaaaaa", endpoint);
        polled(&redis, endpoint, 1);
    }
    redis.cli(&["PEXPIRE", "poll:lease:e2", "14000"]);
    let page = shown(&redis, &[]);
    let wanted = "1 instance has 2 endpoints to itself: all polled, 1 uncertain, balanced.";
    assert_eq!(verdict(&page), wanted);
    assert_eq!((row(&page, "e1")[1], row(&page, "e2")[1]), ("ok", "uncertain"));
    let told = document(&redis);
    assert_eq!(json!([told["counts"]["uncertain"], told["healthy"]]), json!([1, false]));
}

/// Point 20: what is cut on a terminal is whole in a pipe, where it may be searched, and with `--all`.
#[test]
fn a_long_result_is_cut_to_the_width_of_a_terminal_and_nowhere_else() {
    use testkit::terminal::Terminal;
    let redis = RedisServer::start();
    let session = json!({"id": "e1", "address": "127.0.0.1:1"}).to_string();
    redis.cli(&["SET", "session:e1", &session]);
    let error = format!("exit code 7; stderr: {} the end", "word ".repeat(60).trim_end());
    let fields =
        ["fence", "1", "instance", "vm-1-a", "ok", "0", "started_at_ms", "1", "duration_ms", "5"];
    redis.cli(&[&["HSET", "poll:result:e1", "error", &error][..], &fields].concat());
    for args in [&[][..], &["--all"]] {
        let page = shown(&redis, args);
        assert!(page.contains(&error), "{args:?}: {page}");
    }
    let url = format!("--redis={}", redis.url());
    let on_terminal = |columns: &str, args: &[&str]| {
        let all = [&["status", &url][..], args].concat();
        let mut terminal = Terminal::start_in(&[("COLUMNS", columns)], &all, 30, 1_000);
        assert!(terminal.wait().success());
        terminal.wait_for("As read from")
    };
    let page = on_terminal("100", &[]);
    let line = page.lines().find(|it| it.starts_with("e1 ")).unwrap();
    assert!(line.chars().count() <= 100 && line.ends_with("..."), "{line}");
    assert!(line.chars().count() > 95, "as much as fits: {line}");
    assert!(on_terminal("100", &["--all"]).contains(&error));
    // On one that is too narrow for anything, something is shown all the same.
    let page = on_terminal("40", &[]);
    assert!(page.contains("failed in 5 ms"), "{page}");
}
