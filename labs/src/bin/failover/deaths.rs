//! Kinds of death of an instance of `leasehold run`, each again and again in several fleets side by side.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use testkit::measure::Stalls;
use testkit::process::{Scene, ms};

use crate::fleet::{ENDPOINTS, Fleet, MEMBERS, Member};
use crate::machine::Machine;
use crate::report::{Judgement, Report, Takeover};
use crate::settings::Settings;

/// An instance that was cut off or stopped stays so for up to this time after its endpoints were taken over.
const LINGER_MS: u64 = 1_500;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    Sigkill,
    Vm,
    Partition,
    Sigstop,
}

impl Death {
    fn what(self) -> &'static str {
        match self {
            Self::Sigkill => "SIGKILL of `leasehold run` without systemd",
            Self::Vm => {
                "The cable of a machine is cut and all its processes are killed: no FIN and no RST reaches Redis"
            }
            Self::Partition => {
                "Every packet between a machine and Redis is dropped; it still reaches the endpoints"
            }
            Self::Sigstop => "SIGSTOP of `leasehold run`, and SIGCONT after the takeover",
        }
    }

    /// How long the slowest takeover may take.
    fn aim(self) -> Duration {
        match self {
            Self::Sigkill => ms(2_000),
            Self::Vm | Self::Partition | Self::Sigstop => ms(5_000),
        }
    }

    /// Whether the instance goes on when the fault is over.
    fn is_survived(self) -> bool {
        matches!(self, Self::Partition | Self::Sigstop)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sigkill => "sigkill",
            Self::Vm => "vm",
            Self::Partition => "partition",
            Self::Sigstop => "sigstop",
        }
    }
}

/// What one fault led to.
struct Sample {
    takeover: Takeover,
    /// From the end of the fault, or from the start of a new instance, until it polls its share. And how much of that the
    /// machine stood still.
    back: (Duration, Duration),
}

pub(crate) fn measure(death: Death, settings: &Settings) -> Report {
    let (began, stalls) = (Instant::now(), Stalls::of_the_machine());
    let samples = Mutex::new(Vec::<Sample>::new());
    let play = |fleet: &mut Fleet<'_>| {
        let sample = fault(fleet, death, &stalls);
        let mut samples = samples.lock();
        samples.push(sample);
        samples.len()
    };
    let judgement = side_by_side(death.name(), settings, Fleet::start, play, Fleet::end);
    let samples = samples.into_inner();
    let mut report = Report::new(
        format!(
            "{}. {} fleets of {MEMBERS} instances and {ENDPOINTS} endpoints.",
            death.what(),
            settings.fleets
        ),
        judgement,
    );
    let takeovers: Vec<Takeover> = samples.iter().map(|it| it.takeover).collect();
    report.takeovers(&takeovers, settings.bound(death.aim()));
    if death == Death::Partition {
        let own: Vec<_> = takeovers.iter().map(|it| (it.own, it.stalled)).collect();
        report.times("the fault | last poll by the instance itself", &own, None);
    }
    let back: Vec<_> = samples.iter().map(|it| it.back).collect();
    if death.is_survived() {
        report.times("the end of the fault | its share polled by it again", &back, settings.back());
    } else {
        report.times("the start of a new instance | its share polled by it", &back, None);
    }
    report.count(takeovers.len(), settings.times);
    report.took(stalls.within(began..Instant::now()), began.elapsed());
    report
}

/// Starts fleets, lets each play one round after the other until all rounds are played, and ends them. `play` tells how many
/// rounds all fleets have played. A fleet in which something does not happen in time fails alone.
pub(crate) fn side_by_side<'a, F>(
    name: &str,
    settings: &'a Settings,
    start: impl Fn(&'a Settings, u64) -> F + Sync,
    play: impl Fn(&mut F) -> usize + Sync,
    end: impl Fn(F) -> Judgement + Sync,
) -> Judgement {
    let (left, total) = (AtomicUsize::new(settings.times), Mutex::new(Judgement::default()));
    let next = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1));
    let run = |seed| {
        let mut fleet = start(settings, seed);
        while next().is_ok() {
            let done = play(&mut fleet);
            if done.is_multiple_of((settings.times / 20).max(1)) {
                eprintln!("{name}: {done} of {}", settings.times);
            }
        }
        end(fleet)
    };
    std::thread::scope(|scope| {
        for seed in 0..settings.fleets.min(settings.times) {
            let (run, total) = (&run, &total);
            scope.spawn(move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| run(seed as u64)));
                let broken = |_| Judgement::broken(format!("fleet {seed} broke, see above"));
                total.lock().add(outcome.unwrap_or_else(broken));
            });
        }
    });
    total.into_inner()
}

/// One fault of a fleet that has settled, and back to a fleet that has settled.
fn fault(fleet: &mut Fleet<'_>, death: Death, stalls: &Stalls) -> Sample {
    std::thread::sleep(ms(fleet.random.below(fleet.settings.phase_ms)));
    let index = fleet.random.below(MEMBERS as u64) as usize;
    let orphans = Scene::owned_by(&fleet.scene, &fleet.members[index].instance);
    let id = fleet.members[index].instance.id();
    let sample = match death {
        Death::Sigkill | Death::Vm => {
            let Member { mut instance, machine, .. } = fleet.members.remove(index);
            let since = Instant::now();
            if death == Death::Vm {
                machine.unplug();
            }
            instance.kill9();
            let takeover = fleet.takeover(&id, &orphans, since, stalls);
            drop(instance);
            let machine = if death == Death::Vm { renewed(machine) } else { machine };
            let started = Instant::now();
            fleet.add(machine, &[]);
            let back = fleet.back_after(started, MEMBERS - 1);
            Sample { takeover, back: (back, stalls.within(started..started + back)) }
        }
        Death::Partition | Death::Sigstop => {
            let since = Instant::now();
            begin(&fleet.members[index], death);
            let takeover = fleet.takeover(&id, &orphans, since, stalls);
            std::thread::sleep(ms(fleet.random.below(LINGER_MS)));
            let healed = Instant::now();
            end(&fleet.members[index], death);
            let back = fleet.back_after(healed, index);
            let stalled = stalls.within(healed..healed + back);
            Sample { takeover, back: (back, stalled) }
        }
    };
    fleet.settle();
    sample
}

/// The machine is gone, and another takes its place.
fn renewed(machine: Machine) -> Machine {
    drop(machine);
    Machine::boot()
}

fn begin(member: &Member, death: Death) {
    if death == Death::Partition {
        member.machine.cut_off_redis();
    } else {
        member.instance.freeze();
    }
}

fn end(member: &Member, death: Death) {
    if death == Death::Partition {
        member.machine.heal();
    } else {
        member.instance.thaw();
    }
}
