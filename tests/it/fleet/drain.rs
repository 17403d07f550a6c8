//! Weights and `poll:drain`, changed while the fleet runs: everything follows at once, nothing is lost.

use std::time::{Duration, Instant};

use testkit::measure::{Measured, Stalls, moves};
use testkit::process::{INTERVAL, Instance, SOON, Scene, eventually, ms};

/// From the change in Redis to the last lease where it belongs.
const WITHIN: Duration = ms(2_000);
/// What a move may cost beyond the interval of the endpoint.
const BEYOND: Duration = ms(250);
/// The default heartbeat, and a lease that allows it: nothing here may wait for the next beat.
const SLOW_BEAT: [&str; 4] =
    ["--lease-ttl=30s", "--renew-interval=10s", "--heartbeat-ttl=30s", "--heartbeat-interval=10s"];

/// Waits until the counts are these; how long after `since`.
#[track_caller]
fn settled(scene: &Scene, fleet: &[&Instance], counts: &[usize], since: Instant) -> Duration {
    let now = || scene.counts(fleet);
    eventually(SOON, &format!("counts {counts:?}"), || format!("{:?}", now()), || now() == counts);
    since.elapsed()
}

/// `command` on `poll:drain` makes the counts these.
#[track_caller]
fn change(
    scene: &Scene,
    stalls: &Stalls,
    what: &str,
    command: &[&str],
    fleet: &[&Instance],
    counts: &[usize],
) {
    let since = Instant::now();
    assert_ne!(scene.redis.cli(command), "0", "{command:?}");
    let took = settled(scene, fleet, counts, since);
    let mut times = Measured::new(what);
    times.add(took, stalls.within(since..Instant::now()), what);
    times.assert_within(WITHIN);
}

/// Every change of hands in the rhythm of the endpoint, and never an overlap.
#[track_caller]
fn assert_nothing_lost(scene: &Scene, stalls: &Stalls, what: &str) {
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let mut pauses =
        Measured::new(&format!("{what}, last poll of the old owner to first of the new"));
    for it in moves(&scene.target.requests()) {
        pauses.add(it.pause(), stalls.within(it.span()), it.endpoint.clone());
    }
    pauses.assert_within(INTERVAL + BEYOND);
    scene.target.assert_sound();
}

/// R8: `poll:drain`, by instance id, and back.
#[test]
fn an_instance_that_is_drained_hands_over_everything_and_gets_its_share_back() {
    let scene = Scene::new(12);
    let fleet = scene.fleet_with(3, &SLOW_BEAT);
    let [one, two, three] = &fleet[..] else { unreachable!() };
    let stalls = Stalls::watch(&scene.redis);
    let all = [one, two, three];
    let id = two.id();
    change(&scene, &stalls, "drain by id", &["SADD", "poll:drain", &id], &all, &[6, 0, 6]);
    let told = two.lines(&["event=lease.released", "reason=drain"]);
    assert_eq!(told.len(), 4, "{told:?}");
    scene.target.observe(ms(1_000));
    assert_eq!(scene.counts(&all), [6, 0, 6], "and stays so");
    change(&scene, &stalls, "undrain by id", &["SREM", "poll:drain", &id], &all, &[4, 4, 4]);
    assert_nothing_lost(&scene, &stalls, "drain and undrain");
}

/// R8: `poll:drain`, by host name.
#[test]
fn a_host_that_is_drained_hands_over_everything_of_all_its_instances() {
    let scene = Scene::new(12);
    let here = scene.first(&["--host-name=here"]);
    let there = [scene.join(&["--host-name=there"]), scene.join(&["--host-name=there"])];
    let all = [&here, &there[0], &there[1]];
    scene.wait_for_balance(&all, SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let stalls = Stalls::watch(&scene.redis);
    change(&scene, &stalls, "drain by host", &["SADD", "poll:drain", "there"], &all, &[12, 0, 0]);
    change(&scene, &stalls, "undrain by host", &["SREM", "poll:drain", "there"], &all, &[4, 4, 4]);
    assert_nothing_lost(&scene, &stalls, "drain and undrain by host");
}

/// R10: nothing is released into a void.
#[test]
fn when_everybody_is_drained_everybody_keeps_what_it_has_and_says_so() {
    let scene = Scene::new(12);
    let fleet = scene.fleet_with(3, &SLOW_BEAT);
    let all: Vec<&Instance> = fleet.iter().collect();
    let before = scene.owners();
    let stalls = Stalls::watch(&scene.redis);
    let ids: Vec<String> = all.iter().map(|it| it.id()).collect();
    let since = Instant::now();
    // At once: drained one by one, each would hand over to those who are left.
    let mut command = vec!["SADD", "poll:drain"];
    command.extend(ids.iter().map(String::as_str));
    assert_eq!(scene.redis.cli(&command), "3");
    let mut times = Measured::new("all drained to placement.stuck");
    for one in &all {
        let line = one.when("event=placement.stuck");
        times.add(line - since, stalls.within(since..line), one.id());
    }
    let kept = scene.owners();
    let moved = kept.iter().filter(|it| before.get(it.0) != Some(it.1)).count();
    println!("measured: {moved} of 12 moved before the last had noticed");
    scene.redis.cli(&["SET", "session:late", &scene.target.session("late").to_string()]);
    scene.target.observe(ms(1_500));
    assert_eq!(scene.owners(), kept, "everybody keeps what it has, and nobody takes what is new");
    times.assert_within(WITHIN);
    let [first, ..] = &ids[..] else { unreachable!() };
    change(&scene, &stalls, "one undrained", &["SREM", "poll:drain", first], &all, &[13, 0, 0]);
    assert_nothing_lost(&scene, &stalls, "all drained, then one not");
}

/// The value of `poll:node:<instance>` is its weight, whichever client wrote it.
#[test]
fn a_changed_weight_moves_leases_at_once() {
    let scene = Scene::new(12);
    let fleet = scene.fleet_with(2, &SLOW_BEAT);
    let all = [&fleet[0], &fleet[1]];
    let stalls = Stalls::watch(&scene.redis);
    let node = format!("poll:node:{}", fleet[1].id());
    change(&scene, &stalls, "weight 3", &["SET", &node, "3", "KEEPTTL"], &all, &[3, 9]);
    assert_nothing_lost(&scene, &stalls, "weight 3");
}
