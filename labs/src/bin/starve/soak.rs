//! Do memory, threads and open files stay the same while endpoints hang, refuse, get slow and recover for an hour?
//!
//! Two instances with default settings. Half of the steady endpoints and of the troubled ones belong to each. Troubled
//! endpoints come in groups, each in a network of its own; every [`TURN`] the fates are dealt anew, the same number of each
//! fate at any time, so that the load of the first minutes is that of the last. The scene runs beside other work, so only
//! what the instances need is judged strictly.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use testkit::bounds::Verdict;
use testkit::process::{Instance, Scene};
use testkit::random::Random;
use testkit::target::{Answer, Door};

use crate::fleet::{DEFAULTS, DELAY, at_quantile, gaps};
use crate::usage::Usage;

const STEADY: usize = 150;
const GROUPS: usize = 20;
const GROUP: usize = 12;
const INTERVAL: Duration = Duration::from_secs(3);
/// Between two changes of what endpoints do.
const TURN: Duration = Duration::from_secs(20);
/// Between two looks at what the instances need.
const LOOK: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
/// What is kept of the record: longer than a poll can take.
const KEPT: Duration = Duration::from_secs(30);
/// Steady endpoints keep at least this share of their polls, whatever else this machine does meanwhile.
const SHARE_MIN: f64 = 0.9;

/// What the endpoints of a group do for a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Hang,
    Refuse,
    Slow,
    Answer,
}

/// One for each group.
const FATES: [Fate; GROUPS] = {
    let mut fates = [Fate::Answer; GROUPS];
    let mut n = 0;
    while n < 12 {
        fates[n] = if n < 6 {
            Fate::Hang
        } else if n < 9 {
            Fate::Refuse
        } else {
            Fate::Slow
        };
        n += 1;
    }
    fates
};

/// Endpoints with one fate, at an address of their own.
struct Group {
    endpoints: Vec<String>,
    address: std::net::SocketAddr,
    door: Option<Door>,
}

/// Two instances, and what was seen of them.
struct Soak {
    scene: Scene,
    fleet: Vec<Instance>,
    groups: Vec<Group>,
    random: Random,
    /// Of each instance: the most that it needed in each minute.
    usages: Vec<Vec<Usage>>,
    polls: usize,
    steady_polls: usize,
    wrong: BTreeSet<String>,
}

pub(crate) fn soak(verdict: &mut Verdict, time: Duration, seed: u64) {
    let mut soak = Soak::start(seed);
    println!("{STEADY} steady endpoints, {GROUPS} groups of {GROUP}, {time:?}, seed {seed}");
    let began = Instant::now();
    let minutes = (time.as_secs_f64() / MINUTE.as_secs_f64()).ceil().max(1.0) as u32;
    for minute in 1..=minutes {
        let from = Instant::now();
        let until = began + MINUTE * minute;
        let usages = soak.minute(until);
        soak.note(from, minute, usages);
    }
    soak.judge(verdict, began.elapsed());
}

