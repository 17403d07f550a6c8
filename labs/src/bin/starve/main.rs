//! Do endpoints that hang delay endpoints that answer? `make starve`: several minutes of the whole machine.
//!
//! Real processes of the release binary with default settings, a private Redis, and a target that records every poll. Every
//! poll of an endpoint that answers takes 150 ms. After `make build`, `cargo run --profile lab -p labs --bin starve -- WORD`
//! plays only the scenes whose name contains WORD.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a lab")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a lab")]
#![allow(clippy::cast_precision_loss, reason = "a lab")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use testkit::bounds::Verdict;
use testkit::process::{Instance, Scene, ms};
use testkit::target::{Answer, Request};

/// The defaults, which the tests make shorter.
const DEFAULTS: [&str; 8] = [
    "--workers=256",
    "--lease-ttl=30s",
    "--renew-interval=10s",
    "--heartbeat-ttl=30s",
    "--heartbeat-interval=10s",
    "--store-timeout=2s",
    "--timeout=10s",
    "--drain-timeout=10s",
];
const TIMEOUT: Duration = Duration::from_secs(10);
/// How far away the endpoints are.
const DELAY: Duration = Duration::from_millis(150);

type Play = fn(&mut Verdict);

fn main() -> ExitCode {
    let scenes: [(&str, Play); 5] = [
        ("a tenth hangs", |it| some_hang(it, 600, 60)),
        ("half hangs", |it| some_hang(it, 600, 300)),
        ("nine tenths hang", |it| some_hang(it, 600, 540)),
        ("all hang for a minute", all_hang),
        ("two thousand", two_thousand),
    ];
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut verdict = Verdict::default();
    for (name, scene) in scenes {
        if words.is_empty() || words.iter().any(|it| name.contains(it.as_str())) {
            println!("\n{name}");
            scene(&mut verdict);
        }
    }
    verdict.code()
}

/// A fleet with default settings, and endpoints of which the first `hanging` hang.
struct Fleet {
    scene: Scene,
    instances: Vec<Instance>,
    interval: Duration,
    hanging: usize,
    args: Vec<String>,
}

impl Fleet {
    fn start(endpoints: usize, hanging: usize, instances: usize, interval: Duration) -> Self {
        let scene = Scene::new(endpoints);
        let answer = Answer { delay: DELAY, ..Answer::default() };
        for (n, endpoint) in scene.endpoints.iter().enumerate() {
            scene.target.answer(endpoint, Answer { hang: n < hanging, ..answer.clone() });
        }
        let interval_arg = format!("--interval={}ms", interval.as_millis());
        let args: Vec<String> =
            DEFAULTS.iter().map(ToString::to_string).chain([interval_arg]).collect();
        let borrowed: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut fleet = vec![scene.first(&borrowed)];
        fleet.extend((1..instances).map(|_| Instance::start(&scene.redis, &borrowed)));
        scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), Duration::from_secs(30));
        Self { scene, instances: fleet, interval, hanging, args }
    }

    /// Polls of endpoints that answer, by endpoint, that began in this span.
    fn healthy(&self, from: Instant, to: Instant) -> BTreeMap<String, Vec<Request>> {
        let names = self.scene.endpoints.iter().skip(self.hanging);
        let mut polls: BTreeMap<String, Vec<Request>> =
            names.map(|it| (format!("/{it}"), Vec::new())).collect();
        for request in self.scene.target.requests() {
            if (from..to).contains(&request.start)
                && let Some(polls) = polls.get_mut(&request.path)
            {
                polls.push(request);
            }
        }
        polls
    }

    /// Prints and judges how often endpoints that answer were polled for `span` from now on, and how long the gaps were.
    fn judge(&self, verdict: &mut Verdict, span: Duration, p99_max: Duration) {
        let from = Instant::now();
        self.scene.target.observe(span);
        let polls = self.healthy(from, from + span);
        let wanted = polls.len() as f64 * span.as_secs_f64() / self.interval.as_secs_f64();
        let had: usize = polls.values().map(Vec::len).sum();
        let gaps = gaps(&polls, from, from + span);
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|it| at_quantile(&gaps, it));
        let share = had as f64 / wanted;
        println!(
            "measured: {} endpoints answer, {} hang: {share:.3} of the polls; gap p50 {p50:?}, p99 {p99:?}, most {most:?}",
            polls.len(),
            self.hanging
        );
        verdict.hold(share >= 0.95, &format!("{share:.3} of the polls, 0.95 are wanted"));
        verdict.hold(p99 <= p99_max, &format!("p99 gap {p99:?}, at most {p99_max:?}"));
        self.tell_threads();
    }

    fn tell_threads(&self) {
        for instance in &self.instances {
            let status = std::fs::read_to_string(format!("/proc/{}/status", instance.pid()));
            let status = status.unwrap_or_default();
            let line = |name: &str| {
                let line = status.lines().find(|it| it.starts_with(name)).unwrap_or_default();
                line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
            };
            println!("  {} threads, {} resident", line("Threads:"), line("VmRSS:"));
        }
    }
}

