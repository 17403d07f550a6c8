//! How are the supervisor and the exec shim started? As `leasehold` subcommands with a clean signal mask and two pipes.
//!
//! Each gets a process group of its own, and no signal is blocked or ignored. `std::process::Command` would pass on the signal
//! mask of this process. It can pass a fourth descriptor only by making it inheritable for every process that another
//! thread starts at the same time.

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

/// The name of a supervisor in `ps`. Not `leasehold`: `pkill -9 -f leasehold` must leave it alive, because it ends what the
/// command has started.
pub(crate) const SUPERVISOR: &str = "command-supervisor";
/// Variables with Redis URLs, which may contain a password. Commands do not get them.
const SECRET_PREFIX: &str = "LEASEHOLD_REDIS";
/// Variables that look like secrets but only name files, which the user of the command may read anyway.
const FILES: [&str; 4] = [
    "LEASEHOLD_REDIS_PASSWORD_FILE",
    "LEASEHOLD_REDIS_CA",
    "LEASEHOLD_REDIS_CERT",
    "LEASEHOLD_REDIS_KEY",
];

/// Whether a variable may hold a secret, and so is not passed to commands: a URL with a user or a password, or a name that
/// sounds like a secret. A URL without them is passed on, so that a command that uses Leasehold finds the same Redis.
pub(crate) fn is_secret(name: &OsStr, value: &OsStr) -> bool {
    if !name.as_bytes().starts_with(SECRET_PREFIX.as_bytes()) || FILES.iter().any(|it| name == *it)
    {
        return false;
    }
    let url = value.to_str().filter(|_| name == SECRET_PREFIX).map(RedisUrl::parse);
    !url.is_some_and(|it| it.is_ok_and(|it| !it.has_password() && it.login().user.is_none()))
}

/// Starts `leasehold SUBCOMMAND --orders-fd N --report-fd N ARGUMENTS` with these two descriptors. Its `argv[0]` is
/// [`SUPERVISOR`].
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
        // Duplicated onto itself: clears close-on-exec, in the new process only.
        actions.add_dup2(fd, fd)?;
        words.extend([c_string(option)?, c_string(fd.to_string())?]);
    }
    for word in arguments {
        words.push(c_string(word.as_str())?);
    }
    let environment = with_ours(environment)?;
    Ok(posix_spawn(executable, &actions, &attributes, &words, &environment)?)
}

/// The environment of this process without its secrets, with `ours` added.
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

/// Takes over the reading end `fd` and frees its number. Reads never block.
pub(crate) fn take_reader(fd: RawFd) -> io::Result<File> {
    take(fd, OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()))
}

/// Takes over the writing end `fd` and frees its number.
pub(crate) fn take_writer(fd: RawFd) -> io::Result<File> {
    take(fd, OpenOptions::new().write(true))
}

/// Opens the descriptor again, because that sets close-on-exec without `unsafe`. A process that inherited it would keep the
/// pipe open, and the reader would never see its end.
fn take(fd: RawFd, how: &OpenOptions) -> io::Result<File> {
    let file = how.open(format!("/proc/self/fd/{fd}"))?;
    close(fd)?;
    Ok(file)
}
