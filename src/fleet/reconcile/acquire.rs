//! Which free leases does this instance acquire? Those that the plan gives to it, and those whose heir did not come in time
//! (FR-014). Acquires in the store and in the table, and tells dispatch.

use std::sync::Arc;
use std::time::Duration;

use fnv::{FnvHashMap, FnvHashSet};

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::Informer;
use crate::fleet::lease_change::LeaseChange;
use crate::fleet::placement::Plan;
use crate::fleet::reconcile::MoveScope;
use crate::fleet::reconcile::fallback_timer::FallbackTimer;
use crate::fleet::reconcile::handover::Handover;
use crate::fleet::reconcile::request::Requests;
use crate::lease::table::{Gained, OwnershipTable};
use crate::model::{EndpointId, InstanceId};
use crate::store::{Acquire, BATCH_MAX, Grant};

/// How many leases one step acquires; then requests and messages of others come first.
const AT_ONCE: usize = 4 * BATCH_MAX;

/// A lease that could not be acquired is tried again after this.
const RETRY_FAILED: Duration = Duration::from_secs(1);

/// How far this instance has come with the plan. A pass goes through what the plan gives to it, then through what is
/// overdue, and begins again: a lease that could not be acquired may be free by then.
#[derive(Default)]
pub(super) struct Acquisition {
    /// How many leases of `plan.acquire` this pass has tried.
    tried: usize,
    /// Leases of other heirs that did not come in time.
    overdue: Vec<EndpointId>,
    /// When the next lease of another heir may be overdue.
    next_fallback: Moment,
    fallback_timer: FallbackTimer,
    /// Leases that could not be acquired, when each is tried again, and why.
    failing: FnvHashMap<EndpointId, (Moment, String)>,
    /// The pass has more to acquire.
    pub(super) unfinished: bool,
}

impl Acquisition {
    /// When the next step has something to do.
    pub(super) fn due(&self, plan: &Plan) -> Moment {
        match self.unfinished {
            true => Moment::MIN,
            false if plan.fallback.is_empty() => Moment::MAX,
            false => self.next_fallback,
        }
    }

    /// Acquires the free leases that the plan gives to this instance, and overdue leases of other heirs.
    pub(super) fn step(
        &mut self,
        scope: &mut MoveScope<'_>,
        requests: &mut Requests,
        handover: &Handover,
    ) {
        let mut wanted = self.ours(&scope.context.table, scope.plan);
        let overdue = self.overdue(scope, handover, AT_ONCE - wanted.len());
        let overdue: FnvHashSet<EndpointId> = overdue.collect();
        wanted.extend(overdue.iter().cloned());
        self.unfinished = self.tried < scope.plan.acquire.len() || !self.overdue.is_empty();
        for batch in wanted.chunks(BATCH_MAX) {
            // A poller must know what to poll: a session that is not to be polled is not acquired.
            if !scope.informer.read_sessions(batch) {
                return self.end_pass();
            }
            let is_to_be_polled = |it: &&EndpointId| scope.informer.is_to_be_polled(it);
            let batch: Vec<EndpointId> = batch.iter().filter(is_to_be_polled).cloned().collect();
            if !batch.is_empty() && !self.acquire_batch(scope, requests, &batch, &overdue) {
                return self.end_pass();
            }
        }
    }

    /// Acquires no more in this pass: it is paused, or [`Self::acquire_batch`] or a read of sessions failed.
    fn end_pass(&mut self) {
        (self.unfinished, self.tried) = (false, 0);
        self.overdue.clear();
    }

    /// Nobody can acquire anything now, so no heir is slow.
    pub(super) fn pause(&mut self) {
        self.fallback_timer.restart();
        self.next_fallback = Moment::MIN;
        self.end_pass();
    }

    /// There is a new plan.
    pub(super) fn begin_plan(&mut self, plan: &Plan) {
        self.tried = 0;
        self.overdue.clear();
        self.next_fallback = Moment::MIN;
        self.fallback_timer.keep(&plan.fallback);
        if !self.failing.is_empty() {
            let fallback = plan.fallback.iter().map(|it| &it.endpoint);
            let wanted: FnvHashSet<&EndpointId> = plan.acquire.iter().chain(fallback).collect();
            self.failing.retain(|it, _| wanted.contains(it));
        }
    }

