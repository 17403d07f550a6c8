//! What is `status` to show, and how?

use std::time::Duration;

use crate::cli::options::Draft;
use crate::cli::task::STALE_AFTER;
use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::inspect::status::State;

/// How `status` and `top` show the fleet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StatusHow {
    pub(crate) output: Output,
    pub(crate) all: bool,
    pub(crate) stale_after: Duration,
    pub(crate) which: Which,
    pub(crate) check: Option<Check>,
}

/// Which endpoints are shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Which {
    /// Those in one of these states; empty for every state.
    pub(crate) states: Vec<State>,
    /// Those of this instance, or of every instance of this host.
    pub(crate) owner: Option<String>,
}

impl Which {
    /// Whether some endpoints may be left out.
    pub(crate) fn is_narrow(&self) -> bool {
        !self.states.is_empty() || self.owner.is_some()
    }
}

/// In which form endpoints are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Output {
    #[default]
    Table,
    Wide,
    Names,
    Json,
}

/// What a monitoring system is told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Fleet,
    FleetAndTargets,
}

/// What `status` or `top` is to show, and the settings it needs.
pub(super) fn status(draft: Draft) -> Result<(Config, StatusHow), UsageError> {
    let Draft { config, json, all, stale_after, output, which, check, fleet_only, .. } = draft;
    let together = |one, other| Err(UsageError::Together { one, other });
    match (json, output) {
        (true, Some(_)) => return together("json", "output"),
        _ if check && (json || output.is_some()) => return together("check", "output"),
        _ if check && which.is_narrow() => return together("check", "state and --owner"),
        _ if fleet_only && !check => return Err(UsageError::FleetOnly),
        _ => (),
    }
    let output = if json { Output::Json } else { output.unwrap_or_default() };
    let check = match (check, fleet_only) {
        (false, _) => None,
        (true, true) => Some(Check::Fleet),
        (true, false) => Some(Check::FleetAndTargets),
    };
    let stale_after = stale_after.unwrap_or(STALE_AFTER);
    Ok((config.checked_reading()?, StatusHow { output, all, stale_after, which, check }))
}
