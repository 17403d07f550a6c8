//! Which messages do instances send each other, and what does the server push? All of them are hints: losing one only delays.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{EndpointId, InstanceId};
use crate::store::StoreResult;

/// A message from one instance to others. It is a hint: the store confirms everything before a lease moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// To one instance, or to all.
    pub to: Option<InstanceId>,
    /// The sender.
    pub from: InstanceId,
    /// Endpoints the sender asks for (R8).
    pub wants: Vec<EndpointId>,
    /// Endpoints the sender has just let go …
    pub freed: Vec<EndpointId>,
    /// … for this heir, which asked for them; without an heir the plan decides.
    pub heir: Option<InstanceId>,
    /// Endpoints the sender has just been granted.
    pub took: Vec<EndpointId>,
    /// Endpoints the sender has just released because they are no longer to be polled.
    pub dropped: Vec<EndpointId>,
    /// Endpoints whose owner in the store differs from the sender's view.
    pub discrepancies: Vec<EndpointId>,
    /// The sender holds a lease that the receiver should have asked for, by the sender's plan.
    pub unasked: bool,
    /// Roles the sender asks the leader to give up, without an heir.
    pub resign: Vec<EndpointId>,
    /// How much the sender should be preferred as a leader of what it wants.
    pub priority: u32,
}

impl PeerMessage {
    /// A message that only says: this instance is here.
    pub fn new(from: &InstanceId, to: Option<InstanceId>) -> Self {
        let [wants, freed, took, dropped, discrepancies, resign] = std::array::from_fn(|_| vec![]);
        let (from, heir, unasked, priority) = (from.clone(), None, false, 0);
        Self {
            to,
            from,
            wants,
            freed,
            heir,
            took,
            dropped,
            discrepancies,
            unasked,
            resign,
            priority,
        }
    }
}

/// What a subscription receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// Another instance sent a message.
    Message(PeerMessage),
    /// Keys were written, removed or expired.
    Changed(Changes),
    /// Anything may have changed.
    Everything,
}

/// Keys that were written, removed or expired: which, not how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Sessions, by the suffix of their keys.
    pub sessions: Vec<String>,
    /// Instances whose heartbeat was written or is gone.
    pub nodes: Vec<InstanceId>,
    /// The set of drained instances.
    pub drain: bool,
}

/// Receives messages of other instances and changes of keys.
pub trait Subscription: Send {
    /// The next push, waiting at most `wait`; `None` when there was nothing. Messages that cannot be understood are
    /// skipped: any client may write to the channel.
    fn next(&mut self, wait: Duration) -> StoreResult<Option<Push>>;

    /// Whether the server pushes changes of keys, and not only messages.
    fn receives_changes(&self) -> bool;

    /// Whether messages can be sent and received.
    fn receives_messages(&self) -> bool {
        true
    }

    /// What the server refuses, and the way out; nothing where both arrive.
    fn refused(&self) -> Option<&str> {
        None
    }

    /// From now on [`Self::next`] stops waiting once `_stream` can be read. A subscription that cannot do that ends its waits
    /// by itself.
    fn interrupt_by(&mut self, _stream: &Arc<UnixStream>) {}
}
