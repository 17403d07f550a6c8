//! Four instances, restarted one after the other: every endpoint moves, most of them several times.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::{DEFAULTS, ENDPOINTS, INTERVAL};
use testkit::bounds::Verdict;
use testkit::measure::{Measured, Move, Stalls, gaps, moves};
use testkit::process::{Instance, Scene, eventually, ms};

const INSTANCES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than that, beyond its interval, no endpoint may be without a poll.
const GAP: Duration = Duration::from_secs(1);

/// Waits for `condition`, which costs enough that it is asked only now and then.
pub(crate) fn now_and_then(
    what: &str,
    describe: impl Fn() -> String,
    mut condition: impl FnMut() -> bool,
) {
    eventually(PATIENCE, what, describe, || {
        std::thread::sleep(ms(300));
        condition()
    });
}

/// A settled fleet on which every endpoint was polled at least once.
pub(crate) fn fleet(scene: &Scene, n: usize, args: &[&str]) -> Vec<Instance> {
    let mut fleet = vec![scene.first(args)];
    fleet.extend((1..n).map(|_| Instance::start(&scene.redis, args)));
    wait_for_balance(scene, &fleet.iter().collect::<Vec<_>>());
    wait_for_polls(scene);
    fleet
}

/// Of every endpoint, from now on.
fn wait_for_polls(scene: &Scene) {
    let since = Instant::now();
    now_and_then("polls of every endpoint", String::new, || {
        let polled = scene.target.requests();
        let later = polled.iter().filter(|it| it.start > since);
        later.map(|it| &it.path).collect::<BTreeSet<_>>().len() == scene.endpoints.len()
    });
}

/// As the scene's own, but without asking for 10,000 owners fifty times a second.
pub(crate) fn wait_for_balance(scene: &Scene, fleet: &[&Instance]) {
    let counts = || scene.counts(fleet);
    now_and_then(
        "balance",
        || format!("{:?}", counts()),
        || {
            let counts = counts();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            counts.iter().sum::<usize>() == scene.endpoints.len() && most - least <= 1
        },
    );
}

pub(crate) fn rolling_restart(verdict: &mut Verdict) {
    let scene = Scene::new(ENDPOINTS);
    let stalls = Stalls::watch(&scene.redis);
    let mut fleet = fleet(&scene, INSTANCES, &DEFAULTS);
    let began = Instant::now();
    for n in 0..INSTANCES {
        let told = Instant::now();
        assert_eq!(fleet[n].term().code(), Some(0));
        let stopped = told.elapsed();
        fleet[n] = Instance::start(&scene.redis, &DEFAULTS);
        let started = fleet[n].when("event=daemon.started");
        let share = ENDPOINTS / INSTANCES;
        let owned = || fleet[n].timed_lines(&["event=lease.acquired"]);
        let so_far = || format!("{} of {share}", owned().len());
        now_and_then("its share", so_far, || owned().len() >= share);
        let joined = owned()[share - 1].0 - started;
        println!("measured: restart {n}: stopped in {stopped:?}, has its share after {joined:?}");
        wait_for_balance(&scene, &fleet.iter().collect::<Vec<_>>());
    }
    println!("measured: all restarted in {:?}", began.elapsed());
    wait_for_polls(&scene);
    let requests = scene.target.requests();
    let mut all = Measured::new("rolling restart, one poll of an endpoint to the next");
    // Until it was due it did not matter whether the machine ran.
    let stalled = |from: Instant, to: Instant| stalls.within(from + INTERVAL..to);
    for (path, Range { start, end }) in gaps(&requests, began) {
        all.add(end - start, stalled(start, end), path);
    }
    verdict.within(&all, INTERVAL + GAP);
    let mut moved =
        Measured::new("rolling restart, last poll of the old owner to first of the new");
    let since = moves(&requests).into_iter().filter(|it| it.first.start > began);
    for Move { endpoint, last, first } in since {
        moved.add(first.start - last.start, stalled(last.start, first.start), endpoint);
    }
    verdict.within(&moved, INTERVAL + GAP);
    verdict.sound(&scene.target);
}
