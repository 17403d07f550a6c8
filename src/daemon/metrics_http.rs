//! Shows the numbers of this process to whoever asks for `GET /metrics` on this host, one after the other.
//!
//! No more of HTTP than that. A client has a second for everything, and a few kilobytes to say what it
//! wants; whatever it does instead costs the others that second, and the polls nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::daemon::exposition::Exposition;
use crate::daemon::metrics_file::Trouble;
use crate::daemon::thread::{StopSource, Thread, stop};
use crate::model::InstanceId;

const PATIENCE: Duration = Duration::from_secs(1);
const REQUEST_MAX: usize = 4 * 1_024;
/// A port that is taken is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
/// So often it is seen whether there is an end.
const TICK_MS: u16 = 200;

/// The thread `metrics-http`, as long as this is kept.
pub struct MetricsHttp(Option<StopSource>, Option<Thread>);

impl MetricsHttp {
    /// Listens where `config` says, if it does.
    pub fn of(
        config: &Config,
        me: &InstanceId,
        exposition: &Arc<Exposition>,
    ) -> io::Result<Option<Self>> {
        let Some(address) = config.metrics_listen else { return Ok(None) };
        let (source, when) = stop();
        let mut trouble = Trouble::of(me, format!("cannot listen on {address}"));
        let exposition = Arc::clone(exposition);
        let mut listener = None;
        let thread = Thread::steps("metrics-http", when, move || {
            if listener.is_none() {
                let bound = bind(address);
                trouble.tell(bound.as_ref().err());
                listener = bound.ok();
            }
            let Some(listener) = &listener else { return RETRY };
            if let Some(stream) = next(listener) {
                // A client that does not behave is its own affair.
                let _ = serve(stream, &exposition);
            }
            Duration::ZERO
        })?;
        Ok(Some(Self(Some(source), Some(thread))))
    }
}

impl Drop for MetricsHttp {
    fn drop(&mut self) {
        drop(self.0.take());
        drop(self.1.take());
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Who comes within a tick.
fn next(listener: &TcpListener) -> Option<TcpStream> {
    let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let _ = poll(&mut ready, PollTimeout::from(TICK_MS));
    Some(listener.accept().ok()?.0)
}

fn serve(mut stream: TcpStream, exposition: &Exposition) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let deadline = BootClock.now() + PATIENCE;
    let request = read_request(&mut stream, deadline)?;
    let line = request.split(|it| *it == b'\r').next().unwrap_or_default();
    let mut words = line.split(|it| *it == b' ');
    let (status, text) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics")) => ("200 OK", exposition.text()),
        (Some(b"GET"), _) => ("404 Not Found", "only /metrics is here\n".into()),
        _ => ("405 Method Not Allowed", "only GET /metrics is here\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let mut rest = &[head.as_bytes(), text.as_bytes()].concat()[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left_until(deadline)?))?;
        let n = stream.write(rest)?;
        rest = &rest[n..];
    }
    Ok(())
}

/// Up to the empty line that ends it.
fn read_request(stream: &mut TcpStream, deadline: Moment) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    while !request.windows(4).any(|it| it == b"\r\n\r\n") {
        stream.set_read_timeout(Some(left_until(deadline)?))?;
        let n = stream.read(&mut part)?;
        if n == 0 || request.len() + n > REQUEST_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        request.extend_from_slice(&part[..n]);
    }
    Ok(request)
}

fn left_until(deadline: Moment) -> io::Result<Duration> {
    let left = deadline.since(BootClock.now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
