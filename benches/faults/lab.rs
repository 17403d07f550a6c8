//! Three VMs, a Redis and an endpoint on a network of their own, and the verdict on what happened there.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::measure::{Stalls, gaps};
use crate::support::process::{
    BINARY, INTERVAL, Instance, SOON, Scene, TTL, eventually, ms, run_args,
};
use crate::support::redis::RedisServer;
use crate::support::results::Results;
use crate::support::target::{Answer, Request, Target};

const VMS: usize = 3;
const ENDPOINTS: usize = 6;
/// Half of the endpoints take their time: a fault meets polls that run.
const SLOW: Duration = ms(900);
const QUICK: Duration = ms(50);
pub(crate) const REDIS_IP: &str = "10.77.0.1";
const TARGET_IP: &str = "10.77.0.2";

/// G4: what the end of a VM may cost, from the last poll before it to the first after it.
pub(crate) const TAKEOVER: Duration = ms(3_000 + 200 + 500);
/// R5: how long nothing is granted after Redis forgot: TTL and margin.
pub(crate) const HOLD_OFF: Duration = ms(3_190);
/// For a call that timed out, a retry a second later, and the first polls, spread over the interval.
pub(crate) const RECOVERY: Duration = ms(2_500);

#[track_caller]
fn run(command: &[&str]) {
    let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", command.join(" "));
}

/// Three machines on the switch that all share. Scenes that are played at the same time have their own.
pub(crate) struct Net {
    lane: usize,
}

impl Net {
    /// Redis, the endpoint, and a switch.
    pub(crate) fn switch() {
        let hub = format!("{REDIS_IP}/24");
        let endpoint = format!("{TARGET_IP}/24");
        run(&["mkdir", "-p", "/run/netns"]);
        run(&["mount", "-t", "tmpfs", "tmpfs", "/run/netns"]);
        run(&["ip", "link", "set", "lo", "up"]);
        run(&["ip", "link", "add", "br0", "type", "bridge"]);
        run(&["ip", "addr", "add", &hub, "dev", "br0"]);
        run(&["ip", "addr", "add", &endpoint, "dev", "br0"]);
        run(&["ip", "link", "set", "br0", "up"]);
    }

    pub(crate) fn build(lane: usize) -> Self {
        let net = Self { lane };
        for n in 0..VMS {
            let (vm, port) = (net.vm(n), net.port(n));
            let ip = format!("10.77.0.{}/24", 10 * (1 + lane) + n);
            run(&["ip", "netns", "add", &vm]);
            run(&[
                "ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &vm,
            ]);
            run(&["ip", "link", "set", &port, "master", "br0", "up"]);
            run(&["ip", "-n", &vm, "addr", "add", &ip, "dev", "eth0"]);
            run(&["ip", "-n", &vm, "link", "set", "eth0", "up"]);
            run(&["ip", "-n", &vm, "link", "set", "lo", "up"]);
        }
        net
    }

    fn vm(&self, n: usize) -> String {
        format!("vm{}{n}", self.lane)
    }

    fn port(&self, n: usize) -> String {
        format!("port{}{n}", self.lane)
    }

    /// On the machine `n`.
    #[track_caller]
    pub(crate) fn exec(&self, n: usize, command: &[&str]) {
        run(&[&["ip", "netns", "exec", &self.vm(n)], command].concat());
    }

    /// The cable of the machine `n`, at the switch.
    pub(crate) fn link(&self, n: usize, up: bool) {
        run(&["ip", "link", "set", &self.port(n), if up { "up" } else { "down" }]);
    }

    /// A rule of the machine `n`'s packet filter.
    pub(crate) fn rule(&self, n: usize, rule: &[&str]) {
        self.exec(n, &[&["iptables", "-A"], rule].concat());
    }

    pub(crate) fn heal(&self) {
        for n in 0..VMS {
            self.exec(n, &["iptables", "-F"]);
            // There is mostly none to delete.
            let (vm, tc) = (self.vm(n), ["tc", "qdisc", "del", "dev", "eth0", "root"]);
            drop(Command::new("ip").args(["netns", "exec", &vm]).args(tc).output());
            self.link(n, true);
        }
    }
}

