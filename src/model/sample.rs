//! What did a poll return? Plain values.

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

/// What a command wrote on stderr follows this in [`Sample::error`].
pub(crate) const STDERR: &str = "; stderr: ";

pub(super) fn without_stderr(error: &str) -> &str {
    error.split_once(STDERR).map_or(error, |it| it.0)
}

impl Sample {
    /// [`Self::error`] without what a command wrote on stderr, which is as private as a body: for the log.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.error.as_deref().map(without_stderr)
    }

    /// A poll that failed before the endpoint could answer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::Sample;
    ///
    /// let sample = Sample::failed("connection refused", Duration::from_millis(3));
    /// assert!(!sample.ok && sample.status.is_none());
    /// ```
    pub fn failed(error: impl Into<String>, duration: Duration) -> Self {
        Self { ok: false, status: None, error: Some(error.into()), body: Vec::new(), duration }
    }
}
