//! How is an endpoint polled once, under a permit? The trait [`Poller`]. `net_poller.rs` is the built-in poller.
//!
//! No retries and no redirects: each would be another start of a poll (R2). A poller confirms its
//! permit right before the first byte, and arms the permit's abort switch before it can block.

use std::time::Duration;

use crate::lease::permit::{PollPermit, Revoked};
use crate::model::{Sample, Session};

/// One way of polling. Yours is one method.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{PollPermit, Poller, Revoked, Sample, Session};
///
/// struct AlwaysFine;
///
/// impl Poller for AlwaysFine {
///     fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
///         permit.confirm()?; // right before the first effect that anybody else can see
///         let body = format!("fence {}", permit.tenure().fence).into_bytes();
///         Ok(Sample { ok: true, status: None, error: None, body, duration: Duration::ZERO })
///     }
/// }
/// ```
pub trait Poller: Send + Sync {
    /// Polls once, within `timeout`. `Err` when the permit ran out before the poll began or while it
    /// ran, and when this process lacked what the poll needs ([`PollPermit::defer`]); everything the
    /// endpoint does wrong is a [`Sample`] that is not `ok`.
    fn poll(
        &self,
        session: &Session,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked>;
}
