//! Which process ends the command of `lead` and `once` at its deadline when `leasehold` cannot? The supervisor, between the two.
//!
//! `leasehold` sends the command's deadline over a pipe and extends it regularly (a dead man's switch). The supervisor sends
//! TERM one grace period before the deadline, and KILL at the deadline. When the pipe closes, or on `end`, it sends TERM at
//! once and KILL after the grace period. Orders are lines: `on-death TASK`, `until NANOSECONDS` (the first one starts the
//! command), `end`, `signal NUMBER`. Reports are lines, too: those of the [exec shim](crate::supervise::exec_shim), then
//! `exit N`, `signal N` or `failed CODE WHY` when no process of the command's group is left.
//!
//! If `leasehold` has died by then, nothing runs under its right any more. The supervisor is the only process that knows, so it
//! hands the task of `on-death` to its caller ([`LeaseholdDeath`]).
//!
//! The [poll supervisor](crate::supervise::poll_supervisor) is simpler: a poll command has no deadline of its own, and its
//! supervisor may die with the group it leads. Neither follows a process that leaves the group.

use std::fmt;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::process::parent_id;
use std::path::Path;
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

/// This executable, even if its file was replaced.
const OURSELVES: &str = "/proc/self/exe";
/// How long a `leasehold` that is dying may take to be gone. One that lives kills the supervisor after its report.
const DEATH_PATIENCE: Duration = Duration::from_secs(3);
/// How often the supervisor looks whether `leasehold` is gone.
const LOOK: Duration = Duration::from_millis(1);

/// The proof that `leasehold` is dead and that nothing runs under its right any more (R12).
pub struct LeaseholdDeath {
    /// What `leasehold` asked for in this case, as [`SupervisedCommand::on_death`](crate::supervise::SupervisedCommand::on_death)
    /// was given it.
    pub task: String,
    /// When the right under which the command ran ends by itself.
    pub right_ends: Moment,
    /// The command had ended by itself before, with exit code 0.
    pub succeeded: bool,
}

impl fmt::Debug for LeaseholdDeath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A task may hold a password.
        f.debug_struct("LeaseholdDeath").field("succeeded", &self.succeeded).finish_non_exhaustive()
    }
}

/// The hidden subcommand `supervisor --grace-ms N --orders-fd N --report-fd N -- PROGRAM [ARGUMENT]…`.
/// Call it before any thread exists: it blocks every signal for the whole process. Returns what `leasehold` wanted done if it
/// has died.
pub fn supervisor_main(
    orders: RawFd,
    report: RawFd,
    program: &[String],
    grace: Duration,
) -> Option<LeaseholdDeath> {
    let mut report = take_writer(report).ok()?;
    let supervisor = Supervisor::start(orders, &report, program, grace);
    let (line, death) = match supervisor.and_then(Supervisor::until_end) {
        Ok((how, death)) => (told(how), death),
        Err(error) => (format!("failed 1 the supervisor could not work: {}", plain(&error)), None),
    };
    // A write fails only if `leasehold` has ended. Ignored.
    let _ = report.write_all(format!("{line}\n").as_bytes());
    // A `leasehold` that lives reads the end of the reports and kills this process.
    drop(report);
    death.and_then(Expected::await_it)
}

/// The last line to report.
fn told(how: Option<WaitStatus>) -> String {
    match how {
        Some(WaitStatus::Exited(_, code)) => format!("exit {code}"),
        Some(WaitStatus::Signaled(_, signal, _)) => format!("signal {}", signal as i32),
        _ => "failed 1 the command was ended by a real-time signal".into(),
    }
}

/// The death of `leasehold`, not yet proven.
struct Expected {
    /// Its process id.
    leasehold: u32,
    death: LeaseholdDeath,
}

impl Expected {
    /// The death, if `leasehold` is dead. The kernel gives the supervisor another parent when no thread of `leasehold` can run
    /// any more, and not before: a closed pipe or a frozen process is no proof.
    fn await_it(self) -> Option<LeaseholdDeath> {
        let patience = BootClock.now() + DEATH_PATIENCE;
        while parent_id() == self.leasehold {
            if BootClock.now() >= patience {
                return None;
            }
            wait(&mut [], LOOK).ok()?;
        }
        Some(self.death)
    }
}

struct Supervisor {
    /// Its process id.
    leasehold: u32,
    orders: Orders,
    /// The exec shim, which becomes the command, and the leader of its process group.
    leader: Pid,
    /// The exec shim's pipe, until the command is started. A byte starts the command; closing the pipe cancels it.
    gate: Option<PipeWriter>,
    ends: SignalFd,
    timer: BoottimeTimer,
    grace: Duration,
    /// `None` until the first order.
    until: Option<Moment>,
    /// When KILL is sent after TERM, unless `until` is sooner. Never unset: a command that got TERM may have stopped in part.
    end_at: Option<Moment>,
    /// What to do if `leasehold` dies.
    on_death: Option<String>,
}

