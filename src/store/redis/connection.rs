//! How long can one exchange with Redis take? One connection, with a deadline around every whole exchange.
//!
//! Commands, codec and value types are those of redis-rs. The socket is ours, because a redis-rs connection bounds each
//! `read(2)` and not the exchange: a server that sends a byte now and then would block it for ever, and a stalled pipeline for
//! N times its timeout. A connection is dropped after any I/O error, so that a late reply never answers the next request.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use redis::{Cmd, ConnectionLike, ErrorKind, Parser, RedisError, RedisResult, Value};

use crate::clock::Moment;
use crate::config::Login;
use crate::net::deadline_stream::Socket;
use crate::store::redis::locator::Peer;
use crate::store::redis::tls::{self, Tls};

pub(crate) struct Connection {
    stream: Stream,
    parser: Parser,
    db: i64,
    /// Where it leads.
    pub(crate) peer: Arc<Peer>,
}

enum Stream {
    Plain(Socket),
    Secured(tls::Stream),
}

/// What a new connection needs to log in.
pub(crate) struct Credentials {
    pub(crate) login: Login,
    pub(crate) tls: Option<Tls>,
    pub(crate) database: u32,
}

impl Connection {
    /// Connects, authenticates and selects the database, all before `deadline`.
    pub(crate) fn connect(
        peer: &Arc<Peer>,
        credentials: &Credentials,
        deadline: Moment,
    ) -> RedisResult<Self> {
        let stream = match (&**peer, &credentials.tls) {
            (Peer::Unix(path), _) => Stream::Plain(Socket::dial_unix(path, deadline)?),
            (Peer::Tcp(place), None) => Stream::Plain(Socket::dial(place, deadline)?),
            (Peer::Tcp(place), Some(tls)) => {
                Stream::Secured(tls.shake_hands(&place.host, Socket::dial(place, deadline)?)?)
            }
        };
        let (db, peer) = (credentials.database.into(), Arc::clone(peer));
        let mut connection = Self { stream, parser: Parser::new(), db, peer };
        if let Some(password) = &credentials.login.password {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = &credentials.login.user {
                auth.arg(user);
            }
            auth.arg(password).exec(&mut connection).map_err(without_secrets)?;
        }
        if credentials.database != 0 {
            redis::cmd("SELECT").arg(credentials.database).exec(&mut connection)?;
        }
        Ok(connection)
    }

    /// Sets the deadline of all reads and writes until the next call.
    pub(crate) fn set_deadline(&mut self, deadline: Moment) {
        self.socket().deadline = deadline;
    }

    /// From now on [`Self::receive`] returns only what has arrived, and never blocks.
    pub(crate) fn without_waiting(mut self) -> Self {
        self.socket().set_waits(false);
        self
    }

    /// `self` if there is nothing to read: the server has not closed the connection, and no reply is pending.
    pub(crate) fn if_quiet(mut self) -> Option<Self> {
        // The buffer may hold a surplus reply.
        let mut read = std::mem::replace(&mut self.parser, Parser::new());
        if read.parse_value(io::empty()).is_ok() {
            return None;
        }
        let mut byte = [0];
        self.socket().set_waits(false);
        let waiting = self.stream.read(&mut byte);
        let quiet = matches!(&waiting, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.socket().set_waits(true);
        quiet.then_some(self)
    }

    /// Sends without waiting for a reply (for subscriptions).
    pub(crate) fn send(&mut self, cmd: &Cmd) -> RedisResult<()> {
        self.write(&cmd.get_packed_command())
    }

    /// The next value from the server.
    pub(crate) fn receive(&mut self) -> RedisResult<Value> {
        let received = self.parser.parse_value(&mut self.stream);
        received.map_err(|error| self.understood(error))
    }

    fn write(&mut self, bytes: &[u8]) -> RedisResult<()> {
        let written = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        written.map_err(|error| self.understood(error.into()))
    }

    fn understood(&mut self, error: RedisError) -> RedisError {
        match &mut self.stream {
            Stream::Plain(_) => error,
            Stream::Secured(it) => it.refusal().unwrap_or(error),
        }
    }

    fn socket(&mut self) -> &mut Socket {
        match &mut self.stream {
            Stream::Plain(it) => it,
            Stream::Secured(it) => it.socket(),
        }
    }
}

impl ConnectionLike for Connection {
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
        true // a caller that sees an error drops the connection
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(it) => it.read(buffer),
            Self::Secured(it) => it.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(it) => it.write(buffer),
            Self::Secured(it) => it.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(it) => it.flush(),
            Self::Secured(it) => it.flush(),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Plain(it) => it.as_fd(),
            Stream::Secured(it) => it.as_fd(),
        }
    }
}

/// A server that does not know AUTH repeats the command in its error, with the password.
fn without_secrets(error: RedisError) -> RedisError {
    let harmless = ["WRONGPASS", "NOAUTH", "NOPERM"].contains(&error.code().unwrap_or(""))
        || error.is_io_error()
        || error.kind() == ErrorKind::InvalidClientConfig
        || error.detail().is_some_and(|it| it.contains("without any password configured"));
    if harmless {
        return error;
    }
    (ErrorKind::AuthenticationFailed, "the server refused AUTH").into()
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}
