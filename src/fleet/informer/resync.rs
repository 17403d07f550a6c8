//! A look at everything: at the start, after something may have been missed, and now and then.
//!
//! It walks over all keys, a page at a time, while everything else goes on.

use std::time::Duration;

use crate::clock::Moment;
use crate::fleet::informer::{Informer, PushSupport};
use crate::model::EndpointId;
use crate::model::spread;
use crate::store::{BATCH_MAX, SCAN_COUNT, StoreError};

/// Where changes are heard of, each instance sweeps this often …
const REPAIR_INTERVAL: Duration = Duration::from_secs(300);
/// … or less often in a large fleet: all together this often, and what one finds it tells the others.
const REPAIR_INTERVAL_OF_ALL: Duration = Duration::from_secs(90);
/// Where they are not, the sweeps of all instances take at most one part in `SWEEPING_SHARE` of the server's time.
const SWEEPING_SHARE: u32 = 10;
/// What a sweep costs the server: this for each exchange …
const EXCHANGE_COST: Duration = Duration::from_micros(50);
/// … and this for each key that is walked over or read. Reckoned, not measured: the time that an exchange takes is
/// latency for the most part, and a stall of the server or of this process would count as the server's work.
const KEY_COST: Duration = Duration::from_micros(2);
/// After a break of the line everybody sweeps: one in each of these, not all at once.
const SWEEP_SLOT: Duration = Duration::from_millis(100);
/// Whatever the size of the fleet, a break is repaired after this.
const SWEEP_SPREAD_MAX: Duration = Duration::from_secs(5);

/// How far a look at everything has come.
pub(super) struct Sweep {
    stage: Stage,
    cursor: u64,
    /// By its place in the view: whether what sits there was met. Who sits beyond has come since.
    seen: Vec<bool>,
    /// The place from which on owners are still to be read.
    owners_from: usize,
    /// Whether to look for live instances too.
    instances: bool,
    /// What it has cost the server so far.
    cost: Duration,
}

enum Stage {
    Sessions,
    Owners,
    Instances,
}

impl Sweep {
    pub(super) fn new(places: usize, instances: bool) -> Self {
        let (seen, cost) = (vec![false; places], Duration::ZERO);
        Self { stage: Stage::Sessions, cursor: 0, seen, owners_from: 0, instances, cost }
    }

    /// One exchange about `keys` keys.
    fn charge(&mut self, keys: usize) {
        let keys = KEY_COST.saturating_mul(u32::try_from(keys).unwrap_or(u32::MAX));
        self.cost = self.cost.saturating_add(EXCHANGE_COST).saturating_add(keys);
    }

    /// One step of a walk over all keys. The last one may have ended anywhere.
    fn charge_page(&mut self, found: usize) {
        self.charge(if self.cursor == 0 { found } else { SCAN_COUNT });
    }

    /// What sits there was there at some time during this sweep.
    pub(super) fn has_seen(&mut self, place: Option<usize>) {
        if let Some(seen) = place.and_then(|it| self.seen.get_mut(it)) {
            *seen = true;
        }
    }
}

impl Informer {
    /// Looks at everything again, the first time at once, later in a slot of its own.
    pub(crate) fn sweep_soon(&mut self) {
        let now = self.table.now();
        // One that has begun may have passed by what is to be seen.
        self.sweep = None;
        self.missed_beats = true;
        let others = u32::try_from(self.view.instance_count()).unwrap_or(u32::MAX);
        let slots = SWEEP_SLOT.saturating_mul(others).min(SWEEP_SPREAD_MAX);
        let wait = if self.first_sight.is_some() { self.my_part_of(slots) } else { Duration::ZERO };
        // One that is overdue could not be made; all the others could not either.
        let planned = if self.next_sweep > now { self.next_sweep } else { Moment::MAX };
        self.next_sweep = planned.min(now + wait);
    }

    /// Something between nothing and `span` that is ours, and seldom another's.
    fn my_part_of(&self, span: Duration) -> Duration {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(spread(self.me.as_str(), micros))
    }

    /// Goes on with a sweep, or begins one if it is time; true when it came to its end.
    pub(super) fn sweep(&mut self, now: Moment, exchanges: &mut usize) -> Result<bool, StoreError> {
        if self.sweep.is_none() && now < self.next_sweep {
            return Ok(false);
        }
        let mut sweep = self.sweep.take().unwrap_or_else(|| {
            // Where changes are pushed, every heartbeat of a live instance is.
            let instances = self.missed_beats || self.hearing != PushSupport::Changes;
            Sweep::new(self.view.places(), instances)
        });
        while *exchanges > 0 {
            *exchanges -= 1;
            let ended = match sweep.stage {
                Stage::Sessions => self.sweep_sessions(&mut sweep)?,
                Stage::Owners => self.sweep_owners(&mut sweep)?,
                Stage::Instances => self.sweep_instances(&mut sweep)?,
            };
            if ended {
                self.missed_beats = false;
                self.next_sweep = self.table.now() + self.sweep_interval(sweep.cost);
                return Ok(true);
            }
        }
        self.sweep = Some(sweep);
        Ok(false)
    }

    /// From the end of a sweep that cost the server this much to the next one.
    fn sweep_interval(&self, cost: Duration) -> Duration {
        let instances = self.view.instance_count().max(1);
        if self.hearing == PushSupport::Changes {
            let interval = repair_interval(instances);
            return interval * 3 / 4 + self.my_part_of(interval / 2);
        }
        unheard_interval(cost, instances).max(self.glance_interval)
    }

