//! Which kind of lease does a store keep, and what differs between the two kinds?
//!
//! A lease on an endpoint gives the right to poll it, a lease on a role the right to lead. Scripts, table, renewal and expiry
//! are the same. Each difference is one method here, one name in [`Keys`](crate::store::keys::Keys), or one step of a script
//! (`redis/lua/lease_kind.lua`, and `memory/kinds.rs` for the in-memory server). Pure: asks nothing.

use crate::store::error::{JOIN_FLEET, STAND_FOR_ROLE};

/// The two kinds of lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// On an endpoint: its owner polls it.
    Poll,
    /// On a role: its owner leads.
    Role,
}

impl LeaseKind {
    /// Whether leases are renewed, verified and released by the owner's name alone where that proves enough. Each renewal of
    /// a role writes the leader's heartbeat, so roles take no shortcut.
    pub fn has_owner_fast_path(self) -> bool {
        self == Self::Poll
    }

    /// Whether the leases belong to sessions, and instances learn of changes by pushes. Roles are few: a candidate
    /// looks at its role in time, and receives the messages.
    pub fn has_sessions(self) -> bool {
        self == Self::Poll
    }

    /// Whether a request to an owner is also stored, for an owner that missed the message. A leader is asked again at
    /// the candidate's next look.
    pub fn stores_requests(self) -> bool {
        self == Self::Poll
    }

    /// Whether the record of a removed lease ends. A role is never over: its term stays.
    pub fn records_end(self) -> bool {
        self == Self::Poll
    }

    /// What a refused TTL kept an instance from doing, and who has the other TTL (R14).
    pub(crate) fn disagreement(self) -> (&'static str, &'static str) {
        match self {
            Self::Poll => (JOIN_FLEET, "the fleet runs"),
            Self::Role => (STAND_FOR_ROLE, "the role has been led"),
        }
    }

    /// How an operator removes the agreed TTL: by the key `epoch`, or by its `field` for one role.
    pub(crate) fn forget_ttl(self, epoch: &str, field: &str) -> String {
        match self {
            Self::Poll => format!("delete the key {epoch}"),
            Self::Role => format!("run redis-cli HDEL {epoch} {field}"),
        }
    }
}
