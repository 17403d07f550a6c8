//! What happens when a thread of an instance panics? The instance ends all its leases and reports the failure (R12).
//!
//! The binary is built with `panic = "abort"`: there a panic ends the process. In a program that uses the library a panic
//! unwinds one thread and the others go on. Without this module a lease could be renewed for ever and never be polled.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, never};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::clock::scheduler::{Scheduler, Steps};
use crate::thread::{Step, Stop, StopSource, Thread, nudged_steps, steps, stop};

/// Which thread panicked, and with which message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "__internals"), non_exhaustive)]
pub struct Failure {
    /// The name of the thread, e.g. `renewal`.
    pub thread: String,
    /// The message of the panic.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the thread {} panicked: {}", self.thread, self.message)
    }
}

impl std::error::Error for Failure {}

type Action = Box<dyn Fn(&Failure) + Send + Sync>;

/// The actions that run when one of its threads panics. Shared by all threads of one instance.
pub struct FailStop {
    actions: Mutex<Vec<Action>>,
    failure: OnceLock<Failure>,
    /// Dropped when every action has run.
    source: Mutex<Option<StopSource>>,
    failed: Stop,
    /// Calls the steps in place of threads.
    scheduler: Option<Arc<dyn Scheduler>>,
}

impl FailStop {
    /// Without any action.
    #[cfg(test)]
    pub(crate) fn new() -> Arc<Self> {
        Self::with(None)
    }

    /// Without any action, for threads that wait by `clock`.
    pub(crate) fn by(clock: &dyn Clock) -> Arc<Self> {
        Self::with(clock.scheduler().cloned())
    }

    fn with(scheduler: Option<Arc<dyn Scheduler>>) -> Arc<Self> {
        let (source, failed) = stop();
        let (actions, failure, source) =
            (Mutex::default(), OnceLock::new(), Mutex::new(Some(source)));
        Arc::new(Self { actions, failure, source, failed, scheduler })
    }

    /// Adds what is done at the first failure, after what was added before, on the thread that panicked.
    /// An action that panics itself does not keep the next from being done.
    pub fn then(&self, action: impl Fn(&Failure) + Send + Sync + 'static) {
        let mut actions = self.actions.lock();
        match self.failure.get() {
            None => actions.push(Box::new(action)),
            Some(failure) => {
                drop(actions);
                action(failure);
            }
        }
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Is over when a thread has panicked and everything was done about it.
    pub fn failed(&self) -> &Stop {
        &self.failed
    }

    /// A thread whose panic is a failure.
    pub fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Thread> {
        self.build(std::thread::Builder::new(), name, body)
    }

    /// The same with a stack of `bytes`.
    pub fn spawn_with_stack(
        self: &Arc<Self>,
        name: &str,
        bytes: usize,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Thread> {
        self.build(std::thread::Builder::new().stack_size(bytes), name, body)
    }

    fn build(
        self: &Arc<Self>,
        builder: std::thread::Builder,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Thread> {
        let (fail_stop, thread) = (Arc::clone(self), name.to_owned());
        Thread::build(builder.name(name.into()), move || {
            if let Err(message) = caught(body) {
                fail_stop.fail(Failure { thread, message });
            }
        })
    }

    /// [`Thread::steps`] whose panic is a failure.
    pub fn steps(
        self: &Arc<Self>,
        name: &str,
        stop: Stop,
        step: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Thread> {
        match &self.scheduler {
            None => self.spawn(name, steps(stop, step)),
            Some(_) => self.nudged_steps(name, stop, never(), step),
        }
    }

    /// The same, but a nudge brings the next step at once.
    pub(crate) fn nudged_steps(
        self: &Arc<Self>,
        name: &str,
        stop: Stop,
        nudges: Receiver<()>,
        step: impl Step + 'static,
    ) -> io::Result<Thread> {
        let Some(scheduler) = &self.scheduler else {
            return self.spawn(name, nudged_steps(stop, nudges, step));
        };
        let (name, fail_stop) = (name.to_owned(), Arc::clone(self));
        let steps = ScheduledSteps { name, stop, nudges, step: Some(step), fail_stop };
        Ok(Thread::scheduled(scheduler, Box::new(steps)))
    }

    fn fail(&self, failure: Failure) {
        if self.failure.set(failure.clone()).is_err() {
            return; // the first one does it
        }
        let actions = std::mem::take(&mut *self.actions.lock());
        for action in actions {
            // What it panicked with was printed. There is nobody else to tell.
            let _ = caught(|| action(&failure));
        }
        drop(self.source.lock().take());
    }
}

/// The body of a thread that a scheduler calls: its panic is a failure, too.
struct ScheduledSteps<S> {
    name: String,
    stop: Stop,
    nudges: Receiver<()>,
    /// Gone after a panic, as what a thread had is.
    step: Option<S>,
    fail_stop: Arc<FailStop>,
}

impl<S: Step> ScheduledSteps<S> {
    fn guarded<T>(&mut self, call: impl FnOnce(&mut S) -> T) -> Option<T> {
        let step = self.step.as_mut()?;
        let message = match caught(|| call(step)) {
            Ok(result) => return Some(result),
            Err(message) => message,
        };
        self.step = None;
        self.fail_stop.fail(Failure { thread: self.name.clone(), message });
        None
    }
}

impl<S: Step> Steps for ScheduledSteps<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn step(&mut self) -> Duration {
        let _ = self.nudges.try_recv();
        self.guarded(Step::step).unwrap_or(Duration::MAX)
    }

    fn is_nudged(&self) -> bool {
        !self.nudges.is_empty()
    }

    fn is_over(&self) -> bool {
        self.step.is_none() || self.stop.is_over()
    }

    fn end(&mut self) {
        self.guarded(Step::end);
    }
}

impl fmt::Debug for FailStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FailStop({:?})", self.failure())
    }
}

/// Runs `body`; the message of its panic, if it panics.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|it| message(&*it))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_action_is_done_once_in_order_even_if_one_of_them_panics() {
        let fail_stop = FailStop::new();
        let done = Arc::new(Mutex::new(Vec::new()));
        for n in 0..3 {
            let done = Arc::clone(&done);
            fail_stop.then(move |failure| {
                done.lock().push((n, failure.thread.clone()));
                assert!(n != 1, "deliberately");
            });
        }
        let threads = ["first", "second"].map(|it| fail_stop.spawn(it, || panic!("deliberately")));
        threads.into_iter().for_each(|it| it.unwrap().join());
        assert!(fail_stop.failed().is_over());
        let first = fail_stop.failure().unwrap().clone();
        assert_eq!(first.message, "deliberately");
        let all: Vec<_> = (0..3).map(|n| (n, first.thread.clone())).collect();
        assert_eq!(*done.lock(), all);
        let late = Arc::new(AtomicUsize::new(0));
        let same = Arc::clone(&late);
        fail_stop.then(move |_| {
            same.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(late.load(Ordering::SeqCst), 1, "what is added later is done at once");
    }

    #[test]
    fn a_thread_that_ends_is_no_failure() {
        let fail_stop = FailStop::new();
        fail_stop.spawn("ends", || ()).unwrap().join();
        assert!(fail_stop.failure().is_none() && !fail_stop.failed().is_over());
    }
}
