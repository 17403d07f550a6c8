//! When is everything read again? A resync lists all sessions, owners and instances, a page at a time, while everything
//! else goes on: at the start, after pushes may have been missed, and now and then.
//!
//! Hands every name it finds to the three other parts of the informer.

use std::time::Duration;

use crate::clock::Moment;
use crate::fleet::informer::context::{Budget, ReadContext, ReadScope};
use crate::fleet::informer::membership::Membership;
use crate::fleet::informer::owners::Owners;
use crate::fleet::view::View;
use crate::model::{EndpointId, Epoch};
use crate::store::{BATCH_MAX, SCAN_COUNT, StoreError};

/// Where changes are pushed, each instance resyncs this often …
const REPAIR_INTERVAL: Duration = Duration::from_secs(300);
/// … or less often in a large fleet: all instances together this often. An instance tells the others what it finds.
const REPAIR_INTERVAL_OF_ALL: Duration = Duration::from_secs(90);
/// Where changes are not pushed, the resyncs of all instances take at most one part in `RESYNC_SHARE` of the server's
/// time.
const RESYNC_SHARE: u32 = 10;
/// What a resync costs the server: this for each exchange …
const EXCHANGE_COST: Duration = Duration::from_micros(50);
/// … and this for each key that is listed or read. Reckoned, not measured: the time of an exchange is mostly latency, and
/// a stall of the server or of this process would count as the server's work.
const KEY_COST: Duration = Duration::from_micros(2);
/// After a lost connection every instance resyncs: one in each slot, not all at once.
const RESYNC_SLOT: Duration = Duration::from_millis(100);
/// The slots of all instances together, whatever the size of the fleet.
const RESYNC_SPREAD_MAX: Duration = Duration::from_secs(5);

/// How far a resync has come.
pub(super) struct Listing {
    stage: Stage,
    cursor: u64,
    /// For each slot of the view, whether its endpoint was listed. Endpoints in later slots entered the view since.
    seen: Vec<bool>,
    /// The slot of the view from which owners are read next.
    next_place: usize,
    /// Whether heartbeats are listed, too.
    instances: bool,
    /// What the resync has cost the server so far.
    cost: Duration,
}

enum Stage {
    Sessions,
    Owners,
    Instances,
}

impl Listing {
    pub(super) fn new(slots: usize, instances: bool) -> Self {
        let (seen, cost) = (vec![false; slots], Duration::ZERO);
        Self { stage: Stage::Sessions, cursor: 0, seen, next_place: 0, instances, cost }
    }

    /// Counts the cost of one exchange about `keys` keys.
    fn charge(&mut self, keys: usize) {
        let keys = KEY_COST.saturating_mul(u32::try_from(keys).unwrap_or(u32::MAX));
        self.cost = self.cost.saturating_add(EXCHANGE_COST).saturating_add(keys);
    }

    /// Counts the cost of one page. The last page may have ended anywhere.
    fn charge_page(&mut self, found: usize) {
        self.charge(if self.cursor == 0 { found } else { SCAN_COUNT });
    }
}

/// The resync in progress, and when the next one begins.
pub(super) struct Resync {
    pub(super) listing: Option<Listing>,
    /// Heartbeats may have been written without a push since the last resync.
    missed_pushes: bool,
    next: Moment,
    /// Everything was listed once; live instances may still have to be read.
    has_listed: bool,
    /// The epoch of the store at the last read pass.
    epoch: Epoch,
}

impl Default for Resync {
    fn default() -> Self {
        let (listing, epoch) = (None, Epoch::default());
        Self { listing, missed_pushes: true, next: Moment::MIN, has_listed: false, epoch }
    }
}

impl Resync {
    /// When the next step has something to do.
    pub(super) fn due(&self) -> Moment {
        if self.is_running() { Moment::MIN } else { self.next }
    }

    pub(super) fn is_running(&self) -> bool {
        self.listing.is_some()
    }

    pub(super) fn has_listed(&self) -> bool {
        self.has_listed
    }

