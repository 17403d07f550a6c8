//! Which instance owns which endpoint? Reads owners of leases, and writes them into the view. Drops a cached session when
//! another instance owns it.
//!
//! Instances announce what they acquire and release. An announcement is applied while it fits the view; where it
//! contradicts the view, the owner is read from the store. The audit repairs what was missed.

use std::collections::BTreeSet;
use std::time::Duration;

use fnv::FnvHashSet;

use crate::clock::Moment;
use crate::fleet::informer::EXPIRY_SLACK;
use crate::fleet::informer::audit::Audit;
use crate::fleet::informer::context::{Budget, ReadContext, ReadScope};
use crate::fleet::informer::released_leases::ReleasedLeases;
use crate::fleet::view::View;
use crate::model::{EndpointId, InstanceId};
use crate::store::{BATCH_MAX, PeerMessage, StoreError};

/// An heir that asked is alive, but may be slow: it gets this long to acquire a lease that was released for it …
const HEIR_PATIENCE: Duration = Duration::from_secs(2);
/// … and this long where it may not get the message, or where resyncs keep it busy.
const UNTOLD_HEIR_PATIENCE: Duration = Duration::from_secs(5);
/// Where messages are not delivered, owners are read in turn at every quick check: this many by all instances together,
/// which costs a server about a sixtieth of its time.
const OWNERS_READ_BY_ALL: usize = 20_000;
/// The instance that is next in line for a lease reads its owner this long after a grant was announced.
const CHECK_AFTER_GRANT: Duration = Duration::from_millis(250);

/// `from` announced the owner that `endpoint` has now. The instance that is next in line reads
/// it at `check_at`.
struct Announced<'a> {
    endpoint: &'a EndpointId,
    from: &'a InstanceId,
    owner: Option<&'a InstanceId>,
    check_at: Moment,
}

/// What is known about owners, and which of them are to be read. The owners themselves are in the view.
#[derive(Default)]
pub(super) struct Owners {
    /// Leases whose owner is to be read, and when.
    checks: BTreeSet<(Moment, EndpointId)>,
    /// Leases that will end unless they are renewed, and when (R9).
    ends: BTreeSet<(Moment, EndpointId)>,
    /// Leases that were seen to end.
    lapsed: FnvHashSet<EndpointId>,
    pub(super) released: ReleasedLeases,
    audit: Audit,
    /// Where in the view the owners are read next, where messages are not delivered.
    next_place: usize,
    /// Endpoints that an audit or a resync found different from the view; other instances should read them, too.
    pub(super) discrepancies: Vec<EndpointId>,
    /// Owners whose heartbeat this instance has not read.
    unknown_instances: BTreeSet<InstanceId>,
    /// How many leases this instance had lost when it last looked.
    losses: u64,
}

impl Owners {
    /// When the next step has something to do.
    pub(super) fn due(&self) -> Moment {
        if !self.unknown_instances.is_empty() {
            return Moment::MIN;
        }
        let times = self.checks.first().into_iter().chain(self.ends.first());
        times.map(|it| it.0).min().unwrap_or(Moment::MAX)
    }

    /// Reads the owners whose time has come, and the leases that may have ended.
    pub(super) fn step(
        &mut self,
        scope: &mut ReadScope<'_>,
        now: Moment,
        budget: &mut Budget,
    ) -> Result<(), StoreError> {
        loop {
            let (due, endpoints) = due(&self.checks, now);
            if due.is_empty() || !budget.spend() {
                break;
            }
            self.read(scope, &endpoints)?;
            for it in &due {
                self.checks.remove(it);
            }
        }
        loop {
            let (due, mut endpoints) = due(&self.ends, now);
            if due.is_empty() || !budget.spend() {
                break;
            }
            endpoints.retain(|it| !scope.view.is_free(it));
            self.read_ends(scope, &endpoints)?;
            for it in &due {
                self.ends.remove(it);
            }
            self.lapsed.extend(endpoints.into_iter().filter(|it| scope.view.is_free(it)));
        }
        Ok(())
    }

