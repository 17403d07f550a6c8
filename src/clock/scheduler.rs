//! Who calls the steps of a thread, and who wakes a thread that waits? Time itself or, in a user's test, a [`Scheduler`].
//!
//! All that waits for a time in a manager or an election waits here: [`Wait`] for threads of the user, [`Steps`] for the
//! library's own, and [`Mailbox`] counts what a listener has still to hear. On the boot clock a [`Wait`] is a plain wait on a
//! condition variable. On the clock of a test (`testing`) the scheduler decides whose turn it is, so that no thread has to sleep.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::{Clock, Moment};

/// The body of a thread, which a scheduler can call in place of the thread.
pub trait Steps: Send {
    /// The name of the thread.
    fn name(&self) -> &str;
    /// Makes one step; how long to wait for the next.
    fn step(&mut self) -> Duration;
    /// Whether the next step is due at once.
    fn is_nudged(&self) -> bool;
    /// Whether it was told to stop, so that no step follows.
    fn is_over(&self) -> bool;
    /// What the thread does after its last step.
    fn end(&mut self);
}

/// Stands in for time, for threads and for the operating system's scheduler.
pub trait Scheduler: Send + Sync {
    /// Calls these steps from now on; their number.
    fn start(&self, steps: Box<dyn Steps>) -> u64;
    /// Calls them no more, and ends them. Waits for the step that is under way, unless it is the caller's.
    fn finish(&self, steps: u64);
    /// Lets happen what is due at this moment, unless another thread sees to that.
    fn settle(&self);
    /// Something has changed that steps or waiting threads may have to look at.
    fn kick(&self);

    /// A call begins that may wait. What this returns is for [`Self::leave`].
    fn enter(&self) -> bool;
    /// The call is over.
    fn leave(&self, entered: bool);
    /// This thread is about to wait until `until`, for a notification, or for any change at all; the number of its wait.
    fn join(&self, until: Moment, any_change: bool) -> u64;
    /// Waits for its turn, or for so much real time.
    fn park(&self, wait: u64, longest: Option<Duration>);
    /// It need not wait any longer.
    fn notify(&self, wait: u64);
    /// It does not wait after all.
    fn cancel(&self, wait: u64);

    /// A new listener; its number.
    fn add_listener(&self) -> u64;
    /// Something was put into the queue of a listener.
    fn posted(&self, listener: u64);
    /// It has been heard, or dropped.
    fn heard(&self, listener: u64);
    /// Whether this thread is that of the listener, which calls the user now.
    fn is_listening(&self, listener: u64, listens: bool);
}

/// What threads wait on until something has changed.
#[derive(Default)]
pub(crate) struct Changed {
    condvar: Condvar,
    /// The threads that a scheduler keeps waiting.
    parked: Mutex<Vec<(Arc<dyn Scheduler>, u64)>>,
}

impl Changed {
    /// Wakes everybody.
    pub(crate) fn notify_all(&self) {
        self.condvar.notify_all();
        for (scheduler, wait) in self.parked.lock().drain(..) {
            scheduler.notify(wait);
        }
    }

    /// Waits for what takes no time by any clock: the end of an exchange.
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.condvar.wait(guard);
    }
}

impl std::fmt::Debug for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Changed")
    }
}

/// One call of a thread that may wait, by the clock of what it waits for.
pub(crate) struct Wait<'a> {
    clock: &'a dyn Clock,
    entered: bool,
}

impl<'a> Wait<'a> {
    pub(crate) fn begin(clock: &'a dyn Clock) -> Self {
        let entered = clock.scheduler().is_some_and(|it| it.enter());
        Self { clock, entered }
    }

    /// Waits until `changed` is notified, at most until `until`. It may end early.
    pub(crate) fn on<T>(&self, changed: &Changed, guard: &mut MutexGuard<'_, T>, until: Moment) {
        let Some(scheduler) = self.clock.scheduler() else {
            changed.condvar.wait_for(guard, until.since(self.clock.now()));
            return;
        };
        let wait = scheduler.join(until, false);
        changed.parked.lock().push((Arc::clone(scheduler), wait));
        MutexGuard::unlocked(guard, || scheduler.park(wait, None));
        changed.parked.lock().retain(|it| it.1 != wait);
    }

    /// [`Self::on`] for a thread that looks every `interval` for what does not notify it: of real time, on either clock.
    pub(crate) fn look<T>(
        &self,
        changed: &Changed,
        guard: &mut MutexGuard<'_, T>,
        interval: Duration,
    ) {
        let Some(scheduler) = self.clock.scheduler() else {
            changed.condvar.wait_for(guard, interval);
            return;
        };
        let wait = scheduler.join(Moment::MAX, false);
        changed.parked.lock().push((Arc::clone(scheduler), wait));
        MutexGuard::unlocked(guard, || scheduler.park(wait, Some(interval)));
        changed.parked.lock().retain(|it| it.1 != wait);
    }

    /// On the clock of a test: lets things happen until `is_done`. `looks`: how often to ask for what does not notify it. On the
    /// boot clock they happen by themselves.
    pub(crate) fn until(&self, looks: Option<Duration>, mut is_done: impl FnMut() -> bool) {
        let Some(scheduler) = self.clock.scheduler() else { return };
        loop {
            let wait = scheduler.join(Moment::MAX, true);
            if is_done() {
                return scheduler.cancel(wait);
            }
            scheduler.park(wait, looks);
        }
    }

    /// On the clock of a test: lets happen what is due now, and is true, because nothing else will until the test moves its
    /// clock.
    pub(crate) fn is_in_vain(&self) -> bool {
        let Some(scheduler) = self.clock.scheduler() else { return false };
        let wait = scheduler.join(Moment::MIN, false);
        scheduler.park(wait, None);
        true
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.clock.scheduler().iter().for_each(|it| it.leave(self.entered));
    }
}

/// The queue of a listener that has a thread of its own. A scheduler waits until all of them have been heard.
#[derive(Clone, Default)]
pub(crate) struct Mailbox(Option<(Arc<dyn Scheduler>, u64)>);

impl Mailbox {
    pub(crate) fn new(scheduler: Option<&Arc<dyn Scheduler>>) -> Self {
        Self(scheduler.map(|it| (Arc::clone(it), it.add_listener())))
    }

    /// To be put into the queue together with what is to be heard.
    pub(crate) fn post(&self) -> Letter {
        self.0.iter().for_each(|(scheduler, listener)| scheduler.posted(*listener));
        Letter(self.clone())
    }
}

/// Is in the queue of a listener, until it is dropped.
pub(crate) struct Letter(Mailbox);

impl Letter {
    /// Calls the listener on its thread.
    pub(crate) fn hear(self, call: impl FnOnce()) {
        let mark = |listens| {
            let Mailbox(mailbox) = &self.0;
            mailbox.iter().for_each(|(scheduler, it)| scheduler.is_listening(*it, listens));
        };
        mark(true);
        call();
        mark(false);
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        self.0.0.iter().for_each(|(scheduler, listener)| scheduler.heard(*listener));
    }
}
