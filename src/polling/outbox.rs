//! Which results wait to be stored, and which go into the next batch? Pure bookkeeping around
//! [`crate::store::Store::publish`].
//!
//! A batch whose reply was lost is sent again; the store knows what it has stored. A result whose tenure has ended is
//! dropped: the store would refuse it (G2). The permit of a poll stays with its result, so the lease is not released
//! before the result is stored. [`Reach`] tells an instance whose results get no answer from one whose store is away.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
use crate::lease::permit::PollPermit;
use crate::model::{FenceToken, Tenure};
use crate::store::{BATCH_MAX, Publication, Publish};

/// Most bytes in one call, about: a call must fit into its timeout.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Results on their way to the store, in the order of their next try.
#[derive(Debug)]
pub struct Outbox {
    waiting: VecDeque<Parcel>,
    patience: Duration,
}

#[derive(Debug)]
struct Parcel {
    publication: Publication,
    permit: PollPermit,
    since: Moment,
    /// Most results in one call with this one. Halved whenever such a call gets no answer: perhaps it was too much
    /// at once, and if one result is the cause, the others get through without it.
    batch_max: usize,
    /// The last call with this one got no answer.
    unanswered: bool,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Sent {
    /// Refused: the lease had moved.
    pub fenced: Vec<Tenure>,
    /// Could not be stored, and why.
    pub failed: Vec<(Tenure, String)>,
    /// Of those, given up because no call with them got an answer: since when they waited.
    pub unanswered: Vec<(Tenure, Moment)>,
    /// Their lease is missing, and about to be reclaimed or lost: they wait.
    pub missing: bool,
    /// Somebody waited for one of these polls to end.
    pub awaited: bool,
}

impl Outbox {
    /// Most results that wait; beyond that, pollers wait (and polling with them).
    pub const CAPACITY: usize = 4 * BATCH_MAX;

    /// Gives a result up after `patience`.
    pub fn new(patience: Duration) -> Self {
        Self { waiting: VecDeque::new(), patience }
    }

