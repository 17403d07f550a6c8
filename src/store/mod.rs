//! What does Leasehold ask of Redis, and which answers are there? [`Store`] is the contract; `redis` and `memory` fulfil it.
//!
//! A method is one round trip over a batch, one answer per item (`revoke`, `inspect` and what concerns sessions on
//! several shards take a few, each with the timeout; `renew` and `release` a second within it). Losing is an answer; an `Err` means only that nothing is known: the caller fails closed.

pub mod admin;
mod announcement;
mod error;
mod exchange;
mod fast_path;
pub mod history;
pub mod keys;
pub mod lease_kind;
#[cfg(any(test, feature = "__internals"))]
pub mod memory;
mod peer_message;
pub mod redis;

use std::time::Duration;

pub use crate::store::error::{Failures, Fault, StoreError};
pub use crate::store::exchange::{
    Acquire, Grant, HeartbeatReply, Lasting, Page, Publication, Publish, RawSession, Release,
    Renew, RenewItem, Reply, RequestContext, RoleStatus, Stamp, Verify,
};
pub use crate::store::history::Note;
pub use crate::store::peer_message::{Changes, PeerMessage, Push, Subscription};

use crate::model::{EndpointId, InstanceId, Tenure, Weight};

/// Most items in one call: more gains nothing and keeps other clients waiting.
pub const BATCH_MAX: usize = 500;

/// How many keys one step of a walk over all keys looks at.
pub(crate) const SCAN_COUNT: usize = 1_000;

/// The last grant of an instance is remembered for this long: no release or renewal comes later.
const GRANTS_LAST: Duration = Duration::from_secs(86_400);

/// A stored request can be read for this long: longer than the asker waits before it asks again.
const ASK_LASTS: Duration = Duration::from_secs(3);

/// A leader's heartbeat lasts this much longer than the role: older than both, its leader is stale.
pub const BEAT_EXTRA: Duration = Duration::from_secs(5);

/// Result of asking.
pub type StoreResult<T> = Result<T, StoreError>;

/// Result of asking for something that depends on the epoch.
pub type StampedResult<T> = Result<Reply<T>, StoreError>;

/// The coordination store.
pub trait Store: Send + Sync {
    /// Refuses a server that cannot be trusted with leases (R14).
    fn inspect(&self, timeout: Duration) -> StoreResult<()>;

    /// The server's clock in microseconds. Changes nothing: it may be asked before anything else is known (R4).
    fn time(&self, timeout: Duration) -> StoreResult<u64>;

    /// Keeps this instance's heartbeat for `ttl` (FR-006), with its weight.
    fn heartbeat(
        &self,
        context: &RequestContext,
        ttl: Duration,
        weight: Weight,
    ) -> StampedResult<HeartbeatReply>;

    /// Acquires free leases and those of dead owners (FR-001); tells all instances what was granted.
    fn acquire(
        &self,
        context: &RequestContext,
        endpoints: &[EndpointId],
    ) -> StampedResult<Vec<Acquire>>;

    /// Renews the leases that are still ours (FR-002).
    fn renew(&self, context: &RequestContext, items: &[RenewItem]) -> StampedResult<Vec<Renew>>;

    /// Whether each lease is still ours, in the store, now (FR-010).
    fn verify(&self, context: &RequestContext, tenures: &[Tenure]) -> StampedResult<Vec<Verify>>;

    /// Stores and announces results, each only under the lease it was polled under (G2).
    fn publish(
        &self,
        context: &RequestContext,
        publications: &[Publication],
    ) -> StampedResult<Vec<Publish>>;

    /// [`Self::acquire`] for many roles in one exchange, because each role has a timing of its own (R14).
    fn acquire_roles(
        &self,
        asked: &[(RequestContext, EndpointId)],
    ) -> Vec<StampedResult<Vec<Acquire>>>;

