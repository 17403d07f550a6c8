//! What does a poll cost an instance of this revision, and what did it cost one of another?
//!
//! The release binary of both as processes, one after the other in each turn: the same Redis, the same endpoints, the same
//! target. Asked for by name only: `make bench ONLY=before BINARY=path/to/leasehold`.

use std::io;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::{Stop, stop};

use crate::process::{BINARY, Daemon};
use crate::target::Target;
use testkit::bench::holder::endpoints;
use testkit::bench::meter::Meter;
use testkit::bench::table::{Better, Row};
use testkit::private_redis::PrivateRedis;

const WORKERS: usize = 64;
const ENDPOINTS: u32 = 8_000;
const TURNS: usize = 7;
const WINDOW: Duration = Duration::from_secs(5);
/// From when all is owned until caches and connections are warm.
const SETTLED: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
/// 4,000 polls a second, which both can do, and more than either can do.
const INTERVALS: [(&str, &str); 2] =
    [("4,000 a second", "--interval=2s"), ("full load", "--interval=200ms")];

/// What one binary did in a window.
#[derive(Clone, Copy)]
struct Spent {
    rate: f64,
    /// Microseconds of CPU for each poll.
    client: f64,
    redis: f64,
}

/// The rows, and what has to be known to read them.
pub(crate) fn measure() -> io::Result<(String, Vec<Row>)> {
    let before = std::env::var("BINARY").unwrap_or_default();
    if before.is_empty() {
        let text = "name the other binary: make bench ONLY=before BINARY=path/to/leasehold";
        return Err(io::Error::other(text));
    }
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-before", &never)?;
    let target = Target::start(2 * WORKERS)?;
    let mut scene = Scene { meter: Meter(redis.connect(&never)?), redis, target, never };
    let mut turns = Vec::new();
    for turn in 0..TURNS {
        let mut of_turn = Vec::new();
        for (_, interval) in INTERVALS {
            // Neither is always the first.
            let ours_first = turn % 2 == 0;
            let binaries = if ours_first { [BINARY, &before] } else { [&before, BINARY] };
            let [one, other] = binaries.map(|it| scene.measure(it, interval));
            let (one, other) = (one?, other?);
            of_turn.push(if ours_first { (one, other) } else { (other, one) });
        }
        turns.push(of_turn);
    }
    let mut rows = Vec::new();
    for (place, (load, _)) in INTERVALS.iter().enumerate() {
        rows.extend(rows_of(load, &turns.iter().map(|it| it[place]).collect::<Vec<_>>()));
    }
    Ok((format!("{ENDPOINTS} endpoints, {WORKERS} workers, {TURNS} turns, release binaries"), rows))
}

struct Scene {
    meter: Meter,
    redis: PrivateRedis,
    target: Target,
    never: Stop,
}

impl Scene {
    fn measure(&mut self, binary: &str, interval: &str) -> io::Result<Spent> {
        redis::cmd("FLUSHALL").exec(&mut self.meter.0).map_err(io::Error::other)?;
        self.put_sessions()?;
        let workers = format!("--workers={WORKERS}");
        let daemon = Daemon::start_binary(binary, &self.redis.url(), &[interval, &workers])?;
        self.wait_until_all_is_polled()?;
        let _ = self.never.within(SETTLED);
        let before = (daemon.cpu()?, self.meter.server_seconds()?, self.target.answers());
        let began = BootClock.now();
        let _ = self.never.within(WINDOW);
        let after = (daemon.cpu()?, self.meter.server_seconds()?, self.target.answers());
        let took = BootClock.now().since(began).as_secs_f64();
        let polls = u32::try_from(after.2 - before.2).map_or(f64::NAN, f64::from).max(1.0);
        Ok(Spent {
            rate: polls / took,
            client: (after.0 - before.0) * 1e6 / polls,
            redis: (after.1 - before.1) * 1e6 / polls,
        })
    }

    fn put_sessions(&mut self) -> io::Result<()> {
        let mut pipe = redis::pipe();
        for (n, id) in (0..).zip(endpoints(0..ENDPOINTS)?) {
            let address = self.target.address(n);
            let session = format!(r#"{{"id":"{id}","address":"http://{address}/"}}"#);
            pipe.cmd("SET").arg(format!("session:{id}")).arg(session).ignore();
        }
        pipe.exec(&mut self.meter.0).map_err(io::Error::other)
    }

    fn wait_until_all_is_polled(&self) -> io::Result<()> {
        let first = self.target.answers();
        let deadline = BootClock.now() + PATIENCE;
        while self.target.answers() < first + u64::from(ENDPOINTS) {
            if BootClock.now() > deadline {
                return Err(io::Error::other("not every endpoint is polled"));
            }
            let _ = self.never.within(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Of turns: this revision and the other.
fn rows_of(load: &str, turns: &[(Spent, Spent)]) -> [Row; 7] {
    let row = |name: String, unit, better, of: &dyn Fn(&(Spent, Spent)) -> f64| {
        Row::new(&name, unit, better, &turns.iter().map(of).collect::<Vec<_>>())
    };
    let less = |name: &str, unit, of: &dyn Fn(&(Spent, Spent)) -> f64| {
        row(format!("{load}: {name}"), unit, Better::Less, of)
    };
    [
        less("CPU per poll, now / before", "×", &|it| it.0.client / it.1.client).goal(0.8),
        less("CPU per poll, now", "µs", &|it| it.0.client),
        less("CPU per poll, before", "µs", &|it| it.1.client),
        less("CPU per poll of Redis, now", "µs", &|it| it.0.redis),
        less("CPU per poll of Redis, before", "µs", &|it| it.1.redis),
        row(format!("{load}: polls per second, now"), "", Better::More, &|it| it.0.rate),
        row(format!("{load}: polls per second, before"), "", Better::More, &|it| it.1.rate),
    ]
}
