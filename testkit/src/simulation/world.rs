//! The simulated clock and the schedule: what happens next, and what happens while a call is under way.
//!
//! Production steps block in their calls, so a call that takes time plays whatever else is due meanwhile on
//! top of it, and returns when its answer is there. A call that begins meanwhile is answered before that: calls
//! that overlap end in reverse order. All other interleavings of calls, steps and faults come up.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock};
use leasehold::model::EndpointId;
use leasehold::store::memory::MemoryServer;

use super::faults::{Faults, ScheduledEvent};
use super::judge::Judge;
use super::member::{Member, Part};
use super::scene::Scene;
use super::trace::Trace;
use crate::random::Random;

pub const MS: u64 = 1_000_000;
pub const START: u64 = 10_000_000_000_000;
/// Most calls that may be nested; one more is answered at once.
const DEPTH_MAX: u32 = 20;

/// A seed that takes more steps than this runs in circles.
const STEPS_MAX: u64 = 30_000_000;

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// The world that is played on this thread. Stores and pollers must be `Send`, and find it here.
pub fn world() -> Rc<World> {
    WORLD.with_borrow(|it| Rc::clone(it.as_ref().expect("no world on this thread")))
}

/// What happens at some time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// A thread of the n-th process that was started is due.
    Step(usize, Part),
    /// A late request is executed.
    CatchUp,
    /// Something goes wrong, or is over.
    Fault(ScheduledEvent),
}

pub struct World {
    pub scene: Scene,
    pub clock: Arc<ManualClock>,
    pub server: Arc<MemoryServer>,
    pub roles: Arc<MemoryServer>,
    pub dice: Random,
    pub members: RefCell<Vec<Rc<Member>>>,
    pub endpoints: Vec<EndpointId>,
    pub judge: Judge,
    pub faults: Faults,
    pub trace: Trace,
    /// Production steps and executed calls.
    pub steps: Cell<u64>,
    pub calls: Cell<u64>,
    schedule: Schedule,
    failure: RefCell<Option<String>>,
}

/// What happens when, and the calls that are under way.
struct Schedule {
    /// By time, and then in the order in which they were planned.
    queue: RefCell<BinaryHeap<Reverse<(u64, u64, Happening)>>>,
    planned: Cell<u64>,
    /// Calls that are nested now.
    depth: Cell<u32>,
    /// When the innermost of them must be answered.
    outer_end: Cell<u64>,
}

impl World {
    /// Begins a world on this thread, in place of an earlier one.
    pub fn begin(scene: Scene, seed: u64, traced: bool) -> Rc<Self> {
        let clock = Arc::new(ManualClock::at(START));
        let (server, roles) = (MemoryServer::new(&clock), MemoryServer::of_roles(&clock));
        let endpoint = |n: usize| EndpointId::parse(&format!("e{n}")).expect("legal");
        let world = Rc::new(Self {
            endpoints: (0..scene.endpoints).map(endpoint).collect(),
            judge: Judge::new(&scene),
            faults: Faults::new(scene.endpoints),
            scene,
            clock,
            server,
            roles,
            dice: Random::new(seed),
            members: RefCell::default(),
            trace: Trace::new(traced),
            steps: Cell::new(0),
            calls: Cell::new(0),
            schedule: Schedule {
                queue: RefCell::default(),
                planned: Cell::new(0),
                depth: Cell::new(0),
                outer_end: Cell::new(u64::MAX),
            },
            failure: RefCell::default(),
        });
        WORLD.set(Some(Rc::clone(&world)));
        world
    }

    /// Nothing of it is found on this thread any more.
    pub fn end() {
        if let Some(world) = WORLD.take() {
            world.members.borrow_mut().clear();
        }
    }

    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    pub fn member(&self, n: usize) -> Rc<Member> {
        Rc::clone(&self.members.borrow()[n])
    }

    /// Those whose process exists, frozen or not.
    pub fn living(&self) -> Vec<Rc<Member>> {
        self.members.borrow().iter().filter(|it| !it.gone.get()).map(Rc::clone).collect()
    }

    pub fn fail(&self, why: String) {
        let mut failure = self.failure.borrow_mut();
        if failure.is_none() {
            self.trace.say(self.now(), || format!("*** {why}"));
            *failure = Some(why);
        }
    }

    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    fn is_over(&self) -> bool {
        self.failure.borrow().is_some()
    }

    pub fn at(&self, at: u64, what: Happening) {
        let turn = self.schedule.planned.get();
        self.schedule.planned.set(turn + 1);
        self.schedule.queue.borrow_mut().push(Reverse((at, turn, what)));
    }

    pub fn after(&self, wait: u64, what: Happening) {
        self.at(self.now() + wait, what);
    }

    /// Plays everything until then.
    pub fn pass(&self, duration: Duration) {
        let until = self.now() + nanos(duration);
        self.run(until, &|| false);
    }

    /// A call or a poll of `member` takes until then, unless it is `over` sooner, and longer if it is
    /// frozen meanwhile.
    pub fn wait(&self, member: &Member, until: u64, over: &dyn Fn() -> bool) {
        if self.schedule.depth.get() >= DEPTH_MAX {
            return;
        }
        let outer_end = self.schedule.outer_end.get();
        let until = until.min(outer_end).max(self.now());
        self.schedule.depth.set(self.schedule.depth.get() + 1);
        self.schedule.outer_end.set(until);
        self.run(until, over);
        while member.pause.frozen_until.get() > self.now() && !member.gone.get() && !self.is_over()
        {
            self.schedule.outer_end.set(member.pause.frozen_until.get());
            self.run(member.pause.frozen_until.get(), &|| member.gone.get());
        }
        self.schedule.outer_end.set(outer_end);
        self.schedule.depth.set(self.schedule.depth.get() - 1);
    }

    fn run(&self, until: u64, over: &dyn Fn() -> bool) {
        loop {
            let next = {
                let mut queue = self.schedule.queue.borrow_mut();
                let due = queue.peek().is_some_and(|it| it.0.0 <= until);
                if due { queue.pop() } else { None }
            };
            let Some(Reverse((at, _, what))) = next else { break };
            self.move_to(at);
            self.happen(what);
            if self.steps.get() > STEPS_MAX {
                self.fail(format!("no end after {STEPS_MAX} steps"));
            }
            if self.is_over() || over() {
                return;
            }
        }
        self.move_to(until);
    }

    fn move_to(&self, at: u64) {
        let now = self.now();
        if at > now {
            self.clock.pass(Duration::from_nanos(at - now));
        }
    }

    fn happen(&self, what: Happening) {
        match what {
            Happening::Step(n, part) => {
                let member = self.member(n);
                member.step(self, part);
            }
            Happening::CatchUp => {
                self.server.catch_up();
                self.roles.catch_up();
                self.wake_subscribers();
                self.judge.results(self);
            }
            Happening::Fault(event) => self.faults.happen(self, event),
        }
    }

    /// Wakes the members for which the server has a push.
    pub fn wake_subscribers(&self) {
        let (polls, roles) = (self.server.has_told(), self.roles.has_told());
        if polls || roles {
            for member in self.members.borrow().iter().filter(|it| !it.gone.get()) {
                if polls {
                    member.wake(self, Part::Watch, 100_000);
                }
                if roles {
                    member.wake(self, Part::RoleWatch, 100_000);
                }
            }
        }
    }
}

pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
