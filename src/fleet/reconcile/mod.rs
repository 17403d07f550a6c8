//! Looks, plans, acquires and hands over: moves ownership towards the plan, by asking (R8).

mod acquire;
mod handover;
mod fallback_timer;
mod stalled_handover;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, never, select};
use fnv::{FnvHashMap, FnvHashSet};

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::Informer;
use crate::fleet::lease_change::LeaseChange;
use crate::fleet::placement::{Plan, plan};
use crate::fleet::reconcile::fallback_timer::Patience;
use crate::fleet::reconcile::handover::{Asking, Leaving};
use crate::fleet::reconcile::stalled_handover::Unasked;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::lease::watch::Nudge;
use crate::model::{EndpointId, Epoch, InstanceId};
use crate::store::{Push, Store};
use crate::thread::Stop;

/// Planning takes at most one part in this many of the time.
const PLANNING_SHARE: u32 = 5;
/// The longest rest after a plan: a process or a VM that stood still in the middle of one did not plan meanwhile.
const PLANNING_REST_MAX: Duration = Duration::from_secs(5);
/// What could not be acquired is not asked for for this long, then for twice as long, and so on.
const UNABLE_PAUSE: Duration = Duration::from_secs(5);
/// An heir that did not take what was released for it is given nothing for this long, then for twice as long, and so on.
const ABSENT_PAUSE: Duration = Duration::from_secs(30);
/// No such pause is longer: whatever was wrong may have been mended.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// How many nudges are taken in before the next step.
const NUDGES_TAKEN: usize = 256;

