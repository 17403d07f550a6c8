//! Everything the program says while it runs: one enum, one line each.
//!
//! `2026-11-16T00:04:07.123Z INFO (renewal) event=lease.renewed instance=… endpoint=… ttl_ms=30000`
//! The logger adds time, level and thread; [`Event::log`] writes the rest. Never put a secret, a
//! header or a body into an event.

mod fields;
mod groups;
mod repeated;

use std::fmt;
use std::time::Duration;

use log::Level;

use crate::event::fields::Fields;
pub use crate::event::repeated::{Repeated, Worst};
use crate::model::{Change, EndpointId, FenceToken, InstanceId, Role, Tenure};

/// Something an operator or a script may want to know.
pub enum Event<'a> {
    DaemonStarted { version: &'a str, redis: &'a str },
    DaemonReady { endpoints: usize, instances: usize, held: usize },
    DaemonReloaded { changed: &'a str },
    DaemonNeedsRestart { options: &'a str },
    DaemonReloadRefused { error: &'a dyn fmt::Display },
    DaemonStopping { reason: &'a str },
    DaemonRevoked { left: Duration },
    DaemonStopped { held: usize },
    SettingsOdd { reason: &'a str },
    LeaseAcquired { endpoint: &'a EndpointId, fence: FenceToken, reason: &'static str },
    LeaseRefused { endpoint: &'a EndpointId, owner: &'a str },
    LeaseFailed { endpoint: &'a EndpointId, error: &'a dyn fmt::Display },
    LeaseRenewed { endpoint: &'a EndpointId, ttl: Duration },
    RenewalRound { renewed: usize, lost: usize, uncertain: usize },
    LeaseUncertain { endpoint: &'a EndpointId, error: &'a dyn fmt::Display },
    LeaseLost { tenure: &'a Tenure, reason: &'static str, owner: Option<&'a InstanceId> },
    LeaseReleased { tenure: &'a Tenure, reason: &'static str, heir: Option<&'a InstanceId> },
    LeaseReclaimed { endpoint: &'a EndpointId, fence: FenceToken },
    StoreHoldoff { left: Duration, epoch: u64 },
    StoreUnreachable { error: &'a dyn fmt::Display },
    StoreReachable { away: Duration },
    StoreClock { ahead: Duration },
    StoreUnheard { reason: &'a str },
    PollOk { endpoint: &'a EndpointId, fence: FenceToken, status: Option<i32>, took: Duration },
    PollFailed { endpoint: &'a EndpointId, fence: FenceToken, error: &'a str, took: Duration },
    PollFenced { endpoint: &'a EndpointId, fence: FenceToken },
    PollUnpublished { endpoint: &'a EndpointId, fence: FenceToken, error: &'a dyn fmt::Display },
    PollAborted { endpoint: &'a EndpointId, fence: FenceToken },
    PollPanicked { endpoint: &'a EndpointId, fence: FenceToken, error: &'a dyn fmt::Display },
    PollSkipped { endpoint: &'a EndpointId, reason: &'a str },
    PollDeferred { endpoint: &'a EndpointId, reason: &'a str },
    EndpointLight { endpoint: &'a EndpointId, failures: u32 },
    EndpointNormal { endpoint: &'a EndpointId },
    EndpointCertExpiring { endpoint: &'a EndpointId, days: i64 },
    EndpointCertRenewed { endpoint: &'a EndpointId, days: i64 },
    EndpointFailing(&'a Change),
    EndpointRecovered(&'a Change),
    HookFailed { endpoint: &'a EndpointId, error: &'a dyn fmt::Display, attempts: u32 },
    HookDropped { changes: u64 },
    SessionInvalid { endpoint: &'a str, error: &'a dyn fmt::Display },
    SessionOdd { endpoint: &'a EndpointId, reason: &'a dyn fmt::Display },
    SessionUnreported { count: usize },
    InstanceJoined { other: &'a InstanceId },
    InstanceLeft { other: &'a InstanceId, has_expired: bool },
    InstanceRevoked { other: &'a InstanceId, reason: &'static str },
    InstanceSpared { other: &'a InstanceId, reason: &'a str },
    PlacementStuck { reason: &'a str },
    HeartbeatFailed { error: &'a dyn fmt::Display },
    HeartbeatResumed,
    PublishFailed { error: &'a dyn fmt::Display },
    PublishResumed,
    MetricsFailed { error: &'a dyn fmt::Display },
    MetricsResumed,
    WebFailed { error: &'a dyn fmt::Display },
    WebResumed,
    ManagerUnreachable { error: &'a dyn fmt::Display },
    HistoryFailed { error: &'a dyn fmt::Display },
    HistoryResumed,
    HistoryDropped { entries: u64 },
    ThreadPanicked { thread: &'a str, error: &'a str },
    AgentListening { socket: &'a dyn fmt::Display },
    AgentClientConnected { client: u64 },
    AgentClientRefused { reason: &'a str },
    AgentClientGone { client: u64, reason: &'a str, held: usize },
    LeaderCandidate { role: &'a Role },
    LeaderElected { role: &'a Role, term: FenceToken },
    LeaderFollower { role: &'a Role, leader: Option<&'a InstanceId> },
    LeaderElectionFailed { role: &'a Role, error: &'a dyn fmt::Display },
    LeaderUncertain { role: &'a Role, term: FenceToken, error: &'a dyn fmt::Display },
    LeaderReclaimed { role: &'a Role, term: FenceToken },
    LeaderLost { role: &'a Role, term: FenceToken, reason: &'a str, owner: Option<&'a InstanceId> },
    LeaderResigned { role: &'a Role, term: FenceToken, heir: Option<&'a InstanceId> },
}

impl Event<'_> {
    /// The name that scripts look for.
    #[expect(clippy::too_many_lines, reason = "a line for each event")]
    pub fn name(&self) -> &'static str {
        match self {
            Self::DaemonStarted { .. } => "daemon.started",
            Self::DaemonReady { .. } => "daemon.ready",
            Self::DaemonReloaded { .. } => "daemon.reloaded",
            Self::DaemonNeedsRestart { .. } => "daemon.needs_restart",
            Self::DaemonReloadRefused { .. } => "daemon.reload_refused",
            Self::DaemonRevoked { .. } => "daemon.revoked",
            Self::DaemonStopping { .. } => "daemon.stopping",
            Self::DaemonStopped { .. } => "daemon.stopped",
            Self::SettingsOdd { .. } => "settings.odd",
            Self::LeaseAcquired { .. } => "lease.acquired",
            Self::LeaseRefused { .. } => "lease.refused",
            Self::LeaseFailed { .. } => "lease.failed",
            Self::LeaseRenewed { .. } => "lease.renewed",
            Self::RenewalRound { .. } => "renewal.round",
            Self::LeaseUncertain { .. } => "lease.uncertain",
            Self::LeaseLost { .. } => "lease.lost",
            Self::LeaseReleased { .. } => "lease.released",
            Self::LeaseReclaimed { .. } => "lease.reclaimed",
            Self::StoreHoldoff { .. } => "store.holdoff",
            Self::StoreUnreachable { .. } => "store.unreachable",
            Self::StoreReachable { .. } => "store.reachable",
            Self::StoreClock { .. } => "store.clock",
            Self::StoreUnheard { .. } => "store.unheard",
            Self::PollOk { .. } => "poll.ok",
            Self::PollFailed { .. } => "poll.failed",
            Self::PollFenced { .. } => "poll.fenced",
            Self::PollUnpublished { .. } => "poll.unpublished",
            Self::PollAborted { .. } => "poll.aborted",
            Self::PollPanicked { .. } => "poll.panicked",
            Self::PollSkipped { .. } => "poll.skipped",
            Self::PollDeferred { .. } => "poll.deferred",
            Self::EndpointLight { .. } => "endpoint.light",
            Self::EndpointNormal { .. } => "endpoint.normal",
            Self::EndpointCertExpiring { .. } => "endpoint.cert_expiring",
            Self::EndpointCertRenewed { .. } => "endpoint.cert_renewed",
            Self::EndpointFailing(_) => "endpoint.failing",
            Self::EndpointRecovered(_) => "endpoint.recovered",
            Self::HookFailed { .. } => "hook.failed",
            Self::HookDropped { .. } => "hook.dropped",
            Self::SessionInvalid { .. } => "session.invalid",
            Self::SessionOdd { .. } => "session.odd",
            Self::SessionUnreported { .. } => "session.unreported",
            Self::InstanceJoined { .. } => "instance.joined",
            Self::InstanceLeft { .. } => "instance.left",
            Self::InstanceRevoked { .. } => "instance.revoked",
            Self::InstanceSpared { .. } => "instance.spared",
            Self::PlacementStuck { .. } => "placement.stuck",
            Self::HeartbeatFailed { .. } => "heartbeat.failed",
            Self::HeartbeatResumed => "heartbeat.resumed",
            Self::PublishFailed { .. } => "publish.failed",
            Self::PublishResumed => "publish.resumed",
            Self::MetricsFailed { .. } => "metrics.failed",
            Self::MetricsResumed => "metrics.resumed",
            Self::WebFailed { .. } => "web.failed",
            Self::WebResumed => "web.resumed",
            Self::ManagerUnreachable { .. } => "manager.unreachable",
            Self::HistoryFailed { .. } => "history.failed",
            Self::HistoryResumed => "history.resumed",
            Self::HistoryDropped { .. } => "history.dropped",
            Self::ThreadPanicked { .. } => "thread.panicked",
            Self::AgentListening { .. } => "agent.listening",
            Self::AgentClientConnected { .. } => "agent.client_connected",
            Self::AgentClientRefused { .. } => "agent.client_refused",
            Self::AgentClientGone { .. } => "agent.client_gone",
            Self::LeaderCandidate { .. } => "leader.candidate",
            Self::LeaderElected { .. } => "leader.elected",
            Self::LeaderFollower { .. } => "leader.follower",
            Self::LeaderElectionFailed { .. } => "leader.election_failed",
            Self::LeaderUncertain { .. } => "leader.uncertain",
            Self::LeaderReclaimed { .. } => "leader.reclaimed",
            Self::LeaderLost { .. } => "leader.lost",
            Self::LeaderResigned { .. } => "leader.resigned",
        }
    }

    /// Warnings are what an operator should look at; polls and renewals that succeed are only interesting when debugging.
    pub fn level(&self) -> Level {
        match self {
            Self::PollOk { .. }
            | Self::PollFailed { .. }
            | Self::LeaseRenewed { .. }
            | Self::AgentClientConnected { .. }
            | Self::AgentClientGone { .. } => Level::Debug,
            Self::PollPanicked { .. } | Self::ThreadPanicked { .. } => Level::Error,
            Self::LeaseFailed { .. }
            | Self::LeaseUncertain { .. }
            | Self::LeaseLost { .. }
            | Self::StoreUnreachable { .. }
            | Self::StoreHoldoff { .. }
            | Self::StoreClock { .. }
            | Self::StoreUnheard { .. }
            | Self::PollFenced { .. }
            | Self::PollUnpublished { .. }
            | Self::PollAborted { .. }
            | Self::PollSkipped { .. }
            | Self::PollDeferred { .. }
            | Self::EndpointLight { .. }
            | Self::EndpointCertExpiring { .. }
            | Self::EndpointFailing(_)
            | Self::HookFailed { .. }
            | Self::HookDropped { .. }
            | Self::SessionInvalid { .. }
            | Self::SessionOdd { .. }
            | Self::SessionUnreported { .. }
            | Self::InstanceLeft { has_expired: true, .. }
            | Self::InstanceRevoked { .. }
            | Self::InstanceSpared { .. }
            | Self::DaemonRevoked { .. }
            | Self::PlacementStuck { .. }
            | Self::HeartbeatFailed { .. }
            | Self::PublishFailed { .. }
            | Self::MetricsFailed { .. }
            | Self::WebFailed { .. }
            | Self::ManagerUnreachable { .. }
            | Self::DaemonNeedsRestart { .. }
            | Self::DaemonReloadRefused { .. }
            | Self::SettingsOdd { .. }
            | Self::HistoryFailed { .. }
            | Self::AgentClientRefused { .. }
            | Self::LeaderUncertain { .. }
            | Self::LeaderLost { .. } => Level::Warn,
            _ => Level::Info,
        }
    }

    /// Says it, once, as `instance`.
    pub fn log(&self, instance: &InstanceId) {
        self.log_at(self.level(), instance);
    }

    /// The same at another level.
    pub fn log_at(&self, level: Level, instance: &InstanceId) {
        log::log!(level, "event={} instance={instance}{self}", self.name());
    }
}

/// The fields after `event` and `instance`, each with a space before it.
impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Fields(f);
        match self {
            Self::DaemonStarted { .. }
            | Self::DaemonReady { .. }
            | Self::DaemonReloaded { .. }
            | Self::DaemonNeedsRestart { .. }
            | Self::ThreadPanicked { .. }
            | Self::DaemonRevoked { .. }
            | Self::DaemonStopped { .. } => self.daemon_fields(&mut line)?,
            Self::LeaseAcquired { endpoint, fence, reason } => {
                line.put("endpoint", endpoint)?.put("fence", fence)?.put("reason", reason)?;
            }
            Self::LeaseRefused { endpoint, owner } => {
                line.put("endpoint", endpoint)?.put("owner", owner)?;
            }
            Self::LeaseFailed { endpoint, error } | Self::LeaseUncertain { endpoint, error } => {
                line.put("endpoint", endpoint)?.put("error", error)?;
            }
            Self::LeaseRenewed { endpoint, ttl } => {
                line.put("endpoint", endpoint)?.put("ttl_ms", &ttl.as_millis())?;
            }
            Self::RenewalRound { renewed, lost, uncertain } => {
                line.put("renewed", renewed)?.put("lost", lost)?.put("uncertain", uncertain)?;
            }
            Self::LeaseLost { tenure: Tenure { endpoint, fence }, reason, owner } => {
                line.put("endpoint", endpoint)?.put("fence", fence)?.put("reason", reason)?;
                line.maybe("owner", owner)?;
            }
            Self::LeaseReleased { tenure: Tenure { endpoint, fence }, reason, heir } => {
                line.put("endpoint", endpoint)?.put("fence", fence)?.put("reason", reason)?;
                line.maybe("heir", heir)?;
            }
            Self::HistoryDropped { entries } => line.put("entries", entries)?.end(),
            Self::StoreHoldoff { .. }
            | Self::StoreReachable { .. }
            | Self::StoreClock { .. }
            | Self::StoreUnheard { .. } => self.store_fields(&mut line)?,
            Self::PollOk { .. }
            | Self::PollFailed { .. }
            | Self::PollUnpublished { .. }
            | Self::PollPanicked { .. } => self.poll_fields(&mut line)?,
            Self::LeaseReclaimed { endpoint, fence }
            | Self::PollFenced { endpoint, fence }
            | Self::PollAborted { endpoint, fence } => {
                line.put("endpoint", endpoint)?.put("fence", fence)?;
            }
            Self::PollSkipped { endpoint, reason } | Self::PollDeferred { endpoint, reason } => {
                line.put("endpoint", endpoint)?.put("reason", reason)?;
            }
            Self::InstanceJoined { .. }
            | Self::InstanceLeft { .. }
            | Self::InstanceRevoked { .. }
            | Self::InstanceSpared { .. } => self.instance_fields(&mut line)?,
            Self::DaemonStopping { reason }
            | Self::SettingsOdd { reason }
            | Self::PlacementStuck { reason } => line.put("reason", reason)?.end(),
            _ => {
                self.session_fields(&mut line)?;
                match self.error_alone() {
                    Some(error) => line.put("error", error)?.end(),
                    None => self.leader_fields(&mut line)?,
                }
            }
        }
        Ok(())
    }
}
