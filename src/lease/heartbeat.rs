//! Is this instance alive? Writes its heartbeat `poll:node:<instance>` to the store; without it every lease ends (R13).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::event::Event;
use crate::lease::report::{LeaseEventSink, Reporter};
use crate::lease::table::OwnershipTable;
use crate::lease::trouble::Trouble;
use crate::model::{InstanceInfo, PROTOCOL, Weight};
use crate::store::{Beat, Store, StoreError};

/// When this instance started.
struct Started {
    at: Moment,
    /// The same by the server's clock, as it was known with the first heartbeat.
    at_ms: OnceLock<u64>,
}

impl Started {
    fn at_ms(&self, table: &OwnershipTable) -> Option<u64> {
        let ago = || u64::try_from(table.now().since(self.at).as_millis()).unwrap_or(u64::MAX);
        let at_ms = self.at_ms.get().copied();
        at_ms.or_else(|| {
            let at_ms = table.server_ms()?.saturating_sub(ago());
            Some(*self.at_ms.get_or_init(|| at_ms))
        })
    }
}

/// R16: a revoked instance comes back this much later than the server allows, by an estimate of its clock.
const REJOIN_SLACK: Duration = Duration::from_millis(5);

/// R16: how many signs of life fit into `--suspect-after`. So an instance that stands still for four fifths of that time is not
/// suspected.
const BEATS: u32 = 8;

/// The signs of life between two heartbeats (R16). They cost the store one small write, and no other instance is told of them.
struct Beats {
    interval: Duration,
    count: AtomicU64,
    /// When the next heartbeat is due, and the next sign of life.
    due: Mutex<(Moment, Moment)>,
    /// The last revocation that was reported.
    reported_ms: AtomicU64,
}

impl Beats {
    /// The number of the next sign of life. A heartbeat is one, too.
    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The thread `heartbeat`: wakes every `--heartbeat-interval`, four times in `--suspect-after`, and at once on a request
/// (`LeaseParts::heartbeat_now`).
pub struct Heartbeat {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    weight: AtomicU32,
    /// The weight of the last confirmed heartbeat.
    confirmed: Mutex<Option<Weight>>,
    started: Started,
    interval: Duration,
    beats: Option<Beats>,
    trouble: Mutex<Trouble>,
}

impl Heartbeat {
    /// Sends a heartbeat with `weight` every `interval`.
    pub fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        weight: Weight,
        interval: Duration,
    ) -> Self {
        let reporter = Reporter::new(&table);
        let weight = AtomicU32::new(weight.0);
        let (confirmed, trouble) = Default::default();
        let started = Started { at: table.now(), at_ms: OnceLock::new() };
        let beats = None;
        Self { store, table, reporter, weight, confirmed, started, interval, beats, trouble }
    }

    /// R16: shows in between that the instance is alive, so that others do not suspect it for `suspect_after`.
    pub fn suspected_after(self, suspect_after: Duration) -> Self {
        let (count, due) = (AtomicU64::new(0), Mutex::new((Moment::MIN, Moment::MIN)));
        let (interval, reported_ms) = (suspect_after / BEATS, AtomicU64::new(0));
        Self { beats: Some(Beats { interval, count, due, reported_ms }), ..self }
    }

    /// Changes the weight from the next heartbeat on.
    pub fn set_weight(&self, weight: Weight) {
        self.weight.store(weight.0, Ordering::Relaxed);
    }

    /// The weight that the store has confirmed last: the weight that other instances read.
    pub fn confirmed_weight(&self) -> Option<Weight> {
        *self.confirmed.lock()
    }

    /// Reports through `reporter` instead of one without a history.
    pub fn with_reporter(self, reporter: &Reporter) -> Self {
        Self { reporter: reporter.clone(), ..self }
    }

    /// Sends a heartbeat, or gives a sign of life. Returns how long to wait for the next.
    pub fn step(&self) -> Duration {
        let Some(beats) = &self.beats else { return self.heartbeat() };
        let (heartbeat_at, beat_at) = *beats.due.lock();
        let now = self.table.now();
        // Who is called before either is due was asked for a heartbeat.
        let wait = match now >= beat_at && now < heartbeat_at && !self.table.is_closed() {
            true => self.beat(beats).map(|left| left.min(heartbeat_at.since(self.table.now()))),
            false => None,
        };
        let (wait, heartbeat_at) = match wait {
            Some(left) => (left, heartbeat_at),
            None => {
                let wait = self.heartbeat();
                self.report_revocation(beats);
                (wait.min(beats.interval), self.table.now() + wait)
            }
        };
        *beats.due.lock() = (heartbeat_at, self.table.now() + wait);
        wait
    }

    /// Gives a sign of life; how long to wait for the next. `None` if the instance was revoked: a heartbeat comes first.
    fn beat(&self, beats: &Beats) -> Option<Duration> {
        let count = beats.next();
        let timeout = self.table.timings().store_timeout.min(beats.interval);
        if let Ok(Beat::Revoked(until_ms)) = self.store.beat(self.table.instance(), count, timeout)
        {
            self.table.revoked(until_ms);
            self.reporter.lost(&self.table.expire());
            return None;
        }
        // Without an answer the next one follows. An instance that the store does not know waits for its heartbeat.
        Some(beats.interval)
    }