    /// This heir has just acquired some lease.
    pub(super) fn heir_active(&mut self, heir: &InstanceId, now: Moment) {
        self.fallback_timer.note_active(heir, now);
    }

    /// R8: leases that were asked for and released since the plan was made come next, however much else there is to
    /// acquire: every other instance leaves them to this one. No new plan is needed for that.
    pub(super) fn join_freed(&self, plan: &mut Plan, informer: &Informer) {
        let view = informer.view();
        if !view.has_changed() {
            return;
        }
        let freed = |it: &EndpointId| view.is_free(it) && view.contains(it);
        let freed = plan.ask.extract_if(.., |it| freed(&it.1)).map(|it| it.1);
        let freed: Vec<EndpointId> = freed.collect();
        plan.acquire.splice(self.tried..self.tried, freed);
    }

    /// The next leases that the plan gives to this instance, as many as one step acquires.
    fn ours(&mut self, table: &OwnershipTable, plan: &Plan) -> Vec<EndpointId> {
        let now = table.now();
        if self.tried >= plan.acquire.len() && self.overdue.is_empty() {
            self.tried = 0;
        }
        let is_early = |it: &EndpointId| self.failing.get(it).is_some_and(|it| now < it.0);
        let mut wanted = Vec::new();
        for it in &plan.acquire[self.tried..] {
            if wanted.len() == AT_ONCE {
                break;
            }
            self.tried += 1;
            if !table.holds(it) && !is_early(it) {
                wanted.push(it.clone());
            }
        }
        wanted
    }

    /// R8: at most `count` leases of other heirs that did not come in time, once this instance has tried its own. Their
    /// owners are read first, so that no two instances acquire the same lease.
    fn overdue(
        &mut self,
        scope: &mut MoveScope<'_>,
        handover: &Handover,
        count: usize,
    ) -> impl Iterator<Item = EndpointId> + use<> {
        let (table, now) = (&scope.context.table, scope.context.now());
        if self.tried < scope.plan.acquire.len() {
            return vec![].into_iter();
        }
        // Not before all of them were read, or a pass that takes long would never come to its end.
        if self.overdue.is_empty() && now >= self.next_fallback {
            self.find_overdue(scope, handover, now);
        }
        let rest = self.overdue.len().saturating_sub(count);
        let mut overdue = self.overdue.split_off(rest);
        overdue.retain(|it| !table.holds(it));
        if !scope.informer.read_owners(&overdue) {
            overdue.clear();
        }
        let view = scope.informer.view();
        overdue.retain(|it| view.contains(it) && view.is_free(it));
        overdue.into_iter()
    }

    fn find_overdue(&mut self, scope: &MoveScope<'_>, handover: &Handover, now: Moment) {
        self.next_fallback = Moment::MAX;
        // An owner may have been found since the plan was made.
        let view = scope.informer.view();
        for it in scope.plan.fallback.iter().filter(|it| view.is_free(&it.endpoint)) {
            let failing = self.failing.get(&it.endpoint).map_or(now, |it| it.0);
            let would_know = scope.informer.gets_messages() || handover.is_absent(&it.heir, now);
            let due = self.fallback_timer.due(it, now, would_know).max(failing);
            if now >= due {
                self.overdue.push(it.endpoint.clone());
            } else {
                self.next_fallback = self.next_fallback.min(due);
            }
        }
        if !self.overdue.is_empty() {
            // Those that cannot be acquired are tried again.
            self.next_fallback = self.next_fallback.min(now + RETRY_FAILED);
        }
    }

    /// False when the store did not answer, or changed its epoch twice: this pass acquires no more.
    fn acquire_batch(
        &mut self,
        scope: &mut MoveScope<'_>,
        requests: &mut Requests,
        endpoints: &[EndpointId],
        overdue: &FnvHashSet<EndpointId>,
    ) -> bool {
        let context = scope.context;
        // R5: if the epoch changed in between, the request is sent once more, at once.
        for _ in 0..2 {
            let request = context.table.request();
            let reply = match context.store.acquire(&request.context, endpoints) {
                Ok(reply) => reply,
                Err(error) => {
                    let error = error.to_string();
                    endpoints.iter().for_each(|it| self.failed(scope, requests, it, &error));
                    return false;
                }
            };
            let (gained, anomaly) = context.table.granted(&request, endpoints, &reply);
            if let Some(ahead) = anomaly.ran_ahead {
                context.reporter.report(&Event::StoreClock { ahead });
            }
            if !gained.is_empty() {
                scope.informer.note_activity();
            }
            let polled_at = when_last_polled(scope, &gained);
            for (it, polled_at_ms) in gained.into_iter().zip(polled_at) {
                let fell_back = overdue.contains(&it.tenure.endpoint);
                begin(scope, requests, it, polled_at_ms, fell_back);
            }
            if let Some(answers) = reply.answer {
                self.note_refusals(scope, requests, endpoints, &answers);
                return scope.informer.is_synced();
            }
        }
        false
    }

