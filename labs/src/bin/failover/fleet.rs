//! A fleet of `leasehold run` on machines of its own, and what its endpoints saw of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::lab::net::{REDIS_IP, TARGET_IP};
use testkit::lab::verdict::{shared_fences, slow_down};
use testkit::measure::Stalls;
use testkit::process::{Instance, Scene, binary, eventually, ms};
use testkit::random::Random;
use testkit::redis::RedisServer;
use testkit::results::Results;
use testkit::takeovers::first_polls;
use testkit::target::Target;

use crate::machine::Machine;
use crate::report::{Judgement, Takeover};
use crate::settings::Settings;

pub(crate) const MEMBERS: usize = 3;
pub(crate) const ENDPOINTS: usize = 6;
const SHARE: usize = ENDPOINTS / MEMBERS;
/// Short, so that the schedule of an endpoint adds little to the time of a takeover.
pub(crate) const INTERVAL: Duration = ms(200);
/// Between two looks at the owners in Redis.
const LOOK: Duration = ms(100);

const COUNT_REVOKED: &str = "local n = 0 for _, e in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do \
     for i = 1, #e[2], 2 do if e[2][i] == 'event' and e[2][i + 1] == 'revoked' then n = n + 1 end end end return n";

/// An instance and the machine that it runs on. The instance ends first.
pub(crate) struct Member {
    pub(crate) instance: Instance,
    pub(crate) machine: Machine,
    /// The first part of the instance id; no two instances of a run have the same.
    host: String,
}

impl Member {
    fn is(&self, id: &str) -> bool {
        host_of(id) == self.host
    }
}

fn host_of(id: &str) -> &str {
    id.split('-').next().unwrap_or_default()
}

/// Three instances that share six endpoints. Half of the endpoints take 0.9 s to answer, so that a fault meets polls that run.
pub(crate) struct Fleet<'a> {
    pub(crate) members: Vec<Member>,
    pub(crate) random: Random,
    pub(crate) scene: Scene,
    results: Results,
    pub(crate) settings: &'a Settings,
}

impl<'a> Fleet<'a> {
    /// Starts a fleet and waits until it is balanced.
    pub(crate) fn start(settings: &'a Settings, seed: u64) -> Self {
        let bind = ["--bind", "127.0.0.1", REDIS_IP, "--protected-mode", "no"];
        let redis = RedisServer::start_with(&bind);
        let target = Target::start_on(TARGET_IP);
        let endpoints = (1..=ENDPOINTS).map(|n| format!("e{n}")).collect();
        let results = Results::watch(&redis.url());
        let scene = Scene { redis, target, endpoints };
        scene.put_sessions();
        slow_down(&scene.target, &scene.endpoints);
        let random = Random::new(seed);
        let mut fleet = Self { members: Vec::new(), random, scene, results, settings };
        fleet.add(Machine::boot(), &["--new-fleet"]);
        fleet.members[0].instance.wait_for("event=daemon.ready");
        (1..MEMBERS).for_each(|_| fleet.add(Machine::boot(), &[]));
        fleet.settle();
        fleet
    }

    /// Starts an instance on `machine`.
    pub(crate) fn add(&mut self, machine: Machine, options: &[&str]) {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let host = format!("i{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = machine.command(binary());
        command.args(["run", &format!("--redis=redis://{REDIS_IP}:{}/0", self.scene.redis.port())]);
        command.args([
            format!("--host-name={host}"),
            format!("--interval={}ms", INTERVAL.as_millis()),
        ]);
        command.args(self.settings.run_options()).args(options);
        let instance = Instance::spawn(&mut command);
        self.members.push(Member { instance, machine, host });
    }

    /// Endpoints by owner; `None` until each instance owns its share.
    fn balanced(&self) -> Option<BTreeMap<String, Vec<String>>> {
        let mut shares = BTreeMap::<String, Vec<String>>::new();
        for (endpoint, owner) in self.scene.owners() {
            shares.entry(host_of(&owner).to_owned()).or_default().push(endpoint);
        }
        let has_share = |it: &Member| shares.get(&it.host).is_some_and(|it| it.len() == SHARE);
        self.members.iter().all(has_share).then_some(shares)
    }

    /// Waits for `condition`, which asks Redis.
    #[track_caller]
    fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let describe = || format!("{:?}\n{}", self.scene.owners(), self.scene.target.story());
        eventually(self.settings.patience(), what, describe, || {
            condition() || {
                std::thread::sleep(LOOK);
                false
            }
        });
    }

