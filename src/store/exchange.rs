//! What does an instance send to the store, and what can the store answer? Plain values; no I/O.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{
    CertificateLeft, Epoch, FenceToken, InstanceId, KnownVerdict, LeaseDuration, Sample, Session,
    Tenure, Thresholds, VerdictState, Weight,
};
use crate::store::LEADER_HEARTBEAT_EXTRA;

/// What every request carries: the caller, what it knows about the store, and until when the request may be executed.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The caller.
    pub instance: InstanceId,
    /// The agreed TTL of a lease (R14).
    pub duration: LeaseDuration,
    /// The epoch of the last reply (R5).
    pub epoch: Epoch,
    /// The server's clock ran ahead of ours: begin a new epoch if this one still runs (R5).
    pub suspect: bool,
    /// The highest server time or fence this instance has seen, in microseconds.
    pub floor_us: u64,
    /// The highest fence this instance was granted, as far as it knows.
    pub highest_fence: FenceToken,
    /// The owner's name may prove a lease, without a comparison of its fence. For a release: the thread that acquires sends it,
    /// so `highest_fence` is up to date (release_by_owner.lua). For a verification: all fences were compared in this epoch
    /// (verify_by_owner.lua).
    pub owner_only: bool,
    /// Server time after which nothing may be granted or reclaimed any more (R4); 0 for no limit.
    pub not_after_us: u64,
    /// No other instance uses this store: a missing epoch needs no hold-off.
    pub new_fleet: bool,
    /// The caller polls only under a fresh verification (R15), so it may be revoked, and may take over from a revoked one (R16).
    pub revocable: bool,
    /// The revocation after which the caller ended everything that it held (R16), as [`Stamp::revoked_until_ms`]; 0 for none.
    pub obeyed_ms: u64,
    /// Longest wait for the reply.
    pub timeout: Duration,
}

/// What every reply says about the store itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The epoch the server is in.
    pub epoch: Epoch,
    /// How long the store still grants nothing.
    pub hold_off: Duration,
    /// The server's clock when the script ran.
    pub server_us: u64,
    /// The epoch that began with the last loss of data (field `born`).
    pub data_epoch: Epoch,
    /// The caller was revoked, and nothing was decided: from this server time in milliseconds its leases may be taken over (R16).
    pub revoked_until_ms: Option<u64>,
}

/// A reply with the state of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T> {
    /// Epoch, hold-off and clock of the store.
    pub stamp: Stamp,
    /// `None`: nothing was decided. The request named another epoch (send it again with the epoch of the stamp), a heartbeat
    /// arrived after `not_after_us`, the caller was revoked, or verifications of the last epoch may still count (R15).
    pub answer: Option<T>,
}

/// Answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The previous heartbeat still existed.
    pub unbroken: bool,
    /// The weight that was written: zero when an operator drains this instance.
    pub weight: Weight,
}

/// Answer to an acquire, per endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// Granted.
    Granted {
        /// The new tenure's token.
        fence: FenceToken,
        /// Why it could be granted.
        grant: Grant,
    },
    /// Another instance holds it.
    HeldBy(InstanceId),
    /// Nothing is granted during a hold-off (R5).
    HoldOff,
    /// The caller has no heartbeat in the store (R13).
    NoHeartbeat,
    /// The request was executed too late (R4).
    Late,
    /// The store could not decide this item.
    Failed(String),
}

/// Why a lease could be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It was free.
    Free,
    /// It named the caller already: an earlier reply was lost (R7).
    Adopted,
    /// Its owner's heartbeat is gone (R13).
    Takeover,
}

/// One lease to renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewItem {
    /// The lease and its fence.
    pub tenure: Tenure,
    /// Whether a missing lease may be written again (R6): its deadline has not passed, and no other instance can have been
    /// granted it. If false, this instance may have slept while another was granted the lease: then the answer `Extended`
    /// ends the lease, too (R6).
    pub may_reclaim: bool,
    /// Its fence was compared in the epoch of the request, so that the owner's name proves it (renew_by_owner.lua).
    pub fence_checked: bool,
}

