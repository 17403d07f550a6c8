//! A fleet on servers of any topology, and what is asked of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::process::{Instance, SOON, eventually, leasehold};
use crate::redis::RedisServer;
use crate::results::Results;
use crate::target::Target;

/// Servers that are one store together.
pub trait Site {
    /// What instances are told.
    fn url(&self) -> String;
    /// What everything but the sessions begins with.
    fn prefix(&self) -> &'static str;
    /// Who has this key, as far as anybody knows.
    fn at(&self, key: &str) -> Option<&RedisServer>;
    fn servers(&self) -> Vec<&RedisServer>;

    /// Who has everything but the sessions.
    fn home(&self) -> Option<&RedisServer> {
        self.at(&format!("{}:epoch", self.prefix()))
    }
}

/// Dropped in this order.
pub struct World<S> {
    pub fleet: Vec<Instance>,
    /// As each server announced them and has them.
    pub results: Vec<Results>,
    pub target: Target,
    pub endpoints: Vec<String>,
    pub site: S,
}

impl<S: Site> World<S> {
    /// With the sessions `e1`, `e2`, …, and nobody to poll them.
    pub fn new(site: S, target: Target, n_endpoints: usize) -> Self {
        let watch = |it: &&RedisServer| Results::watch_under(site.prefix(), &it.url());
        let results = site.servers().iter().map(watch).collect();
        let endpoints = (1..=n_endpoints).map(|n| format!("e{n}")).collect();
        let world = Self { fleet: Vec::new(), results, target, endpoints, site };
        world.endpoints.iter().for_each(|it| world.put_session(it));
        world
    }

    /// With this many instances that share everything.
    pub fn populated(site: S, n_instances: usize, args: &[&str]) -> Self {
        let mut world = Self::new(site, Target::start(), 6);
        for n in 0..n_instances {
            let first: &[&str] = if n == 0 { &["--new-fleet"] } else { &[] };
            let name = format!("--host-name=vm{n}");
            let args = [args, first, &[name.as_str()]].concat();
            world.fleet.push(Instance::start_at(&world.site.url(), &args));
            if n == 0 {
                world.wait_until_all_are_owned();
            }
        }
        world.settle();
        world
    }

    pub fn wait_until_all_are_owned(&self) {
        let story = || format!("{:?}\n{}", self.owners(), self.fleet[0].log().join("\n"));
        let all = self.endpoints.len();
        eventually(SOON, "all is owned", story, || self.owners().len() == all);
    }

    /// Stores a session where it belongs, as its application would.
    #[track_caller]
    pub fn put_session(&self, id: &str) {
        let (key, value) = (format!("session:{id}"), self.target.session(id).to_string());
        let story = || format!("{:?}", self.site.at(&key).map(RedisServer::port));
        eventually(SOON, "a stored session", story, || {
            self.site.at(&key).is_some_and(|it| it.cli(&["SET", &key, &value]) == "OK")
        });
    }

    /// Who holds what, in the store; nothing while nobody can be asked.
    pub fn owners(&self) -> BTreeMap<String, String> {
        let script = "local r = {} for _, k in ipairs(redis.call('KEYS', ARGV[1])) do \
                      r[#r + 1] = k r[#r + 1] = redis.call('GET', k) or '' end return r";
        let prefix = format!("{}:lease:", self.site.prefix());
        let Some(home) = self.site.home() else { return BTreeMap::new() };
        let text = home.cli(&["EVAL", script, "0", &format!("{prefix}*")]);
        let lines: Vec<&str> = text.lines().filter(|it| !it.starts_with("ERR")).collect();
        let name = |it: &str| it.trim_start_matches(&prefix).to_owned();
        lines.chunks_exact(2).map(|it| (name(it[0]), it[1].to_owned())).collect()
    }

    /// How many each holds.
    pub fn shares(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for owner in self.owners().into_values() {
            *counts.entry(owner).or_default() += 1;
        }
        counts
    }

    /// Waits until everything is shared out evenly and was polled.
    #[track_caller]
    pub fn settle(&self) {
        let (n, all) = (self.fleet.len(), self.endpoints.len());
        let is_even = |it: &BTreeMap<String, usize>| {
            it.len() == n
                && it.values().sum::<usize>() == all
                && it.values().all(|it| *it <= all.div_ceil(n))
        };
        eventually(
            2 * SOON,
            "balance",
            || format!("{:?}", self.shares()),
            || is_even(&self.shares()),
        );
        self.wait_for_polls(SOON);
    }

    /// Waits until everything was polled from now on.
    #[track_caller]
    pub fn wait_for_polls(&self, limit: Duration) {
        self.target.wait_for_polls(&self.endpoints, Instant::now(), limit);
    }

    /// Never two pollers, and no result that came too late.
    #[track_caller]
    pub fn assert_sound(&self) {
        self.target.assert_sound();
        let requests = self.target.requests();
        let stale: Vec<String> = self.results.iter().flat_map(|it| it.stale(&requests)).collect();
        assert!(stale.is_empty(), "{stale:#?}");
        assert!(self.results.iter().any(|it| it.len() > 0), "no result was heard of");
    }

    /// What a command says that is given the URL; it must succeed.
    #[track_caller]
    pub fn command(&self, args: &[&str]) -> String {
        let url = format!("--redis={}", self.site.url());
        let done = leasehold(&[args, &[&url]].concat());
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }
}
