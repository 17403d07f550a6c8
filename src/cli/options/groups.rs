//! Which commands share an option.

use crate::cli::options::NAMES;

pub(super) const RUN: &[&str] = &["run"];
/// Options of `run` that `doctor` checks.
pub(super) const CHECKED: &[&str] = &["run", "doctor"];
pub(super) const DEV: &[&str] = &["dev"];
pub(super) const RELEASE: &[&str] = &["release"];
pub(super) const AUDIT: &[&str] = &["audit"];
pub(super) const STATUS: &[&str] = &["status"];
pub(super) const KEPT: &[&str] = &["run", "lead", "agent", "release", "doctor"];
pub(super) const SHOWN: &[&str] = &["status", "top", "web"];
pub(super) const WEB: &[&str] = &["run", "web"];
pub(super) const SESSIONS: &[&str] = &[
    "run", "status", "top", "web", "plan", "get", "explain", "audit", "sessions", "drain",
    "undrain", "doctor", NAMES,
];
pub(super) const POLLS: &[&str] = &[
    "run", "agent", "release", "status", "top", "web", "plan", "get", "explain", "watch", "audit",
    "history", "sessions", "drain", "undrain", "doctor", NAMES,
];
/// Commands that stand for a role.
pub(super) const STAND: &[&str] = &["run", "lead", "once", "agent"];
pub(super) const WAITING: &[&str] = &["run", "lead", "once", "agent", "doctor"];
pub(super) const LEAD: &[&str] = &["run", "lead"];
/// Commands that stand for a role as long as they run.
pub(super) const ELECTING: &[&str] = &["run", "lead", "agent"];
pub(super) const LOGGING: &[&str] =
    &["run", "release", "lead", "once", "agent", "leaders", "resign"];
pub(super) const READ: &[&str] = &[
    "status", "top", "plan", "get", "explain", "watch", "audit", "history", "sessions", "leaders",
    "doctor",
];
/// Commands that stand for a role, and `doctor`, which checks their timings.
pub(super) const TIMED: &[&str] = &["run", "lead", "once", "agent", "doctor"];
pub(super) const ROLES: &[&str] = &[
    "run", "release", "status", "top", "web", "history", "lead", "once", "agent", "leaders",
    "resign", "doctor", NAMES,
];
pub(super) const ALL: &[&str] = &[
    "run", "dev", "release", "status", "top", "web", "plan", "get", "explain", "watch", "audit",
    "history", "sessions", "drain", "undrain", "lead", "once", "agent", "leaders", "resign",
    "doctor", NAMES,
];
