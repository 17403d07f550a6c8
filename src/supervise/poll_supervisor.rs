//! Which process ends a poll command when the daemon cannot? The poll supervisor, between the daemon and the command (R12).
//!
//! It leads the command's process group, and has the reading end of a pipe whose writing end only the daemon has: when that
//! closes, it ends the command. It reports to the daemon on its stderr, line by line: `ready`, then `stderr WORDS` if the
//! command wrote any, then `exit N`, `signal N`, `failed WHY`, or `short WHY` when this host lacked a resource. After the
//! command's end it kills the whole group, itself included: no other signal reaches all processes of a group at once.
//!
//! It reads all of the command's stderr, so that the command never blocks, and keeps its end.

use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpgrp, getpid, setpgid};

use crate::clock::{BootClock, Clock, Moment};
use crate::model::SESSION_MAX_BYTES;
use crate::net::shortage;
use crate::net::wait::{is_ready, plain, wait};

/// The exit code of a shell for a command that is not found.
const NOT_FOUND: u8 = 127;

/// How much of a command's stderr is kept: the last of it.
const TAIL_BYTES: usize = 1_024;
/// How much of that is reported.
const TAIL_CHARS: usize = 300;
/// Most reads of stderr before the next check of the daemon's pipe.
const READS_MAX: usize = 16;

/// The hidden subcommand `poll-supervisor --grace-ms N [--soft-files N] -- PROGRAM [ARGUMENT]…`. Call it before any
/// thread exists: it blocks a signal for the whole process.
pub fn poll_supervisor_main(
    program: &[String],
    grace: Duration,
    soft_files: Option<u64>,
) -> ExitCode {
    let guarded = match program {
        [name, rest @ ..] => guard(name, rest, grace, soft_files),
        [] => Err(io::Error::other("a program is needed")),
    };
    guarded.unwrap_or_else(|error| {
        failed("the poll supervisor could not work", &error);
        ExitCode::FAILURE
    })
}

/// Reports that the command was not started: `short` for a shortage, which may pass, `failed` otherwise.
fn failed(what: &str, error: &io::Error) {
    match shortage::of_spawn(error) {
        Some(why) => say(&format!("short {why}")),
        None => say(&format!("failed {what}: {}", plain(error))),
    }
}

/// Sets the soft limit of open files for this process, and so for the command.
fn limit_files(soft: u64) {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    // A limit that cannot be lowered stays: the poll goes on.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
}

fn guard(
    name: &str,
    args: &[String],
    grace: Duration,
    soft_files: Option<u64>,
) -> io::Result<ExitCode> {
    // Blocks all signals and reads them from a descriptor: a signal for the group must not end the poll supervisor, and
    // only SIGCHLD has a meaning.
    let held = [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let held: SigSet = held.into_iter().collect();
    held.thread_set_mask()?;
    let own = Pid::from_raw(0);
    if getpgrp() != getpid() {
        setpgid(own, own)?;
    }
    let watched = SignalFd::with_flags(&held, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    say("ready");
    let Some(document) = read_frame(&mut io::stdin().lock())? else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut command = Command::new(name);
    command.args(args).stdin(Stdio::piped()).stderr(Stdio::piped());
    if let Some(soft) = soft_files {
        limit_files(soft);
    }
    // Unblocked, because the command would inherit the mask. A signal for the group at this moment ends the poll
    // supervisor, and then the daemon ends the group.
    while watched.read_signal()?.is_some() {}
    held.thread_unblock()?;
    let started = command.spawn();
    held.thread_block()?;
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            failed(&format!("cannot run {name}"), &error);
            return Ok(ExitCode::from(NOT_FOUND));
        }
    };
    let feed = child.stdin.take().map(|it| Feed::new(it, document)).transpose()?;
    let stderr = child.stderr.take().map(Tail::new).transpose()?;
    let mut watch = Watch { feed, stderr, ends: watched, grace, kill_at: None };
    let status = watch.until_end(&mut child)?;
    watch.say_stderr();
    say(&verdict(status));
    killpg(getpgrp(), Signal::SIGKILL)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the session from the daemon. `None` if the pipe closed before it was complete: then no command may start.
fn read_frame(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = String::new();
    input.take(16).read_line(&mut line)?;
    let Some(digits) = line.strip_suffix('\n') else { return Ok(None) };
    let length: usize = digits.parse().map_err(io::Error::other)?;
    if length > SESSION_MAX_BYTES {
        return Err(io::Error::other("the session is too large"));
    }
    let mut document = vec![0; length];
    match input.read_exact(&mut document) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(document)),
    }
}

struct Watch {
    feed: Option<Feed>,
    stderr: Option<Tail>,
    ends: SignalFd,
    grace: Duration,
    kill_at: Option<Moment>,
}

