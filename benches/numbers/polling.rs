//! How much of what its HTTP client can do is left when every poll is scheduled, verified, permitted and published?
//!
//! One whole instance with 64 workers in this process, 8,000 endpoints, a private Redis, and a target that does next to
//! nothing; by turns with a bare loop: 64 threads that call the same `HttpPoll`, each under one permit that holds,
//! so that a poll opens its connection, arms its switch and confirms as always, and nothing else is done.
//! Other clients of the same target have their turns, too (`others.rs`).
//! Target, Redis, client and this process share the cores of one machine. Of the instance's own work two things are
//! counted beside the rate: how late polls start at half of that rate, and what CPU each part takes for a poll.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::config::RedisUrl;
use leasehold::lease::testing::permit_for_tests;
use leasehold::model::USUAL_CHECK;
use leasehold::polling::http::HttpPoll;
use leasehold::polling::net_poller::NetPoller;
use leasehold::polling::targets::Targets;
use leasehold::thread::{Stop, stop};
use leasehold::{CheckedConfig, Config, Daemon};
use redis::Connection;

use crate::others::{Other, Spent};
use crate::target::{self, Target};
use crate::{permits, say};
use testkit::bench::holder::{all, endpoints};
use testkit::bench::meter::{Meter, idle, process_cpu};
use testkit::bench::table::{Better, Row};
use testkit::private_redis::PrivateRedis;

const WORKERS: usize = 64;
/// One is polled again when its result is stored: of fewer there could be none that is due.
const ENDPOINTS: u32 = 8_000;
const TURNS: usize = 7;
const WINDOW: Duration = Duration::from_secs(2);
/// Until what was begun is under way.
const SETTLED: Duration = Duration::from_millis(500);
/// As good as never.
const REST: Duration = Duration::from_secs(3_600);
/// More than any machine can do: 40,000 polls a second.
const FULL: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(5);
const BODY_MAX: usize = 4_096;

/// The rows, and what has to be known to read them.
pub(crate) fn measure() -> io::Result<(String, Vec<Row>)> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let target = Target::start(2 * WORKERS)?;
    put_sessions(&mut redis.connect(&never)?, &target)?;
    let mut meter = Meter(redis.connect(&never)?);
    let version = meter.version()?;
    let config = config(&redis.url())?;
    let poller = Arc::new(NetPoller::new(Targets::default(), BODY_MAX));
    let daemon = Daemon::start_redis(&config, poller, &never).map_err(io::Error::other)?;
    let mut stage = Stage { daemon, config, target, meter, never };
    stage.wait_until_all_is_owned()?;
    stage.full()?; // connections, caches and scripts are warm after that
    let others = here();
    let turns: Vec<Turn> =
        (0..TURNS).map(|it| stage.turn(it, &others)).collect::<io::Result<_>>()?;
    stage.nothing_was_lost()?;
    let note = format!("{ENDPOINTS} endpoints, {WORKERS} workers, {TURNS} turns, Redis {version}");
    let mut rows = rows(&turns);
    for other in others {
        rows.extend(rows_of(other, &turns));
    }
    rows.extend(permits::rows()?);
    Ok((note, rows))
}

/// The other clients that can be measured on this machine.
fn here() -> Vec<Other> {
    let is_here = |it: &Other| {
        let missing = it.missing();
        missing.inspect(|sentence| say(sentence)).is_none()
    };
    Other::ALL.into_iter().filter(is_here).collect()
}

