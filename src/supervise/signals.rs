//! Which signal did this process get? Receives every signal that `leasehold` passes on to a supervised command; for
//! `run`, it tells SIGHUP from the signals that end the instance.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::net::wait::{is_ready, wait};
use crate::thread::Thread;
use crate::thread::signals::not_ignored;

/// The signals that are caught.
pub const CAUGHT: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// The signals that stop a program on a terminal (Ctrl-Z) and let it continue.
const OF_A_TERMINAL: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGCONT];

/// Signals on a channel instead of their usual effect.
#[derive(Debug)]
pub struct Signals {
    // Dropped in this order: the thread is told to end before it is joined.
    caught: Receiver<Signal>,
    _stop: PipeWriter,
    _thread: Thread,
}

impl Signals {
    /// Call it in the main thread before any other thread exists: it blocks the signals for the caller and for the threads
    /// that the caller starts later, and a thread without the block would end the process. Signals that were ignored at
    /// the start (`nohup`) stay ignored.
    pub fn catch() -> io::Result<Self> {
        Self::catch_these(not_ignored(&CAUGHT))
    }

    /// [`Self::catch`] with the signals that stop a program on a terminal and let it continue.
    pub fn catch_on_terminal() -> io::Result<Self> {
        Self::catch_these(not_ignored(&[&CAUGHT[..], &OF_A_TERMINAL].concat()))
    }

    /// Stops this process as Ctrl-Z does, until SIGCONT. In an orphaned process group, which no shell could continue, the
    /// kernel ignores it.
    pub fn stop_here() -> io::Result<()> {
        let stop: SigSet = [Signal::SIGTSTP].into_iter().collect();
        // For this thread alone, and pending until it is unblocked: the thread `signals` would catch it.
        raise(Signal::SIGTSTP)?;
        stop.thread_unblock()?;
        Ok(stop.thread_block()?)
    }

    /// [`Self::catch`] for SIGHUP alone. While it is blocked, it does not reach the handler of `stop_on_signal`, which could not
    /// tell it from a SIGTERM.
    pub fn catch_hangup() -> io::Result<Self> {
        // Not caught here, but the new thread must not run its handler.
        SigSet::from(Signal::SIGTERM).thread_block()?;
        Self::catch_these([Signal::SIGHUP].into_iter().collect())
    }

    fn catch_these(wanted: SigSet) -> io::Result<Self> {
        wanted.thread_block()?;
        let source = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let (stopped, stop) = io::pipe()?;
        // While the channel is full, signals stay pending in the kernel.
        let (tell, caught) = bounded(8);
        let thread = Thread::spawn("signals", move || pass_on(&source, &stopped, &tell))?;
        Ok(Self { caught, _stop: stop, _thread: thread })
    }

    /// Receives each caught signal.
    pub fn caught(&self) -> &Receiver<Signal> {
        &self.caught
    }
}

/// The thread `signals`.
fn pass_on(source: &SignalFd, stopped: &PipeReader, tell: &Sender<Signal>) {
    loop {
        let mut fds =
            [source.as_fd(), stopped.as_fd()].map(|it| PollFd::new(it, PollFlags::POLLIN));
        if wait(&mut fds, Duration::MAX).is_err() || is_ready(&fds[1]) {
            return;
        }
        while let Ok(Some(caught)) = source.read_signal() {
            let number = i32::try_from(caught.ssi_signo).unwrap_or(0);
            if Signal::try_from(number).is_ok_and(|it| tell.send(it).is_err()) {
                return;
            }
        }
    }
}
