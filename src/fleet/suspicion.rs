//! Does an instance look dead? Judges what one observer has read about it, look by look (R16). Pure.
//!
//! Being wrong costs a move of leases and never safety: R15 and R16 hold for every hint. So these rules only keep a healthy
//! instance from being revoked often.

use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Hint, SignsOfLife};

/// An instance whose subscription is gone is silent when this part of `--suspect-after` has passed: an instance that is alive gives
/// a sign of life in an eighth of it.
const UNSUBSCRIBED_PART: u32 = 6;
/// An instance is not silent before it has missed this many signs of life, by the time that it usually takes for one.
const MISSED: u32 = 4;
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
        let unsubscribed_for = suspect_after / UNSUBSCRIBED_PART + delay;
        Self { silent_for: suspect_after + delay, unsubscribed_for }
    }
}

/// What one observer has seen of one instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspicion {
    /// The last sign of life, and when an answer first had it. `None` after a gap in the looks.
    last_beat: Option<(u64, Moment)>,
    /// The longest recent time from one sign of life to the next. Shrinks by an eighth with each.
    usual_gap: Duration,
    /// It gave another sign of life while it was observed. An instance that cannot write one is never suspected for that.
    has_beaten: bool,
    /// It was subscribed while it was observed.
    was_subscribed: bool,
    /// The last look gave a hint, or its subscription was gone.
    is_doubted: bool,
    /// The last look gave a hint.
    was_hinted: bool,
    /// It could not be revoked, and is not tried again before.
    spared_until: Moment,
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
        let silent_for = self.note_beat(beats, asked_at, now);
        let is_unsubscribed = self.was_subscribed && signs.subscribers == Some(0);
        self.was_subscribed |= signs.subscribers.is_some_and(|it| it > 0);
        let hint = if silent_for >= patience.silent_for.max(self.usual_gap * MISSED) {
            Some(Hint::NoHeartbeat { beats })
        } else if is_unsubscribed && silent_for >= patience.unsubscribed_for.max(self.usual_gap) {
            Some(Hint::NoSubscriber { beats })
        } else {
            None
        };
        self.is_doubted = is_unsubscribed || hint.is_some();
        let was_hinted = std::mem::replace(&mut self.was_hinted, hint.is_some());
        hint.filter(|_| was_hinted && now >= self.spared_until)
    }

    /// Whether the next look should come soon.
    pub(crate) fn is_doubted(&self) -> bool {
        self.is_doubted
    }

    /// There was a gap in the looks: silence counts from the next one on. That the instance was alive is not forgotten.
    pub(crate) fn restart(&mut self) {
        (self.last_beat, self.was_hinted) = (None, false);
    }

    /// It could not be revoked.
    pub(crate) fn spare(&mut self, until: Moment) {
        self.spared_until = until;
    }

    /// For how long it has given no sign of life, counted from the answer that first had the last one. Zero for an instance that
    /// never gave another one.
    fn note_beat(&mut self, beats: u64, asked_at: Moment, now: Moment) -> Duration {
        match self.last_beat {
            Some((last, since)) if last == beats && self.has_beaten => asked_at.since(since),
            Some((last, _)) if last == beats => Duration::ZERO,
            earlier => {
                if let Some((_, since)) = earlier {
                    self.has_beaten = true;
                    self.usual_gap = now.since(since).max(self.usual_gap - self.usual_gap / 8);
                }
                self.last_beat = Some((beats, now));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUSPECT_AFTER: Duration = Duration::from_secs(3);
    /// From one sign of life to the next.
    const BEAT: u64 = 375;

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
        assert_eq!(first_hint(|ms| signs(ms / BEAT, 1), 60_000), None);
    }

    #[test]
    fn an_instance_that_stands_still_for_four_fifths_of_the_time_is_not_suspected() {
        // It stands still from 5 s to 7.4 s, right before a sign of life that was due.
        let beats = |ms: u64| if (5_000..7_400).contains(&ms) { 13 } else { ms / BEAT };
        assert_eq!(first_hint(|ms| signs(beats(ms), 1), 60_000), None);
    }

    #[test]
    fn silence_counts_from_the_last_sign_of_life_and_is_seen_twice() {
        let (at, hint) = first_hint(|ms| signs(ms.min(5_000) / BEAT, 1), 60_000).unwrap();
        assert_eq!(hint, Hint::NoHeartbeat { beats: 13 });
        assert!((4_875 + 3_150..4_875 + 3_600).contains(&at), "{at}");
    }

    #[test]
    fn one_look_is_not_enough() {
        // The look at 7.95 s finds it silent for 3 s, the next one does not.
        let beats = |ms: u64| if (4_875..8_000).contains(&ms) { 13 } else { ms / BEAT };
        assert_eq!(first_hint(|ms| signs(beats(ms), 1), 20_000), None);
    }

    /// Its `--suspect-after` may be longer than that of its watcher.
    #[test]
    fn an_instance_that_gives_seldom_signs_of_life_has_more_time() {
        assert_eq!(first_hint(|ms| signs(ms / 2_500, 1), 60_000), None);
        let (at, _) = first_hint(|ms| signs(ms.min(20_000) / 2_500, 1), 60_000).unwrap();
        assert!((30_000..31_000).contains(&at), "after four times 2.5 s: {at}");
    }

    #[test]
    fn an_instance_whose_subscription_is_gone_is_suspected_sooner() {
        let killed = |ms: u64| signs(ms.min(5_300) / BEAT, u32::from(ms < 5_300));
        let (at, hint) = first_hint(killed, 60_000).unwrap();
        assert_eq!(hint, Hint::NoSubscriber { beats: 14 });
        assert!((5_300..5_300 + 900).contains(&at), "{at}");
    }

    /// It stops, and its polls end; or the server has closed a subscription that it did not read.
    #[test]
    fn an_instance_without_a_subscription_that_is_alive_is_not_suspected() {
        assert_eq!(first_hint(|ms| signs(ms / BEAT, u32::from(ms < 5_300)), 60_000), None);
    }

    #[test]
    fn what_was_never_there_is_not_missed() {
        assert_eq!(first_hint(|ms| signs(ms / BEAT, 0), 60_000), None, "it may not subscribe");
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

    #[test]
    fn a_gap_in_the_looks_restarts_the_time_and_forgets_no_evidence() {
        let at = |ms| Moment::from_nanos(1) + Duration::from_millis(ms);
        let patience = Patience::of(0, SUSPECT_AFTER);
        let mut suspicion = Suspicion::default();
        for ms in (0..1_500).step_by(150) {
            suspicion.observe(&signs(ms / BEAT, 1), at(ms), at(ms + 1), patience);
        }
        suspicion.restart();
        let mut first = (1_500..20_000).step_by(150).filter_map(|ms| {
            suspicion.observe(&signs(3, 1), at(ms), at(ms + 1), patience).map(|_| ms)
        });
        let first = first.next().unwrap();
        assert!((1_500 + 3_000..1_500 + 3_600).contains(&first), "{first}");
    }
}
