//! What is the name of each key and channel? One function each. Pure: asks nothing.

use crate::model::{EndpointId, InstanceId};
use crate::store::lease_kind::LeaseKind;

/// Prefix of the field with a role's last term.
pub(crate) const TERM_FIELD: &str = "term:";
/// Prefix of the field with a role's TTL.
pub(crate) const TTL_FIELD: &str = "lease_ttl_ms:";

/// Every key and channel of one store, under its prefix.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
    family: Family,
    /// Prefix of the leases, the keys that are named most often.
    leases: String,
    /// The database of the keys. Channels belong to the whole server, so every message names its database.
    database: u32,
}

/// The keys that only one kind of lease has.
#[derive(Clone, Debug)]
enum Family {
    /// The fence of an endpoint is kept with its result, the timing once for all.
    Polls { sessions: String, results: String },
    /// Term and timing of each role are kept with the epoch.
    Roles { heartbeats: String },
}

impl Keys {
    /// Names under `prefix` (`poll`), sessions under `session_prefix` (`session:`).
    pub fn new(prefix: &str, session_prefix: &str) -> Self {
        let results = format!("{prefix}:result:");
        let family = Family::Polls { sessions: session_prefix.into(), results };
        Self { prefix: prefix.into(), family, leases: format!("{prefix}:lease:"), database: 0 }
    }

    /// Names of roles under `prefix` (`leader`), heartbeats of leaders under their own
    /// (`leader:heartbeat:`).
    pub fn of_roles(prefix: &str, heartbeat_prefix: &str) -> Self {
        let family = Family::Roles { heartbeats: heartbeat_prefix.into() };
        Self { prefix: prefix.into(), family, leases: format!("{prefix}:"), database: 0 }
    }

    /// Which leases these keys are for.
    pub(crate) fn kind(&self) -> LeaseKind {
        match self.family {
            Family::Polls { .. } => LeaseKind::Poll,
            Family::Roles { .. } => LeaseKind::Role,
        }
    }

    /// The same names in another database.
    pub(crate) fn in_database(self, database: u32) -> Self {
        Self { database, ..self }
    }

    pub(crate) fn database(&self) -> u32 {
        self.database
    }

    /// Prefix of every key but the sessions.
    pub(crate) fn coordination_prefix(&self) -> String {
        format!("{}:", self.prefix)
    }

    pub(crate) fn lease(&self, endpoint: &EndpointId) -> String {
        format!("{}{endpoint}", self.lease_prefix())
    }

    pub(crate) fn lease_prefix(&self) -> &str {
        &self.leases
    }

    /// The hash with the fence of the last grant. For roles: the key `leader:epoch`.
    pub(crate) fn record_key(&self, endpoint: &EndpointId) -> String {
        self.record_prefix().map_or_else(|| self.epoch(), |it| format!("{it}{endpoint}"))
    }

    /// Prefix of the records; `None` where one record serves all leases.
    pub(crate) fn record_prefix(&self) -> Option<&str> {
        match &self.family {
            Family::Polls { results, .. } => Some(results),
            Family::Roles { .. } => None,
        }
    }

    /// Suffix of the fields of one role; empty for polls, which share their fields.
    pub(crate) fn field_suffix(&self, endpoint: &EndpointId) -> String {
        match self.family {
            Family::Polls { .. } => String::new(),
            Family::Roles { .. } => format!(":{endpoint}"),
        }
    }

    /// The field of [`Self::record_key`] with the fence.
    pub(crate) fn fence_field(&self, endpoint: &EndpointId) -> String {
        match self.family {
            Family::Polls { .. } => "granted".into(),
            Family::Roles { .. } => format!("{TERM_FIELD}{endpoint}"),
        }
    }

    /// Prefix of leaders' heartbeats; empty for polls, whose owners have node keys.
    pub(crate) fn leader_heartbeats(&self) -> &str {
        match &self.family {
            Family::Polls { .. } => "",
            Family::Roles { heartbeats } => heartbeats,
        }
    }

    /// The key with the last heartbeat of `leader`; empty for polls.
    pub(crate) fn leader_heartbeat(&self, leader: &InstanceId) -> String {
        match &self.family {
            Family::Polls { .. } => String::new(),
            Family::Roles { heartbeats } => format!("{heartbeats}{leader}"),
        }
    }

    pub(crate) fn results_channel(&self, endpoint: &EndpointId) -> String {
        format!("{}{endpoint}", self.results_prefix())
    }

    pub(crate) fn results_prefix(&self) -> String {
        format!("{}:results:", self.prefix)
    }

    pub(crate) fn node(&self, instance: &InstanceId) -> String {
        format!("{}:node:{instance}", self.prefix)
    }

    pub(crate) fn node_prefix(&self) -> String {
        format!("{}:node:", self.prefix)
    }

    /// The hash in which an instance tells about itself.
    pub(crate) fn info(&self, instance: &InstanceId) -> String {
        format!("{}:info:{instance}", self.prefix)
    }

    /// The key of a revoked instance.
    pub(crate) fn revoked(&self, instance: &InstanceId) -> String {
        format!("{}:revoked:{instance}", self.prefix)
    }

    /// How many instances the fleet has revoked in the last minute.
    pub(crate) fn revocations(&self) -> String {
        format!("{}:revocations", self.prefix)
    }

    pub(crate) fn epoch(&self) -> String {
        format!("{}:epoch", self.prefix)
    }

    /// The key of the highest fence of all. For roles: the key `leader:epoch`.
    pub(crate) fn highest_fence_key(&self) -> String {
        match self.family {
            Family::Polls { .. } => format!("{}:fence", self.prefix),
            Family::Roles { .. } => self.epoch(),
        }
    }

    /// The hash with the last grant and the last release of this instance. For roles: the key `leader:epoch`, which scripts do
    /// not read for this.
    pub(crate) fn grants_key(&self, instance: &InstanceId) -> String {
        match self.family {
            Family::Polls { .. } => format!("{}:grants:{instance}", self.prefix),
            Family::Roles { .. } => self.epoch(),
        }
    }

    pub(crate) fn drain(&self) -> String {
        format!("{}:drain", self.prefix)
    }

    pub(crate) fn history(&self) -> String {
        format!("{}:history", self.prefix)
    }

    /// The stream of the runs of all roles. No role has a colon in its name.
    pub(crate) fn runs(&self) -> String {
        format!("{}history:runs", self.leases)
    }

    /// The hash with the start of the last successful run of each role.
    pub(crate) fn last_runs(&self) -> String {
        format!("{}history:last", self.leases)
    }

    /// The stream of changes, and the channel of the same name.
    pub(crate) fn changes(&self) -> String {
        format!("{}:changes", self.prefix)
    }

    pub(crate) fn message_channel(&self, to: Option<&InstanceId>) -> String {
        match to {
            Some(instance) => format!("{}:wake:{instance}", self.prefix),
            None => format!("{}:wake", self.prefix),
        }
    }

    pub(crate) fn ask(&self, to: &InstanceId, from: &InstanceId) -> String {
        format!("{}:ask:{to}:{from}", self.prefix)
    }

    pub(crate) fn session(&self, endpoint: &EndpointId) -> String {
        format!("{}{endpoint}", self.session_prefix())
    }

    /// Roles have no sessions.
    pub(crate) fn session_prefix(&self) -> &str {
        match &self.family {
            Family::Polls { sessions, .. } => sessions,
            Family::Roles { .. } => "",
        }
    }
}
