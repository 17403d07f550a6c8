//! For whom is a role given up in vain?
//!
//! A candidate that asks but cannot be elected (a right is missing, its machine is too slow) would have the leader
//! give up again and again. So every candidate of a role remembers who was given the role and did not take it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::model::InstanceId;

/// An heir that did not take the role is given it no more for this long, and twice as long each time after that.
pub(crate) const ABSENT_PAUSE: Duration = Duration::from_secs(30);
/// No such pause is longer: whatever was wrong may have been mended.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// The pause after the n-th failure in a row, counted from 1.
pub(crate) fn pause(n: u32) -> Duration {
    ABSENT_PAUSE.saturating_mul(1 << n.saturating_sub(1).min(8)).min(PAUSE_MAX)
}

/// What one candidate knows about the heirs of its role.
#[derive(Debug, Default)]
pub(crate) struct Heirs {
    /// The role was given up for this one, and nobody has been seen to lead since.
    awaited: Option<InstanceId>,
    /// How often each did not come, in a row, and until when it is given nothing.
    absent: BTreeMap<InstanceId, (u32, Moment)>,
}

impl Heirs {
    /// The role was given up for `heir`.
    pub(crate) fn await_one(&mut self, heir: &InstanceId) {
        self.awaited = Some(heir.clone());
    }

    /// `leader` leads: the heir, or another because the heir did not come.
    pub(crate) fn led_by(&mut self, leader: &InstanceId, now: Moment) {
        self.absent.remove(leader);
        let Some(heir) = self.awaited.take().filter(|it| it != leader) else { return };
        // One that has not been awaited for so long is as good as new.
        self.absent.retain(|_, it| now < it.1 + PAUSE_MAX);
        let times = self.absent.get(&heir).map_or(1, |it| it.0.saturating_add(1));
        self.absent.insert(heir, (times, now + pause(times)));
    }

    /// Whether the role may be given up for `asker`.
    pub(crate) fn may_have(&self, asker: &InstanceId, now: Moment) -> bool {
        self.absent.get(asker).is_none_or(|it| now >= it.1)
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
        let mut heirs = Heirs::default();
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
        assert_eq!(pause(99), PAUSE_MAX);
    }
}
