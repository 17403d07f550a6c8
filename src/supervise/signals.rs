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
use crate::thread::{Thread, not_ignored};

/// What is caught.
pub const CAUGHT: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// What a program on a terminal hears of, too: Ctrl-Z by way of `kill`, and that it goes on.
const OF_A_TERMINAL: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGCONT];

/// Signals on a channel instead of their usual effect.
#[derive(Debug)]
pub struct Signals {
    // Dropped from top to bottom: the thread must be able to end before it is waited for.
    caught: Receiver<Signal>,
    _stop: PipeWriter,
    _thread: Thread,
}

impl Signals {
    /// Call it in the main thread before any other exists: each is blocked for the caller and for the
    /// threads it starts from then on, and one thread without the block would die of it. What was
    /// ignored when the program started (`nohup`) stays so.
    pub fn catch() -> io::Result<Self> {
        Self::catch_these(not_ignored(&CAUGHT))
    }

    /// The same, and those that stop a program on a terminal and let it go on.
    pub fn catch_on_terminal() -> io::Result<Self> {
        Self::catch_these(not_ignored(&[&CAUGHT[..], &OF_A_TERMINAL].concat()))
    }

    /// Stops this process as a Ctrl-Z would, until it is told to go on. Does nothing where nobody
    /// could tell it so: the kernel sees to that, as long as it is not a SIGSTOP.
    pub fn stop_here() -> io::Result<()> {
        let stop: SigSet = [Signal::SIGTSTP].into_iter().collect();
        // For this thread alone, where it waits until it is let through: the other one would catch it.
        raise(Signal::SIGTSTP)?;
        stop.thread_unblock()?;
        Ok(stop.thread_block()?)
    }

    /// The same for SIGHUP alone. Blocked, it does not reach the handler of `stop_on_signal`, which
    /// could not tell it from a SIGTERM.
    pub fn catch_hangup() -> io::Result<Self> {
        // Not caught here, but the thread that is started here must not be the one that dies of it.
        SigSet::from(Signal::SIGTERM).thread_block()?;
        Self::catch_these([Signal::SIGHUP].into_iter().collect())
    }

    fn catch_these(wanted: SigSet) -> io::Result<Self> {
        wanted.thread_block()?;
        let source = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let (stopped, stop) = io::pipe()?;
        // When it is full, the rest waits in the kernel.
        let (tell, caught) = bounded(8);
        let thread = Thread::spawn("signals", move || pass_on(&source, &stopped, &tell))?;
        Ok(Self { caught, _stop: stop, _thread: thread })
    }

    /// Each as it comes.
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
