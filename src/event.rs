//! Everything the program says while it runs: one enum, one line each.
//!
//! `2026-11-16T00:04:07.123Z INFO (renewal) event=lease.renewed instance=… endpoint=… ttl_ms=30000`
//! The logger adds time, level and thread; [`Event::log`] writes the rest. Never put a secret, a
//! header or a body into an event.

mod fields;
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
    EndpointFailing(&'a Change),
    EndpointRecovered(&'a Change),
    HookFailed { endpoint: &'a EndpointId, error: &'a dyn fmt::Display, attempts: u32 },
    HookDropped { changes: u64 },
    SessionInvalid { endpoint: &'a str, error: &'a dyn fmt::Display },
    SessionOdd { endpoint: &'a EndpointId, reason: &'a dyn fmt::Display },
    SessionUnreported { count: usize },
    InstanceJoined { other: &'a InstanceId },
    InstanceLeft { other: &'a InstanceId, has_expired: bool },
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
    pub fn name(&self) -> &'static str {
        match self {
            Self::DaemonStarted { .. } => "daemon.started",
            Self::DaemonReady { .. } => "daemon.ready",
            Self::DaemonReloaded { .. } => "daemon.reloaded",
            Self::DaemonNeedsRestart { .. } => "daemon.needs_restart",
            Self::DaemonReloadRefused { .. } => "daemon.reload_refused",
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
            Self::EndpointFailing(_) => "endpoint.failing",
            Self::EndpointRecovered(_) => "endpoint.recovered",
            Self::HookFailed { .. } => "hook.failed",
            Self::HookDropped { .. } => "hook.dropped",
            Self::SessionInvalid { .. } => "session.invalid",
            Self::SessionOdd { .. } => "session.odd",
            Self::SessionUnreported { .. } => "session.unreported",
            Self::InstanceJoined { .. } => "instance.joined",
            Self::InstanceLeft { .. } => "instance.left",
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
            Self::PollOk { .. } | Self::PollFailed { .. } | Self::LeaseRenewed { .. } => {
                Level::Debug
            }
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
            | Self::EndpointFailing(_)
            | Self::HookFailed { .. }
            | Self::HookDropped { .. }
            | Self::SessionInvalid { .. }
            | Self::SessionOdd { .. }
            | Self::SessionUnreported { .. }
            | Self::InstanceLeft { has_expired: true, .. }
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
            | Self::LeaderUncertain { .. }
            | Self::LeaderLost { .. } => Level::Warn,
            _ => Level::Info,
        }
    }

    fn store_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
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

    fn daemon_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
        match self {
            Self::DaemonStarted { version, redis } => {
                line.put("version", version)?.put("redis", redis)?;
            }
            Self::DaemonReady { endpoints, instances, held } => {
                line.put("endpoints", endpoints)?.put("instances", instances)?.put("held", held)?;
            }
            Self::DaemonReloaded { changed } => line.put("changed", changed)?.end(),
            Self::DaemonNeedsRestart { options } => line.put("options", options)?.end(),
            Self::DaemonStopped { held } => line.put("held", held)?.end(),
            Self::ThreadPanicked { thread, error } => {
                line.put("thread", thread)?.put("error", error)?;
            }
            _ => (),
        }
        Ok(())
    }

    fn session_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
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

    fn poll_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
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

    fn leader_fields(&self, line: &mut Fields<'_, '_>) -> fmt::Result {
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
            _ => (), // its name says it all: heartbeat.resumed, and so on
        }
        Ok(())
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

fn left_because(has_expired: bool) -> &'static str {
    if has_expired { "expired" } else { "withdrawn" }
}

impl<'a> Event<'a> {
    /// Of an event that tells an error and nothing else.
    fn error_alone(&self) -> Option<&&'a dyn fmt::Display> {
        match self {
            Self::StoreUnreachable { error }
            | Self::DaemonReloadRefused { error }
            | Self::HeartbeatFailed { error }
            | Self::PublishFailed { error }
            | Self::HistoryFailed { error }
            | Self::MetricsFailed { error }
            | Self::WebFailed { error }
            | Self::ManagerUnreachable { error } => Some(error),
            _ => None,
        }
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
            Self::EndpointLight { .. }
            | Self::EndpointNormal { .. }
            | Self::EndpointFailing(_)
            | Self::EndpointRecovered(_)
            | Self::HookFailed { .. }
            | Self::HookDropped { .. }
            | Self::SessionInvalid { .. }
            | Self::SessionOdd { .. }
            | Self::SessionUnreported { .. } => self.session_fields(&mut line)?,
            Self::InstanceJoined { other } => line.put("other", other)?.end(),
            Self::InstanceLeft { other, has_expired } => {
                line.put("other", other)?.put("reason", &left_because(*has_expired))?;
            }
            Self::DaemonStopping { reason }
            | Self::SettingsOdd { reason }
            | Self::PlacementStuck { reason } => line.put("reason", reason)?.end(),
            _ => match self.error_alone() {
                Some(error) => line.put("error", error)?.end(),
                None => self.leader_fields(&mut line)?,
            },
        }
        Ok(())
    }
}
