//! The name of every key and channel, one function each.

use crate::model::{EndpointId, InstanceId};

/// A role's field with its last term is this and its name.
pub(crate) const TERM_FIELD: &str = "term:";
/// The same with its timing.
pub(crate) const TTL_FIELD: &str = "lease_ttl_ms:";

/// What all names begin with, and what they are for.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
    family: Family,
    /// What most names begin with, written out once.
    leases: String,
    /// Where the keys are. Channels belong to the whole server, so every message names its database.
    database: u32,
}

/// Leases on endpoints and leases on roles are the same, in other places.
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

    /// The same names in another database.
    pub(crate) fn in_database(self, database: u32) -> Self {
        Self { database, ..self }
    }

    pub(crate) fn database(&self) -> u32 {
        self.database
    }

    /// How everything but the sessions begins.
    pub(crate) fn coordination_prefix(&self) -> String {
        format!("{}:", self.prefix)
    }

    pub(crate) fn lease(&self, endpoint: &EndpointId) -> String {
        format!("{}{endpoint}", self.lease_prefix())
    }

    pub(crate) fn lease_prefix(&self) -> &str {
        &self.leases
    }

    /// The hash with the fence of the last grant.
    pub(crate) fn record(&self, endpoint: &EndpointId) -> String {
        self.record_prefix().map_or_else(|| self.epoch(), |it| format!("{it}{endpoint}"))
    }

    /// What the names of records begin with, unless there is one for all.
    pub(crate) fn record_prefix(&self) -> Option<&str> {
        match &self.family {
            Family::Polls { results, .. } => Some(results),
            Family::Roles { .. } => None,
        }
    }

    /// What the fields that belong to one role end with.
    pub(crate) fn suffix(&self, endpoint: &EndpointId) -> String {
        match self.family {
            Family::Polls { .. } => String::new(),
            Family::Roles { .. } => format!(":{endpoint}"),
        }
    }

    /// The field of [`Self::record`] with the fence.
    pub(crate) fn granted(&self, endpoint: &EndpointId) -> String {
        match self.family {
            Family::Polls { .. } => "granted".into(),
            Family::Roles { .. } => format!("{TERM_FIELD}{endpoint}"),
        }
    }

    /// What the names of leaders' heartbeats begin with; `None` where heartbeats are not the leases' own.
    pub(crate) fn leader_heartbeats(&self) -> Option<&str> {
        match &self.family {
            Family::Polls { .. } => None,
            Family::Roles { heartbeats } => Some(heartbeats),
        }
    }

    /// Where a leader says that it is alive.
    pub(crate) fn leader_heartbeat(&self, leader: &InstanceId) -> Option<String> {
        self.leader_heartbeats().map(|it| format!("{it}{leader}"))
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

    pub(crate) fn epoch(&self) -> String {
        format!("{}:epoch", self.prefix)
    }

    /// Where the highest fence of all is kept; a role's is in its record.
    pub(crate) fn fence(&self) -> String {
        match self.family {
            Family::Polls { .. } => format!("{}:fence", self.prefix),
            Family::Roles { .. } => self.epoch(),
        }
    }

    /// What this instance was granted and gave back last. Nobody asks for a leader's.
    pub(crate) fn grants(&self, instance: &InstanceId) -> String {
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

    pub(crate) fn wake(&self, to: Option<&InstanceId>) -> String {
        match to {
            Some(instance) => format!("{}:wake:{instance}", self.prefix),
            None => format!("{}:wake", self.prefix),
        }
    }

    pub(crate) fn context(&self, to: &InstanceId, from: &InstanceId) -> String {
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
