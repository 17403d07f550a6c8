//! A poller written by a user of the library: it asks the Redis server at a session's address how long it has been up.
//!
//! ```text
//! redis-cli set session:cache '{"id": "cache", "address": "tcp://127.0.0.1:6379"}'
//! cargo run --example custom_poller
//! redis-cli hgetall poll:result:cache
//! ```
//!
//! Start the program several times: the instances share the sessions. Ctrl-C stops one.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{
    Address, Config, Daemon, PollPermit, Poller, Revoked, Sample, Session, stop_on_signal,
};

struct RedisPoller;

impl Poller for RedisPoller {
    #[expect(clippy::disallowed_methods, reason = "the rule is for deadlines inside the library")]
    fn poll(
        &self,
        session: &Session,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked> {
        let begun = Instant::now();
        let asked = connect(&session.address, timeout).map(|stream| uptime(stream, permit));
        let answer = match asked {
            Ok(answer) => answer?,
            Err(error) => Err(error),
        };
        let duration = begun.elapsed();
        // A failure of the endpoint is a sample that is not ok.
        Ok(match answer {
            Ok(body) => Sample { ok: true, status: None, error: None, body, duration },
            Err(error) => Sample::failed(error.to_string(), duration),
        })
    }
}

fn connect(address: &Address, timeout: Duration) -> io::Result<TcpStream> {
    let Address::Tcp(authority) = address else {
        return Err(io::Error::other("this poller wants a tcp:// address"));
    };
    let address = authority.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    Ok(stream)
}

/// Two rules for every poller: arm the abort switch before anything that can block, and confirm the
/// permit right before the first byte that others can see.
fn uptime(stream: TcpStream, permit: &PollPermit) -> Result<io::Result<Vec<u8>>, Revoked> {
    let ask = || -> io::Result<Option<Vec<u8>>> {
        let other = stream.try_clone()?;
        permit.abort().arm(move || drop(other.shutdown(std::net::Shutdown::Both)));
        if permit.confirm().is_err() {
            return Ok(None);
        }
        (&stream).write_all(b"INFO server\r\n")?;
        let lines = BufReader::new(&stream).lines().take(100);
        let found = lines.map_while(Result::ok).find(|it| it.starts_with("uptime_in_seconds"));
        Ok(Some(found.ok_or_else(|| io::Error::other("it does not tell"))?.into_bytes()))
    };
    let answer = ask();
    if permit.abort().is_fired() {
        return Err(Revoked);
    }
    match answer {
        Ok(None) => Err(Revoked),
        Ok(Some(body)) => Ok(Ok(body)),
        Err(error) => Ok(Err(error)),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // As `leasehold run` would have it with no options: redis://127.0.0.1:6379/0, 30 s, 10 s.
    let config = Config::default().checked()?;
    let until = stop_on_signal()?;
    let daemon = Daemon::start_redis(&config, Arc::new(RedisPoller), &until)?;
    // `failure` names a thread of the library that panicked: this instance holds nothing any more.
    while !until.within(Duration::from_secs(1)) && daemon.failure().is_none() {}
    let failure = daemon.failure().cloned();
    daemon.stop(); // in the order that is safe: polls, heartbeat, leases
    failure.map_or(Ok(()), |it| Err(it.into()))
}
