//! How leases change hands: the heir asks, the owner lets the running poll end, releases, and says so (R8).

use std::time::Duration;

use fnv::FnvHashMap;

use crate::daemon::reconcile::Reconcile;
use crate::event::Event;
use crate::model::{EndpointId, InstanceId, Tenure};
use crate::store::{BATCH_MAX, Wake};

/// An heir that asked is alive, but may be deaf: it gets this much longer to find what was freed for it.
const HEIR_PATIENCE: Duration = Duration::from_secs(2);

/// Why a lease is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Rebalance,
    Drain,
    Paused,
    Removed,
}

impl Leaving {
    fn word(self) -> &'static str {
        match self {
            Self::Rebalance => "rebalance",
            Self::Drain => "drain",
            Self::Paused => "paused",
            Self::Removed => "removed",
        }
    }
}

impl Reconcile {
    /// R10: a move that has begun is called off, so that nothing is released into a void.
    pub(crate) fn keep_what_was_to_move(&mut self) {
        self.leaving.retain(|endpoint, (leaving, _)| {
            let moves = matches!(leaving, Leaving::Rebalance | Leaving::Drain);
            if moves {
                self.table.undrain(endpoint);
            }
            !moves
        });
    }

    /// R8: whoever asks gets what the plan gives it, once the running poll has ended.
    pub(crate) fn hand_over(&mut self, looked: bool) {
        let reason =
            if self.looker.my_weight() == Some(0) { Leaving::Drain } else { Leaving::Rebalance };
        for (endpoint, heir) in std::mem::take(&mut self.asks) {
            if self.plan.heirs.get(&endpoint) == Some(&heir) && self.table.drain(&endpoint) {
                self.leaving.insert(endpoint, (reason, Some(heir)));
            } else if !looked {
                // The plan may be older than the one who asks: judged after the next look.
                self.asks.insert(endpoint, heir);
            }
        }
    }

    /// Asks owners for what is ours by plan; repeated with every look until it is given.
    pub(crate) fn ask(&mut self) {
        let mut by_owner: FnvHashMap<&InstanceId, Vec<EndpointId>> = FnvHashMap::default();
        for (owner, endpoint) in &self.plan.ask {
            by_owner.entry(owner).or_default().push(endpoint.clone());
        }
        self.asked_for = self.plan.ask.iter().map(|it| it.1.clone()).collect();
        // In pieces, because nobody listens to a word without end.
        let mut wakes = Vec::new();
        for (owner, wants) in by_owner {
            let pieces = wants.chunks(BATCH_MAX);
            wakes.extend(pieces.map(|it| self.word(Some(owner.clone()), it.to_vec(), vec![])));
        }
        if !wakes.is_empty() {
            let _ = self.store.wake(&wakes, self.table.rhythm().store_timeout);
        }
    }

    fn word(&self, to: Option<InstanceId>, wants: Vec<EndpointId>, freed: Vec<EndpointId>) -> Wake {
        Wake { to, from: self.me.clone(), wants, freed }
    }

    /// Gives back what no poll runs under any more, and wakes the heirs.
    pub(crate) fn release_drained(&mut self) {
        let now = self.table.now();
        let tenures = self.table.drained(self.drain_timeout);
        let mut failure = None;
        for batch in tenures.chunks(BATCH_MAX) {
            let mut by_heir: FnvHashMap<Option<InstanceId>, Vec<EndpointId>> =
                FnvHashMap::default();
            let mut reasons = Vec::new();
            for Tenure { endpoint, .. } in batch {
                let (leaving, heir) =
                    self.leaving.remove(endpoint).unwrap_or((Leaving::Rebalance, None));
                if matches!(leaving, Leaving::Rebalance | Leaving::Drain) {
                    by_heir.entry(heir.clone()).or_default().push(endpoint.clone());
                }
                self.looker.freed(std::slice::from_ref(endpoint));
                if heir.is_some() {
                    self.free_since.insert(endpoint.clone(), now + HEIR_PATIENCE);
                }
                reasons.push((endpoint, leaving, heir));
            }
            let wakes: Vec<Wake> =
                by_heir.into_iter().map(|(heir, freed)| self.word(heir, vec![], freed)).collect();
            // A store that did not answer is not waited for once more per batch.
            failure = failure
                .or_else(|| self.store.release(&self.table.question().ask, batch, &wakes).err());
            for (endpoint, leaving, heir) in reasons {
                let (reason, heir) = (leaving.word(), heir.as_ref());
                self.reporter.say(&Event::LeaseReleased { endpoint, reason, heir });
                if let Some(error) = &failure {
                    self.reporter.say(&Event::LeaseFailed { endpoint, error });
                }
            }
        }
    }
}
