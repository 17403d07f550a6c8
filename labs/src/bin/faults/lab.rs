//! Three VMs, a Redis and an endpoint on a network of their own, and the verdict on what happened there.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::audit::Audit;
use testkit::lab::net::{Net, REDIS_IP, TARGET_IP};
use testkit::lab::verdict::{Evidence, Verdict, slow_down};
use testkit::measure::Stalls;
use testkit::process::{INTERVAL, Instance, SOON, Scene, TTL, binary, eventually, ms, run_args};
use testkit::redis::RedisServer;
use testkit::results::Results;
use testkit::target::Target;

const VMS: usize = 3;
const ENDPOINTS: usize = 6;

/// G4: what the end of a VM may cost, from the last poll before it to the first after it.
pub(crate) const TAKEOVER: Duration = ms(3_000 + 200 + 500);
/// R5: how long nothing is granted after Redis forgot: TTL and margin.
pub(crate) const HOLD_OFF: Duration = ms(3_190);
/// For a call that timed out, a retry a second later, and the first polls, spread over the interval.
pub(crate) const RECOVERY: Duration = ms(2_500);

/// What differs from scene to scene.
#[derive(Default)]
pub(crate) struct Setup<'a> {
    pub(crate) redis: &'a [&'a str],
    pub(crate) redis_env: &'a [(&'a str, &'a str)],
    pub(crate) args: &'a [&'a str],
    /// Runs the machine 0's command line, e.g. in a group of its own.
    pub(crate) wrapper: &'a [&'a str],
}

/// Everything is there, shared out, and polled. Fields are dropped in this order.
pub(crate) struct Lab<'a> {
    pub(crate) fleet: Vec<Instance>,
    /// Of the one server.
    pub(crate) results: Vec<Results>,
    pub(crate) scene: Scene,
    stalls: Stalls,
    net: Option<&'a Net>,
    began: Option<Instant>,
    healed: Option<Instant>,
    /// `leasehold audit`, since the fleet has settled.
    audit: Option<Audit>,
    wrong: Vec<String>,
}

impl<'a> Lab<'a> {
    pub(crate) fn new(net: Option<&'a Net>) -> Self {
        Self::with(net, &Setup::default())
    }

    pub(crate) fn with(net: Option<&'a Net>, setup: &Setup<'_>) -> Self {
        let mut lab = Self::empty(net, setup);
        let url = lab.url();
        lab.populate(&url, setup);
        lab
    }

    /// Without instances as yet.
    pub(crate) fn empty(net: Option<&'a Net>, setup: &Setup<'_>) -> Self {
        let bind: &[&str] = match net {
            Some(_) => &["--bind", "127.0.0.1", REDIS_IP, "--protected-mode", "no"],
            None => &[],
        };
        let redis = RedisServer::start_in(setup.redis_env, &[bind, setup.redis].concat());
        let target = Target::start_on(net.map_or("127.0.0.1", |_| TARGET_IP));
        let endpoints = (1..=ENDPOINTS).map(|n| format!("e{n}")).collect();
        let password = setup.redis.iter().skip_while(|it| **it != "--requirepass").nth(1);
        let url = redis.url().replace("//", &format!("//:{}@", password.unwrap_or(&"")));
        let results = vec![Results::watch(&url)];
        let scene = Scene { redis, target, endpoints };
        scene.put_sessions();
        slow_down(&scene.target, &scene.endpoints);
        Self {
            fleet: Vec::new(),
            results,
            scene,
            stalls: Stalls::of_the_machine(),
            net,
            began: None,
            healed: None,
            audit: None,
            wrong: Vec::new(),
        }
    }

    /// Starts an instance on every machine, and waits until they have settled.
    pub(crate) fn populate(&mut self, url: &str, setup: &Setup<'_>) {
        for n in 0..VMS {
            let wrapper = if n == 0 { setup.wrapper } else { &[] };
            let first: &[&str] = if n == 0 { &["--new-fleet"] } else { &[] };
            self.start(n, wrapper, url, &[first, setup.args].concat());
            if n == 0 {
                let owned = || self.scene.owners().len() == self.scene.endpoints.len();
                eventually(SOON, "the first takes all", || self.fleet[0].log().join("\n"), owned);
            }
        }
        self.settle();
        // On the host of Redis: no network is cut there.
        let url = url.replace(REDIS_IP, "127.0.0.1");
        self.audit = Some(Audit::beside(&url, &["--store-timeout=2s"]));
        self.pass(ms(500)); // until it is subscribed
    }

