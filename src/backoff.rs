//! When may a failed attempt be repeated? Exponential backoff per key: each pause is twice as long. Pure.

use std::hash::Hash;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;

/// The pause of each key, its end, and the length of the next.
#[derive(Debug)]
pub(crate) struct Backoff<K> {
    first: Duration,
    longest: Duration,
    pauses: FnvHashMap<K, (Moment, Duration)>,
}

impl<K: Eq + Hash + Clone> Backoff<K> {
    /// The first of these lasts that long, and none longer than `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, pauses: FnvHashMap::default() }
    }

    /// An attempt failed: a pause begins, unless one runs. Failures older than `longest` are forgotten.
    pub(crate) fn fail(&mut self, key: &K, now: Moment) {
        let longest = self.longest;
        self.pauses.retain(|_, it| now.since(it.0) < longest);
        let (until, next) = self.pauses.get(key).copied().unwrap_or((Moment::MIN, self.first));
        if now >= until {
            self.pauses.insert(key.clone(), (now + next, (next * 2).min(longest)));
        }
    }

    /// Until when there is a pause, if there ever was one.
    pub(crate) fn until(&self, key: &K) -> Moment {
        self.pauses.get(key).map_or(Moment::MIN, |it| it.0)
    }

    pub(crate) fn is_paused(&self, key: &K, now: Moment) -> bool {
        self.pauses.get(key).is_some_and(|it| now < it.0)
    }

    /// An attempt succeeded; true when there had been a failure.
    pub(crate) fn end(&mut self, key: &K) -> bool {
        self.pauses.remove(key).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.pauses.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1 << 40);
    const S: Duration = Duration::from_secs(1);

    #[test]
    fn each_pause_is_twice_as_long_as_the_one_before_up_to_the_longest() {
        let mut pauses = Backoff::new(30 * S, 300 * S);
        let mut now = NOW;
        for lasts in [30, 60, 120, 240, 300, 300] {
            assert!(!pauses.is_paused(&"b", now), "{lasts}");
            pauses.fail(&"b", now);
            pauses.fail(&"b", now + S); // counts once
            assert!(pauses.is_paused(&"b", now + lasts * S - S / 2), "{lasts}");
            assert!(!pauses.is_paused(&"c", now));
            now = now + lasts * S;
        }
        assert!(pauses.end(&"b") && !pauses.end(&"b"));
        pauses.fail(&"b", now);
        assert!(!pauses.is_paused(&"b", now + 30 * S), "it begins anew");
        pauses.fail(&"b", now + 1_000 * S);
        assert!(!pauses.is_paused(&"b", now + 1_030 * S), "what failed long ago is forgotten");
    }
}
