//! What does the polling of this instance achieve? Counts the last minute, and looks at all endpoints now and then.
//!
//! Dispatch keeps it, and leaves what it finds with the metrics; the thread `heartbeat` copies it from there.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Moment;
use crate::metrics::{Metrics, PollTotals};
use crate::model::PollingInfo;
use crate::polling::schedule::PollSchedule;

/// A minute consists of this many parts …
const PARTS: usize = 12;
/// … of this length.
const PART: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
/// Rates of an instance that has just started are those of at least this time.
const LEAST: Duration = Duration::from_secs(10);
/// All endpoints are looked at this often …
const SURVEY_EVERY: Duration = Duration::from_secs(2);
/// … and for at most one part in this many of the time.
const SURVEY_SHARE: u32 = 200;

/// What happened in a part of the last minute.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    lasted: Duration,
    /// Of all workers together.
    worked: Duration,
    ended: u64,
    skipped: u64,
    deferred: u64,
    lag: Duration,
}

impl Part {
    fn add(&mut self, other: &Self) {
        self.lasted += other.lasted;
        self.worked += other.worked;
        self.ended += other.ended;
        self.skipped += other.skipped;
        self.deferred += other.deferred;
        self.lag = self.lag.max(other.lag);
    }
}

/// What happened in the last minute.
#[derive(Debug, Default)]
struct LastMinute {
    parts: VecDeque<Part>,
    /// When the totals were read last, and what they were.
    read: Option<(Moment, PollTotals)>,
}

impl LastMinute {
    fn note(&mut self, now: Moment, totals: PollTotals, lag: Duration) {
        let Some((at, before)) = self.read.replace((now, totals)) else { return };
        let lasted = now.since(at);
        if lasted >= MINUTE {
            self.parts.clear(); // nothing is known of it
        }
        let running = u32::try_from(totals.running).unwrap_or(u32::MAX);
        let since = Part {
            lasted,
            worked: lasted.saturating_mul(running),
            ended: totals.ended.saturating_sub(before.ended),
            skipped: totals.skipped.saturating_sub(before.skipped),
            deferred: totals.deferred.saturating_sub(before.deferred),
            lag,
        };
        if self.parts.back().is_none_or(|it| it.lasted >= PART) {
            self.parts.push_back(Part::default());
        }
        if let Some(last) = self.parts.back_mut() {
            last.add(&since);
        }
        if self.parts.len() > PARTS {
            self.parts.pop_front();
        }
    }

    fn sum(&self) -> Part {
        let mut sum = Part::default();
        self.parts.iter().for_each(|it| sum.add(it));
        sum
    }
}

/// What the polling achieves.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    last_minute: LastMinute,
    survey_at: Moment,
}

impl Throughput {
    /// Counts what happened since the last call. Looks at all endpoints when it is time, and leaves what it finds with the
    /// metrics. `clock` tells how long that took.
    pub(crate) fn step(
        &mut self,
        schedule: &mut PollSchedule,
        metrics: &Metrics,
        clock: impl Fn() -> Moment,
    ) {
        let now = clock();
        self.last_minute.note(now, metrics.poll_totals(), schedule.take_lag());
        if now < self.survey_at {
            return;
        }
        metrics.set_polling_info(self.info(schedule, metrics, now));
        let took = clock().since(now);
        self.survey_at = now + SURVEY_EVERY.max(took.saturating_mul(SURVEY_SHARE));
    }

    fn info(&self, schedule: &PollSchedule, metrics: &Metrics, now: Moment) -> PollingInfo {
        let (sum, survey) = (self.last_minute.sum(), schedule.survey(now));
        let lasted = sum.lasted.as_millis().max(1);
        let per_min = |count: u64| {
            let rate = u128::from(count) * MINUTE.as_millis() / lasted.max(LEAST.as_millis());
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let busy = (sum.worked.as_millis() + lasted / 2) / lasted;
        PollingInfo {
            workers: schedule.workers(),
            busy: usize::try_from(busy).unwrap_or(usize::MAX).min(schedule.workers()),
            threads: metrics.pollers().load(Ordering::Relaxed),
            slow: schedule.slow_running(),
            polls_per_min: per_min(sum.ended),
            skipped_per_min: per_min(sum.skipped),
            deferred_per_min: per_min(sum.deferred),
            lag: sum.lag.max(survey.lag),
            behind: survey.behind,
            slow_behind: survey.slow_behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Moment {
        Moment::from_nanos((1_000 + s) * 1_000_000_000)
    }

    fn totals(ended: u64, running: usize) -> PollTotals {
        PollTotals { ended, skipped: ended / 10, deferred: ended / 100, running }
    }

    #[test]
    fn what_happened_more_than_a_minute_ago_is_forgotten() {
        let mut minute = LastMinute::default();
        let lag = |s: u64| if s == 10 { Duration::from_secs(7) } else { Duration::ZERO };
        (0..=40).for_each(|s| minute.note(at(s), totals(100 * s, 4), lag(s)));
        let sum = minute.sum();
        assert_eq!((sum.ended, sum.skipped, sum.deferred), (4_000, 400, 40));
        assert_eq!((sum.lasted, sum.worked), (Duration::from_secs(40), Duration::from_secs(160)));
        assert_eq!(sum.lag, Duration::from_secs(7));
        (41..=300).for_each(|s| minute.note(at(s), totals(4_000, 0), lag(s)));
        let sum = minute.sum();
        assert_eq!((sum.ended, sum.worked, sum.lag), (0, Duration::ZERO, Duration::ZERO));
        assert!(sum.lasted <= MINUTE && sum.lasted + PART >= MINUTE, "{:?}", sum.lasted);
    }

    /// A suspended machine polls nothing, and nobody wants to know for a minute how little that was.
    #[test]
    fn a_pause_of_more_than_a_minute_clears_the_minute() {
        let mut minute = LastMinute::default();
        (0..=30).for_each(|s| minute.note(at(s), totals(100 * s, 4), Duration::ZERO));
        minute.note(at(4_000), totals(3_100, 4), Duration::ZERO);
        assert_eq!(minute.sum().ended, 100);
    }
}
