//! Is an endpoint polled as often as it should be? How long ago it was, against its interval.
//!
//! Only the owner knows how often it means to poll, so each result says it (`interval_ms`); a result without
//! it, of an older version, is judged by what the others say. A guess would cry wolf: where nobody
//! knows, only `--stale-after` counts. No instance reads any of this.

use std::time::Duration;

use fnv::FnvHashMap;

use crate::inspect::status::verdict::brief;
use crate::inspect::status::{EndpointStatus, State, Status, Wanted};
use crate::model::{FenceToken, InstanceId};
use crate::store::admin::overview::{LastResult, Stored};

/// A result is on its way to Redis for a moment, and a hand-over takes another.
const GRACE: Duration = Duration::from_secs(1);
/// A running poll has no result yet. How long it may run only its owner knows; this is usual.
const USUAL_TIMEOUT: Duration = Duration::from_secs(10);
/// An owner is behind when one part in `BEHIND_SHARE` of its endpoints is …
const BEHIND_SHARE: usize = 10;
/// … and no fewer than this: one endpoint may be slow by itself.
const BEHIND_MIN: usize = 2;
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

/// What is allowed for besides an endpoint's own times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// An endpoint without a result for this long is stale.
    pub(crate) stale_after: Duration,
    /// On top of everything.
    pub(crate) grace: Duration,
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
    let without_own = |it: &&(Wanted, Stored)| matches!(&it.0, Wanted::Polls(asked, _) if asked.interval.is_none());
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

    /// How its lateness is called, if it is late by itself. A stale endpoint is stale whichever instance has owned it meanwhile.
    ///
    /// Polls begin once in a *period*: the interval, or its first multiple that a poll as long as the last one fits into.
    /// Just before a result is stored, the last stored poll began a period and the duration of a poll ago. So an
    /// endpoint is behind after one and a half periods and that duration. It is late by itself after two periods
    /// and the time that a poll may suddenly take, at most a period: one missed round is not late.
    pub(crate) fn lateness(&mut self, asked: Asked, patience: Patience) -> Option<State> {
        let took = self.result.as_ref().and_then(|it| it.duration_ms).map(Duration::from_millis);
        let took = took.unwrap_or_default();
        let period = self.interval.map(|it| period(it, took));
        let sudden = asked.timeout.unwrap_or(USUAL_TIMEOUT);
        let plus =
            |it: Duration, more: Duration| it.saturating_add(more).saturating_add(patience.grace);
        let behind_after = period.map(|it| plus(it.saturating_add(it / 2), took));
        let late_after = period.map(|it| plus(it.saturating_mul(2), took.max(sudden.min(it))));
        let stale_after = patience.stale_after.max(late_after.unwrap_or_default());
        let beyond = |waited: Option<Duration>, patience: Option<Duration>| {
            let beyond = waited?.checked_sub(patience?);
            beyond.filter(|it| !it.is_zero())
        };
        let stale = beyond(self.age, Some(stale_after));
        let late = beyond(self.waited(), late_after);
        self.behind = beyond(self.waited(), behind_after);
        self.overdue = late.max(stale);
        match (stale, late) {
            (Some(_), _) => Some(State::Stale),
            (None, Some(_)) => Some(State::Late),
            (None, None) => None,
        }
    }

    /// By how much it is late for certain, whichever timeout its session has: three periods and the grace are more than any
    /// lateness. Also of an endpoint without an owner. `None` if it is not, or if nobody knows how often it should be polled.
    pub(crate) fn surely_late(&self, grace: Duration) -> Option<Duration> {
        let took = self.result.as_ref()?.duration_ms.map(Duration::from_millis).unwrap_or_default();
        let longest = period(self.interval?, took).saturating_mul(3).saturating_add(grace);
        self.age?.checked_sub(longest)
    }

    /// `last poll 95s ago, every 10s`.
    pub fn timings(&self) -> String {
        let waited = match (self.age, self.granted_ago) {
            (Some(age), _) => format!("last poll {} ago", brief(age)),
            (None, Some(granted)) => format!("never polled, owned for {}", brief(granted)),
            (None, None) => "never polled".into(),
        };
        let every = self.interval.map(|it| format!(", every {}", brief(it)));
        waited + &every.unwrap_or_default()
    }
}

/// The interval, or its first multiple that is no shorter than a poll: missed rounds are skipped.
fn period(interval: Duration, took: Duration) -> Duration {
    let rounds = took.as_nanos().div_ceil(interval.as_nanos().max(1)).max(1);
    interval.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
}

/// What is allowed for besides the endpoint's own times, when it took this long to read everything: the age of what was
/// read first comes out too large by that much.
pub(crate) fn grace(reading_took: Duration) -> Duration {
    GRACE.saturating_add(reading_took)
}

