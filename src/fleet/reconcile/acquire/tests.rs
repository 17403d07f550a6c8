//! Whether a pass over more than one step's worth of leases keeps nothing else waiting.

use crossbeam_channel::bounded;

use crate::clock::{Clock, ManualClock};
use crate::fleet::reconcile::Reconcile;
use crate::fleet::reconcile::acquire::*;
use crate::lease::heartbeat::Heartbeat;
use crate::lease::table::{LeaseTimings, OwnershipTable};
use crate::lease::watch::Nudge;
use crate::model::{InstanceId, LeaseDuration, Weight};
use crate::store::memory::{MemoryServer, MemoryStore};
use crate::store::{Changes, PeerMessage, Push, Store};

/// Nothing has to be renewed in any of these tests.
const TTL: Duration = Duration::from_secs(300);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn endpoint(number: usize) -> EndpointId {
    EndpointId::parse(&format!("session-{number}")).unwrap()
}

/// The instance that is looked at, `me`, and another that beats and does nothing by itself.
struct Rig {
    clock: Arc<ManualClock>,
    server: Arc<MemoryServer>,
    other: InstanceId,
    reconcile: Reconcile,
}

impl Rig {
    /// This many sessions; the other instance has the first of them.
    fn new(sessions: usize, others: usize, weight: Weight) -> Self {
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let server = MemoryServer::new(&clock);
        let other = InstanceId::new("other");
        for it in 0..sessions {
            put_session(&server, it);
        }
        let join = |id: &InstanceId, weight| {
            let duration = LeaseDuration::new(TTL);
            let (renew_interval, store_timeout) = (TTL / 3, Duration::from_secs(2));
            let timings = LeaseTimings {
                lease: duration,
                heartbeat: duration,
                renew_interval,
                store_timeout,
            };
            let clock: Arc<ManualClock> = Arc::clone(&clock);
            let table = Arc::new(OwnershipTable::new(id.clone(), timings, clock, true));
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
            Heartbeat::new(Arc::clone(&store), Arc::clone(&table), weight, TTL).step();
            (store, table)
        };
        join(&other, weight);
        let (store, table) = join(&InstanceId::new("me"), Weight(1));
        for it in 0..others {
            server.put_lease(&endpoint(it), &other, TTL);
        }
        // Nobody dispatches.
        let (changes, _) = bounded(1);
        let reconcile = Reconcile::new(store, table, changes, TTL, TTL);
        let mut rig = Self { clock, server, other, reconcile };
        rig.reconcile.step(&[Nudge::Listening { messages: true, changes: true, refused: None }]);
        while !rig.reconcile.informer.is_settled() {
            rig.clock.pass(ms(20));
            rig.reconcile.step(&[]);
        }
        rig
    }

    fn overdue(&mut self, count: usize) -> impl Iterator<Item = EndpointId> + use<> {
        let Reconcile { context, informer, planner, acquisition, handover, .. } =
            &mut self.reconcile;
        let mut scope = MoveScope { context, informer, plan: &planner.plan };
        acquisition.overdue(&mut scope, handover, count)
    }

    fn find_overdue(&mut self) {
        let Reconcile { context, informer, planner, acquisition, handover, .. } =
            &mut self.reconcile;
        let scope = MoveScope { context, informer, plan: &planner.plan };
        acquisition.find_overdue(&scope, handover, self.clock.now());
    }

    fn holds(&self, endpoint: &EndpointId) -> bool {
        self.reconcile.context.table.holds(endpoint)
    }

    fn held(&self) -> usize {
        self.reconcile.context.table.len()
    }

    /// The other instance releases this many that it was asked for; its message.
    fn free(&self, count: usize) -> (Vec<EndpointId>, Nudge) {
        let asked = self.reconcile.planner.plan.ask.iter().take(count);
        let freed: Vec<EndpointId> = asked.map(|it| it.1.clone()).collect();
        freed.iter().for_each(|it| self.server.delete_lease(it));
        let heir = Some(self.reconcile.context.me.clone());
        let message =
            PeerMessage { freed: freed.clone(), heir, ..PeerMessage::new(&self.other, None) };
        (freed, Nudge::Push(Push::Message(message)))
    }
}

