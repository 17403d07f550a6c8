//! Do results get through to a store that answers everything else? Pure.

use std::time::Duration;

use crate::clock::Moment;
use crate::model::FenceToken;
use crate::polling::outbox::size;
use crate::store::Publication;

/// A fence that was never granted: real ones are server times in microseconds, or higher.
const NOBODYS: FenceToken = FenceToken(1);

/// Whether results get through.
///
/// The way to the store may carry small requests, such as renewals, and lose large ones. Such an owner keeps its
/// leases, and nobody learns its results. It is *stuck* when, while its leases are renewed, more results were
/// given up without an answer than answered. It is no longer when a call as large as the largest that got no
/// answer gets one.
#[derive(Debug)]
pub(super) struct Reach {
    /// Results are counted in this one and the one before it.
    window: Duration,
    began: Moment,
    answered: [usize; 2],
    given_up: [usize; 2],
    /// The largest call without an answer since one as large had one.
    largest: Vec<Publication>,
    stuck: bool,
}

impl Reach {
    /// Counts in windows of this length.
    pub(super) fn new(window: Duration) -> Self {
        let [answered, given_up] = [[0; 2]; 2];
        Self { window, began: Moment::MIN, answered, given_up, largest: Vec::new(), stuck: false }
    }

    /// More results are given up than get an answer.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// What to try again while results are stuck, and nothing else waits. R4: under a fence that nobody has, so that
    /// no store takes it. Its lease may have been released since, and a failover may have brought the lease back.
    pub(super) fn probe(&self) -> &[Publication] {
        &self.largest
    }

    /// A call about these was answered, whatever the answer. True when results are no longer stuck.
    pub(super) fn answered(&mut self, batch: &[Publication], now: Moment) -> bool {
        self.turn(now);
        self.answered[0] += batch.len();
        if total(batch) < total(&self.largest) {
            return false;
        }
        self.largest.clear();
        if self.stuck {
            (self.answered, self.given_up) = ([0; 2], [0; 2]);
        }
        std::mem::take(&mut self.stuck)
    }

    /// A call about these got no answer.
    pub(super) fn unanswered(&mut self, batch: &[Publication]) {
        if total(batch) > total(&self.largest) {
            self.largest = batch.to_vec();
            self.largest.iter_mut().for_each(|it| it.tenure.fence = NOBODYS);
        }
    }

    /// This many results were given up because no call with them got an answer, although their leases were renewed
    /// meanwhile. True when results are stuck from now on.
    pub(super) fn gave_up(&mut self, results: usize, now: Moment) -> bool {
        self.turn(now);
        self.given_up[0] += results;
        let given_up: usize = self.given_up.iter().sum();
        let is_stuck = given_up > self.answered.iter().sum() && !self.largest.is_empty();
        is_stuck && !std::mem::replace(&mut self.stuck, is_stuck)
    }

    fn turn(&mut self, now: Moment) {
        let gone = now.since(self.began);
        if gone >= self.window {
            let keep = gone < self.window * 2;
            for counts in [&mut self.answered, &mut self.given_up] {
                *counts = [0, if keep { counts[0] } else { 0 }];
            }
            self.began = now;
        }
    }
}

fn total(batch: &[Publication]) -> usize {
    batch.iter().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EndpointId, Sample, Tenure};
    use crate::store::Judging;

    const WINDOW: Duration = Duration::from_secs(30);

    /// A batch of `n` results.
    fn batch(n: usize) -> Vec<Publication> {
        let tenure = Tenure::new(EndpointId::parse("e").unwrap(), FenceToken(7));
        let sample = Sample::failed("no answer", WINDOW);
        vec![
            Publication {
                tenure,
                started_at_ms: 1,
                interval: WINDOW,
                sample,
                judging: Judging::default(),
                certificate: None,
            };
            n
        ]
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos((1_000 + seconds) * 1_000_000_000)
    }

    #[test]
    fn results_are_stuck_when_more_are_given_up_than_answered() {
        let mut reach = Reach::new(WINDOW);
        reach.answered(&batch(5), at(0));
        reach.unanswered(&batch(2));
        assert!(!reach.gave_up(5, at(20)), "as many as were answered");
        assert!(reach.gave_up(1, at(21)) && reach.is_stuck());
        assert!(!reach.gave_up(1, at(22)), "said once");
    }

    /// One endpoint whose results never get an answer is no reason to give up all others.
    #[test]
    fn what_is_given_up_right_after_a_window_began_is_compared_with_the_one_before() {
        let mut reach = Reach::new(WINDOW);
        reach.answered(&batch(100), at(0));
        reach.unanswered(&batch(1));
        assert!(!reach.gave_up(3, at(31)));
        assert!(reach.gave_up(3, at(91)), "what was answered long ago does not count");
    }

    /// Small requests get through all the time: only one as large as what got no answer shows that they do, too.
    #[test]
    fn results_go_on_when_a_call_as_large_as_the_largest_without_an_answer_has_one() {
        let mut reach = Reach::new(WINDOW);
        reach.unanswered(&batch(3));
        reach.unanswered(&batch(1));
        assert!(reach.gave_up(3, at(30)));
        assert_eq!(reach.probe().len(), 3);
        assert!(reach.probe().iter().all(|it| it.tenure.fence == NOBODYS), "no store may take it");
        assert!(!reach.answered(&batch(2), at(31)) && reach.is_stuck());
        assert!(reach.answered(&batch(3), at(32)) && !reach.is_stuck());
        assert!(reach.probe().is_empty());
    }
}
