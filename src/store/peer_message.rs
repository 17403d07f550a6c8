//! What instances say to each other, and what the server tells of its own accord. Hints, all of it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{EndpointId, InstanceId};
use crate::store::StoreResult;

/// A word from one instance to others. Nothing follows from it that the store does not confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// To one instance, or to all.
    pub to: Option<InstanceId>,
    /// Who says so.
    pub from: InstanceId,
    /// Endpoints the sender asks for (R8).
    pub wants: Vec<EndpointId>,
    /// Endpoints the sender has just let go …
    pub freed: Vec<EndpointId>,
    /// … for this one, who asked for them; for whomever the plan says otherwise.
    pub heir: Option<InstanceId>,
    /// Endpoints the sender has just been granted.
    pub took: Vec<EndpointId>,
    /// Endpoints the sender has just let go because nobody is to poll them any more.
    pub dropped: Vec<EndpointId>,
    /// Endpoints about which the sender has found something else than it thought.
    pub discrepancies: Vec<EndpointId>,
    /// The sender has something for which the receiver should have asked, it thinks.
    pub unasked: bool,
    /// Roles the sender asks the leader to give up, for whomever.
    pub resign: Vec<EndpointId>,
    /// How much the sender should be preferred as a leader of what it wants.
    pub priority: u32,
}

impl PeerMessage {
    /// A word that says no more than: I am here.
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
    /// Another instance said something.
    Word(PeerMessage),
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
    /// The set of those who are to hold nothing.
    pub drain: bool,
}

/// Hears what other instances say, and what changes.
pub trait Subscription: Send {
    /// Whatever comes next, waiting at most `wait`; `None` when there was nothing. Words that cannot
    /// be understood are passed over: the channel is a hint, and anybody may write to it.
    fn next(&mut self, wait: Duration) -> StoreResult<Option<Push>>;

    /// Whether the server tells of changes, and not only passes on words.
    fn hears_changes(&self) -> bool;

    /// Whether words can be said and heard.
    fn hears_words(&self) -> bool {
        true
    }

    /// What the server refuses, and the way out; nothing where both are heard.
    fn refused(&self) -> Option<&str> {
        None
    }

    /// From now on [`Self::next`] waits no longer once this wire can be read. An ear that cannot do that ends its waits
    /// by itself.
    fn wake_by(&mut self, _wire: &Arc<UnixStream>) {}
}
