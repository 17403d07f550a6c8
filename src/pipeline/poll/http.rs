//! What does this URL answer to one GET?
//!
//! ureq speaks HTTP and TLS; the way there is ours. The connection is made ready first (lookup,
//! connect, handshake), then the permit is asked, and only then ureq is given that one connection. It
//! could not open a second one if it wanted to.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use parking_lot::Mutex;
use ureq::config::Config;
use ureq::http::{Request, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Body, Error};

use crate::clock::{BootClock, Clock, Moment};
use crate::model::Sample;
use crate::pipeline::lease::{PollPermit, Revoked};
use crate::pipeline::poll::guard::Targets;
use crate::pipeline::poll::tcp::{ConnectError, connect_any};
use crate::pipeline::poll::wait::plain;

const HEADERS_MAX_BYTES: usize = 64 * 1024;
/// Holds the largest headers accepted, and the longest URL that the http crate does.
const BUFFER_BYTES: usize = HEADERS_MAX_BYTES + 16 * 1024;
const USER_AGENT: &str = concat!("leasehold/", env!("CARGO_PKG_VERSION"));

/// GETs a URL over a connection of its own.
#[derive(Debug)]
pub struct HttpPoller {
    targets: Targets,
    body_max: usize,
    config: Config,
    #[cfg(feature = "https")]
    tls: ureq::unversioned::transport::RustlsConnector,
}

/// Why there is no sample of an answer.
enum Failure {
    Revoked,
    Error(String),
}

impl From<Revoked> for Failure {
    fn from(_: Revoked) -> Self {
        Self::Revoked
    }
}

impl HttpPoller {
    /// Polls only what `targets` allows, and keeps at most `body_max` bytes of an answer.
    pub fn new(targets: Targets, body_max: usize) -> Self {
        let config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .max_idle_connections(0)
            .max_response_header_size(HEADERS_MAX_BYTES)
            .input_buffer_size(BUFFER_BYTES)
            .output_buffer_size(BUFFER_BYTES)
            .user_agent(USER_AGENT)
            .build();
        Self {
            targets,
            body_max,
            config,
            #[cfg(feature = "https")]
            tls: Default::default(),
        }
    }

    /// Polls `url` once; everything from the lookup to the last byte falls within `timeout`.
    pub fn poll(&self, url: &str, permit: &PollPermit, timeout: Duration) -> Result<Sample, Revoked> {
        let mut begun = BootClock.now();
        let deadline = begun + timeout;
        let answer = self.connection(url, permit, timeout, deadline).and_then(|connection| {
            // R2: from here to the first byte nothing waits.
            permit.confirm()?;
            begun = BootClock.now();
            self.exchange(url, permit, connection).map_err(|it| Failure::Error(sentence(&it)))
        });
        let answer = answer.map(|response| {
            let status = response.status();
            let (body, cut) = self.first_bytes(response.into_body());
            let error = match cut {
                _ if !status.is_success() => Some(format!("HTTP {}", status.as_u16())),
                Some(_) if BootClock.now() >= deadline => {
                    Some(format!("the answer did not end within {timeout:?}"))
                }
                cut => cut,
            };
            let status = Some(i32::from(status.as_u16()));
            (status, error, body)
        });
        permit.abort().disarm();
        if permit.abort().is_fired() {
            return Err(Revoked);
        }
        let now = BootClock.now();
        let duration = now.since(begun);
        match answer {
            Ok((status, error, body)) => {
                Ok(Sample { ok: error.is_none(), status, error, body, duration })
            }
            Err(Failure::Revoked) => Err(Revoked),
            Err(Failure::Error(_)) if now >= deadline => {
                Ok(Sample::failed(format!("no answer within {timeout:?}"), duration))
            }
            Err(Failure::Error(error)) => Ok(Sample::failed(error, duration)),
        }
    }

