//! When may this instance acquire a free lease that the plan gives to another (R8, FR-014)? Touches nothing else.

use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::fleet::placement::Fallback;
use crate::model::{EndpointId, InstanceId};

/// R8: a free lease is left to its heir for this long, and for as long again to each instance that is preferred to this
/// one.
const FALLBACK_STEP: Duration = Duration::from_millis(250);

/// Where messages are not delivered, a free lease may have been released for an heir that has not read so yet: every
/// instance waits for this long first. Longer than it takes to ask, to release, and to read.
const FALLBACK_WITHOUT_MESSAGES: Duration = Duration::from_secs(6);

/// An heir that acquires other leases is active and gets more time, but not more than this: anybody may forge the messages
/// that say so.
const ACTIVE_MAX: Duration = Duration::from_secs(5);

/// How long each free lease has been waiting for its heir.
#[derive(Debug, Default)]
pub(super) struct FallbackTimer {
    waiting: FnvHashMap<EndpointId, Moment>,
    active: FnvHashMap<InstanceId, Moment>,
}

impl FallbackTimer {
    /// `instance` has just acquired some lease.
    pub(super) fn note_active(&mut self, instance: &InstanceId, now: Moment) {
        self.active.retain(|_, at| now.since(*at) < ACTIVE_MAX);
        self.active.insert(instance.clone(), now);
    }

    /// Forgets all leases but these, which are free now. A lease keeps its time when its heir changes.
    pub(super) fn keep(&mut self, free: &[Fallback]) {
        let mut before = std::mem::take(&mut self.waiting);
        self.waiting = free.iter().filter_map(|it| before.remove_entry(&it.endpoint)).collect();
    }

    /// No instance could act until now, so no heir was slow.
    pub(super) fn restart(&mut self) {
        self.waiting.clear();
    }

    /// When this instance may acquire it instead of its heir; the time begins with the first call. `would_know`: this
    /// instance would know if the lease had been released for the heir.
    pub(super) fn due(&mut self, it: &Fallback, now: Moment, would_know: bool) -> Moment {
        let since = *self.waiting.entry(it.endpoint.clone()).or_insert(now);
        let active = self.active.get(&it.heir).copied().unwrap_or(Moment::MIN);
        let left_alone = if would_know { Duration::ZERO } else { FALLBACK_WITHOUT_MESSAGES };
        active.clamp(since + left_alone, since + left_alone.max(ACTIVE_MAX))
            + FALLBACK_STEP * (1 + it.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1 << 40);

    fn free(rank: u32, heir: &str) -> Fallback {
        let endpoint = EndpointId::parse("e").unwrap();
        Fallback { endpoint, rank, heir: InstanceId::new(heir) }
    }

    /// FR-014.
    #[test]
    fn each_waits_a_step_longer_than_who_is_preferred_to_it() {
        let mut timer = FallbackTimer::default();
        for rank in 0..5 {
            assert_eq!(timer.due(&free(rank, "b"), NOW, true), NOW + FALLBACK_STEP * (rank + 1));
        }
    }

    /// The release names the heir in a message only.
    #[test]
    fn where_messages_are_not_delivered_every_instance_waits_for_an_heir_that_has_to_look() {
        let mut timer = FallbackTimer::default();
        let due = timer.due(&free(0, "b"), NOW, false);
        assert_eq!(due, NOW + FALLBACK_WITHOUT_MESSAGES + FALLBACK_STEP);
    }

    #[test]
    fn an_active_heir_gets_more_time_but_not_for_ever() {
        let (mut timer, b) = (FallbackTimer::default(), InstanceId::new("b"));
        timer.due(&free(0, "b"), NOW, true);
        let later = NOW + Duration::from_secs(1);
        timer.note_active(&b, later);
        assert_eq!(timer.due(&free(0, "b"), later, true), later + FALLBACK_STEP);
        timer.note_active(&b, NOW + Duration::from_secs(60));
        assert_eq!(timer.due(&free(0, "b"), later, true), NOW + ACTIVE_MAX + FALLBACK_STEP);
    }

    #[test]
    fn a_lease_waits_for_as_long_as_it_is_free_whoever_its_heir_is() {
        let mut timer = FallbackTimer::default();
        let later = NOW + Duration::from_secs(1);
        let since = |timer: &mut FallbackTimer, heir, at| {
            timer.due(&free(0, heir), at, true) - FALLBACK_STEP
        };
        since(&mut timer, "b", NOW);
        timer.keep(&[free(0, "c")]);
        assert_eq!(since(&mut timer, "c", later), NOW);
        timer.keep(&[]);
        assert_eq!(since(&mut timer, "c", later), later);
        timer.restart();
        assert_eq!(since(&mut timer, "c", NOW), NOW);
    }
}
