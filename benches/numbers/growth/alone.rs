//! What an instance computes by itself: plans, what it holds, what is due. In CPU of the thread that does it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock};
use leasehold::fleet::placement::plan;
use leasehold::lease::table::{LeaseTimings, OwnershipTable};
use leasehold::model::{EndpointId, Epoch, InstanceId, LeaseDuration, Tenure, Thresholds, Weight};
use leasehold::polling::intervals::PollIntervals;
use leasehold::polling::schedule::PollSchedule;
use leasehold::store::{Acquire, BATCH_MAX, Grant, HeartbeatReply, Renew, Reply, Stamp};
use leasehold::{FenceToken, Session};

use crate::growth::{Curves, Per};
use crate::placement::{instances as fleet_of, settled, view};
use testkit::bench::holder;
use testkit::bench::meter::thread_cpu;

const TURNS: usize = 5;
/// A plan is made for this many instances.
const INSTANCES: usize = 10;
/// And, when it is instances that grow, for this many endpoints.
const ENDPOINTS: u32 = 100_000;
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// So many batches, or polls, are enough to know what one costs.
const BATCHES: u32 = 40;
const POLLS: u32 = 20_000;

/// What `work` costs this thread for each of `n`, in microseconds.
fn each<T>(n: u32, work: impl FnOnce() -> T) -> io::Result<f64> {
    let before = thread_cpu()?;
    std::hint::black_box(work());
    Ok((thread_cpu()? - before).as_secs_f64() * 1e6 / f64::from(n))
}

pub(crate) fn endpoints(n: u32, curves: &mut Curves) -> io::Result<()> {
    let endpoints = holder::endpoints(0..n)?;
    let mut note = |name: &str, cost| curves.note(Per::Endpoint, name, "µs", n, cost);
    let instances = fleet_of(INSTANCES);
    let (empty, me) = (view(&instances, &endpoints), &instances[0]);
    let mut kept = settled(empty.clone());
    for endpoint in &endpoints[..TURNS] {
        note("view: taking in all", each(n, || settled_by_hand(&instances, &endpoints))?);
        note("plan from nothing", each(n, || plan(&empty, me))?);
        kept.set_owner(endpoint, None);
        note("plan after one change", each(n, || plan(&kept, me))?);
    }
    drop((empty, kept));
    let mut held = Held::new(&endpoints)?;
    for _ in 0..TURNS {
        note("table: a renewal", held.renewals()?);
        note("table: a look at deadlines", each(n, || held.look_at_deadlines())?);
    }
    drop(held);
    let mut schedule = Scheduled::new(&endpoints)?;
    for _ in 0..TURNS {
        note("schedule: a poll", schedule.polls()?);
    }
    Ok(())
}

pub(crate) fn instances(n: u32, curves: &mut Curves) -> io::Result<()> {
    let endpoints = holder::endpoints(0..ENDPOINTS)?;
    let instances = fleet_of(n as usize);
    let (empty, me) = (view(&instances, &endpoints), &instances[0]);
    let mut kept = settled(empty.clone());
    for endpoint in &endpoints[..TURNS] {
        let mut note = |name: &str, cost| curves.note(Per::Instance, name, "ms", n, cost);
        note("plan of 100 k from nothing", each(n, || plan(&empty, me))? / 1e3);
        kept.set_owner(endpoint, None);
        note("plan of 100 k after one change", each(n, || plan(&kept, me))? / 1e3);
        let mut cursor = 0;
        let watched = each(n, || kept.next_in_line_for(me, &mut cursor, endpoints.len()))?;
        note("a round over 100 k: what is mine to watch", watched / 1e3);
    }
    Ok(())
}

/// As a resync does it: each name, then each owner.
fn settled_by_hand(instances: &[InstanceId], endpoints: &[EndpointId]) -> usize {
    let mut seen = view(instances, endpoints);
    for (endpoint, owner) in endpoints.iter().zip(instances.iter().cycle()) {
        seen.set_owner(endpoint, Some(owner));
    }
    seen.len()
}

/// A table that is as it is after hours: batches are due one after the other, all over the interval.
struct Held {
    table: OwnershipTable,
    clock: Arc<ManualClock>,
    pace: Duration,
}

