//! Why did a request to the store fail, and how often did each kind of failure happen?

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a request failed, and whether sending it again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Not reached, or no answer in time: try again.
    Unreachable,
    /// It answered with a refusal that may pass (loading, read-only, out of memory).
    Refused,
    /// It answered that this can never work as configured: password, permission, timing, eviction.
    Misconfigured,
}

/// Counts failed requests by `Fault`.
#[derive(Debug, Default)]
pub struct Failures([AtomicU64; 3]);

impl Failures {
    /// One more.
    pub fn count(&self, fault: Fault) {
        self.0[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// By the names of the faults.
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        let of = |fault: Fault| self.0[fault as usize].load(Ordering::Relaxed);
        [
            ("unreachable", of(Fault::Unreachable)),
            ("refused", of(Fault::Refused)),
            ("misconfigured", of(Fault::Misconfigured)),
        ]
    }
}

/// `op` of a request whose TTL is not the fleet's (R14). `is_other_timing` recognises it by this text, so no other
/// error may use it.
pub(crate) const JOIN_FLEET: &str = "join the fleet on";
/// The same for a role.
pub(crate) const STAND_FOR_ROLE: &str = "stand for the role on";

/// The store could not be asked, so nothing is known.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "__internals"), non_exhaustive)]
pub struct StoreError {
    /// What was tried, as a verb.
    pub op: &'static str,
    /// On what.
    pub target: String,
    /// Whether trying again can help.
    pub fault: Fault,
    /// What came back, and the way out where there is one.
    pub reason: String,
}

impl StoreError {
    /// R14: the store answered that the others agreed on another lease TTL. For an owner that is the end of its
    /// rights: the hold-off of the others is not reckoned by its TTL.
    pub fn is_other_timing(&self) -> bool {
        [JOIN_FLEET, STAND_FOR_ROLE].contains(&self.op)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.op, self.target, self.reason)
    }
}

impl std::error::Error for StoreError {}
