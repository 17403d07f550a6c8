//! How often did each event happen in this instance, and how long did it take? Plain numbers for monitoring.
//!
//! Most are counted where every event passes (`Reporter::say`). A thread that counts never waits: atomics and
//! nothing else. What can be asked for at any time (what is held, the hold-off) is not kept here, but
//! read when the numbers are written. No label has a value for each endpoint or instance.

mod counters;
pub mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::event::Event;
use crate::metrics::counters::{FleetCounters, LeaseCounters, PollCounters, StoreCounters};
use crate::metrics::text::{Kind, Text};
use crate::model::PollingInfo;

/// The longest list of values that a label has.
const VALUES_MAX: usize = 5;

/// Something that is counted, by the values of a label or without one.
#[derive(Debug)]
pub struct Counter {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: &'static [&'static str],
    counts: [AtomicU64; VALUES_MAX],
}

impl Counter {
    const fn plain(name: &'static str, help: &'static str) -> Self {
        Self::by(name, help, "", &[""])
    }

    const fn by(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        assert!(values.len() <= VALUES_MAX, "make VALUES_MAX larger");
        Self { name, help, label, values, counts: [const { AtomicU64::new(0) }; VALUES_MAX] }
    }

    /// Adds `n`.
    fn add(&self, n: usize) {
        self.counts[0].fetch_add(n as u64, Ordering::Relaxed);
    }

    /// One more under this value of the label. One that is not in the list is not counted.
    fn one(&self, value: &str) {
        if let Some(at) = self.values.iter().position(|it| *it == value) {
            self.counts[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn total(&self) -> u64 {
        self.counts.iter().map(|it| it.load(Ordering::Relaxed)).sum()
    }

    fn write(&self, text: &mut Text) {
        let mut family = text.family(self.name, Kind::Counter, self.help);
        for (value, count) in self.values.iter().zip(&self.counts) {
            let label = [(self.label, *value)];
            let labels = if self.label.is_empty() { &[][..] } else { &label[..] };
            family.sample("", labels, float(count.load(Ordering::Relaxed)));
        }
    }
}

/// How long something took, in buckets.
#[derive(Debug)]
pub struct Histogram {
    name: &'static str,
    help: &'static str,
    counts: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
}

/// Upper bounds of the buckets of every histogram: from a fast Redis to a slow endpoint.
const BOUNDS_MS: [u64; 14] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000];

impl Histogram {
    const fn new(name: &'static str, help: &'static str) -> Self {
        let counts = [const { AtomicU64::new(0) }; BOUNDS_MS.len() + 1];
        Self { name, help, counts, sum_us: AtomicU64::new(0) }
    }

    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let at = BOUNDS_MS.iter().position(|it| took <= Duration::from_millis(*it));
        self.counts[at.unwrap_or(BOUNDS_MS.len())].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn write(&self, text: &mut Text) {
        let mut family = text.family(self.name, Kind::Histogram, self.help);
        let bounds = BOUNDS_MS.iter().map(|it| seconds(Duration::from_millis(*it)).to_string());
        let mut total = 0;
        for (bound, count) in bounds.chain(["+Inf".into()]).zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            family.sample("_bucket", &[("le", &bound)], float(total));
        }
        let sum = Duration::from_micros(self.sum_us.load(Ordering::Relaxed));
        family.sample("_sum", &[], seconds(sum));
        // Read once: a count that is taken meanwhile is in the next document.
        family.sample("_count", &[], float(total));
    }
}

/// Everything that one instance counts.
#[derive(Debug)]
pub struct Metrics {
    leases: LeaseCounters,
    polls: PollCounters,
    store: StoreCounters,
    fleet: FleetCounters,
    /// How long the store took to answer a batch of renewals, or to fail to.
    pub renewal: Histogram,
    /// How much later than it was due the most overdue renewal of a batch was sent.
    pub renewal_lag: Histogram,
    /// How long polls took.
    pub poll: Histogram,
    /// How much later than it was due a poll started.
    pub lag: Histogram,
    pool: Pool,
    endpoints: AtomicUsize,
    instances: AtomicUsize,
    store_away: AtomicBool,
}

/// What the pollers do now, and achieve.
#[derive(Debug, Default)]
struct Pool {
    /// Polls that run.
    running: AtomicUsize,
    /// Threads that are alive.
    threads: Arc<AtomicUsize>,
    /// What dispatch has found out last. Locked to copy it, and for nothing else.
    info: Mutex<Option<PollingInfo>>,
}

/// Polls since the start, and those that run now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollTotals {
    /// Polls that ended, however they did.
    pub ended: u64,
    /// Polls that came a round too late.
    pub skipped: u64,
    /// Polls put off because this process lacked something.
    pub deferred: u64,
    /// Polls that run now.
    pub running: usize,
}

