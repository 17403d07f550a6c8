//! Threads that are named, owned and joined, and the one way to stop them.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{
    Receiver, RecvTimeoutError, Sender, TryRecvError, after, bounded, never, select,
};
use parking_lot::Mutex;

/// Nothing is ever sent: dropping the source is the message, and every [`Stop`] sees it.
#[derive(Debug)]
pub struct StopSource {
    _alive: Sender<Infallible>,
}

/// Says when to stop.
#[derive(Clone, Debug)]
pub struct Stop(Receiver<Infallible>);

/// A source and what it stops.
pub fn stop() -> (StopSource, Stop) {
    let (alive, stop) = bounded(0);
    (StopSource { _alive: alive }, Stop(stop))
}

/// Stops at the first SIGTERM or SIGINT, and at a SIGHUP unless that is blocked (`wrapped::signals`
/// does, for `run`). A process can have this once.
pub fn stop_on_signal() -> Result<Stop, ctrlc::Error> {
    Ok(stops_on_signals()?.0)
}

/// The same, and what ends at the second signal: whoever sends one does not want to wait any longer.
pub fn stops_on_signals() -> Result<(Stop, Stop), ctrlc::Error> {
    let ((first, signalled), (second, hurried)) = (stop(), stop());
    // The last is dropped first.
    let sources = Mutex::new(vec![second, first]);
    ctrlc::set_handler(move || drop(sources.lock().pop()))?;
    Ok((signalled, hurried))
}

impl Stop {
    /// Waits out `duration`; true when it is time to stop instead.
    pub fn within(&self, duration: Duration) -> bool {
        match self.0.recv_timeout(duration) {
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
            Ok(never) => match never {},
        }
    }

    /// Whether it is time to stop.
    pub fn is_over(&self) -> bool {
        self.0.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// For a `select!`: becomes ready, with an error, when it is time to stop.
    pub fn receiver(&self) -> &Receiver<Infallible> {
        &self.0
    }
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// How many threads of this process run.
pub fn alive() -> usize {
    ALIVE.load(Ordering::Relaxed)
}

/// A running thread. Dropping it waits for its end, so its stop source must be dropped before.
#[derive(Debug)]
pub struct Thread(Option<JoinHandle<()>>);

impl Thread {
    /// Runs `body` under `name`, of which Linux shows the first 15 bytes.
    pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let body = move || {
            ALIVE.fetch_add(1, Ordering::Relaxed);
            body();
            ALIVE.fetch_sub(1, Ordering::Relaxed);
        };
        Ok(Self(Some(std::thread::Builder::new().name(name.into()).spawn(body)?)))
    }

    /// A thread whose body is one step after another: each says how long to wait for the next.
    pub fn steps(
        name: &str,
        stop: Stop,
        mut step: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(name, move || while !stop.within(step()) {})
    }

    /// The same, but a nudge brings the next step at once.
    pub fn nudged_steps(
        name: &str,
        stop: Stop,
        nudges: Receiver<()>,
        mut step: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(name, move || {
            let mut nudges = nudges;
            loop {
                let due = after(step());
                select! {
                    recv(stop.receiver()) -> _ => return,
                    recv(nudges) -> nudge => if nudge.is_err() { nudges = never() },
                    recv(due) -> _ => (),
                }
            }
        })
    }

    /// Whether it has ended, so that dropping it would not wait.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    pub fn join(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        if let Some(handle) = self.0.take() {
            // A panic has already aborted the process (R12), except under a test harness.
            let _ = handle.join();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.wait();
    }
}
