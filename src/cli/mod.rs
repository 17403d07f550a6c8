//! How do the commands talk to the person who typed them? Results on stdout, one sentence on stderr.
//!
//! `print!` and its kin panic on a closed pipe or a full disk; nothing here does.

pub(crate) mod args;
mod help;
pub(crate) mod lead;
pub(crate) mod leaders;
pub(crate) mod logging;
pub(crate) mod once;
mod options;
pub(crate) mod release;
pub(crate) mod run;
mod state;
pub(crate) mod status;
mod table;
mod usage;
mod wrap;

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// It failed.
pub(crate) const FAILED: u8 = 1;
/// The command line or a setting is wrong.
pub(crate) const USAGE: u8 = 2;

/// Says why on stderr, and hands `code` on.
pub(crate) fn fail(code: u8, why: &dyn fmt::Display) -> ExitCode {
    // One write: a line of another process must not get in between.
    let _ = io::stderr().write_all(format!("leasehold: {why}\n").as_bytes());
    ExitCode::from(code)
}

/// Puts `text` on stdout.
pub(crate) fn say(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    ExitCode::SUCCESS
}
