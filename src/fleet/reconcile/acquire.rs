//! How leases are taken: what is free and ours by plan, and what nobody came for in time (FR-014).

use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHashSet;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::lease_change::LeaseChange;
use crate::fleet::reconcile::Reconcile;
use crate::lease::table::Gained;
use crate::model::EndpointId;
use crate::store::{Acquire, BATCH_MAX, Grant};

/// How many are asked for in one step; then requests and messages of others come first.
const AT_ONCE: usize = 4 * BATCH_MAX;

/// A lease that could not be acquired is tried again after this.
const RETRY_FAILED: Duration = Duration::from_secs(1);

impl Reconcile {
    /// Takes what is free and ours by plan, and what nobody came for in time.
    pub(super) fn acquire(&mut self) {
        let mut wanted = self.ours();
        let overdue: FnvHashSet<EndpointId> = self.overdue(AT_ONCE - wanted.len()).collect();
        wanted.extend(overdue.iter().cloned());
        self.unfinished = self.asked_for < self.plan.acquire.len() || !self.overdue.is_empty();
        for batch in wanted.chunks(BATCH_MAX) {
            // A poller must know what to poll: a session that is not to be polled is not taken.
            if !self.informer.learn(batch) {
                return self.begin_again();
            }
            let to_poll = |it: &&EndpointId| self.informer.is_to_be_polled(it);
            let batch: Vec<EndpointId> = batch.iter().filter(to_poll).cloned().collect();
            if !batch.is_empty() && !self.acquire_batch(&batch, &overdue) {
                return self.begin_again();
            }
        }
        self.tell_news();
    }

    /// There is no point in asking for more now.
    pub(super) fn begin_again(&mut self) {
        (self.unfinished, self.asked_for) = (false, 0);
        self.overdue.clear();
        self.tell_news();
    }

    /// R8: what is ours by plan and was let go of since is taken next, however much else there is to take: everybody
    /// else leaves it to us. Between two plans, so that none has to be made for it.
    pub(super) fn join_freed(&mut self) {
        if !self.informer.is_stale() {
            return;
        }
        let informer = &self.informer;
        let freed = |it: &EndpointId| informer.is_free(it) && informer.view().contains(it);
        let freed = self.plan.ask.extract_if(.., |it| freed(&it.1)).map(|it| it.1);
        let freed: Vec<EndpointId> = freed.collect();
        self.plan.acquire.splice(self.asked_for..self.asked_for, freed);
    }

    /// The next of those that are ours by plan, as many as are asked for in one step. The plan is gone through
    /// once, and then, after what is overdue, again: what could not be had may be had by then.
    fn ours(&mut self) -> Vec<EndpointId> {
        let now = self.table.now();
        if self.asked_for >= self.plan.acquire.len() && self.overdue.is_empty() {
            self.asked_for = 0;
        }
        let too_early = |it: &EndpointId| self.failing.get(it).is_some_and(|it| now < it.0);
        let mut wanted = Vec::new();
        for it in &self.plan.acquire[self.asked_for..] {
            if wanted.len() == AT_ONCE {
                break;
            }
            self.asked_for += 1;
            if !self.table.holds(it) && !too_early(it) {
                wanted.push(it.clone());
            }
        }
        wanted
    }

    /// R8: what is another's and was not taken in time; at most `count`, and only when there is no more that is
    /// ours. Looked up first, so that no two ask for it.
    fn overdue(&mut self, count: usize) -> impl Iterator<Item = EndpointId> + use<> {
        let now = self.table.now();
        if self.asked_for < self.plan.acquire.len() {
            return vec![].into_iter();
        }
        // Not before all of them were looked at, or a pass that takes long would never come to its end.
        if self.overdue.is_empty() && now >= self.next_fallback {
            self.find_overdue(now);
        }
        let rest = self.overdue.len().saturating_sub(count);
        let mut overdue = self.overdue.split_off(rest);
        overdue.retain(|it| !self.table.holds(it));
        if !self.informer.check_now(&overdue) {
            overdue.clear();
        }
        overdue.retain(|it| self.informer.view().contains(it) && self.informer.is_free(it));
        overdue.into_iter()
    }

    fn find_overdue(&mut self, now: Moment) {
        self.next_fallback = Moment::MAX;
        // Somebody may have been found to have it since the plan was made.
        let free = self.plan.fallback.iter().filter(|it| self.informer.is_free(&it.endpoint));
        for it in free {
            let failing = self.failing.get(&it.endpoint).map_or(now, |it| it.0);
            let heard = self.informer.receives_messages() || self.absent.is_paused(&it.heir, now);
            let due = self.patience.due(it, now, heard).max(failing);
            if now >= due {
                self.overdue.push(it.endpoint.clone());
            } else {
                self.next_fallback = self.next_fallback.min(due);
            }
        }
        if !self.overdue.is_empty() {
            // Whatever comes of it, they are looked at again.
            self.next_fallback = self.next_fallback.min(now + RETRY_FAILED);
        }
    }

