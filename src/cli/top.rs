//! stub
use crate::cli::task::StatusHow;
use leasehold::config::Config;
use std::process::ExitCode;
use std::time::Duration;
pub(crate) fn top(config: &Config, how: StatusHow, _refresh: Duration) -> ExitCode {
    crate::cli::status::status(config, how)
}
