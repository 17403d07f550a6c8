//! Who is alive: reads the heartbeats that were touched or are about to end (R9).

use std::time::Duration;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::{Informer, JUST_AFTER, LOOK_INTERVAL_MIN};
use crate::model::{InstanceId, Weight};
use crate::store::{BATCH_MAX, StoreError};

/// A newcomer acts once the live set has been still for so long …
const STILL_FOR: Duration = Duration::from_millis(500);
/// … or has not become still for so long.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// A heartbeat as last read.
pub(super) struct Node {
    weight: Weight,
    /// When it will be gone unless it beats again.
    pub(super) ends_at: Moment,
}

impl Informer {
    /// Reads the heartbeats that were touched, are about to end, or, at a glance, all that are known.
    pub(super) fn meet(&mut self, now: Moment, quick_check: bool) -> Result<(), StoreError> {
        let ended = |it: &Node| quick_check || it.ends_at + JUST_AFTER <= now;
        let due = self.nodes.iter().filter(|it| ended(it.1)).map(|it| it.0.clone());
        self.to_meet.extend(due);
        let asked: Vec<InstanceId> = self.to_meet.iter().cloned().collect();
        for batch in asked.chunks(BATCH_MAX) {
            let asked_at = self.table.now();
            let found = self.store.nodes(batch, self.table.timings().store_timeout)?;
            for (instance, node) in batch.iter().zip(found) {
                self.to_meet.remove(instance);
                match node {
                    Some(node) => {
                        let node = Node { weight: node.it, ends_at: asked_at + node.left };
                        self.nodes.insert(instance.clone(), node);
                    }
                    None => drop(self.nodes.remove(instance)),
                }
            }
        }
        if !asked.is_empty() {
            self.take_in_nodes(now);
        }
        Ok(())
    }

    fn take_in_nodes(&mut self, now: Moment) {
        let live: Vec<(InstanceId, Weight)> =
            self.nodes.iter().map(|(id, node)| (id.clone(), node.weight)).collect();
        let joined = live.iter().map(|it| &it.0).filter(|it| !self.view.is_live(it));
        let joined: Vec<InstanceId> = joined.cloned().collect();
        let left = self.view.instances().map(|it| it.0).filter(|it| !self.nodes.contains_key(*it));
        let left: Vec<InstanceId> = left.cloned().collect();
        if self.view.set_instances(&live) {
            (self.stale, self.reshaped) = (true, true);
        }
        if joined.is_empty() && left.is_empty() {
            return;
        }
        self.live_since = now;
        if self.first_sight.is_some() {
            for other in joined.iter().filter(|it| **it != self.me) {
                self.reporter.say(&Event::InstanceJoined { other });
            }
            for other in left.iter().filter(|it| **it != self.me) {
                self.reporter.say(&Event::InstanceLeft { other });
            }
        }
    }

    /// Only once: an instance that has settled answers every later change at once.
    pub(super) fn settle(&mut self, now: Moment) {
        if let Some(first_sight) = self.first_sight.filter(|_| !self.settled) {
            self.settled = self.view.is_live(&self.me)
                && (now.since(self.live_since) >= STILL_FOR
                    || now.since(first_sight) >= SETTLE_MAX);
            // Something may be planned now that was not to be acted on before.
            self.stale |= self.settled;
        }
    }

    pub(super) fn settled_at(&self) -> Moment {
        (self.live_since + STILL_FOR).max(self.last_look + 5 * LOOK_INTERVAL_MIN)
    }

    pub(crate) fn my_weight(&self) -> Option<Weight> {
        self.view.weight(&self.me)
    }
}
