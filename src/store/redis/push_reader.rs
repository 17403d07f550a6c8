//! How are pushes read? From connections on which nothing is asked any more, with a ping where a server is silent.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redis::{RedisResult, Value};

use crate::clock::{BootClock, Clock, Moment};
use crate::store::redis::connection::Connection;

/// After this much silence a connection is pinged.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The connections on which servers push.
pub(crate) struct PushReader {
    connections: Vec<PushConnection>,
    timeout: Duration,
    /// Ends every wait when it can be read.
    pub(super) interrupt: Option<Arc<UnixStream>>,
}

struct PushConnection {
    connection: Connection,
    received_at: Moment,
    pinged_at: Option<Moment>,
}

impl PushReader {
    /// From now on, on connections that are subscribed. A broken line is noticed within the silence and `timeout`.
    pub(crate) fn on(connections: Vec<Connection>, timeout: Duration) -> RedisResult<Self> {
        let push_connection = |it: Connection| {
            let (connection, received_at) = (it.without_waiting(), BootClock.now());
            PushConnection { connection, received_at, pinged_at: None }
        };
        let connections = connections.into_iter().map(push_connection).collect();
        Ok(Self { connections, timeout, interrupt: None })
    }

    /// When something was last received on the connection that has been silent for the longest time.
    pub(crate) fn received_at(&self) -> Moment {
        self.connections.iter().map(|it| it.received_at).min().unwrap_or(Moment::MIN)
    }

    /// The next message of a server; `None` when there was none in time.
    pub(crate) fn next(&mut self, wait: Duration) -> RedisResult<Option<Value>> {
        let until = BootClock.now() + wait;
        loop {
            for at in 0..self.connections.len() {
                if let Some(value) = self.connections[at].try_receive()? {
                    // The others are next: one that speaks without end must not drown them.
                    self.connections.rotate_left(at + 1);
                    return Ok(Some(value));
                }
            }
            let timeout = self.timeout;
            self.connections.iter_mut().try_for_each(|it| it.keep_alive(timeout))?;
            let left = until.since(BootClock.now());
            if left.is_zero() {
                return Ok(None);
            }
            if self.wait(left.min(SILENCE_MAX))? {
                return Ok(None);
            }
        }
    }

    /// Waits for input, at most `longest`. True if the wait was interrupted.
    fn wait(&self, longest: Duration) -> RedisResult<bool> {
        let connections = self.connections.iter().map(|it| it.connection.as_fd());
        let interrupt = self.interrupt.iter().map(|it| it.as_fd());
        let fds = connections.chain(interrupt).map(|it| PollFd::new(it, PollFlags::POLLIN));
        let mut fds: Vec<_> = fds.collect();
        let ms = longest.as_micros().div_ceil(1_000);
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) => Ok(fds[self.connections.len()..].iter().any(|it| it.any() == Some(true))),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }
}

impl PushConnection {
    /// The next value that has arrived, without waiting.
    fn try_receive(&mut self) -> RedisResult<Option<Value>> {
        match self.connection.receive() {
            Ok(value) => {
                self.received_at = BootClock.now();
                self.pinged_at = None;
                value.extract_error().map(Some)
            }
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn keep_alive(&mut self, timeout: Duration) -> RedisResult<()> {
        let now = BootClock.now();
        match self.pinged_at {
            None if now.since(self.received_at) >= SILENCE_MAX => {
                self.connection.send(&redis::cmd("PING"))?;
                self.pinged_at = Some(now);
            }
            Some(at) if now.since(at) >= timeout => {
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            }
            _ => (),
        }
        Ok(())
    }
}
