//! What does it cost to confirm a permit right before a poll begins, and does a writer ever hold it up?
//!
//! 32 threads confirm without a pause, each a permit of its own, while another renews their leases and takes and
//! gives back others in the same table, as fast as it can. So many threads share a few cores, so what counts is
//! the CPU of the thread that asks, and whether it went to sleep: who waits for a lock does, sooner or later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::PollPermit;
use leasehold::clock::BootClock;
use leasehold::lease::table::{LeaseTimings, OwnershipTable};
use leasehold::model::{EndpointId, Epoch, FenceToken, InstanceId, LeaseDuration, Tenure, Weight};
use leasehold::store::{Acquire, Grant, HeartbeatReply, Renew, RenewItem, Reply, Stamp};

use testkit::bench::holder::endpoints;
use testkit::bench::meter::thread_cpu;
use testkit::bench::table::{Better, Row};

const THREADS: u32 = 32;
const CHECKS: u32 = 200_000;
const TURNS: usize = 7;
/// Leases that come and go meanwhile.
const OTHERS: u32 = 100;

/// What one thread saw.
struct Checked {
    /// CPU for each check.
    nanos: f64,
    /// How often it went to sleep.
    slept: f64,
}

pub(crate) fn rows() -> io::Result<Vec<Row>> {
    let (mut nanos, mut slept) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let checked = turn()?;
        let n = f64::from(THREADS);
        nanos.push(checked.iter().map(|it| it.nanos).sum::<f64>() / n);
        slept.push(checked.iter().map(|it| it.slept).sum::<f64>());
    }
    let most = slept.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        Row::new("permit check, 32 threads and a writer: CPU", "ns", Better::Less, &nanos)
            .goal(100.0),
        Row::new("permit checks that slept, most of all turns", "", Better::Less, &[most])
            .goal(0.0),
    ])
}

fn turn() -> io::Result<Vec<Checked>> {
    let held = Held::new()?;
    let permit = |it| held.table.permit(it).ok_or_else(|| io::Error::other("there is no permit"));
    let permits: Vec<PollPermit> = held.tenures.iter().map(permit).collect::<io::Result<_>>()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rounds = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                held.disturb(rounds);
                rounds += 1;
            }
            rounds
        });
        let checking: Vec<_> = permits.iter().map(|it| scope.spawn(|| check(it))).collect();
        let checked = checking.into_iter().map(|it| it.join().map_err(|_| panicked())?);
        let checked = checked.collect::<io::Result<Vec<_>>>();
        is_over.store(true, Ordering::Relaxed);
        match writer.join().map_err(|_| panicked())? {
            0 => Err(io::Error::other("nothing was written meanwhile")),
            _ => checked,
        }
    })
}

fn panicked() -> io::Error {
    io::Error::other("a thread has panicked")
}

fn check(permit: &PollPermit) -> io::Result<Checked> {
    let before = (sleeps()?, thread_cpu()?);
    let yes = (0..CHECKS).filter(|_| permit.confirm().is_ok()).count();
    let (cpu, slept) = (thread_cpu()?.saturating_sub(before.1), sleeps()? - before.0);
    if yes != CHECKS as usize {
        return Err(io::Error::other(format!("only {yes} of {CHECKS} checks said yes")));
    }
    Ok(Checked { nanos: cpu.as_secs_f64() * 1e9 / f64::from(CHECKS), slept })
}

/// How often the thread that asks has waited so far, for whatever it may be.
fn sleeps() -> io::Result<f64> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let line = status.lines().find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
    let times = line.and_then(|it| it.trim().parse().ok());
    times.ok_or_else(|| io::Error::other("this kernel does not tell how often a thread waited"))
}

/// A table with a lease for each thread.
struct Held {
    table: OwnershipTable,
    tenures: Vec<Tenure>,
    items: Vec<RenewItem>,
    others: Vec<EndpointId>,
}

impl Held {
    fn new() -> io::Result<Self> {
        let term = LeaseDuration::new(Duration::from_secs(3_600));
        let timings = LeaseTimings {
            lease: term,
            heartbeat: term,
            renew_interval: Duration::from_secs(10),
            store_timeout: Duration::from_secs(2),
        };
        let me = InstanceId::generate_now("bench");
        let table = OwnershipTable::new(me, timings, Arc::new(BootClock), false);
        let beat = reply(HeartbeatReply { unbroken: true, weight: Weight(1) });
        table.heartbeat_answered(&table.request(), &beat);
        let mut held = Self { table, tenures: vec![], items: vec![], others: vec![] };
        held.tenures = held.take(&endpoints(0..THREADS)?, 1);
        held.items = held.tenures.iter().cloned().map(RenewItem::new).collect();
        held.others = endpoints(THREADS..THREADS + OTHERS)?;
        Ok(held)
    }

    fn take(&self, endpoints: &[EndpointId], fence: u64) -> Vec<Tenure> {
        let fence = FenceToken::new(fence);
        let grant = Acquire::Granted { fence, grant: Grant::Free };
        let grants = reply(vec![grant; endpoints.len()]);
        let (gained, _) = self.table.granted(&self.table.request(), endpoints, &grants);
        gained.into_iter().map(|it| it.tenure).collect()
    }

    /// Every kind of writing there is: renewals, grants, releases, and a look at all deadlines.
    fn disturb(&self, round: u64) {
        let renewed = reply(vec![Renew::Extended; self.items.len()]);
        self.table.renewed(&self.table.request(), &self.items, &renewed);
        self.take(&self.others, round + 2);
        for endpoint in &self.others {
            self.table.forget_for_release(endpoint);
        }
        self.table.expire();
    }
}

/// As the store would answer, at a time that its clock never reaches: it is not looked at here.
fn reply<T>(answer: T) -> Reply<T> {
    let (epoch, hold_off) = (Epoch(1), Duration::ZERO);
    Reply {
        stamp: Stamp {
            epoch,
            hold_off,
            server_us: 1_000_000,
            data_epoch: epoch,
            revoked_until_ms: None,
        },
        answer: Some(answer),
    }
}
