//! Which hand-overs do not begin? The preferred owner must request a lease (R8); with a stale view it never does, so the
//! current owner notices, or a third instance. Sends messages, and asks the informer for a resync.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Moment;
use crate::fleet::reconcile::MoveScope;
use crate::fleet::reconcile::handover::Handover;
use crate::model::InstanceId;
use crate::store::PeerMessage;

/// An heir that has not asked for this long is told so, then again after twice as long, and so on.
const STALLED_AFTER: Duration = Duration::from_secs(10);
/// An instance that is told resyncs, but not more often than this: anybody may send the message.
const HEEDED_EVERY: Duration = Duration::from_secs(30);

/// For how long nothing has moved that should: a lease of this instance to its heir, or a lease between others.
#[derive(Debug, Default)]
pub(super) struct StalledHandover {
    since: Option<Moment>,
    /// How often the heirs were told.
    told: u32,
    heeded: Option<Moment>,
}

impl StalledHandover {
    /// A lease moves, or nothing is to move.
    pub(super) fn stop(&mut self) {
        (self.since, self.told) = (None, 0);
    }

    /// When the heirs are told, if nothing moves until then.
    pub(super) fn due(&self) -> Moment {
        let wait = STALLED_AFTER * 2_u32.saturating_pow(self.told);
        self.since.map_or(Moment::MAX, |it| it + wait)
    }

    /// Tells heirs that do not ask. The view of this instance may be the wrong one, so it resyncs, too.
    pub(super) fn step(&mut self, scope: &mut MoveScope<'_>, handover: &Handover) {
        let (context, plan) = (scope.context, scope.plan);
        let now = context.now();
        let nothing = plan.heirs.is_empty() && plan.others.is_empty();
        if nothing || handover.is_leaving() {
            return self.stop();
        }
        self.since.get_or_insert(now);
        if now < self.due() {
            return;
        }
        if self.told > 0 {
            scope.informer.resync_soon();
        }
        self.told += 1;
        // The owners of leases between others are told, too: their view may be as wrong as that of the heirs.
        let told = plan.heirs.values().chain(&plan.others);
        let told: BTreeSet<&InstanceId> = told.filter(|it| **it != context.me).collect();
        let message = |it: &InstanceId| PeerMessage {
            unasked: true,
            ..PeerMessage::new(&context.me, Some(it.clone()))
        };
        let messages: Vec<PeerMessage> = told.into_iter().map(message).collect();
        let _ = context.store.wake(&messages, context.timeout());
    }

    /// Another instance says that a lease of the plan is not asked for.
    pub(super) fn heed(&mut self, scope: &mut MoveScope<'_>, message: &PeerMessage) {
        let now = scope.context.now();
        let has_asked = scope.plan.ask.iter().any(|it| it.0 == message.from);
        let is_early = self.heeded.is_some_and(|at| now.since(at) < HEEDED_EVERY);
        if message.unasked && !is_early && !has_asked {
            self.heeded = Some(now);
            scope.informer.resync_soon();
        }
    }
}