/// From each poll to the next, and from the beginning and to the end of the span: an endpoint without polls has one long gap.
fn gaps(polls: &BTreeMap<String, Vec<Request>>, from: Instant, to: Instant) -> Vec<Duration> {
    let mut gaps = Vec::new();
    for polls in polls.values() {
        let mut last = None;
        for poll in polls {
            gaps.extend(last.map(|it| poll.start - it));
            last = Some(poll.start);
        }
        if last.is_none() {
            gaps.push(to - from);
        }
    }
    gaps.sort_unstable();
    gaps
}

fn at_quantile(sorted: &[Duration], share: f64) -> Duration {
    let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

/// Default settings, two instances, every 3 s. Judged after one timeout.
fn some_hang(verdict: &mut Verdict, endpoints: usize, hanging: usize) {
    let interval = Duration::from_secs(3);
    let fleet = Fleet::start(endpoints, hanging, 2, interval);
    fleet.scene.target.observe(TIMEOUT + interval);
    fleet.judge(verdict, Duration::from_secs(45), interval * 11 / 10);
    verdict.sound(&fleet.scene.target);
}

/// Every endpoint hangs for a minute, then all answer again.
fn all_hang(verdict: &mut Verdict) {
    let interval = Duration::from_secs(3);
    let fleet = Fleet::start(600, 0, 2, interval);
    fleet.scene.target.observe(interval * 2);
    let endpoints = &fleet.scene.endpoints;
    let answer = |hang| {
        for endpoint in endpoints {
            fleet.scene.target.answer(endpoint, Answer { delay: DELAY, hang, ..Answer::default() });
        }
    };
    answer(true);
    fleet.scene.target.observe(Duration::from_secs(60));
    answer(false);
    let recovered = Instant::now();
    let limit = interval + TIMEOUT;
    fleet.scene.target.observe(limit + interval + ms(500));
    let polls = fleet.healthy(recovered, Instant::now());
    // A poll that began before may still hang; from the limit on each is polled at its interval.
    let back: Vec<Duration> =
        polls.values().filter_map(|it| it.first().map(|it| it.start - recovered)).collect();
    let missing = polls.len() - back.len();
    let mut sorted = back;
    sorted.sort_unstable();
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|it| at_quantile(&sorted, it));
    println!(
        "measured: first poll after the recovery p50 {p50:?}, p99 {p99:?}, most {most:?}; {missing} without"
    );
    verdict.hold(missing == 0 && most <= limit, &format!("all back within {limit:?}: {most:?}"));
    fleet.judge(verdict, Duration::from_secs(20), interval * 11 / 10);
    verdict.sound(&fleet.scene.target);
}

/// 2,000 endpoints every 5 s, one in twenty hangs, three instances; then a rolling restart.
fn two_thousand(verdict: &mut Verdict) {
    let interval = Duration::from_secs(5);
    let mut fleet = Fleet::start(2_000, 100, 3, interval);
    let started = fleet.instances.iter().map(|it| it.when("event=daemon.ready")).max().unwrap();
    fleet.scene.target.observe(interval + Duration::from_secs(2));
    let polls = fleet.healthy(started - Duration::from_secs(60), Instant::now());
    let mut first: Vec<Duration> = polls
        .values()
        .map(|it| {
            it.first().map_or(Duration::MAX, |it| it.start.saturating_duration_since(started))
        })
        .collect();
    first.sort_unstable();
    let p99 = at_quantile(&first, 0.99);
    println!("measured: first polls after the last start p99 {p99:?}");
    verdict.hold(p99 <= interval + Duration::from_secs(1), &format!("first polls p99 {p99:?}"));
    fleet.scene.target.observe(TIMEOUT);
    fleet.judge(verdict, Duration::from_secs(40), ms(5_300));
    let began = Instant::now();
    for n in 0..fleet.instances.len() {
        let told = Instant::now();
        assert_eq!(fleet.instances[n].term().code(), Some(0));
        println!("measured: stopped in {:?}", told.elapsed());
        let args: Vec<&str> = fleet.args.iter().map(String::as_str).collect();
        fleet.instances[n] = Instance::start(&fleet.scene.redis, &args);
        fleet.instances[n].wait_for("event=daemon.ready");
        let all: Vec<&Instance> = fleet.instances.iter().collect();
        fleet.scene.wait_for_balance(&all, Duration::from_secs(30));
    }
    fleet.scene.target.observe(interval * 2);
    let polls = fleet.healthy(began, Instant::now());
    let gaps = gaps(&polls, began, Instant::now());
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|it| at_quantile(&gaps, it));
    println!("measured: rolling restart: gap p50 {p50:?}, p99 {p99:?}, most {most:?}");
    let limit = interval + Duration::from_secs(1);
    verdict.hold(p99 <= limit, &format!("rolling restart, p99 gap {p99:?}, at most {limit:?}"));
    verdict.sound(&fleet.scene.target);
}
