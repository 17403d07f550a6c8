//! What changes for polling when ownership changes.

use std::sync::Arc;

use crate::model::{Session, Tenure};

/// What reconcile tells dispatch. A late message can delay a poll, never duplicate one.
#[derive(Clone, Debug)]
pub enum LeaseChange {
    /// Poll under this from now on.
    Gained {
        /// Which grant.
        tenure: Tenure,
        /// What to poll.
        session: Arc<Session>,
        /// When it was last polled, by the server's clock.
        polled_at_ms: Option<u64>,
    },
    /// A session's record changed.
    Session(Arc<Session>),
}
