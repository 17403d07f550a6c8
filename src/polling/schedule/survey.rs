//! Which endpoints are polled less often than they should be, and by how much? Pure.
//!
//! An endpoint is behind when the time from one poll to the next is one and a half times its interval for several rounds,
//! or when it has waited for two and a half. One missed round is not enough.

use std::time::Duration;

use crate::clock::Moment;
use crate::model::{Behind, EndpointId};
use crate::polling::schedule::{Entry, PollSchedule, Speed};

/// What a busy machine may add to any interval.
const GRACE: Duration = Duration::from_millis(250);
/// An endpoint is behind from this part of its interval on, in thousandths: one that is polled once in one and a half
/// intervals reaches it with the fourth round.
const BEHIND_FROM: u64 = 1_400;
/// No round counts for more: one long pause is one missed round.
const ROUND_MAX: u64 = 2_000;

/// How often one endpoint is polled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rhythm {
    /// When its last poll began; [`Moment::MIN`] before the first one.
    began_at: Moment,
    /// How long from there to the next one.
    wanted_ms: u32,
    /// How long that was in the last rounds, the last one counting a third.
    period_ms: u32,
    /// The same as a part of what was wanted, in thousandths; each round counts as at least one and at most two intervals.
    ratio: u16,
}

impl Rhythm {
    /// A poll has begun, and the next one should begin `interval` later, or at the first multiple that a poll as long as
    /// this one fits into.
    pub(super) fn polled(&mut self, began_at: Moment, interval: Duration, took: Duration) {
        if self.began_at != Moment::MIN {
            self.note_round(began_at.since(self.began_at));
        }
        let rounds = took.as_nanos().div_ceil(interval.as_nanos().max(1)).max(1);
        let wanted = interval.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        (self.began_at, self.wanted_ms) = (began_at, millis(wanted));
    }

    /// The rounds so far say nothing about those to come: the endpoint has become slow, or quick.
    pub(super) fn forget_rounds(&mut self) {
        (self.ratio, self.period_ms) = (0, 0);
    }

    fn note_round(&mut self, period: Duration) {
        let wanted = self.wanted();
        let is_on_time = period <= wanted.saturating_add(GRACE);
        let part = if is_on_time { 1_000 } else { thousandths(period, wanted) };
        let before = if self.ratio == 0 { 1_000 } else { u64::from(self.ratio) };
        self.ratio = u16::try_from((2 * before + part.clamp(1_000, ROUND_MAX)) / 3).unwrap_or(0);
        let before = if self.period_ms == 0 { self.wanted_ms } else { self.period_ms };
        let sum = 2 * u64::from(before) + u64::from(millis(period));
        self.period_ms = u32::try_from(sum / 3).unwrap_or(u32::MAX);
    }

    fn wanted(&self) -> Duration {
        Duration::from_millis(u64::from(self.wanted_ms))
    }

    /// How often it is polled and how often it should be, if it is behind. `waits`: no poll of it runs.
    fn behind(&self, now: Moment, waits: bool) -> Option<(Duration, Duration)> {
        let (waited, wanted) = (now.since(self.began_at), self.wanted());
        let waits_long = waits && 2 * waited >= 5 * wanted && waited >= wanted + GRACE;
        let period = Duration::from_millis(u64::from(self.period_ms));
        match (u64::from(self.ratio) >= BEHIND_FROM, waits_long) {
            (_, true) => Some((period.max(waited), wanted)),
            (true, false) => Some((period, wanted)),
            (false, false) => None,
        }
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn thousandths(of: Duration, whole: Duration) -> u64 {
    u64::from(millis(of)) * 1_000 / u64::from(millis(whole)).max(1)
}

/// What a look at all endpoints has found.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Those that answer quickly and are behind.
    pub(crate) behind: Option<Behind>,
    /// Those that are behind because they share the workers for slow endpoints.
    pub(crate) slow_behind: usize,
    /// How long the endpoint that waits longest for a worker has been due. Slow ones do not count.
    pub(crate) lag: Duration,
}

impl PollSchedule {
    /// Looks at every endpoint.
    pub(crate) fn survey(&self, now: Moment) -> Survey {
        let mut survey = Survey::default();
        let mut behind: Vec<Pace<'_>> = Vec::new();
        for (endpoint, entry) in &self.entries {
            let waits = entry.due_at <= now && !self.running.is_running(endpoint);
            let is_slow = self.is_held_up_by_slow(entry);
            if waits && !is_slow {
                survey.lag = survey.lag.max(now.since(entry.due_at));
            }
            let Some((period, wanted)) = self.behind(entry, now, waits) else { continue };
            match is_slow {
                true => survey.slow_behind += 1,
                false => behind.push((thousandths(period, wanted), period, wanted, endpoint)),
            }
        }
        survey.behind = median(behind);
        survey
    }

    fn behind(&self, entry: &Entry, now: Moment, waits: bool) -> Option<(Duration, Duration)> {
        if entry.rhythm.began_at != Moment::MIN {
            return entry.rhythm.behind(now, waits);
        }
        let (waited, wanted) = (now.since(entry.due_at), self.interval(&entry.session));
        let waits_long = waits && 2 * waited >= 3 * wanted && waited >= wanted + GRACE;
        waits_long.then_some((waited, wanted))
    }

    /// Whether it polls no more often because slow endpoints may have no more workers.
    fn is_held_up_by_slow(&self, entry: &Entry) -> bool {
        match entry.speed {
            Speed::Slow => true,
            Speed::Untried => !self.running.has_room_for_untried(),
            Speed::Quick => false,
        }
    }

    /// The longest that a quick endpoint was due before it was polled, since this was last called.
    pub(crate) fn take_lag(&mut self) -> Duration {
        std::mem::take(&mut self.lag)
    }

    /// Workers that poll slow endpoints now.
    pub(crate) fn slow_running(&self) -> usize {
        self.running.slow()
    }
}

/// The period of an endpoint as a part of its interval, both of them, and the endpoint.
type Pace<'a> = (u64, Duration, Duration, &'a EndpointId);

fn median(mut behind: Vec<Pace<'_>>) -> Option<Behind> {
    let endpoints = behind.len();
    let worst = behind.iter().max().map(|it| it.3.clone());
    let middle = endpoints.checked_sub(1)? / 2;
    let by_part = |it: &Pace<'_>| it.0;
    let (_, &mut (_, period, interval, _), _) = behind.select_nth_unstable_by_key(middle, by_part);
    Some(Behind { endpoints, period, interval, worst })
}
