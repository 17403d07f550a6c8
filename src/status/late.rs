//! Is an endpoint polled as often as it should be? How long ago it was, against its interval.
//!
//! Only the owner knows how often it means to poll, so each result says it (`interval_ms`); a result without
//! it, of an older version, is judged by what the others say. A guess would cry wolf: where nobody
//! knows, only `--stale-after` counts. No instance reads any of this.

use std::time::Duration;

use crate::model::FenceToken;
use crate::status::verdict::brief;
use crate::status::{EndpointStatus, State, Status, Wanted};
use crate::store::overview::{LastResult, Stored};

/// Two rounds may be missed: a handover, a stop of the world.
const ROUNDS: u32 = 3;
/// A result is on its way for a moment, and reading everything takes another.
const GRACE: Duration = Duration::from_secs(5);
/// A running poll has no result yet. How long it may run only its owner knows; this is usual.
const USUAL_TIMEOUT: Duration = Duration::from_secs(10);
/// No more are named in the verdict.
const NAMED_MAX: usize = 3;

/// What a session says about time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Between two polls; `None`: the owner's `--interval`.
    pub(crate) interval: Option<Duration>,
    /// For one poll; `None`: the owner's `--timeout`.
    pub(crate) timeout: Option<Duration>,
}

/// Why an endpoint is late, as far as can be seen from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// Its owner has not renewed it for long, and may not poll meanwhile.
    Uncertain,
    /// Its last poll took so long that the next round was over.
    Slow(Duration),
    /// Others of its owner are late, too.
    Crowded {
        /// How many of its owner's are.
        late: usize,
        /// How many polls at a time what its owner has would need.
        busy: f64,
    },
    /// No other of its owner is.
    Alone,
}

/// The interval that sessions without one of their own are polled with, as the results say. The longest,
/// where instances differ.
pub(crate) fn usual_interval(found: &[(Wanted, Stored)]) -> Option<Duration> {
    let without_own =
        |it: &&(Wanted, Stored)| matches!(&it.0, Wanted::Polls(asked) if asked.interval.is_none());
    let results = found.iter().filter(without_own).filter_map(|it| it.1.result.as_ref());
    results.filter(|it| it.ok).filter_map(told_interval).max()
}

fn told_interval(result: &LastResult) -> Option<Duration> {
    result.interval_ms.filter(|it| *it > 0).map(Duration::from_millis)
}

/// How long ago this was granted, by the server's clock: a fence is no less than the time of its grant in
/// microseconds. One that is ahead of the clock tells nothing.
pub(crate) fn granted_ago(fence: Option<FenceToken>, server_ms: u64) -> Option<Duration> {
    let ago_us = server_ms.saturating_mul(1_000).checked_sub(fence?.0)?;
    Some(Duration::from_micros(ago_us))
}

impl EndpointStatus {
    /// How often it should be polled. Its own interval counts from the moment its session says so; after a
    /// failure it may be light, which only its owner knows.
    pub(crate) fn expect(&mut self, asked: Asked, usual: Option<Duration>) {
        let told = self.result.as_ref().and_then(told_interval);
        let failed = self.result.as_ref().is_some_and(|it| !it.ok);
        self.interval = match asked.interval {
            Some(own) if failed => Some(told.map_or(own, |it| own.max(it))),
            Some(own) => Some(own),
            None => told.or(usual),
        };
    }

    /// Since its last poll, or since its owner has it if that is less; `None` if nothing is known.
    fn waited(&self) -> Option<Duration> {
        match (self.age, self.granted_ago) {
            (Some(age), Some(granted)) => Some(age.min(granted)),
            (age, granted) => age.or(granted),
        }
    }

    /// How its lateness is called, if it is late. What is stale is so whoever has had it meanwhile.
    pub(crate) fn lateness(&mut self, asked: Asked, stale_after: Duration) -> Option<State> {
        let timeout = asked.timeout.unwrap_or(USUAL_TIMEOUT);
        let patience =
            |it: Duration| it.saturating_mul(ROUNDS).saturating_add(timeout).saturating_add(GRACE);
        let late_after = self.interval.map(patience);
        let stale_after = late_after.map_or(stale_after, |it| it.max(stale_after));
        let beyond = |waited: Option<Duration>, patience: Option<Duration>| {
            waited.zip(patience).and_then(|(it, patience)| it.checked_sub(patience))
        };
        let stale = beyond(self.age, Some(stale_after)).filter(|it| !it.is_zero());
        let late = beyond(self.waited(), late_after).filter(|it| !it.is_zero());
        self.overdue = late.max(stale);
        match (stale, late) {
            (Some(_), _) => Some(State::Stale),
            (None, Some(_)) => Some(State::Late),
            (None, None) => None,
        }
    }

    /// `last poll 95s ago, every 10s`.
    pub fn rhythm(&self) -> String {
        let waited = match (self.age, self.granted_ago) {
            (Some(age), _) => format!("last poll {} ago", brief(age)),
            (None, Some(granted)) => format!("never polled, owned for {}", brief(granted)),
            (None, None) => "never polled".into(),
        };
        let every = self.interval.map(|it| format!(", every {}", brief(it)));
        waited + &every.unwrap_or_default()
    }
}

impl Status {
    /// Those that are polled late or not at all by an owner that lives, the worst first.
    pub fn late(&self) -> Vec<&EndpointStatus> {
        let mut late: Vec<&EndpointStatus> =
            self.endpoints.iter().filter(|it| it.overdue.is_some()).collect();
        late.sort_by_key(|it| std::cmp::Reverse(it.overdue));
        late
    }

    /// A sentence that names the worst of them; empty where there are none.
    pub(crate) fn about_late(&self) -> String {
        let late = self.late();
        let mut named: Vec<String> = late
            .iter()
            .take(NAMED_MAX)
            .map(|it| format!("{} ({})", it.name, it.rhythm()))
            .collect();
        if late.len() > NAMED_MAX {
            named.push(format!("and {} more", late.len() - NAMED_MAX));
        }
        let named = named.join(", ");
        match late.len() {
            0 => String::new(),
            1 => format!(" 1 endpoint is polled late: {named}."),
            n => format!(" {n} endpoints are polled late: {named}."),
        }
    }

    /// Why this one is late, if it is.
    pub fn why_late(&self, it: &EndpointStatus) -> Option<Cause> {
        it.overdue?;
        if it.renewal_overdue {
            return Some(Cause::Uncertain);
        }
        let took = it.result.as_ref().and_then(|it| it.duration_ms).map(Duration::from_millis);
        if let Some((took, _)) = took.zip(it.interval).filter(|it| it.0 > it.1) {
            return Some(Cause::Slow(took));
        }
        let owner = &it.lease.as_ref()?.it;
        let has = |it: &&EndpointStatus| it.lease.as_ref().is_some_and(|it| it.it == *owner);
        let late = self.endpoints.iter().filter(has).filter(|it| it.overdue.is_some()).count();
        if late < 2 {
            return Some(Cause::Alone);
        }
        let busy = self.endpoints.iter().filter(has).filter_map(share_of_a_poller).sum();
        Some(Cause::Crowded { late, busy })
    }
}

/// Of a poller's time, as long as it goes on like the last time.
fn share_of_a_poller(it: &EndpointStatus) -> Option<f64> {
    let took = Duration::from_millis(it.result.as_ref()?.duration_ms?);
    let interval = it.interval.filter(|it| !it.is_zero())?;
    Some((took.as_secs_f64() / interval.as_secs_f64()).min(1.0))
}
