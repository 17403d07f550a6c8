//! Does this instance lead a role, and which instance does otherwise? Keeps the state of one role, and tells its listeners.
//!
//! The ownership table decides whether this instance leads; the state follows it. Every change of state is made here under
//! one lock, whichever thread noticed it. Never touches the store.

mod waits;

use std::io;
use std::sync::Arc;

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::clock::scheduler::Changed;
use crate::election::duty::Duty;
use crate::election::listeners::{Listeners, Outlet, Registration};
use crate::election::{ElectionEvent, LossReason, State};
use crate::event::Event;
use crate::lease::report::LeaseEventSink;
use crate::lease::table::{Applied, Loss, Lost, OwnershipTable};
use crate::model::{FenceToken, InstanceId, Role, Tenure};
use crate::store::Lasting;

/// One role, shared by the elector, the threads that keep it, and the threads of the user.
pub struct RoleState {
    role: Role,
    table: Arc<OwnershipTable>,
    inner: Mutex<Inner>,
    changed: Changed,
    pub(crate) listeners: Arc<Listeners>,
    /// Wakes the elector.
    poke: Sender<()>,
}

struct Inner {
    state: State,
    /// The term of the leadership that listeners know of.
    term: Option<FenceToken>,
    /// The leader at the last look, and until when that counts.
    leader: Option<(InstanceId, Moment)>,
    /// How many duties run.
    running: usize,
    /// The term that is being given up, and its heir, if it has one.
    leaving: Option<(FenceToken, Option<InstanceId>)>,
    is_stopping: bool,
    /// False after a grant or a release that the store may know of and this instance does not.
    is_given_back: bool,
}

impl RoleState {
    /// A role that no instance is known to lead.
    pub fn new(role: Role, table: Arc<OwnershipTable>, poke: Sender<()>) -> Arc<Self> {
        let inner = Inner {
            state: State::Follower,
            term: None,
            leader: None,
            running: 0,
            leaving: None,
            is_stopping: false,
            is_given_back: true,
        };
        let listeners = Listeners::new(&*table.clock().0);
        Arc::new(Self {
            role,
            table,
            inner: Mutex::new(inner),
            changed: Changed::default(),
            listeners,
            poke,
        })
    }

    /// The role.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The table that holds the role's lease.
    pub fn table(&self) -> &Arc<OwnershipTable> {
        &self.table
    }

    /// Whether this instance may act as leader at this moment: the role is confirmed, in time, and not on
    /// its way out. Read from the table, so that no thread that stands still can make it lie.
    pub fn is_leader(&self) -> bool {
        self.table.may_poll(self.role.as_lease())
    }

    /// The term under which it may.
    pub fn term(&self) -> Option<FenceToken> {
        self.table.usable(self.role.as_lease()).map(|it| it.fence)
    }

    /// The state that listeners know, but never `Leader` past the deadline.
    pub fn state(&self) -> State {
        let state = self.inner.lock().state;
        let held = self.table.holding(self.role.as_lease());
        let in_time = held.is_some_and(|it| self.table.now() < it.deadline);
        if state == State::Leader && !in_time { State::Follower } else { state }
    }

    /// The leader, as far as known.
    pub fn leader(&self) -> Option<InstanceId> {
        if self.is_leader() {
            return Some(self.table.instance().clone());
        }
        let now = self.table.now();
        self.inner.lock().leader.as_ref().filter(|it| now < it.1).map(|it| it.0.clone())
    }

    /// Calls `listener` with what is the case, then for every event from now on, in order, on the thread that
    /// causes it.
    pub fn listen_inline(
        &self,
        listener: impl FnMut(&ElectionEvent) + Send + 'static,
    ) -> Registration {
        let listener = Box::new(listener);
        self.change(|inner| self.listeners.add_inline(listener, self.present(inner)))
    }

    /// The same on a thread of the listener's own.
    pub(crate) fn listen(
        &self,
        listener: impl FnMut(&ElectionEvent) + Send + 'static,
    ) -> io::Result<Registration> {
        let listener = Box::new(listener);
        self.change(|inner| self.listeners.add(listener, self.present(inner)))
    }

