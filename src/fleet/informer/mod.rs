//! What is there, who is alive, who has what: keeps the view that plans are made of.
//!
//! Everything is listed once, in a sweep over all keys. From then on changes are heard of: the server
//! tells which sessions and heartbeats were touched, instances say what they took and let go, and only
//! what that concerns is read. What hearing may miss is repaired: by rounds over the leases this
//! instance would be the next to take, and by a seldom sweep. A server that does not tell of changes
//! is swept more often, as often as that stays cheap.

mod given;
mod invalid;
mod membership;
mod owners;
mod sessions;
mod resync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fnv::{FnvHashMap, FnvHashSet};

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::given::GivenLeases;
use crate::fleet::informer::invalid::InvalidReports;
use crate::fleet::informer::membership::Node;
use crate::fleet::informer::resync::Sweep;
use crate::fleet::informer::sessions::{DeferredReads, Strangers};
use crate::fleet::session_cache::{SessionCache, SessionChanges};
use crate::fleet::view::View;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::model::{EndpointId, Epoch, InstanceId, Session};
use crate::store::{Changes, Push, Store, StoreError};

/// Something is looked at this often, at the least: the heartbeats, or where they are pushed some leases.
const GLANCE_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// What is heard of is read this much later than the last look, so that what comes together is read together.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// In a large fleet heartbeats later: every one is heard of by all, and all together look no more often than one in
/// each of these, or the square of their number would be asked of the server.
const LOOK_SLOT: Duration = Duration::from_micros(100);
/// Whatever the size of the fleet, what is pushed takes effect within a fifth of a second.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// A look that has taken this long by the time owners were read is broken off when there is something to act on.
const LONG_LOOK: Duration = Duration::from_millis(100);
/// Redis removes a key that has expired within this.
const JUST_AFTER: Duration = Duration::from_millis(3);
/// Exchanges of one look; then it is somebody else's turn, and the look goes on.
const EXCHANGES_MAX: usize = 16;

/// How much of what changes is heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushSupport {
    /// Not known yet: an instance that reads before it is subscribed misses what happens in between.
    Unknown,
    /// Nothing, or words only.
    Words,
    Changes,
}

/// Looks at the store for the reconciler.
pub(crate) struct Informer {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    me: InstanceId,
    hearing: PushSupport,
    /// Whether words of others are heard.
    hears_words: bool,
    view: View,
    /// The view was touched since the last plan.
    stale: bool,
    /// So were those who live, or their weights.
    reshaped: bool,
    session_cache: SessionCache,
    news: SessionChanges,
    /// Sessions to be read again.
    to_read: BTreeSet<EndpointId>,
    /// Sessions to be read if nobody has taken them by then: each might be one that nobody is to poll.
    unread: DeferredReads,
    /// Written names that are not in the view.
    strangers: Strangers,
    invalid_reports: InvalidReports,
    odd_reports: InvalidReports,
    /// Where nothing is pushed: what is still to be read again in this turn.
    turn: Vec<EndpointId>,
    /// Until when it was no wonder that something is free: somebody was at work, or nothing was granted.
    excused_at: Moment,
    /// Sessions that were not there while the store held off.
    missed: FnvHashSet<EndpointId>,
    nodes: BTreeMap<InstanceId, Node>,
    /// Instances whose heartbeat is to be read.
    to_meet: BTreeSet<InstanceId>,
    /// Leases whose owner is to be read, and when.
    checks: BTreeSet<(Moment, EndpointId)>,
    /// Leases that will end unless they are renewed, and when (R9).
    ends: BTreeSet<(Moment, EndpointId)>,
    /// Leases that were released for an heir (R8).
    given: GivenLeases,
    /// Leases that did.
    lapsed: FnvHashSet<EndpointId>,
    /// What a round or a sweep has found to be different; the others should look too.
    discrepancies: Vec<EndpointId>,
    /// Where the owners are read in turn: the place of the next.
    owners_from: usize,
    /// Where the round over the leases of others stands, and since when.
    round: (usize, Moment),
    /// A lease of each owner that is looked at at every glance.
    samples: FnvHashMap<InstanceId, EndpointId>,
    losses: u64,
    sweep: Option<Sweep>,
    /// Heartbeats may have gone unheard since the last sweep.
    missed_beats: bool,
    next_sweep: Moment,
    next_glance: Moment,
    glance_interval: Duration,
    last_look: Moment,
    broke_off: bool,
    /// Everything was swept once; who is alive may still have to be read.
    swept: bool,
    first_sight: Option<Moment>,
    epoch: Epoch,
    live_since: Moment,
    settled: bool,
    away_since: Option<Moment>,
}

