//! How is an endpoint polled by a command (`--poll-command`)?
//!
//! The command runs under the poll supervisor (`leasehold poll-supervisor`, R12), in its process group. The supervisor is started
//! first; the permit is confirmed right before the supervisor is told to start the command.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::clock::{BootClock, Clock, Moment};
use crate::lease::permit::{PollPermit, Revoked};
use crate::model::{STDERR, Sample, Session};
use crate::net::shortage::{self, COMMAND_POLL, Descriptors};
use crate::net::wait::{Wake, is_ready, plain, wait};
use crate::polling::poller::Poller;
use crate::supervise::launch::{SUPERVISOR, is_secret};
use crate::supervise::poll_supervisor::Feed;

/// The report of a poll supervisor is a few short lines. Bytes beyond this are dropped.
const REPORT_MAX_BYTES: usize = 4_096;

/// Polls by running a command.
#[derive(Debug)]
pub struct CommandPoller {
    program: Vec<String>,
    supervisor: PathBuf,
    body_max: usize,
    grace: Duration,
    soft_files: Option<u64>,
}

/// What became of a command, as its poll supervisor reports.
enum Verdict {
    /// With this status, and what was wrong with it.
    Ended(Option<i32>, Option<String>),
    /// It could not be started, for lack of this.
    Short(String),
}

/// Why a command was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Revoked,
    Late,
}

impl CommandPoller {
    /// Runs `program` with its arguments under `supervisor` (this executable), keeps at most `body_max`
    /// bytes of its output, and leaves it `grace` between TERM and KILL. A lost lease must be over
    /// within the margin, so `grace` has to be shorter.
    pub fn new(
        program: Vec<String>,
        supervisor: PathBuf,
        body_max: usize,
        grace: Duration,
    ) -> Self {
        Self { program, supervisor, body_max, grace, soft_files: None }
    }

    /// Gives commands this soft limit of open files instead of ours, which may have been raised: programs that use
    /// select(2) fail above 1,024.
    pub fn with_soft_files(self, soft_files: Option<u64>) -> Self {
        Self { soft_files, ..self }
    }

    fn start(&self, permit: &PollPermit) -> io::Result<Run> {
        let mut command = Command::new(&self.supervisor);
        for (name, _) in std::env::vars_os().filter(|(name, value)| is_secret(name, value)) {
            command.env_remove(name);
        }
        let mut child = command
            .arg0(SUPERVISOR)
            .args(["poll-supervisor", "--grace-ms", &self.grace.as_millis().to_string()])
            .args(self.soft_files.map(|it| format!("--soft-files={it}")))
            .arg("--")
            .args(&self.program)
            .env("LEASEHOLD_ENDPOINT", permit.tenure().endpoint.as_str())
            .env("LEASEHOLD_INSTANCE", permit.instance().as_str())
            .env("LEASEHOLD_FENCE", permit.tenure().fence.to_string())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut run = Run {
            child,
            feed: None,
            stdout: pipes.1,
            report: pipes.2,
            said: Vec::new(),
            body: Vec::new(),
            body_max: self.body_max,
            is_reaped: false,
        };
        run.feed = pipes.0.map(|it| Feed::new(it, Vec::new())).transpose()?;
        Ok(run)
    }

    /// Runs until the poll supervisor has ended, whatever that takes.
    fn finish(
        &self,
        run: &mut Run,
        permit: &PollPermit,
        wake: &Wake,
        deadline: Moment,
    ) -> Option<Cause> {
        let mut cause = None;
        let mut kill_at = None;
        while run.report.is_some() {
            let now = BootClock.now();
            if cause.is_none() {
                cause = match permit.abort().is_fired() {
                    true => Some(Cause::Revoked),
                    false => (now >= deadline).then_some(Cause::Late),
                };
                if cause.is_some() {
                    // The poll supervisor takes the end of its pipe as the order to end the command, as it does when
                    // this process dies.
                    run.feed = None;
                    kill_at = Some(now + self.grace);
                }
            }
            let until = kill_at.unwrap_or(deadline);
            if cause.is_some() && now >= until {
                break;
            }
            if run.step(cause.is_none().then_some(wake), until.since(now)).is_err() {
                break;
            }
        }
        run.reap();
        cause
    }
}

