//! Which requests does Leasehold send to Redis, and which answers are there? [`Store`] is the contract; `redis` implements it for
//! a server, `memory` for tests.
//!
//! A method takes a batch, and answers each item. It is one round trip, with these exceptions: `renew`, `verify` and `release`
//! may take a second one within the same timeout; `revoke`, `inspect`, `retire` and reads of sessions on several shards take a
//! few, each with the whole timeout. A lost lease is an answer. An `Err` means that nothing is known: the caller fails closed.

pub mod admin;
pub(crate) mod announcement;
mod error;
mod exchange;
mod fast_path;
pub mod history;
pub mod keys;
pub mod lease_kind;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod peer_message;
pub mod revocations;
pub mod redis;

use std::time::Duration;

pub use crate::store::error::{Failures, Fault, StoreError};
pub use crate::store::exchange::{
    Acquire, Grant, HeartbeatReply, Judging, Lasting, Page, Publication, Publish, RawSession,
    Release, Renew, RenewItem, Reply, RequestContext, RoleStatus, Stamp, Verify,
};
pub use crate::store::history::Note;
pub use crate::store::peer_message::{Changes, PeerMessage, Push, Subscription};
pub use crate::store::revocations::{
    Beat, Hint, Revocation, RevocationReply, Revocations, SignsOfLife,
};

use crate::model::{EndpointId, InstanceId, InstanceInfo, Tenure, Weight};

/// Most items in one request: a larger batch gains nothing, and delays other clients.
pub const BATCH_MAX: usize = 500;

/// `COUNT` of a SCAN.
pub(crate) const SCAN_COUNT: usize = 1_000;

/// TTL of the record of an instance's last grant: no release or renewal is executed later.
const GRANTS_LAST: Duration = Duration::from_secs(86_400);

/// TTL of a stored hand-over request: longer than the sender waits before it sends it again.
const ASK_LASTS: Duration = Duration::from_secs(3);

/// A leader's heartbeat lasts this much longer than the role's TTL. A leader with an older heartbeat is stale.
pub const LEADER_HEARTBEAT_EXTRA: Duration = Duration::from_secs(5);

/// Result of a request.
pub type StoreResult<T> = Result<T, StoreError>;

/// Result of a request that depends on the epoch.
pub type StampedResult<T> = Result<Reply<T>, StoreError>;

/// The coordination store.
pub trait Store: Revocations + Send + Sync {
    /// Refuses a server that cannot be trusted with leases (R14).
    fn inspect(&self, timeout: Duration) -> StoreResult<()>;

    /// The server's clock in microseconds. Needs no [`RequestContext`], so it can be the first request (R4).
    fn time(&self, timeout: Duration) -> StoreResult<u64>;

    /// Writes the caller's heartbeat with its weight, for `ttl` (FR-006), and for as long what it tells about itself. What
    /// cannot be told spoils no heartbeat.
    fn heartbeat(
        &self,
        context: &RequestContext,
        ttl: Duration,
        weight: Weight,
        info: Option<&InstanceInfo>,
    ) -> StampedResult<HeartbeatReply>;

    /// Acquires free leases and those of dead owners (FR-001). Announces the grants to all instances.
    fn acquire(
        &self,
        context: &RequestContext,
        endpoints: &[EndpointId],
    ) -> StampedResult<Vec<Acquire>>;

    /// Renews the leases that the caller still holds (FR-002).
    fn renew(&self, context: &RequestContext, items: &[RenewItem]) -> StampedResult<Vec<Renew>>;

    /// Whether the caller holds each lease in the store now (FR-010).
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

    /// [`Self::verify`] for many roles in one exchange. Of a role that nobody holds it names the timing (R14).
    fn verify_roles(&self, asked: &[(RequestContext, Tenure)]) -> Vec<StampedResult<Vec<Verify>>>;

    /// [`Self::release`] for many roles in one exchange.
    fn release_roles(&self, freed: &[(RequestContext, Tenure, PeerMessage)]) -> StoreResult<()>;

    /// When each endpoint was last polled, by the server's clock in milliseconds. For an instance that was just granted
    /// them: cancels the end that [`Self::retire`] gave their records.
    fn last_polled(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<u64>>>;

    /// Releases leases of the caller (FR-003), then sends `wakes`.
    fn release(
        &self,
        context: &RequestContext,
        tenures: &[Tenure],
        wakes: &[PeerMessage],
    ) -> StoreResult<Vec<Release>>;

    /// Deletes the caller's heartbeat and what it told about itself, and announces that to all instances.
    fn withdraw(&self, context: &RequestContext) -> StoreResult<()>;

    /// Sends messages to other instances. They may get lost; a request is also stored for `ASK_LASTS`.
    fn wake(&self, wakes: &[PeerMessage], timeout: Duration) -> StoreResult<()>;

    /// The stored requests of these instances to `me`.
    fn asks(
        &self,
        me: &InstanceId,
        of: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<PeerMessage>>;

    /// One page of the names of all stored sessions. Scans every key of the server, so it is to be called rarely.
    fn session_names(&self, cursor: u64, timeout: Duration) -> StoreResult<Page<String>>;

    /// The stored sessions of these endpoints, as found; `None` where there is none.
    fn sessions(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<RawSession>>>;

    /// Whether any of these endpoints has a stored session. One command; `true` where one command cannot tell.
    fn any_session(&self, endpoints: &[EndpointId], timeout: Duration) -> StoreResult<bool>;

    /// One page of all live instances (FR-007). Scans every key of the server, so it is to be called rarely.
    fn instances(&self, cursor: u64, timeout: Duration) -> StoreResult<Page<InstanceId>>;

    /// The weight and the remaining TTL in the heartbeat of each instance; `None` for a dead instance.
    /// A revoked instance is alive until its leases may be taken over (R16).
    fn heartbeats(
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

    /// The owner of each lease and its remaining TTL (R9). Costs more than [`Self::owners`].
    fn leases(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<Lasting<InstanceId>>>>;

    /// The leases that are free, or end within `soon` unless they are renewed (R9).
    fn expiring(
        &self,
        endpoints: &[EndpointId],
        soon: Duration,
        timeout: Duration,
    ) -> StoreResult<Vec<EndpointId>>;

    /// Deletes the heartbeat, the info and the leases of a dead instance. Returns how many leases it had. `None`, and no change, if it has
    /// a heartbeat and its death is not `certain`.
    fn revoke(
        &self,
        dead: &InstanceId,
        certain: bool,
        timeout: Duration,
    ) -> StoreResult<Option<usize>>;

    /// These endpoints are no longer polled: their results expire in a day, unless their lease is held or acquired. A store
    /// may keep the results for ever. The simulator uses this default: retiring is not simulated.
    fn retire(&self, _endpoints: &[EndpointId], _timeout: Duration) -> StoreResult<()> {
        Ok(())
    }

    /// The leader, term and heartbeat of each role.
    fn role_statuses(
        &self,
        roles: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<RoleStatus>>;

    /// Every role that ever had a leader.
    fn role_names(&self, timeout: Duration) -> StoreResult<Vec<EndpointId>>;

    /// Appends to the history, for operators. A store may ignore it.
    fn remember(&self, _notes: &[Note], _timeout: Duration) -> StoreResult<()> {
        Ok(())
    }

    /// Subscribes to messages to `me` and to all, and to changes of keys if the server pushes them.
    fn listen(&self, me: &InstanceId, timeout: Duration) -> StoreResult<Box<dyn Subscription>>;
}
