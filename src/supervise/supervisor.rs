//! Who ends the command of `lead` and `once` before its lease can move, when `leasehold` itself cannot?
//!
//! A process between the two, with a dead-man's switch. `leasehold` says over a pipe until when the
//! command may run, and has to say it again and again: TERM comes one grace before that moment, KILL
//! at it. The end of the pipe, or `end`, means TERM at once and KILL after the grace. Orders are lines:
//! `until NANOSECONDS` (the first one starts the command), `end`, `signal NUMBER`. What it reports are
//! lines, too: those of the [`ward`](crate::supervise::exec_shim), then `exit N`, `signal N` or `failed
//! CODE WHY`, when nothing is left of the command's process group.
//!
//! The [`guardian`](crate::supervise::poll_supervisor) of a poll is simpler: a poll has no deadline of its
//! own, and its guardian may die with the group it leads. What leaves the group is on its own.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, RawFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::clock::{BootClock, Clock, Moment};
use crate::net::wait::{plain, wait};
use crate::supervise::boottime_timer::BoottimeTimer;
use crate::supervise::launch::{launch, take_reader, take_writer};

/// This program, even if its file was replaced by a newer one meanwhile.
const OURSELVES: &str = "/proc/self/exe";

/// The hidden subcommand `warden --grace-ms N --orders-fd N --report-fd N -- PROGRAM [ARGUMENT]…`.
/// Call it before any thread exists: it blocks every signal for the whole process.
pub fn warden_main(orders: RawFd, report: RawFd, program: &[String], grace: Duration) -> ExitCode {
    let Ok(mut report) = take_writer(report) else { return ExitCode::FAILURE };
    let verdict = Warden::start(orders, &report, program, grace).and_then(Warden::until_end);
    let line = match verdict {
        Ok(line) => line,
        Err(error) => format!("failed 1 the warden could not work: {}", plain(&error)),
    };
    // Nobody may be listening any more.
    let _ = report.write_all(format!("{line}\n").as_bytes());
    ExitCode::SUCCESS
}

struct Warden {
    orders: Orders,
    /// The command, and the process group it leads.
    leader: Pid,
    /// Held while the command has not been started. A byte starts it, the end calls it off.
    gate: Option<PipeWriter>,
    ends: SignalFd,
    alarm: BoottimeTimer,
    grace: Duration,
    /// `None` until the first order.
    until: Option<Moment>,
    /// When it was told to end, KILL comes then, or at `until` if that is sooner. There is no way back:
    /// a command that has seen TERM may be half gone.
    end_at: Option<Moment>,
}

impl Warden {
    fn start(
        orders: RawFd,
        report: &File,
        program: &[String],
        grace: Duration,
    ) -> io::Result<Self> {
        // Only KILL and STOP get through; a process that is launched begins with a mask of its own.
        SigSet::all().thread_block()?;
        let orders = Orders::new(take_reader(orders)?);
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGCHLD);
        let ends = SignalFd::with_flags(&ends, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        // Whose parent in the group has died becomes a child of ours, and can be waited for.
        set_child_subreaper(true)?;
        let alarm = BoottimeTimer::new()?;
        let (word, gate) = io::pipe()?;
        let words: Vec<String> = [&["--".into()], program].concat();
        let leader = launch(Path::new(OURSELVES), "ward", (&word, report), &words, &[])?;
        let gate = Some(gate);
        Ok(Self { orders, leader, gate, ends, alarm, grace, until: None, end_at: None })
    }

    /// What to report.
    fn until_end(mut self) -> io::Result<String> {
        let watched = self.watch();
        // Also when watching has failed. The leader has not been waited for, so its id is still its own.
        self.kill();
        let status = self.bury();
        watched?;
        Ok(match status {
            Some(WaitStatus::Exited(_, code)) => format!("exit {code}"),
            Some(WaitStatus::Signaled(_, signal, _)) => format!("signal {}", signal as i32),
            _ => "failed 1 the command was ended by a real-time signal".into(),
        })
    }

