//! US1: work is shared out among whoever runs, and shared out again when that changes.

use std::time::Instant;

use serde_json::json;

use crate::support::process::{INTERVAL, Instance, SOON, Scene, TTL, eventually, ms};

/// US1.1.
#[test]
fn a_single_instance_polls_every_endpoint() {
    let scene = Scene::new(5);
    let one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert!(scene.target.requests().iter().all(|it| it.instance == one.id()));
    assert_eq!(scene.counts(&[&one]), [5]);
    scene.target.assert_sound();
}

/// US1.2, SC-006.
#[test]
fn a_third_instance_gets_its_share_and_nobody_misses_a_poll() {
    let scene = Scene::new(6);
    let fleet = scene.fleet(2);
    let before = Instant::now();
    let third = scene.join(&[]);
    scene.wait_for_balance(&[&fleet[0], &fleet[1], &third], SOON);
    scene.target.wait_until(SOON, "the third polls its share", |requests| {
        requests.iter().filter(|it| it.instance == third.id()).count() >= 6
    });
    assert_eq!(scene.counts(&[&fleet[0], &fleet[1], &third]), [2, 2, 2]);
    for endpoint in &scene.endpoints {
        let gap = scene.target.longest_gap(endpoint, before..Instant::now());
        assert!(gap <= INTERVAL + ms(800), "{endpoint} was not polled for {gap:?}");
    }
    scene.target.assert_sound();
}
