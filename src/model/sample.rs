//! What a poll returned.

use std::time::Duration;

/// The outcome of one poll, good or bad. Becomes the hash `poll:result:<endpoint>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// A 2xx answer, an accepted connection, an exit code of zero.
    pub ok: bool,
    /// HTTP status or exit code, where there was one.
    pub status: Option<i32>,
    /// Why it failed, in a sentence; `None` when it did not.
    pub error: Option<String>,
    /// The first bytes of what the endpoint said, as they came.
    pub body: Vec<u8>,
    /// From the first byte sent to the last byte read.
    pub duration: Duration,
}

impl Sample {
    /// A poll that failed before the endpoint could answer.
    pub fn failed(error: impl Into<String>, duration: Duration) -> Self {
        Self { ok: false, status: None, error: Some(error.into()), body: Vec::new(), duration }
    }
}