    /// The same on a thread that other roles have, too.
    pub(crate) fn listen_by(&self, outlet: &Outlet) {
        let _stays = self.change(|inner| self.listeners.add_outlet(outlet, self.present(inner)));
    }

    /// What brings a listener that knows nothing up to date: every election begins as a follower.
    fn present(&self, inner: &Inner) -> Vec<ElectionEvent> {
        let (role, from, to) = (self.role.clone(), State::Follower, inner.state);
        let change = (to != from).then_some(ElectionEvent::StateChanged { role, from, to });
        let led = |term| ElectionEvent::LeadershipAcquired { role: self.role.clone(), term };
        change.into_iter().chain(inner.term.map(led)).collect()
    }

    /// Begins some of the leader's work, if it may begin now. The role is not given back before it ends.
    pub fn enter(self: &Arc<Self>) -> Option<Duty> {
        let mut inner = self.inner.lock();
        let tenure = self.table.usable(self.role.as_lease())?;
        inner.running += 1;
        drop(inner);
        Some(Duty::new(Arc::clone(self), tenure))
    }

    /// Some of the leader's work has ended. Wakes the elector if the role waits for that: else there is nothing to do.
    pub(crate) fn leave(&self) {
        let mut inner = self.inner.lock();
        inner.running -= 1;
        if inner.leaving.is_some() {
            self.poke();
        }
    }

