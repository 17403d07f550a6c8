//! The name of every key and channel, one function each.

use crate::model::{EndpointId, InstanceId};

/// The two prefixes all names begin with.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
    sessions: String,
}

impl Keys {
    /// Names under `prefix` (`poll`), sessions under `session_prefix` (`session:`).
    pub fn new(prefix: &str, session_prefix: &str) -> Self {
        Self { prefix: prefix.into(), sessions: session_prefix.into() }
    }

    /// How everything but the sessions begins.
    pub(crate) fn coordination_prefix(&self) -> String {
        format!("{}:", self.prefix)
    }

    pub(crate) fn lease(&self, endpoint: &EndpointId) -> String {
        format!("{}:lease:{endpoint}", self.prefix)
    }

    pub(crate) fn lease_prefix(&self) -> String {
        format!("{}:lease:", self.prefix)
    }

    pub(crate) fn result(&self, endpoint: &EndpointId) -> String {
        format!("{}:result:{endpoint}", self.prefix)
    }

    pub(crate) fn results_channel(&self, endpoint: &EndpointId) -> String {
        format!("{}:results:{endpoint}", self.prefix)
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

    pub(crate) fn drain(&self) -> String {
        format!("{}:drain", self.prefix)
    }

    pub(crate) fn wake(&self, to: Option<&InstanceId>) -> String {
        match to {
            Some(instance) => format!("{}:wake:{instance}", self.prefix),
            None => format!("{}:wake", self.prefix),
        }
    }

    pub(crate) fn ask(&self, to: &InstanceId, from: &InstanceId) -> String {
        format!("{}:ask:{to}:{from}", self.prefix)
    }

    pub(crate) fn session(&self, endpoint: &EndpointId) -> String {
        format!("{}{endpoint}", self.sessions)
    }

    pub(crate) fn session_prefix(&self) -> &str {
        &self.sessions
    }
}
