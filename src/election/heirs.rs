//! For whom is a role given up in vain?
//!
//! A candidate that asks but cannot be elected (a right is missing, its machine is too slow) would have the leader
//! give up again and again. So every candidate of a role remembers who was given the role and did not take it.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::model::InstanceId;

/// An heir that did not take the role is given it no more for this long, and twice as long each time after that.
pub(crate) const ABSENT_PAUSE: Duration = Duration::from_secs(30);
/// No such pause is longer: the cause may be mended.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What one candidate knows about the heirs of its role.
#[derive(Debug)]
pub(crate) struct Heirs {
    /// The role was given up for this one, and nobody has been seen to lead since.
    awaited: Option<InstanceId>,
    /// Those that did not come.
    absent: Backoff<InstanceId>,
}

impl Heirs {
    pub(crate) fn new() -> Self {
        Self { awaited: None, absent: Backoff::new(ABSENT_PAUSE, PAUSE_MAX) }
    }

    /// The role was given up for `heir`.
    pub(crate) fn await_one(&mut self, heir: &InstanceId) {
        self.awaited = Some(heir.clone());
    }

    /// `leader` leads: the heir, or another because the heir did not come.
    pub(crate) fn led_by(&mut self, leader: &InstanceId, now: Moment) {
        self.absent.end(leader);
        if let Some(heir) = self.awaited.take().filter(|it| it != leader) {
            self.absent.fail(&heir, now);
        }
    }

    /// Whether the role may be given up for `asker`.
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
