//! 6 — Hands results to the store, in batches, each under the fence it was polled under.
//!
//! Pure bookkeeping around [`crate::store::Store::publish`]. A batch whose reply was lost is said
//! again; the store knows what it has stored already. A result whose tenure has ended is dropped: the
//! store would refuse it (G2). The permit of a poll travels with its result, so that a lease is not
//! given away between the two.

use crate::model::Tenure;
use crate::pipeline::lease::PollPermit;
use crate::store::{BATCH_MAX, Publication, Publish};

/// Results on their way to the store, oldest first.
#[derive(Debug, Default)]
pub struct Outbox {
    results: Vec<Publication>,
    permits: Vec<PollPermit>,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Sent {
    /// Refused: the lease had moved.
    pub fenced: Vec<Tenure>,
    /// Could not be stored, and why.
    pub failed: Vec<(Tenure, String)>,
    /// Somebody waited for one of these polls to end.
    pub awaited: bool,
}

impl Outbox {
    /// Most results that wait; beyond that, pollers wait (and polling with them).
    pub const CAPACITY: usize = 4 * BATCH_MAX;

    /// Takes a result in, with the permit it was polled under.
    pub fn put(&mut self, publication: Publication, permit: PollPermit) {
        self.results.push(publication);
        self.permits.push(permit);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// How many more results fit.
    pub fn room(&self) -> usize {
        Self::CAPACITY.saturating_sub(self.results.len())
    }

    /// Drops what nobody may publish any more.
    pub fn drop_ended(&mut self, still_held: impl Fn(&Tenure) -> bool) -> Vec<Tenure> {
        let (results, permits) =
            (std::mem::take(&mut self.results), std::mem::take(&mut self.permits));
        let mut ended = Vec::new();
        for (publication, permit) in results.into_iter().zip(permits) {
            if still_held(&publication.tenure) {
                self.put(publication, permit);
            } else {
                ended.push(publication.tenure);
            }
        }
        ended
    }

    /// The next batch. It waits here until it is settled.
    pub fn batch(&self) -> &[Publication] {
        &self.results[..self.results.len().min(BATCH_MAX)]
    }

    /// The store answered about the last batch.
    pub fn settle(&mut self, answers: &[Publish]) -> Sent {
        let n = answers.len().min(self.results.len());
        let mut sent = Sent::default();
        for (publication, answer) in self.results.drain(..n).zip(answers) {
            match answer {
                Publish::Stored => (),
                Publish::Fenced => sent.fenced.push(publication.tenure),
                Publish::Failed(why) => sent.failed.push((publication.tenure, why.clone())),
            }
        }
        sent.awaited = self.permits.drain(..n).any(|it| it.is_awaited());
        sent
    }
}
