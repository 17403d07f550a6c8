//! Which instances are alive? Reads heartbeats that were written or may have ended (R9), and writes the live instances
//! of the view.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::context::ReadContext;
use crate::fleet::informer::tracked_view::TrackedView;
use crate::fleet::informer::{EXPIRY_SLACK, PASS_INTERVAL_MIN};
use crate::model::{InstanceId, Weight};
use crate::store::{BATCH_MAX, StoreError};

/// A new instance acts once the live set has not changed for this long …
const STILL_FOR: Duration = Duration::from_millis(500);
/// … or this long after its first resync, if the live set keeps changing.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// A heartbeat as last read.
struct HeartbeatReading {
    weight: Weight,
    /// When its key expires unless the instance writes it again.
    ends_at: Moment,
}

/// The live instances, and since when that set has not changed.
#[derive(Default)]
pub(super) struct Membership {
    heartbeats: BTreeMap<InstanceId, HeartbeatReading>,
    /// Instances whose heartbeat was found gone after the moment at which its key was due to expire.
    expired: BTreeSet<InstanceId>,
    /// Instances whose heartbeat the next step reads.
    to_read: BTreeSet<InstanceId>,
    /// When an instance last joined or left.
    changed_at: Moment,
    settled: bool,
}

/// How long the live set must not have changed before a new instance acts. Where nothing is pushed, the other instances
/// find a new one with their next resync, which begins a quick check interval after the last one in an ordinary fleet. A
/// lease that is released for the new instance before all of them know it would be acquired by another one.
fn still_for(context: &ReadContext) -> Duration {
    if context.gets_messages() || context.gets_changes() {
        return STILL_FOR;
    }
    STILL_FOR.max(context.quick_check_interval * 5 / 4)
}

impl Membership {
    /// Reads these heartbeats in the next step.
    pub(super) fn read_soon(&mut self, instances: impl IntoIterator<Item = InstanceId>) {
        self.to_read.extend(instances);
    }

    /// When the next step has something to do.
    pub(super) fn due(&self, context: &ReadContext, last_pass: Moment) -> Moment {
        if !self.to_read.is_empty() {
            return Moment::MIN;
        }
        // R9: a heartbeat that nobody renews is read right when it ends.
        let ends_at = self.heartbeats.values().map(|it| it.ends_at).min();
        let ends_at = ends_at.map_or(Moment::MAX, |it| it + EXPIRY_SLACK);
        if self.settled || !context.has_synced() {
            return ends_at;
        }
        ends_at.min((self.changed_at + still_for(context)).max(last_pass + 5 * PASS_INTERVAL_MIN))
    }

    /// Reads the heartbeats that were written or have ended; with `all`, every known heartbeat.
    pub(super) fn step(
        &mut self,
        context: &ReadContext,
        view: &mut TrackedView,
        now: Moment,
        all: bool,
    ) -> Result<(), StoreError> {
        let is_due = |it: &HeartbeatReading| all || it.ends_at + EXPIRY_SLACK <= now;
        let due = self.heartbeats.iter().filter(|it| is_due(it.1)).map(|it| it.0.clone());
        self.to_read.extend(due);
        let instances: Vec<InstanceId> = self.to_read.iter().cloned().collect();
        for batch in instances.chunks(BATCH_MAX) {
            let asked_at = context.now();
            let found = context.store.heartbeats(batch, context.timeout())?;
            for (instance, heartbeat) in batch.iter().zip(found) {
                self.to_read.remove(instance);
                match heartbeat {
                    Some(it) => {
                        let heartbeat =
                            HeartbeatReading { weight: it.value, ends_at: asked_at + it.left };
                        self.heartbeats.insert(instance.clone(), heartbeat);
                    }
                    None => self.gone(instance, asked_at),
                }
            }
        }
        if !instances.is_empty() {
            self.apply(context, view, now);
        }
        Ok(())
    }

    /// Before its end only a DEL removes the key of a heartbeat: the instance stopped, or `leasehold release` removed
    /// the key after a crash. A key that is gone afterwards has expired, as far as this instance can know. `EXPIRY_SLACK`
    /// (3 ms) allows for a server whose clock runs a little faster.
    fn gone(&mut self, instance: &InstanceId, asked_at: Moment) {
        let heartbeat = self.heartbeats.remove(instance);
        if heartbeat.is_some_and(|it| it.ends_at <= asked_at + EXPIRY_SLACK) {
            self.expired.insert(instance.clone());
        }
    }

    fn apply(&mut self, context: &ReadContext, view: &mut TrackedView, now: Moment) {
        let live: Vec<(InstanceId, Weight)> =
            self.heartbeats.iter().map(|(id, it)| (id.clone(), it.weight)).collect();
        let joined = live.iter().map(|it| &it.0).filter(|it| !view.is_live(it));
        let joined: Vec<InstanceId> = joined.cloned().collect();
        let left = view.instances().map(|it| it.0).filter(|it| !self.heartbeats.contains_key(*it));
        let left: Vec<InstanceId> = left.cloned().collect();
        view.set_instances(&live);
        let expired = std::mem::take(&mut self.expired);
        if joined.is_empty() && left.is_empty() {
            return;
        }
        self.changed_at = now;
        if context.has_synced() {
            for other in joined.iter().filter(|it| **it != context.me) {
                context.reporter.report(&Event::InstanceJoined { other });
            }
            for other in left.iter().filter(|it| **it != context.me) {
                let has_expired = expired.contains(other);
                context.reporter.report(&Event::InstanceLeft { other, has_expired });
            }
        }
    }

    /// Settles at most once: an instance that has settled acts on every later change at once.
    pub(super) fn settle(&mut self, context: &ReadContext, view: &mut TrackedView, now: Moment) {
        if let Some(synced_at) = context.synced_at.filter(|_| !self.settled) {
            let is_still = now.since(self.changed_at) >= still_for(context);
            self.settled =
                view.is_live(&context.me) && (is_still || now.since(synced_at) >= SETTLE_MAX);
            if self.settled {
                view.request_plan(); // from now on a plan is acted on
            }
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }
}