    /// Whether no duty runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.inner.lock().running == 0
    }

    /// Changes the state under the lock, then wakes the elector and delivers events.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.inner.lock());
        self.changed.notify_all();
        self.listeners.deliver();
        result
    }

    /// When a lease that another instance has just been granted ends.
    fn fresh_end(&self) -> Moment {
        self.table.now() + self.table.timings().lease.ttl
    }

    fn say(&self, event: &Event<'_>) {
        event.log(self.table.instance());
    }

    fn turn(&self, inner: &mut Inner, to: State) {
        if inner.state == to {
            return;
        }
        let (role, from) = (&self.role, std::mem::replace(&mut inner.state, to));
        match to {
            State::Candidate => self.say(&Event::LeaderCandidate { role }),
            State::Leader => (),
            State::Follower => {
                let leader = inner.leader.as_ref().map(|it| &it.0);
                self.say(&Event::LeaderFollower { role, leader });
            }
        }
        self.listeners.post(ElectionEvent::StateChanged { role: role.clone(), from, to });
    }

    /// Applies a read of the role: its owner in the store, if any.
    pub(crate) fn saw(&self, leader: Option<&Lasting<InstanceId>>) {
        // The elector reads the role again when this lease ends; until that is answered, the leader stays known.
        let now = self.table.now() + self.table.timings().store_timeout;
        let mut inner = self.inner.lock();
        let before = inner.leader.take().map(|it| it.0);
        inner.leader = leader.map(|it| (it.value.clone(), now + it.left));
        inner.is_given_back |= leader.is_none_or(|it| it.value != *self.table.instance());
        let news = leader.map(|it| &it.value).filter(|it| Some(*it) != before.as_ref());
        if news.is_some_and(|it| it != self.table.instance()) && inner.state == State::Follower {
            self.say(&Event::LeaderFollower { role: &self.role, leader: news });
        }
    }

    /// Another instance leads, or this one is no candidate.
    pub(crate) fn follow(&self) {
        self.change(|inner| self.turn(inner, State::Follower));
    }

    /// Nobody leads: an attempt begins.
    pub(crate) fn stand(&self) {
        self.change(|inner| self.turn(inner, State::Candidate));
    }

    /// The attempt failed.
    pub(crate) fn not_elected(&self, winner: Option<&InstanceId>, why: &str) {
        self.change(|inner| {
            let role = self.role.clone();
            self.say(&Event::LeaderElectionFailed { role: &role, error: &why });
            if let Some(winner) = winner {
                inner.leader = Some((winner.clone(), self.fresh_end()));
            }
            let (winner, reason) = (winner.cloned(), why.to_owned());
            self.listeners.post(ElectionEvent::ElectionFailed { role, winner, reason });
            self.turn(inner, State::Follower);
        });
    }

    /// The table holds `tenure`. If it has lost it meanwhile, listeners learn of neither.
    pub(crate) fn elected(&self, tenure: &Tenure) {
        self.change(|inner| {
            if !self.table.has(tenure) {
                return self.turn(inner, State::Follower);
            }
            let (role, term) = (self.role.clone(), tenure.fence);
            self.turn(inner, State::Candidate);
            self.say(&Event::LeaderElected { role: &role, term });
            self.turn(inner, State::Leader);
            inner.term = Some(term);
            inner.leader = None;
            self.listeners.post(ElectionEvent::LeadershipAcquired { role, term });
            // The role was given up, or the election stopped, while the grant was on its way.
            if inner.is_stopping && self.table.drain(self.role.as_lease()) {
                inner.leaving = Some((term, None));
            }
            if inner.leaving.as_ref().is_some_and(|it| it.0 == term) {
                self.step_down(inner, LossReason::Resigned);
            }
        });
    }

    fn step_down(&self, inner: &mut Inner, reason: LossReason) {
        let (role, Some(term)) = (self.role.clone(), inner.term.take()) else { return };
        match &reason {
            LossReason::Expired => self.say_lost(term, "expired", None),
            LossReason::Taken(owner) => self.say_lost(term, "taken", Some(owner)),
            LossReason::Gone => self.say_lost(term, "gone", None),
            LossReason::Resigned => {
                let heir = inner.leaving.as_ref().and_then(|it| it.1.as_ref());
                self.say(&Event::LeaderResigned { role: &role, term, heir });
            }
        }
        inner.leader = match &reason {
            LossReason::Taken(owner) => Some((owner.clone(), self.fresh_end())),
            _ => None,
        };
        self.turn(inner, State::Follower);
        self.listeners.post(ElectionEvent::LeadershipLost { role, term, reason });
    }

    fn say_lost(&self, term: FenceToken, reason: &str, owner: Option<&InstanceId>) {
        self.say(&Event::LeaderLost { role: &self.role, term, reason, owner });
    }

    /// Gives the role up, for `heir` if there is one (R11): no new duty begins, and the elector releases the role
    /// after the last one. Does nothing if it is not held.
    pub fn resign(&self, heir: Option<InstanceId>) {
        self.change(|inner| {
            if !self.table.drain(self.role.as_lease()) {
                return;
            }
            // The role may have been lost and granted again since `drain`: the new term stays.
            let held = self.table.holding(self.role.as_lease()).filter(|it| it.draining);
            if let Some(held) = held {
                inner.leaving = Some((held.fence, heir));
                self.step_down(inner, LossReason::Resigned);
            }
        });
        self.poke();
    }

    /// Stands no more, and gives up what it holds.
    pub fn stop(&self) {
        self.inner.lock().is_stopping = true;
        self.resign(None);
    }

    /// Whether the candidate stands no more.
    pub fn is_stopping(&self) -> bool {
        self.inner.lock().is_stopping
    }

    /// Whether a leadership is unfinished: the table holds the role, or listeners do not know yet that it ended.
    pub fn has_leadership(&self) -> bool {
        let is_told = self.inner.lock().term.is_none();
        !is_told || self.table.tenure(self.role.as_lease()).is_some()
    }

    /// The tenure to release now and its heir, once all duties have ended. R4: takes it out of the table.
    pub(crate) fn let_go(&self) -> Option<(Tenure, Option<InstanceId>)> {
        let mut inner = self.inner.lock();
        if inner.leaving.is_none() || inner.running > 0 {
            return None;
        }
        let (term, heir) = inner.leaving.take()?;
        let tenure = self.table.tenure(self.role.as_lease()).filter(|it| it.fence == term)?;
        self.table.forget_for_release(&tenure.endpoint).map(|it| (it, heir))
    }

    /// A wake-up that is already queued is enough.
    fn poke(&self) {
        let _ = self.poke.try_send(());
        self.table.clock().0.scheduler().iter().for_each(|it| it.kick());
    }
}

