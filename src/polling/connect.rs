//! How does a poll connect to the first address that answers, under a deadline and an abort switch?

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, Protocol, Socket, Type};

use crate::clock::{BootClock, Clock, Moment};
use crate::lease::permit::Revoked;
use crate::net::abort::Abort;
use crate::net::shortage;
use crate::net::wait::{is_ready, plain, wait};

/// Why no connection came about.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// Nobody answered in time.
    NoAnswer,
    /// The right to connect was lost.
    Revoked,
    /// What this process lacked; nothing is known about the address.
    Short(String),
    /// The last address tried, and what the operating system said.
    Failed(SocketAddr, io::Error),
}

impl ConnectError {
    pub(crate) fn sentence(&self, timeout: Duration) -> String {
        match self {
            Self::NoAnswer => format!("no answer within {timeout:?}"),
            Self::Revoked => Revoked.to_string(),
            Self::Short(why) => why.clone(),
            Self::Failed(address, error) => {
                format!("cannot connect to {address}: {}", plain(error))
            }
        }
    }
}

/// Connects to the first address that answers; each but the last gets half of the time left. `abort` stays armed with the
/// connection.
pub(crate) fn connect_any(
    addresses: &[SocketAddr],
    deadline: Moment,
    abort: &Abort,
    may_connect: impl Fn() -> bool,
) -> Result<Arc<Socket>, ConnectError> {
    let mut failure = ConnectError::NoAnswer;
    for (done, address) in addresses.iter().enumerate() {
        let now = BootClock.now();
        let is_last = done + 1 == addresses.len();
        let until = if is_last { deadline } else { now + deadline.since(now) / 2 };
        match connect(*address, until, abort, &may_connect) {
            Ok(Some(stream)) => return Ok(stream),
            Ok(None) => return Err(ConnectError::Revoked),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                failure = ConnectError::NoAnswer
            }
            Err(error) => match shortage::of_connect(&error, *address) {
                Some(why) => return Err(ConnectError::Short(why)),
                None => failure = ConnectError::Failed(*address, error),
            },
        }
    }
    Err(failure)
}

/// Connects until `deadline`, or until `abort` fires; `None` when it may not even begin. The standard library's connect can
/// be bounded but not interrupted, and a second attempt in its place would be a second start.
///
/// `abort` stays armed when the connection is there: until `disarm` it shuts the socket down. A shutdown also ends a connect
/// that is under way, so one descriptor is enough for all of it.
fn connect(
    address: SocketAddr,
    deadline: Moment,
    abort: &Abort,
    may_connect: impl Fn() -> bool,
) -> io::Result<Option<Arc<Socket>>> {
    let domain = Domain::for_address(address);
    let socket =
        Socket::new_raw(domain, Type::STREAM.cloexec().nonblocking(), Some(Protocol::TCP))?;
    let socket = Arc::new(socket);
    let same = Arc::clone(&socket);
    abort.arm(move || drop(same.shutdown(Shutdown::Both)));
    // R2: asked last, when nothing is left to do and whatever is lost from here on stops the connect.
    if !may_connect() || abort.is_fired() {
        abort.disarm();
        return Ok(None);
    }
    let connected = match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {
            finish(&socket, deadline, abort)
        }
        at_once => at_once,
    };
    if connected.is_err() {
        abort.disarm();
    }
    connected.map(|()| Some(socket))
}

fn finish(socket: &Socket, deadline: Moment, abort: &Abort) -> io::Result<()> {
    loop {
        if abort.is_fired() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let left = deadline.since(BootClock.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
        wait(&mut fds, left)?;
        if is_ready(&fds[0]) && !abort.is_fired() {
            return socket.take_error()?.map_or(Ok(()), Err);
        }
    }
}
