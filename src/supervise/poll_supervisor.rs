//! Who stops a poll command when the daemon no longer can?
//!
//! A process between the two (R12). It leads the command's process group, holds the reading end of a
//! pipe whose writing end only the daemon has, and says on its stderr, line by line, how things stand:
//! `ready`, then `stderr WORDS` if the command wrote any there, then `exit N`, `signal N`, `failed WHY`, or
//! `short WHY` when this host lacked something for it. After the command's end it kills what is left
//! of the group, itself included: no other signal reaches a whole group at once.
//!
//! The command's stderr ends here: all of it is read, so that the command never waits, and the last of it is kept.

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

/// The exit code of a shell for a command that is not there.
const NOT_FOUND: u8 = 127;

/// How much of a command's stderr is kept: the last of it.
const TAIL_BYTES: usize = 1_024;
/// How much of that is told.
const TAIL_CHARS: usize = 300;
/// How many reads of stderr come before the next look at the daemon.
const READS_MAX: usize = 16;

/// The hidden subcommand `guardian --grace-ms N [--soft-files N] -- PROGRAM [ARGUMENT]…`. Call it before any
/// thread exists: it blocks a signal for the whole process.
pub fn guardian_main(program: &[String], grace: Duration, soft_files: Option<u64>) -> ExitCode {
    let guarded = match program {
        [name, rest @ ..] => guard(name, rest, grace, soft_files),
        [] => Err(io::Error::other("a program is needed")),
    };
    guarded.unwrap_or_else(|error| {
        failed("the guardian could not work", &error);
        ExitCode::FAILURE
    })
}

/// Says that the command was not started: for a shortage, or for a reason that will not pass.
fn failed(what: &str, error: &io::Error) {
    match shortage::of_spawn(error) {
        Some(why) => say(&format!("short {why}")),
        None => say(&format!("failed {what}: {}", plain(error))),
    }
}

/// For this process, and so for the command.
fn limit_files(soft: u64) {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    // What cannot be lowered stays as it is, which is no reason not to poll.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
}

fn guard(
    name: &str,
    args: &[String],
    grace: Duration,
    soft_files: Option<u64>,
) -> io::Result<ExitCode> {
    // Blocked, whatever the daemon blocks, and read from a descriptor: a signal for the group must not end its
    // guardian, and only SIGCHLD means anything.
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
    // The command would inherit the mask. What came for the group before is over; what comes at this very moment ends
    // the guardian, and then the daemon ends the group.
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

/// `None` when the daemon gave up before it had said everything: then nothing may start.
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
            // A program that does not read its input, or closes it, must not matter here.
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
                // Only the command yet, so that it is waited for and leaves no zombie.
                child.kill()?;
                self.kill_at = None;
                continue;
            }
            if self.wait(&daemon, is_alone, left)? && daemon.lock().read(&mut [0; 64])? == 0 {
                is_alone = true;
                // Before the command is ended: the daemon may not wait until it has.
                self.say_stderr();
                self.kill_at = Some(BootClock.now() + self.grace);
                killpg(getpgrp(), Signal::SIGTERM)?;
            }
        }
    }

    /// Whether there is something to read from the daemon, or its end.
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
        // One signal may stand for many ends; only the next look at the command counts.
        while self.ends.read_signal()?.is_some() {}
        Ok(heard)
    }
}

impl Watch {
    /// Tells the last of what the command wrote on stderr, if that was anything.
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
    /// Something was written before these.
    is_cut: bool,
}

impl Tail {
    fn new(pipe: ChildStderr) -> io::Result<Self> {
        fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { pipe: Some(pipe), bytes: Vec::new(), is_cut: false })
    }

    /// Takes what is there, but not for ever.
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

    /// On one line, without anything that could move a cursor.
    fn words(&self) -> String {
        // What is left of a character whose beginning is gone.
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

/// Nobody may be listening any more, and that is no reason to stop guarding.
fn say(line: &str) {
    drop(io::stderr().write_all(format!("{line}\n").as_bytes()));
}

/// Bytes on their way into a pipe whose reader may be slow, or never read.
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

    /// Writes what fits without waiting.
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
