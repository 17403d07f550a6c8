//! Keeps the view of this instance up to date: list, watch and resync, as an informer in Kubernetes.
//!
//! The first resync lists everything. From then on the server pushes which sessions and heartbeats were written, and
//! instances announce what they acquire and release; the informer reads only what these pushes concern. Missed
//! notifications are repaired by auditing the leases this instance is next in line for, and by an occasional resync. A
//! server that pushes no changes is resynced more often, as often as that stays cheap.
//!
//! Reads the store and the table of leases. Changes neither, with one exception: before a session counts as gone,
//! `Sessions::apply_missing` asks for the epoch, and the table takes the stamp of that reply.
//!
//! Four parts with a state of their own do the reading: [`membership`], [`sessions`], [`owners`] and [`resync`].
//! [`Informer`] calls them in order, under one budget.

mod audit;
mod context;
mod deferred_reads;
mod invalid_reports;
mod membership;
mod owners;
mod released_leases;
mod pause_ends;
mod resync;
mod sessions;
mod tracked_view;
mod unknown_names;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::context::{Budget, PushSupport, ReadContext, ReadScope};
use crate::fleet::informer::membership::Membership;
use crate::fleet::informer::owners::Owners;
use crate::fleet::informer::resync::Resync;
use crate::fleet::informer::sessions::{SESSIONS_AT_ONCE, Sessions};
use crate::fleet::informer::tracked_view::TrackedView;
use crate::fleet::session_cache::SessionChanges;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::lease::trouble::Outage;
use crate::model::{EndpointId, InstanceId, Session};
use crate::store::{BATCH_MAX, Changes, PeerMessage, Push, Store, StoreError};

/// From one quick check to the next, at most. It reads all heartbeats, or where they are pushed some leases.
const QUICK_CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// A read pass begins at least this long after the last one, so that pushes that arrive together are read together.
const PASS_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Every heartbeat is pushed to every instance. So the pass interval grows by this for each instance: otherwise the reads of
/// the fleet would grow with the square of its size.
const PASS_SLOT: Duration = Duration::from_micros(100);
/// The pass interval of the largest fleet: a push takes effect within a fifth of a second.
const PASS_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// A read pass that has taken this long once owners were read stops there if the view has changed.
const LONG_PASS: Duration = Duration::from_millis(100);
/// Redis removes an expired key within this time.
const EXPIRY_SLACK: Duration = Duration::from_millis(3);
/// Exchanges of one read pass. Then the reconciler acts, and the next pass goes on.
const EXCHANGES_MAX: usize = 16;

/// Reads the store for the reconciler, and keeps the view.
pub(crate) struct Informer {
    context: ReadContext,
    view: TrackedView,
    membership: Membership,
    sessions: Sessions,
    owners: Owners,
    resync: Resync,
    next_quick_check: Moment,
    last_pass: Moment,
    /// The last read pass stopped early so that the reconciler could act.
    stopped_early: bool,
    /// Begins when the store does not answer.
    outage: Outage,
}

