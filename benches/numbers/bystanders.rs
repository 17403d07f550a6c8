//! Does anybody else on the same Redis notice when a whole fleet renews?
//!
//! Fifty instances, each a store line on a thread of its own, keep a million leases at the default timings, paced
//! as the daemon's `Renewal` paces: a batch of 500 is due ten seconds after it was asked for, and batches
//! are spread over half of that. Another client sends a PING every millisecond. The same before the
//! renewals and after, when the server rests, says what the machine itself adds.

use std::io;
use std::ops::Range;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::store::BATCH_MAX;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::thread::{Stop, Thread, stop};
use redis::Connection;

use crate::say;
use testkit::bench::holder::{Holder, endpoints};
use testkit::bench::meter::Meter;
use testkit::bench::table::{Better, Row};
use testkit::private_redis::PrivateRedis;

const INSTANCES: u32 = 50;
const TTL: Duration = Duration::from_secs(30);
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
const PING_EVERY: Duration = Duration::from_millis(1);
/// Each turn is a whole interval: every lease is renewed once.
const TURNS: u32 = 5;

/// The rows, and what has to be known to read them.
pub(crate) fn measure(leases: u32) -> io::Result<(String, Vec<Row>)> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let mut pinger = Pinger { line: redis.connect(&never)?, never: never.clone() };
    let mut meter = Meter(redis.connect(&never)?);
    let version = meter.version()?;
    let mut rest = pinger.listen(RENEW_INTERVAL)?;
    let store = RedisStore::new(&redis.url(), &redis.url(), Keys::new("poll", "session:"));
    let store = store.map_err(io::Error::other)?;
    let (source, until) = stop();
    let (failed, failures) = unbounded();
    let fleet = start(&store, leases, &until, &failed)?;
    let before = (meter.server_seconds()?, meter.server_waited()?);
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        turns.push(pinger.listen(RENEW_INTERVAL)?);
    }
    let share = |seconds: f64| seconds / (RENEW_INTERVAL * TURNS).as_secs_f64() * 100.0;
    let busy = share(meter.server_seconds()? - before.0);
    let waited = share(meter.server_waited()? - before.1);
    drop(source);
    drop(fleet);
    nobody_failed(&failures)?;
    rest.extend(pinger.listen(RENEW_INTERVAL)?);
    let note = format!(
        "{leases} leases of {INSTANCES} instances, a PING each ms, {TURNS} × 10 s, Redis {version}"
    );
    let mut rows = rows(&mut turns, rest);
    for (name, share) in [("server CPU", busy), ("server could run, and had no core", waited)] {
        rows.push(Row::new(name, "%", Better::Less, &[share]));
    }
    Ok((note, rows))
}

/// One instance after another takes its part and begins to renew it, so that they are out of step as any
/// fleet's are.
fn start(
    store: &RedisStore,
    leases: u32,
    until: &Stop,
    failed: &Sender<io::Error>,
) -> io::Result<Vec<Thread>> {
    let began = BootClock.now();
    let each = leases / INSTANCES;
    let mut fleet = Vec::new();
    for nth in 0..INSTANCES {
        let mut holder =
            Holder::new(store.connection(), TTL, endpoints(nth * each..(nth + 1) * each)?)?;
        let mut batches = Vec::new();
        for from in (0..each as usize).step_by(BATCH_MAX) {
            let these = from..(from + BATCH_MAX).min(each as usize);
            let asked_at = BootClock.now();
            let granted = holder.acquire(these.clone())?;
            holder.granted(these.clone(), &granted);
            batches.push(Batch { these, due: asked_at + RENEW_INTERVAL, fence_checked: false });
        }
        fleet.push(renewing(holder, batches, until.clone(), failed.clone())?);
        if nth % 10 == 9 {
            let took = BootClock.now().since(began).as_secs_f64();
            say(&format!("bystanders: {} leases taken after {took:.0} s", (nth + 1) * each));
        }
    }
    Ok(fleet)
}

/// What one renewal is about.
struct Batch {
    these: Range<usize>,
    due: Moment,
    /// Renewed before in this epoch.
    fence_checked: bool,
}

fn renewing(
    holder: Holder,
    mut batches: Vec<Batch>,
    until: Stop,
    failed: Sender<io::Error>,
) -> io::Result<Thread> {
    let pace = RENEW_INTERVAL / 2 / u32::try_from(batches.len().max(1)).unwrap_or(u32::MAX);
    Thread::spawn("renewing", move || {
        loop {
            for batch in &mut batches {
                let now = BootClock.now();
                let late = now.since(batch.due) > pace;
                let pause = if late { Duration::ZERO } else { batch.due.since(now).max(pace) };
                if until.within(pause) {
                    return;
                }
                batch.due = BootClock.now() + RENEW_INTERVAL;
                if let Err(error) = holder.renew(batch.these.clone(), batch.fence_checked) {
                    let _ = failed.send(error);
                    return;
                }
                batch.fence_checked = true;
            }
        }
    })
}

/// A fleet that has lost leases is not the load that was meant.
fn nobody_failed(failures: &Receiver<io::Error>) -> io::Result<()> {
    failures.try_recv().map_or(Ok(()), Err)
}

struct Pinger {
    line: Connection,
    never: Stop,
}

impl Pinger {
    /// How long each PING took, in milliseconds. Those that were due while another was waited for would have
    /// been answered with it, and count.
    fn listen(&mut self, window: Duration) -> io::Result<Vec<f64>> {
        let mut times = Vec::new();
        let end = BootClock.now() + window;
        while BootClock.now() < end {
            let _ = self.never.within(PING_EVERY);
            let mut sent = BootClock.now();
            redis::cmd("PING").exec(&mut self.line).map_err(io::Error::other)?;
            let answered = BootClock.now();
            while sent <= answered {
                times.push(answered.since(sent).as_secs_f64() * 1_000.0);
                sent = sent + PING_EVERY;
            }
        }
        Ok(times)
    }
}

fn rows(turns: &mut [Vec<f64>], mut rest: Vec<f64>) -> Vec<Row> {
    let mut of_turns = |part| turns.iter_mut().map(|it| quantile(it, part)).collect::<Vec<_>>();
    let row = |name: &str, samples: &[f64]| Row::new(name, "ms", Better::Less, samples);
    let worst = of_turns(1.0).into_iter().fold(0.0, f64::max);
    let mut rows = vec![
        row("PING p50", &of_turns(0.5)),
        row("PING p99", &of_turns(0.99)).goal(10.0),
        row("PING max, of all turns", &[worst]).goal(50.0),
    ];
    for (name, part) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let name = format!("PING {name}, nobody renews");
        rows.push(row(&name, &[quantile(&mut rest, part)]));
    }
    rows
}

fn quantile(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    let last = f64::from(u32::try_from(times.len().max(1) - 1).unwrap_or(u32::MAX));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of an index")]
    let at = (last * part).round() as usize;
    times.get(at).copied().unwrap_or(f64::NAN)
}
