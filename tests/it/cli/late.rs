//! Endpoints that are polled less often than they should be: `status` and `explain` say so, with the likely
//! reason, and nothing is called late by a guess.

use std::time::Instant;

use serde_json::{Value, json};

use crate::cli::status::{alive, document, entry, owns, polled, row, shown, traces, verdict};
use testkit::process::{SOON, Scene, eventually, leasehold, ms};
use testkit::redis::RedisServer;
use testkit::target::Answer;

const VM1: &str = "vm1-1-aaaaaaaa";

/// The sentences of `explain`.
#[track_caller]
fn explained(redis: &RedisServer, endpoint: &str) -> String {
    let output = leasehold(&["explain", endpoint, &format!("--redis={}", redis.url()), "--json"]);
    assert!(output.status.success(), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sentences = told["why"].as_array().unwrap().iter();
    sentences.map(|it| it.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

fn says(redis: &RedisServer, endpoint: &str, fields: &[&str]) {
    let key = format!("poll:result:{endpoint}");
    redis.cli(&[&["HSET", &key], fields].concat());
}

/// As if it had been granted this many seconds ago.
fn granted(redis: &RedisServer, endpoint: &str, seconds_ago: u64) {
    let now: u64 = redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let fence = ((now - seconds_ago) * 1_000_000).to_string();
    says(redis, endpoint, &["granted", &fence]);
}

fn session(redis: &RedisServer, endpoint: &str, fields: Value) {
    let mut session = json!({"id": endpoint, "address": "127.0.0.1:1"});
    for (name, value) in fields.as_object().unwrap() {
        session[name] = value.clone();
    }
    redis.cli(&["SET", &format!("session:{endpoint}"), &session.to_string()]);
}

/// Everything owned by one instance, and polled a second ago.
fn at_work(n_sessions: usize) -> RedisServer {
    let redis = traces(n_sessions);
    alive(&redis, VM1, "1");
    for n in 1..=n_sessions {
        owns(&redis, VM1, &format!("e{n}"));
        polled(&redis, &format!("e{n}"), 1);
    }
    redis
}

#[test]
fn those_polled_late_are_counted_and_the_worst_are_named() {
    let redis = at_work(6);
    for (endpoint, seconds_ago) in [("e1", 70), ("e2", 95), ("e3", 60), ("e4", 80), ("e5", 12)] {
        polled(&redis, endpoint, seconds_ago);
        says(&redis, endpoint, &["interval_ms", "10000", "duration_ms", "20"]);
    }
    let page = shown(&redis, &[]);
    let told = verdict(&page).to_owned();
    let wanted = "1 instance has 6 endpoints to itself: 4 polled late, balanced. \
                  4 endpoints are polled late: e2 (last poll 9";
    assert!(told.starts_with(wanted), "{told}");
    assert!(told.contains("s ago, every 10s), e4 (last poll 8"), "{told}");
    assert!(told.ends_with(", every 10s), and 1 more."), "{told}");
    assert_eq!((row(&page, "e2")[1], row(&page, "e5")[1]), ("late", "ok"));
    let told = document(&redis);
    assert_eq!(told["late"], json!(["e2", "e4", "e1", "e3"]));
    assert_eq!((&told["counts"]["late"], &told["healthy"]), (&json!(4), &json!(false)));
    let late = entry(&told, "endpoints", "e2");
    assert_eq!((&late["late"], &late["intervalMs"]), (&json!(true), &json!(10_000)));
    // Two intervals, one more for a poll that suddenly takes long, and a second are allowed for.
    assert!((60_000..69_000).contains(&late["overdueMs"].as_u64().unwrap()), "{late}");
    let fine = entry(&told, "endpoints", "e5");
    assert_eq!((&fine["late"], &fine["overdueMs"]), (&json!(false), &json!(null)));
}

/// Versions that share a fleet, endpoints that have just been taken over, that are light, or seldom polled.
#[test]
fn nothing_is_called_late_by_a_guess() {
    let redis = at_work(7);
    // Of an older version, and nobody says how often.
    polled(&redis, "e1", 100);
    assert_eq!(document(&redis)["late"], json!([]));
    // Polled once an hour, whatever --stale-after says.
    polled(&redis, "e2", 3_000);
    says(&redis, "e2", &["interval_ms", "3600000"]);
    session(&redis, "e3", json!({"intervalMs": 3_600_000}));
    polled(&redis, "e3", 3_000);
    // Light: its own interval is not the one it is polled with.
    session(&redis, "e4", json!({"intervalMs": 5_000}));
    polled(&redis, "e4", 40);
    says(&redis, "e4", &["interval_ms", "30000", "ok", "0"]);
    // Taken over a moment ago.
    polled(&redis, "e5", 90);
    says(&redis, "e5", &["interval_ms", "5000"]);
    granted(&redis, "e5", 1);
    // Nonsense.
    polled(&redis, "e6", 90);
    says(&redis, "e6", &["interval_ms", "18446744073709551615", "granted", "-7"]);
    // Its polls take this long, so they cannot begin more often.
    session(&redis, "e7", json!({"timeoutMs": 100_000, "intervalMs": 1_000}));
    polled(&redis, "e7", 90);
    says(&redis, "e7", &["duration_ms", "60000"]);
    let told = document(&redis);
    assert_eq!(told["late"], json!([]), "{told:#}");
    assert_eq!(entry(&told, "endpoints", "e4")["state"], "failing");
    granted(&redis, "e5", 80);
    assert_eq!(document(&redis)["late"], json!(["e5"]));
    // Whichever instance has owned it meanwhile: no instance polls it.
    granted(&redis, "e5", 1);
    polled(&redis, "e5", 500);
    assert_eq!(entry(&document(&redis), "endpoints", "e5")["state"], "stale");
}

#[test]
fn an_endpoint_that_was_never_polled_is_late_by_what_the_others_say() {
    let redis = at_work(2);
    redis.cli(&["DEL", "poll:result:e2"]);
    granted(&redis, "e2", 60);
    assert_eq!(
        entry(&document(&redis), "endpoints", "e2")["state"],
        "new",
        "nobody says how often"
    );
    says(&redis, "e1", &["interval_ms", "5000"]);
    let told = verdict(&shown(&redis, &[])).to_owned();
    assert!(told.contains("1 endpoint is polled late: e2 (never polled, owned for 6"), "{told}");
    granted(&redis, "e2", 10);
    assert_eq!(document(&redis)["late"], json!([]));
}

#[test]
fn the_likely_reason_is_told() {
    let redis = at_work(3);
    redis.cli(&["HSET", "poll:epoch", "epoch", "1", "since_ms", "1", "lease_ttl_ms", "60000"]);
    redis.cli(&["HSET", "poll:epoch", "margin_ms", "1900"]);
    polled(&redis, "e1", 90);
    says(&redis, "e1", &["interval_ms", "5000", "duration_ms", "40"]);
    let why = explained(&redis, "e1");
    assert!(why.contains(&format!("{VM1} owns e1, but polls it late: last poll 9")), "{why}");
    assert!(why.contains("Why is not to be seen from here"), "{why}");
    polled(&redis, "e2", 80);
    says(&redis, "e2", &["interval_ms", "5000", "duration_ms", "2500"]);
    let why = explained(&redis, "e1");
    let wanted = format!("{VM1} has too few workers. 2 of its endpoints are late");
    assert!(why.contains(&wanted) && why.contains("about 0.5 at a time busy"), "{why}");
    says(&redis, "e1", &["duration_ms", "9900"]);
    let why = explained(&redis, "e1");
    assert!(why.contains("the endpoint is slow. Its last poll took 9.9s"), "{why}");
    redis.cli(&["PEXPIRE", "poll:lease:e1", "10000"]);
    let why = explained(&redis, "e1");
    assert!(why.contains(&format!("{VM1} does not reach Redis, or stands still")), "{why}");
    assert!(!explained(&redis, "e3").contains("likely"), "it is not late");
}

/// A fleet at a third of its pace: no endpoint waits for three rounds, and yet it is not "all polled".
#[test]
fn an_owner_that_does_not_keep_its_pace_is_told() {
    let redis = at_work(12);
    for n in 1..=12 {
        polled(&redis, &format!("e{n}"), 14 * (n - 1) / 11);
        says(&redis, &format!("e{n}"), &["interval_ms", "5000", "duration_ms", "20"]);
    }
    let told = verdict(&shown(&redis, &[])).to_owned();
    assert!(told.starts_with("1 instance has 12 endpoints to itself: "), "{told}");
    assert!(told.contains(" polled late, balanced. "), "{told}");
    let told = document(&redis);
    assert_eq!(
        (&told["healthy"], &told["counts"]["ok"].as_u64().map(|it| it >= 6)),
        (&json!(false), &Some(true))
    );
    assert_eq!(entry(&told, "endpoints", "e12")["state"], "late");
}

/// docs/operating.md: "polls are late". With the real binary: the interval comes with each result.
#[test]
fn too_few_workers_are_seen_from_outside() {
    let scene = Scene::new(40);
    for endpoint in &scene.endpoints {
        scene.target.answer(endpoint, Answer { delay: ms(300), ..Answer::default() });
        scene.put_session(endpoint, json!({"timeoutMs": 1_000}));
    }
    let one = scene.first(&["--workers=1"]);
    let told = || shown(&scene.redis, &[]);
    eventually(2 * SOON, "lateness", told, || {
        document(&scene.redis)["counts"]["late"].as_u64().unwrap() > 2
    });
    let result = &document(&scene.redis);
    let late = result["late"][0].as_str().unwrap();
    assert_eq!(entry(result, "endpoints", late)["intervalMs"], 200, "{result:#}");
    let (id, began) = (one.id(), Instant::now());
    let crowded = || {
        let late = document(&scene.redis)["late"][0].as_str().map(String::from);
        late.is_some_and(|it| explained(&scene.redis, &it).contains(&format!("{id} has too few")))
    };
    eventually(SOON, "a reason", || format!("{}, after {:?}", told(), began.elapsed()), crowded);
}

/// 60 endpoints of which each takes 150 ms, once a second: nine workers would do.
fn sixty() -> Scene {
    let scene = Scene::new(60);
    for endpoint in &scene.endpoints {
        scene.target.answer(endpoint, Answer { delay: ms(150), ..Answer::default() });
    }
    scene
}

fn infos(redis: &RedisServer) -> Vec<String> {
    let keys = redis.cli(&["KEYS", "poll:info:*"]);
    keys.lines().filter(|it| !it.is_empty()).map(String::from).collect()
}

/// Issue 19, 5: and with enough workers it says nothing.
#[test]
fn an_instance_that_cannot_keep_up_says_so_and_what_to_raise() {
    let scene = sixty();
    let redis = &scene.redis;
    let mut one = scene.first(&["--workers=4", "--interval=1s"]);
    let id = one.id();
    let wanted = " instead of 1 s: all 4 workers are busy; raise LEASEHOLD_WORKERS there";
    let told = || shown(redis, &[]);
    eventually(4 * SOON, "the shortage", told, || {
        let told = document(redis);
        let behind = entry(&told, "instances", &id)["behind"].as_u64();
        told["verdict"].as_str().unwrap().contains(wanted)
            && told["healthy"] == json!(false)
            && behind > Some(30)
    });
    let told = document(redis);
    let sentence = told["verdict"].as_str().unwrap();
    assert!(sentence.contains(&format!(" endpoints of {id} are polled every ")), "{sentence}");
    let it = entry(&told, "instances", &id);
    assert_eq!(json!([it["keepsUp"], it["workers"], it["busy"]]), json!([false, 4, 4]), "{it}");
    assert_eq!(json!([it["version"], it["protocol"]]), json!([env!("CARGO_PKG_VERSION"), 2]));
    let number = |field: &str| it[field].as_u64().unwrap_or_else(|| panic!("{field}: {it}"));
    assert!(number("behind") > 30 && number("periodMs") > 1_500, "{it}");
    assert!(number("pollsPerMin") > 500 && number("skippedPerMin") > 0, "{it}");
    assert!(number("lagMs") > 500 && number("threads") == 4, "{it}");
    assert_eq!((number("slowBehind"), number("deferredPerMin")), (0, 0), "{it}");
    let why = explained(redis, "e7");
    assert!(why.contains(&format!("{id} has too few workers: ")) && why.contains(wanted), "{why}");
    let page = shown(redis, &[]);
    let row = row(&page, "vm");
    assert_eq!((row[1], row[3]), (env!("CARGO_PKG_VERSION"), "4/4"), "{page}");
    assert!(one.term().success());
    assert_eq!(infos(redis), [""; 0], "it goes with its instance");

    let two = scene.join(&["--workers=48", "--interval=1s"]);
    eventually(
        4 * SOON,
        "enough",
        || shown(redis, &[]),
        || {
            let told = document(redis);
            let it = entry(&told, "instances", &two.id());
            it["pollsPerMin"].as_u64() > Some(1_000) && told["healthy"] == json!(true)
        },
    );
    let told = document(redis);
    let it = entry(&told, "instances", &two.id());
    assert_eq!(
        json!([it["keepsUp"], it["behind"], it["periodMs"]]),
        json!([true, 0, null]),
        "{it}"
    );
    assert!(!told["verdict"].as_str().unwrap().contains("LEASEHOLD_WORKERS"), "{told:#}");
}

/// They share a part of the workers on purpose, so more of them would be no remedy for the others.
#[test]
fn slow_endpoints_that_wait_for_one_another_are_no_shortage_of_workers() {
    let scene = Scene::new(10);
    for endpoint in &scene.endpoints[..8] {
        scene.target.answer(endpoint, Answer { delay: ms(1_200), ..Answer::default() });
    }
    let one = scene.first(&["--workers=4", "--interval=500ms"]);
    let told = || shown(&scene.redis, &[]);
    let wanted = "so that the others do not wait for them: slow endpoints may have half of \
                  LEASEHOLD_WORKERS (4)";
    eventually(6 * SOON, "slow endpoints", told, || {
        document(&scene.redis)["verdict"].as_str().unwrap().contains(wanted)
    });
    let told = document(&scene.redis);
    let it = entry(&told, "instances", &one.id());
    assert_eq!(it["keepsUp"], json!(true), "{it}");
    assert!(it["slowBehind"].as_u64() > Some(1) && it["slow"].as_u64() <= Some(2), "{it}");
    let why = explained(&scene.redis, "e1");
    assert!(why.contains("slow endpoints may have half of LEASEHOLD_WORKERS"), "{why}");
}

/// What goes with a heartbeat: after a kill it expires, and `leasehold release` deletes it at once.
#[test]
fn what_an_instance_tells_is_gone_when_it_is() {
    let scene = Scene::new(1);
    let redis = &scene.redis;
    let mut one = scene.first(&[]);
    eventually(SOON, "info", || infos(redis).join(" "), || infos(redis).len() == 1);
    one.kill9();
    eventually(SOON, "its end", || infos(redis).join(" "), || infos(redis).is_empty());
    let mut two = scene.join(&["--heartbeat-ttl=60s"]);
    let key = format!("poll:info:{}", two.id());
    eventually(SOON, "info", || infos(redis).join(" "), || infos(redis) == [key.clone()]);
    two.kill9();
    assert_eq!(infos(redis), [key]);
    let (url, id) = (format!("--redis={}", redis.url()), format!("--instance={}", two.id()));
    assert!(leasehold(&["release", &url, &id, "--force"]).status.success());
    assert_eq!(infos(redis), [""; 0]);
}

/// As an instance would tell that 1 endpoint is polled at one and a half times its interval.
fn tells(redis: &RedisServer, instance: &str, fields: &[&str]) {
    let key = format!("poll:info:{instance}");
    let version = ["version", "7.8.9", "protocol", "1", "started_at_ms", "1", "workers", "48"];
    redis.cli(&[&["HSET", &key][..], &version, fields].concat());
}

/// Results tell of the last poll only, and this endpoint's is fresh whenever one looks. Its owner knows better.
#[test]
fn a_single_endpoint_at_one_and_a_half_times_its_interval_is_told_by_its_owner() {
    let redis = at_work(3);
    ["e1", "e2", "e3"].iter().for_each(|it| says(&redis, it, &["interval_ms", "5000"]));
    let behind = ["behind", "1", "period_ms", "7500", "interval_ms", "5000", "worst", "e2"];
    tells(&redis, VM1, &["busy", "48"]);
    assert_eq!(document(&redis)["healthy"], json!(true));
    tells(&redis, VM1, &behind);
    let told = document(&redis);
    assert_eq!((&told["healthy"], &told["late"]), (&json!(false), &json!([])));
    let sentence = told["verdict"].as_str().unwrap();
    let wanted = format!(
        "1 endpoint of {VM1} (e2) is polled every 7.5 s instead of 5 s: all 48 workers are busy; raise"
    );
    assert!(sentence.contains(&wanted), "{sentence}");
    // Its workers are idle: more of them would not help.
    tells(&redis, VM1, &["busy", "3"]);
    let sentence = document(&redis)["verdict"].as_str().unwrap().to_owned();
    assert!(sentence.contains("instead of 5 s: only 3 of 48 workers are busy"), "{sentence}");
    assert!(sentence.contains("too little CPU") && !sentence.contains("raise"), "{sentence}");
    assert!(explained(&redis, "e2").contains("too little CPU"));
}

/// Versions share a fleet: one that tells nothing is shown with dashes, and nothing is concluded.
#[test]
fn an_instance_of_an_older_version_is_shown_with_dashes() {
    let redis = at_work(3);
    let page = shown(&redis, &[]);
    assert!(!page.contains("POLLING"), "nobody tells: {page}");
    let it = entry(&document(&redis), "instances", VM1).clone();
    for field in ["version", "keepsUp", "workers", "busy", "skippedPerMin", "lagMs", "behind"] {
        assert_eq!(it[field], json!(null), "{field}");
    }
    let newer = "vm2-1794821395927325244-04a59e5d";
    alive(&redis, newer, "1");
    tells(&redis, newer, &["busy", "2", "skipped_per_min", "7", "lag_ms", "1200"]);
    let page = shown(&redis, &[]);
    assert_eq!(row(&page, "vm1")[1..], ["-"; 6], "{page}");
    let cells = row(&page, "vm2");
    assert_eq!((cells[1], cells[3]), ("7.8.9", "2/48"), "{page}");
    assert_eq!(cells[4..], ["0", "7", "1.2s"], "{page}");
    let tables = page.split("\n\n").filter(|it| it.contains("HEARTBEAT") || it.contains("LAG"));
    assert!(tables.flat_map(str::lines).all(|it| it.chars().count() <= 80), "{page}");
    // A key and values of another client.
    redis.cli(&["SET", &format!("poll:info:{VM1}"), "mine"]);
    tells(&redis, newer, &["workers", "many", "version", "\x1b[2J"]);
    let page = shown(&redis, &[]);
    assert!(page.contains(&format!("poll:info:{VM1} is not a hash")), "{page}");
    assert!(!page.contains('\x1b') && row(&page, "vm2")[3] == "-", "{page}");
}
