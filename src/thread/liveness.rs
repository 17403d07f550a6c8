//! Does every thread that safety or balance depends on make progress? The thread `watchdog` reads it (R12).
//!
//! A hung instance that still sends heartbeats keeps its leases and polls nothing, and the fleet cannot repair that. So the
//! watchdog notifies systemd only while all of these threads make progress.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// A thread that must not hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Heartbeat,
    Renewal,
    Reconcile,
    Dispatch,
}

const PARTS: [Actor; 4] = [Actor::Heartbeat, Actor::Renewal, Actor::Reconcile, Actor::Dispatch];

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Heartbeat => "heartbeat",
            Self::Renewal => "renewal",
            Self::Reconcile => "reconcile",
            Self::Dispatch => "dispatch",
        })
    }
}

/// When each thread last made progress.
#[derive(Debug, Default)]
pub struct Liveness {
    moved_at: [AtomicU64; 4],
    ready: AtomicBool,
    failed: AtomicBool,
}

impl Liveness {
    /// `part` makes progress.
    pub fn mark(&self, part: Actor, now: Moment) {
        self.moved_at[part as usize].store(now.as_nanos(), Ordering::Relaxed);
    }

    /// The first round is done.
    pub fn mark_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// R12: a thread has panicked, and nothing is held any more.
    pub fn mark_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Whether a thread has panicked.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether the first round is done, and no thread has panicked.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.has_failed()
    }

    /// For how long each thread has made no progress; zero before it has begun.
    pub fn still(&self, now: Moment) -> impl Iterator<Item = (Actor, Duration)> {
        let at = self.moved_at.iter().map(|it| Moment::from_nanos(it.load(Ordering::Relaxed)));
        let still = move |at| if at == Moment::MIN { Duration::ZERO } else { now.since(at) };
        PARTS.into_iter().zip(at.map(still))
    }

    /// Whether every thread has made progress within `patience`.
    pub fn moves(&self, now: Moment, patience: Duration) -> bool {
        self.hung(now, patience).is_none() && !self.has_failed()
    }

    /// The first thread without progress within `patience`.
    pub fn hung(&self, now: Moment, patience: Duration) -> Option<Actor> {
        let moved_at =
            |it: &Actor| Moment::from_nanos(self.moved_at[*it as usize].load(Ordering::Relaxed));
        PARTS.into_iter().find(|it| now.since(moved_at(it)) > patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R12.
    #[test]
    fn nobody_vouches_for_a_process_of_which_one_part_hangs() {
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let patience = Duration::from_secs(20);
        let parts = [Actor::Heartbeat, Actor::Renewal, Actor::Reconcile, Actor::Dispatch];
        for hung in parts {
            let liveness = Liveness::default();
            parts.iter().for_each(|it| liveness.mark(*it, at(100)));
            assert!(liveness.moves(at(110), patience));
            parts.iter().filter(|it| **it != hung).for_each(|it| liveness.mark(*it, at(130)));
            assert!(!liveness.moves(at(130), patience), "{hung:?} hangs");
        }
    }
}
