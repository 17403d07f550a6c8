//! A socket with a deadline around everything that is read from it or written to it: for Redis and for polls.
//!
//! A timeout of the operating system bounds one `read(2)`: a server that drips a byte now and then would hold a reply, or
//! the handshake of TLS, for ever. So the socket never blocks, and each wait for it ends at the deadline, below TLS as
//! below plain Redis.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crossbeam_channel::bounded;
use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, SockAddr, Type};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::HostPort;
use crate::net::lookup::{Lookups, NotStarted};
use crate::net::wait::wait;

#[derive(Debug)]
pub(crate) struct Socket {
    stream: Arc<socket2::Socket>,
    pub(crate) deadline: Moment,
    waits: bool,
}

impl Socket {
    /// `stream` must be non-blocking.
    pub(crate) fn new(stream: Arc<socket2::Socket>, deadline: Moment) -> Self {
        Self { stream, deadline, waits: true }
    }

    pub(crate) fn dial(place: &HostPort, deadline: Moment) -> io::Result<Self> {
        Self::connected(connected(place, deadline)?.into(), deadline)
    }

    /// A socket whose backlog is full would keep a plain connect waiting without end.
    pub(crate) fn dial_unix(path: &Path, deadline: Moment) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.connect_timeout(&SockAddr::unix(path)?, left_until(deadline)?)?;
        Self::connected(socket, deadline)
    }

    fn connected(stream: socket2::Socket, deadline: Moment) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::new(Arc::new(stream), deadline))
    }

    /// Whether a read waits for data until the deadline. Otherwise it fails with `WouldBlock`, and the deadline is ignored.
    pub(crate) fn set_waits(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// While this is set, a close discards what the other side has not received yet: the kernel would otherwise go on sending
    /// it for minutes.
    pub(crate) fn set_discards_at_close(&self, discards: bool) -> io::Result<()> {
        self.stream.set_linger(discards.then_some(Duration::ZERO))
    }

    #[cfg(feature = "https")]
    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        self.stream.set_tcp_nodelay(true)
    }

    fn wait_for(&self, what: PollFlags) -> io::Result<()> {
        let left = left_until(self.deadline)?;
        wait(&mut [PollFd::new(self.stream.as_fd(), what)], left)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.waits {
                self.wait_for(PollFlags::POLLIN)?; // first, because an answer is seldom there already
            }
            match (&*self.stream).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.waits => (),
                other => return other,
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            if self.waits {
                left_until(self.deadline)?;
            }
            match (&*self.stream).write(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.waits => {
                    self.wait_for(PollFlags::POLLOUT)?
                }
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

pub(crate) fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

pub(crate) fn left_until(deadline: Moment) -> io::Result<Duration> {
    match deadline.since(BootClock.now()) {
        Duration::ZERO => Err(no_answer()),
        left => Ok(left),
    }
}

fn connected(place: &HostPort, deadline: Moment) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let addresses = look_up(&place.host, place.port, deadline)?;
    for (address, rest) in addresses.iter().zip((1..=addresses.len()).rev()) {
        // An address that does not answer must leave time for the next.
        let share = left_until(deadline)? / u32::try_from(rest).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Lookups of Redis servers.
static LOOKUPS: LazyLock<Lookups> = LazyLock::new(|| Lookups::at_most(16));

/// Waits for a name lookup until the deadline.
fn look_up(host: &str, port: u16, deadline: Moment) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (found, answers) = bounded(1);
    LOOKUPS.start(host, port, move |it| drop(found.send(it))).map_err(|it| match it {
        NotStarted::Busy => io::Error::other("too many name lookups hang already"),
        NotStarted::NoThread(error) => error,
    })?;
    answers.recv_timeout(left_until(deadline)?).map_err(|_| no_answer())?
}
