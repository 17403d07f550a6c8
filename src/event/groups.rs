//! Which fields do the events of one group have? Each group has a function, and passes over the events of the others.

use std::fmt;

use crate::event::Event;
use crate::event::fields::Fields;

fn left_because(has_expired: bool) -> &'static str {
    if has_expired { "expired" } else { "withdrawn" }
}

impl Event<'_> {
    pub(super) fn store_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::StoreHoldoff { left, epoch } => {
                line.put("left_ms", &left.as_millis())?.put("epoch", epoch)?;
            }
            Self::StoreReachable { away } => line.put("away_ms", &away.as_millis())?.end(),
            Self::StoreClock { ahead } => line.put("ahead_ms", &ahead.as_millis())?.end(),
            Self::StoreUnheard { reason } => line.put("reason", reason)?.end(),
            _ => (),
        }
        Ok(())
    }

    pub(super) fn daemon_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::DaemonStarted { version, redis } => {
                line.put("version", version)?.put("redis", redis)?;
            }
            Self::DaemonReady { endpoints, instances, held } => {
                line.put("endpoints", endpoints)?.put("instances", instances)?.put("held", held)?;
            }
            Self::DaemonReloaded { changed } => line.put("changed", changed)?.end(),
            Self::DaemonNeedsRestart { options } => line.put("options", options)?.end(),
            Self::DaemonRevoked { left } => line.put("left_ms", &left.as_millis())?.end(),
            Self::DaemonStopped { held } => line.put("held", held)?.end(),
            Self::ThreadPanicked { thread, error } => {
                line.put("thread", thread)?.put("error", error)?;
            }
            _ => (),
        }
        Ok(())
    }

    pub(super) fn instance_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::InstanceJoined { other } => line.put("other", other)?.end(),
            Self::InstanceLeft { other, has_expired } => {
                line.put("other", other)?.put("reason", &left_because(*has_expired))?;
            }
            Self::InstanceRevoked { other, reason } => {
                line.put("other", other)?.put("reason", reason)?;
            }
            Self::InstanceSpared { other, reason } => {
                line.put("other", other)?.put("reason", reason)?;
            }
            _ => (),
        }
        Ok(())
    }

    pub(super) fn session_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::EndpointLight { endpoint, failures } => {
                line.put("endpoint", endpoint)?.put("failures", failures)?;
            }
            Self::EndpointNormal { endpoint } => line.put("endpoint", endpoint)?.end(),
            Self::EndpointCertExpiring { endpoint, days }
            | Self::EndpointCertRenewed { endpoint, days } => {
                line.put("endpoint", endpoint)?.put("days", days)?;
            }
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

    pub(super) fn poll_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::PollOk { endpoint, fence, status, took } => {
                line.put("endpoint", endpoint)?.put("fence", fence)?;
                line.maybe("status", status)?.put("duration_ms", &took.as_millis())?;
            }
            Self::PollFailed { endpoint, fence, error, took } => {
                line.put("endpoint", endpoint)?.put("fence", fence)?.put("error", error)?;
                line.put("duration_ms", &took.as_millis())?;
            }
            Self::PollUnpublished { endpoint, fence, error }
            | Self::PollPanicked { endpoint, fence, error } => {
                line.put("endpoint", endpoint)?.put("fence", fence)?.put("error", error)?;
            }
            _ => (),
        }
        Ok(())
    }

    pub(super) fn leader_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::LeaderCandidate { role } => line.put("role", role)?.end(),
            Self::LeaderElected { role, term } | Self::LeaderReclaimed { role, term } => {
                line.put("role", role)?.put("term", term)?;
            }
            Self::LeaderFollower { role, leader } => {
                line.put("role", role)?.maybe("leader", leader)?;
            }
            Self::LeaderElectionFailed { role, error } => {
                line.put("role", role)?.put("error", error)?;
            }
            Self::LeaderUncertain { role, term, error } => {
                line.put("role", role)?.put("term", term)?.put("error", error)?;
            }
            Self::LeaderLost { role, term, reason, owner } => {
                line.put("role", role)?.put("term", term)?.put("reason", reason)?;
                line.maybe("owner", owner)?;
            }
            Self::LeaderResigned { role, term, heir } => {
                line.put("role", role)?.put("term", term)?.maybe("heir", heir)?;
            }
            _ => self.agent_fields(line)?,
        }
        Ok(())
    }

    fn agent_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
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
