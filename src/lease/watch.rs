//! Did the store or another instance announce a change? Subscribes in the store, and passes every push on as a nudge.
//!
//! A nudge is a hint: a lost one only delays what an audit or a resync finds later.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::trouble::{Change, Trouble};
use crate::model::InstanceId;
use crate::store::{PeerMessage, Push, Store, Subscription};

/// How long one wait for a push lasts if nothing can interrupt it ([`Watch::interrupted_by`]).
const WAIT: Duration = Duration::from_millis(200);
/// How soon a subscription that broke is opened again. If that fails, the next attempt comes after a second.
const RETRY_MIN: Duration = Duration::from_millis(10);

/// A reason to look at the store, or to move leases.
#[derive(Clone, Debug)]
pub enum Nudge {
    /// A subscription began, or the subscription was lost (then both flags are false). Earlier messages may be lost.
    Listening {
        /// Whether messages of other instances arrive.
        messages: bool,
        /// Whether changes of keys arrive.
        changes: bool,
        /// What the server refuses, and how to allow it.
        refused: Option<String>,
    },
    /// The store pushed a change, or another instance sent a message.
    Push(Push),
    /// A poll that a hand-over waits for has ended.
    PollEnded,
}

/// The thread `watch`: wakes on a push from the store.
pub struct Watch {
    store: Arc<dyn Store>,
    me: InstanceId,
    timeout: Duration,
    nudge: Box<dyn FnMut(Nudge) + Send>,
    subscription: Option<Box<dyn Subscription>>,
    /// Becomes readable when a wait for a push is to end.
    wire: Option<Arc<UnixStream>>,
    told: bool,
    passed_on: u64,
    /// What the server refuses, as last reported.
    refused: Trouble,
}

impl Watch {
    /// Subscribes for `me`, and passes every push to `nudge`, in order.
    pub fn new(
        store: Arc<dyn Store>,
        me: InstanceId,
        timeout: Duration,
        nudge: impl FnMut(Nudge) + Send + 'static,
    ) -> Self {
        let (subscription, wire) = (None, None);
        Self {
            store,
            me,
            timeout,
            nudge: Box::new(nudge),
            subscription,
            wire,
            told: false,
            passed_on: 0,
            refused: Trouble::default(),
        }
    }

    /// Ends a wait for a push once `wire` can be read.
    pub fn interrupted_by(self, wire: UnixStream) -> Self {
        Self { wire: Some(Arc::new(wire)), ..self }
    }

    /// Waits for a push and passes it on. Returns how long to wait before the next step.
    pub fn step(&mut self) -> Duration {
        let push = match &mut self.subscription {
            Some(subscription) => subscription.next(WAIT),
            None => match self.store.listen(&self.me, self.timeout) {
                Ok(mut subscription) => {
                    self.wire.iter().for_each(|it| subscription.interrupt_by(it));
                    let refused =
                        match self.refused.update(subscription.refused().map(str::to_owned)) {
                            Some(Change::Failed(refused)) => Some(refused),
                            Some(Change::Resumed) | None => None,
                        };
                    self.tell(
                        subscription.receives_messages(),
                        subscription.receives_changes(),
                        refused,
                    );
                    self.subscription = Some(subscription);
                    // Announces this instance to those that receive messages, but no changes of keys.
                    let _ = self.store.wake(&[PeerMessage::new(&self.me, None)], self.timeout);
                    return Duration::ZERO;
                }
                Err(error) => Err(error),
            },
        };
        match push {
            Ok(push) => {
                self.passed_on += u64::from(push.is_some());
                push.into_iter().for_each(|it| (self.nudge)(Nudge::Push(it)));
                Duration::ZERO
            }
            Err(_) => {
                let was_subscribed = self.subscription.take().is_some();
                if was_subscribed || !self.told {
                    self.tell(false, false, None);
                }
                // R16: others take an instance without a subscription for dead, so a broken one is opened again at once.
                if was_subscribed { RETRY_MIN } else { Duration::from_secs(1).min(self.timeout) }
            }
        }
    }

    /// How many pushes it has passed on.
    #[cfg(any(test, feature = "__internals"))]
    pub fn passed_on(&self) -> u64 {
        self.passed_on
    }

    fn tell(&mut self, messages: bool, changes: bool, refused: Option<String>) {
        self.told = true;
        (self.nudge)(Nudge::Listening { messages, changes, refused });
    }
}
