//! 2,000 roles of one process, with a TTL of 3 s, on a Redis that is 10 ms away: how long does their start take, is one of them
//! lost, what do they cost, how long does a hand-over of all of them take, and how long a stop while Redis hangs?
//! `make roles`: a minute. `make roles ROLES=300 FOR=10s` is smaller.
//!
//! The CPU of the process is that of the library's four threads: the proxy that adds the 10 ms runs in this process, too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::{
    Config, ElectionEvent, ElectionSettings, Elections, LeaderElection, RedisUrl, Role,
};
use testkit::bench::meter::Meter;
use testkit::proxy::Proxy;
use testkit::redis::RedisServer;

const TTL: Duration = Duration::from_secs(3);
const STORE_TIMEOUT: Duration = Duration::from_millis(300);
/// There and back.
const ROUND_TRIP: Duration = Duration::from_millis(10);
const START_MAX: Duration = Duration::from_secs(5);
/// The longest wait for anything.
const LIMIT: Duration = Duration::from_secs(60);

struct Lab {
    redis: RedisServer,
    proxy: Proxy,
    n_roles: usize,
    wrong: Vec<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let time = words.iter().find_map(|it| it.strip_suffix('s')?.parse().ok()).unwrap_or(30);
    let n_roles = words.iter().find_map(|it| it.parse().ok()).unwrap_or(2_000);
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port());
    proxy.lie_far_away(ROUND_TRIP / 2);
    let mut lab = Lab { redis, proxy, n_roles, wrong: Vec::new() };
    println!("{n_roles} roles, TTL {TTL:?}, a round trip takes {ROUND_TRIP:?}");
    lab.hold_and_hand_over(Duration::from_secs(time));
    lab.stop_while_redis_hangs("stop_within", |elections, all| {
        let given_back = elections.stop_within(LIMIT);
        drop((elections, all));
        given_back
    });
    lab.stop_while_redis_hangs("a drop of each", |elections, all| {
        drop((all, elections));
        false
    });
    match &lab.wrong[..] {
        [] => println!("\nnothing was wrong"),
        wrong => println!("\nwrong:\n  {}", wrong.join("\n  ")),
    }
    if lab.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Lab {
    fn elections(&self) -> (Elections, Config) {
        let redis = RedisUrl::parse(&self.proxy.url()).unwrap();
        let config = Config {
            redis,
            lease_ttl: TTL,
            renew_interval: TTL / 3,
            heartbeat_ttl: TTL,
            heartbeat_interval: TTL / 3,
            store_timeout: STORE_TIMEOUT,
            new_fleet: true,
            ..Config::default()
        };
        (Elections::on_redis(&config.clone().checked().unwrap()).unwrap(), config)
    }

    fn roles(&self, config: &Config) -> Vec<ElectionSettings> {
        let role = |n: usize| Role::parse(&format!("shard-{n}")).unwrap();
        (0..self.n_roles).map(|n| config.election_settings(role(n))).collect()
    }

    fn stand(&self, elections: &Elections, config: &Config) -> Vec<LeaderElection> {
        let stood = elections.stand_many(self.roles(config), None);
        stood.into_iter().collect::<Result<Vec<_>, _>>().unwrap()
    }

    /// How long until all of these lead.
    fn all_lead(&mut self, what: &str, all: &[LeaderElection], since: Instant) -> Duration {
        let mut left: Vec<&LeaderElection> = all.iter().collect();
        while !left.is_empty() && since.elapsed() < LIMIT {
            left.retain(|it| !it.is_leader());
            std::thread::sleep(Duration::from_millis(2));
        }
        if !left.is_empty() {
            self.wrong.push(format!("{what}: {} roles are not led", left.len()));
        }
        since.elapsed()
    }

    fn hold_and_hand_over(&mut self, time: Duration) {
        let (elections, config) = self.elections();
        let lost = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&lost);
        let _stays = elections
            .listen(move |event| {
                if matches!(event, ElectionEvent::LeadershipLost { .. }) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
            .unwrap();
        let began = Instant::now();
        let all = self.stand(&elections, &config);
        let stood = began.elapsed();
        let led = self.all_lead("start", &all, began);
        println!("start: stand_many returns after {stood:.0?}, all are led after {led:.0?}");
        if led > START_MAX {
            self.wrong.push(format!("the start took {led:?}"));
        }
        self.hold(time, &all, &lost);
        self.one_by_one(&elections, &config);
        self.hand_over(elections, &all, all.len());
        drop(all);
    }

    /// Is a role lost, or in doubt, while nothing happens?
    fn hold(&mut self, time: Duration, all: &[LeaderElection], lost: &AtomicUsize) {
        let mut meter = Meter(self.redis.connect().unwrap());
        let (server, threads, began) =
            (meter.server_seconds().unwrap(), library_seconds(), Instant::now());
        let mut doubts = 0;
        while began.elapsed() < time {
            std::thread::sleep(Duration::from_millis(100));
            doubts += all.iter().filter(|it| !it.is_leader()).count();
        }
        let seconds = began.elapsed().as_secs_f64();
        let percent = |of: f64| 100.0 * of / seconds;
        let lost = lost.load(Ordering::Relaxed);
        println!(
            "hold for {time:?}: {lost} lost, {doubts} times in doubt; Redis takes {:.1} % of a core, \
             the library's threads {:.1} %",
            percent(meter.server_seconds().unwrap() - server),
            percent(library_seconds() - threads)
        );
        if lost + doubts > 0 {
            self.wrong.push(format!("{lost} roles were lost, {doubts} times one was in doubt"));
        }
    }

    fn one_by_one(&self, elections: &Elections, config: &Config) {
        let more = |n| config.election_settings(Role::parse(&format!("more-{n}")).unwrap());
        let began = Instant::now();
        let stood: Vec<_> = (0..20).map(|n| elections.stand(more(n), None).unwrap()).collect();
        println!("one more role: {:.0?} each", began.elapsed() / 20);
        let began = Instant::now();
        drop(stood);
        println!("one role less: {:.0?} each", began.elapsed() / 20);
    }

    fn hand_over(&mut self, elections: Elections, all: &[LeaderElection], n: usize) {
        let (others, config) = self.elections();
        let heirs = self.stand(&others, &config);
        let (threads, began) = (library_seconds(), Instant::now());
        std::thread::sleep(Duration::from_secs(5));
        let percent = 100.0 * (library_seconds() - threads) / began.elapsed().as_secs_f64();
        println!(
            "another process that stands for all of them: both together {percent:.1} % of a core"
        );
        let began = Instant::now();
        let given_back = elections.stop_within(LIMIT);
        let stopped = began.elapsed();
        let led = self.all_lead("hand-over", &heirs, began);
        println!("stop: {n} roles given back after {stopped:.0?}, led by another after {led:.0?}");
        if !given_back || all.iter().any(LeaderElection::is_leader) {
            self.wrong.push("a stop left a role".into());
        }
        others.stop();
        let left = self.redis.cli(&["KEYS", "leader:shard-*"]);
        if !left.trim().is_empty() {
            self.wrong.push(format!("{} roles were not given back", left.lines().count()));
        }
    }

    fn stop_while_redis_hangs(
        &mut self,
        how: &str,
        stop: impl FnOnce(Elections, Vec<LeaderElection>) -> bool,
    ) {
        let (elections, config) = self.elections();
        let all = self.stand(&elections, &config);
        self.all_lead(how, &all, Instant::now());
        self.redis.pause();
        let began = Instant::now();
        let given_back = stop(elections, all);
        let took = began.elapsed();
        self.redis.resume();
        println!("Redis hangs, {how}: {took:.0?}");
        if took > STORE_TIMEOUT + Duration::from_secs(1) || given_back {
            self.wrong.push(format!("a stop while Redis hung, {how}: {took:?}"));
        }
        // Nobody renews them; the next scene begins with free roles.
        let began = Instant::now();
        while !self.redis.cli(&["KEYS", "leader:shard-*"]).trim().is_empty() {
            assert!(began.elapsed() < LIMIT, "a role is renewed after its stop");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Seconds of CPU of the threads that keep roles.
fn library_seconds() -> f64 {
    let ours = |name: &str| name.starts_with("role-") || name == "elector" || name == "listener";
    let ticks = std::fs::read_dir("/proc/self/task").unwrap().flatten().filter_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        ours(name.trim()).then_some(ticks)
    });
    // The kernel counts in hundredths of a second for every program.
    ticks.sum::<u64>() as f64 / 100.0
}
