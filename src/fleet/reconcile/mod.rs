//! What does this instance do to move ownership towards the plan? It looks, plans, acquires, asks and hands over (R8).
//!
//! Changes leases in the store and in the table, and tells dispatch. Each part has a state of its own: [`planner`] (what to
//! do), [`acquire`] (what is free), [`request`] (this instance as heir), [`handover`] (this instance as owner) and
//! [`stalled_handover`]. [`Reconcile`] is the order of a step.

mod acquire;
mod fallback_timer;
mod handover;
mod planner;
mod request;
mod stalled_handover;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, never, select};

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::Informer;
use crate::fleet::lease_change::LeaseChange;
use crate::fleet::live_instances::LiveInstances;
use crate::fleet::placement::Plan;
use crate::fleet::reconcile::acquire::Acquisition;
use crate::fleet::reconcile::handover::{Handover, ReleaseReason};
use crate::fleet::reconcile::planner::Planner;
use crate::fleet::reconcile::request::Requests;
use crate::fleet::reconcile::stalled_handover::StalledHandover;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::lease::watch::Nudge;
use crate::model::{EndpointId, Epoch, InstanceId, spread};
use crate::store::{BATCH_MAX, PeerMessage, Push, Store};
use crate::thread::Stop;

/// A lease that could not be acquired, or an heir that was absent, is never left alone for longer: the cause may be mended.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// How many nudges are applied before the next step.
const NUDGES_TAKEN: usize = 256;
/// The shortest wait between two steps.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// The thread `reconcile`: wakes on a nudge, and when one of its parts is due (`wait`).
pub struct Reconcile {
    context: MoveContext,
    informer: Informer,
    planner: Planner,
    acquisition: Acquisition,
    requests: Requests,
    handover: Handover,
    stalled: StalledHandover,
    /// The epoch whose hold-off was logged.
    held_off_in: Epoch,
    ready: bool,
    nudges: Receiver<Nudge>,
    live: Arc<LiveInstances>,
}

/// How the parts reach the store, the table of leases, dispatch and the log.
struct MoveContext {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    me: InstanceId,
    reporter: Reporter,
    to_dispatch: Sender<LeaseChange>,
    drain_timeout: Duration,
}

impl MoveContext {
    fn now(&self) -> Moment {
        self.table.now()
    }

    fn timeout(&self) -> Duration {
        self.table.timings().store_timeout
    }

    /// Sends messages. A message that is lost only delays, so a failure is ignored.
    fn send(&self, messages: &[PeerMessage]) {
        if !messages.is_empty() {
            let _ = self.store.wake(messages, self.timeout());
        }
    }

    /// `least`, and up to half as long again, by the id of this instance: equal periods of an owner and its heir would make
    /// the same hand-over fail again and again.
    fn own_period(&self, least: Duration) -> Duration {
        let half = u64::try_from(least.as_micros() / 2).unwrap_or(u64::MAX);
        least + Duration::from_micros(spread(self.me.as_str(), half))
    }
}

/// What a part touches besides its own state.
struct MoveScope<'a> {
    context: &'a MoveContext,
    informer: &'a mut Informer,
    plan: &'a Plan,
}

