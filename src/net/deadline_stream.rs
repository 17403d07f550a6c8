//! How long can a conversation over a socket take? A socket with one deadline for all reads and writes.
//!
//! A socket timeout bounds one `read(2)`: a server that sends a byte now and then could stretch a reply, or the TLS handshake,
//! for ever. So the timeout is set to the time left until the deadline before every call, below TLS and plain Redis alike.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use crossbeam_channel::bounded;
use socket2::{Domain, SockAddr, SockRef, Type};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::HostPort;
use crate::net::lookup::{Lookups, NotStarted};

pub(crate) struct Socket {
    stream: Raw,
    pub(crate) deadline: Moment,
    waits: bool,
}

enum Raw {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn dial(place: &HostPort, deadline: Moment) -> io::Result<Self> {
        Ok(Self { stream: Raw::Tcp(connected(place, deadline)?), deadline, waits: true })
    }

    /// A socket whose backlog is full would keep a plain connect waiting without end.
    pub(crate) fn dial_unix(path: &Path, deadline: Moment) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.connect_timeout(&SockAddr::unix(path)?, left_until(deadline)?)?;
        Ok(Self { stream: Raw::Unix(socket.into()), deadline, waits: true })
    }

    /// Whether reading waits, until the deadline, for something to be there. Otherwise there is no
    /// deadline either.
    pub(crate) fn set_waits(&mut self, waits: bool) -> io::Result<()> {
        match &self.stream {
            Raw::Tcp(it) => it.set_nonblocking(!waits)?,
            Raw::Unix(it) => it.set_nonblocking(!waits)?,
        }
        self.waits = waits;
        Ok(())
    }

    /// Arms `timeout`, of reading or of writing, with what is left until the deadline, if anybody waits.
    fn arm(&self, timeout: fn(&SockRef<'_>, Option<Duration>) -> io::Result<()>) -> io::Result<()> {
        if self.waits {
            timeout(&SockRef::from(self), Some(left_until(self.deadline)?))
        } else {
            Ok(())
        }
    }

    fn timed_out(&self, error: io::Error) -> io::Error {
        if self.waits && error.kind() == io::ErrorKind::WouldBlock { no_answer() } else { error }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.arm(|it, left| it.set_read_timeout(left))?;
            let read = match &mut self.stream {
                Raw::Tcp(it) => it.read(buffer),
                Raw::Unix(it) => it.read(buffer),
            };
            match read {
                // With a timeout set the kernel restarts no read that a signal or a freeze broke off.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                other => return other.map_err(|it| self.timed_out(it)),
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.arm(|it, left| it.set_write_timeout(left))?;
        let written = match &mut self.stream {
            Raw::Tcp(it) => it.write(buffer),
            Raw::Unix(it) => it.write(buffer),
        };
        written.map_err(|it| self.timed_out(it))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Raw::Tcp(it) => it.as_fd(),
            Raw::Unix(it) => it.as_fd(),
        }
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
