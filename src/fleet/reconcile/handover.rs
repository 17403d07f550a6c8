//! Which leases does this instance give to another (R8)? The heir asks, the owner lets the running poll end, releases, and
//! announces it. Releases in the store and in the table, and sends messages.

use std::collections::BTreeSet;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::Informer;
use crate::fleet::placement::Plan;
use crate::fleet::reconcile::request::ASK_AGAIN;
use crate::fleet::reconcile::{MoveContext, MoveScope, PAUSE_MAX};
use crate::lease::table::OwnershipTable;
use crate::model::{EndpointId, InstanceId, Weight};
use crate::store::{BATCH_MAX, PeerMessage};

/// An owner that was asked remembers it for this long.
const ASK_REMEMBERED: Duration = Duration::from_secs(4);
/// The stored asks are read this often while the plan gives nothing away.
const ASKS_READ_EVERY: Duration = Duration::from_secs(3);
/// Where messages are not delivered, the stored asks are read this often, and up to half as long again.
const ASKS_READ_WITHOUT_MESSAGES: Duration = Duration::from_millis(400);
/// An owner that is asked again and again invalidates its view not more often than this.
const INVALIDATE_INTERVAL: Duration = Duration::from_secs(3);
/// An absent heir is given nothing for this long, then for twice as long, and so on.
const ABSENT_PAUSE: Duration = Duration::from_secs(30);

/// Why a lease is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseReason {
    Rebalance,
    Drain,
    Paused,
    Removed,
}

impl ReleaseReason {
    /// Whether another instance is to poll it.
    fn is_move(self) -> bool {
        matches!(self, Self::Rebalance | Self::Drain)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rebalance => "rebalance",
            Self::Drain => "drain",
            Self::Paused => "paused",
            Self::Removed => "removed",
        }
    }
}

/// The requests of other instances, and the leases that this instance is about to release.
pub(super) struct Handover {
    /// The leases that each instance requested, and when.
    asks: FnvHashMap<EndpointId, (InstanceId, Moment)>,
    /// When the stored asks were last read, in case a message was lost.
    asks_read_at: Moment,
    /// Leases that are released when their poll has ended.
    leaving: FnvHashMap<EndpointId, (ReleaseReason, Option<InstanceId>)>,
    /// Heirs that did not acquire a lease that was released for them: given nothing for a while.
    absent: Backoff<InstanceId>,
    /// When an owner of the view was last invalidated, and how often in a row.
    invalidated: (Moment, u32),
}

impl Default for Handover {
    fn default() -> Self {
        Self {
            asks: FnvHashMap::default(),
            asks_read_at: Moment::MIN,
            leaving: FnvHashMap::default(),
            absent: Backoff::new(ABSENT_PAUSE, PAUSE_MAX),
            invalidated: (Moment::MIN, 0),
        }
    }
}

impl Handover {
    /// When the stored asks are read next.
    pub(super) fn due(&self, context: &MoveContext, informer: &Informer, plan: &Plan) -> Moment {
        if plan.heirs.is_empty() {
            return Moment::MAX;
        }
        self.asks_read_at + asks_read_every(context, informer)
    }

    /// Whether a lease is about to be released.
    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    pub(super) fn is_absent(&self, heir: &InstanceId, now: Moment) -> bool {
        self.absent.is_paused(heir, now)
    }

    /// This heir did not acquire a lease that was released for it.
    pub(super) fn heir_absent(&mut self, heir: &InstanceId, now: Moment) {
        self.absent.fail(heir, now);
    }

    /// This heir has acquired some lease.
    pub(super) fn heir_active(&mut self, heir: &InstanceId) {
        self.absent.end(heir);
    }

    /// Nobody is to poll it any more: it is released when its poll has ended.
    pub(super) fn leave(
        &mut self,
        table: &OwnershipTable,
        endpoint: &EndpointId,
        reason: ReleaseReason,
    ) {
        table.drain(endpoint);
        if table.holds(endpoint) {
            self.leaving.insert(endpoint.clone(), (reason, None));
        }
    }

    /// R10: calls every hand-over off. An heir that asked before may hang by the time a lease could be released for it.
    pub(super) fn call_off_all(&mut self, table: &OwnershipTable) {
        self.asks.clear();
        self.call_off(table, |_, _| true);
    }

    /// R8: a lease that the plan no longer gives away stays, unless its release was sent.
    pub(super) fn call_off_unplanned(&mut self, table: &OwnershipTable, plan: &Plan) {
        self.call_off(table, |endpoint, heir| plan.heirs.get(endpoint) != heir);
    }

    /// Leases that were to move and are `kept` after all may be polled again.
    fn call_off(
        &mut self,
        table: &OwnershipTable,
        kept: impl Fn(&EndpointId, Option<&InstanceId>) -> bool,
    ) {
        self.leaving.retain(|endpoint, (reason, heir)| {
            let kept = reason.is_move() && kept(endpoint, heir.as_ref());
            if kept {
                table.undrain(endpoint);
            }
            !kept
        });
    }

    /// Remembers what this message asks for.
    pub(super) fn note_asks(&mut self, scope: &mut MoveScope<'_>, message: &PeerMessage) {
        let (now, table) = (scope.context.now(), &scope.context.table);
        let mut asked_before = false;
        for endpoint in message.wants.iter().filter(|it| table.holds(it)) {
            let ask = (message.from.clone(), now);
            let before = self.asks.insert(endpoint.clone(), ask);
            asked_before |= before.is_some_and(|it| it.0 == message.from);
        }
        // The requests of an absent heir stay unanswered on purpose.
        if asked_before && !self.is_absent(&message.from, now) {
            self.invalidate(scope.informer, &message.from, now);
        }
    }