    /// Begins a resync: the first one at once, a later one in a slot of this instance.
    pub(super) fn begin_soon(&mut self, context: &ReadContext, view: &View) {
        let now = context.now();
        // A running resync may have passed a key that has changed since.
        self.listing = None;
        self.missed_pushes = true;
        let others = u32::try_from(view.instance_count()).unwrap_or(u32::MAX);
        let slots = RESYNC_SLOT.saturating_mul(others).min(RESYNC_SPREAD_MAX);
        let wait = if context.has_synced() { context.own_part_of(slots) } else { Duration::ZERO };
        // If a resync is overdue, the store was out of reach, and the resyncs of all instances are overdue.
        let planned = if self.next > now { self.next } else { Moment::MAX };
        self.next = planned.min(now + wait);
    }

    /// A store in another epoch may have any content, and no push says what differs.
    pub(super) fn note_epoch(&mut self, context: &ReadContext, view: &View) {
        let before = std::mem::replace(&mut self.epoch, context.table.epoch());
        if before != self.epoch && before != Epoch::default() {
            self.begin_soon(context, view);
        }
    }

    /// The session of `endpoint` was stored at some time during this resync.
    pub(super) fn mark_seen(&mut self, view: &View, endpoint: &EndpointId) {
        if let Some(listing) = &mut self.listing {
            mark_seen(&mut listing.seen, view, endpoint);
        }
    }

    /// Goes on with a resync, or begins one if it is time.
    pub(super) fn step(
        &mut self,
        scope: &mut ReadScope<'_>,
        owners: &mut Owners,
        membership: &mut Membership,
        now: Moment,
        budget: &mut Budget,
    ) -> Result<(), StoreError> {
        if now < self.due() {
            return Ok(());
        }
        let mut listing = self.listing.take().unwrap_or_else(|| {
            // Where changes are pushed, every heartbeat of a live instance is.
            let instances = self.missed_pushes || !scope.context.gets_changes();
            Listing::new(scope.view.slot_count(), instances)
        });
        while budget.spend() {
            let ended = match listing.stage {
                Stage::Sessions => self.list_sessions(&mut listing, scope, owners)?,
                Stage::Owners => list_owners(&mut listing, scope, owners)?,
                Stage::Instances => list_instances(&mut listing, scope.context, membership)?,
            };
            if ended {
                self.missed_pushes = false;
                let instances = scope.view.instance_count().max(1);
                self.next = scope.context.now() + interval(scope.context, listing.cost, instances);
                self.has_listed = true;
                return Ok(());
            }
        }
        self.listing = Some(listing);
        Ok(())
    }

    fn list_sessions(
        &self,
        listing: &mut Listing,
        scope: &mut ReadScope<'_>,
        owners: &mut Owners,
    ) -> Result<bool, StoreError> {
        let context = scope.context;
        let page = context.store.session_names(listing.cursor, context.timeout())?;
        // An instance that got every push should have known.
        let should_know = context.has_synced() && !self.missed_pushes;
        for name in &page.found {
            let Some(endpoint) = scope.sessions.named(name) else { continue };
            if !scope.sessions.is_idle(&endpoint) && !scope.view.contains(&endpoint) {
                // The first resync adds every name, so that not every instance reads every session at its start. Later
                // ones find few new names, and each enters the view when it has been read.
                if context.has_synced() {
                    owners.discrepancies.extend(should_know.then(|| endpoint.clone()));
                    scope.sessions.read_soon([endpoint.clone()]);
                } else {
                    scope.view.add(&endpoint);
                }
            }
            mark_seen(&mut listing.seen, scope.view, &endpoint);
        }
        scope.sessions.report_invalid(context);
        listing.cursor = page.cursor;
        listing.charge_page(page.found.len());
        if listing.cursor == 0 {
            scope.sessions.end_listing();
            let is_seen = |it: usize| listing.seen.get(it).is_none_or(|it| *it);
            let unseen = |it: &&EndpointId| !scope.view.slot_index(it).is_none_or(is_seen);
            let gone: Vec<EndpointId> = scope.view.endpoints().filter(unseen).cloned().collect();
            if should_know {
                owners.discrepancies.extend(gone.iter().cloned());
            }
            scope.sessions.read_soon(gone);
            scope.sessions.read_all_again(context);
            listing.charge(2 * scope.sessions.waiting());
            listing.stage = Stage::Owners;
        }
        Ok(false)
    }
}