impl Soak {
    fn start(seed: u64) -> Self {
        let scene = Scene::new(STEADY);
        for endpoint in &scene.endpoints {
            scene.target.answer(endpoint, Answer { delay: DELAY, ..Answer::default() });
        }
        let groups: Vec<Group> = (0..GROUPS).map(|n| group(&scene, n)).collect();
        let mut scene = scene;
        scene.endpoints.extend(groups.iter().flat_map(|it| it.endpoints.iter().cloned()));
        let interval = format!("--interval={}ms", INTERVAL.as_millis());
        let args: Vec<&str> = DEFAULTS.into_iter().chain([interval.as_str()]).collect();
        let fleet = vec![scene.first(&args), Instance::start(&scene.redis, &args)];
        scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), Duration::from_secs(120));
        let usages = fleet.iter().map(|_| Vec::new()).collect();
        let (polls, steady_polls, wrong) = (0, 0, BTreeSet::new());
        let random = Random::new(seed);
        Self { scene, fleet, groups, random, usages, polls, steady_polls, wrong }
    }

    /// Until the end of a minute; the most that each instance needed.
    fn minute(&mut self, until: Instant) -> Vec<Usage> {
        let mut most = vec![Usage::default(); self.fleet.len()];
        let mut turn = Instant::now();
        while Instant::now() < until {
            if Instant::now() >= turn {
                self.deal();
                turn += TURN;
            }
            let left = until.saturating_duration_since(Instant::now());
            self.scene.target.observe(LOOK.min(left));
            for (most, instance) in most.iter_mut().zip(&self.fleet) {
                *most = most.max(Usage::of(instance.pid()));
            }
        }
        most
    }

    /// Every group gets a fate.
    fn deal(&mut self) {
        let mut fates = FATES.to_vec();
        for group in &mut self.groups {
            let fate = fates.swap_remove(self.random.below(fates.len() as u64) as usize);
            if fate == Fate::Refuse {
                group.door = None;
            } else if group.door.is_none() {
                group.door = Some(self.scene.target.open(group.address));
            }
            let delay = match fate {
                Fate::Slow => Duration::from_millis(self.random.between(1_200, 4_000)),
                _ => DELAY,
            };
            for endpoint in &group.endpoints {
                let hang = fate == Fate::Hang;
                self.scene.target.answer(endpoint, Answer { delay, hang, ..Answer::default() });
            }
        }
    }

    /// Prints and keeps what a minute was like, and forgets its polls.
    fn note(&mut self, from: Instant, minute: u32, usages: Vec<Usage>) {
        let target = &self.scene.target;
        self.wrong.extend(target.overlaps().into_iter().chain(target.fence_regressions()));
        let to = Instant::now();
        let mut steady: BTreeMap<String, Vec<_>> =
            (1..=STEADY).map(|it| (format!("/e{it}"), Vec::new())).collect();
        for request in target.requests().into_iter().filter(|it| it.start >= from) {
            self.polls += 1;
            if let Some(polls) = steady.get_mut(&request.path) {
                polls.push(request);
            }
        }
        let gaps = gaps(&steady, from, to, INTERVAL);
        let polls: usize = steady.values().map(Vec::len).sum();
        self.steady_polls += polls;
        let share = polls as f64 / wanted(to - from);
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|it| at_quantile(&gaps, it).as_secs_f64());
        target.forget_before(to - KEPT);
        let own = Usage::of(std::process::id());
        println!(
            "minute {minute}: steady endpoints had {share:.3} of their polls, gap p50 {p50:.2} s, p99 {p99:.2} s, most \
             {most:.2} s; {} polls so far, {} unsound; this lab: {} KB",
            self.polls,
            self.wrong.len(),
            own.resident_kb
        );
        for ((of_instance, usage), instance) in self.usages.iter_mut().zip(usages).zip(&self.fleet)
        {
            println!("  {}: {}", instance.pid(), usage.text());
            of_instance.push(usage);
        }
    }

    fn judge(mut self, verdict: &mut Verdict, took: Duration) {
        for (n, usages) in self.usages.iter().enumerate() {
            judge_usages(verdict, n + 1, usages);
        }
        let share = self.steady_polls as f64 / wanted(took);
        verdict.say(&format!(
            "{share:.3} of the polls of steady endpoints (at least {SHARE_MIN}) in {} minutes",
            took.as_secs() / 60
        ));
        verdict.hold(share >= SHARE_MIN, &format!("{share:.3} of the polls of steady endpoints"));
        let unsound = self.wrong.len();
        verdict.say(&format!("{} polls, {unsound} overlaps or fences that went back", self.polls));
        verdict.hold(self.wrong.is_empty(), &format!("unsound: {:#?}", self.wrong));
        for instance in &mut self.fleet {
            let has_run = instance.is_running();
            let code = has_run.then(|| instance.term().code()).flatten();
            verdict.hold(code == Some(0), &format!("an instance ended with {code:?}"));
        }
    }
}

fn wanted(span: Duration) -> f64 {
    STEADY as f64 * span.as_secs_f64() / INTERVAL.as_secs_f64()
}

/// The rule: of memory, threads and open files the most in the last quarter is no more than the most in the second quarter
/// and 5 % and 1 MB, 16 threads or 16 open files. The first quarter is left out: allocators and caches still fill.
fn judge_usages(verdict: &mut Verdict, instance: usize, minutes: &[Usage]) {
    let quarter = minutes.len() / 4;
    if quarter == 0 {
        println!("instance {instance}: less than four minutes, so there is nothing to compare");
        return;
    }
    let most = |part: &[Usage]| part.iter().fold(Usage::default(), |sum, it| sum.max(*it));
    let early = most(&minutes[quarter..2 * quarter]);
    let late = most(&minutes[minutes.len() - quarter..]);
    let (early_text, late_text) = (early.text(), late.text());
    verdict.say(&format!(
        "instance {instance}: at most {early_text} in the second quarter, {late_text} in the last"
    ));
    for (what, early, late, more) in [
        ("KB resident", early.resident_kb, late.resident_kb, 1_024),
        ("threads", early.threads, late.threads, 16),
        ("open files", early.descriptors, late.descriptors, 16),
    ] {
        let bound = early + early / 20 + more;
        let text = format!("instance {instance}: {late} {what}, bound {bound}");
        verdict.hold(late <= bound, &text);
    }
}

/// Endpoints `g<n>-1`, `g<n>-2`, … in a network of their own.
fn group(scene: &Scene, n: usize) -> Group {
    let door = scene.target.open((format!("127.0.{}.1", n + 1), 0));
    let address = door.address();
    let endpoints: Vec<String> = (1..=GROUP).map(|it| format!("g{n}-{it}")).collect();
    for endpoint in &endpoints {
        scene.put_session_at(endpoint, address);
    }
    Group { endpoints, address, door: Some(door) }
}
