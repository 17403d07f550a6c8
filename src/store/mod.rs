//! The questions Leasehold asks of Redis, and every answer there is.
//!
//! A method is one round trip over a batch, one answer per item (`bury`, `inspect` and what concerns sessions on
//! several shards take a few, each with the timeout; `renew` and `release` a second within it). Losing is an answer; an `Err` means only that nothing is known: the caller fails closed.

pub mod acl;
mod calls;
mod ear;
mod fault;
pub mod follow;
pub mod history;
pub mod keys;
pub mod kinds;
pub mod memory;
mod message;
pub mod overview;
mod place;
pub mod probe;
pub mod redis;
mod reply;
mod roles;
mod scan;
mod script;
mod seats;
pub mod sessions;
mod socket;
mod spread;
mod tls;
mod trust;
mod verbs;
mod ways;
mod wire;
mod words;

use std::time::Duration;

pub use crate::store::fault::{Failures, Fault, StoreError};
pub use crate::store::history::Note;
pub use crate::store::words::{Changes, Ear, Heard, Wake};

use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, Sample, Tenure, Term, Weight};

/// Most items in one call: more gains nothing and keeps other clients waiting.
pub const BATCH_MAX: usize = 500;

/// How many keys one step of a walk over all keys looks at.
pub(crate) const SCAN_COUNT: usize = 1_000;

/// What an instance was granted last is remembered for this long: no release or renewal comes later.
const GRANTS_LAST: Duration = Duration::from_secs(86_400);

/// What is asked for can be read for this long: longer than it takes to ask again.
const ASK_LASTS: Duration = Duration::from_secs(3);

/// A leader's heartbeat lasts this much longer than the role: older than both, its leader is stale.
pub const BEAT_EXTRA: Duration = Duration::from_secs(5);

/// Who asks, what it believes about the store, and until when the question may be answered.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The asking instance.
    pub instance: InstanceId,
    /// The agreed life of a lease (R14).
    pub term: Term,
    /// The epoch the question was decided under (R5).
    pub epoch: Epoch,
    /// The server's clock ran ahead of ours: begin a new epoch if this one still runs (R5).
    pub suspect: bool,
    /// The highest server time or fence this instance has seen, in microseconds.
    pub floor_us: u64,
    /// The highest fence this instance was granted, as far as it has heard.
    pub heard: FenceToken,
    /// For a release by the only one who acquires for this instance: if the store has granted it nothing that it
    /// had not heard of, its name proves what it gives back (free.lua). For a verification: the fences of all of them
    /// were compared in this epoch (held.lua). Otherwise each fence is compared.
    pub by_name: bool,
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
    pub born: Epoch,
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
pub struct Beat {
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
    /// Somebody else has it.
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
    /// Its fence was compared in the epoch that is named, so that its owner's name proves it (see keep.lua).
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

/// Something stored that ends by itself unless somebody keeps it (R9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting<T> {
    /// What is stored.
    pub it: T,
    /// How long it still lasts.
    pub left: Duration,
}

/// How a role stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Who leads, and for how long unless it renews.
    pub leader: Option<Lasting<InstanceId>>,
    /// Its heartbeat is older than it can be while it has any right (R13).
    pub is_stale: bool,
    /// How long ago its heartbeat was written.
    pub beaten: Option<Duration>,
    /// The last term.
    pub term: FenceToken,
    /// How long ago that began; `None` when the server's clock was set back since.
    pub led_for: Option<Duration>,
    /// The life of this role (R14), once somebody has named it.
    pub ttl: Option<Duration>,
}

/// Result of asking.
pub type Asked<T> = Result<T, StoreError>;

/// Result of asking for something that depends on the epoch.
pub type Stamped<T> = Result<Reply<T>, StoreError>;

/// The coordination store.
pub trait Store: Send + Sync {
    /// Refuses a server that cannot be trusted with leases (R14).
    fn inspect(&self, timeout: Duration) -> Asked<()>;

    /// The server's clock in microseconds. Changes nothing: it may be asked before anything else is known (R4).
    fn time(&self, timeout: Duration) -> Asked<u64>;

    /// Keeps this instance's heartbeat for `ttl` (FR-006), with its weight.
    fn beat(&self, ask: &Ask, ttl: Duration, weight: Weight) -> Stamped<Beat>;

    /// Takes what is free, and what its dead owner left (FR-001); tells all what was granted.
    fn acquire(&self, ask: &Ask, endpoints: &[EndpointId]) -> Stamped<Vec<Acquire>>;

    /// Keeps what is still ours (FR-002).
    fn renew(&self, ask: &Ask, items: &[RenewItem]) -> Stamped<Vec<Renew>>;

