//! 64 instances and 5,000 endpoints, which are killed, frozen and restarted at random: does any
//! endpoint ever have two pollers, or none? `make stress`: ten minutes of the whole machine.
//!
//! Real processes of the release binary, one private Redis, and the judge that the tests have. The
//! interval is one that two cores can bear together with everything else: 500 polls a second.
//! `make stress FOR=2m SEED=7` is shorter, and another story.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

mod chaos;
mod health;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::chaos::Chaos;
use crate::health::Health;
use testkit::audit::Audit;
use testkit::measure::{Stalls, gaps};
use testkit::process::{Instance, Scene, eventually, ms};
use testkit::results::Results;

const INSTANCES: usize = 64;
const ENDPOINTS: usize = 5_000;
const TTL: Duration = Duration::from_secs(6);
const INTERVAL: Duration = Duration::from_secs(10);
/// From the end of a lease to the first poll by another instance: as in `make rolling`.
const TAKEOVER: Duration = Duration::from_secs(2);
/// Most owners in a row that may die before they have polled: an heir is killed, too, now and then.
const IN_A_ROW: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(120);
const ARGS: [&str; 13] = [
    "--lease-ttl=6s",
    "--suspect-after=2s",
    "--renew-interval=2s",
    "--heartbeat-ttl=6s",
    "--heartbeat-interval=2s",
    "--store-timeout=600ms",
    "--interval=10s",
    "--timeout=2s",
    "--workers=2",
    "--drain-timeout=3s",
    "--light-after=1000",
    "--log-level=info",
    "--log-renewals=summary",
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let time = words.first().map_or("10m", String::as_str);
    let seed = words.get(1).map_or(1, |it| it.parse().unwrap());
    let Some(time) = duration(time) else {
        println!("{time} is not a time, e.g. 90s or 10m");
        return ExitCode::FAILURE;
    };
    println!("{INSTANCES} instances, {ENDPOINTS} endpoints, {time:?} of mishaps, seed {seed}");
    let wrong = stress(time, seed);
    match &wrong[..] {
        [] => println!("\nevery bound was kept"),
        wrong => println!("\nmissed:\n  {}", wrong.join("\n  ")),
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        _ => return None,
    };
    Some(Duration::from_secs(seconds * number.parse::<u64>().ok()?))
}

/// Instance `n`, for the `life`th time.
fn start(scene: &Scene, n: usize, life: usize) -> Instance {
    let name = format!("--host-name=i{n}-{life}");
    let first: &[&str] = if n + life == 0 { &["--new-fleet"] } else { &[] };
    Instance::start(&scene.redis, &[&ARGS[..], &[&name], first].concat())
}

fn stress(time: Duration, seed: u64) -> Vec<String> {
    let scene = Scene::new(ENDPOINTS);
    let results = Results::watch(&scene.redis.url());
    let stalls = Stalls::of_the_machine();
    let mut fleet: Vec<Instance> = vec![start(&scene, 0, 0)];
    let owned = || scene.owners().len();
    now_and_then("the first has it all", || owned().to_string(), || owned() == ENDPOINTS);
    fleet.extend((1..INSTANCES).map(|n| start(&scene, n, 0)));
    settle(&scene);
    polled(&scene, Instant::now());
    println!("settled; {} polls so far", scene.target.requests().len());

    let audit = Audit::beside(&scene.redis.url(), &["--store-timeout=10s"]);
    let began = Instant::now();
    let mut health = Health::new(&fleet[..chaos::SPARED]);
    let mut chaos = Chaos::new(seed, fleet);
    let mut told = Instant::now();
    while began.elapsed() < time {
        chaos.step(&scene);
        health.look();
        scene.target.observe(ms(100));
        if told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            say(began, &scene, &chaos, &health);
        }
    }
    chaos.end(&scene);
    let over = Instant::now();
    polled(&scene, over);
    settle(&scene);
    polled(&scene, Instant::now());
    say(began, &scene, &chaos, &health);

    let mut wrong = judge(&scene, &results);
    wrong.extend(judge_gaps(&scene, &stalls, &chaos, began..over));
    wrong.extend(health.judge());
    // How long an endpoint was without a poll, `judge_gaps` judges more strictly where the machine does not stand still.
    let stalled = stalls.within(began..Instant::now());
    let audited = audit.end();
    wrong.extend(audited.wrong(stalled < TAKEOVER));
    if audited.summary["results"].as_u64() < Some(1) {
        wrong.push(format!("the audit saw nothing: {audited:?}"));
    }
    chaos.stop();
    wrong.extend(chaos.wrong);
    wrong
}

