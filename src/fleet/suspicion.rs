//! Does an instance look dead? Judges what one observer has read about it, look by look (R16). Pure.
//!
//! Being wrong costs a move of leases and never safety: R15 and R16 hold for every hint. So these rules only keep a healthy
//! instance from being revoked often.

use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Hint, SignsOfLife};

/// A subscription that is gone must be gone for this long: a connection that broke is opened again at once.
const UNSUBSCRIBED_FOR: Duration = Duration::from_millis(300);
/// The watcher that is next in line acts first, the second this much later, and so on.
const RANK_DELAY: Duration = Duration::from_millis(200);

/// How long a watcher waits before it believes a hint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    silent_for: Duration,
    unsubscribed_for: Duration,
}

impl Patience {
    /// Of the watcher with this rank.
    pub(crate) fn of(rank: u32, suspect_after: Duration) -> Self {
        let delay = RANK_DELAY * rank;
        let (silent_for, unsubscribed_for) = (suspect_after + delay, UNSUBSCRIBED_FOR + delay);
        Self { silent_for, unsubscribed_for }
    }
}

/// What one observer has seen of one instance, without a gap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspicion {
    /// The last sign of life, and when an answer first had it.
    last_beat: Option<(u64, Moment)>,
    /// It gave another sign of life while it was observed. An instance that cannot write one is never suspected for that.
    has_beaten: bool,
    /// It was subscribed while it was observed.
    was_subscribed: bool,
    /// Since when it is not.
    unsubscribed_at: Option<Moment>,
    /// The last look gave a hint, too.
    is_doubted: bool,
}

impl Suspicion {
    /// Takes in a look that was asked for at `asked_at` and answered at `now`. A hint counts when two looks have given it.
    pub(crate) fn observe(
        &mut self,
        signs: &SignsOfLife,
        asked_at: Moment,
        now: Moment,
        patience: Patience,
    ) -> Option<Hint> {
        let (Some(beats), None) = (signs.beats, signs.revoked_until_ms) else {
            *self = Self::default(); // it cannot be revoked, or it was
            return None;
        };
        let is_silent = self.note_beat(beats, asked_at, now, patience.silent_for);
        let is_gone =
            self.note_subscribers(signs.subscribers, asked_at, now, patience.unsubscribed_for);
        let hint = match (is_silent, is_gone) {
            (true, _) => Some(Hint::NoHeartbeat { beats }),
            (_, true) => Some(Hint::NoSubscriber),
            _ => None,
        };
        let was_doubted = std::mem::replace(&mut self.is_doubted, hint.is_some());
        hint.filter(|_| was_doubted)
    }

    /// Whether the last look gave a hint that is to be checked again.
    pub(crate) fn is_doubted(&self) -> bool {
        self.is_doubted
    }

    /// Whether it has given no sign of life for `silent_for`. The time counts from the answer that first had the last one.
    fn note_beat(
        &mut self,
        beats: u64,
        asked_at: Moment,
        now: Moment,
        silent_for: Duration,
    ) -> bool {
        match self.last_beat {
            Some((last, since)) if last == beats => {
                self.has_beaten && asked_at.since(since) >= silent_for
            }
            earlier => {
                self.has_beaten |= earlier.is_some();
                self.last_beat = Some((beats, now));
                self.unsubscribed_at = None; // it is alive
                false
            }
        }
    }

    /// Whether its subscription has been gone for `unsubscribed_for`.
    fn note_subscribers(
        &mut self,
        subscribers: Option<u32>,
        asked_at: Moment,
        now: Moment,
        unsubscribed_for: Duration,
    ) -> bool {
        match subscribers {
            Some(0) if self.was_subscribed => {
                let since = *self.unsubscribed_at.get_or_insert(now);
                asked_at.since(since) >= unsubscribed_for
            }
            subscribers => {
                self.was_subscribed |= subscribers.is_some_and(|it| it > 0);
                self.unsubscribed_at = None;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUSPECT_AFTER: Duration = Duration::from_secs(3);

    /// Looks every 150 ms at an instance that is told by `signs`; when the first hint counted, in milliseconds.
    fn first_hint(signs: impl Fn(u64) -> SignsOfLife, until_ms: u64) -> Option<(u64, Hint)> {
        let mut suspicion = Suspicion::default();
        (0..=until_ms).step_by(150).find_map(|ms| {
            let at = |ms| Moment::from_nanos(1) + Duration::from_millis(ms);
            let hint =
                suspicion.observe(&signs(ms), at(ms), at(ms + 1), Patience::of(0, SUSPECT_AFTER));
            hint.map(|it| (ms, it))
        })
    }

    fn signs(beats: u64, subscribers: u32) -> SignsOfLife {
        let (beats, subscribers) = (Some(beats), Some(subscribers));
        SignsOfLife { beats, subscribers, revoked_until_ms: None }
    }

    #[test]
    fn an_instance_that_beats_and_subscribes_is_not_suspected() {
        assert_eq!(first_hint(|ms| signs(ms / 750, 1), 60_000), None);
    }

    #[test]
    fn an_instance_that_stands_still_for_two_thirds_of_the_time_is_not_suspected() {
        // It stands still from 5 s to 7.2 s, right before a sign of life that was due.
        let beats = |ms: u64| if (5_000..7_200).contains(&ms) { 6 } else { ms / 750 };
        assert_eq!(first_hint(|ms| signs(beats(ms), 1), 60_000), None);
    }

    #[test]
    fn silence_counts_from_the_last_sign_of_life_and_is_seen_twice() {
        let (at, hint) = first_hint(|ms| signs(ms.min(5_000) / 750, 1), 60_000).unwrap();
        assert_eq!(hint, Hint::NoHeartbeat { beats: 6 });
        assert!((4_500 + 3_150..4_500 + 3_600).contains(&at), "{at}");
    }

    #[test]
    fn a_subscription_that_ended_counts_when_it_stays_away() {
        let killed = |ms: u64| signs(ms.min(5_300) / 750, u32::from(ms < 5_300));
        let (at, hint) = first_hint(killed, 60_000).unwrap();
        assert_eq!(hint, Hint::NoSubscriber);
        assert!((5_300 + 300..5_300 + 750).contains(&at), "{at}");
        let briefly = |ms: u64| u32::from(!(5_300..5_500).contains(&ms));
        assert_eq!(first_hint(|ms| signs(ms / 750, briefly(ms)), 60_000), None);
    }

    #[test]
    fn what_was_never_there_is_not_missed() {
        assert_eq!(first_hint(|ms| signs(ms / 750, 0), 60_000), None, "it may not subscribe");
        assert_eq!(first_hint(|_| signs(7, 1), 60_000), None, "it may not write");
        let unable = |_| SignsOfLife { beats: None, ..signs(0, 0) };
        assert_eq!(first_hint(unable, 60_000), None);
    }

    #[test]
    fn a_revoked_instance_is_judged_anew_when_it_comes_back() {
        let revoked = |ms| SignsOfLife {
            revoked_until_ms: (5_000..7_000).contains(&ms).then_some(1),
            ..signs(3, 1)
        };
        assert_eq!(first_hint(revoked, 60_000), None);
    }
}
