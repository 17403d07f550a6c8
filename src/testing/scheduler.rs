//! Whose turn is it at this moment of a test's clock? One step or one woken thread at a time, in an order of its own.
//!
//! The library starts no threads on this clock. The driver calls the steps that are due, one after another: a thread that
//! calls `advance`, or one that waits for something and has nothing else to do. After each step the driver waits until every
//! listener has heard everything, and until every thread that was woken waits again or has left the library. So two things
//! happen at once only if the test itself does them at once, and a story has one course.

mod state;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::scheduler::{Scheduler, Steps};
use crate::clock::{BootClock, Clock, ManualClock, Moment};
use crate::store::memory::PushObserver;
use crate::testing::scheduler::state::{Due, Listener, Part, Scheduled, State, Waiting};

/// Real time in which a listener, or a thread that was woken, must come back.
const PATIENCE: Duration = Duration::from_secs(10);
/// Real time after which a thread that waits gives up, because nobody moves the clock.
const PARKED: Duration = Duration::from_secs(60);
/// Most steps at one moment.
const STEPS_MAX: usize = 1_000_000;

thread_local! {
    /// What this thread is, and to the scheduler at which address; the last one counts.
    static PARTS: RefCell<Vec<(usize, Part)>> = const { RefCell::new(Vec::new()) };
}

/// The scheduler of one `TestRedis`.
pub(crate) struct TestScheduler {
    clock: Arc<ManualClock>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The right to call steps, until it is dropped.
struct Driving<'a>(&'a TestScheduler);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.state.lock().driver = None;
        self.0.changed.notify_all();
    }
}

impl TestScheduler {
    pub(crate) fn new(clock: &Arc<ManualClock>) -> Self {
        let (clock, state, changed) = (Arc::clone(clock), Mutex::default(), Condvar::new());
        Self { clock, state, changed }
    }

    /// Lets everything happen that is due until `by` from now, then moves the clock there.
    pub(crate) fn advance(&self, by: Duration) {
        let driving = self.drive_alone();
        let until = self.clock.now() + by;
        loop {
            self.drive(true, None);
            // Under the lock: no call begins at one moment and ends at another.
            let state = self.state.lock();
            if !state.is_quiet() {
                continue;
            }
            let now = self.clock.now();
            if now >= until {
                break;
            }
            let next = state.next_due().map_or(until, |it| it.min(until));
            self.clock.pass(next.since(now));
        }
        drop(driving);
    }

    /// Returns when this many threads wait inside the library, and nothing is due any more that they have caused.
    pub(crate) fn wait_for_waiters(&self, count: usize) {
        let (mut state, until) = (self.state.lock(), BootClock.now() + PATIENCE);
        while state.waiting() < count || !state.is_at_rest(self.clock.now()) {
            let waiting = state.waiting();
            assert!(
                self.wait_until(&mut state, until),
                "{waiting} threads wait by the test clock after {PATIENCE:?}, and not {count}"
            );
        }
    }

    fn part(&self) -> Part {
        PARTS.with_borrow(|parts| {
            let mine = parts.iter().rev().find(|it| it.0 == self.address());
            mine.map_or(Part::Stranger, |it| it.1)
        })
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn begin_part(&self, part: Part) {
        PARTS.with_borrow_mut(|it| it.push((self.address(), part)));
    }

    fn end_part(&self) {
        PARTS.with_borrow_mut(|parts| {
            let last = parts.iter().rposition(|it| it.0 == self.address());
            last.map(|it| parts.remove(it));
        });
    }

    fn drive_alone(&self) -> Driving<'_> {
        let (mut state, until) = (self.state.lock(), BootClock.now() + PATIENCE);
        let me = std::thread::current().id();
        assert!(
            self.part() == Part::Stranger && state.driver != Some(me),
            "a listener moves the test clock: leave that to the test, which waits for the listener"
        );
        while state.driver.is_some() {
            assert!(
                self.wait_until(&mut state, until),
                "another thread has moved the test clock for {PATIENCE:?}"
            );
        }
        state.driver = Some(me);
        Driving(self)
    }

    /// Calls what is due at this moment. A patient driver also gives threads that wait their turns, and waits for them and
    /// for listeners; it stops when the turn is that of the wait `mine`.
    fn drive(&self, is_patient: bool, mine: Option<u64>) {
        for _ in 0..STEPS_MAX {
            let mut state = self.state.lock();
            if is_patient {
                self.wait_until_quiet(&mut state);
            }
            let now = self.clock.now();
            if let Some(number) = state.due_steps(now) {
                self.call(state, number, now);
                continue;
            }
            let wait = if is_patient { state.due_wait(now) } else { None };
            let Some(wait) = wait else { return };
            state.give_turn(wait);
            self.changed.notify_all();
            if Some(wait) == mine {
                return;
            }
        }
        let state = self.state.lock();
        let name = state.steps.get(&state.last_called).and_then(|it| it.steps.as_ref());
        panic!("{} has no end at one moment", name.map_or("a wait", |it| it.name()));
    }

    fn call(&self, mut state: MutexGuard<'_, State>, number: u64, now: Moment) {
        let Some(mut steps) = state.steps.get_mut(&number).and_then(|it| it.steps.take()) else {
            return;
        };
        state.last_called = number;
        state.waits_for_push = false;
        let pushes = state.pushes;
        drop(state);
        let wait = steps.step();
        let mut state = self.state.lock();
        state.progress += 1;
        let due = if state.waits_for_push && wait.is_zero() {
            Due::AfterPush(pushes)
        } else {
            Due::At(now + wait)
        };
        let is_finished = state.steps.get(&number).is_none_or(|it| it.is_finished);
        if is_finished {
            state.steps.remove(&number);
            drop(state);
            steps.end();
        } else if let Some(scheduled) = state.steps.get_mut(&number) {
            scheduled.due = due;
            scheduled.steps = Some(steps);
        }
        self.changed.notify_all();
    }