impl Informer {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        quick_check_interval: Duration,
    ) -> Self {
        let context = ReadContext {
            reporter: Reporter::new(&table),
            me: table.instance().clone(),
            store,
            table,
            push: None,
            synced_at: None,
            quick_check_interval: quick_check_interval.min(QUICK_CHECK_INTERVAL_MAX),
        };
        Self {
            context,
            view: TrackedView::default(),
            membership: Membership::default(),
            sessions: Sessions::default(),
            owners: Owners::default(),
            resync: Resync::default(),
            next_quick_check: Moment::MIN,
            last_pass: Moment::MIN,
            stopped_early: false,
            outage: Outage::default(),
        }
    }

    /// The watch has subscribed, or failed to. Pushes were lost meanwhile, so everything is read again.
    pub(crate) fn subscribed(&mut self, messages: bool, changes: bool) {
        self.context.push = Some(PushSupport { messages, changes });
        self.resync_soon();
    }

    /// Reads everything again, not in step with other instances.
    pub(crate) fn resync_soon(&mut self) {
        self.resync.begin_soon(&self.context, &self.view);
    }

    /// Applies a push of the store or of another instance.
    pub(crate) fn apply(&mut self, push: &Push) {
        match push {
            Push::Message(message) => self.apply_message(message),
            Push::Changed(Changes { sessions, nodes, .. }) => {
                self.sessions_written(sessions.iter().map(String::as_str));
                self.membership.read_soon(nodes.iter().cloned());
            }
            Push::Everything => self.resync_soon(),
        }
    }

    fn apply_message(&mut self, message: &PeerMessage) {
        // An instance that joins (`Watch::step`) or leaves (`Store::withdraw`) sends an empty message: its heartbeat is
        // read.
        let empty = PeerMessage { to: message.to.clone(), ..PeerMessage::new(&message.from, None) };
        if !self.view.is_live(&message.from) || *message == empty {
            self.membership.read_soon([message.from.clone()]);
        }
        if !message.took.is_empty() {
            self.note_activity();
        }
        let (owners, mut scope) = self.owners();
        owners.apply_message(&mut scope, message);
        self.sessions_written(message.discrepancies.iter().map(EndpointId::as_str));
        let now = self.context.now();
        message.discrepancies.iter().for_each(|it| self.owners.check_at(now, it));
        // The sender found that nobody is to poll these. Every instance reads that for itself. An endpoint that is not in
        // the view was read and found gone or idle.
        let is_free = |it: &&EndpointId| self.view.contains(it) && self.view.owner(it).is_none();
        self.sessions.read_soon(message.dropped.iter().filter(is_free).cloned());
    }

    /// The keys of these sessions were written or removed.
    fn sessions_written<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if let Some(endpoint) = self.sessions.written(&self.context, &self.view, name) {
                self.resync.mark_seen(&self.view, &endpoint);
            }
        }
        self.sessions.report_invalid(&self.context);
    }

    /// Makes a read pass, if one is due.
    pub(crate) fn read_if_due(&mut self) {
        let (owners, mut scope) = self.owners();
        owners.apply_losses(&mut scope);
        let now = self.context.now();
        if now < self.due() {
            return;
        }
        self.last_pass = now;
        if let Err(error) = self.read_pass(now) {
            return self.store_failed(&error);
        }
        if let Some(away) = self.outage.end(now) {
            self.context.reporter.report(&Event::StoreReachable { away });
            self.resync_soon();
        }
        self.resync.note_epoch(&self.context, &self.view);
    }

    fn read_pass(&mut self, now: Moment) -> Result<(), StoreError> {
        let is_quick_check = now >= self.next_quick_check;
        if self.outage.is_on() {
            // One read shows whether the store is back. Everything else waits for its slot of the resync.
            self.membership.read_soon([self.context.me.clone()]);
            return self.read_heartbeats(now, true);
        }
        let mut budget = Budget::new(EXCHANGES_MAX);
        let (messages, changes) = (self.context.gets_messages(), self.context.gets_changes());
        if is_quick_check && !changes {
            self.sessions.read_some_again(&self.context);
        }
        let is_settled = self.is_settled();
        let read = self.sessions.step(&self.context, &mut self.view, is_settled, &mut budget);
        self.note_entered();
        read?;
        let (owners, mut scope) = self.owners();
        owners.step(&mut scope, now, &mut budget)?;
        if self.stops_early(now) {
            return Ok(());
        }
        let has_synced = self.context.has_synced();
        let (owners, mut scope) = self.owners();
        if is_quick_check && changes && !messages {
            owners.read_some(&mut scope)?;
        }
        let audited = is_quick_check && has_synced && owners.audit(&mut scope, now)?;
        let Self { context, view, sessions, owners, membership, .. } = self;
        let mut scope = ReadScope { context, view, sessions };
        self.resync.step(&mut scope, owners, membership, now, &mut budget)?;
        // Last, because owners may be instances that were not known before. Where every heartbeat is pushed, reading all of
        // them only tells whether the store is still there, which the audit did.
        self.read_heartbeats(now, is_quick_check && !(audited && changes))?;
        if is_quick_check {
            self.next_quick_check = now + self.context.quick_check_interval;
        }
        if self.resync.has_listed() {
            self.context.synced_at.get_or_insert(now);
        }
        self.membership.settle(&self.context, &mut self.view, now);
        Ok(())
    }

    /// Where the store is far away, the reconciler acts on what was just found before the pass goes on, which may take
    /// seconds: an owner waits for its heir. Not twice in a row, so that every pass comes to its end.
    fn stops_early(&mut self, began: Moment) -> bool {
        let is_long = self.context.now().since(began) >= LONG_PASS;
        let may_stop = self.context.has_synced() && !self.stopped_early;
        self.stopped_early = is_long && self.view.has_changed() && may_stop;
        self.stopped_early
    }

    fn read_heartbeats(&mut self, now: Moment, all: bool) -> Result<(), StoreError> {
        self.membership.read_soon(self.owners.take_unknown_instances());
        self.membership.step(&self.context, &mut self.view, now, all)
    }

    /// An owner may have announced an endpoint before this instance knew of it, so the owner is read, too.
    fn note_entered(&mut self) {
        for (at, endpoint) in self.sessions.take_entered() {
            self.resync.mark_seen(&self.view, &endpoint);
            self.owners.check_at(at, &endpoint);
        }
    }

    fn owners(&mut self) -> (&mut Owners, ReadScope<'_>) {
        let Self { context, view, sessions, owners, .. } = self;
        (owners, ReadScope { context, view, sessions })
    }

    /// The store did not answer. Logged once.
    pub(crate) fn store_failed(&mut self, error: &StoreError) {
        if self.outage.begin(self.context.now()) {
            self.context.reporter.report(&Event::StoreUnreachable { error });
        }
    }

    /// When the next read pass is due.
    pub(crate) fn due(&self) -> Moment {
        if self.context.push.is_none() {
            return Moment::MAX;
        }
        if self.outage.is_on() {
            return self.last_pass + self.context.table.timings().retry_interval();
        }
        let due = [
            self.next_quick_check,
            self.membership.due(&self.context, self.last_pass),
            self.sessions.due(),
            self.owners.due(),
            self.resync.due(),
        ];
        let due = due.into_iter().fold(Moment::MAX, Moment::min);
        // Every instance gets pushes of heartbeats, and reads them at a rate that the whole fleet can afford. Reads of this
        // instance alone need not wait.
        let has_own_reads = self.sessions.has_more() || self.resync.is_running();
        let instances = if has_own_reads { 0 } else { self.view.instance_count() };
        due.max(self.last_pass + pass_interval(instances))
    }

    /// Reads these sessions now; false when the store did not answer.
    pub(crate) fn read_sessions(&mut self, endpoints: &[EndpointId]) -> bool {
        let mut batches = endpoints.chunks(SESSIONS_AT_ONCE);
        let read = batches.try_for_each(|it| self.sessions.read(&self.context, &mut self.view, it));
        self.note_entered();
        self.note_failure(read)
    }

    /// Reads who owns these now; false when the store did not answer.
    pub(crate) fn read_owners(&mut self, endpoints: &[EndpointId]) -> bool {
        let (owners, mut scope) = self.owners();
        let read = endpoints.chunks(BATCH_MAX).try_for_each(|it| owners.read(&mut scope, it));
        self.note_failure(read)
    }

    fn note_failure(&mut self, read: Result<(), StoreError>) -> bool {
        read.map_err(|error| self.store_failed(&error)).is_ok()
    }

    /// Reads at `at` who owns this.
    pub(crate) fn check_owner_at(&mut self, at: Moment, endpoint: &EndpointId) {
        self.owners.check_at(at, endpoint);
    }

    /// Reads again who owns the endpoints that `instance` owns by the view.
    pub(crate) fn invalidate_owner(&mut self, instance: &InstanceId) {
        self.owners.invalidate(&self.view, instance, self.context.now());
    }

    /// The store says that `owner` owns this.
    pub(crate) fn owned(&mut self, endpoint: &EndpointId, owner: &InstanceId) {
        let (owners, mut scope) = self.owners();
        owners.owned(&mut scope, endpoint, owner);
    }

    /// This instance acquired it. With `fell_back` it did so because the heir had not; otherwise the heir had been there,
    /// and gave it back.
    pub(crate) fn acquired(&mut self, endpoint: &EndpointId, fell_back: bool) {
        let me = self.context.me.clone();
        self.owners.released.close(endpoint, Some(&me), fell_back);
        self.owned(endpoint, &me);
    }

    /// This instance released it, for this heir or for the heir of every instance's plan.
    pub(crate) fn released(&mut self, endpoint: &EndpointId, heir: Option<&InstanceId>) {
        let (owners, mut scope) = self.owners();
        owners.released(&mut scope, endpoint, heir);
    }

    /// Nothing is granted now, so no heir is absent.
    pub(crate) fn forget_released(&mut self) {
        self.owners.released.clear();
    }

    /// Absent heirs, and instances that acquired something, since the last call.
    pub(crate) fn take_outcomes(&mut self) -> (BTreeSet<InstanceId>, BTreeSet<InstanceId>) {
        self.owners.released.take_outcomes()
    }

    /// What an audit or a resync found different from the view, since the last call.
    pub(crate) fn take_discrepancies(&mut self) -> Vec<EndpointId> {
        std::mem::take(&mut self.owners.discrepancies)
    }

    /// Whether the last owner ended without releasing it.
    pub(crate) fn is_orphan(&self, endpoint: &EndpointId) -> bool {
        self.owners.is_orphan(&self.view, endpoint)
    }

    /// What reading sessions has changed since the last call.
    pub(crate) fn take_session_changes(&mut self) -> SessionChanges {
        self.sessions.take_changes()
    }

    /// Some instance acquires leases: more free endpoints are expected.
    pub(crate) fn note_activity(&mut self) {
        self.sessions.note_activity(self.context.now());
    }

    pub(crate) fn session(&self, endpoint: &EndpointId) -> Option<&Arc<Session>> {
        self.sessions.session(endpoint)
    }

    /// Whether the session was read and is to be polled.
    pub(crate) fn is_to_be_polled(&self, endpoint: &EndpointId) -> bool {
        self.sessions.is_to_be_polled(endpoint)
    }

    pub(crate) fn view(&self) -> &TrackedView {
        &self.view
    }

    /// Whether the view changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        self.view.take_changed()
    }

    /// Whether messages of other instances are delivered. Where they are not, leases change hands by reading.
    pub(crate) fn gets_messages(&self) -> bool {
        self.context.gets_messages()
    }

    /// Whether everything was listed once, and the store answered the last read pass.
    pub(crate) fn is_synced(&self) -> bool {
        self.context.has_synced() && !self.outage.is_on()
    }

    /// Whether the live instances have stayed the same for long enough to act.
    pub(crate) fn is_settled(&self) -> bool {
        self.membership.is_settled()
    }
}