    /// Takes a result in, with the permit it was polled under.
    pub fn put(&mut self, publication: Publication, permit: PollPermit, now: Moment) {
        let (since, batch_max, unanswered) = (now, BATCH_MAX, false);
        self.waiting.push_back(Parcel { publication, permit, since, batch_max, unanswered });
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many more results fit.
    pub fn room(&self) -> usize {
        Self::CAPACITY.saturating_sub(self.waiting.len())
    }

    /// Drops what nobody may publish any more, and what could not be for too long; where results are not `hoped` to get
    /// through, after one try.
    pub fn drop_hopeless(
        &mut self,
        still_held: impl Fn(&Tenure) -> bool,
        hoped: bool,
        now: Moment,
    ) -> Sent {
        let mut sent = Sent::default();
        let patience = self.patience;
        self.waiting.retain(|it| {
            let tenure = &it.publication.tenure;
            let is_over = now.since(it.since) >= patience || (!hoped && it.unanswered);
            if !still_held(tenure) {
                sent.fenced.push(tenure.clone());
            } else if is_over {
                sent.failed.push((tenure.clone(), "it could not be stored for too long".into()));
                sent.unanswered.extend(it.unanswered.then(|| (tenure.clone(), it.since)));
            } else {
                return true;
            }
            sent.awaited |= it.permit.is_awaited();
            false
        });
        sent
    }

    /// The next batch: at most `BATCH_MAX` results and a bound on bytes, but at least one. It waits here until it is
    /// settled.
    pub fn batch(&self) -> Vec<Publication> {
        let (mut n, mut bytes, mut most) = (0, 0, BATCH_MAX);
        let fits = |it: &&Parcel| {
            n += 1;
            most = most.min(it.batch_max);
            bytes += size(&it.publication);
            n == 1 || (n <= most && bytes <= BATCH_BYTES_MAX)
        };
        self.waiting.iter().take_while(fits).map(|it| it.publication.clone()).collect()
    }

    /// The store answered about the last batch.
    pub fn settle(&mut self, answers: &[Publish]) -> Sent {
        let mut sent = Sent::default();
        let n = answers.len().min(self.waiting.len());
        let batch: Vec<Parcel> = self.waiting.drain(..n).collect();
        for (parcel, answer) in batch.into_iter().zip(answers) {
            let tenure = || parcel.publication.tenure.clone();
            match answer {
                Publish::Stored => (),
                Publish::Fenced => sent.fenced.push(tenure()),
                Publish::Failed(why) => sent.failed.push((tenure(), why.clone())),
                Publish::Missing => {
                    sent.missing = true;
                    self.waiting.push_back(Parcel { unanswered: false, ..parcel });
                    continue;
                }
            }
            sent.awaited |= parcel.permit.is_awaited();
        }
        sent
    }

    /// What is left will not be published any more.
    pub fn give_up(&mut self, why: &str) -> Sent {
        let left = self.waiting.drain(..).map(|it| (it.publication.tenure, why.into()));
        Sent { failed: left.collect(), ..Sent::default() }
    }

    /// The last batch, of `n`, failed as a whole, `refused` or without an answer: less at once, and the others first.
    pub fn retry(&mut self, n: usize, refused: bool) {
        let n = n.min(self.waiting.len());
        for parcel in self.waiting.iter_mut().take(n) {
            parcel.batch_max = (n / 2).max(1);
            parcel.unanswered = !refused;
        }
        self.waiting.rotate_left(n);
    }
}

/// What a result takes in a call, about: the body goes along twice, the second time as JSON, where a byte can
/// become six.
fn size(it: &Publication) -> usize {
    512 + 7 * it.sample.body.len()
}

/// A fence that was never granted: real ones are server times in microseconds, or higher.
const NOBODYS: FenceToken = FenceToken(1);

/// Whether results get through to a store that answers everything else.
///
/// The way to the store may carry small requests, such as renewals, and lose large ones. Such an owner keeps its
/// leases, and nobody learns its results. It is *stuck* when, while its leases are renewed, more results were
/// given up without an answer than answered. It is no longer when a call as large as the largest that got no
/// answer gets one.
#[derive(Debug)]
pub struct Reach {
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
    pub fn new(window: Duration) -> Self {
        let [answered, given_up] = [[0; 2]; 2];
        Self { window, began: Moment::MIN, answered, given_up, largest: Vec::new(), stuck: false }
    }

    /// More results are given up than get an answer.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// What to try again while results are stuck, and nothing else waits. R4: under a fence that nobody has, so that
    /// no store takes it. Its lease may have been released since, and a failover may have brought the lease back.
    pub fn probe(&self) -> &[Publication] {
        &self.largest
    }

    /// A call about these was answered, whatever the answer. True when results are no longer stuck.
    pub fn answered(&mut self, batch: &[Publication], now: Moment) -> bool {
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
    pub fn unanswered(&mut self, batch: &[Publication]) {
        if total(batch) > total(&self.largest) {
            self.largest = batch.to_vec();
            self.largest.iter_mut().for_each(|it| it.tenure.fence = NOBODYS);
        }
    }

    /// This many results were given up because no call with them got an answer, although their leases were renewed
    /// meanwhile. True when results are stuck from now on.
    pub fn gave_up(&mut self, results: usize, now: Moment) -> bool {
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
    use crate::model::{EndpointId, Sample};

    const WINDOW: Duration = Duration::from_secs(30);

    /// A batch of `n` results.
    fn batch(n: usize) -> Vec<Publication> {
        let tenure = Tenure::new(EndpointId::parse("e").unwrap(), FenceToken(7));
        let sample = Sample::failed("no answer", WINDOW);
        vec![Publication { tenure, started_at_ms: 1, interval: WINDOW, sample }; n]
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