impl LeaseEventSink for Arc<RoleState> {
    fn applied(&self, applied: &Applied) {
        let role = &self.role;
        for tenure in &applied.reclaimed {
            self.say(&Event::LeaderReclaimed { role, term: tenure.fence });
        }
        for (tenure, error) in &applied.doubted {
            self.say(&Event::LeaderUncertain { role, term: tenure.fence, error });
        }
        self.lost(&applied.lost);
        if let Some(ahead) = applied.anomaly.ran_ahead {
            self.say(&Event::StoreClock { ahead });
        }
    }

    fn round(&self, _: &Applied) {
        // A waiter checks `is_leader` and begins to wait under this lock; taking it makes sure that the notification
        // reaches it.
        drop(self.inner.lock());
        self.changed.notify_all();
    }

    fn lost(&self, lost: &[Lost]) {
        for Lost { tenure, loss } in lost {
            self.change(|inner| {
                inner.leaving.take_if(|it| it.0 == tenure.fence);
                if inner.term == Some(tenure.fence) {
                    self.step_down(inner, loss.clone().into());
                }
            });
            self.poke();
        }
    }
}

impl From<Loss> for LossReason {
    fn from(loss: Loss) -> Self {
        match loss {
            // Only an instance that polls can be revoked (R15).
            Loss::Expired | Loss::Revoked => Self::Expired,
            Loss::Taken(owner) => Self::Taken(owner),
            Loss::Gone => Self::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::election::role_elector::RoleElector;
    use crate::election::settings::ElectionSettings;
    use crate::store::memory::{MemoryServer, MemoryStore};
    use crate::store::{Fault, Renew, Reply, Store, StoreError};
    use crossbeam_channel::{Receiver, bounded};

    /// One role by hand: what happens between the steps of its threads.
    struct Rig {
        clock: Arc<ManualClock>,
        server: Arc<MemoryServer>,
        store: Arc<dyn Store>,
        role_state: Arc<RoleState>,
        told: Arc<Mutex<Vec<ElectionEvent>>>,
        poked: Receiver<()>,
    }

    fn settings() -> ElectionSettings {
        ElectionSettings {
            role: Role::parse("r").unwrap(),
            ttl: Duration::from_secs(3),
            heartbeat_interval: Duration::from_secs(1),
            election_interval: Duration::from_secs(15),
            startup_jitter: Duration::ZERO,
            priority: 0,
            stands: true,
            store_timeout: Duration::from_millis(300),
        }
    }

    impl Rig {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::at(10_000_000_000_000));
            let server = MemoryServer::of_roles(&clock);
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
            let (me, timings) = (InstanceId::new("a"), settings().timings());
            let own: Arc<ManualClock> = Arc::clone(&clock);
            let table = OwnershipTable::of_role(me, timings, own, true);
            let (poke, poked) = bounded(1);
            let role_state = RoleState::new(settings().role, Arc::new(table), poke);
            let told = Arc::<Mutex<Vec<ElectionEvent>>>::default();
            let heard = Arc::clone(&told);
            let _stays = role_state.listen_inline(move |it| heard.lock().push(it.clone()));
            Self { clock, server, store, role_state, told, poked }
        }

        /// The table has it, and nobody has been told.
        fn granted(&self) -> Tenure {
            let wanted = [self.role_state.role.as_lease().clone()];
            self.role_state.table.ensure_time_known(|timeout| self.store.time(timeout)).unwrap();
            loop {
                let request = self.role_state.table.request();
                let reply = self.store.acquire(&request.context, &wanted).unwrap();
                let (gained, _) = self.role_state.table.granted(&request, &wanted, &reply);
                if let Some(gained) = gained.first() {
                    return gained.tenure.clone();
                }
            }
        }

        fn led(&self) -> Tenure {
            let tenure = self.granted();
            self.role_state.elected(&tenure);
            self.told.lock().clear();
            tenure
        }

        /// The table has lost it, and nobody has been told.
        fn lost(&self) -> Vec<Lost> {
            self.clock.pass(Duration::from_secs(1));
            let (request, items) = self.role_state.table.renewals().unwrap();
            let stamp = self.store.renew(&request.context, &items).unwrap().stamp;
            let reply = Reply { stamp, answer: Some(vec![Renew::NotOwner(None)]) };
            self.role_state.table.renewed(&request, &items, &reply).lost
        }

        /// How often it was told that a leadership began, and ended.
        fn leaderships(&self) -> (usize, usize) {
            let told = self.told.lock();
            let is_begin =
                |it: &&ElectionEvent| matches!(it, ElectionEvent::LeadershipAcquired { .. });
            let is_end = |it: &&ElectionEvent| matches!(it, ElectionEvent::LeadershipLost { .. });
            (told.iter().filter(is_begin).count(), told.iter().filter(is_end).count())
        }
    }