impl Informer {
    pub(crate) fn new(store: Arc<dyn Store>, table: Arc<OwnershipTable>, tick: Duration) -> Self {
        Self {
            reporter: Reporter::new(&table),
            me: table.instance().clone(),
            store,
            table,
            hearing: PushSupport::Unknown,
            hears_words: false,
            view: View::default(),
            stale: false,
            reshaped: false,
            session_cache: SessionCache::default(),
            news: SessionChanges::default(),
            to_read: BTreeSet::new(),
            unread: DeferredReads::default(),
            strangers: Strangers::default(),
            invalid_reports: InvalidReports::default(),
            odd_reports: InvalidReports::default(),
            turn: Vec::new(),
            excused_at: Moment::MIN,
            missed: FnvHashSet::default(),
            nodes: BTreeMap::new(),
            to_meet: BTreeSet::new(),
            checks: BTreeSet::new(),
            ends: BTreeSet::new(),
            given: GivenLeases::default(),
            lapsed: FnvHashSet::default(),
            discrepancies: Vec::new(),
            owners_from: 0,
            round: (0, Moment::MIN),
            samples: FnvHashMap::default(),
            losses: 0,
            sweep: None,
            missed_beats: true,
            next_sweep: Moment::MIN,
            next_glance: Moment::MIN,
            glance_interval: tick.min(GLANCE_INTERVAL_MAX),
            last_look: Moment::MIN,
            broke_off: false,
            swept: false,
            first_sight: None,
            epoch: Epoch::default(),
            live_since: Moment::MIN,
            settled: false,
            away_since: None,
        }
    }

    /// The watch has a subscription now, or has none. What was said meanwhile is lost, so everything is looked at.
    pub(crate) fn subscribed(&mut self, words: bool, changes: bool) {
        self.hearing = if changes { PushSupport::Changes } else { PushSupport::Words };
        self.hears_words = words;
        self.sweep_soon();
    }

    /// Takes in what the store or another instance said.
    pub(crate) fn hear(&mut self, heard: &Push) {
        match heard {
            Push::Message(word) => self.hear_word(word),
            Push::Changed(Changes { sessions, nodes, .. }) => {
                self.hear_sessions(sessions);
                self.to_meet.extend(nodes.iter().cloned());
            }
            Push::Everything => self.sweep_soon(),
        }
    }

    /// Looks at what there is to look at, if it is time.
    pub(crate) fn look_if_due(&mut self) {
        self.see_losses();
        let now = self.table.now();
        if now < self.next_look() {
            return;
        }
        self.last_look = now;
        if let Err(error) = self.look(now) {
            return self.trouble(&error);
        }
        if let Some(since) = self.away_since.take() {
            self.reporter.say(&Event::StoreReachable { away: now.since(since) });
            self.sweep_soon();
        }
        // Another life of the store has what it has, and nobody says what is different.
        let before = std::mem::replace(&mut self.epoch, self.table.epoch());
        if before != self.epoch && before != Epoch::default() {
            self.sweep_soon();
        }
    }

    fn look(&mut self, now: Moment) -> Result<(), StoreError> {
        let quick_check = now >= self.next_glance;
        if self.away_since.is_some() {
            // Is it back? Everything else waits, so that not everybody asks for everything at once.
            self.to_meet.insert(self.me.clone());
            return self.meet(now, true);
        }
        let mut exchanges = EXCHANGES_MAX;
        if quick_check && self.hearing == PushSupport::Words {
            self.read_some_again();
        }
        self.tell_invalid();
        self.read_sessions(&mut exchanges)?;
        self.check_owners(now, &mut exchanges)?;
        if self.acts_first(now) {
            return Ok(());
        }
        if quick_check && self.hearing == PushSupport::Changes && !self.hears_words {
            self.read_some_owners()?;
        }
        let went_round = quick_check && self.first_sight.is_some() && self.make_round(now)?;
        self.swept |= self.sweep(now, &mut exchanges)?;
        // Last, because owners may be instances that were not met yet. Where every beat is heard of, a
        // look at all of them only tells whether the store is still there, which a round did.
        self.meet(now, quick_check && !(went_round && self.hearing == PushSupport::Changes))?;
        if quick_check {
            self.next_glance = now + self.glance_interval;
        }
        if self.swept {
            self.first_sight.get_or_insert(now);
        }
        self.settle(now);
        Ok(())
    }

