//! What both plays need: a private Redis with sessions, a fleet, and the judge that it polls.

use std::io;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::Stop;
use redis::Connection;

use crate::fleet::{Fleet, Shares, shares};
use crate::judge::Judge;
use testkit::private_redis::PrivateRedis;

/// How long a change may take to settle.
const PATIENCE: Duration = Duration::from_secs(15);

/// Everything on it ends when it is dropped: the fleet first, then its Redis.
pub(crate) struct Stage<'a> {
    pub(crate) until: &'a Stop,
    pub(crate) fleet: Fleet,
    pub(crate) redis: PrivateRedis,
    pub(crate) judge: Judge,
    pub(crate) connection: Connection,
    pub(crate) endpoints: Vec<String>,
}

impl<'a> Stage<'a> {
    /// A stage with this number of sessions, all polled, and a snapshot of the fleet.
    pub(crate) fn new(n_endpoints: usize, until: &'a Stop) -> io::Result<Self> {
        let redis = PrivateRedis::start("leasehold-demo", until)?;
        let judge = Judge::start()?;
        let mut connection = redis.connect(until)?;
        let endpoints: Vec<String> =
            (1..=n_endpoints).map(|it| format!("endpoint-{it:02}")).collect();
        add_sessions(&mut connection, &endpoints, judge.port).map_err(io::Error::other)?;
        let fleet = Fleet::new(redis.url(), &redis.dir)?;
        Ok(Self { until, fleet, redis, judge, connection, endpoints })
    }

    pub(crate) fn shares(&mut self) -> io::Result<Shares> {
        shares(&mut self.connection).map_err(io::Error::other)
    }

    /// Waits until all is shared out evenly among those who run, and `drained` has nothing.
    pub(crate) fn wait_for_even_shares(&mut self, drained: Option<&str>) -> io::Result<()> {
        let deadline = BootClock.now() + PATIENCE;
        loop {
            let mut shares = self.shares()?;
            let idle = drained.is_none_or(|name| shares.remove(name) == Some(0));
            let working = self.fleet.len() - usize::from(drained.is_some());
            if idle && is_even(&shares, working, self.endpoints.len()) {
                return Ok(());
            }
            if BootClock.now() > deadline {
                let why = format!("not shared out evenly within {PATIENCE:?}: {shares:?}");
                return Err(io::Error::other(why));
            }
            self.pause(Duration::from_millis(10))?;
        }
    }

    pub(crate) fn pause(&self, time: Duration) -> io::Result<()> {
        if self.until.within(time) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

/// All sessions are owned, by exactly this number of instances, with counts that differ by at most one.
fn is_even(shares: &Shares, instances: usize, endpoints: usize) -> bool {
    let (most, least) = (shares.values().max(), shares.values().min());
    shares.len() == instances
        && shares.values().sum::<usize>() == endpoints
        && most.zip(least).is_some_and(|(most, least)| most - least <= 1)
}

/// Stores the sessions, and takes the one snapshot there is.
fn add_sessions(
    connection: &mut Connection,
    endpoints: &[String],
    port: u16,
) -> redis::RedisResult<()> {
    let mut pipe = redis::pipe();
    for id in endpoints {
        let session = format!(r#"{{"id":"{id}","address":"127.0.0.1:{port}","path":"/{id}"}}"#);
        pipe.cmd("SET").arg(format!("session:{id}")).arg(session).ignore();
    }
    pipe.cmd("SAVE").ignore().exec(connection)
}
