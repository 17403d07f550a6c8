//! `make sim`: plays random stories of a whole fleet, on all cores, and says which seeds end badly.
//!
//! `--seed N` replays one with its trace; `--seeds N` or `--seeds A..B` plays that many; `--faults N`
//! in each, on average.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(
    clippy::too_many_lines,
    clippy::cast_precision_loss,
    missing_docs,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use testkit::simulation::explorer::{Budget, Case, Weakness, explore};
use testkit::simulation::faults::{FaultKind, INTERRUPTED};
use testkit::simulation::{Outcome, play};

/// Production steps on top of each other need room.
const STACK: usize = 256 << 20;
/// Stop after this many failed seeds.
const FAILURES_MAX: usize = 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = args.iter().position(|it| it == name)?;
        args.get(at + 1).cloned()
    };
    let faults = value("--faults").map_or(40, |it| it.parse().expect("--faults N"));
    if let Some(seed) = value("--seed") {
        return replay(seed.parse().expect("--seed N"), faults);
    }
    if args.iter().any(|it| it == "--explore") {
        return exhaust(value("--events"), value("--ticks"), value("--losses"));
    }
    let seeds = value("--seeds").unwrap_or_else(|| "1000".into());
    let (first, last) = seeds.split_once("..").unwrap_or(("0", &seeds));
    play_seeds(first.parse().expect("A..B"), last.parse().expect("A..B"), faults)
}

fn on_big_stack<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(body).unwrap();
    thread.join().expect("the simulation itself failed")
}

fn replay(seed: u64, faults: u64) -> ExitCode {
    let outcome = on_big_stack(move || play(seed, faults, true));
    println!("{}", outcome.trace.join("\n"));
    println!("seed {seed}: {}", outcome.scene);
    println!("{} steps, {} calls, {} polls", outcome.steps, outcome.calls, outcome.polls);
    match outcome.failure {
        Some(why) => {
            println!("seed {seed} fails: {why}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn exhaust(events: Option<String>, ticks: Option<String>, losses: Option<String>) -> ExitCode {
    let number = |it: Option<String>, or: u8| it.map_or(or, |it| it.parse().expect("a number"));
    let budget =
        Budget { events: number(events, 4), ticks: number(ticks, 6), faults: number(losses, 1) };
    let case = |is_revocable, weakness| Case { is_revocable, weakness };
    let cases = [
        case(false, Weakness::None),
        case(false, Weakness::FastServer),
        case(false, Weakness::FalseNewFleet),
        case(false, Weakness::NeverLate),
        case(true, Weakness::None),
        case(true, Weakness::HastyTakeover),
    ];
    let mut sound = true;
    for case in cases {
        let began = Instant::now();
        let found = explore(budget, case);
        let weakness = case.weakness;
        println!(
            "{case:?}: {} states, {} transitions, {} interleavings in {:.1?}; two owners: {}",
            found.states,
            found.transitions,
            found.interleavings,
            began.elapsed(),
            found.counterexample.as_ref().map_or("never".into(), |it| it.join(" ")),
        );
        sound &= found.counterexample.is_none() || weakness != Weakness::None;
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play_seeds(first: u64, last: u64, faults: u64) -> ExitCode {
    let began = Instant::now();
    let next = std::sync::Arc::new(AtomicU64::new(first));
    let (report, reports) = channel::<Outcome>();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..cores {
        let (next, report) = (std::sync::Arc::clone(&next), report.clone());
        let body = move || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= last || report.send(play(seed, faults, false)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().stack_size(STACK).spawn(body).unwrap();
    }
    drop(report);
    let mut total = Total::default();
    let mut said = Instant::now();
    for outcome in reports {
        total.add(&outcome);
        if said.elapsed() > Duration::from_secs(30) {
            said = Instant::now();
            total.say(began.elapsed());
        }
        if total.failed.len() >= FAILURES_MAX {
            break;
        }
    }
    total.say(began.elapsed());
    for (kind, count) in
        FaultKind::ALL.map(FaultKind::name).iter().chain(&INTERRUPTED).zip(&total.faults)
    {
        println!("  {count:>9} {kind}");
    }
    println!("  {:>9} times an instance noticed that its results were lost", total.stuck);
    println!("  {:>9} changes of a verdict", total.changes);
    if total.failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    for (seed, why) in &total.failed {
        println!("seed {seed} fails: {why}");
    }
    println!("replay with: make sim SEED={} FAULTS={faults}", total.failed[0].0);
    ExitCode::FAILURE
}

#[derive(Default)]
struct Total {
    seeds: u64,
    steps: u64,
    calls: u64,
    polls: u64,
    grants: usize,
    stuck: u64,
    changes: u64,
    played: Duration,
    owned_after: Duration,
    settled: Vec<u64>,
    faults: Vec<u64>,
    failed: Vec<(u64, String)>,
}

impl Total {
    fn add(&mut self, it: &Outcome) {
        self.seeds += 1;
        self.steps += it.steps;
        self.calls += it.calls;
        self.polls += it.polls;
        self.grants += it.grants;
        self.stuck += it.judged.stuck;
        self.changes += it.judged.changes;
        self.played += it.played;
        self.owned_after = self.owned_after.max(it.owned_after);
        self.settled.push(it.settled_percent);
        self.faults.resize(it.faults.len(), 0);
        self.faults.iter_mut().zip(&it.faults).for_each(|(sum, it)| *sum += it);
        if let Some(why) = &it.failure {
            println!("seed {} fails: {why}", it.seed);
            self.failed.push((it.seed, why.clone()));
        }
    }

    fn say(&mut self, took: Duration) {
        self.settled.sort_unstable();
        let at = |part: usize| {
            let last = self.settled.len().saturating_sub(1);
            self.settled.get(last * part / 1_000).map_or(0.0, |it| *it as f64 / 100.0)
        };
        println!(
            "{} seeds, {:.0} h played, {} steps ({} calls), {} polls, {} grants, {} failed; \
             {:.0} steps/s; owned at the latest after {:?}; in balance after {:.1} TTL \
             (median), {:.1} (99.9 %), {:.1} (longest)",
            self.seeds,
            self.played.as_secs_f64() / 3_600.0,
            self.steps,
            self.calls,
            self.polls,
            self.grants,
            self.failed.len(),
            self.steps as f64 / took.as_secs_f64(),
            self.owned_after,
            at(500),
            at(999),
            at(1_000),
        );
    }
}
