//! What does a lock cost in other hands, next to a lease in ours? `make peers`.
//!
//! Everybody takes turns on one private Redis: a thousand locks are taken and given back one after the other, and a
//! thousand that are held are extended. A client that can have several under way does the same 500 at once. Ours
//! go through the library; a lease has a fence, an owner that is known to live and an epoch, a lock none of them.

mod crates;
mod ours;
mod scripts;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::stop;

use testkit::bench::table::{self, Better, Part, Row};
use testkit::private_redis::PrivateRedis;

const TURNS: usize = 9;
const LOCKS: usize = 1_000;
const AT_ONCE: usize = 500;
const TTL: Duration = Duration::from_secs(600);

/// One that can lock. `None` is what it cannot do.
trait Peer {
    fn name(&self) -> &'static str;

    /// Takes and gives back all locks, so many at once.
    fn pairs(&mut self, at_once: usize) -> io::Result<Option<Duration>>;

    /// Extends as many that are held, so many at once.
    fn renewals(&mut self, at_once: usize) -> io::Result<Option<Duration>>;
}

fn main() -> ExitCode {
    let (load, began) = (table::load(), BootClock.now());
    let told = measure().and_then(|(note, rows)| {
        let took_s = BootClock.now().since(began).as_secs_f64();
        table::tell(&[Part { name: "peers", note, rows, took_s, load }])
    });
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> io::Result<(String, Vec<Row>)> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-peers", &never)?;
    let url = redis.url();
    let mut peers: Vec<Box<dyn Peer>> = vec![
        Box::new(ours::Leasehold::new(&url)?),
        Box::new(crates::Redislock::new(&url)),
        Box::new(crates::Redlock::new(&url)),
        Box::new(crates::Rslock::new(&url)?),
    ];
    for (name, command) in scripts::COMMANDS {
        match scripts::Script::start(name, command, &url) {
            Ok(peer) => peers.push(Box::new(peer)),
            Err(error) => {
                let _ = writeln!(io::stderr(), "{name} is left out: {error}");
            }
        }
    }
    let mut rows = Vec::new();
    for (what, at_once, measure) in SCENES {
        // The first turn connects and loads scripts, and is not counted.
        let mut turns = Vec::new();
        for turn in 0..=TURNS {
            let mut times = Vec::new();
            for peer in &mut peers {
                let time = measure(peer.as_mut(), at_once)?;
                times.push(time.map(|it| it.as_secs_f64() * 1e6 / LOCKS as f64));
            }
            if turn > 0 {
                turns.push(times);
            }
        }
        let names: Vec<&str> = peers.iter().map(|it| it.name()).collect();
        rows.extend(compared(what, &names, &turns));
    }
    Ok((format!("{LOCKS} locks each, {TURNS} turns; × is throughput"), rows))
}

type Measure = fn(&mut dyn Peer, usize) -> io::Result<Option<Duration>>;

const SCENES: [(&str, usize, Measure); 4] = [
    ("take and give back", 1, |peer, n| peer.pairs(n)),
    ("extend", 1, |peer, n| peer.renewals(n)),
    ("take and give back, 500 at once", AT_ONCE, |peer, n| peer.pairs(n)),
    ("extend, 500 at once", AT_ONCE, |peer, n| peer.renewals(n)),
];

/// How long each takes, and how often ours fits in that: microseconds in the order of `names`, ours first.
fn compared(what: &str, names: &[&str], turns: &[Vec<Option<f64>>]) -> Vec<Row> {
    let samples = |at: usize| turns.iter().filter_map(|it| it[at]).collect::<Vec<_>>();
    let ours = samples(0);
    let mut rows = vec![Row::new(&format!("{what}: ours"), "µs", Better::Less, &ours)];
    for (at, name) in names.iter().enumerate().skip(1) {
        let theirs = samples(at);
        if theirs.is_empty() {
            continue; // it cannot
        }
        let ratios: Vec<f64> = theirs.iter().zip(&ours).map(|(its, ours)| its / ours).collect();
        rows.push(Row::new(&format!("{what}: {name}"), "µs", Better::Less, &theirs));
        rows.push(Row::new(&format!("{what}: ours / {name}"), "×", Better::More, &ratios));
    }
    rows
}

/// The names everybody uses, each behind a prefix of its own.
fn keys(prefix: &str) -> Vec<String> {
    (0..LOCKS).map(|n| format!("{prefix}:2f1c8a4e-0000-4000-8000-{n:012}")).collect()
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<Option<Duration>> {
    let began = BootClock.now();
    work()?;
    Ok(Some(BootClock.now().since(began)))
}
