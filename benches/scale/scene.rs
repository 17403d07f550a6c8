//! A private Redis with many sessions, what they point at, and the fleet that polls them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::thread::{Stop, StopSource, stop};
use redis::Connection;

use crate::fleet::{Daemon, stop_all};
use crate::target::Target;
use testkit::bench::meter::{Meter, process_cpu};
use testkit::private_redis::PrivateRedis;

pub(crate) const INSTANCES: u32 = 10;
/// For all to be owned, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(180);
/// R5: how long nothing is granted on a server that has no memory of a fleet: the TTL and the margin.
const HOLD_OFF_MS: f64 = 31_000.0;
/// Keys that are asked for at once.
pub(crate) const PAGE: usize = 1_000;

/// What the sessions are like.
#[derive(Clone, Copy)]
pub(crate) struct Sessions {
    pub(crate) count: u32,
    pub(crate) interval: Duration,
    /// One in so many never answers.
    pub(crate) hangs: Option<u32>,
}

pub(crate) struct Scene {
    pub(crate) target: Target,
    pub(crate) line: Connection,
    pub(crate) meter: Meter,
    pub(crate) sessions: Sessions,
    pub(crate) fleet: Vec<Daemon>,
    redis: PrivateRedis,
    never: Stop,
    _source: StopSource,
}

impl Scene {
    pub(crate) fn new(sessions: Sessions) -> io::Result<Self> {
        let (source, never) = stop();
        let redis = PrivateRedis::start("leasehold-scale", &never)?;
        let mut scene = Self {
            target: Target::start()?,
            line: redis.connect(&never)?,
            meter: Meter(redis.connect(&never)?),
            sessions,
            fleet: Vec::new(),
            redis,
            never,
            _source: source,
        };
        scene.put_sessions()?;
        Ok(scene)
    }

    pub(crate) fn wait(&self, duration: Duration) {
        let _ = self.never.within(duration);
    }

    /// Where logs and metrics are.
    pub(crate) fn dir(&self) -> PathBuf {
        self.redis.dir.clone()
    }

    /// `d0000007`.
    pub(crate) fn id(n: u32) -> String {
        format!("d{n:07}")
    }

