//! How does the supervisor know a command before it runs? This process, the exec shim, waits for the start and becomes it.
//!
//! The exec shim leads the command's process group, so the supervisor knows the group before the command runs. It asks the
//! kernel to kill it when the supervisor dies, reports `ready PID`, and waits for the order to start. If the command cannot
//! be executed, it reports `failed CODE WHY`.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getpid;

use crate::net::wait::{plain, wait};
use crate::supervise::launch::{take_reader, take_writer};

/// The exit codes of a shell for a command that is not found, and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
const FAILED: u8 = 1;

/// The hidden subcommand `exec-shim --orders-fd N --report-fd N -- PROGRAM [ARGUMENT]…`.
pub fn exec_shim_main(orders: RawFd, report: RawFd, program: &[String]) -> ExitCode {
    let Ok(mut report) = take_writer(report) else { return ExitCode::from(FAILED) };
    let (code, why) = match become_program(orders, &mut report, program) {
        Ok(failed) => failed,
        Err(error) => (FAILED, format!("the command could not be guarded: {}", plain(&error))),
    };
    // A write fails only if the supervisor has ended. Ignored.
    let _ = report.write_all(format!("failed {code} {why}\n").as_bytes());
    ExitCode::from(code)
}

/// Returns only if the command was not started: its exit code and the reason.
fn become_program(
    orders: RawFd,
    report: &mut impl Write,
    program: &[String],
) -> io::Result<(u8, String)> {
    let mut orders = take_reader(orders)?;
    // Before `ready`, because the supervisor orders the start after it. So the command never runs without the kernel's
    // promise to kill it with the supervisor.
    set_pdeathsig(Signal::SIGKILL)?;
    report.write_all(format!("ready {}\n", getpid()).as_bytes())?;
    let said = loop {
        wait(&mut [PollFd::new(orders.as_fd(), PollFlags::POLLIN)], Duration::MAX)?;
        match orders.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            said => break said?,
        }
    };
    let [name, arguments @ ..] = program else { return Ok((FAILED, "no program given".into())) };
    if said == 0 {
        return Ok((FAILED, format!("{name} was not started: it was called off, or too late")));
    }
    let error = Command::new(name).args(arguments).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    Ok((code, format!("cannot run {name}: {}", plain(&error))))
}
