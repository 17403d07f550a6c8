//! Some endpoints, most of them, or all hang: are the others polled on time?

use std::time::{Duration, Instant};

use testkit::bounds::Verdict;
use testkit::process::{Instance, ms};
use testkit::target::Answer;

use crate::fleet::{DELAY, Fleet, TIMEOUT, at_quantile, gaps};

/// Default settings, two instances, every 3 s. Judged after one timeout.
pub(crate) fn some_hang(verdict: &mut Verdict, endpoints: usize, hanging: usize) {
    let interval = Duration::from_secs(3);
    let fleet = Fleet::start(endpoints, hanging, 2, interval);
    fleet.scene.target.observe(TIMEOUT + interval);
    fleet.judge(verdict, Duration::from_secs(45), interval * 11 / 10);
    verdict.sound(&fleet.scene.target);
}

/// Every endpoint hangs for a minute, then all answer again.
pub(crate) fn all_hang(verdict: &mut Verdict) {
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
    verdict.say(&format!(
        "first poll after the recovery p50 {p50:.2?}, p99 {p99:.2?}, most {most:.2?} (at most {limit:?}); {missing} without"
    ));
    verdict.hold(missing == 0 && most <= limit, &format!("all back within {limit:?}: {most:.2?}"));
    fleet.judge(verdict, Duration::from_secs(20), interval * 11 / 10);
    verdict.sound(&fleet.scene.target);
}

/// 2,000 endpoints every 5 s, one in twenty hangs, three instances; then a rolling restart.
pub(crate) fn two_thousand(verdict: &mut Verdict) {
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
    let limit = interval + Duration::from_secs(1);
    verdict.say(&format!("first polls after the last start p99 {p99:.2?} (at most {limit:?})"));
    verdict.hold(p99 <= limit, &format!("first polls p99 {p99:.2?}"));
    fleet.scene.target.observe(TIMEOUT);
    fleet.judge(verdict, Duration::from_secs(40), ms(5_300));
    let began = Instant::now();
    for n in 0..fleet.instances.len() {
        let told = Instant::now();
        assert_eq!(fleet.instances[n].term().code(), Some(0));
        verdict.say(&format!("stopped in {:.2?}", told.elapsed()));
        let args: Vec<&str> = fleet.args.iter().map(String::as_str).collect();
        fleet.instances[n] = Instance::start(&fleet.scene.redis, &args);
        fleet.instances[n].wait_for("event=daemon.ready");
        let all: Vec<&Instance> = fleet.instances.iter().collect();
        fleet.scene.wait_for_balance(&all, Duration::from_secs(30));
    }
    fleet.scene.target.observe(interval * 2);
    let polls = fleet.healthy(began, Instant::now());
    let gaps = gaps(&polls, began, Instant::now(), interval);
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|it| at_quantile(&gaps, it));
    verdict.say(&format!(
        "rolling restart: gap p50 {p50:.2?}, p99 {p99:.2?} (at most {limit:?}), most {most:.2?}"
    ));
    verdict.hold(p99 <= limit, &format!("rolling restart: p99 gap {p99:.2?}"));
    verdict.sound(&fleet.scene.target);
}
