//! Which threads does a stop wait for, and for how long? Threads that are joined if they end in time, and left alone otherwise.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::thread::Thread;

/// Threads that are joined if they end in time, and left alone otherwise.
pub(crate) struct ThreadGroup {
    threads: Vec<Thread>,
    /// Every thread holds a clone of this end; when all are gone, `ended` is disconnected.
    alive: Option<Sender<Infallible>>,
    ended: Receiver<Infallible>,
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

    /// Joins all threads if they end within `timeout`. Otherwise they go on, and the end of the process ends them.
    pub(crate) fn join_within(&mut self, timeout: Duration) {
        self.alive = None;
        let have_ended = self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
        let threads = std::mem::take(&mut self.threads);
        if have_ended {
            threads.into_iter().for_each(Thread::join);
        } else {
            std::mem::forget(threads);
        }
    }
}