    /// [`Self::renew`] for many roles in one exchange.
    fn renew_roles(
        &self,
        asked: &[(RequestContext, Vec<RenewItem>)],
    ) -> Vec<StampedResult<Vec<Renew>>>;

    /// [`Self::release`] for many roles in one exchange.
    fn release_roles(&self, freed: &[(RequestContext, Tenure, PeerMessage)]) -> StoreResult<()>;

    /// When each endpoint was last polled, by the server's clock in milliseconds. For an instance that was just granted
    /// them: cancels the end that [`Self::retire`] gave their records.
    fn resume(&self, endpoints: &[EndpointId], timeout: Duration) -> StoreResult<Vec<Option<u64>>>;

    /// Releases our leases (FR-003), then sends `wakes`.
    fn release(
        &self,
        context: &RequestContext,
        tenures: &[Tenure],
        wakes: &[PeerMessage],
    ) -> StoreResult<Vec<Release>>;

    /// Deletes this instance's heartbeat, and tells all instances.
    fn withdraw(&self, context: &RequestContext) -> StoreResult<()>;

    /// Sends messages to other instances. They may get lost; a request is also stored for `ASK_LASTS`.
    fn wake(&self, wakes: &[PeerMessage], timeout: Duration) -> StoreResult<()>;

    /// What these instances have asked `me` for lately.
    fn asks(
        &self,
        me: &InstanceId,
        of: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<PeerMessage>>;

    /// One page of the names of all stored sessions. Walks over every key there is: seldom.
    fn session_names(&self, cursor: u64, timeout: Duration) -> StoreResult<Page<String>>;

    /// The stored sessions of these endpoints, as found; `None` where there is none.
    fn sessions(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<RawSession>>>;

    /// Whether any of these has a stored session, in one question; true where one question cannot tell.
    fn any_session(&self, endpoints: &[EndpointId], timeout: Duration) -> StoreResult<bool>;

    /// One page of all live instances (FR-007). Walks over every key there is: seldom.
    fn instances(&self, cursor: u64, timeout: Duration) -> StoreResult<Page<InstanceId>>;

    /// The weights these instances beat with, and how long their last beat still counts; `None` for the dead.
    fn nodes(
        &self,
        instances: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<Lasting<Weight>>>>;

    /// The owner of each lease, if it has one.
    fn owners(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<InstanceId>>>;

    /// The same, and for how long unless it is renewed (R9). Dearer.
    fn leases(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<Lasting<InstanceId>>>>;

    /// Those of these leases that are free, or will be within `soon` unless they are renewed (R9).
    fn expiring(
        &self,
        endpoints: &[EndpointId],
        soon: Duration,
        timeout: Duration,
    ) -> StoreResult<Vec<EndpointId>>;

    /// Gives back the leases of a dead instance, heartbeat first; how many there were. Unless its death
    /// is `certain`, nothing of an instance with a heartbeat is touched: `None`.
    fn revoke(
        &self,
        dead: &InstanceId,
        certain: bool,
        timeout: Duration,
    ) -> StoreResult<Option<usize>>;

    /// These endpoints are no longer to be polled: their records end in a day, unless their lease is held or acquired.
    /// A store may keep the records for ever.
    fn retire(&self, _endpoints: &[EndpointId], _timeout: Duration) -> StoreResult<()> {
        Ok(())
    }

    /// The leader, term and heartbeat of each role.
    fn role_statuses(
        &self,
        roles: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<RoleStatus>>;

    /// Every role that was ever led.
    fn role_names(&self, timeout: Duration) -> StoreResult<Vec<EndpointId>>;

    /// Appends to the history, for people. Nothing depends on it: a store may remember nothing.
    fn remember(&self, _notes: &[Note], _timeout: Duration) -> StoreResult<()> {
        Ok(())
    }

    /// Subscribes to messages to `me` and to all, and for changes of keys if the server tells them.
    fn listen(&self, me: &InstanceId, timeout: Duration) -> StoreResult<Box<dyn Subscription>>;
}