    /// Is it still ours, in the store, now (FR-010)?
    fn verify(&self, ask: &Ask, tenures: &[Tenure]) -> Stamped<Vec<Verify>>;

    /// Stores and announces results, each only under the lease it was polled under (G2).
    fn publish(&self, ask: &Ask, publications: &[Publication]) -> Stamped<Vec<Publish>>;

    /// [`Self::acquire`] for many roles in one exchange, because each role has a timing of its own (R14).
    fn acquire_roles(&self, asked: &[(Ask, EndpointId)]) -> Vec<Stamped<Vec<Acquire>>>;

    /// [`Self::renew`] for many roles in one exchange.
    fn renew_roles(&self, asked: &[(Ask, Vec<RenewItem>)]) -> Vec<Stamped<Vec<Renew>>>;

    /// [`Self::release`] for many roles in one exchange.
    fn release_roles(&self, freed: &[(Ask, Tenure, Wake)]) -> Asked<()>;

    /// When each of these was last polled, by the server's clock in milliseconds. For who has just been granted
    /// them: what is remembered of them does not end any more.
    fn resume(&self, endpoints: &[EndpointId], timeout: Duration) -> Asked<Vec<Option<u64>>>;

    /// Gives back what is ours (FR-003) and tells those who wait, in this order.
    fn release(&self, ask: &Ask, tenures: &[Tenure], wakes: &[Wake]) -> Asked<Vec<Release>>;

    /// Takes this instance's heartbeat away, and says so.
    fn withdraw(&self, ask: &Ask) -> Asked<()>;

    /// Sends words to other instances. They may get lost; what one asks another for can be read for a while.
    fn wake(&self, wakes: &[Wake], timeout: Duration) -> Asked<()>;

    /// What these instances have asked `me` for lately.
    fn asks(&self, me: &InstanceId, of: &[InstanceId], timeout: Duration) -> Asked<Vec<Wake>>;

    /// One page of the names of all stored sessions. Walks over every key there is: seldom.
    fn session_names(&self, cursor: u64, timeout: Duration) -> Asked<Page<String>>;

    /// The stored sessions of these endpoints, as found; `None` where there is none.
    fn sessions(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> Asked<Vec<Option<RawSession>>>;

    /// Whether any of these has a stored session, in one question; true where one question cannot tell.
    fn any_session(&self, endpoints: &[EndpointId], timeout: Duration) -> Asked<bool>;

    /// One page of all live instances (FR-007). Walks over every key there is: seldom.
    fn instances(&self, cursor: u64, timeout: Duration) -> Asked<Page<InstanceId>>;

    /// The weights these instances beat with, and how long their last beat still counts; `None` for the dead.
    fn nodes(
        &self,
        instances: &[InstanceId],
        timeout: Duration,
    ) -> Asked<Vec<Option<Lasting<Weight>>>>;

    /// Who owns each of these, if anybody.
    fn owners(&self, endpoints: &[EndpointId], timeout: Duration)
    -> Asked<Vec<Option<InstanceId>>>;

    /// The same, and for how long unless it is renewed (R9). Dearer.
    fn leases(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> Asked<Vec<Option<Lasting<InstanceId>>>>;

    /// Those of these leases that are free, or will be within `soon` unless they are renewed (R9).
    fn waning(
        &self,
        endpoints: &[EndpointId],
        soon: Duration,
        timeout: Duration,
    ) -> Asked<Vec<EndpointId>>;

    /// Gives back the leases of a dead instance, heartbeat first; how many there were. Unless its death
    /// is `certain`, nothing of an instance with a heartbeat is touched: `None`.
    fn bury(&self, dead: &InstanceId, certain: bool, timeout: Duration) -> Asked<Option<usize>>;

    /// Nobody is to poll these any more: what is remembered of them ends in a day, unless somebody has or
    /// takes the lease. A store may remember it for ever.
    fn retire(&self, _endpoints: &[EndpointId], _timeout: Duration) -> Asked<()> {
        Ok(())
    }

    /// How these roles stand.
    fn seats(&self, roles: &[EndpointId], timeout: Duration) -> Asked<Vec<Seat>>;

    /// Every role that was ever led.
    fn role_names(&self, timeout: Duration) -> Asked<Vec<EndpointId>>;

    /// Appends to the history, for people. Nothing depends on it: a store may remember nothing.
    fn remember(&self, _notes: &[Note], _timeout: Duration) -> Asked<()> {
        Ok(())
    }

    /// Opens an ear for words to `me` and to all, and for changes of keys if the server tells them.
    fn listen(&self, me: &InstanceId, timeout: Duration) -> Asked<Box<dyn Ear>>;
}
