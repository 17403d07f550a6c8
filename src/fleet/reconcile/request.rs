//! What does this instance ask other owners for (R8)? The leases that the plan gives to it, again until they are released.
//! Sends messages, and asks the informer for reads.

use std::time::Duration;

use fnv::FnvHashMap;

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::fleet::informer::Informer;
use crate::fleet::placement::Plan;
use crate::fleet::reconcile::{MoveContext, MoveScope, PAUSE_MAX};
use crate::model::{EndpointId, InstanceId};
use crate::store::{BATCH_MAX, PeerMessage};

/// A lease that is not released is asked for again after this.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The owner of a lease that was asked for is read after this: an instance without a subscription finds it all the same.
const READ_AFTER_ASKING: Duration = Duration::from_millis(200);
/// Where messages are not delivered, the owners of leases that were asked for are read this often, and up to half as long
/// again, each instance with a period of its own.
const READ_WITHOUT_MESSAGES: Duration = Duration::from_millis(200);
/// How many owners are then read at a time.
const READ_WITHOUT_MESSAGES_AT_ONCE: usize = 4 * BATCH_MAX;
/// An heir whose requests stayed unanswered this many times resyncs; again at every power of two.
const RESYNC_AFTER: u32 = 2;
/// A lease that could not be acquired is not asked for for this long, then for twice as long, and so on.
const UNABLE_PAUSE: Duration = Duration::from_secs(5);

/// What this instance has asked others for.
pub(super) struct Requests {
    asked: FnvHashMap<EndpointId, Moment>,
    last: Moment,
    /// Rounds of requests since this instance last got a lease it had requested.
    unanswered: u32,
    /// Where messages are not delivered: when owners were last read, and how far in the plan that came.
    read: (Moment, usize),
    /// Leases that were asked for and released, and could not be acquired: not asked for again for a while.
    unable: Backoff<EndpointId>,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            asked: FnvHashMap::default(),
            last: Moment::MIN,
            unanswered: 0,
            read: (Moment::MIN, 0),
            unable: Backoff::new(UNABLE_PAUSE, PAUSE_MAX),
        }
    }
}

impl Requests {
    pub(super) fn was_asked(&self, endpoint: &EndpointId) -> bool {
        self.asked.contains_key(endpoint)
    }

    pub(super) fn acquired(&mut self, endpoint: &EndpointId) {
        if self.asked.remove(endpoint).is_some() {
            self.unanswered = 0;
        }
        if self.unable.end(endpoint) {
            self.unable.clear(); // the cause is mended, for the others, too
        }
    }

    /// It could not be acquired.
    pub(super) fn failed(&mut self, endpoint: &EndpointId, now: Moment) {
        self.unable.fail(endpoint, now);
    }

    /// When the next step has something to do.
    pub(super) fn due(&self, context: &MoveContext, informer: &Informer, plan: &Plan) -> Moment {
        if plan.ask.is_empty() {
            return Moment::MAX;
        }
        (self.last + ASK_AGAIN).min(self.next_read(context, informer))
    }

    /// Asks the owners of leases that the plan gives to this instance.
    pub(super) fn step(&mut self, scope: &mut MoveScope<'_>) {
        let (context, plan) = (scope.context, scope.plan);
        let now = context.now();
        let again = now >= self.last + ASK_AGAIN;
        // A lease that was released for this instance is no longer in the plan; it is remembered for a while.
        self.asked.retain(|_, at| now.since(*at) < 3 * ASK_AGAIN);
        if plan.ask.is_empty() {
            self.unanswered = 0;
            return;
        }
        let mut by_owner: FnvHashMap<&InstanceId, Vec<EndpointId>> = FnvHashMap::default();
        for (owner, endpoint) in &plan.ask {
            let is_due = again || !self.was_asked(endpoint);
            if is_due && !self.unable.is_paused(endpoint, now) {
                by_owner.entry(owner).or_default().push(endpoint.clone());
            }
        }
        if again {
            self.last = now;
            self.unanswered += u32::from(!by_owner.is_empty());
        }
        // In pieces, because a subscriber ignores a message that is too long.
        let mut messages = Vec::new();
        for (owner, wants) in by_owner {
            for wants in wants.chunks(BATCH_MAX) {
                for endpoint in wants {
                    self.asked.insert(endpoint.clone(), now);
                    scope.informer.check_owner_at(now + READ_AFTER_ASKING, endpoint);
                }
                let message = PeerMessage::new(&context.me, Some(owner.clone()));
                messages.push(PeerMessage { wants: wants.to_vec(), ..message });
            }
        }
        context.send(&messages);
        self.read_asked(scope);
        if again && self.unanswered >= RESYNC_AFTER && self.unanswered.is_power_of_two() {
            // The view of this instance may be wrong.
            scope.informer.resync_soon();
        }
    }

    /// Where messages are not delivered, when the owners of leases that were asked for are read next.
    fn next_read(&self, context: &MoveContext, informer: &Informer) -> Moment {
        if informer.gets_messages() {
            return Moment::MAX;
        }
        self.read.0 + context.own_period(READ_WITHOUT_MESSAGES)
    }

    /// No message says when a lease is released, so its owner is read as long as it is asked for; some at a time, in turn.
    fn read_asked(&mut self, scope: &mut MoveScope<'_>) {
        let now = scope.context.now();
        if now < self.next_read(scope.context, scope.informer) {
            return;
        }
        let (asked, from) = (&scope.plan.ask, self.read.1);
        let from = if from < asked.len() { from } else { 0 };
        let upto = asked.len().min(from + READ_WITHOUT_MESSAGES_AT_ONCE);
        for (_, endpoint) in &asked[from..upto] {
            if self.was_asked(endpoint) {
                scope.informer.check_owner_at(now, endpoint);
            }
        }
        self.read = (now, upto);
    }
}
