//! When are written names read that are not in the view? In batches. The longer no session to poll was among them, the
//! less often. Touches nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Moment;
use crate::model::EndpointId;
use crate::store::BATCH_MAX;

/// From one lookup to the next, if the last one found a session to poll …
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// … and at most, if one lookup after the other found none. A new session waits no longer than this.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Written names that are not in the view, each once, until they are looked up. The first one is looked up at once.
#[derive(Debug)]
pub(super) struct UnknownNames {
    waiting: BTreeSet<EndpointId>,
    next: Moment,
    pause: Duration,
}

impl Default for UnknownNames {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), next: Moment::MIN, pause: PAUSE_MIN }
    }
}

impl UnknownNames {
    pub(super) fn insert(&mut self, endpoint: EndpointId) {
        self.waiting.insert(endpoint);
    }

    pub(super) fn next(&self) -> Option<Moment> {
        (!self.waiting.is_empty()).then_some(self.next)
    }

    /// A batch of the names that may be looked up at `now`.
    pub(super) fn due(&self, now: Moment) -> Vec<EndpointId> {
        let is_due = self.next().is_some_and(|it| it <= now);
        self.waiting.iter().take(if is_due { BATCH_MAX } else { 0 }).cloned().collect()
    }

    /// Removes a batch that was looked up. A pause begins once no name is left.
    pub(super) fn looked_up(&mut self, batch: &[EndpointId], now: Moment) {
        for it in batch {
            self.waiting.remove(it);
        }
        if self.waiting.is_empty() {
            if now >= self.next + PAUSE_MAX {
                self.pause = PAUSE_MIN; // nothing was written for a while
            }
            self.next = now + self.pause;
            self.pause = (2 * self.pause).min(PAUSE_MAX);
        }
    }

    /// A session to poll was among them: more may follow soon.
    pub(super) fn found(&mut self, now: Moment) {
        self.pause = PAUSE_MIN;
        self.next = self.next.min(now + PAUSE_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// A key of another database that is written all the time costs two exchanges a second.
    #[test]
    fn unknown_names_are_looked_up_more_and_more_seldom_until_one_is_to_be_polled() {
        let [a, b] = ["a", "b"].map(|it| EndpointId::parse(it).unwrap());
        let mut names = UnknownNames::default();
        let looked_up_at = |names: &mut UnknownNames, from: u64, until: u64| {
            let mut times = Vec::new();
            for ms in from..until {
                names.waiting.extend([a.clone(), b.clone()]);
                let due = names.due(at(ms));
                if !due.is_empty() {
                    assert_eq!(due.len(), 2, "both at once");
                    names.looked_up(&due, at(ms));
                    times.push(ms);
                }
            }
            times
        };
        let times = looked_up_at(&mut names, 10_000, 12_500);
        assert_eq!(times, [10_000, 10_050, 10_150, 10_350, 10_750, 11_250, 11_750, 12_250]);
        names.found(at(12_500));
        assert_eq!(looked_up_at(&mut names, 12_500, 12_800), [12_550, 12_600, 12_700]);
        names.waiting.clear();
        assert_eq!(names.next(), None);
        assert_eq!(looked_up_at(&mut names, 20_000, 20_100), [20_000, 20_050], "after a rest");
    }
}