    fn wait_until_quiet(&self, state: &mut MutexGuard<'_, State>) {
        let until = BootClock.now() + PATIENCE;
        while !state.is_quiet() {
            assert!(
                self.wait_until(state, until),
                "a listener, or a thread that was woken, has not come back for {PATIENCE:?}: does \
                 it wait for something that the thread holds which moves the test clock?"
            );
        }
    }

    /// Waits for a change; false at the real time `until`.
    fn wait_until(&self, state: &mut MutexGuard<'_, State>, until: Moment) -> bool {
        !self.changed.wait_for(state, until.since(BootClock.now())).timed_out()
    }

    fn bump(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        state.progress += 1;
        drop(state);
        self.changed.notify_all();
    }
}

impl Scheduler for TestScheduler {
    fn start(&self, steps: Box<dyn Steps>) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_number();
        let due = Due::At(self.clock.now());
        state.steps.insert(number, Scheduled { steps: Some(steps), due, is_finished: false });
        state.progress += 1;
        drop(state);
        self.changed.notify_all();
        number
    }

    fn finish(&self, number: u64) {
        let mut state = self.state.lock();
        let mut steps = loop {
            let Some(scheduled) = state.steps.get_mut(&number) else { return };
            if let Some(steps) = scheduled.steps.take() {
                break steps;
            }
            if state.driver == Some(std::thread::current().id()) {
                state.steps.get_mut(&number).into_iter().for_each(|it| it.is_finished = true);
                return;
            }
            self.changed.wait(&mut state);
        };
        state.steps.remove(&number);
        drop(state);
        steps.end();
    }

    fn settle(&self) {
        let mut state = self.state.lock();
        if state.driver.is_some() {
            return;
        }
        state.driver = Some(std::thread::current().id());
        drop(state);
        let _driving = Driving(self);
        self.drive(false, None);
    }

    fn kick(&self) {
        self.bump(|_| ());
    }

    fn enter(&self) -> bool {
        self.settle();
        let entered = self.part() == Part::Stranger;
        if entered {
            self.begin_part(Part::Inside);
            self.state.lock().inside += 1;
        }
        entered
    }

    fn leave(&self, entered: bool) {
        if entered {
            self.end_part();
            self.state.lock().inside -= 1;
            self.changed.notify_all();
        }
    }

    fn join(&self, until: Moment, any_change: bool) -> u64 {
        let mut state = self.state.lock();
        let (wait, part) = (state.next_number(), self.part());
        let seen = any_change.then_some(state.progress);
        let waiting = Waiting { until, seen, is_notified: false, has_turn: false, part };
        state.waits.insert(wait, waiting);
        wait
    }

    fn park(&self, wait: u64, longest: Option<Duration>) {
        let (mut state, part, me) = (self.state.lock(), self.part(), std::thread::current().id());
        if std::thread::panicking() {
            state.waits.remove(&wait); // a test that fails is not to hang
            return;
        }
        if state.driver == Some(me) {
            state.waits.remove(&wait);
            drop(state);
            panic!("a listener that is called inline waits, and keeps the test clock waiting");
        }
        state.set_waiting(part, true);
        self.changed.notify_all();
        let (mut progress, mut since) = (state.progress, BootClock.now());
        let until = longest.map(|it| since + it);
        while state.waits.get(&wait).is_some_and(|it| !it.has_turn) {
            if state.driver.is_none() && state.is_quiet() && !state.is_at_rest(self.clock.now()) {
                state.driver = Some(me);
                drop(state);
                let driving = Driving(self);
                self.drive(true, Some(wait));
                drop(driving);
                state = self.state.lock();
                continue;
            }
            if progress != state.progress {
                (progress, since) = (state.progress, BootClock.now());
            }
            let is_late = !self.wait_until(&mut state, until.unwrap_or(since + PARKED));
            let has_turn = state.waits.get(&wait).is_none_or(|it| it.has_turn);
            if is_late && !has_turn && longest.is_some() {
                state.set_waiting(part, false);
                break;
            }
            if is_late && !has_turn && progress == state.progress && state.driver.is_none() {
                state.waits.remove(&wait);
                state.set_waiting(part, false);
                drop(state);
                panic!(
                    "a thread has waited for {PARKED:?} by a test clock that nobody moves: call \
                     `advance` on another thread, or wait with a zero timeout"
                );
            }
        }
        state.waits.remove(&wait);
    }

    fn notify(&self, wait: u64) {
        self.bump(|state| {
            state.waits.get_mut(&wait).into_iter().for_each(|it| it.is_notified = true);
        });
    }

    fn cancel(&self, wait: u64) {
        self.state.lock().waits.remove(&wait);
    }

    fn add_listener(&self) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_number();
        state.listeners.insert(number, Listener::default());
        number
    }

    fn posted(&self, listener: u64) {
        self.bump(|state| state.listeners.entry(listener).or_default().unheard += 1);
    }

    fn heard(&self, listener: u64) {
        self.bump(|state| state.listeners.entry(listener).or_default().unheard -= 1);
    }

    fn is_listening(&self, listener: u64, listens: bool) {
        if listens {
            self.begin_part(Part::Listener(listener));
        } else {
            self.end_part();
        }
    }
}

impl PushObserver for TestScheduler {
    fn pushed(&self) {
        self.bump(|state| state.pushes += 1);
    }

    fn nothing_pushed(&self) {
        self.state.lock().waits_for_push = true;
    }
}
