//! Which signals end this process or reach a command that it runs? SIGINT comes by `ctrlc`, the others from a signalfd.

use std::fs;
use std::io;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use parking_lot::Mutex;

use crate::thread::{Stop, stop};

/// Stops at the first SIGTERM or SIGINT, and at a SIGHUP unless that is blocked (`supervise::signals`
/// does, for `run`) or ignored (`nohup`). A process can have this once.
///
/// Call it in the main thread before any other exists: SIGTERM and SIGHUP are blocked for the caller and for the threads
/// and processes it starts from then on, and read from a descriptor. One thread without the block would die of them.
pub fn stop_on_signal() -> io::Result<Stop> {
    Ok(stops_on_signals()?.0)
}

/// The same, and a `Stop` that ends at the second signal: an operator who sends one does not want to wait any longer.
pub fn stops_on_signals() -> io::Result<(Stop, Stop)> {
    let ((first, signalled), (second, hurried)) = (stop(), stop());
    // The last is dropped first.
    let sources = Mutex::new(vec![second, first]);
    on_signals(move || drop(sources.lock().pop()))?;
    Ok((signalled, hurried))
}

/// Calls `act` for every such signal. SIGINT comes by `ctrlc`, the others not: its feature for them would be
/// switched on in every program that uses this library, and change what the program's own handler gets.
fn on_signals(act: impl Fn() + Send + Sync + 'static) -> io::Result<()> {
    let mut ends: SigSet = [Signal::SIGTERM].into_iter().collect();
    if !SigSet::thread_get_mask()?.contains(Signal::SIGHUP) {
        ends.extend(&not_ignored(&[Signal::SIGHUP]));
    }
    // Before the threads that are started below.
    ends.thread_block()?;
    let caught = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC)?;
    let on_interrupt = Arc::new(act);
    let act = Arc::clone(&on_interrupt);
    let handled = ctrlc::set_handler(move || on_interrupt());
    handled.map_err(|error| match error {
        ctrlc::Error::System(error) => error,
        error => io::Error::other(error),
    })?;
    // Not joined: it waits for as long as the process lasts.
    let wait = move || loop {
        match caught.read_signal() {
            Ok(Some(_)) => act(),
            Ok(None) | Err(Errno::EINTR) => (),
            Err(_) => return,
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}

/// Without those that were ignored when the program started. From the kernel's own page: asking the C
/// library is `unsafe`.
pub(crate) fn not_ignored(wanted: &[Signal]) -> SigSet {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
    wanted.iter().copied().filter(|it| mask >> (*it as i32 - 1) & 1 == 0).collect()
}
