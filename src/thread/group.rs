//! Which threads does a stop wait for, and for how long? Threads that are joined if they end in time, and left alone otherwise.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::thread::fail_stop::FailStop;
use crate::thread::{Step, Stop, Thread};

/// Threads that are joined if they end in time, and left alone otherwise.
pub(crate) struct ThreadGroup {
    threads: Vec<Thread>,
    /// Every thread holds a clone of this end; when all are gone, `ended` is disconnected.
    alive: Option<Sender<Infallible>>,
    ended: Receiver<Infallible>,
}

/// The body of a thread of the group, which counts as alive until it is dropped.
struct Member<S> {
    _alive: Option<Sender<Infallible>>,
    step: S,
}

impl<S: Step> Step for Member<S> {
    fn step(&mut self) -> Duration {
        self.step.step()
    }

    fn end(&mut self) {
        self.step.end();
    }
}

impl ThreadGroup {
    /// A group without threads.
    pub(crate) fn new() -> Self {
        let (alive, ended) = bounded(0);
        Self { threads: Vec::new(), alive: Some(alive), ended }
    }

    /// Adds the thread that `spawn` starts with `body`.
    pub(crate) fn spawn(
        &mut self,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<Thread>,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let alive = self.alive.clone();
        let body = move || {
            let _alive = alive;
            body();
        };
        self.threads.push(spawn(Box::new(body))?);
        Ok(())
    }

    /// The same for a thread whose body is one step after another, and whose panic is a failure.
    pub(crate) fn steps(
        &mut self,
        fail_stop: &Arc<FailStop>,
        name: &str,
        until: &Stop,
        nudges: Receiver<()>,
        step: impl Step + 'static,
    ) -> io::Result<()> {
        let member = Member { _alive: self.alive.clone(), step };
        self.threads.push(fail_stop.nudged_steps(name, until.clone(), nudges, member)?);
        Ok(())
    }

    /// Joins all threads if they end within `timeout`. Otherwise they go on, and the end of the process ends them.
    pub(crate) fn join_within(&mut self, timeout: Duration) {
        self.alive = None;
        self.threads.iter_mut().for_each(Thread::end_scheduled);
        let have_ended = self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
        let threads = std::mem::take(&mut self.threads);
        if have_ended {
            threads.into_iter().for_each(Thread::join);
        } else {
            std::mem::forget(threads);
        }
    }
}