    /// The asker goes on requesting leases that the plan does not give to it, so one of the two views is wrong. This instance
    /// reads again which leases the asker owns. If that does not help, it resyncs, ever less often.
    fn invalidate(&mut self, informer: &mut Informer, asker: &InstanceId, now: Moment) {
        let (last, times) = self.invalidated;
        if now.since(last) < INVALIDATE_INTERVAL {
            return;
        }
        let times = if now.since(last) < 3 * INVALIDATE_INTERVAL { times + 1 } else { 1 };
        self.invalidated = (now, times);
        informer.invalidate_owner(asker);
        if times > 1 && times.is_power_of_two() {
            informer.resync_soon();
        }
    }

    /// Reads the stored asks of the heirs, in case a message was lost; now and then those of all instances, because the plan
    /// may be wrong.
    pub(super) fn read_asks(&mut self, scope: &mut MoveScope<'_>) {
        let context = scope.context;
        let (now, me) = (context.now(), &context.me);
        let heirs: BTreeSet<&InstanceId> = scope.plan.heirs.values().collect();
        let (every, askers): (_, Vec<InstanceId>) = if heirs.is_empty() {
            let others = scope.informer.view().instances().map(|it| it.0);
            (ASKS_READ_EVERY, others.filter(|it| *it != me).cloned().collect())
        } else {
            let every = asks_read_every(context, scope.informer);
            (every, heirs.into_iter().cloned().collect())
        };
        if now < self.asks_read_at + every {
            return;
        }
        self.asks_read_at = now;
        match context.store.asks(me, &askers, context.timeout()) {
            Ok(messages) => messages.iter().for_each(|it| self.note_asks(scope, it)),
            Err(error) => scope.informer.store_failed(&error),
        }
    }

    /// R8: an heir that asks gets the leases that the plan gives to it, once the running poll has ended.
    pub(super) fn hand_over(&mut self, scope: &MoveScope<'_>) {
        if self.asks.is_empty() {
            return;
        }
        let (now, table) = (scope.context.now(), &scope.context.table);
        let weight = scope.informer.view().weight(&scope.context.me);
        let is_draining = weight == Some(Weight(0));
        let reason = if is_draining { ReleaseReason::Drain } else { ReleaseReason::Rebalance };
        self.asks.retain(|endpoint, (heir, asked_at)| {
            if now.since(*asked_at) >= ASK_REMEMBERED {
                return false;
            }
            if self.absent.is_paused(heir, now) {
                return false;
            }
            if scope.plan.heirs.get(endpoint) != Some(heir) {
                return true; // the plan may be older than that of the asker
            }
            if table.drain(endpoint) {
                self.leaving.insert(endpoint.clone(), (reason, Some(heir.clone())));
            }
            false
        });
    }

    /// Releases the leases under which no poll runs any more, and announces it.
    pub(super) fn release_drained(&mut self, context: &MoveContext, informer: &mut Informer) {
        let tenures = context.table.take_drained(context.drain_timeout);
        let mut failure = None;
        for batch in tenures.chunks(BATCH_MAX) {
            let mut by_heir: FnvHashMap<Option<InstanceId>, PeerMessage> = FnvHashMap::default();
            let mut released = Vec::new();
            for tenure in batch {
                let endpoint = &tenure.endpoint;
                let leaving = self.leaving.remove(endpoint);
                let (reason, heir) = leaving.unwrap_or((ReleaseReason::Rebalance, None));
                informer.released(endpoint, heir.as_ref());
                let message = by_heir.entry(heir.clone()).or_insert_with(|| PeerMessage {
                    heir: heir.clone(),
                    ..PeerMessage::new(&context.me, None)
                });
                let is_move = reason.is_move();
                let list = if is_move { &mut message.freed } else { &mut message.dropped };
                list.push(endpoint.clone());
                released.push((tenure, reason, heir));
            }
            let messages: Vec<PeerMessage> = by_heir.into_values().collect();
            // A store that did not answer is not asked again for each further batch.
            failure = failure.or_else(|| {
                context
                    .store
                    .release(&context.table.release_request().context, batch, &messages)
                    .err()
            });
            let gone = released.iter().filter(|it| it.1 == ReleaseReason::Removed);
            let gone: Vec<EndpointId> = gone.map(|it| it.0.endpoint.clone()).collect();
            if failure.is_none() && !gone.is_empty() {
                // If this fails, an unused result stays behind.
                let _ = context.store.retire(&gone, context.timeout());
            }
            for (tenure, reason, heir) in released {
                let (reason, heir) = (reason.name(), heir.as_ref());
                context.reporter.report(&Event::LeaseReleased { tenure, reason, heir });
                if let Some(error) = &failure {
                    context
                        .reporter
                        .report(&Event::LeaseFailed { endpoint: &tenure.endpoint, error });
                }
            }
        }
    }
}

/// How often an owner that gives something away reads the stored asks.
fn asks_read_every(context: &MoveContext, informer: &Informer) -> Duration {
    if informer.gets_messages() {
        ASK_AGAIN
    } else {
        context.own_period(ASKS_READ_WITHOUT_MESSAGES)
    }
}