    fn put_sessions(&mut self) -> io::Result<()> {
        let Sessions { count, interval, hangs } = self.sessions;
        let interval = interval.as_millis();
        let all: Vec<u32> = (0..count).collect();
        for batch in all.chunks(1_000) {
            let mut pipe = redis::pipe();
            for n in batch {
                let is_silent = hangs.is_some_and(|it| n % it == 0);
                let address = if is_silent { self.target.hangs(*n) } else { self.target.answers };
                let id = Self::id(*n);
                let session =
                    format!(r#"{{"id":"{id}","address":"{address}","intervalMs":{interval}}}"#);
                pipe.cmd("SET").arg(format!("session:{id}")).arg(session).ignore();
            }
            pipe.exec(&mut self.line).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Starts so many daemons more, the first of them with the word that nobody else runs if it `is_new`.
    pub(crate) fn start(&mut self, n: u32, is_new: bool, args: &[&str]) -> io::Result<()> {
        let (url, dir) = (self.redis.url(), self.dir());
        for it in 0..n {
            let first: &[&str] = if is_new && it == 0 { &["--new-fleet"] } else { &[] };
            let args = [args, first].concat();
            self.fleet.push(Daemon::start(&url, &format!("i{it}"), &dir, &args)?);
        }
        Ok(())
    }

    /// Stops the fleet, and the server forgets everything but the sessions.
    pub(crate) fn begin_anew(&mut self, sessions: Sessions) -> io::Result<()> {
        stop_all(std::mem::take(&mut self.fleet), &self.never)?;
        redis::cmd("FLUSHALL").exec(&mut self.line).map_err(io::Error::other)?;
        self.sessions = sessions;
        self.put_sessions()
    }

    /// Milliseconds on the server's clock.
    pub(crate) fn server_ms(&mut self) -> io::Result<f64> {
        let (seconds, micros): (f64, f64) =
            redis::cmd("TIME").query(&mut self.line).map_err(io::Error::other)?;
        Ok(seconds * 1_000.0 + micros / 1_000.0)
    }

    /// When the hold-off ends by the server's clock.
    pub(crate) fn hold_off_ends_ms(&mut self) -> io::Result<f64> {
        let field = |line: &mut Connection| -> io::Result<Option<f64>> {
            let mut ask = redis::cmd("HGET");
            ask.arg("poll:epoch").arg("since_ms").query(line).map_err(io::Error::other)
        };
        self.until("a fleet", |scene| Ok(field(&mut scene.line)?.map(|it| it + HOLD_OFF_MS)))
    }

    /// Waits until every endpoint is owned, and says when that was by the server's clock.
    pub(crate) fn all_owned_at_ms(&mut self) -> io::Result<f64> {
        // A session, a lease and the fence of its grant; a few keys are others, so the leases have the last word.
        let (all, leases) = (3 * u64::from(self.sessions.count), self.leases());
        self.until("all to be owned", |scene| {
            let keys: u64 =
                redis::cmd("DBSIZE").query(&mut scene.line).map_err(io::Error::other)?;
            let at = scene.server_ms()?;
            let are_owned = keys >= all && scene.owners(&leases)?.iter().all(Option::is_some);
            Ok(are_owned.then_some(at))
        })
    }

    /// The keys of all leases.
    pub(crate) fn leases(&self) -> Vec<String> {
        (0..self.sessions.count).map(|it| format!("poll:lease:{}", Self::id(it))).collect()
    }

    pub(crate) fn owners(&mut self, leases: &[String]) -> io::Result<Vec<Option<String>>> {
        let mut owners = Vec::with_capacity(leases.len());
        for page in leases.chunks(PAGE) {
            let page: Vec<Option<String>> =
                redis::cmd("MGET").arg(page).query(&mut self.line).map_err(io::Error::other)?;
            owners.extend(page);
        }
        Ok(owners)
    }

    /// Asks again and again until there is something.
    fn until<T>(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Self) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let deadline = BootClock.now() + PATIENCE;
        while BootClock.now() < deadline {
            if let Some(found) = ask(self)? {
                return Ok(found);
            }
            self.wait(Duration::from_millis(50));
        }
        Err(io::Error::other(format!("waited {PATIENCE:?} for {what}")))
    }

    /// The sum of a metric over the fleet.
    pub(crate) fn metric(&self, begins: &str) -> io::Result<f64> {
        self.fleet.iter().map(|it| it.metric(begins)).sum()
    }

    /// The mean of all instances.
    pub(crate) fn rss(&self) -> io::Result<f64> {
        let all = self.fleet.iter().map(Daemon::rss).sum::<io::Result<f64>>()?;
        Ok(all / f64::from(u32::try_from(self.fleet.len()).unwrap_or(u32::MAX)))
    }

    pub(crate) fn now(&mut self) -> io::Result<Spent> {
        Ok(Spent {
            at: BootClock.now(),
            server: self.meter.server_seconds()?,
            fleet: self.fleet.iter().map(Daemon::cpu).sum::<io::Result<f64>>()?,
            target: process_cpu()?.as_secs_f64(),
            polls: self.target.polls(),
        })
    }
}

/// Seconds of CPU and polls so far.
pub(crate) struct Spent {
    at: Moment,
    server: f64,
    fleet: f64,
    target: f64,
    polls: u64,
}

/// Shares of a core, in percent, and polls a second.
pub(crate) struct Shares {
    pub(crate) server: f64,
    pub(crate) fleet: f64,
    pub(crate) target: f64,
    pub(crate) polls: f64,
}

impl Spent {
    pub(crate) fn since(&self, before: &Self) -> Shares {
        let took = self.at.since(before.at).as_secs_f64();
        let share = |now: f64, then: f64| (now - then) / took * 100.0;
        let polls = u32::try_from(self.polls - before.polls).unwrap_or(u32::MAX);
        Shares {
            server: share(self.server, before.server),
            fleet: share(self.fleet, before.fleet),
            target: share(self.target, before.target),
            polls: f64::from(polls) / took,
        }
    }
}
