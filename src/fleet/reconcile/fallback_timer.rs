//! When a free lease that is another's may be taken all the same (R8, FR-014).

use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::fleet::placement::Fallback;
use crate::model::{EndpointId, InstanceId};

/// R8: a free lease that is another's is left to the heir for this long, and to each who is preferred
/// to us for as long again.
const FALLBACK_STEP: Duration = Duration::from_millis(250);

/// Where words are not heard, one that is free may have been released for an heir that has not looked yet: everybody
/// waits for this long first. Longer than it takes to ask, to be given, and to look.
const UNHEARD_FALLBACK: Duration = Duration::from_secs(6);

/// An heir that is seen to take other leases is at work and gets more time, but no more than this:
/// what is said about it may be a lie.
const AT_WORK_MAX: Duration = Duration::from_secs(5);

/// How long each free lease has been waiting for its heir.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    waiting: FnvHashMap<EndpointId, Moment>,
    acted: FnvHashMap<InstanceId, Moment>,
}

impl Patience {
    /// `instance` has just taken something.
    pub(crate) fn acts(&mut self, instance: &InstanceId, now: Moment) {
        self.acted.retain(|_, at| now.since(*at) < AT_WORK_MAX);
        self.acted.insert(instance.clone(), now);
    }

    /// These are free now, and no others.
    pub(crate) fn keep(&mut self, free: &[Fallback]) {
        let mut before = std::mem::take(&mut self.waiting);
        // Whichever instance is the heir now: it has been free for as long.
        self.waiting = free.iter().filter_map(|it| before.remove_entry(&it.endpoint)).collect();
    }

    /// Nobody could act until now, so no heir was slow.
    pub(crate) fn restart(&mut self) {
        self.waiting.clear();
    }

    /// When it may be taken instead of its heir; its time begins when this is first asked. `heard`: if it had been
    /// released for the heir, we would know.
    pub(crate) fn due(&mut self, it: &Fallback, now: Moment, heard: bool) -> Moment {
        let since = *self.waiting.entry(it.endpoint.clone()).or_insert(now);
        let acted = self.acted.get(&it.heir).copied().unwrap_or(Moment::MIN);
        let left_alone = if heard { Duration::ZERO } else { UNHEARD_FALLBACK };
        acted.clamp(since + left_alone, since + left_alone.max(AT_WORK_MAX))
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
        let mut patience = Patience::default();
        for rank in 0..5 {
            assert_eq!(patience.due(&free(rank, "b"), NOW, true), NOW + FALLBACK_STEP * (rank + 1));
        }
    }

    /// Where nobody says for whom it was released.
    #[test]
    fn where_words_are_not_heard_everybody_waits_for_an_heir_that_has_to_look() {
        let mut patience = Patience::default();
        let due = patience.due(&free(0, "b"), NOW, false);
        assert_eq!(due, NOW + UNHEARD_FALLBACK + FALLBACK_STEP);
    }

    #[test]
    fn an_heir_at_work_gets_more_time_but_not_for_ever() {
        let (mut patience, b) = (Patience::default(), InstanceId::new("b"));
        patience.due(&free(0, "b"), NOW, true);
        let later = NOW + Duration::from_secs(1);
        patience.acts(&b, later);
        assert_eq!(patience.due(&free(0, "b"), later, true), later + FALLBACK_STEP);
        patience.acts(&b, NOW + Duration::from_secs(60));
        assert_eq!(patience.due(&free(0, "b"), later, true), NOW + AT_WORK_MAX + FALLBACK_STEP);
    }

    #[test]
    fn a_lease_waits_for_as_long_as_it_is_free_whoever_its_heir_is() {
        let mut patience = Patience::default();
        let later = NOW + Duration::from_secs(1);
        let since = |patience: &mut Patience, heir, at| {
            patience.due(&free(0, heir), at, true) - FALLBACK_STEP
        };
        since(&mut patience, "b", NOW);
        patience.keep(&[free(0, "c")]);
        assert_eq!(since(&mut patience, "c", later), NOW);
        patience.keep(&[]);
        assert_eq!(since(&mut patience, "c", later), later);
        patience.restart();
        assert_eq!(since(&mut patience, "c", NOW), NOW);
    }
}
