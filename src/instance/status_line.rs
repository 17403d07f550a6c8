//! How is this instance, in one sentence? What `systemctl status` shows.
//!
//! Read off the table and the progress of the threads; asks nobody, and never waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::lease::table::OwnershipTable;
use crate::thread::liveness::Liveness;

/// What systemd and the watchdog are told about one instance.
pub struct StatusLine {
    /// Without a password.
    redis: String,
    /// How long each part may take to move.
    patience: Duration,
    phase: Mutex<LifecyclePhase>,
}

/// Where an instance is between its start and its end. Not the phases of a shutdown (`shutdown::Phase`).
#[derive(Clone)]
pub enum LifecyclePhase {
    /// Redis has not answered yet.
    Waiting,
    /// At work.
    Running(Arc<OwnershipTable>, Arc<Liveness>),
    /// Told to stop: polls end, then everything is given back. Since when, and how long that may take.
    Draining(Arc<OwnershipTable>, Moment, Duration),
}

impl StatusLine {
    /// Of an instance that has just been started on `redis`, as it may be shown.
    pub fn new(redis: &impl fmt::Display, patience: Duration) -> Self {
        Self { redis: redis.to_string(), patience, phase: Mutex::new(LifecyclePhase::Waiting) }
    }

    /// Begins a phase.
    pub fn enter(&self, phase: LifecyclePhase) {
        *self.phase.lock() = phase;
    }

    /// The current phase.
    pub fn phase(&self) -> LifecyclePhase {
        self.phase.lock().clone()
    }

    /// Whether every part has moved within `period`, or within our own patience if that is longer (R12).
    pub fn makes_progress(&self, now: Moment, period: Duration) -> bool {
        match self.phase() {
            LifecyclePhase::Waiting => true,
            LifecyclePhase::Running(_, liveness) => liveness.moves(now, period.max(self.patience)),
            LifecyclePhase::Draining(_, since, limit) => now.since(since) <= limit.max(period),
        }
    }

    /// The sentence.
    pub fn sentence(&self, now: Moment) -> String {
        match self.phase() {
            LifecyclePhase::Waiting => format!("waiting for Redis at {}", self.redis),
            LifecyclePhase::Running(table, liveness) => self.running(&table, &liveness, now),
            LifecyclePhase::Draining(table, ..) => draining(&table),
        }
    }

    fn running(&self, table: &OwnershipTable, liveness: &Liveness, now: Moment) -> String {
        if let Some(part) = liveness.hung(now, self.patience) {
            return format!("hangs: the thread {part} does not move, so the watchdog is not fed");
        }
        if !liveness.is_ready() {
            return "looking for sessions and other instances".into();
        }
        let (endpoints, instances) = table.metrics().seen();
        let share = format!("polling {} of {}", table.len(), counted(endpoints, "endpoint"));
        if !table.is_beating() {
            return format!("cannot reach Redis at {}: nothing is polled", self.redis);
        }
        let redis = match table.hold_off() {
            // Whole seconds, rounded up: never "for 0 s".
            Some(left) => {
                format!("holding off for {} s: Redis forgot", left.as_millis().div_ceil(1_000))
            }
            None if table.is_doubtful() => "Redis does not answer".into(),
            None => "Redis ok".into(),
        };
        format!("{share}; {}; {redis}", counted(instances, "instance"))
    }
}

fn draining(table: &OwnershipTable) -> String {
    match table.tally().running {
        0 => format!("stopping: giving back {}", counted(table.len(), "lease")),
        1 => "draining: 1 poll still runs".into(),
        n => format!("draining: {n} polls still run"),
    }
}

fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{BootClock, Clock};
    use crate::config::{Config, RedisUrl};
    use crate::lease::keeper;
    use crate::model::InstanceId;
    use crate::thread::liveness::Actor;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn status_line() -> (StatusLine, Arc<OwnershipTable>, Arc<Liveness>) {
        let url = RedisUrl::parse("redis://me:hunter2@10.0.0.5:6379/0").unwrap();
        let me = InstanceId::generate_now("vm1");
        let table = keeper::table(&Config::default(), me, Arc::new(BootClock));
        let liveness = Arc::new(Liveness::default());
        (StatusLine::new(&url, PATIENCE), table, liveness)
    }

    fn mark_all(liveness: &Liveness, now: Moment) {
        [Actor::Heartbeat, Actor::Renewal, Actor::Reconcile, Actor::Dispatch]
            .into_iter()
            .for_each(|it| liveness.mark(it, now));
    }

    #[test]
    fn every_phase_has_its_sentence_and_none_has_the_password() {
        let (status_line, table, liveness) = status_line();
        let now = BootClock.now();
        let waiting = status_line.sentence(now);
        assert!(waiting.starts_with("waiting for Redis at "), "{waiting}");
        assert!(waiting.contains("10.0.0.5:6379") && !waiting.contains("hunter2"), "{waiting}");
        status_line.enter(LifecyclePhase::Running(Arc::clone(&table), Arc::clone(&liveness)));
        mark_all(&liveness, now);
        assert_eq!(status_line.sentence(now), "looking for sessions and other instances");
        liveness.mark_ready();
        table.metrics().see(36, 3);
        // No beat was ever answered.
        let away = status_line.sentence(now);
        assert!(away.starts_with("cannot reach Redis at "), "{away}");
        assert!(!away.contains("hunter2"), "{away}");
        status_line.enter(LifecyclePhase::Draining(table, now, PATIENCE));
        assert_eq!(status_line.sentence(now), "stopping: giving back 0 leases");
    }

    /// R12.
    #[test]
    fn a_thread_that_hangs_is_named_and_a_stop_that_hangs_is_not_vouched_for() {
        let (status_line, table, liveness) = status_line();
        let now = BootClock.now();
        status_line.enter(LifecyclePhase::Running(Arc::clone(&table), Arc::clone(&liveness)));
        mark_all(&liveness, now);
        liveness.mark_ready();
        let later = now + PATIENCE * 2;
        [Actor::Heartbeat, Actor::Reconcile, Actor::Dispatch]
            .into_iter()
            .for_each(|it| liveness.mark(it, later));
        assert!(status_line.sentence(later).contains("the thread renewal does not move"));
        assert!(!status_line.makes_progress(later, Duration::from_secs(2)));
        status_line.enter(LifecyclePhase::Draining(table, now, PATIENCE));
        assert!(status_line.makes_progress(now + PATIENCE, Duration::from_secs(2)));
        assert!(!status_line.makes_progress(later, Duration::from_secs(2)));
    }
}