impl Supervisor {
    fn start(
        orders: RawFd,
        report: &File,
        program: &[String],
        grace: Duration,
    ) -> io::Result<Self> {
        // Read before the exec shim is ready. `leasehold` gives no order before that, so the sender of `on-death` had this id.
        let leasehold = parent_id();
        // Only KILL and STOP have an effect. `launch` gives the exec shim an empty mask.
        SigSet::all().thread_block()?;
        let orders = Orders::new(take_reader(orders)?);
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGCHLD);
        let ends = SignalFd::with_flags(&ends, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        // A process whose parent in the group has died becomes a child of the supervisor, which can reap it.
        set_child_subreaper(true)?;
        let timer = BoottimeTimer::new()?;
        let (word, gate) = io::pipe()?;
        let words: Vec<String> = [&["--".into()], program].concat();
        let leader = launch(Path::new(OURSELVES), "exec-shim", (&word, report), &words, &[])?;
        let gate = Some(gate);
        Ok(Self {
            leasehold,
            orders,
            leader,
            gate,
            ends,
            timer,
            grace,
            until: None,
            end_at: None,
            on_death: None,
        })
    }

    /// Runs until the command's group is gone. Returns how the command ended.
    fn until_end(mut self) -> io::Result<(Option<WaitStatus>, Option<Expected>)> {
        let watched = self.watch();
        // Also after an error. The leader is not reaped yet, so its id cannot belong to another process.
        self.kill();
        let status = self.reap_group();
        watched?;
        Ok((status, self.expected(status)))
    }

    fn expected(self, status: Option<WaitStatus>) -> Option<Expected> {
        let is_success = matches!(status, Some(WaitStatus::Exited(_, 0)));
        // A command that was told to end has not run to its end, whatever its exit code.
        let succeeded = is_success && self.end_at.is_none();
        let death = LeaseholdDeath { task: self.on_death?, right_ends: self.until?, succeeded };
        Some(Expected { leasehold: self.leasehold, death })
    }

    fn watch(&mut self) -> io::Result<()> {
        while !self.has_ended()? {
            // Reads all orders before the clock: an extension that arrived in time counts, even if the supervisor was stopped
            // meanwhile.
            self.hear();
            let next = self.act(BootClock.now());
            self.timer.set(next)?;
            let mut fds = vec![
                PollFd::new(self.ends.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
            ];
            fds.extend(
                self.orders.pipe.as_ref().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)),
            );
            wait(&mut fds, Duration::MAX)?;
            // Pending SIGCHLDs merge, so only the state of the command counts.
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
                Order::OnDeath(task) => self.on_death = Some(task),
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
                // If the exec shim is gone, `has_ended` finds out.
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
            // A stopped process could not handle TERM otherwise.
            self.send(Signal::SIGCONT);
        }
    }

    fn kill(&self) {
        self.send(Signal::SIGKILL);
    }

    /// Sends a signal to the group. An error means that the group is empty.
    fn send(&self, signal: Signal) {
        let _ = killpg(self.leader, signal);
    }

    /// Whether the command has ended. Does not reap it, so that its id cannot belong to another process.
    fn has_ended(&self) -> io::Result<bool> {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        // Reaps orphans. One with an unknown status (EINVAL) stays until the supervisor ends.
        while let Ok(status) = waitid(Id::All, look)
            && let Some(orphan) = status.pid().filter(|it| *it != self.leader)
        {
            waitpid(orphan, None)?;
        }
        match waitid(Id::Pid(self.leader), look) {
            Ok(WaitStatus::StillAlive) => Ok(false),
            // A real-time signal, which has no name.
            Ok(_) | Err(Errno::EINVAL) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits until the killed group is gone. Returns how its leader ended, if the status is known.
    fn reap_group(&self) -> Option<WaitStatus> {
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

enum Order {
    OnDeath(String),
    Until(Moment),
    Signal(Signal),
    End,
}

impl Order {
    /// An unknown order ends the command: it cannot come from this version of `leasehold`.
    fn parse(line: &str) -> Self {
        let order = match line.split_once(' ') {
            Some(("on-death", task)) => Some(Self::OnDeath(task.into())),
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

/// Reads orders, line by line. The end of the pipe counts as `end`.
struct Orders {
    pipe: Option<File>,
    buffer: Vec<u8>,
}

impl Orders {
    fn new(pipe: File) -> Self {
        Self { pipe: Some(pipe), buffer: Vec::new() }
    }

    /// The next order, if a whole line has arrived.
    fn next(&mut self) -> Option<Order> {
        loop {
            if let Some(end) = self.buffer.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(Order::parse(String::from_utf8_lossy(&line[..end]).as_ref()));
            }
            let mut chunk = [0; 4_096];
            match self.pipe.as_mut()?.read(&mut chunk) {
                Ok(read) if read > 0 => self.buffer.extend_from_slice(&chunk[..read]),
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
