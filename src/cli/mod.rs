//! The command line: arguments become a command, and the command becomes an exit code. Commands write results to stdout, and
//! one sentence about a failure to stderr.
//!
//! `print!` and its kin panic on a closed pipe or a full disk; nothing here does.

mod agent;
mod args;
mod audit;
mod completions;
mod dev;
mod doctor;
mod config_warnings;
mod drain;
mod explain;
mod follow;
mod get;
mod help;
mod history;
mod import;
mod lead;
mod leaders;
mod limits;
mod logging;
mod man;
mod names;
mod once;
mod options;
mod plan;
mod release;
mod release_after_death;
mod reload;
mod run;
mod predecessors;
mod service_file;
mod runs;
mod sessions;
mod settings;
mod status;
mod table;
mod task;
mod top;
mod usage;
mod watch;
mod supervised;
mod web;

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use crate::cli::args::Command;
use crate::cli::options::NAMES;
use crate::cli::reload::parse_with_settings;
use crate::cli::task::{Instance, Task};
use crate::config::{CheckedConfig, Config};
use crate::inspect::doctor::lacking;
pub(crate) use crate::inspect::{short_names, utc};
use crate::store::admin::acl::Purpose;
use crate::supervise::exec_shim::exec_shim_main;
use crate::supervise::poll_supervisor::poll_supervisor_main;
use crate::supervise::supervisor::supervisor_main;

/// The settings of this command, and what its Redis user is for: a denial is explained with both.
static ASKED_AS: OnceLock<(Config, Purpose)> = OnceLock::new();

/// The program: its arguments become a command, and the command becomes an exit code.
pub fn main() -> ExitCode {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    let command = parse_with_settings(&args, &|name| env::var_os(name));
    match command.and_then(Command::with_files_checked) {
        Ok(Command::Instance(config, instance)) => join(&config, instance),
        Ok(Command::Task(config, task)) => perform(&config, task),
        Ok(Command::Connect(socket)) => agent::connect(&socket),
        Ok(Command::Dev(settings)) => dev::dev(&settings),
        Ok(Command::PollSupervisor { program, grace, soft_files }) => {
            poll_supervisor_main(&program, grace, soft_files)
        }
        Ok(Command::Supervisor { program, grace, orders, report }) => {
            let death = supervisor_main(orders, report, &program, grace);
            death.iter().for_each(release_after_death::perform);
            ExitCode::SUCCESS
        }
        Ok(Command::ExecShim { program, orders, report }) => {
            exec_shim_main(orders, report, &program)
        }
        Ok(Command::Help(text)) => say(&text),
        Ok(Command::Version) => say(concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n")),
        // A monitoring system must not take a mistake in a setting for an outage.
        Err(error) if is_check(&args) => status::unknown(&error.to_string()),
        // A user who presses the tab key wants names or nothing.
        Err(_) if args.first().is_some_and(|it| it == NAMES) => ExitCode::from(USAGE),
        Err(error) => fail(USAGE, &error),
    }
}

/// Whether this command line asks on behalf of a monitoring system.
fn is_check(args: &[OsString]) -> bool {
    args.first().is_some_and(|it| it == "status" || it == "audit")
        && args.iter().any(|it| it == "--check")
}

/// Keeps what an error of this command is explained with.
fn note(config: &Config, purpose: Purpose) {
    let _ = ASKED_AS.set((config.clone(), purpose));
}

fn join(config: &CheckedConfig, instance: Instance) -> ExitCode {
    note(config, instance.purpose());
    match instance {
        Instance::Run { warning } => run::run(config, warning),
        Instance::Lead(wrap) => lead::lead(config, &wrap),
        Instance::Once { wrap, how } => once::once(config, &wrap, how),
        Instance::Agent(how) => agent::agent(config, &how),
    }
}

fn perform(config: &Config, task: Task) -> ExitCode {
    note(config, task.purpose());
    service_file::tell(config, &task);
    match task {
        Task::Status(how) => status::status(config, &how),
        Task::Release(what) => release::release(config, what),
        Task::Sessions { verb, json } => sessions::sessions(config, verb, json),
        Task::Drain(drain) => drain::drain(config, &drain),
        Task::Plan { join, leave, json } => plan::plan(config, join, &leave, json),
        Task::Get { endpoint, body, json } => get::get(config, &endpoint, body, json),
        Task::Explain { endpoint, json } => explain::explain(config, &endpoint, json),
        Task::Top { how, refresh } => top::top(config, how, refresh),
        Task::Web(how) => web::web(config, how.stale_after),
        Task::Watch { endpoint, json } => watch::watch(config, endpoint.as_ref(), json),
        Task::Audit(how) => audit::audit(config, &how),
        Task::History { role: Some(role), limit, json, .. } => {
            history::runs(config, &role, limit, json)
        }
        Task::History { endpoint, limit, json, .. } => {
            history::history(config, endpoint.as_ref(), limit, json)
        }
        Task::Doctor { purpose, watch, json } => doctor::doctor(config, purpose, watch, json),
        Task::Names { of, beginning } => names::names(config, &of, &beginning),
        Task::Leaders { json } => leaders::leaders(config, json),
        Task::Resign(role) => leaders::resign(config, &role),
    }
}

/// It failed.
pub(crate) const FAILED: u8 = 1;
/// The command line or a setting is wrong.
pub(crate) const USAGE: u8 = 2;

/// A denied right, with the rule that has it and what the user lacks of that; any other sentence as it is.
pub(crate) fn explained(why: String) -> String {
    let pointed = ASKED_AS.get().and_then(|(config, purpose)| {
        let pointed = purpose.pointed(&why)?;
        Some(pointed + &lacking(config, *purpose))
    });
    pointed.unwrap_or(why)
}

/// Says why on stderr, and hands `code` on.
pub(crate) fn fail(code: u8, why: &dyn fmt::Display) -> ExitCode {
    // One write: a line of another process must not get in between.
    let priority = if logging::is_journal() { "<3>" } else { "" };
    let why = explained(why.to_string());
    let hint =
        if why.contains("cannot connect to ") { service_file::hint() } else { String::new() };
    let _ = io::stderr().write_all(format!("{priority}leasehold: {why}{hint}\n").as_bytes());
    ExitCode::from(code)
}

/// Warns on stderr about a probable mistake; the command went ahead all the same.
pub(crate) fn warn(what: &str) {
    let priority = if logging::is_journal() { "<4>" } else { "" };
    let _ = io::stderr().write_all(format!("{priority}leasehold: {what}\n").as_bytes());
}

/// Puts `text` on stdout.
pub(crate) fn say(text: &str) -> ExitCode {
    say_bytes(text.as_bytes())
}

/// Puts these bytes on stdout as they are.
pub(crate) fn say_bytes(bytes: &[u8]) -> ExitCode {
    let mut stdout = io::stdout().lock();
    let said = stdout.write_all(bytes).and_then(|()| stdout.flush());
    said.map_or_else(|error| unheard(&error), |()| ExitCode::SUCCESS)
}

/// What was to be on stdout could not be put there: a reader that closed a pipe has read enough, and a disk that is
/// full has not kept it.
pub(crate) fn unheard(error: &io::Error) -> ExitCode {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return ExitCode::SUCCESS;
    }
    fail(
        FAILED,
        &format!("cannot write to stdout: {error}; what was done is done, but it is not told"),
    )
}
