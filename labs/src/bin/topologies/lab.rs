//! Three VMs and servers of any topology, and the verdict on what happened there.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use testkit::lab::net::{Net, TARGET_IP};
use testkit::lab::verdict::{Evidence, Verdict, slow_down};
use testkit::measure::Stalls;
use testkit::process::{Instance, SOON, binary, ms, run_args};
use testkit::site::{Site, World};
use testkit::target::{Answer, Request, Target};

const VMS: usize = 3;
const ENDPOINTS: usize = 6;

/// Until a master that is gone has a successor that everybody knows: a second of silence, a second in which
/// the others agree, and one or two until all have heard of it.
pub(crate) const REPLACED: Duration = ms(4_000);
/// R5: how long nothing is granted on a server that was not the one before: TTL and margin.
pub(crate) const HOLD_OFF: Duration = ms(3_190);
/// For a call that timed out, a retry a second later, and the first polls, spread over the interval.
pub(crate) const RECOVERY: Duration = ms(2_500);
/// So long a demoted master may go on answering as one.
pub(crate) const DEMOTED: Duration = ms(11_000);

/// How long a long poll takes.
pub(crate) const LONG_POLL: Duration = ms(1_900);

pub(crate) const NO_NET: &str = "needs network namespaces";

/// Everything is there, shared out, and polled.
pub(crate) struct Lab<'a, S> {
    pub(crate) world: World<S>,
    stalls: Stalls,
    pub(crate) net: &'a Net,
    began: Option<Instant>,
    healed: Option<Instant>,
    wrong: Vec<String>,
}

impl<'a, S: Site> Lab<'a, S> {
    pub(crate) fn new(net: &'a Net, site: S, args: &[&str]) -> Self {
        let world = World::new(site, Target::start_on(TARGET_IP), ENDPOINTS);
        slow_down(&world.target, &world.endpoints);
        let (stalls, wrong) = (Stalls::of_the_machine(), Vec::new());
        let mut lab = Self { world, stalls, net, began: None, healed: None, wrong };
        for n in 0..VMS {
            let first: &[&str] = if n == 0 { &["--new-fleet"] } else { &[] };
            lab.start(n, &[first, args].concat());
            if n == 0 {
                lab.world.wait_until_all_are_owned();
            }
        }
        lab.world.settle();
        lab
    }

    /// One more instance, on the machine `n`.
    pub(crate) fn start(&mut self, n: usize, args: &[&str]) {
        let vm = self.net.vm(n);
        let name = format!("--host-name={vm}");
        let line = run_args(&self.world.site.url(), &[&[name.as_str()], args].concat());
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &vm, binary()]).args(line);
        self.world.fleet.push(Instance::spawn(&mut command));
    }

    /// From here on it counts.
    pub(crate) fn fault(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        self.world.target.observe(time);
    }

    /// The fault is over; waits until everything was polled again.
    #[track_caller]
    pub(crate) fn healed(&mut self) {
        let healed = *self.healed.insert(Instant::now());
        self.world.target.wait_for_polls(&self.world.endpoints, healed, 2 * SOON);
    }

    /// From now on every poll takes as long as it may.
    pub(crate) fn make_polls_long(&self) {
        for endpoint in &self.world.endpoints {
            self.world.target.answer(endpoint, Answer { delay: LONG_POLL, ..Answer::default() });
        }
    }

    /// Waits until the machine `n` has just begun a poll.
    #[track_caller]
    pub(crate) fn wait_for_poll_of(&self, n: usize) {
        let id = self.world.fleet[n].id();
        let is_fresh =
            |it: &Request| it.instance == id && it.end.is_none() && it.start.elapsed() < ms(100);
        self.world.target.wait_until(SOON, "a poll that has just begun", |requests| {
            requests.iter().rev().take(ENDPOINTS).any(is_fresh)
        });
    }

    /// Says what should have been otherwise.
    pub(crate) fn expect(&mut self, right: bool, otherwise: impl Into<String>) {
        if !right {
            self.wrong.push(otherwise.into());
        }
    }

    /// Ends it as an operator would, and judges.
    pub(crate) fn judge(self, bound: Duration) -> Verdict {
        self.judge_with(bound, 0)
    }

    /// Where nothing is promised: what happened, whatever it was.
    pub(crate) fn report(self, bound: Duration) -> Verdict {
        self.judge_with(bound, usize::MAX)
    }

    fn judge_with(mut self, bound: Duration, overlaps_max: usize) -> Verdict {
        self.world.settle();
        let requests = self.world.target.requests();
        self.stop();
        let wrong = std::mem::take(&mut self.wrong);
        let evidence = Evidence {
            target: &self.world.target,
            results: &self.world.results,
            stalls: &self.stalls,
            began: self.began.unwrap(),
            healed: self.healed.unwrap(),
            requests: &requests,
            bound,
            overlaps_max,
        };
        let verdict = evidence.verdict(wrong);
        if !verdict.wrong.is_empty() {
            self.tell();
        }
        verdict
    }

    /// Everybody still runs, and ends when told to.
    fn stop(&mut self) {
        for (n, one) in self.world.fleet.iter_mut().enumerate() {
            if one.is_running() {
                one.signal(Signal::SIGTERM);
            } else {
                self.wrong.push(format!("instance {n} ended by itself: {:?}", one.log().last()));
            }
            if one.says("panicked") {
                self.wrong.push(format!("instance {n}: {:?}", one.lines(&["panicked"])));
            }
        }
        for (n, one) in self.world.fleet.iter_mut().enumerate() {
            let status = one.wait();
            if !status.success() {
                self.wrong.push(format!("instance {n} ended with {status}"));
            }
        }
    }

    /// The logs of all processes, to diagnose a failure.
    fn tell(&self) {
        for (n, one) in self.world.fleet.iter().enumerate() {
            let log = one.log().into_iter().filter(|it| !it.contains("lease.renewed"));
            println!("--- log of instance {n}");
            log.for_each(|it| println!("{it}"));
        }
        println!("--- the last polls\n{}", self.world.target.story());
    }
}