fn put_session(server: &MemoryServer, number: usize) {
    let name = endpoint(number);
    let json = format!(r#"{{"id":"{name}","address":"127.0.0.1:1"}}"#);
    server.put_session(name.as_str(), json.as_bytes());
}

/// One that has three steps' worth to take, and 100 to ask for.
fn in_a_pass() -> Rig {
    let share = 2 * AT_ONCE + 200;
    let rig = Rig::new(2 * share, share + 100, Weight(1));
    assert_eq!((rig.held(), rig.reconcile.planner.plan.ask.len()), (AT_ONCE, 100));
    assert_eq!(rig.reconcile.planner.plan.acquire.len(), 2 * AT_ONCE + 100);
    rig
}

/// G4, R8: every other instance leaves it to its heir.
#[test]
fn what_is_freed_for_an_heir_in_the_middle_of_a_pass_is_taken_in_its_next_step() {
    let mut rig = in_a_pass();
    let (freed, message) = rig.free(1);
    rig.reconcile.step(&[message]);
    assert!(rig.holds(&freed[0]));
    assert_eq!(rig.held(), 2 * AT_ONCE, "the pass goes on meanwhile");
    rig.reconcile.step(&[]);
    assert_eq!(rig.held(), 2 * AT_ONCE + 101, "nothing is left out");
}

/// The owner of a requested lease is read after a while.
#[test]
fn what_is_freed_in_the_middle_of_a_pass_is_taken_by_an_heir_without_the_message() {
    let mut rig = in_a_pass();
    let (freed, _) = rig.free(1);
    rig.clock.pass(ms(250));
    rig.reconcile.step(&[]);
    assert!(rig.holds(&freed[0]));
}

/// A plan that takes long is not made anew for every message.
#[test]
fn what_is_freed_for_an_heir_before_it_may_plan_again_is_taken_at_once() {
    let mut rig = in_a_pass();
    while rig.reconcile.acquisition.unfinished {
        rig.reconcile.step(&[]);
    }
    rig.reconcile.planner.next = Moment::MAX;
    let (freed, message) = rig.free(1);
    rig.reconcile.step(&[message]);
    assert!(rig.holds(&freed[0]));
}

/// The pass begins again, as when an instance joins.
#[test]
fn in_a_new_plan_what_was_freed_for_an_heir_comes_first() {
    let mut rig = in_a_pass();
    let (freed, message) = rig.free(100);
    rig.reconcile.acquisition.end_pass();
    rig.reconcile.step(&[message]);
    assert_eq!(
        rig.reconcile.planner.plan.acquire.len(),
        AT_ONCE + 200,
        "a new plan, for two steps"
    );
    assert!(freed.iter().all(|it| rig.holds(it)));
}

/// An instance that has acquired its own share. All other leases are free, and their heir does not acquire them.
fn before_falling_back() -> Rig {
    let rig = Rig::new(4 * AT_ONCE, 0, Weight(19));
    assert_eq!(rig.held(), AT_ONCE / 5);
    assert_eq!(rig.reconcile.planner.plan.fallback.len(), 4 * AT_ONCE - AT_ONCE / 5);
    rig.clock.pass(ms(300));
    rig
}

/// What was refused is not asked for again in each step that goes by until all that is overdue was taken.
#[test]
fn what_is_ours_is_asked_for_once_in_a_pass() {
    let mut rig = before_falling_back();
    let news: Vec<usize> = (4 * AT_ONCE..5 * AT_ONCE).collect();
    news.iter().for_each(|it| put_session(&rig.server, *it));
    let sessions = news.iter().map(|it| endpoint(*it).to_string()).collect();
    let push = Nudge::Push(Push::Changed(Changes { sessions, ..Changes::default() }));
    // They are read and found free. Then the other takes them, and nobody is told.
    rig.reconcile.apply(&push);
    while rig.reconcile.view().len() < 5 * AT_ONCE {
        rig.clock.pass(ms(10));
        rig.reconcile.informer.read_if_due();
    }
    for it in &news {
        rig.server.put_lease(&endpoint(*it), &rig.other, TTL);
    }
    let refused = |rig: &Rig| rig.server.acquires().0 - rig.server.acquires().1;
    rig.reconcile.step(&[]);
    let once = refused(&rig);
    assert!(once > 0 && rig.reconcile.acquisition.unfinished, "{once} were refused");
    rig.reconcile.step(&[]);
    assert!(rig.reconcile.acquisition.unfinished);
    assert_eq!(refused(&rig), once);
}

/// A pass may take longer than it takes until something is tried again.
#[test]
fn a_slow_pass_over_what_is_overdue_comes_to_its_end() {
    let mut rig = before_falling_back();
    let mut looked_at = FnvHashSet::default();
    for _ in 0..4 {
        looked_at.extend(rig.overdue(AT_ONCE));
        rig.clock.pass(2 * RETRY_FAILED);
    }
    assert_eq!(looked_at.len(), rig.reconcile.planner.plan.fallback.len());
    assert!(rig.reconcile.acquisition.overdue.is_empty());
}

/// Also when a plan takes long, and is not made anew at once.
#[test]
fn what_somebody_was_found_to_have_is_not_overdue_any_more() {
    let mut rig = before_falling_back();
    let fallback = rig.reconcile.planner.plan.fallback.iter().map(|it| &it.endpoint);
    fallback.for_each(|it| rig.server.put_lease(it, &rig.other, TTL));
    rig.reconcile.planner.next = Moment::MAX;
    for _ in 0..4 {
        rig.reconcile.step(&[]);
    }
    rig.clock.pass(RETRY_FAILED);
    rig.find_overdue();
    assert!(rig.reconcile.acquisition.overdue.is_empty());
}

/// R10: no heir was slow while nobody could act.
#[test]
fn nothing_is_overdue_right_after_a_hold_off() {
    let mut rig = before_falling_back();
    rig.reconcile.step(&[]);
    let held = rig.held();
    rig.reconcile.call_off_moves();
    rig.reconcile.planner.next = Moment::MAX;
    rig.reconcile.step(&[]);
    assert_eq!(rig.held(), held);
    rig.clock.pass(ms(300));
    rig.reconcile.step(&[]);
    assert_eq!(rig.held(), held + AT_ONCE);
}
