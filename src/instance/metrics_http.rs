//! Serves the metrics of this process at `GET /metrics` to clients on this host, one after the other.
//!
//! Only to clients that ask for this host by a name of its own: a page of a stranger whose name suddenly means
//! 127.0.0.1 (DNS rebinding) makes a browser ask here, but under the stranger's name.
//!
//! No more of HTTP than that. A client has a second for everything, and a few kilobytes to say what it
//! wants; whatever it does instead costs the others that second, and the polls nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::instance::exposition::Exposition;
use crate::instance::metrics_file::MetricsTrouble;
use crate::model::InstanceId;
use crate::thread::{StopSource, Thread, stop};

const PATIENCE: Duration = Duration::from_secs(1);
const REQUEST_MAX: usize = 4 * 1_024;
/// A port that is taken is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
/// How often the thread checks for a stop.
const TICK_MS: u16 = 200;
const TICK: Duration = Duration::from_millis(TICK_MS as u64);

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
        let mut trouble = MetricsTrouble::of(me, format!("cannot listen on {address}"));
        let exposition = Arc::clone(exposition);
        let hosts = Hosts::of(config, address);
        let mut listener = None;
        let thread = Thread::steps("metrics-http", when, move || {
            if listener.is_none() {
                let bound = bind(address);
                trouble.tell(bound.as_ref().err());
                listener = bound.ok();
            }
            let Some(listener) = &listener else { return RETRY };
            match next(listener) {
                // A client that does not behave is its own affair.
                Ok(stream) => drop(serve(stream, &exposition, &hosts)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => (),
                // Out of descriptors: the client that waits is still there, so asking again at once would never end.
                Err(_) => return TICK,
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

/// The next client within a tick.
fn next(listener: &TcpListener) -> io::Result<TcpStream> {
    let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let _ = poll(&mut ready, PollTimeout::from(TICK_MS));
    Ok(listener.accept()?.0)
}

/// The names under which this host may be asked, without ports, in lower case.
struct Hosts(Vec<String>);

impl Hosts {
    fn of(config: &Config, address: SocketAddr) -> Self {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(String::from).into();
        names.push(match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        names.push(config.host_name.clone());
        names.extend(nix::unistd::gethostname().ok().and_then(|it| it.into_string().ok()));
        names.extend(config.metrics_hosts.iter().cloned());
        Self(names.iter().filter_map(|it| plain_host(it)).collect())
    }

    /// What to say to a request with these lines behind its first, if it is not to be answered.
    fn refuse(&self, is_old: bool, lines: &[&[u8]]) -> Option<(&'static str, String)> {
        let fields = lines.iter().filter_map(|it| {
            let at = it.iter().position(|c| *c == b':')?;
            it[..at].eq_ignore_ascii_case(b"host").then(|| String::from_utf8_lossy(&it[at + 1..]))
        });
        let hosts: Vec<_> = fields.collect();
        match &hosts[..] {
            // HTTP/1.0 has no such header, and no browser speaks it.
            [] if is_old => None,
            [] => Some(("400 Bad Request", "HTTP/1.1 needs a Host header\n".into())),
            [host] if plain_host(host.trim()).is_some_and(|it| self.0.contains(&it)) => None,
            _ => {
                let text = "metrics are shown under this host's own names only; --metrics-hosts adds some\n";
                Some(("421 Misdirected Request", text.into()))
            }
        }
    }
}

/// A host without its port and the dot of its root, in lower case; `None` if it is not a host.
fn plain_host(host: &str) -> Option<String> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = |it: &str| it.bytes().all(|c| c.is_ascii_digit());
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_fine =
        !name.is_empty() && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    is_fine.then_some(name)
}

fn serve(mut stream: TcpStream, exposition: &Exposition, hosts: &Hosts) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let deadline = BootClock.now() + PATIENCE;
    let request = read_request(&mut stream, deadline)?;
    let lines: Vec<&[u8]> = request.split(|it| *it == b'\n').map(<[u8]>::trim_ascii_end).collect();
    let (line, fields) = lines.split_first().map_or((&[][..], &[][..]), |it| (*it.0, it.1));
    let mut words = line.split(|it| *it == b' ');
    let (status, text) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics")) => {
            let is_old = words.next().is_none_or(|it| it == b"HTTP/1.0");
            hosts.refuse(is_old, fields).unwrap_or_else(|| ("200 OK", exposition.text()))
        }
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
