//! `leasehold audit` beside real fleets: planted contradictions are found, and kills, stops and outages are none.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use testkit::audit::Audit;
use testkit::process::{SOON, Scene, TempDir, eventually, leasehold, ms, run, said};
use testkit::redis::RedisServer;

const STORE: &str = "--store-timeout=5s";

fn now_ms(redis: &RedisServer) -> u64 {
    let time = redis.cli(&["TIME"]);
    let [seconds, micros] = [0, 1].map(|n| time.lines().nth(n).unwrap().parse::<u64>().unwrap());
    seconds * 1_000 + micros / 1_000
}

/// Announces a result as an instance would.
fn announce(redis: &RedisServer, endpoint: &str, instance: &str, fence: u64, poll: (u64, u64)) {
    let result = json!({
        "endpoint": endpoint, "fence": fence, "instance": instance, "ok": 1, "status": 200,
        "error": null, "started_at_ms": poll.0, "duration_ms": poll.1, "interval_ms": 5_000,
        "db": 0, "body": "",
    });
    redis.cli(&["PUBLISH", &format!("poll:results:{endpoint}"), &result.to_string()]);
}

/// An audit that sees the results of the fleet.
fn begun(scene: &Scene, args: &[&str]) -> Audit {
    let audit = Audit::beside(&scene.redis.url(), &[&[STORE], args].concat());
    let receivers = || scene.redis.cli(&["PUBSUB", "NUMPAT"]);
    eventually(SOON, "a subscription", receivers, || receivers() == "1");
    audit
}

fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// Kills, a stop, a drain, a new session, a pause and its end, an instance that is frozen and wakes up.
#[test]
fn a_fleet_that_is_killed_frozen_and_restarted_causes_no_finding() {
    let scene = Scene::new(12);
    let mut fleet = scene.fleet_with(3, &["--interval=1s"]);
    let audit = begun(&scene, &[]);
    // e1 is paused now and then.
    let all_polled = || scene.target.wait_for_polls(&scene.endpoints[1..], Instant::now(), SOON);
    for round in 0..2 {
        fleet[1].kill9();
        all_polled();
        fleet[1] = scene.join(&["--interval=1s"]);
        fleet[2].freeze();
        pass(ms(4_000));
        all_polled();
        fleet[2].thaw();
        assert!(fleet[0].term().success());
        all_polled();
        fleet[0] = scene.join(&["--interval=1s"]);
        scene.put_session("e1", json!({"isPaused": round == 0}));
        pass(ms(500));
    }
    all_polled();
    let audited = audit.end();
    audited.assert_clean();
    assert_eq!(audited.summary["foreign"], 0, "{audited:#?}");
    assert!(audited.summary["looks"].as_u64() > Some(3), "{audited:#?}");
    // What Redis remembers of it says the same.
    let told = said(&run(&scene.redis, &["audit", "--since=1h", STORE]));
    assert!(told.starts_with("audited 12 results, ") && told.contains(": no finding"), "{told}");
    println!("{}", audited.summary);
}