    /// Applies what another instance announced about leases.
    pub(super) fn apply_message(&mut self, scope: &mut ReadScope<'_>, message: &PeerMessage) {
        let (context, from) = (scope.context, &message.from);
        let now = context.now();
        if !message.took.is_empty() {
            self.released.note_active(from);
        }
        for endpoint in message.took.iter().chain(&message.freed).chain(&message.dropped) {
            self.released.note_owner(endpoint, from);
        }
        let mut apply = |owners: &mut Self, endpoint: &EndpointId, owner, check_at| {
            let announced = Announced { endpoint, from, owner, check_at };
            owners.apply_announced(scope, &announced);
        };
        for endpoint in &message.took {
            apply(self, endpoint, Some(from), now + CHECK_AFTER_GRANT);
        }
        // Released for a named heir: treat the heir as owner until it acquires or its time is up.
        let until = now + heir_patience(context);
        for endpoint in &message.freed {
            if let Some(heir) = message.heir.as_ref().filter(|it| **it != context.me) {
                self.released.insert(endpoint, from, heir, (now, until));
            }
            apply(self, endpoint, message.heir.as_ref(), until);
        }
        for endpoint in &message.dropped {
            apply(self, endpoint, None, now);
        }
    }

    fn apply_announced(&mut self, scope: &mut ReadScope<'_>, announced: &Announced<'_>) {
        let Announced { endpoint, from, owner, check_at } = *announced;
        if scope.context.table.holds(endpoint) || !scope.view.contains(endpoint) {
            return; // this instance knows better, or does not know the endpoint
        }
        let known = scope.view.owner(endpoint);
        let contradicts = known.is_some_and(|it| it != from && scope.view.is_live(it));
        if contradicts && known != owner {
            return self.check_at(scope.context.now(), endpoint);
        }
        let owner = owner.filter(|it| **it != scope.context.me);
        self.set_owner(scope, endpoint, owner);
        if owner.is_some() && scope.view.is_next_in_line(&scope.context.me, endpoint) {
            self.check_at(check_at, endpoint);
        }
    }

    fn set_owner(
        &mut self,
        scope: &mut ReadScope<'_>,
        endpoint: &EndpointId,
        owner: Option<&InstanceId>,
    ) {
        scope.view.set_owner(endpoint, owner);
        let Some(owner) = owner else {
            return scope.sessions.read_if_free(scope.context, endpoint);
        };
        self.lapsed.remove(endpoint);
        if *owner != scope.context.me {
            scope.sessions.forget(endpoint);
        }
    }

    /// The store says that `owner` owns this.
    pub(super) fn owned(
        &mut self,
        scope: &mut ReadScope<'_>,
        endpoint: &EndpointId,
        owner: &InstanceId,
    ) {
        if *owner != scope.context.me && !scope.view.is_live(owner) {
            self.unknown_instances.insert(owner.clone());
        }
        self.set_owner(scope, endpoint, Some(owner));
    }

    /// This instance released it, for this heir or for the heir of every instance's plan.
    pub(super) fn released(
        &mut self,
        scope: &mut ReadScope<'_>,
        endpoint: &EndpointId,
        heir: Option<&InstanceId>,
    ) {
        scope.sessions.forget(endpoint);
        scope.view.set_owner(endpoint, heir);
        if let Some(heir) = heir {
            let now = scope.context.now();
            let until = now + heir_patience(scope.context);
            self.released.insert(endpoint, &scope.context.me, heir, (now, until));
            self.check_at(until, endpoint);
        }
    }

    pub(super) fn take_unknown_instances(&mut self) -> BTreeSet<InstanceId> {
        std::mem::take(&mut self.unknown_instances)
    }

    /// Reads again who owns the endpoints that `instance` owns by the view.
    pub(super) fn invalidate(&mut self, view: &View, instance: &InstanceId, now: Moment) {
        self.checks.extend(view.owned_by(instance).into_iter().map(|it| (now, it)));
    }

    /// Reads at `at` who owns this.
    pub(super) fn check_at(&mut self, at: Moment, endpoint: &EndpointId) {
        self.checks.insert((at, endpoint.clone()));
    }

