//! `leasehold run`: one instance, until SIGTERM or SIGINT.

use std::process::ExitCode;

use leasehold::config::Config;

use crate::cli::{FAILED, fail, logging};

/// Runs an instance to its end.
pub(crate) fn run(config: Config) -> ExitCode {
    logging::start(config.log_level);
    fail(FAILED, &"run is not wired yet")
}