impl Reconcile {
    /// Moves what `table` owns, telling dispatch through `to_dispatch`.
    pub fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        to_dispatch: Sender<LeaseChange>,
        quick_check_interval: Duration,
        drain_timeout: Duration,
    ) -> Self {
        let informer = Informer::new(Arc::clone(&store), Arc::clone(&table), quick_check_interval);
        let (me, reporter) = (table.instance().clone(), Reporter::new(&table));
        Self {
            context: MoveContext { store, table, me, reporter, to_dispatch, drain_timeout },
            informer,
            planner: Planner::default(),
            acquisition: Acquisition::default(),
            requests: Requests::default(),
            handover: Handover::default(),
            stalled: StalledHandover::default(),
            held_off_in: Epoch::default(),
            ready: false,
            nudges: never(),
            live: Arc::default(),
        }
    }

    /// The live instances, for the thread `detect`.
    pub fn live_instances(&self) -> Arc<LiveInstances> {
        Arc::clone(&self.live)
    }

    /// Takes nudges from this channel.
    pub fn nudged_by(self, nudges: Receiver<Nudge>) -> Self {
        Self { nudges, ..self }
    }

    /// The loop of the thread, until `stop`. `mark` tells the watchdog that the thread moves, and whether it is ready.
    pub fn run(mut self, stop: &Stop, mark: impl Fn(Moment, bool)) {
        let mut nudges: Vec<Nudge> = Vec::new();
        loop {
            mark(self.context.now(), self.ready);
            let due = after(self.step(&nudges));
            if self.ready {
                mark(self.context.now(), true);
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

    /// The nudges that wait for the next step, up to `NUDGES_TAKEN` (256).
    pub fn take_waiting(&self) -> Vec<Nudge> {
        self.nudges.try_iter().take(NUDGES_TAKEN).collect()
    }

    /// Whether a nudge waits for the next step.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_told(&self) -> bool {
        !self.nudges.is_empty()
    }

    /// Logs through `reporter`.
    pub fn reporting(self, reporter: &Reporter) -> Self {
        let context = MoveContext { reporter: reporter.clone(), ..self.context };
        Self { context, ..self }
    }

    /// Does what can be done now; how long to wait for the next step.
    pub fn step(&mut self, nudges: &[Nudge]) -> Duration {
        nudges.iter().for_each(|it| self.apply(it));
        self.informer.read_if_due();
        self.note_outcomes();
        self.tell_session_changes();
        self.tell_discrepancies();
        if self.informer.is_synced() {
            let view = self.informer.view();
            self.context.table.metrics().see(view.len(), view.instance_count());
            if view.members_changed() {
                self.live.set(view.instances().map(|it| it.0));
            }
            self.replan();
            self.note_hold_off();
        }
        if self.may_move() {
            self.move_leases();
        } else {
            self.call_off_moves();
        }
        if self.informer.is_synced() {
            self.handover.release_drained(&self.context, &mut self.informer);
            self.report_ready();
        }
        self.wait()
    }

    /// R10: no voluntary move during a hold-off or while the store is out of reach.
    fn may_move(&self) -> bool {
        self.informer.is_synced()
            && self.informer.is_settled()
            && self.context.table.is_beating()
            && self.context.table.hold_off().is_none()
    }

    fn move_leases(&mut self) {
        let Self { context, informer, planner, .. } = self;
        let mut scope = MoveScope { context, informer, plan: &planner.plan };
        self.handover.read_asks(&mut scope);
        self.handover.hand_over(&scope);
        self.acquisition.step(&mut scope, &mut self.requests, &self.handover);
        self.tell_session_changes();
        let Self { context, informer, planner, .. } = self;
        let mut scope = MoveScope { context, informer, plan: &planner.plan };
        self.requests.step(&mut scope);
        self.stalled.step(&mut scope, &self.handover);
    }

    /// R10: a move that has begun is called off, so that nothing is released while nobody can acquire it.
    fn call_off_moves(&mut self) {
        // No heir is slow while nobody can act: the fallback timer starts again when it can.
        self.acquisition.pause();
        self.informer.forget_released();
        self.stalled.stop();
        self.handover.call_off_all(&self.context.table);
    }

    /// The view of this instance.
    #[cfg(any(test, feature = "__internals"))]
    pub fn view(&self) -> &crate::fleet::view::View {
        self.informer.view()
    }

    fn apply(&mut self, nudge: &Nudge) {
        match nudge {
            Nudge::PollEnded => (),
            Nudge::Listening { messages, changes, refused } => {
                self.informer.subscribed(*messages, *changes);
                if let Some(reason) = refused {
                    self.context.reporter.report(&Event::StoreUnheard { reason });
                }
            }
            Nudge::Push(Push::Message(message)) if message.from == self.context.me => (),
            Nudge::Push(push) => {
                if let Push::Message(message) = push {
                    let Self { context, informer, planner, .. } = self;
                    let mut scope = MoveScope { context, informer, plan: &planner.plan };
                    self.handover.note_asks(&mut scope, message);
                    self.stalled.heed(&mut scope, message);
                }
                self.informer.apply(push);
            }
        }
    }

    /// What became of leases that were released for an heir.
    fn note_outcomes(&mut self) {
        let now = self.context.now();
        let (absent, active) = self.informer.take_outcomes();
        for it in &absent {
            self.handover.heir_absent(it, now);
        }
        for it in &active {
            self.acquisition.heir_active(it, now);
            self.handover.heir_active(it);
        }
    }

    /// Tells dispatch what changed about sessions of this instance, and begins to release those that nobody is to poll.
    fn tell_session_changes(&mut self) {
        let changes = self.informer.take_session_changes();
        for session in changes.changed {
            if !self.context.table.holds(&session.endpoint) {
                continue;
            }
            if session.paused {
                let reason = ReleaseReason::Paused;
                self.handover.leave(&self.context.table, &session.endpoint, reason);
            }
            let _ = self.context.to_dispatch.send(LeaseChange::Session(session));
        }
        for endpoint in changes.gone {
            self.handover.leave(&self.context.table, &endpoint, ReleaseReason::Removed);
        }
    }

    /// An audit or a resync has found something different: other instances may have missed it, too.
    fn tell_discrepancies(&mut self) {
        let mut discrepancies = self.informer.take_discrepancies();
        if !self.informer.gets_messages() {
            discrepancies.clear(); // no instance would get the message
        }
        let message = |it: &[EndpointId]| PeerMessage {
            discrepancies: it.to_vec(),
            ..PeerMessage::new(&self.context.me, None)
        };
        let messages: Vec<PeerMessage> = discrepancies.chunks(BATCH_MAX).map(message).collect();
        self.context.send(&messages);
    }

    fn replan(&mut self) {
        let now = self.context.now();
        // While there is more to acquire, only a change of members is a reason for a new plan.
        let is_busy = self.acquisition.unfinished && !self.informer.view().members_changed();
        if now < self.planner.next || is_busy {
            return self.acquisition.join_freed(&mut self.planner.plan, &self.informer);
        }
        if !self.informer.take_changed() {
            return;
        }
        self.planner.make_plan(&self.context, &self.informer, &self.requests);
        let plan = &self.planner.plan;
        self.acquisition.begin_plan(plan);
        if plan.heirs.is_empty() {
            self.stalled.stop(); // leases between other instances move
        }
        self.handover.call_off_unplanned(&self.context.table, plan);
        self.planner.rest(now, self.context.now());
    }

    fn note_hold_off(&mut self) {
        let epoch = self.context.table.epoch();
        let left = self.context.table.hold_off();
        if let Some(left) = left.filter(|_| self.held_off_in != epoch) {
            self.held_off_in = epoch;
            self.context.reporter.report(&Event::StoreHoldoff { left, epoch: epoch.0 });
        }
    }

    fn report_ready(&mut self) {
        if !self.ready && self.informer.is_settled() {
            self.ready = true;
            let view = self.informer.view();
            self.context.reporter.report(&Event::DaemonReady {
                endpoints: view.len(),
                instances: view.instance_count(),
                held: self.context.table.len(),
            });
        }
    }

    fn wait(&self) -> Duration {
        let (now, context) = (self.context.now(), &self.context);
        let (informer, plan) = (&self.informer, &self.planner.plan);
        let mut due = informer.due();
        // Only what can be acted on when its time comes.
        if self.may_move() {
            let parts = [
                self.acquisition.due(plan),
                self.planner.due(informer),
                self.requests.due(context, informer, plan),
                self.handover.due(context, informer, plan),
                self.stalled.due(),
            ];
            due = parts.into_iter().fold(due, Moment::min);
        }
        if let Some(at) = context.table.next_drain_deadline(context.drain_timeout) {
            due = due.min(at);
        }
        if let Some(left) = context.table.hold_off() {
            due = due.min(now + left);
        }
        due.since(now).max(WAIT_MIN)
    }
}
