//! How does a process of ours begin clean, whatever state we are in?
//!
//! In a process group of its own, with no signal blocked or ignored. `std::process::Command` would
//! hand our own signal mask on, and a descriptor beyond the first three only by letting every process
//! have it that some other thread starts at that moment.

use std::env;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::unistd::{Pid, close};

use crate::config::RedisUrl;

/// What `ps` shows for the process between us and a command. Not our own name: `pkill -9 -f leasehold` must leave it
/// alive, because it ends what the command has started.
pub(crate) const SUPERVISOR: &str = "command-supervisor";
/// How Redis is reached may carry a password, which is no business of a command.
const SECRET_PREFIX: &str = "LEASEHOLD_REDIS";
/// These name files, and the command runs as the user who may read them.
const FILES: [&str; 4] = [
    "LEASEHOLD_REDIS_PASSWORD_FILE",
    "LEASEHOLD_REDIS_CA",
    "LEASEHOLD_REDIS_CERT",
    "LEASEHOLD_REDIS_KEY",
];

/// Whether a variable of our environment may hold a secret and is not for the commands we start: a URL with a user or a
/// password in it, and whatever looks like one. A URL without is passed on, so that a command that uses Leasehold
/// itself does not talk to another Redis.
pub(crate) fn is_secret(name: &OsStr, value: &OsStr) -> bool {
    if !name.as_bytes().starts_with(SECRET_PREFIX.as_bytes()) || FILES.iter().any(|it| name == *it)
    {
        return false;
    }
    let url = value.to_str().filter(|_| name == SECRET_PREFIX).map(RedisUrl::parse);
    !url.is_some_and(|it| it.is_ok_and(|it| !it.has_password() && it.login().user.is_none()))
}

/// Starts `leasehold SUBCOMMAND --orders-fd N --report-fd N ARGUMENTS`, and hands it those two. The first word of its
/// command line is [`SUPERVISOR`].
pub(crate) fn launch(
    executable: &Path,
    subcommand: &str,
    (orders, report): (&impl AsRawFd, &impl AsRawFd),
    arguments: &[String],
    environment: &[(&str, String)],
) -> io::Result<Pid> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    attributes.set_pgroup(Pid::from_raw(0))?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_sigdefault(&SigSet::all())?;
    let mut actions = PosixSpawnFileActions::init()?;
    let mut words = vec![c_string(SUPERVISOR)?, c_string(subcommand)?];
    for (option, fd) in [("--orders-fd", orders.as_raw_fd()), ("--report-fd", report.as_raw_fd())] {
        // Onto itself: that clears close-on-exec, in the new process only.
        actions.add_dup2(fd, fd)?;
        words.extend([c_string(option)?, c_string(fd.to_string())?]);
    }
    for word in arguments {
        words.push(c_string(word.as_str())?);
    }
    let environment = with_ours(environment)?;
    Ok(posix_spawn(executable, &actions, &attributes, &words, &environment)?)
}

/// Our own environment with `ours` added, and without what is nobody else's business.
fn with_ours(ours: &[(&str, String)]) -> io::Result<Vec<CString>> {
    let is_ours = |name: &OsStr| ours.iter().any(|it| OsStr::new(it.0) == name);
    let inherited = env::vars_os().filter(|it| !is_secret(&it.0, &it.1) && !is_ours(&it.0));
    let mut all = Vec::new();
    for (name, value) in inherited {
        all.push(c_string([name.as_bytes(), b"=", value.as_bytes()].concat())?);
    }
    for (name, value) in ours {
        all.push(c_string(format!("{name}={value}"))?);
    }
    Ok(all)
}

fn c_string(text: impl Into<Vec<u8>>) -> io::Result<CString> {
    Ok(CString::new(text)?)
}

/// The reading end that was handed over as `fd`, whose number is free afterwards; reads never block.
pub(crate) fn take_reader(fd: RawFd) -> io::Result<File> {
    take(fd, OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()))
}

/// The writing end that was handed over as `fd`, whose number is free afterwards.
pub(crate) fn take_writer(fd: RawFd) -> io::Result<File> {
    take(fd, OpenOptions::new().write(true))
}

/// Opened anew, because only that sets close-on-exec without `unsafe`: whoever comes after must not
/// have it, or nobody would ever see its end.
fn take(fd: RawFd, how: &OpenOptions) -> io::Result<File> {
    let file = how.open(format!("/proc/self/fd/{fd}"))?;
    close(fd)?;
    Ok(file)
}