const RENEWAL_LAG: &str = "How much later than it was due a batch of renewals was sent.";
const POLL_LAG: &str = "How much later than it was due a poll started.";

impl Default for Metrics {
    fn default() -> Self {
        let histogram = Histogram::new;
        Self {
            leases: LeaseCounters::default(),
            polls: PollCounters::default(),
            store: StoreCounters::default(),
            fleet: FleetCounters::default(),
            renewal: histogram(
                "leasehold_renewal_duration_seconds",
                "How long the store took to answer a batch of renewals, or to fail to.",
            ),
            renewal_lag: histogram("leasehold_renewal_lag_seconds", RENEWAL_LAG),
            poll: histogram("leasehold_poll_duration_seconds", "How long polls took."),
            lag: histogram("leasehold_poll_lag_seconds", POLL_LAG),
            pool: Pool::default(),
            endpoints: AtomicUsize::default(),
            instances: AtomicUsize::default(),
            store_away: AtomicBool::default(),
        }
    }
}

impl Metrics {
    /// Counts an event.
    pub fn count(&self, event: &Event<'_>) {
        match event {
            Event::LeaseAcquired { reason, .. } => self.leases.acquired.one(reason),
            Event::LeaseRefused { .. } => self.leases.refused.add(1),
            Event::LeaseFailed { .. } => self.leases.failed.add(1),
            Event::LeaseUncertain { .. } => self.leases.doubted.add(1),
            Event::LeaseLost { reason, .. } => self.leases.lost.one(reason),
            Event::LeaseReleased { reason, .. } => self.leases.released.one(reason),
            Event::LeaseReclaimed { .. } => self.leases.reclaimed.add(1),
            Event::PollOk { took, .. } => self.polled("ok", *took),
            Event::PollFailed { took, .. } => self.polled("failed", *took),
            Event::PollAborted { .. } => self.polls.ended.one("aborted"),
            Event::PollSkipped { .. } => self.polls.skipped.add(1),
            Event::PollDeferred { .. } => self.polls.deferred.add(1),
            Event::PollFenced { .. } => self.polls.fenced.add(1),
            Event::PollUnpublished { .. } => self.polls.unpublished.add(1),
            Event::EndpointLight { .. } => self.polls.light.add(1),
            Event::SessionInvalid { .. } => self.fleet.invalid.add(1),
            Event::StoreHoldoff { .. } => self.store.hold_offs.add(1),
            Event::StoreClock { .. } => self.store.clock_steps.add(1),
            Event::StoreUnreachable { .. } => {
                self.store.outages.add(1);
                self.store_away.store(true, Ordering::Relaxed);
            }
            Event::StoreReachable { .. } => self.store_away.store(false, Ordering::Relaxed),
            Event::InstanceJoined { .. } => self.fleet.joined.add(1),
            Event::InstanceLeft { .. } => self.fleet.left.add(1),
            Event::InstanceRevoked { reason, .. } => self.fleet.revoked.one(reason),
            Event::DaemonRevoked { .. } => self.fleet.revoked_itself.add(1),
            _ => (),
        }
    }

    fn polled(&self, result: &str, took: Duration) {
        self.polls.ended.one(result);
        self.poll.observe(took);
    }

    /// This many leases were renewed.
    pub fn renewed(&self, n: usize) {
        self.leases.renewed.add(n);
    }

    /// The store is in another epoch than before.
    pub fn epoch_changed(&self) {
        self.store.epochs.add(1);
    }

    /// What there is to poll, and who is there to do it.
    pub fn see(&self, endpoints: usize, instances: usize) {
        self.endpoints.store(endpoints, Ordering::Relaxed);
        self.instances.store(instances, Ordering::Relaxed);
    }

    /// How many endpoints and instances were last seen.
    pub fn seen(&self) -> (usize, usize) {
        (self.endpoints.load(Ordering::Relaxed), self.instances.load(Ordering::Relaxed))
    }

