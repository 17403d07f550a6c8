//! How is an endpoint polled once, under a permit? The trait [`Poller`], and the built-in poller for HTTP and TCP.
//!
//! No retries and no redirects: each would be another start of a poll (R2). A poller confirms its
//! permit right before the first byte, and arms the permit's abort switch before it can block.

use std::time::Duration;

use crate::lease::permit::{PollPermit, Revoked};
use crate::model::{Address, Sample, Session};
use crate::net::shortage::{Descriptors, NETWORK_POLL};
use crate::polling::{http, targets, tcp};

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

/// The built-in poller: HTTP(S) GET or TCP connect, as the session's address says. `--poll-command` uses `CommandPoller` in
/// its place (`cli/run.rs`).
#[derive(Debug)]
pub struct NetPoller {
    http: http::HttpGet,
    tcp: tcp::TcpConnect,
}

impl NetPoller {
    /// Polls only what `targets` allows, and keeps at most `body_max` bytes of an answer.
    pub fn new(targets: targets::Targets, body_max: usize) -> Self {
        Self {
            http: http::HttpGet::new(targets.clone(), body_max),
            tcp: tcp::TcpConnect::new(targets),
        }
    }
}

impl Poller for NetPoller {
    fn poll(
        &self,
        session: &Session,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked> {
        let _descriptors =
            Descriptors::take(NETWORK_POLL).map_err(|why| permit.defer_for_room(why))?;
        match &session.address {
            Address::Http(url) => self.http.poll(url, permit, timeout),
            Address::Tcp(authority) => self.tcp.poll(authority, permit, timeout),
        }
    }
}
