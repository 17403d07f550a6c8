//! 6 — Hands results to the store, in batches, each under the fence it was polled under.
//!
//! Pure bookkeeping around [`crate::store::Store::publish`]. A batch whose reply was lost is said
//! again; the store knows what it has stored already. A result whose tenure has ended is dropped: the
//! store would refuse it (G2), and nobody may wait for it.

use std::collections::VecDeque;

use crate::model::Tenure;
use crate::store::{BATCH_MAX, Publication, Publish};

/// Results on their way to the store.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<Publication>,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Sent {
    /// Refused: the lease had moved.
    pub fenced: Vec<Tenure>,
    /// Could not be stored, and why.
    pub failed: Vec<(Tenure, String)>,
}

impl Outbox {
    /// Most results that wait; beyond that, pollers wait (and polling with them).
    pub const CAPACITY: usize = 4 * BATCH_MAX;

    /// Takes a result in.
    pub fn put(&mut self, publication: Publication) {
        self.waiting.push_back(publication);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many more results fit.
    pub fn room(&self) -> usize {
        Self::CAPACITY.saturating_sub(self.waiting.len())
    }

    /// The next batch: what is still wanted, oldest first. It waits here until it is settled.
    pub fn batch(&mut self, still_held: impl Fn(&Tenure) -> bool) -> (Vec<Publication>, Vec<Tenure>) {
        let mut ended = Vec::new();
        self.waiting.retain(|it| {
            let wanted = still_held(&it.tenure);
            if !wanted {
                ended.push(it.tenure.clone());
            }
            wanted
        });
        (self.waiting.iter().take(BATCH_MAX).cloned().collect(), ended)
    }

    /// The store answered about the last batch.
    pub fn settle(&mut self, answers: &[Publish]) -> Sent {
        let mut sent = Sent::default();
        for (publication, answer) in self.waiting.drain(..answers.len().min(self.waiting.len())).zip(answers) {
            match answer {
                Publish::Stored => (),
                Publish::Fenced => sent.fenced.push(publication.tenure),
                Publish::Failed(why) => sent.failed.push((publication.tenure, why.clone())),
            }
        }
        sent
    }

    /// Nobody will answer any more: what is left is dropped.
    pub fn give_up(&mut self) -> Vec<Tenure> {
        self.waiting.drain(..).map(|it| it.tenure).collect()
    }
}