#[test]
fn a_second_owner_is_found_live_and_in_the_record() {
    let scene = Scene::new(2);
    let one = scene.first(&["--interval=1s"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let dir = TempDir::new();
    let record = format!("--record={}", dir.path().join("record").display());
    let audit = begun(&scene, &[&record]);
    let redis = &scene.redis;
    let (now, of_one) = (now_ms(redis), scene.result("e1")["fence"].parse::<u64>().unwrap());
    // A lower fence after that of the owner.
    pass(ms(1_500));
    announce(redis, "e1", "vm-1-aaaaaaaa", of_one - 1, (of_one / 1_000 - 5, 1));
    let found = audit.wait_for(&["fenceBack"]);
    assert_eq!(found["endpoint"], "e1");
    assert_eq!(found["earlier"]["instance"], one.id());
    assert_eq!(found["later"]["instance"], "vm-1-aaaaaaaa");
    assert!(found["sentence"].as_str().unwrap().contains("leasehold history e1"), "{found}");
    // The fence of the owner.
    announce(redis, "e2", "vm-1-aaaaaaaa", of_one, (now, 1));
    audit.wait_for(&["sharedFence", "\"e2\""]);
    // Two that poll at a time.
    announce(redis, "x", "vm-1-aaaaaaaa", now * 1_000, (now, 5_000));
    announce(redis, "x", "vm-2-bbbbbbbb", now * 1_000 + 7, (now + 1_500, 5_000));
    let found = audit.wait_for(&["overlap"]);
    assert_eq!((&found["endpoint"], &found["forMs"]), (&json!("x"), &json!(3_500)));
    // One that polls on under its fence, with a new grant in the history.
    let grant = format!("{}", (now + 1_000) * 1_000);
    announce(redis, "y", "vm-1-aaaaaaaa", now * 1_000, (now + 5_000, 3));
    let entry =
        ["event", "acquired", "instance", "vm-2-bbbbbbbb", "endpoint", "y", "fence", &grant];
    redis.cli(&[&["XADD", "poll:history", "*"][..], &entry].concat());
    audit.wait_for(&["superseded", "\"y\""]);
    // Strangers.
    for noise in ["", "{", "{\"ok\":1}", "{\"ok\":1,\"fence\":9007199254740993,\"instance\":\"a\"}"]
    {
        redis.cli(&["PUBLISH", "poll:results:e1", noise]);
    }
    redis.cli(&["PUBLISH", "poll:results:e1", &"x".repeat(1_000_000)]);
    redis.cli(&["XADD", "poll:changes", "*", "a", "b"]);
    pass(ms(500));
    let audited = audit.end();
    assert_eq!(audited.code, Some(1), "{audited:#?}");
    assert_eq!(audited.kinds(), ["fenceBack", "sharedFence", "overlap", "superseded"]);
    assert_eq!(audited.summary["foreign"], 6, "{audited:#?}");
    assert_eq!(audited.summary["findings"]["overlap"], 1);

    // The record tells the same, without Redis.
    let path = dir.path().join("record");
    let replay = format!("--replay={}", path.display());
    let again = leasehold(&["audit", "--json", &replay, "--redis=redis://127.0.0.1:1"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let text = String::from_utf8(again.stdout).unwrap();
    let mut documents: Vec<Value> =
        text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(documents.pop(), Some(audited.summary));
    assert_eq!(documents, audited.findings);
    let lines = leasehold(&["audit", &replay]);
    let text = String::from_utf8(lines.stdout).unwrap();
    assert_eq!((lines.status.code(), text.lines().count()), (Some(1), 5), "{text}");
    assert!(text.contains(" overlap x was polled by two owners at a time for 3.5s: by "), "{text}");
    let checked = leasehold(&["audit", "--check", &replay]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(2), "{text}");
    assert!(
        text.starts_with("CRITICAL: audited ") && text.contains(" | findings=4 results="),
        "{text}"
    );
    // A record that somebody else wrote.
    fs::write(&path, "no document\n{\"type\":\"look\"}\n").unwrap();
    let strange = leasehold(&["audit", &replay]);
    assert_eq!(strange.status.code(), Some(1), "{strange:?}");
    assert!(String::from_utf8_lossy(&strange.stderr).contains("nothing could be audited"));
}

#[test]
fn an_endpoint_that_nobody_polls_is_found() {
    let scene = Scene::new(2);
    let mut one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let audit = begun(&scene, &[]);
    pass(ms(1_000));
    // The fleet dies, and nobody takes over.
    one.kill9();
    let found = audit.wait_for(&["unpolled", "\"e1\""]);
    assert!(found["forMs"].as_u64() > Some(3_190), "{found}");
    audit.wait_for(&["unpolled", "\"e2\""]);
    let audited = audit.end();
    assert_eq!((audited.code, audited.findings.len()), (Some(1), 2), "{audited:#?}");
    // And so says what is stored.
    let told = run(&scene.redis, &["audit", "--check", STORE]);
    let line = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(2), "{line}");
    assert!(line.contains(": 2 findings: 2 unpolled"), "{line}");
    let _two = scene.join(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let told = run(&scene.redis, &["audit", "--check", "--since=1m", STORE]);
    let line = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(0), "{line}");
    assert!(line.starts_with("OK: audited 2 results, "), "{line}");
}

#[test]
fn an_outage_of_redis_is_told_and_is_no_finding() {
    let mut scene = Scene::new(2);
    let _one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let mut audit = begun(&scene, &["--for=14s", "--store-timeout=1s"]);
    pass(ms(1_000));
    scene.redis.save();
    scene.redis.kill();
    audit.wait_for_complaint(&["Redis does not answer, trying again"]);
    pass(ms(4_000));
    scene.redis.restart();
    audit.wait_for_complaint(&["Redis answers again, after"]);
    let audited = audit.wait();
    audited.assert_clean();
    for source in ["results", "looks"] {
        let missed = audited.summary["unobservedMs"][source].as_u64().unwrap();
        assert!((3_000..12_000).contains(&missed), "{audited:#?}");
    }
    assert_eq!(audited.complained.len(), 2, "{audited:#?}");
    // A connection that is cut off loses messages, although Redis goes on.
    let audit = begun(&scene, &[]);
    pass(ms(500));
    scene.redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    audit.wait_for_complaint(&["Redis answers again"]);
    let audited = audit.end();
    audited.assert_clean();
    assert!(audited.summary["unobservedMs"]["results"].as_u64() > Some(0), "{audited:#?}");
}

#[test]
fn what_cannot_be_audited_is_said() {
    let scene = Scene::new(1);
    let away = leasehold(&["audit", "--redis=redis://127.0.0.1:1", "--for=1s"]);
    assert_eq!(away.status.code(), Some(1), "{away:?}");
    let check = leasehold(&["audit", "--redis=redis://127.0.0.1:1", "--check"]);
    assert_eq!(check.status.code(), Some(3), "{check:?}");
    assert!(String::from_utf8_lossy(&check.stdout).starts_with("UNKNOWN: "), "{check:?}");
    for args in [
        &["--since=1h", "--for=1s"][..],
        &["--since=1h", "--replay=x"],
        &["--replay=x", "--record=y"],
        &["--json", "--for=soon"],
    ] {
        let wrong = leasehold(&[&["audit"], args].concat());
        assert_eq!(wrong.status.code(), Some(2), "{args:?}: {wrong:?}");
    }
    let wrong = leasehold(&["audit", "--check", "--json"]);
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
    let missing = leasehold(&["audit", "--replay=/nowhere/record"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    // A user who may only look may audit; with less, it says what it did not see.
    let _one = scene.first(&[]);
    let url = scene.redis.give_rule("onlooker");
    let mut audit = Audit::beside(&url, &[STORE, "--for=3s"]);
    audit.wait().assert_clean();
    scene.redis.cli(&["ACL", "SETUSER", "onlooker", "resetchannels"]);
    let mut audit = Audit::beside(&url, &[STORE, "--for=3s"]);
    let audited = audit.wait();
    assert_eq!(audited.code, Some(0), "{audited:#?}");
    assert!(audited.complained.iter().any(|it| it.contains("&poll:results:*")), "{audited:#?}");
    assert!(audited.summary["unobservedMs"]["results"].as_u64() >= Some(2_900), "{audited:#?}");
}
