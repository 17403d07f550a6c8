//! What is there, who is alive, who has what: keeps the view that plans are made of.
//!
//! For now every look reads everything. Whoever makes looking cheap changes only this file.

use std::sync::Arc;
use std::time::Duration;

use fnv::{FnvHashMap, FnvHashSet};

use crate::clock::Moment;
use crate::daemon::report::Reporter;
use crate::event::Event;
use crate::model::{EndpointId, InstanceId, Session, Weight};
use crate::pipeline::discovery::Catalogue;
use crate::pipeline::ownership::OwnershipTable;
use crate::pipeline::view::View;
use crate::store::{BATCH_MAX, Seen, Store, StoreError};

/// Looks are at most this far apart: added, changed and removed sessions take effect within 2 s.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// And at least this far, however often somebody says "look now".
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Redis removes a key that has expired within this.
const JUST_AFTER: Duration = Duration::from_millis(3);
/// A newcomer acts once the live set has been still for so long …
const STILL_FOR: Duration = Duration::from_millis(500);
/// … or has not become still for so long.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// Looks at the store for the reconciler.
pub(crate) struct Looker {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    interval: Duration,
    catalogue: Catalogue,
    changed: Vec<Arc<Session>>,
    view: View,
    /// Owned by an instance that has left without a word.
    orphans: FnvHashSet<EndpointId>,
    /// The view was touched since the last plan.
    stale: bool,
    next_look: Moment,
    last_look: Moment,
    first_sight: Option<Moment>,
    live_since: Moment,
    settled: bool,
    away_since: Option<Moment>,
}

impl Looker {
    pub(crate) fn new(store: Arc<dyn Store>, table: Arc<OwnershipTable>, tick: Duration) -> Self {
        Self {
            reporter: Reporter::new(&table),
            store,
            table,
            interval: tick.min(LOOK_INTERVAL_MAX),
            catalogue: Catalogue::default(),
            changed: Vec::new(),
            view: View::default(),
            orphans: FnvHashSet::default(),
            stale: false,
            next_look: Moment::NEVER,
            last_look: Moment::NEVER,
            first_sight: None,
            live_since: Moment::NEVER,
            settled: false,
            away_since: None,
        }
    }

    /// Looks when it is time; true when the view is fresh.
    pub(crate) fn look_if_due(&mut self) -> bool {
        let now = self.table.now();
        if now < self.next_look {
            return false;
        }
        self.last_look = now;
        self.next_look = now + self.interval;
        let looked = self.look();
        // A look that takes long is not followed by the next at once.
        let took = self.table.now().since(now);
        self.next_look = self.next_look.max(now + took * 2);
        match looked {
            Ok(()) => {
                if let Some(since) = self.away_since.take() {
                    self.reporter.say(&Event::StoreReachable { away: now.since(since) });
                }
                true
            }
            Err(error) => {
                self.next_look = now + self.table.rhythm().retry_interval();
                if self.away_since.is_none() {
                    self.away_since = Some(now);
                    self.reporter.say(&Event::StoreUnreachable { error: &error });
                }
                false
            }
        }
    }

