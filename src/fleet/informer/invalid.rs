//! Says which sessions cannot be understood: by name up to a limit, then as a count.
//!
//! An application may keep keys of its own under the session prefix and write thousands of them a second. Naming each
//! would fill the journal, so after [`NAMED_MAX`] names in a [`WINDOW`] the rest of that window is one line.

use std::time::Duration;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::Informer;

/// Sessions named in one window.
const NAMED_MAX: usize = 100;
/// How long a window lasts, counted from the first name in it.
const WINDOW: Duration = Duration::from_secs(60);

/// What was reported in the current window.
#[derive(Debug)]
pub(super) struct InvalidReports {
    window_ends: Moment,
    named: usize,
    unreported: usize,
}

impl Default for InvalidReports {
    fn default() -> Self {
        Self { window_ends: Moment::MIN, named: 0, unreported: 0 }
    }
}

impl InvalidReports {
    /// Whether one more may be named at `now`; counts it if not.
    fn may_name(&mut self, now: Moment) -> bool {
        if now >= self.window_ends {
            (self.window_ends, self.named) = (now + WINDOW, 0);
        }
        let may = self.named < NAMED_MAX;
        if may {
            self.named += 1;
        } else {
            self.unreported += 1;
        }
        may
    }

    /// How many were not named in the window that has ended, told once.
    fn take_unreported(&mut self, now: Moment) -> Option<usize> {
        if now < self.window_ends {
            return None;
        }
        Some(std::mem::take(&mut self.unreported)).filter(|it| *it > 0)
    }
}

impl Informer {
    /// Reports the sessions that were found not to be understood since this was last called, and the odd fields of
    /// others. Odd fields beyond the limit are not counted: `explain` and `sessions list` show them at any time.
    pub(super) fn tell_invalid(&mut self) {
        let now = self.table.now();
        if let Some(count) = self.invalid_reports.take_unreported(now) {
            self.reporter.say(&Event::SessionUnreported { count });
        }
        for (endpoint, error) in std::mem::take(&mut self.news.invalid) {
            let event = Event::SessionInvalid { endpoint: &endpoint, error: &error };
            if self.invalid_reports.may_name(now) {
                self.reporter.say(&event);
            } else {
                self.table.metrics().count(&event);
            }
        }
        for (endpoint, odd) in std::mem::take(&mut self.news.odd) {
            for reason in odd.iter().filter(|_| self.odd_reports.may_name(now)) {
                self.reporter.say(&Event::SessionOdd { endpoint: &endpoint, reason });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_window_begins_with_its_first_name_and_what_is_not_named_is_counted_once() {
        let mut reports = InvalidReports::default();
        let named = (0..NAMED_MAX + 50).filter(|_| reports.may_name(at(5_000))).count();
        assert_eq!((named, reports.take_unreported(at(64_999))), (NAMED_MAX, None));
        assert_eq!([(); 2].map(|()| reports.take_unreported(at(65_000))), [Some(50), None]);
        assert!(reports.may_name(at(65_000)), "a new window");
    }
}
