//! The program: arguments become a command, a command becomes an exit code.

mod cli;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use leasehold::supervise::exec_shim::ward_main;
use leasehold::supervise::poll_supervisor::guardian_main;
use leasehold::supervise::supervisor::warden_main;

use crate::cli::args::Command;
use crate::cli::reload::parse_with_settings;

fn main() -> ExitCode {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    let command = parse_with_settings(&args, &|name| env::var_os(name));
    let command = command.and_then(Command::with_files_checked);
    match command {
        Ok(Command::Task(config, task)) => cli::perform(&config, task),
        Ok(Command::Guardian { program, grace, soft_files }) => {
            guardian_main(&program, grace, soft_files)
        }
        Ok(Command::Warden { program, grace, orders, report }) => {
            warden_main(orders, report, &program, grace)
        }
        Ok(Command::Ward { program, orders, report }) => ward_main(orders, report, &program),
        Ok(Command::Help(text)) => cli::say(&text),
        Ok(Command::Version) => cli::say(concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(error) => cli::fail(cli::USAGE, &error),
    }
}
