//! Which fields has the line of an event about a session or its endpoint?

use std::fmt;

use crate::event::Event;
use crate::event::fields::Fields;

impl Event<'_> {
    pub(super) fn session_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::EndpointLight { endpoint, failures } => {
                line.put("endpoint", endpoint)?.put("failures", failures)?;
            }
            Self::EndpointNormal { endpoint } => line.put("endpoint", endpoint)?.end(),
            Self::EndpointFailing(it) => {
                line.put("endpoint", &it.tenure.endpoint)?.put("address", &it.address)?;
                line.maybe("error", &it.reason())?.put("since_ms", &it.state.since_ms)?;
                line.put("failures", &it.state.failures)?.put("fence", &it.tenure.fence)?;
            }
            Self::EndpointRecovered(it) => {
                line.put("endpoint", &it.tenure.endpoint)?.put("address", &it.address)?;
                line.put("down_ms", &it.state.lasted_ms())?.put("fence", &it.tenure.fence)?;
            }
            Self::SessionInvalid { endpoint, error } => {
                line.put("endpoint", endpoint)?.put("error", error)?;
            }
            Self::SessionOdd { endpoint, reason } => {
                line.put("endpoint", endpoint)?.put("reason", reason)?;
            }
            Self::SessionUnreported { count } => line.put("count", count)?.end(),
            Self::HookFailed { endpoint, error, attempts } => {
                line.put("endpoint", endpoint)?.put("error", error)?.put("attempts", attempts)?;
            }
            Self::HookDropped { changes } => line.put("changes", changes)?.end(),
            _ => (),
        }
        Ok(())
    }
}
