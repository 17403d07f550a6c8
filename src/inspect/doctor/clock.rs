//! Does the server's clock run as ours does? Leases are safe as long as the rates differ by less than 3 %.
//!
//! A reading is only known to lie between question and answer, so every difference has bounds; nothing is
//! called wrong that latency can explain.

use std::time::Duration;

use crate::inspect::doctor::{Finding, ms};
use crate::model::LeaseDuration;
use crate::store::admin::probe::Reading;

/// More than this deserves a look, in percent: a clock that is being slewed runs off by 0.05.
const WARN_PERCENT: f64 = 0.1;

/// How far the server's clock got while ours went on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// By how many percent it is faster, as far as that can be told: somewhere between these.
    percent: (f64, f64),
    /// The largest jump between two readings that nothing of ours explains, in seconds; backward is negative.
    jump: f64,
    watched: Duration,
    n_readings: usize,
}

/// Seconds that passed here between two readings, at least and at most, and there.
fn passed(earlier: &Reading, later: &Reading) -> (f64, f64, f64) {
    let least = later.asked_at.since(earlier.answered_at);
    let most = later.answered_at.since(earlier.asked_at);
    let there = seconds(later.server_us) - seconds(earlier.server_us);
    (least.as_secs_f64(), most.as_secs_f64(), there)
}

#[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 fit into 52 bits")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

impl Drift {
    /// Of at least two readings, in order.
    pub fn of(readings: &[Reading]) -> Self {
        let latency = |it: &&Reading| it.answered_at.since(it.asked_at);
        let part = readings.len().div_ceil(4);
        // The sharpest of the first and of the last say most.
        let first = readings[..part].iter().min_by_key(latency);
        let last = readings[readings.len() - part..].iter().min_by_key(latency);
        let (Some(first), Some(last)) = (first, last) else {
            let percent = (f64::NEG_INFINITY, f64::INFINITY);
            return Self { percent, jump: 0.0, watched: Duration::ZERO, n_readings: 0 };
        };
        let (least, most, there) = passed(first, last);
        let percent = |here: f64| if here > 0.0 { (there / here - 1.0) * 100.0 } else { f64::NAN };
        let bounds = (percent(most), percent(least));
        let bounds = match least > 0.0 {
            true => (bounds.0.min(bounds.1), bounds.0.max(bounds.1)),
            false => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let jumps = readings.windows(2).map(|it| {
            let (least, most, there) = passed(&it[0], &it[1]);
            if there > most { there - most } else { (there - least).min(0.0) }
        });
        let jump = jumps.max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
        let watched = last.answered_at.since(first.asked_at);
        Self { percent: bounds, jump, watched, n_readings: readings.len() }
    }

    /// By how many percent it is off at the least, whatever latency did.
    fn certain(&self) -> f64 {
        let (low, high) = self.percent;
        if low > 0.0 {
            low
        } else if high < 0.0 {
            high
        } else {
            0.0
        }
    }

    /// What it means for leases with this margin.
    pub fn judged(&self, margin: Duration) -> Finding {
        let check = "clock";
        let (low, high) = self.percent;
        let over = format!("{} readings in {:.1} s", self.n_readings, self.watched.as_secs_f64());
        let certain = self.certain();
        let explains = self.jump.abs() > (certain / 100.0).abs() * self.watched.as_secs_f64() / 2.0;
        let found = if certain.abs() > WARN_PERCENT && explains {
            let way = if self.jump > 0.0 { "forward" } else { "back" };
            let by = ms(Duration::from_secs_f64(self.jump.abs().min(1e9)));
            format!("it stepped {way} by {by} while we looked ({over})")
        } else {
            format!("its rate differs from ours by {low:+.3} to {high:+.3} % ({over})")
        };
        let limit = f64::from(LeaseDuration::RATE_PERCENT);
        if certain.abs() > limit {
            let way_out = "let it be slewed, not stepped (chrony without makestep), and mend the \
                           host whose clock is wrong: this one's or the server's";
            return Finding::fail(
                check,
                format!(
                    "{found}: more than the {limit} % that leases allow for, and a step forward of more \
                     than {} can make two owners",
                    ms(margin)
                ),
                way_out,
            );
        }
        if certain.abs() > WARN_PERCENT {
            let way_out = "look at what keeps the clocks right, on both hosts; then look again with --for 30s";
            return Finding::warn(check, format!("{found}; leases allow for {limit} %"), way_out);
        }
        if high - low > 2.0 * limit {
            let way_out = "look longer: --for 30s";
            let found = format!("{found}: latency hides the rest, so it cannot be told");
            return Finding::warn(check, found, way_out);
        }
        Finding::ok(check, format!("{found}; leases allow for {limit} %"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::inspect::doctor::Grade;

    const MARGIN: Duration = Duration::from_secs(1);

    /// Readings every 50 ms for two seconds, each taking `latency_us`, of a server whose clock shows
    /// `server` of ours.
    fn readings(latency_us: u64, server: impl Fn(f64) -> f64) -> Vec<Reading> {
        (0..=40_u64)
            .map(|n| {
                let us = n * 50_000;
                let answered_at = Moment::from_nanos((us + latency_us) * 1_000);
                let asked_at = Moment::from_nanos(us * 1_000);
                let there = server(seconds(us + latency_us / 2));
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a test"
                )]
                let server_us = (1.7e15 + there * 1e6) as u64;
                Reading { asked_at, answered_at, server_us }
            })
            .collect()
    }

    fn judged(latency_us: u64, server: impl Fn(f64) -> f64) -> Finding {
        Drift::of(&readings(latency_us, server)).judged(MARGIN)
    }

    #[test]
    fn a_clock_like_ours_is_fine_at_any_latency_that_lets_us_tell() {
        for latency in [100, 1_000, 20_000] {
            let it = judged(latency, |here| here);
            assert_eq!(it.grade, Grade::Ok, "{it:?}");
        }
        assert_eq!(judged(500_000, |here| here).grade, Grade::Warn, "it cannot be told");
    }

    #[test]
    fn a_rate_is_judged_by_what_latency_cannot_explain() {
        for (percent, grade) in [
            (0.05, Grade::Ok),
            (-0.05, Grade::Ok),
            (1.0, Grade::Warn),
            (-1.0, Grade::Warn),
            (5.0, Grade::Fail),
            (-5.0, Grade::Fail),
        ] {
            let it = judged(100, |here| here * (1.0 + percent / 100.0));
            assert_eq!(it.grade, grade, "{percent}: {it:?}");
            assert!(it.found.starts_with("its rate differs"), "{it:?}");
        }
        assert_eq!(judged(200_000, |here| here * 1.01).grade, Grade::Warn, "it cannot be told");
    }

    #[test]
    fn a_step_is_called_a_step() {
        for (step, words) in [(0.5, "stepped forward by"), (-0.5, "stepped back by")] {
            let it = judged(100, |here| if here > 1.0 { here + step } else { here });
            assert_eq!(it.grade, Grade::Fail, "{it:?}");
            assert!(it.found.contains(words), "{it:?}");
        }
    }
}