    /// Waits until each instance owns its share and polls it.
    #[track_caller]
    pub(crate) fn settle(&self) {
        self.shares_after(Instant::now(), "balance", |_| true);
    }

    /// Waits until each instance owns its share; how long after `since` the last of these endpoints was first polled by its owner,
    /// for the instances that `whose` chooses.
    #[track_caller]
    pub(crate) fn shares_after(
        &self,
        since: Instant,
        what: &str,
        whose: impl Fn(&Member) -> bool,
    ) -> Duration {
        let mut found = Duration::ZERO;
        self.wait(what, || {
            let Some(shares) = self.balanced() else { return false };
            let requests = self.scene.target.requests();
            let mut last = since;
            for member in self.members.iter().filter(|it| whose(it)) {
                for endpoint in &shares[&member.host] {
                    let path = format!("/{endpoint}");
                    let first = requests
                        .iter()
                        .find(|it| it.start >= since && it.path == path && member.is(&it.instance));
                    let Some(first) = first else { return false };
                    last = last.max(first.start);
                }
            }
            found = last - since;
            true
        });
        found
    }

    /// How long after `since` the instance at `index` polls its share again.
    #[track_caller]
    pub(crate) fn back_after(&self, since: Instant, index: usize) -> Duration {
        let host = self.members[index].host.clone();
        self.shares_after(since, "the share of an instance that is back", |it| it.host == host)
    }

    /// Waits until others poll what the instance `dead` owned.
    #[track_caller]
    pub(crate) fn takeover(
        &self,
        dead: &str,
        orphans: &[String],
        since: Instant,
        stalls: &Stalls,
    ) -> Takeover {
        let (limit, what) = (self.settings.patience(), "takeover of every endpoint");
        let (mut first, mut own) = (BTreeMap::new(), since);
        self.scene.target.wait_until(limit, what, |requests| {
            first = first_polls(requests, dead, since);
            let polls = requests.iter().rev().take_while(|it| it.start > since);
            own = polls.filter(|it| it.instance == dead).map(|it| it.start).max().unwrap_or(since);
            orphans.iter().all(|it| first.contains_key(&format!("/{it}")))
        });
        let mut times: Vec<Duration> =
            orphans.iter().map(|it| first[&format!("/{it}")] - since).collect();
        times.sort_unstable();
        let last = times[times.len() - 1];
        Takeover {
            first: times[0],
            median: times[times.len() / 2],
            last,
            own: own - since,
            stalled: stalls.within(since..since + last),
        }
    }

    /// How many revocations the history of this fleet tells.
    pub(crate) fn revocations(&self) -> usize {
        let count = self.scene.redis.cli(&["EVAL", COUNT_REVOKED, "1", "poll:history"]);
        count.parse().unwrap_or_else(|_| panic!("the history cannot be read: {count}"))
    }

    /// Ends the fleet as an operator would, and judges everything that its endpoints and its results showed.
    pub(crate) fn end(mut self) -> Judgement {
        let revocations = self.revocations();
        let requests = self.scene.target.requests();
        let mut wrong = Vec::new();
        for member in &mut self.members {
            let (host, instance) = (&member.host, &mut member.instance);
            if !instance.is_running() {
                wrong.push(format!("{host} ended by itself: {:?}", instance.log().last()));
            } else if !instance.term().success() {
                wrong.push(format!("{host} did not stop well: {:?}", instance.log().last()));
            }
            if instance.says("panicked") {
                wrong.push(format!("{host}: {:?}", instance.lines(&["panicked"])));
            }
        }
        let target = &self.scene.target;
        let mut overlaps = target.overlaps();
        overlaps.extend(target.fence_regressions());
        overlaps.extend(shared_fences(&requests));
        let stale = self.results.stale(&requests);
        wrong.extend(overlaps.iter().chain(&stale).cloned());
        if self.results.len() == 0 {
            wrong.push("no result was heard of".into());
        }
        Judgement {
            polls: target.requests().len(),
            results: self.results.len(),
            overlaps: overlaps.len(),
            stale: stale.len(),
            revocations,
            wrong,
        }
    }
}
