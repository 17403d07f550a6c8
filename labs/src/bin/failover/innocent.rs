//! Faults of which nobody dies: how many leases move, is anybody revoked, and when has everybody its share back?

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::lab::groups::{Group, Kind, Neighbour};
use testkit::measure::{Stalls, gaps, moves};
use testkit::process::ms;

use crate::fleet::{ENDPOINTS, Fleet, MEMBERS};
use crate::report::{Judgement, Report, quantile, seconds};
use crate::settings::Settings;

const STARVED: Duration = ms(10_000);
/// µs of every 100 ms: 2 % of a CPU, of which the three neighbours take their part.
const STARVED_QUOTA: u32 = 2_000;
const STOPPED: Duration = ms(2_000);
const LOSSY: Duration = ms(20_000);
const SUSPENDED: Duration = ms(20_000);
const HEAD: &str = "\n| what happens | rounds | polls | overlaps | stale results | leases moved | revocations | longest gap | shares back: p50 | max |\n\
     |---|---|---|---|---|---|---|---|---|---|\n";

/// Each has a fleet of its own and plays its rounds beside the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scene {
    Starved,
    Stopped,
    Lossy,
    RedisHung,
    Suspended,
}

const SCENES: [Scene; 5] =
    [Scene::Starved, Scene::Stopped, Scene::Lossy, Scene::RedisHung, Scene::Suspended];

impl Scene {
    fn what(self, settings: &Settings) -> String {
        let span = |it: Duration| format!("{} s", it.as_secs());
        match self {
            Self::Starved => {
                format!(
                    "an instance shares 2 % of a CPU with three busy processes for {}",
                    span(STARVED)
                )
            }
            Self::Stopped => format!("an instance is stopped for {}", span(STOPPED)),
            Self::Lossy => {
                format!("a machine loses 30 % of its packets in each direction for {}", span(LOSSY))
            }
            Self::RedisHung => format!("Redis is stopped for {}", span(settings.hang)),
            Self::Suspended => {
                format!("all instances are stopped for {} and go on together", span(SUSPENDED))
            }
        }
    }

    /// Of a full run.
    fn rounds(self) -> usize {
        match self {
            Self::Stopped => 20,
            Self::Starved | Self::Lossy | Self::Suspended => 5,
            Self::RedisHung => 2,
        }
    }

    /// Whether the aim says that this fault causes no revocation.
    fn spares(self) -> bool {
        matches!(self, Self::Stopped | Self::RedisHung)
    }

    /// Disturbs the fleet for a while.
    fn disturb(self, fleet: &Fleet<'_>, settings: &Settings, group: Option<&Group>) {
        let victim = &fleet.members[0];
        match self {
            Self::Starved => {
                let group = group.unwrap();
                fs::write(group.door(), victim.instance.pid().to_string()).unwrap();
                let neighbours = [(); 3].map(|()| Neighbour::start(group, "while :; do :; done"));
                group.limit_cpu(Some(STARVED_QUOTA));
                std::thread::sleep(STARVED);
                group.limit_cpu(None);
                drop(neighbours);
            }
            Self::Stopped => {
                victim.instance.freeze();
                std::thread::sleep(STOPPED);
                victim.instance.thaw();
            }
            Self::Lossy => {
                victim.machine.lose_packets();
                std::thread::sleep(LOSSY);
                victim.machine.heal();
            }
            Self::RedisHung => {
                let redis = Pid::from_raw(fleet.scene.redis.pid().cast_signed());
                kill(redis, Signal::SIGSTOP).unwrap();
                std::thread::sleep(settings.hang);
                kill(redis, Signal::SIGCONT).unwrap();
            }
            Self::Suspended => {
                fleet.members.iter().for_each(|it| it.instance.freeze());
                std::thread::sleep(SUSPENDED);
                fleet.members.iter().for_each(|it| it.instance.thaw());
            }
        }
    }
}

/// What one fleet went through.
#[derive(Default)]
struct Rounds {
    /// Endpoints that were polled by another instance than before.
    moved: usize,
    longest_gap: Duration,
    back: Vec<Duration>,
}

type Outcome = Result<(Rounds, Judgement), String>;

pub(crate) fn measure(settings: &Settings) -> Report {
    let (began, stalls) = (Instant::now(), Stalls::of_the_machine());
    let what = format!(
        "Nobody dies. One fleet of {MEMBERS} instances and {ENDPOINTS} endpoints for each row, side by side."
    );
    let mut report = Report::with_table(what, HEAD);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let played = SCENES.map(|scene| {
            let broke = |_| Err("**FAILED**, see the output of the lab".to_owned());
            scope.spawn(move || {
                catch_unwind(AssertUnwindSafe(|| play(scene, settings))).unwrap_or_else(broke)
            })
        });
        played.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for (scene, outcome) in SCENES.into_iter().zip(outcomes) {
        let what = scene.what(settings);
        match outcome {
            Ok((rounds, judgement)) => {
                let Rounds { moved, longest_gap, mut back } = rounds;
                let Judgement { polls, overlaps, stale, revocations, wrong, .. } = judgement;
                back.sort_unstable();
                let [p50, max] = [0.5, 1.0].map(|it| seconds(quantile(&back, it)));
                let (n, gap) = (back.len(), seconds(longest_gap));
                report.row(&format!(
                    "| {what} | {n} | {polls} | {overlaps} | {stale} | {moved} | {revocations} | {gap} | {p50} | {max} |"
                ));
                wrong.into_iter().for_each(|it| report.miss(format!("{what}: {it}")));
                if revocations > 0 && scene.spares() && settings.back().is_some() {
                    report.miss(format!("{what}: {revocations} revocations"));
                }
            }
            Err(why) => {
                if !why.starts_with("skipped") {
                    report.miss(format!("{what}: the fleet broke"));
                }
                report.row(&format!("| {what} | {why} | | | | | | | | |"));
            }
        }
    }
    report.took(stalls.within(began..Instant::now()), began.elapsed());
    report
}

/// Plays all rounds of one scene with a fleet of its own.
fn play(scene: Scene, settings: &Settings) -> Outcome {
    // Declared before the fleet, so that the group is empty when it is removed.
    let group = match scene {
        Scene::Starved => Some(Group::new(Kind::Cpu).map_err(|why| format!("skipped: {why}"))?),
        _ => None,
    };
    let fleet = Fleet::start(settings, scene as u64);
    let mut rounds = Rounds::default();
    for n in 1..=settings.share_of(scene.rounds()) {
        let began = Instant::now();
        scene.disturb(&fleet, settings, group.as_ref());
        let healed = Instant::now();
        rounds.back.push(fleet.shares_after(healed, "all shares", |_| true));
        let requests = fleet.scene.target.requests();
        let is_new = |at: Instant| at >= began;
        rounds.moved += moves(&requests).iter().filter(|it| is_new(it.first.start)).count();
        let longest = gaps(&requests, began).into_iter().map(|(_, it)| it.end - it.start).max();
        rounds.longest_gap = rounds.longest_gap.max(longest.unwrap_or_default());
        eprintln!("innocent: {}: round {n} is over", scene.what(settings));
        fleet.settle();
    }
    Ok((rounds, fleet.end()))
}