    fn look(&mut self) -> Result<(), StoreError> {
        let timeout = self.table.rhythm().store_timeout;
        let (mut cursor, mut found) = (0, Vec::new());
        loop {
            let page = self.store.sessions(cursor, timeout)?;
            found.extend(page.sessions);
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        let Seen { found: instances, mut first_end } = self.store.instances(timeout)?;
        // R6: a store that has lost its memory has lost the sessions too. Until its hold-off is over that
        // is no reason to stop: whoever keeps them may put them back. So before anything is believed to
        // be gone, the store is asked which life it is in.
        if self.catalogue.misses(&found) {
            let question = self.table.question();
            let reply = self.store.verify(&question.ask, &[])?;
            self.table.saw(&question, &reply);
        }
        let news = self.catalogue.refresh(found, self.table.hold_off().is_none());
        for (endpoint, error) in &news.invalid {
            self.reporter.say(&Event::SessionInvalid { endpoint, error });
        }
        self.changed.extend(news.changed);
        let endpoints = self.catalogue.endpoints();
        let mut owners = FnvHashMap::default();
        for batch in endpoints.chunks(BATCH_MAX) {
            let stored = self.store.owners(batch, timeout)?;
            first_end = first_end.into_iter().chain(stored.first_end).min();
            let owned =
                batch.iter().zip(stored.found).filter_map(|(it, owner)| Some((it.clone(), owner?)));
            owners.extend(owned);
        }
        self.take_in(&instances, &endpoints, owners);
        // R9: whatever ends next, unless somebody keeps it, is looked at right when it ends.
        if let Some(left) = first_end {
            let at = self.table.now() + left + JUST_AFTER;
            self.next_look = self.next_look.min(at.max(self.last_look + LOOK_INTERVAL_MIN));
        }
        Ok(())
    }

    fn take_in(
        &mut self,
        instances: &[(InstanceId, Weight)],
        endpoints: &[EndpointId],
        mut owners: FnvHashMap<EndpointId, InstanceId>,
    ) {
        let now = self.table.now();
        let me = self.table.instance();
        // R7: under our name, but not held: the reply to the grant was lost, or we lost it. Free to us.
        owners.retain(|_, owner| owner != me);
        // What we hold is ours, also when the store has just forgotten it and a renewal is on its way.
        for endpoint in self.table.endpoints() {
            owners.insert(endpoint, me.clone());
        }
        let before: FnvHashSet<&InstanceId> = self.view.instances().map(|it| it.0).collect();
        let live: FnvHashSet<&InstanceId> = instances.iter().map(|it| &it.0).collect();
        if self.first_sight.is_some() {
            for other in live.difference(&before).filter(|it| **it != me) {
                self.reporter.say(&Event::InstanceJoined { other });
            }
            for other in before.difference(&live).filter(|it| **it != me) {
                self.reporter.say(&Event::InstanceLeft { other });
            }
        }
        if live != before {
            self.live_since = now;
        }
        let first_sight = *self.first_sight.get_or_insert(now);
        // Only once: an instance that has settled answers every later change at once.
        self.settled |= live.contains(me)
            && (now.since(self.live_since) >= STILL_FOR || now.since(first_sight) >= SETTLE_MAX);
        let dead = |owner: Option<&InstanceId>| owner.is_some_and(|it| !live.contains(it));
        let mut orphans: FnvHashSet<EndpointId> =
            self.orphans.iter().filter(|it| !owners.contains_key(*it)).cloned().collect();
        orphans.extend(
            endpoints
                .iter()
                .filter(|it| {
                    dead(owners.get(*it))
                        || (!owners.contains_key(*it) && dead(self.view.owner(it)))
                })
                .cloned(),
        );
        self.orphans = orphans;
        self.view = View::default();
        self.view.set_instances(instances);
        for endpoint in endpoints {
            self.view.add(endpoint);
            self.view.set_owner(endpoint, owners.get(endpoint));
        }
        if !self.settled {
            let settled_at = (self.live_since + STILL_FOR).max(now + LOOK_INTERVAL_MIN);
            self.next_look = self.next_look.min(settled_at);
        }
    }

    /// Looks again as soon as is decent.
    pub(crate) fn look_soon(&mut self) {
        self.next_look = self.next_look.min(self.last_look + LOOK_INTERVAL_MIN);
    }

    /// Somebody says these are free. If not, the store will say so.
    pub(crate) fn freed(&mut self, endpoints: &[EndpointId]) {
        for endpoint in endpoints {
            self.orphans.remove(endpoint);
            self.stale |= self.view.set_owner(endpoint, None);
        }
    }

    /// The store says who owns this.
    pub(crate) fn owned(&mut self, endpoint: &EndpointId, owner: &InstanceId) {
        self.orphans.remove(endpoint);
        self.view.set_owner(endpoint, Some(owner));
        self.stale = true;
    }

    pub(crate) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Sessions that are new or changed since this was last asked.
    pub(crate) fn take_changed(&mut self) -> Vec<Arc<Session>> {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn session(&self, endpoint: &EndpointId) -> Option<&Arc<Session>> {
        self.catalogue.session(endpoint)
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Whether the last look succeeded.
    pub(crate) fn sees(&self) -> bool {
        self.first_sight.is_some() && self.away_since.is_none()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether its last owner left without a word.
    pub(crate) fn is_orphan(&self, endpoint: &EndpointId) -> bool {
        self.orphans.contains(endpoint)
    }

    pub(crate) fn my_weight(&self) -> Option<u32> {
        self.view.weight(self.table.instance()).map(|it| it.0)
    }

    pub(crate) fn wait(&self) -> Duration {
        self.next_look.since(self.table.now())
    }
}
