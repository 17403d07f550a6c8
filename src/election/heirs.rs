//! May a leader resign for this candidate? Remembers the heirs that did not take the role. Pure.
//!
//! A candidate that asks for the role but cannot be elected, because it lacks a right or its machine is too slow, would make
//! the leader resign again and again. So every candidate of a role remembers which heirs did not become leader.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::model::InstanceId;

/// No leader resigns for an heir that did not take the role for this long, and twice as long each further time.
pub(crate) const ABSENT_PAUSE: Duration = Duration::from_secs(30);
/// Longest such pause: the cause may have been fixed.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What one candidate knows about the heirs of its role.
#[derive(Debug)]
pub(crate) struct Heirs {
    /// The heir of the last resignation, until a leader is seen.
    awaited: Option<InstanceId>,
    /// The heirs that did not take the role.
    absent: Backoff<InstanceId>,
}

impl Heirs {
    pub(crate) fn new() -> Self {
        Self { awaited: None, absent: Backoff::new(ABSENT_PAUSE, PAUSE_MAX) }
    }

    /// A leader resigned for `heir`.
    pub(crate) fn await_one(&mut self, heir: &InstanceId) {
        self.awaited = Some(heir.clone());
    }

    /// `leader` was seen: the heir, or another because the heir did not take the role.
    pub(crate) fn led_by(&mut self, leader: &InstanceId, now: Moment) {
        self.absent.end(leader);
        if let Some(heir) = self.awaited.take().filter(|it| it != leader) {
            self.absent.fail(&heir, now);
        }
    }

    /// Whether a leader may resign for `asker`.
    pub(crate) fn may_have(&self, asker: &InstanceId, now: Moment) -> bool {
        !self.absent.is_paused(asker, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_heir_that_does_not_come_waits_twice_as_long_each_time_and_one_that_comes_not_at_all() {
        let (heir, other) = (InstanceId::new("h"), InstanceId::new("o"));
        let mut heirs = Heirs::new();
        let mut now = 1_000;
        for seconds in [30, 60, 120] {
            assert!(heirs.may_have(&heir, at(now)));
            heirs.await_one(&heir);
            heirs.led_by(&other, at(now));
            heirs.led_by(&other, at(now));
            assert!(
                !heirs.may_have(&heir, at(now + seconds - 1)) && heirs.may_have(&other, at(now))
            );
            now += seconds;
        }
        heirs.await_one(&heir);
        heirs.led_by(&heir, at(now));
        heirs.await_one(&heir);
        heirs.led_by(&other, at(now));
        assert!(heirs.may_have(&heir, at(now + 30)), "it came meanwhile, so it begins anew");
    }
}