    fn sweep_sessions(&mut self, sweep: &mut Sweep) -> Result<bool, StoreError> {
        let timeout = self.table.timings().store_timeout;
        let page = self.store.session_names(sweep.cursor, timeout)?;
        let mut news = std::mem::take(&mut self.news);
        for name in &page.found {
            if let Some(endpoint) = self.session_cache.named(name, &mut news) {
                self.meet_name(&endpoint);
                sweep.has_seen(self.view.place(&endpoint));
            }
        }
        self.news = news;
        self.tell_invalid();
        sweep.cursor = page.cursor;
        sweep.charge_page(page.found.len());
        if sweep.cursor == 0 {
            self.session_cache.end_walk();
            let unseen = |it: &&EndpointId| {
                self.view.place(it).and_then(|it| sweep.seen.get(it)).is_some_and(|seen| !seen)
            };
            let gone: Vec<EndpointId> = self.view.endpoints().filter(unseen).cloned().collect();
            gone.iter().for_each(|it| self.surprised_at_sweep(it));
            self.to_read.extend(gone);
            self.read_again();
            sweep.charge(2 * self.to_read.len());
            sweep.stage = Stage::Owners;
        }
        Ok(false)
    }

    /// A sweep found this name. The first one counts every name, so that not every instance reads every session at its
    /// start; later ones find few, and a name counts when it has been read.
    fn meet_name(&mut self, endpoint: &EndpointId) {
        if self.session_cache.is_idle(endpoint) || self.view.contains(endpoint) {
            return;
        }
        if self.first_sight.is_some() {
            self.surprised_at_sweep(endpoint);
            self.to_read.insert(endpoint.clone());
        } else {
            self.stale |= self.view.add(endpoint);
        }
    }

    /// An instance that was subscribed all the time should have known.
    fn surprised_at_sweep(&mut self, endpoint: &EndpointId) {
        if self.first_sight.is_some() && !self.missed_beats {
            self.discrepancies.push(endpoint.clone());
        }
    }

    fn sweep_owners(&mut self, sweep: &mut Sweep) -> Result<bool, StoreError> {
        let mut from = sweep.owners_from;
        let batch = self.view.page(&mut from, BATCH_MAX);
        self.read_owners(&batch)?;
        sweep.charge(batch.len());
        sweep.owners_from = from;
        if from < self.view.places() {
            return Ok(false);
        }
        sweep.stage = Stage::Instances;
        Ok(!sweep.instances)
    }

    fn sweep_instances(&mut self, sweep: &mut Sweep) -> Result<bool, StoreError> {
        let page = self.store.instances(sweep.cursor, self.table.timings().store_timeout)?;
        sweep.cursor = page.cursor;
        sweep.charge_page(page.found.len());
        self.to_meet.extend(page.found);
        Ok(sweep.cursor == 0)
    }
}

/// How often each of `instances` resyncs where changes are pushed.
fn repair_interval(instances: usize) -> Duration {
    let instances = u32::try_from(instances).unwrap_or(u32::MAX);
    REPAIR_INTERVAL.max(REPAIR_INTERVAL_OF_ALL.saturating_mul(instances))
}

/// How often each of `instances` resyncs where they are not, when a resync costs the server this much.
fn unheard_interval(cost: Duration, instances: usize) -> Duration {
    let share = SWEEPING_SHARE.saturating_mul(u32::try_from(instances).unwrap_or(u32::MAX));
    cost.saturating_mul(share).min(repair_interval(instances))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resync of a fleet with this many sessions: session, lease and result of each, and the heartbeats.
    fn cost(sessions: usize, instances: usize) -> Duration {
        let mut sweep = Sweep::new(sessions, true);
        let keys = 3 * sessions + instances;
        for found in [sessions, instances] {
            for page in (0..keys.div_ceil(SCAN_COUNT)).rev() {
                sweep.cursor = page as u64;
                sweep.charge_page(found.min(keys % SCAN_COUNT));
            }
        }
        (0..sessions.div_ceil(BATCH_MAX)).for_each(|_| sweep.charge(sessions.min(BATCH_MAX)));
        sweep.charge(2 * sessions / instances);
        sweep.cost
    }

    /// docs/sessions.md: within 2 s up to about 10,000 sessions times instances, then in proportion.
    #[test]
    fn where_nothing_is_pushed_a_sweep_comes_in_time_for_two_seconds_in_an_ordinary_fleet() {
        let seconds = |sessions, instances| {
            unheard_interval(cost(sessions, instances), instances).as_secs_f64()
        };
        for (sessions, instances) in [(1, 1), (100, 10), (1_000, 10), (3_000, 3), (200, 50)] {
            assert!(seconds(sessions, instances) <= 1.6, "{}", seconds(sessions, instances));
        }
        assert!((10.0..20.0).contains(&seconds(10_000, 10)), "{}", seconds(10_000, 10));
        assert!((60.0..120.0).contains(&seconds(100_000, 5)), "{}", seconds(100_000, 5));
        assert_eq!(
            unheard_interval(Duration::MAX, 1),
            REPAIR_INTERVAL,
            "never less often than with pushes"
        );
        assert_eq!(unheard_interval(Duration::MAX, 10), 10 * REPAIR_INTERVAL_OF_ALL);
    }
}