    /// Leases that this instance lost have no owner in the view any more.
    pub(super) fn apply_losses(&mut self, scope: &mut ReadScope<'_>) {
        let losses = scope.context.table.losses();
        if std::mem::replace(&mut self.losses, losses) == losses {
            return;
        }
        for endpoint in scope.view.owned_by(&scope.context.me) {
            if !scope.context.table.holds(&endpoint) {
                scope.sessions.forget(&endpoint);
                scope.view.set_owner(&endpoint, None);
            }
        }
    }

    /// Reads who owns these now, at most [`BATCH_MAX`].
    pub(super) fn read(
        &mut self,
        scope: &mut ReadScope<'_>,
        endpoints: &[EndpointId],
    ) -> Result<(), StoreError> {
        let asked_at = scope.context.now();
        let found = scope.context.store.owners(endpoints, scope.context.timeout())?;
        for (endpoint, owner) in endpoints.iter().zip(&found) {
            self.apply(scope, endpoint, owner.as_ref(), asked_at);
        }
        Ok(())
    }

    /// Where changes are pushed and messages are not delivered, reads the owners in turn.
    pub(super) fn read_some(&mut self, scope: &mut ReadScope<'_>) -> Result<(), StoreError> {
        let count = OWNERS_READ_BY_ALL / scope.view.instance_count().max(1);
        let mut from = if self.next_place < scope.view.slot_count() { self.next_place } else { 0 };
        let some = scope.view.page(&mut from, count.max(1));
        for batch in some.chunks(BATCH_MAX) {
            self.read(scope, batch)?;
        }
        self.next_place = from;
        Ok(())
    }

    /// Reads the owners of leases that expire soon, and when each lease ends (R9).
    fn read_ends(
        &mut self,
        scope: &mut ReadScope<'_>,
        endpoints: &[EndpointId],
    ) -> Result<(), StoreError> {
        let asked_at = scope.context.now();
        let found = scope.context.store.leases(endpoints, scope.context.timeout())?;
        for (endpoint, lease) in endpoints.iter().zip(found) {
            let owner = lease.as_ref().map(|it| &it.value);
            self.apply(scope, endpoint, owner, asked_at);
            let left = lease.map(|it| it.left).filter(|it| *it < least_left(scope.context));
            if let Some(left) = left.filter(|_| !scope.view.is_free(endpoint)) {
                self.ends.insert((asked_at + left + EXPIRY_SLACK, endpoint.clone()));
            }
        }
        Ok(())
    }

    /// Applies the owner that the store named at `asked_at` or later.
    fn apply(
        &mut self,
        scope: &mut ReadScope<'_>,
        endpoint: &EndpointId,
        found: Option<&InstanceId>,
        asked_at: Moment,
    ) {
        // A lease that this instance holds stays its own, also when the store has just forgotten it and a renewal follows.
        if scope.context.table.holds(endpoint) {
            self.released.close(endpoint, Some(&scope.context.me), false);
            return scope.view.set_owner(endpoint, Some(&scope.context.me));
        }
        let heir = self.released.heir(endpoint, asked_at).filter(|_| found.is_none()).cloned();
        if heir.is_some() {
            return self.set_owner(scope, endpoint, heir.as_ref());
        }
        if let Some(owner) = found.filter(|it| scope.view.owner(endpoint) != Some(*it)) {
            self.released.note_active(owner);
        }
        // An heir that is gone is not absent, and neither is the heir of an endpoint that nobody is to poll any more.
        let heir_lives = scope.view.owner(endpoint).is_some_and(|it| scope.view.is_live(it));
        self.released.close(endpoint, found, heir_lives && scope.view.contains(endpoint));
        match found {
            // R7: under our name, but not held: the reply to the grant was lost, or we lost it. Free to us.
            Some(owner) if *owner == scope.context.me => self.set_owner(scope, endpoint, None),
            Some(owner) => self.owned(scope, endpoint, owner),
            // A dead owner left it. It is free, and the view keeps the owner to show why.
            None if scope.view.is_free(endpoint) && self.is_orphan(scope.view, endpoint) => (),
            None => self.set_owner(scope, endpoint, None),
        }
    }

