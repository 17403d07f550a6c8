//! Which results wait to be stored, and which go into the next batch? Pure bookkeeping around
//! [`crate::store::Store::publish`].
//!
//! A batch whose reply was lost is sent again; the store knows what it has stored. A result whose tenure has ended is
//! dropped: the store would refuse it (G2). The permit of a poll stays with its result, so the lease is not released
//! before the result is stored.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
use crate::lease::permit::PollPermit;
use crate::model::Tenure;
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
    /// A thread waited for one of these polls to end.
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

    /// Drops results whose lease has ended, and results that have waited for `patience`. If `keeps_trying` is false, also
    /// results that got no answer once.
    pub fn drop_expired(
        &mut self,
        still_held: impl Fn(&Tenure) -> bool,
        keeps_trying: bool,
        now: Moment,
    ) -> Sent {
        let mut sent = Sent::default();
        let patience = self.patience;
        self.waiting.retain(|it| {
            let tenure = &it.publication.tenure;
            let is_over = now.since(it.since) >= patience || (!keeps_trying && it.unanswered);
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
                Publish::Stored(_) => (),
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
pub(super) fn size(it: &Publication) -> usize {
    512 + 7 * it.sample.body.len()
}
