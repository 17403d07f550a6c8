//! One connection to Redis, with a deadline around every whole exchange.
//!
//! The commands, the codec and the value types are redis-rs's; the socket is ours, because a redis-rs
//! connection bounds each `read(2)` and not the exchange: a server that drips a byte now and then
//! holds it for ever, and a stalled pipeline for N times its timeout. After any I/O error the wire is
//! dropped by its user, never reused: a late reply must not answer the next question.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crossbeam_channel::bounded;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, ConnectionLike, Parser, RedisResult, Value};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::clock::{BootClock, Clock, Moment};

pub(crate) struct Wire {
    stream: Stream,
    parser: Parser,
    deadline: Moment,
    db: i64,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Wire {
    /// Connects, authenticates and selects the database, all before `deadline`.
    pub(crate) fn connect(info: &ConnectionInfo, deadline: Moment) -> RedisResult<Self> {
        let stream = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Stream::Tcp(dial(host, *port, deadline)?),
            ConnectionAddr::Unix(path) => Stream::Unix(dial_unix(path, deadline)?),
            _ => return Err(io::Error::other("this build does not speak TLS to Redis").into()),
        };
        let settings = info.redis_settings();
        let mut wire = Self { stream, parser: Parser::new(), deadline, db: settings.db() };
        if let Some(password) = settings.password() {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = settings.username() {
                auth.arg(user);
            }
            auth.arg(password).exec(&mut wire)?;
        }
        if settings.db() != 0 {
            redis::cmd("SELECT").arg(settings.db()).exec(&mut wire)?;
        }
        Ok(wire)
    }

    /// Everything until the next call of this must be over by `deadline`.
    pub(crate) fn set_deadline(&mut self, deadline: Moment) {
        self.deadline = deadline;
    }

    /// Itself while nothing waits to be read: the server has not hung up, and owes us no reply.
    pub(crate) fn if_quiet(mut self) -> Option<Self> {
        // A surplus reply may have been read along with the last one.
        let mut read = std::mem::replace(&mut self.parser, Parser::new());
        if read.parse_value(io::empty()).is_ok() {
            return None;
        }
        let mut byte = [0];
        let waiting =
            self.stream.nonblocking(true).and_then(|()| self.stream.get().read(&mut byte));
        let quiet = matches!(&waiting, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        (quiet && self.stream.nonblocking(false).is_ok()).then_some(self)
    }

    /// Sends without waiting for a reply (for subscriptions).
    pub(crate) fn send(&mut self, cmd: &Cmd) -> RedisResult<()> {
        self.write(&cmd.get_packed_command())
    }

    /// The next value from the server.
    pub(crate) fn receive(&mut self) -> RedisResult<Value> {
        let mut reader = Timed { stream: &mut self.stream, deadline: self.deadline };
        self.parser.parse_value(&mut reader)
    }

    fn write(&mut self, bytes: &[u8]) -> RedisResult<()> {
        Timed { stream: &mut self.stream, deadline: self.deadline }.write_all(bytes)?;
        Ok(())
    }
}

impl ConnectionLike for Wire {
    fn req_packed_command(&mut self, cmd: &[u8]) -> RedisResult<Value> {
        self.write(cmd)?;
        self.receive()?.extract_error()
    }

    fn req_packed_commands(
        &mut self,
        cmd: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.write(cmd)?;
        let mut values = Vec::with_capacity(count);
        for index in 0..offset + count {
            let value = self.receive()?;
            if index >= offset {
                values.push(value);
            }
        }
        Ok(values)
    }

    fn get_db(&self) -> i64 {
        self.db
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        true // whoever sees an error drops the wire
    }
}

impl Stream {
    fn nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Tcp(it) => it.set_nonblocking(on),
            Self::Unix(it) => it.set_nonblocking(on),
        }
    }

    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout);
        match self {
            Self::Tcp(it) => it.set_read_timeout(timeout).and(it.set_write_timeout(timeout)),
            Self::Unix(it) => it.set_read_timeout(timeout).and(it.set_write_timeout(timeout)),
        }
    }

    fn get(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Tcp(it) => it,
            Self::Unix(it) => it,
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Arms the socket's timeout anew before each call with what is left of the whole.
struct Timed<'a> {
    stream: &'a mut Stream,
    deadline: Moment,
}

impl Timed<'_> {
    fn arm(&mut self) -> io::Result<&mut dyn ReadWrite> {
        self.stream.set_timeouts(left_until(self.deadline)?)?;
        Ok(self.stream.get())
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.arm()?.read(buffer) {
                // With a timeout set the kernel restarts no read that a signal or a freeze broke off.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                other => return other.map_err(timed_out),
            }
        }
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.arm()?.write(buffer).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => no_answer(),
        _ => error,
    }
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

fn left_until(deadline: Moment) -> io::Result<Duration> {
    match deadline.since(BootClock.now()) {
        Duration::ZERO => Err(no_answer()),
        left => Ok(left),
    }
}

fn dial(host: &str, port: u16, deadline: Moment) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in look_up(host, port, deadline)? {
        match TcpStream::connect_timeout(&address, left_until(deadline)?) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A socket whose backlog is full would keep a plain connect waiting without end.
fn dial_unix(path: &Path, deadline: Moment) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.connect_timeout(&SockAddr::unix(path)?, left_until(deadline)?)?;
    Ok(socket.into())
}

/// A name lookup cannot be given a deadline, so it is waited for with one.
fn look_up(host: &str, port: u16, deadline: Moment) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (found, answers) = bounded(1);
    let name = (host.to_owned(), port);
    let wait = left_until(deadline)?;
    std::thread::Builder::new().name("lookup".into()).spawn(move || {
        let _ = found.send(name.to_socket_addrs().map(Iterator::collect));
    })?;
    answers.recv_timeout(wait).map_err(|_| no_answer())?
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}
