//! 6 — Hands results to the store, in batches, each under the fence it was polled under.
//!
//! Pure bookkeeping around [`crate::store::Store::publish`]. A batch whose reply was lost is said
//! again; the store knows what it has stored already. A result whose tenure has ended is dropped: the
//! store would refuse it (G2). The permit of a poll travels with its result, so that a lease is not
//! given away between the two.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
use crate::model::Tenure;
use crate::pipeline::lease::PollPermit;
use crate::store::{BATCH_MAX, Publication, Publish};

/// Most bytes in one call, about: a call must fit into its timeout.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Results on their way to the store, oldest first.
#[derive(Debug)]
pub struct Outbox {
    waiting: VecDeque<Parcel>,
    /// Halved whenever a call fails: perhaps it was too much at once.
    batch_max: usize,
    patience: Duration,
}

#[derive(Debug)]
struct Parcel {
    publication: Publication,
    permit: PollPermit,
    since: Moment,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Sent {
    /// Refused: the lease had moved.
    pub fenced: Vec<Tenure>,
    /// Could not be stored, and why.
    pub failed: Vec<(Tenure, String)>,
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
        Self { waiting: VecDeque::new(), batch_max: BATCH_MAX, patience }
    }

    /// Takes a result in, with the permit it was polled under.
    pub fn put(&mut self, publication: Publication, permit: PollPermit, now: Moment) {
        self.waiting.push_back(Parcel { publication, permit, since: now });
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

    /// Drops what nobody may publish any more, and what could not be for too long.
    pub fn drop_hopeless(&mut self, still_held: impl Fn(&Tenure) -> bool, now: Moment) -> Sent {
        let mut sent = Sent::default();
        let patience = self.patience;
        self.waiting.retain(|it| {
            let tenure = &it.publication.tenure;
            if !still_held(tenure) {
                sent.fenced.push(tenure.clone());
            } else if now.since(it.since) >= patience {
                sent.failed.push((tenure.clone(), "it could not be stored for too long".into()));
            } else {
                return true;
            }
            sent.awaited |= it.permit.is_awaited();
            false
        });
        sent
    }

    /// The next batch: at most so many, and so many bytes, but at least one. It waits here until it is
    /// settled.
    pub fn batch(&self) -> Vec<Publication> {
        let mut bytes = 0;
        let fits = |it: &&Parcel| {
            let first = bytes == 0;
            // The body goes along twice, the second time as JSON, where a byte can become six.
            bytes += 512 + 7 * it.publication.sample.body.len();
            first || bytes <= BATCH_BYTES_MAX
        };
        let batch = self.waiting.iter().take(self.batch_max).take_while(fits);
        batch.map(|it| it.publication.clone()).collect()
    }

    /// The store answered about the last batch.
    pub fn settle(&mut self, answers: &[Publish]) -> Sent {
        self.batch_max = BATCH_MAX.min(2 * self.batch_max);
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
                    self.waiting.push_back(parcel);
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

    /// The store did not answer about the last batch: less at once, and another first.
    pub fn unanswered(&mut self) {
        if self.batch_max == 1 {
            self.waiting.rotate_left(1.min(self.waiting.len()));
        }
        self.batch_max = (self.batch_max / 2).max(1);
    }
}