impl Held {
    fn new(endpoints: &[EndpointId]) -> io::Result<Self> {
        let timings = LeaseTimings {
            lease: LeaseDuration::new(Duration::from_secs(30)),
            heartbeat: LeaseDuration::new(Duration::from_secs(86_400)),
            renew_interval: RENEW_INTERVAL,
            store_timeout: Duration::from_secs(2),
        };
        let clock = Arc::new(ManualClock::at(1_000_000_000_000));
        let me = InstanceId::generate_now("bench");
        let table = OwnershipTable::new(me, timings, Arc::clone(&clock) as _, true);
        let n_batches = u32::try_from(endpoints.len().div_ceil(BATCH_MAX)).unwrap_or(u32::MAX);
        let held = Self { table, clock, pace: RENEW_INTERVAL / n_batches };
        let beat = HeartbeatReply { unbroken: true, weight: Weight(1) };
        held.table.heartbeat_answered(&held.table.request(), &held.reply(beat));
        for batch in endpoints.chunks(BATCH_MAX) {
            held.clock.pass(held.pace);
            let grant =
                |fence| Acquire::Granted { fence: FenceToken::new(fence), grant: Grant::Free };
            let grants = (1..).take(batch.len()).map(grant).collect();
            held.table.granted(&held.table.request(), batch, &held.reply(grants));
        }
        holder::all("in the table", endpoints.len(), held.table.len())?;
        Ok(held)
    }

    fn reply<T>(&self, answer: T) -> Reply<T> {
        let (epoch, server_us) = (Epoch(1), self.clock.now().as_nanos() / 1_000);
        let stamp = Stamp {
            epoch,
            hold_off: Duration::ZERO,
            server_us,
            data_epoch: epoch,
            revoked_until_ms: None,
        };
        Reply { stamp, answer: Some(answer) }
    }

    /// What the thread `renewal` does besides asking, for each lease.
    fn renewals(&mut self) -> io::Result<f64> {
        let mut renewed = 0;
        let cost = each(1, || {
            for _ in 0..BATCHES {
                self.clock.pass(self.pace);
                while let Some((request, items)) = self.table.renewals() {
                    let answers = vec![Renew::Extended; items.len()];
                    let applied = self.table.renewed(&request, &items, &self.reply(answers));
                    renewed += applied.extended.len();
                }
                std::hint::black_box((self.table.next_renewal(), self.table.is_doubtful()));
            }
        })?;
        let renewed = u32::try_from(renewed).unwrap_or(u32::MAX);
        holder::all("renewed in a step", BATCHES as usize, BATCHES.min(renewed) as usize)?;
        Ok(cost / f64::from(renewed))
    }

    /// What the thread `expiry` does, four times a second.
    fn look_at_deadlines(&self) -> usize {
        std::hint::black_box(self.table.next_deadline());
        self.table.expire().len()
    }
}

/// Endpoints that are due one after the other, all over the interval.
struct Scheduled {
    schedule: PollSchedule,
    clock: ManualClock,
    pace: Duration,
}

impl Scheduled {
    fn new(endpoints: &[EndpointId]) -> io::Result<Self> {
        let pace = PollIntervals {
            interval: POLL_INTERVAL,
            timeout: Duration::from_secs(10),
            light_after: 5,
            light_interval: POLL_INTERVAL,
            thresholds: Thresholds::default(),
        };
        let mut schedule = PollSchedule::new(pace, 64);
        let clock = ManualClock::at(1_000_000_000_000);
        let n = u32::try_from(endpoints.len()).map_err(io::Error::other)?;
        for id in endpoints {
            let session = format!(r#"{{"id":"{id}","address":"127.0.0.1:9"}}"#);
            let session = Session::parse(id.as_str(), session.as_bytes());
            let session = Arc::new(session.map_err(io::Error::other)?);
            let due = schedule.first_due(&session, None, Duration::ZERO, clock.now());
            schedule.gained(Tenure::new(id.clone(), FenceToken::new(1)), session, due);
        }
        Ok(Self { schedule, clock, pace: POLL_INTERVAL / n })
    }

    /// What the thread `dispatch` does with the schedule, for each poll.
    fn polls(&mut self) -> io::Result<f64> {
        let mut polls = 0;
        let cost = each(1, || {
            for _ in 0..POLLS / 10 {
                self.clock.pass(10 * self.pace);
                let now = self.clock.now();
                for due in self.schedule.take_due(now, 100) {
                    polls += 1;
                    self.schedule.done(&due, true, Duration::ZERO, now);
                }
                std::hint::black_box(self.schedule.next_due());
            }
        })?;
        if polls < POLLS / 2 {
            return Err(io::Error::other(format!("only {polls} polls were due")));
        }
        Ok(cost / f64::from(polls))
    }
}
