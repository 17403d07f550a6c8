//! Which program is told of each change of a verdict, and how often is it tried?

use std::time::Duration;

/// What runs when a result of this instance changes a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "__internals"), non_exhaustive)]
pub struct OnChange {
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// How long one run may take.
    pub timeout: Duration,
    /// How often it is run again when it fails.
    pub retries: u32,
}

impl Default for OnChange {
    fn default() -> Self {
        Self { command: None, timeout: Duration::from_secs(10), retries: 3 }
    }
}
