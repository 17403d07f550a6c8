//! One fleet of both versions: upgraded, downgraded, and hit by a crash or an empty Redis half-way.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::lab::play::Scenario;
use testkit::lab::verdict::{Evidence, Verdict, slow_down};
use testkit::measure::Stalls;
use testkit::process::{Instance, Scene, eventually, ms, run_args};
use testkit::results::Results;

use crate::versions::Version::{self, New, Old};

const ENDPOINTS: usize = 300;
/// The versions of a fleet that is half upgraded.
const MIXED: [Version; 4] = [Old, New, Old, New];
const TTL: Duration = Duration::from_secs(6);
/// R1: 3 % of the TTL and 100 ms.
const MARGIN: Duration = ms(280);
const INTERVAL: Duration = Duration::from_secs(2);
/// Beyond its interval no endpoint may wait longer for a poll while instances are restarted one by one.
const HANDOVER: Duration = Duration::from_secs(1);
/// From the end of a lease or of a hold-off to the first poll.
const TAKEOVER: Duration = Duration::from_secs(2);
/// For the fleet to settle, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
const ARGS: [&str; 9] = [
    "--lease-ttl=6s",
    "--renew-interval=2s",
    "--heartbeat-ttl=6s",
    "--heartbeat-interval=2s",
    "--store-timeout=600ms",
    "--interval=2s",
    "--timeout=2s",
    "--workers=32",
    "--drain-timeout=3s",
];

pub(crate) const SCENES: &[Scenario] = &[
    ("upgrade", "four old instances become new ones, one by one", |_| Ok(replace_all(Old, New))),
    ("downgrade", "four new instances become old ones, one by one", |_| Ok(replace_all(New, Old))),
    ("old one dies", "two old, two new: an old one gets SIGKILL", |_| Ok(kill_one(Old))),
    ("new one dies", "two old, two new: a new one gets SIGKILL", |_| Ok(kill_one(New))),
    ("memory lost", "two old, two new: Redis restarts empty", |_| Ok(lose_memory())),
];

/// Instances of both versions, their Redis, and the record of what they did. Fields are dropped in this order.
struct Fleet {
    instances: Vec<Instance>,
    results: Vec<Results>,
    scene: Scene,
    stalls: Stalls,
    wrong: Vec<String>,
}

impl Fleet {
    /// A settled fleet, one instance for each of `versions`.
    fn new(versions: [Version; 4]) -> Self {
        let scene = Scene::new(ENDPOINTS);
        slow_down(&scene.target, &scene.endpoints);
        let results = vec![Results::watch(&scene.redis.url())];
        let stalls = Stalls::of_the_machine();
        let mut fleet = Self { instances: Vec::new(), results, scene, stalls, wrong: Vec::new() };
        for (n, version) in versions.into_iter().enumerate() {
            let first: &[&str] = if n == 0 { &["--new-fleet"] } else { &[] };
            let instance = fleet.start(version, first);
            fleet.instances.push(instance);
            fleet.settle(); // so that the first takes all without a hold-off
        }
        fleet
    }

    fn start(&self, version: Version, args: &[&str]) -> Instance {
        let args = run_args(&self.scene.redis.url(), &[&ARGS[..], args].concat());
        Instance::spawn(Command::new(version.program()).args(args))
    }

    /// Waits until the instances share all endpoints evenly and have polled each of them.
    #[track_caller]
    fn settle(&self) {
        let instances: Vec<&Instance> = self.instances.iter().collect();
        self.scene.wait_for_balance(&instances, PATIENCE);
        self.scene.target.wait_for_polls(&self.scene.endpoints, Instant::now(), PATIENCE);
    }

    /// Stops instance `n` as an operator would, and starts the other version in its place.
    fn replace(&mut self, n: usize, by: Version) {
        let status = self.instances[n].term();
        if !status.success() {
            self.wrong.push(format!("instance {n} ended with {status}"));
        }
        self.check_log(n);
        self.instances[n] = self.start(by, &[]);
        self.settle();
    }

    /// No version may panic, and none may meet a message or reply of the other version that it cannot read.
    fn check_log(&mut self, n: usize) {
        for word in ["panicked", "ERROR"] {
            let lines = self.instances[n].lines(&[word]);
            self.wrong.extend(lines.first().map(|line| format!("instance {n}: {line}")));
        }
    }

    /// Ends every instance and judges all that happened since `began`.
    fn judge(mut self, began: Instant, bound: Duration) -> Verdict {
        let healed = Instant::now();
        self.settle();
        let requests = self.scene.target.requests();
        for n in 0..self.instances.len() {
            let status = self.instances[n].term();
            if !status.success() {
                self.wrong.push(format!("instance {n} ended with {status}"));
            }
            self.check_log(n);
        }
        let evidence = Evidence {
            target: &self.scene.target,
            results: &self.results,
            stalls: &self.stalls,
            began,
            healed,
            requests: &requests,
            bound,
            overlaps_max: 0,
        };
        evidence.verdict(std::mem::take(&mut self.wrong))
    }
}

fn replace_all(from: Version, to: Version) -> Verdict {
    let mut fleet = Fleet::new([from; 4]);
    let began = Instant::now();
    for n in 0..fleet.instances.len() {
        fleet.replace(n, to);
    }
    fleet.judge(began, INTERVAL + HANDOVER)
}

fn kill_one(version: Version) -> Verdict {
    let mut fleet = Fleet::new(MIXED);
    let began = Instant::now();
    let n = MIXED.iter().position(|it| *it == version).unwrap();
    fleet.instances.remove(n).kill9();
    fleet.judge(began, INTERVAL + TTL + TAKEOVER)
}

/// The first instance of any version to notice starts an epoch, and all of them must wait out its hold-off.
fn lose_memory() -> Verdict {
    let mut fleet = Fleet::new(MIXED);
    let began = Instant::now();
    fleet.scene.redis.restart_empty();
    fleet.scene.put_sessions();
    let owned = || fleet.scene.owners().len();
    eventually(PATIENCE, "leases again", || owned().to_string(), || owned() == ENDPOINTS);
    fleet.judge(began, INTERVAL + TTL + MARGIN + TAKEOVER)
}