    /// Where the store is far away, what was just found is acted on before the look goes on, which may take seconds: an
    /// owner waits for its heir. Not twice in a row, so that every look comes to its end.
    fn acts_first(&mut self, began: Moment) -> bool {
        let is_far = self.table.now().since(began) >= LONG_LOOK;
        self.broke_off = is_far && self.stale && self.first_sight.is_some() && !self.broke_off;
        self.broke_off
    }

    /// The store could not be asked. Said once.
    pub(crate) fn trouble(&mut self, error: &StoreError) {
        if self.away_since.is_none() {
            self.away_since = Some(self.table.now());
            self.reporter.say(&Event::StoreUnreachable { error });
        }
    }

    fn next_look(&self) -> Moment {
        if self.hearing == PushSupport::Unknown {
            return Moment::MAX;
        }
        if self.away_since.is_some() {
            return self.last_look + self.table.timings().retry_interval();
        }
        let mut next = self.next_glance.min(self.next_sweep);
        let unfinished = !self.to_read.is_empty() || self.sweep.is_some();
        if unfinished || !self.to_meet.is_empty() {
            next = Moment::MIN;
        }
        // R9: whatever ends next, unless somebody keeps it, is looked at right when it ends.
        if let Some(ends_at) = self.nodes.values().map(|it| it.ends_at).min() {
            next = next.min(ends_at + JUST_AFTER);
        }
        for (at, _) in self.checks.first().into_iter().chain(self.ends.first()) {
            next = next.min(*at);
        }
        if let Some(at) = self.next_unread() {
            next = next.min(at);
        }
        if !self.settled && self.first_sight.is_some() {
            next = next.min(self.settled_at());
        }
        // Heartbeats are heard of by all. What only we have to read is not, and need not wait for them.
        let instances = if unfinished { 0 } else { self.view.instance_count() };
        next.max(self.last_look + look_interval(instances))
    }

    pub(crate) fn wait(&self) -> Duration {
        self.next_look().since(self.table.now())
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    pub(crate) fn is_reshaped(&self) -> bool {
        self.reshaped
    }

    pub(crate) fn take_stale(&mut self) -> bool {
        self.reshaped = false;
        std::mem::take(&mut self.stale)
    }

    /// What reading sessions has changed since this was last asked.
    pub(crate) fn take_news(&mut self) -> SessionChanges {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn session(&self, endpoint: &EndpointId) -> Option<&Arc<Session>> {
        self.session_cache.session(endpoint)
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Whether everything was seen once, and the last look succeeded.
    pub(crate) fn sees(&self) -> bool {
        self.first_sight.is_some() && self.away_since.is_none()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }
}

/// The shortest time from one look to the next among this many live instances.
fn look_interval(instances: usize) -> Duration {
    let slots = LOOK_SLOT.saturating_mul(u32::try_from(instances).unwrap_or(u32::MAX));
    slots.clamp(LOOK_INTERVAL_MIN, LOOK_INTERVAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Weight;
    use crate::polling::holder::Holder;

    /// One of a thousand, right after a look.
    fn one_of_many() -> Informer {
        let Holder { store, table, .. } = Holder::of(0);
        let mut informer = Informer::new(store, table, GLANCE_INTERVAL_MAX);
        informer.subscribed(true, true);
        let live: Vec<(InstanceId, Weight)> =
            (0..1_000).map(|it| (InstanceId::new(&format!("i{it}")), Weight(1))).collect();
        informer.view.set_instances(&live);
        informer.last_look = informer.table.now();
        informer
    }

    #[test]
    fn in_a_large_fleet_heartbeats_wait_and_a_sweep_and_our_own_sessions_do_not() {
        let until_next = |informer: &Informer| informer.next_look().since(informer.last_look);
        let mut informer = one_of_many();
        informer.to_meet.insert(InstanceId::new("i1"));
        assert_eq!(until_next(&informer), LOOK_INTERVAL_MAX);
        informer.to_read.insert(EndpointId::parse("a").unwrap());
        assert_eq!(until_next(&informer), LOOK_INTERVAL_MIN, "a session to be read");
        informer.to_read.clear();
        informer.sweep = Some(Sweep::new(0, true));
        assert_eq!(until_next(&informer), LOOK_INTERVAL_MIN, "a sweep to go on with");
    }

    /// What all look at together grows with their number, not with its square; nobody waits for long.
    #[test]
    fn however_many_instances_hear_of_every_heartbeat_together_they_look_no_more_often() {
        for (instances, ms) in [(0, 10), (1, 10), (100, 10), (200, 20), (1_000, 100)] {
            assert_eq!(look_interval(instances), Duration::from_millis(ms), "{instances}");
        }
        assert_eq!(look_interval(usize::MAX), LOOK_INTERVAL_MAX);
    }
}