fn put_sessions(line: &mut Connection, target: &Target) -> io::Result<()> {
    let mut pipe = redis::pipe();
    for (n, id) in (0..).zip(endpoints(0..ENDPOINTS)?) {
        let session = format!(r#"{{"id":"{id}","address":"http://{}/"}}"#, target.address(n));
        pipe.cmd("SET").arg(format!("session:{id}")).arg(session).ignore();
    }
    pipe.exec(line).map_err(io::Error::other)
}

fn config(url: &str) -> io::Result<CheckedConfig> {
    let redis = RedisUrl::parse(url).map_err(io::Error::other)?;
    let config =
        Config { redis, workers: WORKERS, new_fleet: true, interval: REST, ..Config::default() };
    config.checked().map_err(io::Error::other)
}

struct Stage {
    daemon: Daemon,
    config: CheckedConfig,
    target: Target,
    meter: Meter,
    never: Stop,
}

/// What happened within a window.
struct Window {
    /// Polls per second.
    rate: f64,
    /// Microseconds of CPU for each poll: of the server, of this process without the target, by thread.
    redis: f64,
    client: f64,
    threads: BTreeMap<String, f64>,
    /// Percent of the cores that had nothing to do.
    idle: f64,
    /// Milliseconds.
    lag_p50: f64,
    lag_p99: f64,
}

struct Turn {
    bare: Window,
    full: Window,
    half: Window,
    /// Of the other clients that are here.
    others: Vec<(Other, Spent)>,
}

impl Stage {
    fn turn(&mut self, nth: usize, others: &[Other]) -> io::Result<Turn> {
        let bare = self.bare()?;
        let full = self.full()?;
        let half = self.at(Duration::from_secs_f64(f64::from(ENDPOINTS) / (full.rate / 2.0)))?;
        let nth = u32::try_from(nth).unwrap_or_default();
        let measure = |it: &Other| {
            let spent = it.measure(&self.target, WORKERS, nth, WINDOW, &self.never);
            spent.map(|spent| (*it, spent))
        };
        let others = others.iter().map(measure).collect::<io::Result<_>>()?;
        Ok(Turn { bare, full, half, others })
    }

    /// The same client without the pipeline.
    fn bare(&mut self) -> io::Result<Window> {
        let poller = HttpPoll::new(Targets::default(), BODY_MAX);
        let is_over = AtomicBool::new(false);
        let urls: Vec<String> =
            (0..ENDPOINTS).map(|it| format!("http://{}/", self.target.address(it))).collect();
        std::thread::scope(|scope| {
            for nth in 0..WORKERS {
                let (poller, is_over, urls) = (&poller, &is_over, &urls);
                let name = std::thread::Builder::new().name(format!("bare-{nth}"));
                name.spawn_scoped(scope, move || {
                    let (permit, _lease) = permit_for_tests("e", "bench-1-1-0123456789ab", 1);
                    for url in urls.iter().cycle().skip(nth * 31) {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let _ = poller.poll(url, &USUAL_CHECK, &permit, TIMEOUT);
                    }
                })?;
            }
            let _ = self.never.within(SETTLED);
            let window = self.window();
            is_over.store(true, Ordering::Relaxed);
            window
        })
    }

    /// As many polls as it can.
    fn full(&mut self) -> io::Result<Window> {
        self.at(FULL)
    }

    /// Each endpoint in this interval; at rest before and after.
    fn at(&mut self, interval: Duration) -> io::Result<Window> {
        self.set(interval)?;
        let _ = self.never.within(SETTLED);
        let window = self.window()?;
        self.set(REST)?;
        let deadline = BootClock.now() + PATIENCE;
        let mut before = 0;
        while self.target.answers() != before {
            before = self.target.answers();
            let _ = self.never.within(SETTLED);
            if BootClock.now() > deadline {
                return Err(io::Error::other("it does not come to rest"));
            }
        }
        Ok(window)
    }

    fn set(&mut self, interval: Duration) -> io::Result<()> {
        let config = Config { interval, ..self.config.clone().into() };
        self.daemon.reload(&config.checked().map_err(io::Error::other)?);
        Ok(())
    }

    fn window(&mut self) -> io::Result<Window> {
        // What takes long to read stands outside of what is short: nobody hurries for this thread.
        let (threads_before, before) = (self.threads()?, self.look()?);
        let _ = self.never.within(WINDOW);
        let (after, threads_after) = (self.look()?, self.threads()?);
        let polls = float(after.answers - before.answers).max(1.0);
        let lags: Vec<(f64, f64)> =
            before.lags.iter().zip(&after.lags).map(|(a, b)| (a.0, b.1 - a.1)).collect();
        let threads = threads_after.since(&threads_before);
        let target = threads.get(target::NAME).copied().unwrap_or_default();
        Ok(Window {
            rate: polls / after.at.since(before.at).as_secs_f64(),
            redis: (after.redis - before.redis) * 1e6 / polls,
            client: (after.client - before.client) * 1e6 / polls - target,
            threads,
            idle: (after.idle[0] - before.idle[0]) * 100.0 / (after.idle[1] - before.idle[1]),
            lag_p50: quantile(&lags, 0.5),
            lag_p99: quantile(&lags, 0.99),
        })
    }

    fn look(&mut self) -> io::Result<Look> {
        let redis = self.meter.server_seconds()?;
        let lags = lags(&self.daemon.exposition().text());
        let (answers, at) = (self.target.answers(), BootClock.now());
        let client = process_cpu()?.as_secs_f64();
        Ok(Look { answers, at, client, redis, idle: idle()?, lags })
    }

    fn threads(&self) -> io::Result<Threads> {
        let before = self.target.answers();
        let seconds = threads()?;
        Ok(Threads { answers: float(before + self.target.answers()) / 2.0, seconds })
    }

    fn wait_until_all_is_owned(&self) -> io::Result<()> {
        let deadline = BootClock.now() + PATIENCE;
        while self.daemon.table().len() < ENDPOINTS as usize && BootClock.now() < deadline {
            let _ = self.never.within(Duration::from_millis(20));
        }
        all("owned", ENDPOINTS as usize, self.daemon.table().len())
    }

    /// A poll that fails is cheaper than one that does not, and a result that is dropped than one that is stored.
    fn nothing_was_lost(&self) -> io::Result<()> {
        let text = self.daemon.exposition().text();
        for name in [
            "leasehold_polls_total{result=\"failed\"",
            "leasehold_polls_total{result=\"aborted\"",
            "leasehold_polls_deferred_total",
            "leasehold_results_fenced_total",
            "leasehold_results_unpublished_total",
        ] {
            let line = text.lines().find(|it| it.starts_with(name)).unwrap_or_default();
            if !line.ends_with(" 0") {
                return Err(io::Error::other(format!("{name} should be 0: {line:?}")));
            }
        }
        Ok(())
    }
}

/// Sums so far.
struct Look {
    answers: u64,
    at: Moment,
    redis: f64,
    client: f64,
    /// Ticks: idle, and all.
    idle: [f64; 2],
    /// Upper bounds of lags in milliseconds, and how many were not above.
    lags: Vec<(f64, f64)>,
}

/// Seconds of CPU by what threads are called, without their number, and answers at about that time.
struct Threads {
    answers: f64,
    seconds: BTreeMap<String, f64>,
}

impl Threads {
    /// Microseconds for each answer.
    fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let each = |name: &String, now: f64| {
            let spent = now - before.seconds.get(name).copied().unwrap_or_default();
            spent * 1e6 / (self.answers - before.answers).max(1.0)
        };
        self.seconds.iter().map(|(name, now)| (name.clone(), each(name, *now))).collect()
    }
}

