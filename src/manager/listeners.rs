//! Why was a lease lost?

use std::fmt;

use crate::lease::table::Loss;
use crate::model::InstanceId;

/// Why a lease ended although it was not given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseLoss {
    /// It could not be renewed in time, or the heartbeat of this instance could not.
    Expired,
    /// Another instance holds it.
    Taken(InstanceId),
    /// It is gone from Redis and cannot be reclaimed.
    Gone,
}

impl From<Loss> for LeaseLoss {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Expired => Self::Expired,
            Loss::Taken(owner) => Self::Taken(owner),
            Loss::Gone => Self::Gone,
        }
    }
}

impl fmt::Display for LeaseLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("it could not be renewed in time"),
            Self::Taken(owner) => write!(f, "{owner} holds it"),
            Self::Gone => f.write_str("it is gone from Redis"),
        }
    }
}
