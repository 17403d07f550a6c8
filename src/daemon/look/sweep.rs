//! A look at everything: at the start, after something may have been missed, and now and then.
//!
//! It walks over all keys, a page at a time, while everything else goes on.

use std::time::Duration;

use crate::clock::Moment;
use crate::daemon::look::{Hearing, Looker};
use crate::model::EndpointId;
use crate::pipeline::placement::spread;
use crate::store::{BATCH_MAX, StoreError};

/// Where changes are heard of, each instance sweeps this often …
const REPAIR_INTERVAL: Duration = Duration::from_secs(300);
/// … or less often in a large fleet: all together this often, and what one finds it tells the others.
const REPAIR_INTERVAL_OF_ALL: Duration = Duration::from_secs(90);
/// Where they are not, all together spend no more than one part in so many of the time sweeping.
const SWEEPING_SHARE: u32 = 20;
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
    began: Moment,
}

enum Stage {
    Sessions,
    Owners,
    Instances,
}

impl Sweep {
    pub(super) fn new(began: Moment, places: usize, instances: bool) -> Self {
        let seen = vec![false; places];
        Self { stage: Stage::Sessions, cursor: 0, seen, owners_from: 0, instances, began }
    }

    /// What sits there was there at some time during this sweep.
    pub(super) fn has_seen(&mut self, place: Option<usize>) {
        if let Some(seen) = place.and_then(|it| self.seen.get_mut(it)) {
            *seen = true;
        }
    }
}

impl Looker {
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
        let planned = if self.next_sweep > now { self.next_sweep } else { Moment::FOREVER };
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
            // Where changes are heard of, whoever is alive is heard of with every beat.
            let instances = self.missed_beats || self.hearing != Hearing::Changes;
            Sweep::new(now, self.view.places(), instances)
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
                let ended_at = self.table.now();
                self.next_sweep = ended_at + self.sweep_interval(ended_at.since(sweep.began));
                return Ok(true);
            }
        }
        self.sweep = Some(sweep);
        Ok(false)
    }

    fn sweep_interval(&self, took: Duration) -> Duration {
        let instances = u32::try_from(self.view.instance_count()).unwrap_or(u32::MAX).max(1);
        if self.hearing == Hearing::Changes {
            let interval = REPAIR_INTERVAL.max(REPAIR_INTERVAL_OF_ALL.saturating_mul(instances));
            return interval * 3 / 4 + self.my_part_of(interval / 2);
        }
        took.saturating_mul(SWEEPING_SHARE.saturating_mul(instances)).max(self.glance_interval)
    }

    fn sweep_sessions(&mut self, sweep: &mut Sweep) -> Result<bool, StoreError> {
        let timeout = self.table.rhythm().store_timeout;
        let page = self.store.session_names(sweep.cursor, timeout)?;
        let mut news = std::mem::take(&mut self.news);
        for name in &page.found {
            if let Some(endpoint) = self.catalogue.named(name, &mut news) {
                if !self.catalogue.is_idle(&endpoint) && self.view.add(&endpoint) {
                    self.stale = true;
                    self.surprised_at_sweep(&endpoint);
                }
                sweep.has_seen(self.view.place(&endpoint));
            }
        }
        self.news = news;
        self.tell_invalid();
        sweep.cursor = page.cursor;
        if sweep.cursor == 0 {
            self.catalogue.end_walk();
            let unseen = |it: &&EndpointId| {
                self.view.place(it).and_then(|it| sweep.seen.get(it)).is_some_and(|seen| !seen)
            };
            let gone: Vec<EndpointId> = self.view.endpoints().filter(unseen).cloned().collect();
            gone.iter().for_each(|it| self.surprised_at_sweep(it));
            self.to_read.extend(gone);
            self.read_again();
            sweep.stage = Stage::Owners;
        }
        Ok(false)
    }

    /// Whoever listened all the time should have known.
    fn surprised_at_sweep(&mut self, endpoint: &EndpointId) {
        if self.first_sight.is_some() && !self.missed_beats {
            self.surprises.push(endpoint.clone());
        }
    }

    fn sweep_owners(&mut self, sweep: &mut Sweep) -> Result<bool, StoreError> {
        let mut from = sweep.owners_from;
        let batch = self.view.page(&mut from, BATCH_MAX);
        self.read_owners(&batch)?;
        sweep.owners_from = from;
        if from < self.view.places() {
            return Ok(false);
        }
        sweep.stage = Stage::Instances;
        Ok(!sweep.instances)
    }

    fn sweep_instances(&mut self, sweep: &mut Sweep) -> Result<bool, StoreError> {
        let page = self.store.instances(sweep.cursor, self.table.rhythm().store_timeout)?;
        self.to_meet.extend(page.found);
        sweep.cursor = page.cursor;
        Ok(sweep.cursor == 0)
    }
}
