//! How long is it from one poll of an endpoint to the next? Its own interval, and a longer one while it keeps failing. Pure.

use std::time::Duration;

use crate::clock::Moment;
use crate::config::Config;
use crate::model::{Session, Thresholds, spread};

/// A light endpoint is polled at least this many times more seldom than its own interval says, whatever that is …
const LIGHT_FIRST: u32 = 2;
/// … and this many times from its second light poll on.
const LIGHT_LATER: u32 = 4;
/// Jitter of light polls: up to one in this many of the interval, so that endpoints that failed together spread.
const LIGHT_JITTER: u32 = 10;

/// Intervals and what happens to an endpoint that keeps failing.
#[derive(Clone, Copy, Debug)]
pub struct PollIntervals {
    /// Between two polls, unless the session has its own.
    pub interval: Duration,
    /// For one poll, unless the session has its own.
    pub timeout: Duration,
    /// This many failures in a row make an endpoint light.
    pub light_after: u32,
    /// Between two polls of a light endpoint, at least.
    pub light_interval: Duration,
    /// How many results in a row change a verdict, unless the session has its own.
    pub thresholds: Thresholds,
}

impl PollIntervals {
    /// Those of `config`.
    pub fn of(config: &Config) -> Self {
        Self {
            interval: config.interval,
            timeout: config.timeout,
            light_after: config.light_after,
            light_interval: config.light_interval,
            thresholds: config.thresholds,
        }
    }

    /// How many results in a row change the verdict about `session`.
    pub(crate) fn thresholds_of(&self, session: &Session) -> Thresholds {
        Thresholds {
            fail_after: session.fail_after.unwrap_or(self.thresholds.fail_after),
            ok_after: session.ok_after.unwrap_or(self.thresholds.ok_after),
        }
    }

    /// From one poll of `session` to the next, after this many failures in a row. A light endpoint is polled at the light
    /// interval or at a multiple of its own, whichever is longer, and up to a tenth later.
    pub(crate) fn interval_of(&self, session: &Session, failures: u32) -> Duration {
        let own = session.interval.unwrap_or(self.interval);
        let Some(light_polls) = failures.checked_sub(self.light_after) else { return own };
        let multiple = if light_polls == 0 { LIGHT_FIRST } else { LIGHT_LATER };
        let light = self.light_interval.max(own.saturating_mul(multiple));
        let jitter = u64::try_from((light / LIGHT_JITTER).as_millis()).unwrap_or(u64::MAX);
        let seed = format!("{} {failures}", session.endpoint);
        light + Duration::from_millis(spread(&seed, jitter.max(1)))
    }
}

/// The first moment of the rhythm `due_at + n × interval` that is not past.
pub(crate) fn after(due_at: Moment, interval: Duration, now: Moment) -> Moment {
    let next = due_at + interval;
    let late = now.since(next).as_nanos();
    if late == 0 {
        return next;
    }
    let missed = u32::try_from(late.div_ceil(interval.as_nanos().max(1))).unwrap_or(u32::MAX);
    next + interval.saturating_mul(missed)
}

/// When an endpoint was polled last, by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastPoll {
    /// This long ago.
    Ago(Duration),
    /// The stored time is yet to come: the server's clock was set back. How long ago it was is unknown.
    InFuture,
}

impl LastPoll {
    /// The estimate of the server's clock (`OwnershipTable::server_ms`) may be wrong by this much.
    const TOLERANCE_MS: u64 = 2_000;

    /// Polled at `polled_ms`, when the server's clock shows `server_ms`.
    pub fn new(polled_ms: u64, server_ms: u64) -> Self {
        if polled_ms > server_ms.saturating_add(Self::TOLERANCE_MS) {
            return Self::InFuture;
        }
        Self::Ago(Duration::from_millis(server_ms.saturating_sub(polled_ms)))
    }
}
