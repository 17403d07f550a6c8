//! Which pushes does one instance receive from the in-memory server?

use std::time::Duration;

use crate::model::InstanceId;
use crate::store::memory::MemoryStore;
use crate::store::{Push, StoreResult, Subscription};

/// Learns what subscribers are pushed: a subscription of the in-memory store does not wait.
pub(crate) trait PushObserver: Send + Sync {
    /// Subscribers were pushed something, or lost their subscription.
    fn pushed(&self);
    /// A subscriber has asked, and nothing was there.
    fn nothing_pushed(&self);
}

pub(crate) struct MemorySubscription {
    pub(crate) me: InstanceId,
    pub(crate) store: MemoryStore,
}

impl Subscription for MemorySubscription {
    fn next(&mut self, _: Duration) -> StoreResult<Option<Push>> {
        let me = self.me.clone();
        let push = self.store.call("next_push", move |state, clock| {
            state.forget_expired(clock);
            state.heard(&me)
        })?;
        if push.is_none() {
            self.store.server.pushes.get().into_iter().for_each(|it| it.nothing_pushed());
        }
        Ok(push)
    }

    fn receives_changes(&self) -> bool {
        true
    }
}