/// An owner that does not keep its pace: each of its endpoints that is behind is late.
pub(crate) fn judge_owners(endpoints: &mut [EndpointStatus]) {
    let mut owners: FnvHashMap<InstanceId, (usize, usize)> = FnvHashMap::default();
    for it in endpoints.iter().filter(|it| it.interval.is_some()) {
        if let Some(lease) = it.lease.as_ref().filter(|_| it.owner_lives) {
            let (all, behind) = owners.entry(lease.value.clone()).or_default();
            *all += 1;
            *behind += usize::from(it.behind.is_some());
        }
    }
    owners.retain(|_, (all, behind)| *behind >= BEHIND_MIN && *behind * BEHIND_SHARE >= *all);
    for it in endpoints.iter_mut().filter(|it| it.behind.is_some() && it.overdue.is_none()) {
        if it.lease.as_ref().is_some_and(|it| owners.contains_key(&it.value)) {
            (it.state, it.overdue) = (State::Late, it.behind);
        }
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
            .map(|it| format!("{} ({})", it.name, it.timings()))
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
        let owner = &it.lease.as_ref()?.value;
        let has = |it: &&EndpointStatus| it.lease.as_ref().is_some_and(|it| it.value == *owner);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::status::Alarm;
    use crate::model::{EndpointId, InstanceId, Weight};
    use crate::store::admin::overview::Overview;
    use crate::store::{Lasting, RawSession};

    const NOW_MS: u64 = 1_700_000_000_000;

    /// One endpoint: its owner, how long ago its last poll began and how long that took, in milliseconds.
    type Polled<'a> = (&'a str, u64, u64);

    /// A fleet whose endpoints are polled every 5 s, read in no time.
    fn judged(polled: &[Polled<'_>]) -> Status {
        let lasting = |it: &str| Lasting { value: InstanceId::new(it), left: Duration::MAX };
        let endpoint = |(n, (owner, ago_ms, took_ms)): (usize, &Polled<'_>)| Stored {
            id: EndpointId::parse(&format!("e{n}")).unwrap(),
            session: Some(RawSession::Value(
                format!(r#"{{"id":"e{n}","address":"h:1"}}"#).into_bytes(),
            )),
            lease: Some(lasting(owner)),
            granted: Some(FenceToken(7)),
            result: Some(LastResult {
                ok: true,
                status: Some(200),
                error: None,
                started_at_ms: Some(NOW_MS - ago_ms),
                duration_ms: Some(*took_ms),
                interval_ms: Some(5_000),
                fence: None,
                instance: None,
                state: None,
                certificate: None,
            }),
        };
        let weight = Lasting { value: Weight(1), left: Duration::MAX };
        let overview = Overview {
            server_ms: NOW_MS,
            instances: ["a", "b"].map(|it| (InstanceId::new(it), weight.clone())).into(),
            endpoints: polled.iter().enumerate().map(endpoint).collect(),
            ..Overview::default()
        };
        Status::of(overview, Duration::from_secs(120))
    }

    /// `n` endpoints of `owner` that are polled once in `period_ms`, read at any time.
    fn every(owner: &str, n: u64, period_ms: u64, took_ms: u64) -> Vec<Polled<'_>> {
        (0..n).map(|it| (owner, took_ms + period_ms * it / n, took_ms)).collect()
    }

    fn n_late(polled: &[Polled<'_>]) -> usize {
        judged(polled).late().len()
    }

    #[test]
    fn a_fleet_at_a_part_of_its_pace_is_late_and_says_so() {
        for period_ms in [10_000, 15_000, 20_000] {
            let polled = [every("a", 30, period_ms, 20), every("b", 30, period_ms, 20)].concat();
            let status = judged(&polled);
            let told = status.verdict();
            assert!(told.contains(" polled late, balanced."), "once in {period_ms} ms: {told}");
            assert_eq!(status.alarm(), Alarm::Act);
        }
        // One instance of two.
        let polled = [every("a", 60, 5_000, 20), every("b", 60, 15_000, 20)].concat();
        let late =
            judged(&polled).late().iter().map(|it| it.lease.clone().unwrap().value).collect();
        let late: Vec<InstanceId> = late;
        assert!(late.len() > 10 && late.iter().all(|it| it.as_str() == "b"), "{late:?}");
    }

    /// Polls that take their time, up to the usual timeout, begin the later; and each instance keeps its own pace.
    #[test]
    fn a_fleet_that_keeps_its_pace_is_not_late() {
        for (period_ms, took_ms) in
            [(5_000, 0), (5_000, 3_000), (5_000, 5_000), (10_000, 5_001), (10_000, 10_000)]
        {
            let polled = [every("a", 30, period_ms, took_ms), every("b", 30, period_ms, took_ms)];
            assert_eq!(n_late(&polled.concat()), 0, "{took_ms} ms each, once in {period_ms} ms");
        }
    }

    /// A round that is missed, a poll that suddenly runs into its timeout.
    #[test]
    fn one_missed_round_of_one_endpoint_is_not_late_and_two_are() {
        let with = |ago_ms| {
            let polled = [every("a", 30, 5_000, 20), every("b", 30, 5_000, 20)].concat();
            n_late(&[polled, vec![("a", ago_ms, 20)]].concat())
        };
        assert_eq!([with(10_500), with(15_500), with(16_500)], [0, 0, 1]);
    }
}
