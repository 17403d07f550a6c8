//! How do threads start and stop? Every [`Thread`] is named, owned and joined; every [`Stop`] ends when its source is dropped.

pub mod fail_stop;
pub(crate) mod group;
pub mod liveness;
#[cfg(feature = "cli")]
pub mod signals;

use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{
    Receiver, RecvTimeoutError, Sender, TryRecvError, after, bounded, never, select,
};

use crate::clock::scheduler::{Scheduler, Steps};

/// Nothing is ever sent: dropping the source is the message, and every [`Stop`] sees it.
#[derive(Debug)]
#[must_use = "its `Stop` ends when it is dropped"]
pub struct StopSource {
    _alive: Sender<Infallible>,
    /// Behind the other: who is woken by this sees that it is time to stop.
    _wire: Option<UnixStream>,
}

/// Tells a thread to stop.
#[derive(Clone, Debug)]
pub struct Stop(Receiver<Infallible>);

/// A source, and the `Stop` that ends when it is dropped.
pub fn stop() -> (StopSource, Stop) {
    let (alive, stop) = bounded(0);
    (StopSource { _alive: alive, _wire: None }, Stop(stop))
}

/// The same, and a wire that can be read, to its end, when it is time to stop: for a thread that waits for sockets.
pub fn stop_with_wire() -> io::Result<(StopSource, Stop, UnixStream)> {
    let (end, wire) = UnixStream::pair()?;
    let (source, stop) = stop();
    Ok((StopSource { _wire: Some(end), ..source }, stop, wire))
}

impl Stop {
    /// A source, and the `Stop` that ends when the source is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::Stop;
    ///
    /// let (source, stop) = Stop::pair();
    /// assert!(!stop.within(Duration::from_millis(1)));
    /// drop(source); // from any thread
    /// assert!(stop.is_over());
    /// ```
    pub fn pair() -> (StopSource, Self) {
        stop()
    }

    /// Waits out `duration`; true when it is time to stop instead.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::Stop;
    ///
    /// let (source, stop) = Stop::pair();
    /// std::thread::spawn(move || drop(source));
    /// while !stop.within(Duration::from_secs(60)) {
    ///     println!("another minute of work");
    /// }
    /// ```
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

    /// For a `select!` inside this repository, whose channels are no part of the public face: becomes ready, with an error, when it is time to stop.
    #[doc(hidden)]
    pub fn receiver(&self) -> &Receiver<Infallible> {
        &self.0
    }
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// How many threads of this process run.
pub fn alive() -> usize {
    ALIVE.load(Ordering::Relaxed)
}

/// Counts a thread for as long as it runs, however it ends.
struct Counted;

impl Counted {
    fn begin() -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running thread. Dropping it waits for its end, so its stop source must be dropped before.
pub struct Thread {
    handle: Option<JoinHandle<()>>,
    /// Instead of a thread: what calls its steps, and their number there.
    scheduled: Option<(Arc<dyn Scheduler>, u64)>,
    /// A child that was forked has no such thread, and would wait for ever.
    process: u32,
}

impl Thread {
    /// Runs `body` under `name`, of which Linux shows the first 15 bytes. No lease depends on this thread: where
    /// one does, [`crate::thread::fail_stop::FailStop::spawn`] says what becomes of it when the thread panics.
    pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Self::build(std::thread::Builder::new().name(name.into()), body)
    }

    pub(crate) fn build(
        builder: std::thread::Builder,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let body = move || {
            let _counted = Counted::begin();
            body();
        };
        let handle = builder.spawn(body)?;
        Ok(Self { handle: Some(handle), scheduled: None, process: std::process::id() })
    }

    /// Steps that `scheduler` calls, and no thread.
    pub(crate) fn scheduled(scheduler: &Arc<dyn Scheduler>, steps: Box<dyn Steps>) -> Self {
        let scheduled = Some((Arc::clone(scheduler), scheduler.start(steps)));
        Self { handle: None, scheduled, process: std::process::id() }
    }

    /// Ends steps that a scheduler calls; a thread ends by itself.
    pub(crate) fn end_scheduled(&mut self) {
        if let Some((scheduler, steps)) = self.scheduled.take() {
            scheduler.finish(steps);
        }
    }

    /// A thread whose body is one step after another: each says how long to wait for the next.
    pub fn steps(
        name: &str,
        stop: Stop,
        step: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(name, steps(stop, step))
    }

    /// Whether it has ended, so that dropping it would not wait.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    pub fn join(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        self.end_scheduled();
        if let Some(handle) = self.handle.take().filter(|_| self.process == std::process::id()) {
            // A panic was answered on the thread itself (R12), or has aborted the process.
            let _ = handle.join();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.wait();
    }
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Thread").field(&self.handle).finish()
    }
}

/// What a thread does again and again.
pub(crate) trait Step: Send {
    /// Makes one step; how long to wait for the next.
    fn step(&mut self) -> Duration;

    /// After the last step, when it is told to stop.
    fn end(&mut self) {}
}

impl<F: FnMut() -> Duration + Send> Step for F {
    fn step(&mut self) -> Duration {
        self()
    }
}

/// The body of a thread that makes one step after another: each says how long to wait for the next.
pub(crate) fn steps(stop: Stop, mut step: impl FnMut() -> Duration) -> impl FnOnce() {
    move || while !stop.within(step()) {}
}

/// The same, but a nudge brings the next step at once.
pub(crate) fn nudged_steps(
    stop: Stop,
    mut nudges: Receiver<()>,
    mut step: impl Step,
) -> impl FnOnce() {
    move || loop {
        let due = after(step.step());
        select! {
            recv(stop.receiver()) -> _ => return step.end(),
            recv(nudges) -> nudge => if nudge.is_err() { nudges = never() },
            recv(due) -> _ => (),
        }
        // Of several that are ready, `select!` takes any.
        if stop.is_over() {
            return step.end();
        }
    }
}
