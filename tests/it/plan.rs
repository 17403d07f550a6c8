//! `leasehold plan` and `explain`, with the real binary on a real fleet.

use std::process::Output;

use serde_json::Value;

use crate::support::process::{SOON, Scene, eventually, leasehold};

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
    // Now somebody really joins.
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