    fn report_revocation(&self, beats: &Beats) {
        let obeyed_ms = self.table.obeyed_ms();
        if beats.reported_ms.swap(obeyed_ms, Ordering::Relaxed) != obeyed_ms {
            self.reporter.report(&Event::DaemonRevoked { left: self.revoked_for(obeyed_ms) });
        }
    }

    /// How long after `until_ms` by the server's clock a heartbeat begins anew.
    fn revoked_for(&self, until_ms: u64) -> Duration {
        let now_ms = self.table.server_ms().unwrap_or(until_ms);
        Duration::from_millis(until_ms.saturating_sub(now_ms))
    }

    /// Sends one heartbeat. Returns how long to wait for the next.
    fn heartbeat(&self) -> Duration {
        if self.table.is_closed() {
            return self.interval; // R12: the heartbeat was withdrawn
        }
        let sent = self.send();
        if self.table.is_closed() {
            let _ = self.withdraw(); // the store may have executed this heartbeat after the first withdrawal
        }
        self.tell(sent.as_ref().err());
        sent.unwrap_or_else(|_| self.table.timings().retry_interval())
    }

    fn tell(&self, error: Option<&StoreError>) {
        let change = self.trouble.lock().update(error.map(ToString::to_string));
        self.reporter.report_change(
            change,
            |error| Event::HeartbeatFailed { error },
            Event::HeartbeatResumed,
        );
    }

    /// Sends one heartbeat. Returns how long to wait for the next, or why the store did not confirm it.
    pub fn send(&self) -> Result<Duration, StoreError> {
        self.table.ensure_time_known(|timeout| self.store.time(timeout))?;
        let request = self.table.request();
        let ttl = self.table.timings().heartbeat.ttl;
        let weight = Weight(self.weight.load(Ordering::Relaxed));
        let weight = if self.table.is_publishing() { weight } else { Weight(0) };
        let info = self.info();
        let reply = self.store.heartbeat(&request.context, ttl, weight, Some(&info))?;
        let applied = self.table.heartbeat_answered(&request, &reply);
        self.reporter.applied(&applied);
        if !applied.ask_again {
            *self.confirmed.lock() = Some(weight);
            // A shutdown waits for weight 0, and for a store that answers again.
            self.table.note_shutdown_progress();
        }
        if let Some(until_ms) = reply.stamp.revoked_until_ms {
            // R16: the next heartbeat names the revocation, and begins anew.
            return Ok(self.revoked_for(until_ms) + REJOIN_SLACK);
        }
        // The store does not count a heartbeat that arrives too late.
        Ok(if applied.ask_again { self.table.timings().retry_interval() } else { self.interval })
    }

    /// What this instance tells about itself. Copies what others have counted, and waits for nobody.
    fn info(&self) -> InstanceInfo {
        InstanceInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            protocol: PROTOCOL,
            started_at_ms: self.started.at_ms(&self.table),
            beats: self.beats.as_ref().map(Beats::next),
            polling: self.table.metrics().polling_info(),
        }
    }

    /// Deletes the heartbeat: other instances plan without this one from now on.
    pub fn withdraw(&self) -> Result<(), StoreError> {
        self.store.withdraw(&self.table.request().context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::lease::table::LeaseTimings;
    use crate::model::{InstanceId, LeaseDuration, PollingInfo};
    use crate::store::memory::{MemoryServer, MemoryStore};

    /// An instance that does not poll tells what it is; one that does, what dispatch has left with the metrics.
    #[test]
    fn a_heartbeat_tells_the_version_the_start_and_what_the_metrics_have() {
        const SECOND: Duration = Duration::from_secs(1);
        let clock = Arc::new(ManualClock::at(10_000_000_000_000));
        let server = MemoryServer::new(&clock);
        let (me, duration) = (InstanceId::new("me"), LeaseDuration::new(30 * SECOND));
        let timings = LeaseTimings {
            lease: duration,
            heartbeat: duration,
            renew_interval: 10 * SECOND,
            store_timeout: SECOND,
        };
        let own = Arc::<ManualClock>::clone(&clock);
        let table = Arc::new(OwnershipTable::new(me.clone(), timings, own, true));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
        let started_ms = store.time(SECOND).unwrap() / 1_000;
        let heartbeat = Heartbeat::new(store, Arc::clone(&table), Weight(1), 10 * SECOND);
        clock.pass(5 * SECOND); // the store was away
        heartbeat.send().unwrap();
        let first = server.info(&me).unwrap();
        assert_eq!((first.version.as_str(), first.protocol), (env!("CARGO_PKG_VERSION"), PROTOCOL));
        assert_eq!((first.started_at_ms, &first.polling), (Some(started_ms), &None));
        clock.pass(7 * SECOND);
        server.step_clock(300);
        let polling = Some(PollingInfo { workers: 48, busy: 47, ..PollingInfo::default() });
        table.metrics().set_polling_info(polling.clone().unwrap());
        heartbeat.send().unwrap();
        assert_eq!(server.info(&me).unwrap(), InstanceInfo { polling, ..first });
        heartbeat.withdraw().unwrap();
        assert_eq!(server.info(&me), None);
    }
}
