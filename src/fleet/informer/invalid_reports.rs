//! Which invalid sessions are logged? Names them up to a limit, then counts the rest. Touches the log and the metrics.
//!
//! An application may keep keys of its own under the session prefix and write thousands of them a second. Naming each
//! would fill the journal, so after [`NAMED_MAX`] names in a [`WINDOW`] the rest of that window is one line.

use std::time::Duration;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::context::ReadContext;
use crate::fleet::session_cache::SessionChanges;

/// Sessions named in one window.
const NAMED_MAX: usize = 100;
/// How long a window lasts, counted from the first name in it.
const WINDOW: Duration = Duration::from_secs(60);

/// How many sessions were named in the current window, and how many were not.
#[derive(Debug, Default)]
struct Window {
    ends_at: Moment,
    named: usize,
    unreported: usize,
}

impl Window {
    /// Whether one more session may be named at `now`; counts it if not.
    fn may_name(&mut self, now: Moment) -> bool {
        if now >= self.ends_at {
            (self.ends_at, self.named) = (now + WINDOW, 0);
        }
        let may = self.named < NAMED_MAX;
        if may {
            self.named += 1;
        } else {
            self.unreported += 1;
        }
        may
    }

    /// How many sessions were not named in the window that has ended, once.
    fn take_unreported(&mut self, now: Moment) -> Option<usize> {
        if now < self.ends_at {
            return None;
        }
        Some(std::mem::take(&mut self.unreported)).filter(|it| *it > 0)
    }
}

/// One limit for invalid sessions, and one for fields that were probably meant to be others.
#[derive(Debug, Default)]
pub(super) struct InvalidReports {
    invalid: Window,
    odd: Window,
}

impl InvalidReports {
    /// Logs and removes the invalid sessions and the odd fields in `changes`. Odd fields beyond the limit are not
    /// counted: `explain` and `sessions list` show them at any time.
    pub(super) fn report(&mut self, context: &ReadContext, changes: &mut SessionChanges) {
        let now = context.now();
        if let Some(count) = self.invalid.take_unreported(now) {
            context.reporter.report(&Event::SessionUnreported { count });
        }
        for (endpoint, error) in std::mem::take(&mut changes.invalid) {
            let event = Event::SessionInvalid { endpoint: &endpoint, error: &error };
            if self.invalid.may_name(now) {
                context.reporter.report(&event);
            } else {
                context.table.metrics().count(&event);
            }
        }
        for (endpoint, odd) in std::mem::take(&mut changes.odd) {
            for reason in odd.iter().filter(|_| self.odd.may_name(now)) {
                context.reporter.report(&Event::SessionOdd { endpoint: &endpoint, reason });
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
        let mut window = Window::default();
        let named = (0..NAMED_MAX + 50).filter(|_| window.may_name(at(5_000))).count();
        assert_eq!((named, window.take_unreported(at(64_999))), (NAMED_MAX, None));
        assert_eq!([(); 2].map(|()| window.take_unreported(at(65_000))), [Some(50), None]);
        assert!(window.may_name(at(65_000)), "a new window");
    }
}