    /// One more instance, on the machine `n`.
    pub(crate) fn start(&mut self, n: usize, wrapper: &[&str], url: &str, args: &[&str]) {
        let vm = self.net.map_or_else(|| format!("vm{n}"), |it| it.vm(n));
        let place: &[&str] = match self.net {
            Some(_) => &["ip", "netns", "exec", &vm],
            None => &[],
        };
        let name = format!("--host-name={vm}");
        let mut line: Vec<String> =
            wrapper.iter().chain(place).chain(&[binary()]).map(|&it| it.into()).collect();
        line.extend(run_args(url, &[&[name.as_str()], args].concat()));
        self.fleet.push(Instance::spawn(Command::new(&line[0]).args(&line[1..])));
    }

    /// Where instances find Redis.
    pub(crate) fn url(&self) -> String {
        let ip = self.net.map_or("127.0.0.1", |_| REDIS_IP);
        format!("redis://{ip}:{}/0", self.scene.redis.port())
    }

    /// Waits until everything is shared out evenly and was polled.
    #[track_caller]
    pub(crate) fn settle(&self) {
        let shares = || {
            let mut counts = BTreeMap::<String, usize>::new();
            for owner in self.scene.owners().into_values() {
                *counts.entry(owner).or_default() += 1;
            }
            counts
        };
        let (n, all) = (self.fleet.len(), self.scene.endpoints.len());
        let even = |it: &BTreeMap<String, usize>| {
            it.len() == n
                && it.values().sum::<usize>() == all
                && it.values().all(|it| *it <= all.div_ceil(n))
        };
        eventually(SOON, "balance", || format!("{:?}", shares()), || even(&shares()));
        self.scene.target.wait_for_polls(&self.scene.endpoints, Instant::now(), SOON);
    }

    /// From here on it counts.
    pub(crate) fn fault(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        self.scene.target.observe(time);
    }

    /// The fault is over; waits until everything was polled again.
    #[track_caller]
    pub(crate) fn healed(&mut self) {
        let healed = *self.healed.insert(Instant::now());
        self.scene.target.wait_for_polls(&self.scene.endpoints, healed, 2 * SOON);
    }

    /// Says what should have been otherwise.
    pub(crate) fn expect(&mut self, right: bool, otherwise: impl Into<String>) {
        if !right {
            self.wrong.push(otherwise.into());
        }
    }

    /// Whether a machine noticed anything, by what it said since the fault began.
    pub(crate) fn said(&self, n: usize, text: &str) -> usize {
        let since = self.began.unwrap();
        self.fleet[n].timed_lines(&[text]).iter().filter(|it| it.0 >= since).count()
    }

    /// Ends it as an operator would, and judges. No endpoint may have been without a poll for longer
    /// than `bound`, except for what the machine itself stood still.
    pub(crate) fn judge(self, bound: Duration) -> Verdict {
        self.judge_with(bound, 0)
    }

    /// The same where it is documented that up to `overlaps_max` polls may overlap.
    pub(crate) fn judge_with(mut self, bound: Duration, overlaps_max: usize) -> Verdict {
        self.settle();
        let requests = self.scene.target.requests();
        if let Some(audit) = self.audit.take() {
            // How long an endpoint was without a poll is judged below, with the bound of the scenario.
            let findings = audit.end().wrong(false);
            self.wrong.extend(findings.into_iter().filter(|_| overlaps_max == 0));
        }
        self.stop();
        let wrong = std::mem::take(&mut self.wrong);
        let evidence = Evidence {
            target: &self.scene.target,
            results: &self.results,
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
        for (n, one) in self.fleet.iter_mut().enumerate() {
            if !one.is_running() {
                self.wrong.push(format!("instance {n} ended by itself: {:?}", one.log().last()));
            } else {
                one.signal(nix::sys::signal::Signal::SIGTERM);
            }
            if one.says("panicked") {
                self.wrong.push(format!("instance {n}: {:?}", one.lines(&["panicked"])));
            }
        }
        for (n, one) in self.fleet.iter_mut().enumerate() {
            let status = one.wait();
            if !status.success() {
                self.wrong.push(format!("instance {n} ended with {status}"));
            }
        }
    }

    /// The logs of all processes, to diagnose a failure.
    fn tell(&self) {
        for (n, one) in self.fleet.iter().enumerate() {
            let log = one.log().into_iter().filter(|it| !it.contains("lease.renewed"));
            println!("--- log of instance {n}");
            log.for_each(|it| println!("{it}"));
        }
        println!("--- the last polls\n{}", self.scene.target.story());
    }
}

/// So long a fault lasts that is to outlive every right.
pub(crate) const LONG: Duration = ms(2 * 3_000 - 500);
const _: () = assert!(LONG.as_millis() > TTL.as_millis() && INTERVAL.as_millis() == 200);
