//! How does the program poll an endpoint without `--poll-command`? By HTTP or TCP, as the address of the session says.

use std::path::PathBuf;
use std::time::Duration;

use crate::lease::permit::{PollPermit, Revoked};
use crate::model::{Address, Sample, Session};
use crate::net::shortage::{Descriptors, NETWORK_POLL};
use crate::polling::poller::Poller;
use crate::polling::{http, targets, tcp};

/// The built-in poller: HTTP(S) request or TCP connect, as the session's address says. `--poll-command` uses `CommandPoller` in
/// its place (`cli/run.rs`).
#[derive(Debug)]
pub struct NetPoller {
    http: http::HttpPoll,
    tcp: tcp::TcpConnect,
}

impl NetPoller {
    /// Polls only what `targets` allows, and keeps at most `body_max` bytes of an answer.
    pub fn new(targets: targets::Targets, body_max: usize) -> Self {
        Self {
            http: http::HttpPoll::new(targets.clone(), body_max),
            tcp: tcp::TcpConnect::new(targets),
        }
    }

    /// Believes whom `trust` says, and reads secrets for headers from `secrets_dir`.
    pub fn with_access(self, trust: http::Trust, secrets_dir: Option<PathBuf>) -> Self {
        Self { http: self.http.with_access(trust, secrets_dir), ..self }
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
            Address::Http(url) => self.http.poll(url, session.check(), permit, timeout),
            Address::Tcp(authority) => self.tcp.poll(authority, permit, timeout),
        }
    }
}