    /// False when there is no point in asking for more.
    fn acquire_batch(
        &mut self,
        endpoints: &[EndpointId],
        overdue: &FnvHashSet<EndpointId>,
    ) -> bool {
        // Once more when the epoch changed under the question: it is asked again at once (R5).
        for _ in 0..2 {
            let request = self.table.request();
            let reply = match self.store.acquire(&request.context, endpoints) {
                Ok(reply) => reply,
                Err(error) => {
                    let error = error.to_string();
                    endpoints.iter().for_each(|it| self.failed(it, &error));
                    return false;
                }
            };
            let (gained, anomaly) = self.table.granted(&request, endpoints, &reply);
            if let Some(ahead) = anomaly.ran_ahead {
                self.reporter.say(&Event::StoreClock { ahead });
            }
            if !gained.is_empty() {
                self.informer.note_activity();
            }
            let polled_at = self.last_polled(&gained);
            for (it, polled_at_ms) in gained.into_iter().zip(polled_at) {
                let fell_back = overdue.contains(&it.tenure.endpoint);
                self.begin(it, polled_at_ms, fell_back);
            }
            if let Some(answers) = reply.answer {
                self.note_refusals(endpoints, &answers);
                return self.informer.sees();
            }
        }
        false
    }

    /// What changes hands keeps its rhythm. Where nothing is known, it begins anew, and does not wait for more.
    fn last_polled(&mut self, gained: &[Gained]) -> Vec<Option<u64>> {
        let endpoints: Vec<EndpointId> =
            gained.iter().map(|it| it.tenure.endpoint.clone()).collect();
        if endpoints.is_empty() {
            return vec![];
        }
        let told = self.store.resume(&endpoints, self.table.timings().store_timeout);
        told.unwrap_or_else(|error| {
            self.informer.trouble(&error);
            vec![None; endpoints.len()]
        })
    }

    fn begin(&mut self, gained: Gained, polled_at_ms: Option<u64>, fell_back: bool) {
        let Gained { tenure, grant } = gained;
        let endpoint = &tenure.endpoint;
        let reason = match grant {
            Grant::Adopted => "adopted",
            Grant::Takeover => "takeover",
            Grant::Free if self.informer.is_orphan(endpoint) => "takeover",
            Grant::Free if self.asking.was_asked(endpoint) => "handover",
            Grant::Free if fell_back => "fallback",
            Grant::Free => "preferred",
        };
        self.reporter.say(&Event::LeaseAcquired { endpoint, fence: tenure.fence, reason });
        self.asking.got(endpoint);
        if self.unable.end(endpoint) {
            self.unable.clear(); // whatever was wrong is mended
        }
        self.informer.acquired(endpoint, fell_back);
        if let Some(session) = self.informer.session(endpoint) {
            let session = Arc::clone(session);
            let _ = self.changes.send(LeaseChange::Gained { tenure, session, polled_at_ms });
        }
    }

    fn note_refusals(&mut self, endpoints: &[EndpointId], answers: &[Acquire]) {
        for (endpoint, answer) in endpoints.iter().zip(answers) {
            match answer {
                Acquire::Granted { .. } | Acquire::HoldOff => (),
                Acquire::HeldBy(owner) => {
                    self.reporter.say(&Event::LeaseRefused { endpoint, owner: owner.as_str() });
                    self.informer.owned(endpoint, owner);
                    if self.informer.is_free(endpoint) {
                        // The store takes it for alive, and we do not: not again at once.
                        let next = self.table.now() + RETRY_FAILED;
                        self.failing.insert(endpoint.clone(), (next, "held by the dead".into()));
                    }
                }
                Acquire::NoHeartbeat => self.failed(endpoint, "this instance has no heartbeat"),
                Acquire::Late => self.failed(endpoint, "the question arrived late"),
                Acquire::Failed(why) => self.failed(endpoint, why),
            }
        }
    }

    /// Said once per change, and tried again after a while.
    fn failed(&mut self, endpoint: &EndpointId, error: &str) {
        let now = self.table.now();
        let next = now + RETRY_FAILED;
        self.unable.fail(endpoint, now);
        let before = self.failing.insert(endpoint.clone(), (next, error.into()));
        if before.is_none_or(|it| it.1 != error) {
            self.reporter.say(&Event::LeaseFailed { endpoint, error: &error });
        }
    }
}

#[cfg(test)]
mod tests;
