//! One of three dies: 10,000 leases lapse at one moment, and two instances are there to take them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::restart::{fleet, now_and_then, wait_for_balance};
use crate::{DEFAULTS, ENDPOINTS};
use testkit::bounds::Verdict;
use testkit::measure::{Measured, Stalls};
use testkit::process::{Instance, Scene, field, ms};

const HEARTBEAT_TTL: Duration = Duration::from_secs(6);
/// From the end of the heartbeat to the last lease taken.
const WITHIN: Duration = Duration::from_secs(2);
/// How often one lease may be asked for, over all instances.
const ATTEMPTS: f64 = 1.2;

/// Each item of an acquire is answered by one of these: granted, held by another, could not be had. So
/// their lines are the number of attempts, without a MONITOR that would slow down what it watches.
const ANSWERS: [&str; 3] = ["lease.acquired", "lease.refused", "lease.failed"];

fn answers(fleet: &[Instance], event: &str, since: Instant) -> Vec<(Instant, String)> {
    let lines = fleet.iter().flat_map(|it| it.timed_lines(&[&format!("event={event} ")]));
    lines.filter(|it| it.0 > since).collect()
}

/// How many, told by reason.
fn count(event: &str, lines: &[(Instant, String)]) -> usize {
    let mut reasons: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for (_, line) in lines {
        *reasons.entry(field(line, "reason")).or_default() += 1;
    }
    let reasons: Vec<String> = reasons
        .iter()
        .map(|(it, n)| format!("{n} {}", it.as_deref().unwrap_or("in all")))
        .collect();
    println!("measured: mass lapse, {event}: {}", reasons.join(", "));
    lines.len()
}

pub(crate) fn mass_lapse(verdict: &mut Verdict) {
    let heartbeat = ["--heartbeat-ttl=6s", "--heartbeat-interval=2s", "--store-timeout=600ms"];
    let args = [&DEFAULTS[..], &heartbeat, &["--interval=30s"]].concat();
    // So that 10,000 lapse, at as many polls a second as in the other scenes.
    let scene = Scene::new(3 * ENDPOINTS);
    let mut fleet = fleet(&scene, 3, &args);
    let stalls = Stalls::watch(&scene.redis);
    let mut dead = fleet.pop().unwrap();
    let orphans = scene.owned_by(&dead);
    let node = format!("poll:node:{}", dead.id());
    let killed_at = Instant::now();
    dead.kill9();
    let left = ms(scene.redis.cli(&["PTTL", &node]).parse().unwrap());
    let dies_at = Instant::now() + left;
    assert!(left < HEARTBEAT_TTL);
    let acquired = || answers(&fleet, "lease.acquired", killed_at);
    let so_far = || format!("{} of {}", acquired().len(), orphans.len());
    now_and_then("takeover", so_far, || acquired().len() >= orphans.len());
    wait_for_balance(&scene, &fleet.iter().collect::<Vec<_>>());
    scene.target.observe(ms(3_000)); // a late poll comes within this
    let mut first: BTreeMap<String, Instant> = BTreeMap::new();
    for (at, line) in acquired() {
        let taken = first.entry(field(&line, "endpoint").unwrap()).or_insert(at);
        *taken = at.min(*taken);
    }
    let mut times = Measured::new("mass lapse, end of the heartbeat to lease taken");
    for endpoint in &orphans {
        let at = first[endpoint];
        let took = at.saturating_duration_since(dies_at);
        times.add(took, stalls.within(dies_at..at), endpoint.clone());
    }
    verdict.within(&times, WITHIN);
    let attempts: usize =
        ANSWERS.iter().map(|event| count(event, &answers(&fleet, event, killed_at))).sum();
    let per_lease = attempts as f64 / orphans.len() as f64;
    verdict.at_most("mass lapse, acquires per lease over all instances", per_lease, ATTEMPTS);
    verdict.sound(&scene.target);
}
