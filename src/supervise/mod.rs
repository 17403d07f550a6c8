//! How does a command run only while a lease is held, and end before another instance can get the lease?
//!
//! `leasehold` starts the [`supervisor`], a process (subcommand `supervisor`). The supervisor starts the [`exec_shim`]
//! (subcommand `exec-shim`), which becomes the command. The supervisor ends the command unless `leasehold` extends its deadline in
//! time, so it does not matter whether `leasehold` hangs, is frozen or dead. If the supervisor hangs, the thread of
//! [`SupervisedCommand`] ends the command. A command that polls has a simpler [`poll_supervisor`] (subcommand `poll-supervisor`).
//! Touches processes, pipes and signals, never the store.

mod boottime_timer;
pub mod exec_shim;
pub(crate) mod launch;
pub mod poll_supervisor;
pub mod signals;
pub mod supervisor;

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::clock::{BootClock, Clock, Moment};
use crate::net::wait::{is_ready, plain, wait};
use crate::supervise::boottime_timer::BoottimeTimer;
use crate::thread::Thread;

/// Longest wait for the start of both processes, on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// A supervisor that does not report the end of a killed command within this time counts as hung.
const REPORT_PATIENCE: Duration = Duration::from_secs(1);
/// With its order and the end of its line shorter than `PIPE_BUF`.
const TASK_BYTES_MAX: usize = 4_000;

/// A command under a supervisor. Dropping it ends the command. That takes at most one grace period, and
/// `REPORT_PATIENCE` (1 s) more if the supervisor hangs.
#[derive(Debug)]
pub struct SupervisedCommand {
    /// The only writing end: when it closes, the supervisor ends the command.
    orders: Option<PipeWriter>,
    /// When the listener kills the command, too.
    timer: Arc<BoottimeTimer>,
    grace: Duration,
    /// `None` before the start.
    until: Option<Moment>,
    end_at: Option<Moment>,
    /// What the timer was last set to here. The listener sets it, too, once it has gone off.
    timer_at: Option<Moment>,
    ended: Receiver<Ended>,
    _listener: Thread,
}

/// How a command ended. Its process group is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; 128 and the number of the signal that killed it; 127 or 126 if it could not run.
    pub code: u8,
    /// Why the command did not run, or why it ended although neither it nor `leasehold` wanted that.
    pub error: Option<String>,
}

impl SupervisedCommand {
    /// Starts the supervisor and waits until it is ready; the command does not run yet. `leasehold` is this executable:
    /// `/proc/self/exe` stays the same when its file is replaced. `program` inherits stdin, stdout, stderr and the
    /// environment, with `environment` added.
    pub fn prepare(
        leasehold: &Path,
        program: &[String],
        environment: &[(&str, String)],
        grace: Duration,
    ) -> Result<Self, String> {
        let begun = Self::begin(leasehold, program, environment, grace);
        let (command, ready) = begun
            .map_err(|error| format!("cannot start {}: {}", leasehold.display(), plain(&error)))?;
        match ready.recv_timeout(START_PATIENCE) {
            Ok(()) => Ok(command),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("the supervisor is not ready after {START_PATIENCE:?}"))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let ended = command.ended.recv_timeout(START_PATIENCE).ok();
                Err(ended.and_then(|it| it.error).unwrap_or("the supervisor is gone".into()))
            }
        }
    }

    fn begin(
        leasehold: &Path,
        program: &[String],
        environment: &[(&str, String)],
        grace: Duration,
    ) -> io::Result<(Self, Receiver<()>)> {
        let (orders_reader, orders) = io::pipe()?;
        let (report, report_writer) = io::pipe()?;
        fcntl(&orders, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let timer = Arc::new(BoottimeTimer::new()?);
        let words = ["--grace-ms".into(), grace.as_millis().to_string(), "--".into()];
        let words = [&words, program].concat();
        let supervisor = launch::launch(
            leasehold,
            "supervisor",
            (&orders_reader, &report_writer),
            &words,
            environment,
        )?;
        let (is_ready, ready) = bounded(1);
        let (tell, ended) = bounded(1);
        let listener = Listener {
            supervisor,
            group: None,
            report,
            timer: Arc::clone(&timer),
            is_ready: Some(is_ready),
            ended: None,
            strikes: 0,
        };
        // If no thread can be started, the pipes close here, and the supervisor ends.
        let listener = Thread::spawn("supervised", move || drop(tell.send(listener.run())))?;
        let orders = Some(orders);
        let command = Self {
            orders,
            timer,
            grace,
            until: None,
            end_at: None,
            timer_at: None,
            ended,
            _listener: listener,
        };
        Ok((command, ready))
    }

    /// What the supervisor does for its caller when `leasehold` has died and the command's process group is gone
    /// ([`supervisor::LeaseholdDeath`]): one line. Call it before [`SupervisedCommand::go`]. A task longer than `PIPE_BUF` (4 KiB)
    /// is left out, because it could be written in part.
    pub fn on_death(&self, task: &str) {
        if task.len() < TASK_BYTES_MAX {
            self.say(&format!("on-death {task}"));
        }
    }

    /// Starts the command, which may run until `until` unless extended. `Err` if it was not started. If `program` cannot be
    /// executed, [`SupervisedCommand::ended`] says so.
    pub fn go(&mut self, until: Moment) -> Result<(), String> {
        if BootClock.now() >= until - self.grace {
            return Err("there is no time left for the command to run".into());
        }
        self.until = Some(until);
        self.set_timer();
        match self.say(&format!("until {}", until.as_nanos())) {
            true => Ok(()),
            false => Err("the supervisor was gone before the command could start".into()),
        }
    }

    /// Lets the command run until `until`. The last call counts. Never blocks.
    pub fn extend(&mut self, until: Moment) {
        if self.until.is_some() {
            self.until = Some(until);
            self.set_timer();
            // If the pipe is full, a later call replaces this one.
            self.say(&format!("until {}", until.as_nanos()));
        }
    }

    /// Sends a signal to the process group of the command, through the supervisor, which knows whether the group still exists.
    pub fn signal(&self, signal: Signal) {
        self.say(&format!("signal {}", signal as i32));
    }

    /// Ends the command: TERM now, KILL after the grace period, or at `until` if that is sooner.
    pub fn end(&mut self) {
        if self.end_at.is_none() {
            self.end_at = Some(BootClock.now() + self.grace);
            self.set_timer();
            if !self.say("end") {
                self.orders = None;
            }
        }
    }

    /// Receives once how the command ended, after its whole process group is gone.
    pub fn ended(&self) -> &Receiver<Ended> {
        &self.ended
    }

    /// Leaves the timer alone if its moment stays the same: once that has passed, the listener has set the timer to the end of
    /// its patience with the supervisor.
    fn set_timer(&mut self) {
        let latest = [self.until, self.end_at].into_iter().flatten().min();
        if latest != self.timer_at {
            self.timer_at = latest;
            // Fails only for an invalid descriptor.
            let _ = latest.map(|it| self.timer.set(it));
        }
    }

    /// Writes an order to the supervisor; whether it was written. A line is shorter than `PIPE_BUF`, so it is written whole or
    /// not at all.
    fn say(&self, line: &str) -> bool {
        let line = format!("{line}\n");
        let written = self.orders.as_ref().map(|mut it| it.write(line.as_bytes()));
        matches!(written, Some(Ok(n)) if n == line.len())
    }
}