fn threads() -> io::Result<BTreeMap<String, f64>> {
    let mut threads = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        // One that has ended meanwhile is left out.
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        let spent = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let name = name.trim().split('-').next().unwrap_or_default().to_owned();
        let nanos = spent.split(' ').next().and_then(|it| it.parse::<f64>().ok());
        *threads.entry(name).or_default() += nanos.unwrap_or_default() / 1e9;
    }
    Ok(threads)
}

fn lags(text: &str) -> Vec<(f64, f64)> {
    let bucket = |line: &str| {
        let rest = line.strip_prefix("leasehold_poll_lag_seconds_bucket{le=\"")?;
        let (bound, count) = (rest.split_once('"')?.0, rest.rsplit_once(' ')?.1);
        Some((bound.parse::<f64>().ok()? * 1e3, count.parse().ok()?))
    };
    text.lines().filter_map(bucket).collect()
}

/// Within its bucket in proportion, as Prometheus does it.
fn quantile(buckets: &[(f64, f64)], share: f64) -> f64 {
    let rank = buckets.last().map_or(0.0, |it| it.1) * share;
    let mut below = (0.0, 0.0);
    for &(bound, count) in buckets {
        if count >= rank && count > below.1 {
            return below.0 + (bound - below.0) * (rank - below.1) / (count - below.1);
        }
        below = (bound, count);
    }
    f64::NAN
}

