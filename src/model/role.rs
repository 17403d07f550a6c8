//! What is a role called? Checks names. Pure.

use std::fmt;
use std::str::FromStr;

use crate::model::EndpointId;

/// What one instance at a time leads. The characters of an endpoint's id; `epoch` and `heartbeat` are taken.
///
/// An election is a lease whose name is a role, so a role is also what the lease is on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Role(EndpointId);

/// Names that other keys beside the roles' have.
const TAKEN: [&str; 2] = ["epoch", "heartbeat"];

impl Role {
    /// Checks the name: it becomes part of keys, log lines and environment variables.
    ///
    /// ```
    /// use leasehold::Role;
    ///
    /// assert_eq!(Role::parse("cleanup").unwrap().as_str(), "cleanup");
    /// assert!(Role::parse("epoch").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, InvalidRole> {
        if TAKEN.contains(&text) {
            return Err(InvalidRole);
        }
        EndpointId::parse(text).map(Self).map_err(|_| InvalidRole)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// What the lease is on.
    pub fn as_lease(&self) -> &EndpointId {
        &self.0
    }
}

impl FromStr for Role {
    type Err = InvalidRole;
    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Role {
    type Error = InvalidRole;
    fn try_from(text: &str) -> Result<Self, InvalidRole> {
        Self::parse(text)
    }
}

impl AsRef<str> for Role {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name that no role can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidRole;

impl fmt::Display for InvalidRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a role is 1 to 128 characters of A-Z a-z 0-9 . _ - and not epoch or heartbeat")
    }
}

impl std::error::Error for InvalidRole {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_named_like_an_endpoint_but_not_like_the_keys_beside_it() {
        for name in ["backup", "daily-report", "a.b_C-9", "epochs", &"r".repeat(128)] {
            assert_eq!(Role::parse(name).unwrap().as_str(), name);
            assert_eq!(name.parse::<Role>().unwrap().as_ref(), name);
        }
        for name in ["", "epoch", "heartbeat", "a b", "a:b", "ä", &"r".repeat(129)] {
            assert_eq!(Role::parse(name), Err(InvalidRole), "{name:?}");
            assert_eq!(Role::try_from(name), Err(InvalidRole), "{name:?}");
        }
    }
}