    #[test]
    fn a_resignation_before_the_grant_was_announced_is_told_and_carried_out() {
        let rig = Rig::new();
        let tenure = rig.granted();
        rig.role_state.resign(None);
        assert!(!rig.role_state.is_leader());
        rig.role_state.elected(&tenure);
        assert_eq!((rig.leaderships(), rig.role_state.state()), ((1, 1), State::Follower));
        assert_eq!(
            rig.role_state.let_go(),
            Some((tenure, None)),
            "drained, renewed and never given back"
        );
        assert!(!rig.role_state.has_leadership());
    }

    #[test]
    fn a_stop_while_the_grant_is_on_its_way_gives_it_back() {
        let rig = Rig::new();
        rig.role_state.stop();
        let tenure = rig.granted();
        rig.role_state.elected(&tenure);
        assert!(!rig.role_state.is_leader(), "elected after its stop");
        assert_eq!(rig.leaderships(), (1, 1));
        assert!(rig.role_state.let_go().is_some());
    }

    #[test]
    fn a_grant_that_was_lost_before_it_was_announced_is_not_announced() {
        let rig = Rig::new();
        let tenure = rig.granted();
        let lost = rig.lost();
        rig.role_state.lost(&lost);
        rig.role_state.elected(&tenure);
        assert_eq!((rig.leaderships(), rig.role_state.state()), ((0, 0), State::Follower));
    }

    #[test]
    fn nothing_is_stood_for_before_the_loss_was_told() {
        let rig = Rig::new();
        let tenure = rig.led();
        let lost = rig.lost();
        assert!(!rig.role_state.is_leader());
        let mut candidate =
            RoleElector::new(Arc::clone(&rig.role_state), Arc::clone(&rig.store), settings());
        candidate.step();
        assert_eq!(rig.leaderships(), (0, 0), "a new term before the end of the last one");
        rig.role_state.lost(&lost);
        assert!(rig.poked.try_recv().is_ok(), "nobody wakes the elector");
        candidate.step();
        assert_eq!(rig.leaderships(), (1, 1));
        assert!(rig.role_state.term().unwrap() > tenure.fence);
    }

    #[test]
    fn the_loss_of_an_earlier_term_changes_nothing_about_this_one() {
        let rig = Rig::new();
        let earlier = Tenure::new(rig.role_state.role.as_lease().clone(), FenceToken(1));
        rig.led();
        rig.role_state.lost(&[Lost { tenure: earlier.clone(), loss: Loss::Expired }]);
        assert_eq!((rig.leaderships(), rig.role_state.state()), ((0, 0), State::Leader));
        rig.role_state.resign(None);
        rig.role_state.lost(&[Lost { tenure: earlier, loss: Loss::Expired }]);
        assert_eq!(rig.leaderships(), (0, 1), "told twice, or for another");
        assert!(rig.role_state.let_go().is_some(), "the resignation is forgotten");
    }