/// The thread `reconcile`: wakes on its tick, on nudges, and when a fallback or a hold-off ends.
pub struct Reconcile {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    me: InstanceId,
    reporter: Reporter,
    changes: Sender<LeaseChange>,
    drain_timeout: Duration,
    informer: Informer,
    plan: Plan,
    /// Who asked for what, and when.
    asks: FnvHashMap<EndpointId, (InstanceId, Moment)>,
    /// When it was last read who asks for what, in case it was not heard.
    asks_read_at: Moment,
    /// When we last doubted what we see, and how often in a row.
    doubts: (Moment, u32),
    asking: Asking,
    /// What we asked for, were given, and could not acquire: not asked for again for a while.
    unable: Backoff<EndpointId>,
    /// Heirs that did not take what was released for them: given nothing for a while.
    absent: Backoff<InstanceId>,
    unasked: Unasked,
    leaving: FnvHashMap<EndpointId, (Leaving, Option<InstanceId>)>,
    patience: Patience,
    next_plan: Moment,
    next_fallback: Moment,
    /// What is another's by plan, and nobody came for in time.
    overdue: Vec<EndpointId>,
    /// How many of those that are ours by plan were asked for.
    asked_for: usize,
    /// What could not be acquired, why, and when it is tried again.
    failing: FnvHashMap<EndpointId, (Moment, String)>,
    /// There is more to acquire.
    unfinished: bool,
    held_off_in: Epoch,
    stuck: bool,
    ready: bool,
    nudges: Receiver<Nudge>,
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
            informer: Informer::new(Arc::clone(&store), Arc::clone(&table), tick),
            store,
            table,
            reporter,
            changes,
            drain_timeout,
            plan: Plan::default(),
            asks: FnvHashMap::default(),
            asks_read_at: Moment::MIN,
            doubts: (Moment::MIN, 0),
            asking: Asking::default(),
            unable: Backoff::new(UNABLE_PAUSE, PAUSE_MAX),
            absent: Backoff::new(ABSENT_PAUSE, PAUSE_MAX),
            unasked: Unasked::default(),
            leaving: FnvHashMap::default(),
            patience: Patience::default(),
            next_plan: Moment::MIN,
            next_fallback: Moment::MIN,
            overdue: Vec::new(),
            asked_for: 0,
            failing: FnvHashMap::default(),
            unfinished: false,
            held_off_in: Epoch::default(),
            stuck: false,
            ready: false,
            nudges: never(),
        }
    }

    /// Is told through `nudges` that something is worth a look.
    pub fn nudged_by(self, nudges: Receiver<Nudge>) -> Self {
        Self { nudges, ..self }
    }

    /// The loop of the thread, until `stop`. `mark` tells the watchdog that it moves, and whether it is ready.
    pub fn run(mut self, stop: &Stop, mark: impl Fn(Moment, bool)) {
        let mut nudges: Vec<Nudge> = Vec::new();
        loop {
            mark(self.table.now(), self.ready);
            let due = after(self.step(&nudges));
            if self.ready {
                mark(self.table.now(), true);
            }
            nudges.clear();
            select! {
                recv(stop.receiver()) -> _ => return,
                recv(self.nudges) -> nudge => nudges.extend(nudge),
                recv(due) -> _ => (),
            }
            nudges.extend(self.take_waiting());
        }
    }

    /// What it was told since the last step.
    pub fn take_waiting(&self) -> Vec<Nudge> {
        self.nudges.try_iter().take(NUDGES_TAKEN).collect()
    }

    /// Whether it was told something that it has not taken in.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_told(&self) -> bool {
        !self.nudges.is_empty()
    }

    /// Speaks through `reporter` instead of one of its own.
    pub fn reporting(self, reporter: &Reporter) -> Self {
        Self { reporter: reporter.clone(), ..self }
    }

    /// Does what can be done now; how long to wait for the next step.
    pub fn step(&mut self, nudges: &[Nudge]) -> Duration {
        nudges.iter().for_each(|it| self.take_in(it));
        self.informer.look_if_due();
        self.note_hand_overs();
        self.tell_news();
        self.tell_surprises();
        if self.informer.sees() {
            let view = self.informer.view();
            self.table.metrics().see(view.len(), view.instance_count());
            self.replan();
            self.note_hold_off();
        }
        if self.may_move() {
            self.read_asks();
            self.hand_over();
            self.acquire();
            self.ask();
            self.tell_unasked();
        } else {
            self.keep_what_was_to_move();
        }
        if self.informer.sees() {
            self.release_drained();
            self.say_ready();
        }
        self.wait()
    }

    /// R10: no voluntary move during a hold-off or while the store is out of reach.
    fn may_move(&self) -> bool {
        self.informer.sees()
            && self.informer.is_settled()
            && self.table.is_beating()
            && self.table.hold_off().is_none()
    }

    /// What this instance takes to be the case.
    #[cfg(any(test, feature = "__internals"))]
    pub fn view(&self) -> &crate::fleet::view::View {
        self.informer.view()
    }

    fn take_in(&mut self, nudge: &Nudge) {
        match nudge {
            Nudge::PollEnded => (),
            Nudge::Listening { words, changes, refused } => {
                self.informer.subscribed(*words, *changes);
                if let Some(reason) = refused {
                    self.reporter.say(&Event::StoreUnheard { reason });
                }
            }
            Nudge::Push(Push::Word(word)) if word.from == self.me => (),
            Nudge::Push(heard) => {
                if let Push::Word(word) = heard {
                    self.note_asks(word);
                    self.heed_unasked(word);
                }
                self.informer.hear(heard);
            }
        }
    }

    /// Passes on what was read about sessions we own.
    fn tell_news(&mut self) {
        let news = self.informer.take_news();
        for session in news.changed {
            if !self.table.holds(&session.endpoint) {
                continue;
            }
            if session.paused {
                self.leave(&session.endpoint, Leaving::Paused);
            }
            let _ = self.changes.send(LeaseChange::Session(session));
        }
        for endpoint in news.gone {
            self.leave(&endpoint, Leaving::Removed);
        }
    }

    fn leave(&mut self, endpoint: &EndpointId, why: Leaving) {
        self.table.drain(endpoint);
        if self.table.holds(endpoint) {
            self.leaving.insert(endpoint.clone(), (why, None));
        }
    }

    fn replan(&mut self) {
        let now = self.table.now();
        // While there is more to take, all that others take meanwhile is no reason to plan anew.
        let is_busy = self.unfinished && !self.informer.is_reshaped();
        if now < self.next_plan || is_busy {
            return self.join_freed();
        }
        if !self.informer.take_stale() {
            return;
        }
        self.plan = plan(self.informer.view(), &self.me);
        // What was let go of for us comes first: everybody else leaves it to us.
        self.plan.acquire.sort_by_cached_key(|it| !self.asking.was_asked(it));
        self.asked_for = 0;
        self.overdue.clear();
        self.next_fallback = Moment::MIN;
        let stuck = self.plan.nobody && self.informer.my_weight().is_some();
        if stuck && !self.stuck && self.informer.is_settled() {
            let reason = "every instance has weight 0: nothing new is taken";
            self.reporter.say(&Event::PlacementStuck { reason });
        }
        self.stuck = stuck;
        if self.plan.heirs.is_empty() {
            self.unasked.stop(); // what is to move between others does
        }
        self.keep_what_is_ours_again();
        self.patience.keep(&self.plan.fallback);
        if !self.failing.is_empty() {
            let fallback = self.plan.fallback.iter().map(|it| &it.endpoint);
            let wanted: FnvHashSet<&EndpointId> =
                self.plan.acquire.iter().chain(fallback).collect();
            self.failing.retain(|it, _| wanted.contains(it));
        }
        // A plan for a large fleet in turmoil takes its time: act on it before it is made again.
        self.next_plan = now + planning_rest(self.table.now().since(now));
    }

    fn note_hold_off(&mut self) {
        let epoch = self.table.epoch();
        if let Some(left) = self.table.hold_off().filter(|_| self.held_off_in != epoch) {
            self.held_off_in = epoch;
            self.reporter.say(&Event::StoreHoldoff { left, epoch: epoch.0 });
        }
    }

    fn say_ready(&mut self) {
        if !self.ready && self.informer.is_settled() {
            self.ready = true;
            let view = self.informer.view();
            self.reporter.say(&Event::DaemonReady {
                endpoints: view.len(),
                instances: view.instance_count(),
                held: self.table.len(),
            });
        }
    }

    fn wait(&self) -> Duration {
        let now = self.table.now();
        let mut wait = self.informer.wait();
        let mut sooner = |at: Moment| wait = wait.min(at.since(now));
        // Only what can be acted on when its time comes.
        if self.may_move() {
            if self.unfinished {
                sooner(now);
            }
            if !self.plan.fallback.is_empty() {
                sooner(self.next_fallback);
            }
            if self.informer.is_stale() {
                sooner(self.next_plan);
            }
            if !self.plan.ask.is_empty() {
                sooner(self.asking.next());
                sooner(self.next_look_at_asked());
            }
            if !self.plan.heirs.is_empty() {
                sooner(self.asks_read_at + self.asks_read_every());
            }
            if let Some(at) = self.unasked.next() {
                sooner(at);
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

/// From the beginning of a plan that took this long to the next one.
fn planning_rest(took: Duration) -> Duration {
    took.saturating_mul(PLANNING_SHARE).min(took + PLANNING_REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM that was suspended for an hour while it planned plans again soon.
    #[test]
    fn a_plan_rests_in_proportion_and_never_for_long() {
        for (took_ms, rest_ms) in [(0, 0), (10, 50), (1_000, 5_000), (3_600_000, 3_605_000)] {
            let [took, rest] = [took_ms, rest_ms].map(Duration::from_millis);
            assert_eq!(planning_rest(took), rest);
        }
    }
}