fn list_owners(
    listing: &mut Listing,
    scope: &mut ReadScope<'_>,
    owners: &mut Owners,
) -> Result<bool, StoreError> {
    let mut next_place = listing.next_place;
    let batch = scope.view.page(&mut next_place, BATCH_MAX);
    owners.read(scope, &batch)?;
    listing.charge(batch.len());
    listing.next_place = next_place;
    if next_place < scope.view.slot_count() {
        return Ok(false);
    }
    listing.stage = Stage::Instances;
    Ok(!listing.instances)
}

fn list_instances(
    listing: &mut Listing,
    context: &ReadContext,
    membership: &mut Membership,
) -> Result<bool, StoreError> {
    let page = context.store.instances(listing.cursor, context.timeout())?;
    listing.cursor = page.cursor;
    listing.charge_page(page.found.len());
    membership.read_soon(page.found);
    Ok(listing.cursor == 0)
}

fn mark_seen(seen: &mut [bool], view: &View, endpoint: &EndpointId) {
    if let Some(seen) = view.slot_index(endpoint).and_then(|it| seen.get_mut(it)) {
        *seen = true;
    }
}

/// From the end of a resync that cost the server this much to the next one.
fn interval(context: &ReadContext, cost: Duration, instances: usize) -> Duration {
    if context.gets_changes() {
        let interval = repair_interval(instances);
        return interval * 3 / 4 + context.own_part_of(interval / 2);
    }
    unpushed_interval(cost, instances).max(context.quick_check_interval)
}

/// How often each of `instances` resyncs where changes are pushed.
fn repair_interval(instances: usize) -> Duration {
    let instances = u32::try_from(instances).unwrap_or(u32::MAX);
    REPAIR_INTERVAL.max(REPAIR_INTERVAL_OF_ALL.saturating_mul(instances))
}

/// How often each of `instances` resyncs where changes are not pushed, when a resync costs the server this much.
fn unpushed_interval(cost: Duration, instances: usize) -> Duration {
    let share = RESYNC_SHARE.saturating_mul(u32::try_from(instances).unwrap_or(u32::MAX));
    cost.saturating_mul(share).min(repair_interval(instances))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resync of a fleet with this many sessions: session, lease and result of each, and the heartbeats.
    fn cost(sessions: usize, instances: usize) -> Duration {
        let mut listing = Listing::new(sessions, true);
        let keys = 3 * sessions + instances;
        for found in [sessions, instances] {
            for page in (0..keys.div_ceil(SCAN_COUNT)).rev() {
                listing.cursor = page as u64;
                listing.charge_page(found.min(keys % SCAN_COUNT));
            }
        }
        (0..sessions.div_ceil(BATCH_MAX)).for_each(|_| listing.charge(sessions.min(BATCH_MAX)));
        listing.charge(2 * sessions / instances);
        listing.cost
    }

    /// docs/sessions.md: within 2 s up to about 10,000 sessions times instances, then in proportion.
    #[test]
    fn where_nothing_is_pushed_a_resync_comes_in_time_for_two_seconds_in_an_ordinary_fleet() {
        let seconds = |sessions, instances| {
            unpushed_interval(cost(sessions, instances), instances).as_secs_f64()
        };
        for (sessions, instances) in [(1, 1), (100, 10), (1_000, 10), (3_000, 3), (200, 50)] {
            assert!(seconds(sessions, instances) <= 1.6, "{}", seconds(sessions, instances));
        }
        assert!((10.0..20.0).contains(&seconds(10_000, 10)), "{}", seconds(10_000, 10));
        assert!((60.0..120.0).contains(&seconds(100_000, 5)), "{}", seconds(100_000, 5));
        assert_eq!(
            unpushed_interval(Duration::MAX, 1),
            REPAIR_INTERVAL,
            "never less often than with pushes"
        );
        assert_eq!(unpushed_interval(Duration::MAX, 10), 10 * REPAIR_INTERVAL_OF_ALL);
    }
}
