//! How does a program run that must not outlive its right? Under a poll supervisor (`leasehold poll-supervisor`, R12), in the
//! supervisor's process group: poll commands, and what a change runs.

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
use crate::model::{InstanceId, STDERR, Tenure};
use crate::net::wait::{Wake, is_ready, wait};
use crate::supervise::launch::{SUPERVISOR, is_secret};
use crate::supervise::poll_supervisor::Feed;

/// The report of a poll supervisor is a few short lines. Bytes beyond this are dropped.
const REPORT_MAX_BYTES: usize = 4_096;

/// A program, and how it is run.
#[derive(Debug)]
pub(super) struct Program {
    /// Its name and its arguments.
    pub(super) words: Vec<String>,
    /// This executable.
    pub(super) supervisor: PathBuf,
    /// Most bytes of its output that are kept.
    pub(super) body_max: usize,
    /// From TERM to KILL.
    pub(super) grace: Duration,
    /// Its soft limit of open files, if not ours.
    pub(super) soft_files: Option<u64>,
}

impl Program {
    /// Starts the poll supervisor, which waits for a document before it starts the program.
    pub(super) fn start(&self, tenure: &Tenure, instance: &InstanceId) -> io::Result<Run> {
        let mut command = Command::new(&self.supervisor);
        for (name, _) in std::env::vars_os().filter(|(name, value)| is_secret(name, value)) {
            command.env_remove(name);
        }
        let mut child = command
            .arg0(SUPERVISOR)
            .args(["poll-supervisor", "--grace-ms", &self.grace.as_millis().to_string()])
            .args(self.soft_files.map(|it| format!("--soft-files={it}")))
            .arg("--")
            .args(&self.words)
            .env("LEASEHOLD_ENDPOINT", tenure.endpoint.as_str())
            .env("LEASEHOLD_INSTANCE", instance.as_str())
            .env("LEASEHOLD_FENCE", tenure.fence.to_string())
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
            grace: self.grace,
            is_reaped: false,
        };
        run.feed = pipes.0.map(|it| Feed::new(it, Vec::new())).transpose()?;
        Ok(run)
    }
}

/// What became of a program, as its poll supervisor reports.
pub(super) enum Ending {
    /// With this status, and what was wrong with it.
    Ended(Option<i32>, Option<String>),
    /// It could not be started, for lack of this.
    Short(String),
}

/// A poll supervisor and, once it was told to start it, the command.
#[derive(Debug)]
pub(super) struct Run {
    child: Child,
    /// Held open for as long as the command may run.
    feed: Option<Feed>,
    stdout: Option<ChildStdout>,
    /// Only the poll supervisor has the other end: when it closes, the poll supervisor has ended.
    report: Option<ChildStderr>,
    said: Vec<u8>,
    pub(super) body: Vec<u8>,
    body_max: usize,
    grace: Duration,
    is_reaped: bool,
}

impl Run {
    /// Whether the poll supervisor waits for the document, or has ended.
    pub(super) fn has_begun(&self) -> bool {
        self.is_ready() || self.report.is_none()
    }

    fn is_ready(&self) -> bool {
        self.said.starts_with(b"ready\n")
    }

    /// Gives the program its document: from now on it runs.
    pub(super) fn feed(&mut self, document: &str) {
        if let Some(feed) = &mut self.feed {
            feed.add(format!("{}\n{document}", document.len()).as_bytes());
            feed.push();
        }
    }

    /// Runs until the poll supervisor has ended, whatever that takes. Where `cause` says so, the program is ended, and that is
    /// returned. `cause` is asked whenever something happens, and at `wake_at`, which it may put off.
    pub(super) fn finish<T: Copy>(
        &mut self,
        wake: Option<&Wake>,
        mut wake_at: impl FnMut(Moment) -> Moment,
        cause: impl Fn(Moment) -> Option<T>,
    ) -> Option<T> {
        let mut ended = None;
        let mut kill_at = None;
        while self.report.is_some() {
            let now = BootClock.now();
            if ended.is_none() {
                ended = cause(now);
                if ended.is_some() {
                    // The poll supervisor takes the end of its pipe as the order to end the program, as it does when
                    // this process dies.
                    self.feed = None;
                    kill_at = Some(now + self.grace);
                }
            }
            let until = kill_at.unwrap_or_else(|| wake_at(now));
            if ended.is_some() && now >= until {
                break;
            }
            if self.step(wake.filter(|_| ended.is_none()), until.since(now)).is_err() {
                break;
            }
        }
        self.reap();
        ended
    }

    /// Waits at most `left` for something to happen, and takes what there is.
    pub(super) fn step(&mut self, wake: Option<&Wake>, left: Duration) -> io::Result<()> {
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
    pub(super) fn ending(&self) -> Ending {
        let said = String::from_utf8_lossy(&self.said);
        let last = said.lines().last().unwrap_or("");
        let number = |it: &str| it.parse::<i32>().ok();
        match last.split_once(' ') {
            Some(("exit", code)) => {
                let error = (code != "0").then(|| format!("exit code {code}"));
                Ending::Ended(number(code), error)
            }
            Some(("signal", signal)) => {
                let status = number(signal).map(|it| 128 + it);
                Ending::Ended(status, Some(format!("killed by signal {signal}")))
            }
            Some(("failed", why)) => Ending::Ended(None, Some(why.into())),
            Some(("short", why)) => Ending::Short(why.into()),
            _ => {
                Ending::Ended(None, Some("the poll supervisor ended before the command did".into()))
            }
        }
    }

    /// What the command wrote on stderr last, to be put behind its error.
    pub(super) fn last_words(&self) -> String {
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
