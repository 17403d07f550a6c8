//! What does reconcile tell dispatch? A lease was gained, or a session changed. A lost lease needs no message: dispatch asks
//! the table before every poll.

use std::sync::Arc;

use crate::model::{Session, Tenure};

/// A message from reconcile to dispatch. A late message can delay a poll, never duplicate one.
#[derive(Clone, Debug)]
pub enum LeaseChange {
    /// This instance acquired a lease: poll under it from now on.
    Gained {
        /// The grant.
        tenure: Tenure,
        /// What to poll.
        session: Arc<Session>,
        /// When it was last polled, by the server's clock.
        polled_at_ms: Option<u64>,
    },
    /// The stored session of an owned endpoint changed.
    Session(Arc<Session>),
}
