//! How does an instance show that it is alive, and how is an instance revoked that does not (R16)? The part of the store's
//! contract for that.

use std::time::Duration;

use crate::model::InstanceId;
use crate::store::StoreResult;

/// Most revocations in a minute, in the whole fleet. An operator may revoke more.
pub const REVOCATIONS_PER_MINUTE: u32 = 30;

/// Signs of life, and revocations.
pub trait Revocations {
    /// Notes that the instance has given its `beats`-th sign of life.
    fn beat(&self, me: &InstanceId, beats: u64, timeout: Duration) -> StoreResult<Beat>;

    /// What tells whether these instances are alive.
    fn signs_of_life(
        &self,
        instances: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<SignsOfLife>>;

    /// Revokes an instance, if the hint still holds. Its leases stay where they are until they may be taken over.
    fn revoke_instance(
        &self,
        revocation: &Revocation,
        timeout: Duration,
    ) -> StoreResult<RevocationReply>;
}

/// Answer to a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// It was noted.
    Noted,
    /// The store knows nothing about this instance: its next heartbeat tells it again.
    Unknown,
    /// The instance was revoked: from this server time in milliseconds its leases may be taken over.
    Revoked(u64),
}

/// What the store knows of the life of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignsOfLife {
    /// How many signs of life it has given. `None`: it does not keep R15, so it cannot be revoked.
    pub beats: Option<u64>,
    /// How many connections subscribe to its messages; `None` where the server does not tell.
    pub subscribers: Option<u32>,
    /// It was revoked: from this server time in milliseconds its leases may be taken over.
    pub revoked_until_ms: Option<u64>,
}

/// Why an instance may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It has given no sign of life since this one.
    NoHeartbeat {
        /// The number of the last sign of life.
        beats: u64,
    },
    /// Its subscription has ended, and it has given no sign of life since this one.
    NoSubscriber {
        /// The number of the last sign of life.
        beats: u64,
    },
    /// An operator says so.
    Operator,
}

impl Hint {
    /// The word in log, history and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoHeartbeat { .. } => "heartbeat",
            Self::NoSubscriber { .. } => "subscriber",
            Self::Operator => "operator",
        }
    }
}

/// A request to revoke an instance.
#[derive(Clone, Debug)]
pub struct Revocation {
    /// Whom.
    pub suspect: InstanceId,
    /// Why.
    pub hint: Hint,
    /// Server time in microseconds after which nothing happens any more (R4); 0 for no limit.
    pub not_after_us: u64,
}

/// Answer to a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationReply {
    /// It is revoked. After this time its leases may be taken over.
    Revoked(Duration),
    /// It was revoked before, and has not come back.
    Already(Duration),
    /// It has no heartbeat: its leases may be taken over already (R13).
    Gone,
    /// It does not keep R15, so nobody could know when it stops.
    Unable,
    /// The hint does not hold any more.
    Alive,
    /// Nothing is revoked during a hold-off (R5).
    HoldOff,
    /// The request was executed too late (R4).
    Late,
    /// The fleet has revoked `REVOCATIONS_PER_MINUTE` instances in the last minute.
    Limit,
}