    fn watch(&mut self) -> io::Result<()> {
        while !self.has_ended()? {
            // All of them before the clock is read: a renewal that came in time counts, even if we
            // were not there to hear it.
            self.hear();
            let next = self.act(BootClock.now());
            self.alarm.set(next)?;
            let mut fds = vec![
                PollFd::new(self.ends.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.alarm.as_fd(), PollFlags::POLLIN),
            ];
            fds.extend(
                self.orders.pipe.as_ref().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)),
            );
            wait(&mut fds, Duration::MAX)?;
            // One signal may stand for many ends; only the next look counts.
            while self.ends.read_signal()?.is_some() {}
        }
        Ok(())
    }

    fn hear(&mut self) {
        while let Some(order) = self.orders.next() {
            match order {
                Order::Until(until) => self.until = Some(until),
                Order::Signal(signal) if self.gate.is_none() => self.send(signal),
                Order::Signal(_) => (),
                Order::End => self.begin_end(BootClock.now()),
            }
        }
    }

    /// Does the work that is due at `now`. Returns the latest moment for the next call.
    fn act(&mut self, now: Moment) -> Moment {
        let Some(until) = self.until.or(self.end_at) else { return Moment::MAX };
        let term_at = until - self.grace;
        if self.end_at.is_none() && now >= term_at {
            self.begin_end(now);
        }
        let Some(end_at) = self.end_at else {
            if let Some(mut gate) = self.gate.take() {
                // If it is gone, has_ended will tell.
                let _ = gate.write_all(b"!");
            }
            return term_at;
        };
        let kill_at = end_at.min(until);
        if now < kill_at {
            return kill_at;
        }
        self.kill();
        Moment::MAX
    }

    fn begin_end(&mut self, now: Moment) {
        if self.end_at.is_some() {
            return;
        }
        self.end_at = Some(now + self.grace);
        if self.gate.take().is_none() {
            self.send(Signal::SIGTERM);
            // One that was stopped could not hear it otherwise.
            self.send(Signal::SIGCONT);
        }
    }

    fn kill(&self) {
        self.send(Signal::SIGKILL);
    }

    /// To the group; an error means that there is nobody who could get it.
    fn send(&self, signal: Signal) {
        let _ = killpg(self.leader, signal);
    }

    /// Whether the command itself has; it is not waited for yet, so that its id stays its own.
    fn has_ended(&self) -> io::Result<bool> {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        // Orphans that ended. One that cannot be read (EINVAL) stays until we go.
        while let Ok(status) = waitid(Id::All, look)
            && let Some(orphan) = status.pid().filter(|it| *it != self.leader)
        {
            waitpid(orphan, None)?;
        }
        match waitid(Id::Pid(self.leader), look) {
            Ok(WaitStatus::StillAlive) => Ok(false),
            // A signal without a name, a real-time one.
            Ok(_) | Err(Errno::EINVAL) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits until nothing is left of a group that was killed; how its leader ended, if that has a name.
    fn bury(&self) -> Option<WaitStatus> {
        let mut how = None;
        loop {
            match waitpid(Pid::from_raw(-self.leader.as_raw()), None) {
                Ok(status) if status.pid() == Some(self.leader) => how = Some(status),
                Ok(_) | Err(Errno::EINTR | Errno::EINVAL) => (),
                Err(_) => return how,
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Until(Moment),
    Signal(Signal),
    End,
}

impl Order {
    /// What cannot be understood was not said by a `leasehold` of our kind: better end than run on.
    fn parse(line: &str) -> Self {
        let order = match line.split_once(' ') {
            Some(("until", nanos)) => {
                nanos.parse().map(|it| Self::Until(Moment::from_nanos(it))).ok()
            }
            Some(("signal", number)) => {
                let signal = number.parse().ok().and_then(|it: i32| Signal::try_from(it).ok());
                signal.map(Self::Signal)
            }
            _ => None,
        };
        order.unwrap_or(Self::End)
    }
}

/// Lines from a pipe. Its end is the order to end.
struct Orders {
    pipe: Option<File>,
    heard: Vec<u8>,
}

impl Orders {
    fn new(pipe: File) -> Self {
        Self { pipe: Some(pipe), heard: Vec::new() }
    }

    /// The next one that is there already.
    fn next(&mut self) -> Option<Order> {
        loop {
            if let Some(end) = self.heard.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Some(Order::parse(String::from_utf8_lossy(&line[..end]).as_ref()));
            }
            let mut chunk = [0; 4_096];
            match self.pipe.as_mut()?.read(&mut chunk) {
                Ok(read) if read > 0 => self.heard.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                _ => {
                    self.pipe = None;
                    return Some(Order::End);
                }
            }
        }
    }
}
