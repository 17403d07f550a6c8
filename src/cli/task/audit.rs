//! What is `audit` to judge, and how is it to tell?

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::options::Draft;
use crate::cli::usage::UsageError;
use crate::config::Config;

/// What `--check` audits unless it is told.
const CHECKED_SPAN: Duration = Duration::from_secs(3_600);

/// What `audit` judges, and in which form it tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AuditHow {
    pub(crate) what: AuditWhat,
    pub(crate) output: AuditOutput,
}

/// Where observations come from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AuditWhat {
    /// From the live fleet, until a signal or for this long, and recorded in a file.
    Live { lasting: Option<Duration>, record: Option<PathBuf> },
    /// From what Redis remembers of this span.
    Span(Duration),
    /// From a recorded file.
    Replay(PathBuf),
}

/// In which form it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditOutput {
    Lines,
    Json,
    /// One line for a monitoring system.
    Check,
}

/// What `audit` is to do, and the settings it needs.
pub(super) fn audit(draft: Draft) -> Result<(Config, AuditHow), UsageError> {
    let Draft { config, json, check, watch_for: lasting, since, record, replay, .. } = draft;
    let together = |one, other| Err(UsageError::Together { one, other });
    let what = match (since, replay) {
        (Some(_), Some(_)) => return together("since", "replay"),
        (Some(_), _) if lasting.is_some() => return together("since", "for"),
        (Some(_), _) if record.is_some() => return together("since", "record"),
        (_, Some(_)) if lasting.is_some() => return together("replay", "for"),
        (_, Some(_)) if record.is_some() => return together("replay", "record"),
        (Some(span), None) => AuditWhat::Span(span),
        (None, Some(path)) => AuditWhat::Replay(path),
        // A check has to end.
        (None, None) if check && lasting.is_none() => match record {
            Some(_) => return together("check", "record without --for"),
            None => AuditWhat::Span(CHECKED_SPAN),
        },
        (None, None) => AuditWhat::Live { lasting, record },
    };
    let output = match (json, check) {
        (true, true) => return together("check", "json"),
        (true, false) => AuditOutput::Json,
        (false, true) => AuditOutput::Check,
        (false, false) => AuditOutput::Lines,
    };
    Ok((config.checked_reading()?, AuditHow { what, output }))
}
