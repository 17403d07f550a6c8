//! Looks, plans, acquires and hands over: moves ownership towards the plan, by asking (R8).

mod moves;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use fnv::{FnvHashMap, FnvHashSet};

use crate::clock::Moment;
use crate::daemon::dispatch::LeaseChange;
use crate::daemon::look::Looker;
use crate::daemon::reconcile::moves::Leaving;
use crate::daemon::report::Reporter;
use crate::event::Event;
use crate::model::{EndpointId, Epoch, InstanceId};
use crate::pipeline::ownership::{Gained, OwnershipTable};
use crate::pipeline::placement::{Plan, plan};
use crate::store::{Acquire, BATCH_MAX, Grant, Store, Wake};

/// R8: a free lease that is another's is left to the heir for this long, and to each who is preferred
/// to us for as long again.
const FALLBACK_STEP: Duration = Duration::from_millis(250);

/// A lease that could not be acquired is tried again after this.
const RETRY_FAILED: Duration = Duration::from_secs(1);

/// Something worth an earlier look.
#[derive(Clone, Debug)]
pub enum Nudge {
    /// Words may have been missed.
    Look,
    /// Another instance said something.
    Heard(Wake),
    /// A poll that a hand-over waits for has ended.
    PollEnded,
}

/// The thread `reconcile`: wakes on its tick, on nudges, and when a fallback or a hold-off ends.
pub struct Reconcile {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    me: InstanceId,
    reporter: Reporter,
    changes: Sender<LeaseChange>,
    drain_timeout: Duration,
    looker: Looker,
    plan: Plan,
    /// Who asked for what since the last time it was considered.
    asks: FnvHashMap<EndpointId, InstanceId>,
    /// What we asked for, to tell a hand-over from a find.
    asked_for: FnvHashSet<EndpointId>,
    leaving: FnvHashMap<EndpointId, (Leaving, Option<InstanceId>)>,
    free_since: FnvHashMap<EndpointId, Moment>,
    /// What could not be acquired, why, and when it is tried again.
    failing: FnvHashMap<EndpointId, (Moment, String)>,
    held_off_in: Epoch,
    stuck: bool,
    ready: bool,
}