fn float(n: u64) -> f64 {
    u32::try_from(n).map_or(f64::NAN, f64::from)
}

fn rows(turns: &[Turn]) -> Vec<Row> {
    let row = |name: &str, unit, better, of: &dyn Fn(&Turn) -> f64| {
        Row::new(name, unit, better, &turns.iter().map(of).collect::<Vec<_>>())
    };
    let less = |name: &str, of: &dyn Fn(&Turn) -> f64| row(name, "µs", Better::Less, of);
    let thread = |it: &Window, name: &str| it.threads.get(name).copied().unwrap_or_default();
    let mut rows = vec![
        row("polls per second / bare loop", "×", Better::More, &|it| it.full.rate / it.bare.rate)
            .goal(0.7),
        row("polls per second", "", Better::More, &|it| it.full.rate),
        row("polls per second, bare loop", "", Better::More, &|it| it.bare.rate),
        row("lag p99 at half load", "ms", Better::Less, &|it| it.half.lag_p99).goal(50.0),
        row("lag p50 at half load", "ms", Better::Less, &|it| it.half.lag_p50),
        row("polls per second at half load", "", Better::More, &|it| it.half.rate),
    ];
    for (load, of) in
        [("", (|it| &it.full) as fn(&Turn) -> &Window), (" at half load", |it| &it.half)]
    {
        for name in ["dispatch", "publish", "poller"] {
            rows.push(less(&format!("CPU per poll{load}: {name}"), &|it| thread(of(it), name)));
        }
        rows.push(less(&format!("CPU per poll{load}: client, all threads"), &|it| of(it).client));
        rows.push(less(&format!("CPU per poll{load}: Redis"), &|it| of(it).redis));
        rows.push(less(&format!("CPU per poll{load}: target"), &|it| thread(of(it), target::NAME)));
    }
    rows.push(row("cores that stood idle", "%", Better::Less, &|it| it.full.idle));
    rows.push(row("cores that stood idle, bare loop", "%", Better::Less, &|it| it.bare.idle));
    rows.push(less("CPU per poll, bare loop: client", &|it| it.bare.client));
    rows.push(less("CPU per poll, bare loop: target", &|it| thread(&it.bare, target::NAME)));
    rows.push(row("polls per CPU-second of the client", "", Better::More, &|it| {
        1e6 / it.full.client
    }));
    rows
}

/// Next to a client that is not ours: how much it does, and for how much CPU of its own. That of our server, which verifies and
/// publishes, is not in it.
fn rows_of(other: Other, turns: &[Turn]) -> [Row; 6] {
    let spent = |turn: &Turn| {
        let found = turn.others.iter().find(|it| it.0 == other);
        found.map_or(Spent { rate: f64::NAN, client: f64::NAN }, |it| it.1)
    };
    let row = |name: String, unit, better, of: &dyn Fn(&Turn, Spent) -> f64| {
        let samples: Vec<f64> = turns.iter().map(|it| of(it, spent(it))).collect();
        Row::new(&name, unit, better, &samples)
    };
    let name = other.name();
    [
        row(format!("polls per second / {name}"), "×", Better::More, &|turn, it| {
            turn.full.rate / it.rate
        }),
        row(
            format!("polls per CPU-second of the client / {name}"),
            "×",
            Better::More,
            &|turn, it| it.client / turn.full.client,
        ),
        row(
            format!("polls per CPU-second of the bare loop / {name}"),
            "×",
            Better::More,
            &|turn, it| it.client / turn.bare.client,
        ),
        row(format!("polls per second, {name}"), "", Better::More, &|_, it| it.rate),
        row(format!("polls per CPU-second of the client, {name}"), "", Better::More, &|_, it| {
            1e6 / it.client
        }),
        row(format!("CPU per poll, {name}: client"), "µs", Better::Less, &|_, it| it.client),
    ]
}