    #[test]
    fn nothing_is_given_back_before_the_work_has_ended_or_without_a_resignation() {
        let rig = Rig::new();
        rig.led();
        assert_eq!(rig.role_state.let_go(), None, "nobody resigned");
        let duties = [rig.role_state.enter().unwrap(), rig.role_state.enter().unwrap()];
        rig.role_state.resign(None);
        rig.role_state.resign(Some(InstanceId::new("b")));
        assert!(rig.role_state.enter().is_none());
        for duty in duties {
            assert_eq!(rig.role_state.let_go(), None, "something is under way");
            while rig.poked.try_recv().is_ok() {}
            drop(duty);
            assert!(rig.poked.try_recv().is_ok(), "nobody wakes the elector");
        }
        assert_eq!(
            rig.role_state.let_go().map(|it| it.1),
            Some(None),
            "for whom it was first meant"
        );
        assert_eq!(rig.leaderships(), (0, 1), "a loss is told once");
    }

    /// Else a stop would say that the store knows of its end, while the role's key names this instance.
    #[test]
    fn a_grant_that_came_late_or_not_at_all_is_not_given_back_until_a_look_shows_it() {
        for is_late in [false, true] {
            let rig = Rig::new();
            let (state, store) = (Arc::clone(&rig.role_state), Arc::clone(&rig.store));
            let mut candidate = RoleElector::new(state, store, settings());
            candidate.introduce().unwrap();
            let (request, role) = (candidate.request().unwrap(), [candidate.role().clone()]);
            let granted = rig.store.acquire(&request.context, &role).unwrap();
            assert!(rig.role_state.is_given_back());
            rig.clock.pass(Duration::from_millis(2_900));
            let (op, target, reason) = ("acquire", "r".to_owned(), "no answer".to_owned());
            let silence = StoreError { op, target, fault: Fault::Unreachable, reason };
            assert!(
                !candidate.attempted(&request, if is_late { Ok(granted) } else { Err(silence) })
            );
            let mut look = |leader: Option<&str>| {
                let status =
                    rig.store.role_statuses(&role, settings().store_timeout).unwrap().remove(0);
                assert_eq!(status.leader.as_ref().map(|it| it.value.as_str()), leader);
                candidate.looked(status);
                rig.role_state.is_given_back()
            };
            assert!(!look(Some("a")), "late: {is_late}");
            rig.clock.pass(Duration::from_secs(1));
            assert!(look(None), "late: {is_late}");
        }
    }

    #[test]
    fn a_doubt_is_not_the_end_and_the_deadline_is() {
        let rig = Rig::new();
        rig.led();
        rig.clock.pass(Duration::from_secs(1));
        let (_, items) = rig.role_state.table.renewals().unwrap();
        rig.role_state.table.unanswered(&items, "no answer");
        assert_eq!((rig.role_state.is_leader(), rig.role_state.state()), (false, State::Leader));
        assert_eq!((rig.role_state.leader(), rig.role_state.term()), (None, None));
        rig.clock.pass(Duration::from_millis(1_809));
        assert_eq!(rig.role_state.state(), State::Leader);
        rig.clock.pass(Duration::from_millis(2));
        assert_eq!(rig.role_state.state(), State::Follower, "no thread has run");
        assert_eq!(rig.server.owner(rig.role_state.role.as_lease()), Some(InstanceId::new("a")));
    }

    #[test]
    fn who_waits_for_leadership_is_woken_by_an_election_and_by_a_stop() {
        let rig = Rig::new();
        assert!(!rig.role_state.wait_for_leadership(Duration::ZERO));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| rig.role_state.wait_for_leadership(Duration::MAX));
            rig.led();
            assert!(waits.join().unwrap());
        });
        rig.role_state.stop();
        assert!(!rig.role_state.wait_for_leadership(Duration::MAX));
    }
}
