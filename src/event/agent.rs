//! Which fields do the events of `leasehold agent` have?

use std::fmt;

use crate::event::Event;
use crate::event::fields::Fields;

impl Event<'_> {
    pub(super) fn agent_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::AgentListening { socket } => line.put("socket", socket)?.end(),
            Self::AgentClientConnected { client } => line.put("client", client)?.end(),
            Self::AgentClientRefused { reason } => line.put("reason", reason)?.end(),
            Self::AgentClientGone { client, reason, held } => {
                line.put("client", client)?.put("reason", reason)?.put("held", held)?;
            }
            _ => (), // its name says it all: heartbeat.resumed, and so on
        }
        Ok(())
    }
}