    /// Everything that takes long: lookup, connect, TLS.
    fn connection(
        &self,
        url: &str,
        permit: &PollPermit,
        timeout: Duration,
        deadline: Moment,
    ) -> Result<Box<dyn Transport>, Failure> {
        let failed = |it: &dyn std::fmt::Display| Failure::Error(it.to_string());
        let uri: Uri = url.parse().map_err(|it| failed(&format!("not a valid URL: {it}")))?;
        let is_tls = uri.scheme_str() == Some("https");
        let authority = uri.authority().ok_or_else(|| failed(&"not a valid URL: it has no host"))?;
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let authority = format!("{}:{port}", authority.host());
        let abort = permit.abort();
        let found = self.targets.resolve(&authority, timeout, abort).map_err(|it| failed(&it))?;
        let stream = match connect_any(&found, deadline, abort, || true) {
            Ok(stream) => stream,
            Err(ConnectError::Revoked) => return Err(Failure::Revoked),
            Err(error) => return Err(Failure::Error(error.sentence(timeout))),
        };
        let same = stream.try_clone().map_err(|it| failed(&plain(&it)))?;
        abort.arm(move || drop(same.shutdown(Shutdown::Both)));
        let buffers = LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES);
        let socket = SocketTransport { stream, deadline, buffers };
        if is_tls {
            let no_tls = |it: Error| Failure::Error(format!("no TLS with {authority}: {}", sentence(&it)));
            return self.handshake(&uri, socket).map_err(no_tls);
        }
        Ok(Box::new(socket))
    }

    #[cfg(feature = "https")]
    fn handshake(&self, uri: &Uri, socket: SocketTransport) -> Result<Box<dyn Transport>, Error> {
        use std::sync::Arc;

        use ureq::unversioned::transport::time::Instant;

        let details = ConnectionDetails {
            uri,
            addrs: Given.empty(),
            config: &self.config,
            request_level: false,
            resolver: &Given,
            now: Instant::now(),
            timeout: NextTimeout::default(),
            current_time: Arc::new(Instant::now),
            run_connector: Arc::new(|_: &ConnectionDetails<'_>| Err(Error::ConnectionFailed)),
            register_shutdown: Arc::new(|_| Ok(())),
        };
        match self.tls.connect(&details, Some(socket))? {
            Some(transport) => Ok(Box::new(transport)),
            None => Err(Error::ConnectionFailed),
        }
    }

    #[cfg(not(feature = "https"))]
    fn handshake(&self, _: &Uri, _: SocketTransport) -> Result<Box<dyn Transport>, Error> {
        Err(Error::Tls("this program was built without the feature https"))
    }

    fn exchange(
        &self,
        url: &str,
        permit: &PollPermit,
        connection: Box<dyn Transport>,
    ) -> Result<ureq::http::Response<Body>, Error> {
        let request = Request::get(url)
            .header("Connection", "close")
            .header("X-Leasehold-Instance", permit.instance().as_str())
            .header("X-Leasehold-Fence", permit.tenure().fence.0)
            .body(())?;
        let given = OneConnection(Mutex::new(Some(connection)));
        Agent::with_parts(self.config.clone(), given, Given).run(request)
    }

    /// At most `body_max` bytes, and why the body broke off before that, if it did.
    fn first_bytes(&self, body: Body) -> (Vec<u8>, Option<String>) {
        let mut bytes = Vec::new();
        let limit = u64::try_from(self.body_max).unwrap_or(u64::MAX);
        let end = body.into_reader().take(limit).read_to_end(&mut bytes);
        (bytes, end.err().map(|it| sentence(&Error::from(it))))
    }
}

/// What went wrong, in our words where ureq's are for programmers.
fn sentence(error: &Error) -> String {
    match error {
        Error::Io(it) if it.kind() == io::ErrorKind::UnexpectedEof => CLOSED.into(),
        Error::Io(it) if it.kind() == io::ErrorKind::ConnectionReset => CLOSED.into(),
        Error::Io(it) => plain(it),
        Error::Protocol(it) => format!("not a valid HTTP answer: {it}"),
        Error::LargeResponseHeader(..) => {
            format!("the headers of the answer are larger than {HEADERS_MAX_BYTES} bytes")
        }
        it => it.to_string(),
    }
}

const CLOSED: &str = "the connection was closed before the answer was complete";

/// A socket whose every read and write ends at one deadline, however slowly the other side drips.
#[derive(Debug)]
struct SocketTransport {
    stream: TcpStream,
    deadline: Moment,
    buffers: LazyBuffers,
}

impl SocketTransport {
    fn left(&self, timeout: NextTimeout) -> Result<Option<Duration>, Error> {
        match self.deadline.since(BootClock.now()) {
            Duration::ZERO => Err(Error::Timeout(timeout.reason)),
            left => Ok(Some(left)),
        }
    }
}

fn is_no_progress(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

impl Transport for SocketTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let mut sent = 0;
        while sent < amount {
            self.stream.set_write_timeout(self.left(timeout)?)?;
            match self.stream.write(&self.buffers.output()[sent..amount]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(more) => sent += more,
                Err(error) if is_no_progress(&error) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        loop {
            self.stream.set_read_timeout(self.left(timeout)?)?;
            match self.stream.read(self.buffers.input_append_buf()) {
                Ok(amount) => {
                    self.buffers.input_appended(amount);
                    return Ok(amount > 0);
                }
                Err(error) if is_no_progress(&error) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Asked only of idle connections in a pool, which there are none of.
    fn is_open(&mut self) -> bool {
        false
    }
}

/// Hands out the connection that was made ready, once.
#[derive(Debug)]
struct OneConnection(Mutex<Option<Box<dyn Transport>>>);

impl Connector<()> for OneConnection {
    type Out = Box<dyn Transport>;

    fn connect(&self, _: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Self::Out>, Error> {
        Ok(self.0.lock().take())
    }
}

/// No second lookup: the connection is there already.
#[derive(Debug)]
struct Given;

impl Resolver for Given {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        Ok(self.empty())
    }
}