impl Watch {
    fn until_end(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let daemon = io::stdin();
        let mut is_alone = false;
        loop {
            // A command that does not read its input, or closes it, is allowed.
            if self.feed.as_mut().is_some_and(|it| it.push() != Fed::Partly) {
                self.feed = None;
            }
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let left = match self.kill_at {
                None => Duration::MAX,
                Some(at) => at.since(BootClock.now()),
            };
            if left.is_zero() {
                // Kills only the command first, so that it can be reaped.
                child.kill()?;
                self.kill_at = None;
                continue;
            }
            if self.wait(&daemon, is_alone, left)? && daemon.lock().read(&mut [0; 64])? == 0 {
                is_alone = true;
                // Before the command is ended, because the daemon may not wait for its end.
                self.say_stderr();
                self.kill_at = Some(BootClock.now() + self.grace);
                killpg(getpgrp(), Signal::SIGTERM)?;
            }
        }
    }

    /// Whether the daemon's pipe has data or has closed.
    fn wait(&mut self, daemon: &io::Stdin, is_alone: bool, left: Duration) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(self.ends.as_fd(), PollFlags::POLLIN)];
        if let Some(feed) = &self.feed {
            fds.push(PollFd::new(feed.as_fd(), PollFlags::POLLOUT));
        }
        let stderr = self.stderr.as_ref().and_then(|it| it.pipe.as_ref());
        fds.extend(stderr.map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)));
        if !is_alone {
            fds.push(PollFd::new(daemon.as_fd(), PollFlags::POLLIN));
        }
        wait(&mut fds, left)?;
        let heard = !is_alone && fds.last().is_some_and(is_ready);
        if let Some(stderr) = &mut self.stderr {
            stderr.take();
        }
        // Pending SIGCHLDs merge, so only the state of the command counts.
        while self.ends.read_signal()?.is_some() {}
        Ok(heard)
    }
}

impl Watch {
    /// Reports the last of the command's stderr, if there is any.
    fn say_stderr(&mut self) {
        let Some(stderr) = &mut self.stderr else { return };
        stderr.take();
        let words = stderr.words();
        if !words.is_empty() {
            say(&format!("stderr {words}"));
        }
    }
}

/// The end of what a command writes on stderr.
#[derive(Debug)]
struct Tail {
    pipe: Option<ChildStderr>,
    bytes: Vec<u8>,
    /// Whether earlier bytes were dropped.
    is_cut: bool,
}

impl Tail {
    fn new(pipe: ChildStderr) -> io::Result<Self> {
        fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { pipe: Some(pipe), bytes: Vec::new(), is_cut: false })
    }

    /// Reads what is available, at most a fixed number of times.
    fn take(&mut self) {
        let mut chunk = [0; 64 * 1_024];
        for _ in 0..READS_MAX {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut chunk) {
                Ok(n) if n > 0 => self.keep(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => self.pipe = None,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let over = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.is_cut |= over > 0;
        self.bytes.drain(..over);
    }

    /// The kept bytes as one line without control characters.
    fn words(&self) -> String {
        // Skips the rest of a UTF-8 character whose first byte was dropped.
        let is_rest = |it: &u8| self.is_cut && (0x80..0xc0).contains(it);
        let rest = self.bytes.iter().take_while(|it| is_rest(it)).count();
        let text = String::from_utf8_lossy(&self.bytes[rest..]);
        let is_gap = |c: char| c.is_whitespace() || c.is_control();
        let words: Vec<&str> = text.split(is_gap).filter(|it| !it.is_empty()).collect();
        let words = words.join(" ");
        let over = words.chars().count().saturating_sub(TAIL_CHARS);
        let is_cut = self.is_cut || over > 0;
        let last: String = words.chars().skip(over).collect();
        if is_cut && !last.is_empty() { format!("…{last}") } else { last }
    }
}

fn verdict(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "failed the command ended in an unknown way".into(),
    }
}

/// Reports a line to the daemon. A write fails only if the daemon has ended; the command must be ended all the same.
fn say(line: &str) {
    drop(io::stderr().write_all(format!("{line}\n").as_bytes()));
}

/// Bytes to write into a pipe whose reader may be slow, or never read.
#[derive(Debug)]
pub(crate) struct Feed {
    pipe: ChildStdin,
    bytes: Vec<u8>,
    sent: usize,
}

/// How far a [`Feed`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    Partly,
    Wholly,
    NobodyReads,
}

impl Feed {
    pub(crate) fn new(pipe: ChildStdin, bytes: Vec<u8>) -> io::Result<Self> {
        fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { pipe, bytes, sent: 0 })
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.sent < self.bytes.len()
    }

    /// Writes what fits without blocking.
    pub(crate) fn push(&mut self) -> Fed {
        while self.is_pending() {
            match self.pipe.write(&self.bytes[self.sent..]) {
                Ok(more) => self.sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fed::Partly,
                Err(_) => {
                    self.sent = self.bytes.len();
                    return Fed::NobodyReads;
                }
            }
        }
        Fed::Wholly
    }
}

impl AsFd for Feed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_starts_on_half_a_session() {
        for (said, heard) in [
            ("3\nabc", Some("abc")),
            ("0\n", Some("")),
            ("3\nabcdef", Some("abc")),
            ("3\nab", None),
            ("3", None),
            ("", None),
        ] {
            let document = read_frame(&mut said.as_bytes()).unwrap();
            assert_eq!(document.as_deref(), heard.map(str::as_bytes), "{said:?}");
        }
        assert!(read_frame(&mut "x\nabc".as_bytes()).is_err());
        assert!(read_frame(&mut "99999999\n".as_bytes()).is_err());
    }
}
