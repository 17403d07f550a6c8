//! `leasehold plan` and `explain`, with the real binary on a real fleet.

use std::process::Output;

use serde_json::{Value, json};

use testkit::process::{SOON, Scene, eventually, leasehold};

fn run(scene: &Scene, args: &[&str]) -> Output {
    let redis = format!("--redis={}", scene.redis.url());
    leasehold(&[args, &[redis.as_str()]].concat())
}

fn document(scene: &Scene, args: &[&str]) -> Value {
    let output = run(scene, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is forecast is what then happens: the same placement decides both.
#[test]
fn a_forecast_comes_true() {
    let scene = Scene::new(9);
    let mut fleet = scene.fleet(2);
    assert_eq!(document(&scene, &["plan"])["moves"], 0);
    let joined = document(&scene, &["plan", "--join", "1"]);
    assert_eq!((joined["endpoints"].as_u64(), joined["moves"].as_u64()), (Some(9), Some(3)));
    let gone = document(&scene, &["plan", "--leave", &fleet[1].id()]);
    let moved = scene.counts(&[&fleet[1]])[0];
    assert_eq!(gone["moves"].as_u64().unwrap() as usize, moved, "{gone}");
    assert_eq!(gone["instances"][0]["owned"], 9, "{gone}");
    let page = String::from_utf8(run(&scene, &["plan", "--join", "2"]).stdout).unwrap();
    assert!(page.starts_with("4 leases of 9 endpoints would move."), "{page}");
    assert!(page.contains("new-2"), "{page}");
    // Now an instance really joins.
    let before = scene.owners();
    fleet.push(scene.join(&[]));
    scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), SOON);
    let after = scene.owners();
    let changed = after.iter().filter(|it| before.get(it.0) != Some(it.1)).count();
    assert_eq!(changed, 3);
    let unknown = run(&scene, &["plan", "--leave", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no live instance is called nobody"));
}

#[test]
fn every_endpoint_can_be_explained() {
    let scene = Scene::new(4);
    let nobody = document(&scene, &["explain", "e1"]);
    assert_eq!((nobody["owner"].as_str(), nobody["state"].as_str()), (None, Some("unowned")));
    assert!(nobody["why"][1].as_str().unwrap().contains("No live instance"), "{nobody}");
    let fleet = scene.fleet(2);
    let owned = document(&scene, &["explain", "e1"]);
    let owner = scene.owners()["e1"].clone();
    assert_eq!(owned["owner"].as_str(), Some(owner.as_str()));
    assert_eq!(owned["preference"].as_array().unwrap().len(), 2);
    let page = String::from_utf8(run(&scene, &["explain", "e1"]).stdout).unwrap();
    assert!(
        page.contains(&format!("{owner} owns e1")) && page.contains("It stays there"),
        "{page}"
    );
    scene.put_session("e2", serde_json::json!({"isPaused": true}));
    let told = || document(&scene, &["explain", "e2"]).to_string();
    eventually(SOON, "a pause", told, || document(&scene, &["explain", "e2"])["owner"].is_null());
    assert_eq!(document(&scene, &["explain", "e2"])["state"], "paused");
    let none = run(&scene, &["explain", "e99"]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(run(&scene, &["explain", "a b"]).status.code(), Some(2));
    drop(fleet);
}

/// Nobody can be granted it, whatever the plan says.
#[test]
fn keys_of_a_wrong_type_are_explained() {
    let scene = Scene::new(2);
    let redis = &scene.redis;
    redis.cli(&["HSET", "poll:lease:e1", "a", "b"]);
    redis.cli(&["SET", "poll:result:e1", "x"]);
    redis.cli(&["DEL", "session:e2"]);
    redis.cli(&["LPUSH", "session:e2", "x"]);
    redis.cli(&["LPUSH", "poll:lease:lost", "x"]);
    redis.cli(&["SET", "poll:epoch", "x"]);
    let why = document(&scene, &["explain", "e1"])["why"].to_string();
    for words in [
        "poll:lease:e1 is not a string: it can be granted to nobody; redis-cli DEL poll:lease:e1",
        "poll:result:e1 is not a hash: it can be granted to nobody, and no result stored; redis-cli DEL",
        "poll:epoch is of the type string, not hash",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    let why = document(&scene, &["explain", "e2"])["why"].to_string();
    assert!(why.contains("the key holds a list, not a string"), "{why}");
    assert!(!why.contains("poll:lease:e1"), "another's: {why}");
    let none = run(&scene, &["explain", "lost"]);
    let said = String::from_utf8_lossy(&none.stderr);
    assert_eq!(none.status.code(), Some(1));
    assert!(
        said.contains("there is no session lost, but poll:lease:lost is not a string"),
        "{said}"
    );
}

/// Drained instances are in nobody's order, and what has no lease has nothing left of it.
#[test]
fn shares_and_drains_are_explained_in_numbers() {
    let scene = Scene::new(3);
    let redis = &scene.redis;
    for (id, weight) in [("vm1-1-aaaaaaaa", "1"), ("vm2-1-bbbbbbbb", "0")] {
        redis.cli(&["SET", &format!("poll:node:{id}"), weight, "PX", "60000"]);
    }
    redis.cli(&["SADD", "poll:drain", "vm2"]);
    redis.cli(&["SET", "poll:lease:e1", "vm1-1-aaaaaaaa", "PX", "60000"]);
    redis.cli(&["SET", "poll:lease:e2", "vm2-1-bbbbbbbb", "PX", "60000"]);
    redis.cli(&["HSET", "poll:result:e3", "granted", "7"]);
    let page = |id: &str| String::from_utf8(run(&scene, &["explain", id]).stdout).unwrap();
    let kept = page("e1");
    assert!(kept.contains("within its share: it owns 1, and its share is 3.0"), "{kept}");
    let drained = page("e2");
    assert!(drained.contains("should have it, because vm2-1-bbbbbbbb is drained;"), "{drained}");
    let last = drained.lines().rfind(|it| it.contains("vm2")).unwrap();
    assert!(last.trim_start().starts_with("-  vm2") && last.ends_with("drained"), "{drained}");
    let free = page("e3");
    assert!(free.contains("\nThe last fence was 7.\n") && !free.contains("- left"), "{free}");
    assert_eq!(document(&scene, &["explain", "e3"])["late"], json!(false));
}