impl RenewItem {
    /// A lease that may be reclaimed, and whose fence is compared.
    pub fn new(tenure: Tenure) -> Self {
        Self { tenure, may_reclaim: true, fence_checked: false }
    }
}

/// Answer to a renewal, per lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renew {
    /// Held for another TTL.
    Extended,
    /// It was missing, and is held again under the same fence (R6).
    Reclaimed,
    /// No longer held; its owner, if it has one.
    NotOwner(Option<InstanceId>),
    /// It is missing, and the request was executed too late to reclaim it (R4).
    Late,
    /// The store could not decide this item.
    Failed(String),
}

/// Answer to a verification, per lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Held under this fence.
    Held,
    /// Missing: a renewal reclaims or ends it.
    Missing,
    /// No longer held; its owner, if it has one.
    NotOwner(Option<InstanceId>),
    /// The store could not decide this item.
    Failed(String),
}

/// One result to store and announce.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The grant it was polled under.
    pub tenure: Tenure,
    /// When the poll began, by the server's clock.
    pub started_at_ms: u64,
    /// From this start to the next one, as planned: operators see by it that a poll is late.
    pub interval: Duration,
    /// The outcome of the poll.
    pub sample: Sample,
    /// How long the certificate of the endpoint was valid yet, if it showed one.
    pub certificate: Option<CertificateLeft>,
    /// What the store needs to decide the verdict.
    pub judging: Judging,
}

/// From what the store decides the verdict of a publication, together with what it has stored.
#[derive(Clone, Debug, Default)]
pub struct Judging {
    /// What was polled: a change names its address.
    pub session: Option<Arc<Session>>,
    /// How many results in a row change the verdict.
    pub thresholds: Thresholds,
    /// What the owner saw stored last. It counts where the stored state is older or missing.
    pub known: Option<KnownVerdict>,
}

/// Answer to a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publish {
    /// Stored and announced, now or by an earlier attempt whose reply was lost. The state after it, unless that is still
    /// what [`Judging::known`] says.
    Stored(Option<VerdictState>),
    /// The lease is no longer held under that fence: nothing was written (G2).
    Fenced,
    /// The lease is missing: nothing was written, but the lease may be reclaimed.
    Missing,
    /// The store could not decide this item.
    Failed(String),
}

/// Answer to a release, per lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// It was held, and is free now.
    Released,
    /// It was not held (any more).
    NotOwner,
}

/// A stored session as found: a value, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawSession {
    /// The bytes as stored.
    Value(Vec<u8>),
    /// Another type of key.
    WrongType(String),
    /// Too large to be read; its size in bytes.
    TooLarge(usize),
}

/// A page of a SCAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of this page. An item can be on two pages.
    pub found: Vec<T>,
    /// Where the next page begins; zero when this was the last.
    pub cursor: u64,
}

/// A stored value that expires unless its owner renews it (R9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting<T> {
    /// The value.
    pub value: T,
    /// How long it still lasts.
    pub left: Duration,
}

/// Leader, heartbeat and term of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// The leader, and how long it leads unless it renews.
    pub leader: Option<Lasting<InstanceId>>,
    /// The leader's heartbeat is so old that its rights have ended (R13).
    pub is_stale: bool,
    /// How long ago its heartbeat was written.
    pub heartbeat_age: Option<Duration>,
    /// The last term.
    pub term: FenceToken,
    /// Age of that term; `None` if the server's clock was set back since.
    pub led_for: Option<Duration>,
    /// The TTL of this role (R14), once a candidate has set it.
    pub ttl: Option<Duration>,
}

impl RoleStatus {
    /// R13: whether a leader is dead whose heartbeat was written `age` ago. lease_kind.lua and role_status.lua decide the same.
    pub(crate) fn is_stale_at(age: Duration, ttl: Duration) -> bool {
        age > ttl.saturating_add(LEADER_HEARTBEAT_EXTRA)
    }
}