impl Poller for CommandPoller {
    fn poll(
        &self,
        session: &Session,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked> {
        let mut begun = BootClock.now();
        let deadline = begun + timeout;
        let _descriptors =
            Descriptors::take(COMMAND_POLL).map_err(|why| permit.defer_for_room(why))?;
        let failed = |what: &str, error: &io::Error, begun: Moment| {
            if let Some(why) = shortage::of_spawn(error) {
                return Err(permit.defer(why));
            }
            let name = self.supervisor.display();
            let error = format!("cannot {what} the poll supervisor {name}: {}", plain(error));
            Ok(Sample::failed(error, BootClock.now().since(begun)))
        };
        let mut run = match self.start(permit) {
            Ok(run) => run,
            Err(error) => return failed("start", &error, begun),
        };
        let wake = match Wake::on(permit.abort()) {
            Ok(wake) => wake,
            Err(error) => return failed("watch", &error, begun),
        };
        while !run.is_ready() && run.report.is_some() && !permit.abort().is_fired() {
            let left = deadline.since(BootClock.now());
            if left.is_zero() {
                return failed("start", &io::ErrorKind::TimedOut.into(), begun);
            }
            if let Err(error) = run.step(Some(&wake), left) {
                return failed("hear", &error, begun);
            }
        }
        permit.confirm()?;
        begun = BootClock.now();
        if let Some(feed) = &mut run.feed {
            feed.add(format!("{}\n{}", session.document.len(), session.document).as_bytes());
            feed.push();
        }
        let cause = self.finish(&mut run, permit, &wake, deadline);
        permit.abort().disarm();
        if cause == Some(Cause::Revoked) || permit.abort().is_fired() {
            return Err(Revoked);
        }
        let verdict = match cause {
            None => run.verdict(),
            Some(_) => Verdict::Ended(None, Some(format!("no end within {timeout:?}"))),
        };
        let (status, error) = match verdict {
            Verdict::Ended(status, error) => (status, error.map(|it| it + &run.last_words())),
            Verdict::Short(why) => return Err(permit.defer(why)),
        };
        let (body, duration) = (std::mem::take(&mut run.body), BootClock.now().since(begun));
        Ok(Sample { ok: error.is_none(), status, error, body, duration })
    }
}

/// A poll supervisor and, once it was told to start it, the command.
#[derive(Debug)]
struct Run {
    child: Child,
    /// Held open for as long as the command may run.
    feed: Option<Feed>,
    stdout: Option<ChildStdout>,
    /// Only the poll supervisor has the other end: when it closes, the poll supervisor has ended.
    report: Option<ChildStderr>,
    said: Vec<u8>,
    body: Vec<u8>,
    body_max: usize,
    is_reaped: bool,
}

impl Run {
    fn is_ready(&self) -> bool {
        self.said.starts_with(b"ready\n")
    }

    /// Waits at most `left` for something to happen, and takes what there is.
    fn step(&mut self, wake: Option<&Wake>, left: Duration) -> io::Result<()> {
        let (has_output, has_report) = {
            let mut fds = Vec::with_capacity(4);
            let inputs =
                [self.report.as_ref().map(AsFd::as_fd), self.stdout.as_ref().map(AsFd::as_fd)];
            fds.extend(inputs.into_iter().flatten().map(|it| PollFd::new(it, PollFlags::POLLIN)));
            fds.extend(wake.map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)));
            let feed = self.feed.as_ref().filter(|it| it.is_pending());
            fds.extend(feed.map(|it| PollFd::new(it.as_fd(), PollFlags::POLLOUT)));
            wait(&mut fds, left)?;
            let is_report_open = self.report.is_some();
            let stdout_at = usize::from(is_report_open);
            let is_output = self.stdout.is_some() && fds.get(stdout_at).is_some_and(is_ready);
            (is_output, is_report_open && fds.first().is_some_and(is_ready))
        };
        if let Some(feed) = &mut self.feed {
            feed.push();
        }
        if has_output {
            take(&mut self.stdout, &mut self.body, self.body_max)?;
        }
        if has_report {
            take(&mut self.report, &mut self.said, REPORT_MAX_BYTES)?;
        }
        Ok(())
    }

    /// Kills what is left of the process group. Until the poll supervisor is waited for, its id cannot belong to another
    /// process.
    fn reap(&mut self) {
        if self.is_reaped {
            return;
        }
        self.feed = None;
        if let Ok(id) = i32::try_from(self.child.id()) {
            // An error means that nobody is left.
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
        drop(self.child.wait());
        self.is_reaped = true;
        // A process that still holds the output has left the group; what it writes from now on is not ours.
        while self.stdout.is_some() && self.body.len() < self.body_max {
            let before = self.body.len();
            let step = self.step(None, Duration::ZERO);
            if step.is_err() || (self.body.len() == before && self.report.is_none()) {
                break;
            }
        }
    }

    /// Status and error, as the poll supervisor reported them.
    fn verdict(&self) -> Verdict {
        let said = String::from_utf8_lossy(&self.said);
        let last = said.lines().last().unwrap_or("");
        let number = |it: &str| it.parse::<i32>().ok();
        match last.split_once(' ') {
            Some(("exit", code)) => {
                let error = (code != "0").then(|| format!("exit code {code}"));
                Verdict::Ended(number(code), error)
            }
            Some(("signal", signal)) => {
                let status = number(signal).map(|it| 128 + it);
                Verdict::Ended(status, Some(format!("killed by signal {signal}")))
            }
            Some(("failed", why)) => Verdict::Ended(None, Some(why.into())),
            Some(("short", why)) => Verdict::Short(why.into()),
            _ => Verdict::Ended(
                None,
                Some("the poll supervisor ended before the command did".into()),
            ),
        }
    }

    /// What the command wrote on stderr last, to be put behind its error.
    fn last_words(&self) -> String {
        let said = String::from_utf8_lossy(&self.said);
        let words = said.lines().rev().find_map(|it| it.strip_prefix("stderr "));
        words.map_or(String::new(), |it| format!("{STDERR}{it}"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Takes what is there, keeps it up to `limit`, and forgets the pipe at its end.
fn take(from: &mut Option<impl Read>, into: &mut Vec<u8>, limit: usize) -> io::Result<()> {
    let mut chunk = [0; 16 * 1024];
    let Some(pipe) = from else { return Ok(()) };
    match pipe.read(&mut chunk) {
        Ok(0) => *from = None,
        Ok(read) => {
            let kept = read.min(limit.saturating_sub(into.len()));
            into.extend_from_slice(&chunk[..kept]);
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
        Err(error) => return Err(error),
    }
    Ok(())
}