/// The shortest time from one read pass to the next among this many live instances.
fn pass_interval(instances: usize) -> Duration {
    let slots = PASS_SLOT.saturating_mul(u32::try_from(instances).unwrap_or(u32::MAX));
    slots.clamp(PASS_INTERVAL_MIN, PASS_INTERVAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::informer::resync::Listing;
    use crate::lease::testing::Holder;
    use crate::model::Weight;

    /// One instance of a thousand, right after a read pass.
    fn one_of_many() -> Informer {
        let Holder { store, table, .. } = Holder::of(0);
        let mut informer = Informer::new(store, table, QUICK_CHECK_INTERVAL_MAX);
        informer.subscribed(true, true);
        let live: Vec<(InstanceId, Weight)> =
            (0..1_000).map(|it| (InstanceId::new(&format!("i{it}")), Weight(1))).collect();
        informer.view.set_instances(&live);
        informer.last_pass = informer.context.now();
        informer
    }

    #[test]
    fn in_a_large_fleet_heartbeats_wait_and_a_resync_and_our_own_sessions_do_not() {
        let until_next = |informer: &Informer| informer.due().since(informer.last_pass);
        let mut informer = one_of_many();
        informer.membership.read_soon([InstanceId::new("i1")]);
        assert_eq!(until_next(&informer), PASS_INTERVAL_MAX);
        informer.sessions.read_soon([EndpointId::parse("a").unwrap()]);
        assert_eq!(until_next(&informer), PASS_INTERVAL_MIN, "a session to be read");
        let mut informer = one_of_many();
        informer.resync.listing = Some(Listing::new(0, true));
        assert_eq!(until_next(&informer), PASS_INTERVAL_MIN, "a resync to go on with");
    }

    /// The reads of the whole fleet grow with its size, not with the square of it, and no instance waits for long.
    #[test]
    fn however_many_instances_hear_of_every_heartbeat_together_they_look_no_more_often() {
        for (instances, ms) in [(0, 10), (1, 10), (100, 10), (200, 20), (1_000, 100)] {
            assert_eq!(pass_interval(instances), Duration::from_millis(ms), "{instances}");
        }
        assert_eq!(pass_interval(usize::MAX), PASS_INTERVAL_MAX);
    }
}