/// What came of one scene.
pub(crate) struct Verdict {
    pub(crate) polls: usize,
    pub(crate) results: usize,
    pub(crate) overlaps: usize,
    pub(crate) stale: usize,
    /// The longest time that any endpoint went without a poll, since the fault began; from the end
    /// of one to the start of the next.
    pub(crate) gap: Duration,
    pub(crate) bound: Duration,
    /// How much of the longest gap the machine itself stood still.
    pub(crate) stalled: Duration,
    /// From the end of the fault until everything had been polled.
    pub(crate) again: Duration,
    pub(crate) wrong: Vec<String>,
}

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
    pub(crate) results: Results,
    pub(crate) scene: Scene,
    stalls: Stalls,
    net: Option<&'a Net>,
    began: Option<Instant>,
    healed: Option<Instant>,
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
        let results = Results::watch(&url);
        let scene = Scene { redis, target, endpoints };
        scene.put_sessions();
        for (n, endpoint) in scene.endpoints.iter().enumerate() {
            let delay = if n % 2 == 0 { SLOW } else { QUICK };
            scene.target.answer(endpoint, Answer { delay, ..Answer::default() });
        }
        Self {
            fleet: Vec::new(),
            results,
            scene,
            stalls: Stalls::of_the_machine(),
            net,
            began: None,
            healed: None,
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
            wrapper.iter().chain(place).chain(&[BINARY]).map(|&it| it.into()).collect();
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

    /// The same where it is documented that up to so many polls may meet.
    pub(crate) fn judge_with(mut self, bound: Duration, overlaps_max: usize) -> Verdict {
        self.settle();
        let requests = self.scene.target.requests();
        let began = self.began.unwrap();
        let again = last_of_firsts(&requests, self.healed.unwrap());
        self.stop();
        let mut overlaps = self.scene.target.overlaps();
        overlaps.extend(self.scene.target.fence_regressions());
        overlaps.extend(shared_fences(&requests));
        let stale = self.results.stale(&requests);
        let mut wrong = std::mem::take(&mut self.wrong);
        if overlaps.len() > overlaps_max {
            wrong.extend(overlaps.iter().cloned());
        }
        wrong.extend(stale.iter().cloned());
        let (mut longest, mut stood_still) = (Duration::ZERO, Duration::ZERO);
        for (path, span) in gaps(&requests, began) {
            let ran = if is_slow(&path) { SLOW } else { QUICK };
            let gap = (span.end - span.start).saturating_sub(ran);
            let stalled = self.stalls.within(span);
            if gap > longest {
                (longest, stood_still) = (gap, stalled);
            }
            if gap > bound + stalled {
                wrong.push(format!("{path} was not polled for {gap:?}, stalled {stalled:?}"));
            }
        }
        let (polls, results) = (self.scene.target.requests().len(), self.results.len());
        if results == 0 {
            wrong.push("no result was heard of".into());
        }
        let (overlaps, stale) = (overlaps.len(), stale.len());
        let (gap, stalled) = (longest, stood_still);
        let verdict =
            Verdict { polls, results, overlaps, stale, gap, bound, stalled, again, wrong };
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

    /// What everybody said, for whoever has to find out.
    fn tell(&self) {
        for (n, one) in self.fleet.iter().enumerate() {
            let log = one.log().into_iter().filter(|it| !it.contains("lease.renewed"));
            println!("--- log of instance {n}");
            log.for_each(|it| println!("{it}"));
        }
        println!("--- the last polls\n{}", self.scene.target.story());
    }
}

/// Odd numbers.
fn is_slow(path: &str) -> bool {
    path.ends_with(['1', '3', '5'])
}

/// When the last endpoint had its first poll since `since`.
fn last_of_firsts(requests: &[Request], since: Instant) -> Duration {
    let mut firsts = BTreeMap::<&str, Instant>::new();
    for request in requests.iter().filter(|it| it.start >= since) {
        firsts.entry(&request.path).or_insert(request.start);
    }
    firsts.values().max().map_or(Duration::ZERO, |it| *it - since)
}

/// One grant, two who poll under it.
fn shared_fences(requests: &[Request]) -> Vec<String> {
    let mut owners = BTreeMap::<(&str, u64), &str>::new();
    let mut found = Vec::new();
    for it in requests {
        let owner = owners.entry((&it.path, it.fence)).or_insert(&it.instance);
        if *owner != it.instance {
            found.push(format!("{} under {} by {owner} and {}", it.path, it.fence, it.instance));
        }
    }
    found
}

/// So long a fault lasts that is to outlive every right.
pub(crate) const LONG: Duration = ms(2 * 3_000 - 500);
const _: () = assert!(LONG.as_millis() > TTL.as_millis() && INTERVAL.as_millis() == 200);
