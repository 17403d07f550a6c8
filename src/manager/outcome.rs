//! What can a program be told when it asks for a lease, or gives it back? Plain values.

use std::fmt;
use std::time::Duration;

use crate::manager::lease::Lease;
use crate::model::{EndpointId, InstanceId, InvalidId};
use crate::store::{Fault, StoreError};

/// The answer to a request for a lease.
#[derive(Debug)]
#[must_use = "an answer that is dropped gives the lease back at once"]
#[non_exhaustive]
pub enum Acquired {
    /// This instance holds the lease, for as long as the guard lives and [`Lease::holds`].
    Held(Lease),
    /// Another instance holds it.
    HeldBy(InstanceId),
    /// Redis is new or has lost its memory, so nothing is granted for this long (R5).
    HoldOff(Duration),
    /// Nobody else is known to hold it, but it cannot be granted at this moment: try again soon.
    NotNow(NotNow),
}

impl Acquired {
    /// The guard, if this instance holds the lease.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// if let Some(lease) = manager.try_acquire("nightly-report")?.held() {
    ///     println!("under fence {}", lease.fence());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn held(self) -> Option<Lease> {
        match self {
            Self::Held(lease) => Some(lease),
            Self::HeldBy(_) | Self::HoldOff(_) | Self::NotNow(_) => None,
        }
    }

    /// Whether this instance holds the lease.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }
}

/// A sentence for people, such as `held by vm-2-…`.
impl fmt::Display for Acquired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(lease) => write!(f, "held under fence {}", lease.fence()),
            Self::HeldBy(owner) => write!(f, "held by {owner}"),
            Self::HoldOff(left) => write!(f, "nothing is granted for another {left:?}"),
            Self::NotNow(reason) => write!(f, "not now: {reason}"),
        }
    }
}

/// Why a lease cannot be granted at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotNow {
    /// This instance holds it, but could not confirm that lately: nothing may be done under it until a renewal is answered.
    Uncertain,
    /// Redis has no heartbeat of this instance. The next one comes by itself.
    NoHeartbeat,
    /// The answer came too late to count.
    Late,
}

impl fmt::Display for NotNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uncertain => "it is held here, but its last renewal got no answer",
            Self::NoHeartbeat => "Redis has no heartbeat of this instance",
            Self::Late => "the answer came too late to count",
        })
    }
}

/// What became of a lease that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// Redis has confirmed that it is free.
    GivenBack,
    /// Other guards of this process still hold it. The last of them gives it back.
    StillShared,
    /// It was not held any more: it had been lost, or given back before.
    NotHeld,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LeaseError {
    /// No lease can have this name.
    Name {
        /// The name that was asked for.
        name: String,
        /// What a name looks like.
        why: InvalidId,
    },
    /// Redis could not be asked, or this manager can hold nothing any more. Nothing is known.
    Store(StoreError),
}

impl LeaseError {
    /// What kind of fault it was: whether trying again can help.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Name { .. } => Fault::Misconfigured,
            Self::Store(error) => error.fault,
        }
    }
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, why } => write!(f, "{name:?} is not the name of a lease: {why}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LeaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Name { why, .. } => Some(why),
            Self::Store(error) => Some(error),
        }
    }
}

impl From<StoreError> for LeaseError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The name of a lease, checked.
pub(super) fn named(name: impl AsRef<str>) -> Result<EndpointId, LeaseError> {
    let name = name.as_ref();
    EndpointId::parse(name).map_err(|why| LeaseError::Name { name: name.into(), why })
}

/// [`Acquired`] without a guard, for all threads that share an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    HeldBy(InstanceId),
    HoldOff(Duration),
    NotNow(NotNow),
}

impl From<Refusal> for Acquired {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::HeldBy(owner) => Self::HeldBy(owner),
            Refusal::HoldOff(left) => Self::HoldOff(left),
            Refusal::NotNow(reason) => Self::NotNow(reason),
        }
    }
}