    fn note_refusals(
        &mut self,
        scope: &mut MoveScope<'_>,
        requests: &mut Requests,
        endpoints: &[EndpointId],
        answers: &[Acquire],
    ) {
        for (endpoint, answer) in endpoints.iter().zip(answers) {
            let mut failed = |error: &str| self.failed(scope, requests, endpoint, error);
            match answer {
                Acquire::Granted { .. } | Acquire::HoldOff => (),
                Acquire::NoHeartbeat => failed("this instance has no heartbeat"),
                Acquire::Late => failed("the question arrived late"),
                Acquire::Failed(why) => failed(why),
                Acquire::HeldBy(owner) => {
                    let owner_id = owner.as_str();
                    let event = Event::LeaseRefused { endpoint, owner: owner_id };
                    scope.context.reporter.report(&event);
                    scope.informer.owned(endpoint, owner);
                    if scope.informer.view().is_free(endpoint) {
                        // The owner has a heartbeat in the store but not in the view: do not try again at once.
                        let next = scope.context.now() + RETRY_FAILED;
                        self.failing.insert(
                            endpoint.clone(),
                            (next, "the store names an owner that is dead by the view".into()),
                        );
                    }
                }
            }
        }
    }

    /// Logs a failure once per change, and tries again after `RETRY_FAILED` (1 s).
    fn failed(
        &mut self,
        scope: &MoveScope<'_>,
        requests: &mut Requests,
        endpoint: &EndpointId,
        error: &str,
    ) {
        let now = scope.context.now();
        let next = now + RETRY_FAILED;
        requests.failed(endpoint, now);
        let before = self.failing.insert(endpoint.clone(), (next, error.into()));
        if before.is_none_or(|it| it.1 != error) {
            scope.context.reporter.report(&Event::LeaseFailed { endpoint, error: &error });
        }
    }
}

/// When each endpoint was last polled, so that a new owner keeps the interval. Without an answer the interval begins anew.
fn when_last_polled(scope: &mut MoveScope<'_>, gained: &[Gained]) -> Vec<Option<u64>> {
    let endpoints: Vec<EndpointId> = gained.iter().map(|it| it.tenure.endpoint.clone()).collect();
    if endpoints.is_empty() {
        return vec![];
    }
    let polled_at = scope.context.store.last_polled(&endpoints, scope.context.timeout());
    polled_at.unwrap_or_else(|error| {
        scope.informer.store_failed(&error);
        vec![None; endpoints.len()]
    })
}

/// Tells dispatch to poll under a new lease.
fn begin(
    scope: &mut MoveScope<'_>,
    requests: &mut Requests,
    gained: Gained,
    polled_at_ms: Option<u64>,
    fell_back: bool,
) {
    let Gained { tenure, grant } = gained;
    let endpoint = &tenure.endpoint;
    let reason = match grant {
        Grant::Adopted => "adopted",
        Grant::Takeover => "takeover",
        Grant::Free if scope.informer.is_orphan(endpoint) => "takeover",
        Grant::Free if requests.was_asked(endpoint) => "handover",
        Grant::Free if fell_back => "fallback",
        Grant::Free => "preferred",
    };
    scope.context.reporter.report(&Event::LeaseAcquired { endpoint, fence: tenure.fence, reason });
    requests.acquired(endpoint);
    scope.informer.acquired(endpoint, fell_back);
    if let Some(session) = scope.informer.session(endpoint) {
        let session = Arc::clone(session);
        let _ =
            scope.context.to_dispatch.send(LeaseChange::Gained { tenure, session, polled_at_ms });
    }
}

#[cfg(test)]
mod tests;
