//! Whole instances in this process, each with its own connections and threads, that poll next to nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::config::RedisUrl;
use leasehold::thread::Stop;
use leasehold::{Config, Daemon, PollPermit, Poller, Revoked, Sample, Session};
use redis::Connection;

/// Polls nothing.
struct Nothing;

impl Poller for Nothing {
    fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
        permit.confirm()?;
        Ok(Sample { ok: true, status: None, error: None, body: vec![], duration: Duration::ZERO })
    }
}

/// So many, with leases so long that they are not renewed while anybody looks.
pub(crate) fn start(url: &str, instances: u32, until: &Stop) -> io::Result<Vec<Daemon>> {
    let redis = RedisUrl::parse(url).map_err(io::Error::other)?;
    let config = Config {
        redis,
        workers: 1,
        new_fleet: true,
        lease_ttl: Duration::from_secs(3_000),
        renew_interval: Duration::from_secs(1_000),
        ..Config::default()
    };
    let config = config.checked().map_err(io::Error::other)?;
    let instance = |_| Daemon::start_redis(&config, Arc::new(Nothing), until);
    (0..instances).map(instance).collect::<Result<_, _>>().map_err(io::Error::other)
}

/// How long that took. Each lease is a key besides its session, and so is the fence of its grant.
pub(crate) fn wait_until_all_is_owned(
    line: &mut Connection,
    sessions: u32,
    patience: Duration,
    never: &Stop,
) -> io::Result<Duration> {
    let from = BootClock.now();
    let mut keys = 0;
    while BootClock.now().since(from) < patience {
        keys = redis::cmd("DBSIZE").query(line).map_err(io::Error::other)?;
        if keys >= 3 * u64::from(sessions) {
            return Ok(BootClock.now().since(from));
        }
        let _ = never.within(Duration::from_millis(20));
    }
    Err(io::Error::other(format!("not everything is owned after {patience:?}: {keys} keys")))
}