impl Drop for SupervisedCommand {
    fn drop(&mut self) {
        self.end();
        self.orders = None;
    }
}

/// The thread `supervised`: reads what the supervisor reports, and kills the command if the supervisor does not.
struct Listener {
    supervisor: Pid,
    group: Option<Pid>,
    /// Ends with the supervisor, which has the only writing end once the command runs.
    report: PipeReader,
    timer: Arc<BoottimeTimer>,
    is_ready: Option<Sender<()>>,
    ended: Option<Ended>,
    /// How often the timer went off without a report of the end.
    strikes: u32,
}

impl Listener {
    fn run(mut self) -> Ended {
        let mut said = Vec::new();
        while self.listen(&mut said) {
            while let Some(end) = said.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = said.drain(..=end).collect();
                self.note(String::from_utf8_lossy(&line).trim_end());
            }
        }
        if self.ended.is_none() {
            self.kill_group();
        }
        // It may be there still, if its report could not be read.
        let _ = kill(self.supervisor, Signal::SIGKILL);
        while waitpid(self.supervisor, None) == Err(Errno::EINTR) {}
        self.ended.unwrap_or_else(|| Ended {
            code: 1,
            error: Some(match self.strikes {
                0 => "the supervisor ended before the command did".into(),
                _ => "the supervisor did not end the command in time".into(),
            }),
        })
    }

    /// Takes what is there into `said`; false at the end.
    fn listen(&mut self, said: &mut Vec<u8>) -> bool {
        let mut fds = [
            PollFd::new(self.report.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
        ];
        if wait(&mut fds, Duration::MAX).is_err() {
            return false;
        }
        let [is_told, is_late] = fds.map(|it| is_ready(&it));
        if !is_told {
            if is_late {
                self.strike();
            }
            return true;
        }
        let mut chunk = [0; 1_024];
        match self.report.read(&mut chunk) {
            Ok(read) => {
                said.extend_from_slice(&chunk[..read]);
                read > 0
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    fn note(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let ended = match word {
            "ready" => {
                self.group = rest.parse().ok().map(Pid::from_raw);
                let _ = self.is_ready.take().map(|it| it.try_send(()));
                return;
            }
            "exit" => Ended { code: rest.parse().unwrap_or(1), error: None },
            "signal" => Ended { code: 128 | rest.parse::<u8>().unwrap_or(0), error: None },
            _ => {
                let (code, why) = rest.split_once(' ').unwrap_or(("1", line));
                Ended { code: code.parse().unwrap_or(1), error: Some(why.into()) }
            }
        };
        // The first report counts: the exec shim knows better than the supervisor why there is no command.
        self.ended.get_or_insert(ended);
    }

    /// The deadline has passed: kills the command, and the next time the supervisor.
    fn strike(&mut self) {
        self.strikes += 1;
        let _ = match self.group.filter(|_| self.ended.is_none() && self.strikes == 1) {
            // The supervisor kills the command at this moment, too, unless it hangs.
            Some(group) => killpg(group, Signal::SIGKILL),
            None => kill(self.supervisor, Signal::SIGKILL),
        };
        let _ = self.timer.set(BootClock.now() + REPORT_PATIENCE);
    }

    /// Kills the group, and waits at most `REPORT_PATIENCE` (1 s) until none of its processes lives.
    fn kill_group(&self) {
        let Some(group) = self.group else { return };
        let _ = killpg(group, Signal::SIGKILL);
        let patience = BootClock.now() + REPORT_PATIENCE;
        while has_living(group) && BootClock.now() < patience {
            let _ = wait(&mut [], Duration::from_millis(1));
        }
    }
}

/// Whether a process of `group` is more than a zombie. A zombie's new parent may never reap it.
fn has_living(group: Pid) -> bool {
    let lives = |stat: String| {
        // PID (NAME) STATE PARENT GROUP …, and a name may hold anything.
        let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
        let (state, its_group) = (fields.next(), fields.nth(1));
        !matches!(state, Some("Z" | "X")) && its_group == Some(group.to_string().as_str())
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|it| fs::read_to_string(it.path().join("stat")).ok()).any(lives)
}