impl Reconcile {
    /// Moves what `table` owns, telling dispatch through `changes`.
    pub fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        changes: Sender<LeaseChange>,
        tick: Duration,
        drain_timeout: Duration,
    ) -> Self {
        let reporter = Reporter::new(&table);
        Self {
            me: table.instance().clone(),
            looker: Looker::new(Arc::clone(&store), Arc::clone(&table), tick),
            store,
            table,
            reporter,
            changes,
            drain_timeout,
            plan: Plan::default(),
            asks: FnvHashMap::default(),
            asked_for: FnvHashSet::default(),
            leaving: FnvHashMap::default(),
            free_since: FnvHashMap::default(),
            failing: FnvHashMap::default(),
            held_off_in: Epoch::default(),
            stuck: false,
            ready: false,
        }
    }

    /// Does what can be done now; how long to wait for the next step.
    pub fn step(&mut self, nudges: &[Nudge]) -> Duration {
        nudges.iter().for_each(|it| self.take_in(it));
        let looked = self.looker.look_if_due();
        if looked {
            self.tell_news();
        }
        if self.looker.sees() {
            self.replan(looked);
            self.note_hold_off();
        }
        if self.may_move() {
            self.hand_over(looked);
            self.acquire();
            if looked {
                self.ask();
            }
        } else {
            self.keep_what_was_to_move();
        }
        if self.looker.sees() {
            self.release_drained();
            self.say_ready();
        }
        self.wait()
    }

    /// R10: no voluntary move during a hold-off or while the store is out of reach.
    fn may_move(&self) -> bool {
        self.looker.sees()
            && self.looker.is_settled()
            && self.table.is_beating()
            && self.table.hold_off().is_none()
    }

    /// The moment it is.
    pub fn now(&self) -> Moment {
        self.table.now()
    }

    /// Whether the first round is done.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    fn take_in(&mut self, nudge: &Nudge) {
        match nudge {
            Nudge::PollEnded => (),
            Nudge::Look => self.looker.look_soon(),
            Nudge::Heard(word) if word.from == self.me => (),
            Nudge::Heard(word) => {
                for endpoint in word.wants.iter().filter(|it| self.table.tenure(it).is_some()) {
                    self.asks.insert(endpoint.clone(), word.from.clone());
                    // Asked by somebody the plan does not know of: look again before refusing.
                    if self.plan.heirs.get(endpoint) != Some(&word.from) {
                        self.looker.look_soon();
                    }
                }
                let freed = word.freed.iter().filter(|it| self.table.tenure(it).is_none());
                self.looker.freed(&freed.cloned().collect::<Vec<_>>());
                if word.wants.is_empty() && word.freed.is_empty() {
                    self.looker.look_soon();
                }
            }
        }
    }

    /// Passes on what the look changed about sessions we own.
    fn tell_news(&mut self) {
        let mut changed = self.looker.take_changed();
        changed.retain(|it| self.table.tenure(&it.endpoint).is_some());
        for session in changed {
            let _ = self.changes.send(LeaseChange::Session(session));
        }
        for endpoint in self.table.endpoints() {
            let leaving = match self.looker.session(&endpoint) {
                None => Leaving::Removed,
                Some(session) if session.paused => Leaving::Paused,
                Some(_) => continue,
            };
            if self.table.drain(&endpoint) {
                self.leaving.insert(endpoint, (leaving, None));
            }
        }
    }

    fn replan(&mut self, looked: bool) {
        if looked || self.looker.take_stale() {
            self.plan = plan(self.looker.view(), &self.me);
            if self.plan.nobody && !self.stuck && self.looker.is_settled() {
                let reason = "every instance has weight 0: nothing new is taken";
                self.reporter.say(&Event::PlacementStuck { reason });
            }
            self.stuck = self.plan.nobody;
            let now = self.table.now();
            let free: FnvHashMap<EndpointId, Moment> = self
                .plan
                .fallback
                .iter()
                .map(|(it, _)| (it.clone(), self.free_since.get(it).copied().unwrap_or(now)))
                .collect();
            self.free_since = free;
        }
    }

    fn note_hold_off(&mut self) {
        let epoch = self.table.epoch();
        if let Some(left) = self.table.hold_off().filter(|_| self.held_off_in != epoch) {
            self.held_off_in = epoch;
            self.reporter.say(&Event::StoreHoldoff { left, epoch: epoch.0 });
        }
    }

    /// Takes what is free and ours by plan, and what nobody came for in time.
    fn acquire(&mut self) {
        let now = self.table.now();
        let mut wanted = self.plan.acquire.clone();
        let overdue = self.plan.fallback.iter().filter(|(endpoint, rank)| {
            let free_since = self.free_since.get(endpoint).copied().unwrap_or(now);
            now >= free_since + FALLBACK_STEP * (1 + rank)
        });
        wanted.extend(overdue.map(|it| it.0.clone()));
        if !self.failing.is_empty() {
            let wanted: FnvHashSet<&EndpointId> = wanted.iter().collect();
            self.failing.retain(|it, _| wanted.contains(it));
        }
        let too_early = |it: &EndpointId| self.failing.get(it).is_some_and(|it| now < it.0);
        wanted.retain(|it| self.table.tenure(it).is_none() && !too_early(it));
        for batch in wanted.chunks(BATCH_MAX) {
            if !self.acquire_batch(batch) {
                break;
            }
        }
    }

    /// False when there is no point in asking for more.
    fn acquire_batch(&mut self, endpoints: &[EndpointId]) -> bool {
        // Once more when the epoch changed under the question: it is asked again at once (R5).
        for _ in 0..2 {
            let question = self.table.question();
            let reply = match self.store.acquire(&question.ask, endpoints) {
                Ok(reply) => reply,
                Err(error) => {
                    let error = error.to_string();
                    endpoints.iter().for_each(|it| self.failed(it, &error));
                    return false;
                }
            };
            let (gained, revelation) = self.table.granted(&question, endpoints, &reply);
            if let Some(ahead) = revelation.ran_ahead {
                self.reporter.say(&Event::StoreClock { ahead });
            }
            gained.into_iter().for_each(|it| self.begin(it));
            if let Some(answers) = reply.answer {
                self.note_refusals(endpoints, &answers);
                return true;
            }
        }
        false
    }

    fn begin(&mut self, gained: Gained) {
        let Gained { tenure, grant, polled_at_ms } = gained;
        let endpoint = &tenure.endpoint;
        let fell_back = self.free_since.contains_key(endpoint);
        let reason = match grant {
            Grant::Adopted => "adopted",
            Grant::Takeover => "takeover",
            Grant::Free if self.asked_for.remove(endpoint) => "handover",
            Grant::Free if self.looker.is_orphan(endpoint) => "takeover",
            Grant::Free if fell_back => "fallback",
            Grant::Free => "preferred",
        };
        self.reporter.say(&Event::LeaseAcquired { endpoint, fence: tenure.fence, reason });
        self.looker.owned(endpoint, &self.me);
        if let Some(session) = self.looker.session(endpoint) {
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
                    self.looker.owned(endpoint, owner);
                }
                Acquire::NoHeartbeat => self.failed(endpoint, "this instance has no heartbeat"),
                Acquire::Late => self.failed(endpoint, "the question arrived late"),
                Acquire::Failed(why) => self.failed(endpoint, why),
            }
        }
    }

    /// Said once per change, and tried again after a while.
    fn failed(&mut self, endpoint: &EndpointId, error: &str) {
        let next = self.table.now() + RETRY_FAILED;
        let before = self.failing.insert(endpoint.clone(), (next, error.into()));
        if before.is_none_or(|it| it.1 != error) {
            self.reporter.say(&Event::LeaseFailed { endpoint, error: &error });
        }
    }

    fn say_ready(&mut self) {
        if !self.ready && self.looker.is_settled() {
            self.ready = true;
            let view = self.looker.view();
            self.reporter.say(&Event::DaemonReady {
                endpoints: view.len(),
                instances: view.instance_count(),
                held: self.table.len(),
            });
        }
    }

    fn wait(&self) -> Duration {
        let now = self.table.now();
        let mut wait = self.looker.wait();
        let mut sooner = |at: Moment| wait = wait.min(at.since(now));
        // Only what can be acted on when its time comes; a look comes soon enough for the rest.
        if self.may_move() {
            for (endpoint, rank) in &self.plan.fallback {
                let since = self.free_since.get(endpoint).copied().unwrap_or(now);
                let failing = self.failing.get(endpoint).map_or(now, |it| it.0);
                sooner((since + FALLBACK_STEP * (1 + rank)).max(failing));
            }
        }
        if let Some(at) = self.table.next_impatience(self.drain_timeout) {
            sooner(at);
        }
        if let Some(left) = self.table.hold_off() {
            sooner(now + left);
        }
        wait.max(Duration::from_millis(5))
    }
}