    /// Whether the last owner ended without releasing it.
    pub(super) fn is_orphan(&self, view: &View, endpoint: &EndpointId) -> bool {
        let is_dead = view.owner(endpoint).is_some_and(|it| !view.is_live(it));
        is_dead || self.lapsed.contains(endpoint)
    }

    /// Reads the owners of a page of the leases that this instance is next in line for, and whether each owner still renews:
    /// one lease of each at every quick check. An owner that stops renewing one lease, and so probably all, is seen long
    /// before the first of them ends (R9). False when there was nothing to read.
    pub(super) fn audit(
        &mut self,
        scope: &mut ReadScope<'_>,
        now: Moment,
    ) -> Result<bool, StoreError> {
        let context = scope.context;
        let period = context.table.timings().lease.ttl * 2;
        let page = self.audit.page(scope.view, &context.me, now, period);
        for batch in page.endpoints.chunks(BATCH_MAX) {
            self.compare(scope, batch, Self::read)?;
        }
        let samples = self.audit.samples(scope.view);
        for batch in samples.chunks(BATCH_MAX) {
            let expiring = context.store.expiring(batch, least_left(context), context.timeout())?;
            self.follow_expiring(scope, expiring)?;
        }
        self.audit.complete(&page);
        Ok(!samples.is_empty())
    }

    /// Reads these, and notes as discrepancies the endpoints whose owner changed: other instances may have missed it, too.
    fn compare(
        &mut self,
        scope: &mut ReadScope<'_>,
        endpoints: &[EndpointId],
        read: ReadOwners,
    ) -> Result<(), StoreError> {
        let before: Vec<_> = endpoints.iter().map(|it| scope.view.owner(it).cloned()).collect();
        read(self, scope, endpoints)?;
        let changed =
            endpoints.iter().zip(before).filter(|it| scope.view.owner(it.0) != it.1.as_ref());
        self.discrepancies.extend(changed.map(|it| it.0.clone()));
        Ok(())
    }

    /// Reads when the leases of these owners end, as far as this instance is next in line for them.
    fn follow_expiring(
        &mut self,
        scope: &mut ReadScope<'_>,
        expiring: Vec<EndpointId>,
    ) -> Result<(), StoreError> {
        if expiring.is_empty() {
            return Ok(());
        }
        let owners: BTreeSet<InstanceId> =
            expiring.iter().filter_map(|it| scope.view.owner(it).cloned()).collect();
        let mut expiring: BTreeSet<EndpointId> = expiring.into_iter().collect();
        for it in &owners {
            let theirs = scope.view.owned_by(it).into_iter();
            expiring.extend(theirs.filter(|it| scope.view.is_next_in_line(&scope.context.me, it)));
        }
        let known: FnvHashSet<EndpointId> = self.ends.iter().map(|it| it.1.clone()).collect();
        let expiring: Vec<EndpointId> =
            expiring.into_iter().filter(|it| !known.contains(it)).collect();
        for batch in expiring.chunks(BATCH_MAX) {
            self.compare(scope, batch, Self::read_ends)?;
        }
        Ok(())
    }
}

type ReadOwners = fn(&mut Owners, &mut ReadScope<'_>, &[EndpointId]) -> Result<(), StoreError>;

/// How long an heir has to acquire a lease that was released for it.
fn heir_patience(context: &ReadContext) -> Duration {
    let is_told = context.gets_messages() && context.gets_changes();
    if is_told { HEIR_PATIENCE } else { UNTOLD_HEIR_PATIENCE }
}

/// A lease that its owner renews in time always lasts for at least this long.
fn least_left(context: &ReadContext) -> Duration {
    context.table.timings().lease.ttl * 2 / 3
}

/// A batch of the entries whose time has come, and their endpoints.
fn due(
    times: &BTreeSet<(Moment, EndpointId)>,
    now: Moment,
) -> (Vec<(Moment, EndpointId)>, Vec<EndpointId>) {
    let due = times.iter().take_while(|it| it.0 <= now).take(BATCH_MAX);
    due.cloned().map(|it| (it.clone(), it.1)).unzip()
}