    /// Runs `poll`, counted as running meanwhile.
    pub fn while_polling<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.pool.running.fetch_add(1, Ordering::Relaxed);
        let came = poll();
        self.pool.running.fetch_sub(1, Ordering::Relaxed);
        came
    }

    /// Polls since the start, and those that run now.
    pub fn poll_totals(&self) -> PollTotals {
        PollTotals {
            ended: self.polls.ended.total(),
            skipped: self.polls.skipped.total(),
            deferred: self.polls.deferred.total(),
            running: self.pool.running.load(Ordering::Relaxed),
        }
    }

    /// How many poller threads are alive. Their pool counts them here.
    pub fn pollers(&self) -> &Arc<AtomicUsize> {
        &self.pool.threads
    }

    /// What the polling achieves, as found now.
    pub fn set_polling_info(&self, info: PollingInfo) {
        *self.pool.info.lock() = Some(info);
    }

    /// What the polling achieves; `None` where nothing polls, or nothing was found out yet.
    pub fn polling_info(&self) -> Option<PollingInfo> {
        self.pool.info.lock().clone()
    }

    /// Writes everything that is kept here.
    pub fn write(&self, text: &mut Text) {
        for it in self.counters() {
            it.write(text);
        }
        [&self.renewal, &self.renewal_lag, &self.poll, &self.lag]
            .iter()
            .for_each(|it| it.write(text));
        let mut gauge = |name: &str, help: &str, value: &AtomicUsize| {
            text.gauge(name, help, float(value.load(Ordering::Relaxed) as u64));
        };
        gauge("leasehold_polls_running", "Polls that run now.", &self.pool.running);
        gauge("leasehold_endpoints", "Endpoints to poll, of the whole fleet.", &self.endpoints);
        gauge("leasehold_instances", "Instances that are alive.", &self.instances);
        let up = !self.store_away.load(Ordering::Relaxed);
        text.gauge("leasehold_store_up", "1 while the store can be looked at.", bit(up));
    }

    fn counters(&self) -> [&Counter; 23] {
        [
            &self.leases.acquired,
            &self.leases.refused,
            &self.leases.failed,
            &self.leases.renewed,
            &self.leases.doubted,
            &self.leases.lost,
            &self.leases.released,
            &self.leases.reclaimed,
            &self.polls.ended,
            &self.polls.skipped,
            &self.polls.deferred,
            &self.polls.fenced,
            &self.polls.unpublished,
            &self.polls.light,
            &self.fleet.invalid,
            &self.store.hold_offs,
            &self.store.epochs,
            &self.store.outages,
            &self.store.clock_steps,
            &self.fleet.joined,
            &self.fleet.left,
            &self.fleet.revoked,
            &self.fleet.revoked_itself,
        ]
    }
}

/// For a gauge that is a yes or a no.
pub fn bit(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

/// Base units, as Prometheus wants them.
pub fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// Exact up to 2^53, as every sample is.
pub fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EndpointId, FenceToken};

    fn written(metrics: &Metrics) -> String {
        let mut text = Text::default();
        metrics.write(&mut text);
        text.into_string()
    }

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_it_fits_and_all_above() {
        let metrics = Metrics::default();
        for ms in [1, 3, 31_000] {
            metrics.lag.observe(Duration::from_millis(ms));
        }
        let text = written(&metrics);
        for line in [
            "leasehold_poll_lag_seconds_bucket{le=\"0.001\"} 1",
            "leasehold_poll_lag_seconds_bucket{le=\"0.002\"} 1",
            "leasehold_poll_lag_seconds_bucket{le=\"0.005\"} 2",
            "leasehold_poll_lag_seconds_bucket{le=\"30\"} 2",
            "leasehold_poll_lag_seconds_bucket{le=\"+Inf\"} 3",
            "leasehold_poll_lag_seconds_sum 31.004",
            "leasehold_poll_lag_seconds_count 3",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}\n{text}");
        }
    }

    /// Every reason that the code can give is in the list of its counter.
    #[test]
    fn no_reason_is_lost_between_an_event_and_its_counter() {
        let metrics = Metrics::default();
        let endpoint = &EndpointId::parse("e").unwrap();
        let fence = FenceToken(1);
        let tenure = &crate::model::Tenure { endpoint: endpoint.clone(), fence };
        for reason in ["preferred", "handover", "takeover", "fallback", "adopted"] {
            metrics.count(&Event::LeaseAcquired { endpoint, fence, reason });
        }
        for reason in ["expired", "taken", "gone"] {
            metrics.count(&Event::LeaseLost { tenure, reason, owner: None });
        }
        for reason in ["rebalance", "drain", "shutdown", "paused", "removed"] {
            metrics.count(&Event::LeaseReleased { tenure, reason, heir: None });
        }
        let text = written(&metrics);
        let counted = text.lines().filter(|it| it.contains("{reason=") && it.ends_with(" 1"));
        assert_eq!(counted.count(), 13, "{text}");
    }
}
