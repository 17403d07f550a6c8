//! Which signal did we get? All that a wrapped command may want to hear of, each by its name; and for
//! `run`, SIGHUP apart from those that end it.

use std::fs;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::daemon::thread::Thread;
use crate::pipeline::poll::wait::{is_ready, wait};

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
        let ignored = ignored();
        Self::catch_these(CAUGHT.into_iter().filter(|it| !ignored.contains(*it)).collect())
    }

    /// The same for SIGHUP alone. Blocked, it does not reach the handler of `stop_on_signal`, which
    /// could not tell it from a SIGTERM.
    pub fn catch_hangup() -> io::Result<Self> {
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

/// From the kernel's own page: asking the C library is `unsafe`.
fn ignored() -> SigSet {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
    CAUGHT.into_iter().filter(|it| mask >> (*it as i32 - 1) & 1 == 1).collect()
}
