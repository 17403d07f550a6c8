//! What nobody asks for. A lease moves when its heir asks (R8); an heir that takes something else to be the case
//! never does. Whoever holds more than its share can know; and if that one is wrong, too, somebody else.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Moment;
use crate::fleet::reconcile::Reconcile;
use crate::model::InstanceId;
use crate::store::PeerMessage;

/// An heir that has not asked for so long, and twice as long, and so on, is told.
const UNASKED: Duration = Duration::from_secs(10);
/// An instance that is told resyncs, but no oftener than this: anybody may say it.
const HEEDED_EVERY: Duration = Duration::from_secs(30);

/// How long nothing has moved that should: ours to its heir, or something between others.
#[derive(Debug, Default)]
pub(crate) struct Unasked {
    since: Option<Moment>,
    told: u32,
    heeded: Option<Moment>,
}

impl Unasked {
    /// It moves, or there is nothing to move.
    pub(crate) fn stop(&mut self) {
        (self.since, self.told) = (None, 0);
    }

    /// When they are told, if nothing moves until then.
    pub(crate) fn next(&self) -> Option<Moment> {
        Some(self.since? + UNASKED * 2_u32.saturating_pow(self.told))
    }
}

impl Reconcile {
    /// Tells heirs that do not ask; and since it may be us who see something wrong, looks at everything, too.
    pub(crate) fn tell_unasked(&mut self) {
        let now = self.table.now();
        let nothing = self.plan.heirs.is_empty() && self.plan.others.is_empty();
        if nothing || !self.leaving.is_empty() {
            return self.unasked.stop();
        }
        self.unasked.since.get_or_insert(now);
        if self.unasked.next().is_none_or(|at| now < at) {
            return;
        }
        if self.unasked.told > 0 {
            self.informer.resync_soon();
        }
        self.unasked.told += 1;
        // Owners of what is to move between others are told, too: they may be as wrong as their heirs.
        let told = self.plan.heirs.values().chain(&self.plan.others);
        let told: BTreeSet<&InstanceId> = told.filter(|it| **it != self.me).collect();
        let word = |it: &InstanceId| PeerMessage {
            unasked: true,
            ..PeerMessage::new(&self.me, Some(it.clone()))
        };
        let wakes: Vec<PeerMessage> = told.into_iter().map(word).collect();
        let _ = self.store.wake(&wakes, self.table.timings().store_timeout);
    }

    /// We could have had something for the asking, somebody says.
    pub(crate) fn heed_unasked(&mut self, word: &PeerMessage) {
        let now = self.table.now();
        let asked = self.plan.ask.iter().any(|it| it.0 == word.from);
        let heeded = self.unasked.heeded.is_some_and(|at| now.since(at) < HEEDED_EVERY);
        if word.unasked && !heeded && !asked {
            self.unasked.heeded = Some(now);
            self.informer.resync_soon();
        }
    }
}