fn say(began: Instant, scene: &Scene, chaos: &Chaos, health: &Health) {
    let polls = scene.target.requests().len();
    let met = scene.target.overlaps().len() + scene.target.fence_regressions().len();
    let (at, done) = (began.elapsed().as_secs(), chaos.done());
    println!("{at:4} s: {done}; {polls} polls, {met} overlaps; {}", health.now());
}

/// Waits for `condition`, which costs enough that it is asked only now and then.
fn now_and_then(what: &str, describe: impl Fn() -> String, mut condition: impl FnMut() -> bool) {
    eventually(PATIENCE, what, describe, || {
        std::thread::sleep(ms(500));
        condition()
    });
}

/// Everything is shared out evenly.
fn settle(scene: &Scene) {
    let shares = || {
        let mut counts = BTreeMap::<String, usize>::new();
        scene.owners().into_values().for_each(|it| *counts.entry(it).or_default() += 1);
        counts
    };
    let describe = || format!("{:?}", shares());
    now_and_then("balance", describe, || {
        let shares = shares();
        let (least, most) = (shares.values().min(), shares.values().max());
        shares.len() == INSTANCES
            && shares.values().sum::<usize>() == ENDPOINTS
            && most.zip(least).is_some_and(|(most, least)| most - least <= 1)
    });
}

/// Every endpoint, after `since`.
fn polled(scene: &Scene, since: Instant) {
    let count = || {
        let requests = scene.target.requests();
        let later = requests.iter().rev().take_while(|it| it.start >= since);
        later.map(|it| &it.path).collect::<std::collections::BTreeSet<_>>().len()
    };
    now_and_then("polls of every endpoint", || count().to_string(), || count() == ENDPOINTS);
}

fn judge(scene: &Scene, results: &Results) -> Vec<String> {
    let requests = scene.target.requests();
    let (overlaps, back) = (scene.target.overlaps(), scene.target.fence_regressions());
    let stale = results.stale(&requests);
    println!(
        "measured: {} polls, {} results, {} overlaps, {} fences that went back, {} stale results",
        requests.len(),
        results.len(),
        overlaps.len(),
        back.len(),
        stale.len()
    );
    [overlaps, back, stale].concat()
}

/// While there were mishaps, and after the last of them.
fn judge_gaps(
    scene: &Scene,
    stalls: &Stalls,
    chaos: &Chaos,
    mishaps: Range<Instant>,
) -> Vec<String> {
    let (requests, mut wrong) = (scene.target.requests(), Vec::new());
    let (once, bound) = (INTERVAL + TTL + TAKEOVER, INTERVAL + IN_A_ROW * (TTL + TAKEOVER));
    let mut all = gaps(&requests, mishaps.start);
    all.sort_by_key(|(_, span)| Reverse(span.end - span.start));
    let longest = all.first().map_or(Duration::ZERO, |(_, it)| it.end - it.start);
    let beyond = all.iter().take_while(|(_, it)| it.end - it.start > once).count();
    println!(
        "measured: longest gap {longest:?} (bound {bound:?}); {beyond} of {} beyond {once:?}, \
         what one death may cost",
        all.len()
    );
    for (path, span) in all.into_iter().take_while(|(_, it)| it.end - it.start > bound) {
        // Until it was due it did not matter whether the machine ran.
        let stalled = stalls.within(span.start + INTERVAL..span.end);
        let gap = span.end - span.start;
        println!("{path} was not polled for {gap:?}, stalled {stalled:?}");
        for (at, what) in chaos.story(path.trim_start_matches('/'), &span) {
            println!("  {:7.3} {what}", (at - span.start).as_secs_f64());
        }
        if gap > bound + stalled {
            wrong.push(format!("{path} was not polled for {gap:?}, stalled {stalled:?}"));
        }
    }
    let over = mishaps.end;
    let mut firsts = BTreeMap::<&str, Instant>::new();
    for request in requests.iter().filter(|it| it.start >= over) {
        firsts.entry(&request.path).or_insert(request.start);
    }
    let again = firsts.values().max().map_or(PATIENCE, |it| *it - over);
    println!("measured: after the last mishap all polled within {again:?} (bound {once:?})");
    if again > once + stalls.within(over..over + again) {
        wrong.push(format!("the last endpoint was polled after {again:?}"));
    }
    wrong
}
