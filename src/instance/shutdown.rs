//! R11: the phases of a shutdown. Their order is a safety argument: no poll outlives the renewal of its lease, and no
//! instance plans with this one any more when its leases become free.
//!
//! [`Daemon`](crate::Daemon), the in-memory cluster of the tests and the simulator all walk [`PHASES`]. Each does what a
//! phase says with its own means (threads that are joined, or steps that are not taken any more).

/// One phase of a shutdown. It has ended before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `reconcile` and `watch` end: nothing new is acquired, and nothing is handed over.
    EndMoves,
    /// Every lease is drained, so no queued job gets a permit. `dispatch` ends, and the job queue closes.
    EndDispatch,
    /// The heartbeat writes weight 0: other instances plan without this one, and count it as alive (R13).
    LeavePlan,
    /// Polls that run may end within the drain timeout; then they are aborted. Pollers end. Meanwhile idle leases are
    /// released: first the leases that no poll runs under, then each lease whose last result is stored.
    EndPolls,
    /// The last results are published, while the leases are still held.
    PublishRest,
    /// The heartbeat is withdrawn: other instances take this one for gone.
    EndHeartbeat,
    /// Renewal and expiry end, and the leases that are left are deleted.
    ReleaseLeases,
}

/// R11, in order.
pub const PHASES: [Phase; 7] = [
    Phase::EndMoves,
    Phase::EndDispatch,
    Phase::LeavePlan,
    Phase::EndPolls,
    Phase::PublishRest,
    Phase::EndHeartbeat,
    Phase::ReleaseLeases,
];

/// How far a shutdown has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// How many phases have begun.
    begun: usize,
}

impl Shutdown {
    /// Ends the phase under way and begins the next; `None` when that was the last.
    pub fn begin_next(&mut self) -> Option<Phase> {
        let phase = PHASES.get(self.begun).copied();
        self.begun += usize::from(phase.is_some());
        phase
    }

    /// The phase under way.
    #[cfg(any(test, feature = "__internals"))]
    pub fn phase(&self) -> Option<Phase> {
        self.begun.checked_sub(1).map(|it| PHASES[it])
    }

    /// Whether `phase` has begun: what it ends takes no further step.
    #[cfg(any(test, feature = "__internals"))]
    pub fn has_begun(&self, phase: Phase) -> bool {
        PHASES[..self.begun].contains(&phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shutdown_walks_every_phase_once() {
        let mut shutdown = Shutdown::default();
        assert_eq!(shutdown.phase(), None);
        let walked: Vec<Phase> = std::iter::from_fn(|| shutdown.begin_next()).collect();
        assert_eq!(walked, PHASES);
        assert_eq!(shutdown.phase(), Some(Phase::ReleaseLeases));
        assert!(shutdown.has_begun(Phase::EndMoves) && shutdown.begin_next().is_none());
    }
}
