//! What does an instance send to the store, and what can the store answer? Plain values; no I/O.

use std::time::Duration;

use crate::model::{Epoch, FenceToken, InstanceId, LeaseDuration, Sample, Tenure, Weight};

/// Who asks, what it believes about the store, and until when the question may be answered.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The asking instance.
    pub instance: InstanceId,
    /// The agreed life of a lease (R14).
    pub duration: LeaseDuration,
    /// The epoch the question was decided under (R5).
    pub epoch: Epoch,
    /// The server's clock ran ahead of ours: begin a new epoch if this one still runs (R5).
    pub suspect: bool,
    /// The highest server time or fence this instance has seen, in microseconds.
    pub floor_us: u64,
    /// The highest fence this instance was granted, as far as it has heard.
    pub highest_fence: FenceToken,
    /// For a release by the only one who acquires for this instance: if the store has granted it nothing that it
    /// had not heard of, its name proves what it gives back (release_by_owner.lua). For a verification: the fences of all of them
    /// were compared in this epoch (verify_by_owner.lua). Otherwise each fence is compared.
    pub owner_only: bool,
    /// Server time after which nothing may be granted or reclaimed any more (R4); 0 for no limit.
    pub not_after_us: u64,
    /// Nobody else runs on this store: a missing epoch needs no hold-off.
    pub new_fleet: bool,
    /// How long the whole exchange may take.
    pub timeout: Duration,
}

/// What every reply says about the store itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The epoch the server is in.
    pub epoch: Epoch,
    /// How much of its hold-off is left.
    pub hold_off: Duration,
    /// The server's clock when it answered.
    pub server_us: u64,
    /// The epoch that began with its last loss of memory.
    pub data_epoch: Epoch,
}

/// A stamped answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T> {
    /// What it says about the store.
    pub stamp: Stamp,
    /// `None`: the question was decided under another epoch; ask again under this one.
    pub answer: Option<T>,
}

/// Answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The previous heartbeat was still there.
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
    /// The asking instance has no heartbeat in the store (R13).
    NoHeartbeat,
    /// The question arrived too late to be answered (R4).
    Late,
    /// The store could not decide this item.
    Failed(String),
}

/// Why a lease could be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It was free.
    Free,
    /// It was there under our own id: an earlier reply was lost (R7).
    Adopted,
    /// Its owner's heartbeat is gone (R13).
    Takeover,
}

/// One lease to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewItem {
    /// Which grant.
    pub tenure: Tenure,
    /// Whether it may be put back if it is missing (R6): its deadline has not passed, and no other can have
    /// had it in a life of the store that was forgotten.
    pub may_reclaim: bool,
    /// Its fence was compared in the epoch that is named, so that its owner's name proves it (see renew_by_owner.lua).
    pub matched: bool,
}

impl RenewItem {
    /// One that may be put back, and whose fence is to be compared.
    pub fn new(tenure: Tenure) -> Self {
        Self { tenure, may_reclaim: true, matched: false }
    }
}

/// Answer to a renewal, per lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renew {
    /// Ours for another TTL.
    Extended,
    /// It was missing; ours again, under the same fence (R6).
    Reclaimed,
    /// No longer ours; whose, if anybody's.
    NotOwner(Option<InstanceId>),
    /// It is missing, and the question arrived too late to put it back (R4).
    Late,
    /// The store could not decide this item.
    Failed(String),
}

/// Answer to a verification, per lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Ours, under this fence.
    Held,
    /// Nobody's: a renewal will put it back or lose it.
    Missing,
    /// No longer ours; whose.
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
    /// When its owner means to poll next, from then on: so that people see when that does not happen.
    pub interval: Duration,
    /// What came of it.
    pub sample: Sample,
}

/// Answer to a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publish {
    /// Stored and announced, now or by an earlier attempt whose reply was lost.
    Stored,
    /// The lease is no longer held under that fence: nothing was written (G2).
    Fenced,
    /// Nobody has the lease: nothing was written, but it may be reclaimed.
    Missing,
    /// The store could not decide this item.
    Failed(String),
}

/// Answer to a release, per lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// It was ours and is free now.
    Released,
    /// It was not ours (any more).
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

/// A page of names, as a walk over all keys finds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What this page holds; a name may turn up on two pages.
    pub found: Vec<T>,
    /// Where the next page begins; zero when this was the last.
    pub cursor: u64,
}

/// A stored value that expires unless its owner renews it (R9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting<T> {
    /// The value.
    pub it: T,
    /// How long it still lasts.
    pub left: Duration,
}

/// How a role stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// Who leads, and for how long unless it renews.
    pub leader: Option<Lasting<InstanceId>>,
    /// Its heartbeat is older than it can be while it has any right (R13).
    pub is_stale: bool,
    /// How long ago its heartbeat was written.
    pub heartbeat_age: Option<Duration>,
    /// The last term.
    pub term: FenceToken,
    /// How long ago that began; `None` when the server's clock was set back since.
    pub led_for: Option<Duration>,
    /// The TTL of this role (R14), once a candidate has named it.
    pub ttl: Option<Duration>,
}
