//! What does it cost to keep a lease, next to the cheapest thing that could? `make bench`.
//!
//! The same 20,000 leases on the same private Redis, 500 to a round trip: renewed by the production
//! store (owner, fence and epoch checked in Lua), and given a new TTL by plain pipelined PEXPIREs,
//! which check nothing. Both take turns, so that whatever else the machine does hits both.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::daemon::thread::stop;
use leasehold::model::{EndpointId, Epoch, InstanceId, Tenure, Term, Weight};
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Acquire, Ask, BATCH_MAX, Renew, RenewItem, Store};
use redis::Connection;

#[path = "../examples/demo/server.rs"]
#[expect(dead_code, reason = "the demo needs more of it")]
mod server;

const LEASES: u32 = 20_000;
const REPETITIONS: usize = 9;
const TTL: Duration = Duration::from_secs(3_600);

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "renewal: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> io::Result<()> {
    let (_source, never) = stop();
    let redis = server::PrivateRedis::start("leasehold-bench", &never)?;
    let mut plain = redis.connect(&never)?;
    let holder = Holder::acquire(&redis.url())?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // One more than is counted: the first loads the scripts.
    for round in 0..=REPETITIONS {
        let (renewal, pexpire) = if round % 2 == 0 {
            let renewal = timed(|| holder.renew())?;
            (renewal, timed(|| pexpire(&mut plain, &holder.keys))?)
        } else {
            let pexpire = timed(|| pexpire(&mut plain, &holder.keys))?;
            (timed(|| holder.renew())?, pexpire)
        };
        if round > 0 {
            ours.push(renewal);
            theirs.push(pexpire);
        }
    }
    report(&mut ours, &mut theirs)
}

/// One instance that holds everything.
struct Holder {
    store: RedisStore,
    ask: Ask,
    items: Vec<RenewItem>,
    keys: Vec<String>,
}

impl Holder {
    fn acquire(url: &str) -> io::Result<Self> {
        let store = RedisStore::new(url, url, Keys::new("poll", "session:"));
        let store = store.map_err(io::Error::other)?;
        let mut ask = Ask {
            instance: InstanceId::generate_now("bench"),
            term: Term::new(TTL),
            epoch: Epoch(0),
            suspect: false,
            floor_us: 0,
            not_after_us: 0,
            new_fleet: true,
            timeout: Duration::from_secs(10),
        };
        let beat = store.beat(&ask, TTL, Weight(1)).map_err(io::Error::other)?;
        ask.epoch = beat.stamp.epoch;
        let endpoint = |n| EndpointId::parse(&format!("endpoint-{n:05}")).map_err(io::Error::other);
        let endpoints: Vec<EndpointId> = (0..LEASES).map(endpoint).collect::<io::Result<_>>()?;
        let mut items = Vec::new();
        for batch in endpoints.chunks(BATCH_MAX) {
            let reply = store.acquire(&ask, batch).map_err(io::Error::other)?;
            for (endpoint, answer) in batch.iter().zip(reply.answer.into_iter().flatten()) {
                let Acquire::Granted { fence, .. } = answer else { return Err(refused(&answer)) };
                let tenure = Tenure::new(endpoint.clone(), fence);
                items.push(RenewItem { matched: true, ..RenewItem::new(tenure) });
            }
        }
        let keys = endpoints.iter().map(|it| format!("poll:lease:{it}")).collect();
        Ok(Self { store, ask, items, keys })
    }

    fn renew(&self) -> io::Result<()> {
        let mut renewed = 0;
        for batch in self.items.chunks(BATCH_MAX) {
            let reply = self.store.renew(&self.ask, batch).map_err(io::Error::other)?;
            let answers = reply.answer.unwrap_or_default();
            renewed += answers.iter().filter(|it| **it == Renew::Extended).count();
        }
        all(renewed)
    }
}

fn pexpire(connection: &mut Connection, keys: &[String]) -> io::Result<()> {
    let mut renewed = 0;
    for batch in keys.chunks(BATCH_MAX) {
        let mut pipe = redis::pipe();
        for key in batch {
            pipe.cmd("PEXPIRE").arg(key).arg(TTL.as_secs() * 1_000);
        }
        let answers: Vec<i64> = pipe.query(connection).map_err(io::Error::other)?;
        renewed += answers.iter().filter(|it| **it == 1).count();
    }
    all(renewed)
}

fn all(renewed: usize) -> io::Result<()> {
    if renewed == LEASES as usize {
        return Ok(());
    }
    Err(io::Error::other(format!("only {renewed} of {LEASES} leases were renewed")))
}

fn refused(answer: &Acquire) -> io::Error {
    io::Error::other(format!("a lease was not granted: {answer:?}"))
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let begun = BootClock.now();
    work()?;
    Ok(BootClock.now().since(begun))
}

fn report(ours: &mut [Duration], theirs: &mut [Duration]) -> io::Result<()> {
    let ms = |it: Duration| it.as_secs_f64() * 1_000.0;
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    let mut ratios: Vec<f64> = ours.iter().zip(&*theirs).map(|(a, b)| ratio(*a, *b)).collect();
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
    let mut out = io::stdout().lock();
    writeln!(out, "{LEASES} leases, {BATCH_MAX} to a round trip, {REPETITIONS} turns each\n")?;
    writeln!(out, "{:20}{:>12}{:>22}{:>14}", "", "median", "fastest – slowest", "per lease")?;
    for (name, times) in [("renew", ours), ("pipelined PEXPIRE", theirs)] {
        times.sort();
        let median = ms(times[times.len() / 2]);
        let spread = format!("{:.1} – {:.1} ms", ms(times[0]), ms(times[times.len() - 1]));
        let each = median * 1_000.0 / f64::from(LEASES);
        writeln!(out, "{name:20}{median:>9.1} ms{spread:>22}{each:>11.2} µs")?;
    }
    let median = ratios[ratios.len() / 2];
    writeln!(out, "\nratio {median:.2} (median of the turns; {low:.2} – {high:.2})")
}
