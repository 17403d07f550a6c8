//! Leases that an owner released for a named heir (R8): until when each is left to that heir, and whether it came.
//!
//! The heir has asked, so it is alive; but it may be slow, or may not be told. Until its time is up no read that finds
//! the key missing makes the lease free again: it would be taken back from under an heir on its way.

use std::collections::BTreeSet;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::model::{EndpointId, InstanceId};

/// What is over and was never looked up is forgotten this often.
const TIDIED_EVERY: Duration = Duration::from_secs(60);

/// One lease that was released for an heir.
#[derive(Clone, Debug)]
struct Given {
    from: InstanceId,
    heir: InstanceId,
    /// Until when it is left to the heir.
    until: Moment,
}

/// Every lease that was released for an heir, by us or by another who said so.
#[derive(Debug, Default)]
pub(super) struct GivenLeases {
    given: FnvHashMap<EndpointId, Given>,
    /// Heirs that did not take what was released for them, since this was last asked.
    absent: BTreeSet<InstanceId>,
    /// Instances that were seen to take a lease, since this was last asked.
    takers: BTreeSet<InstanceId>,
    tidied_at: Moment,
}

impl GivenLeases {
    /// `from` released `endpoint` for `heir`, which has until then to take it. A repeated message does not prolong
    /// it: a word may be forged.
    pub(super) fn give(
        &mut self,
        endpoint: &EndpointId,
        from: &InstanceId,
        heir: &InstanceId,
        (now, until): (Moment, Moment),
    ) {
        if now.since(self.tidied_at) >= TIDIED_EVERY {
            self.tidied_at = now;
            self.given.retain(|_, it| now.since(it.until) < TIDIED_EVERY);
        }
        let stands = |it: &Given| it.from == *from && it.heir == *heir && now < it.until;
        if !self.given.get(endpoint).is_some_and(stands) {
            let given = Given { from: from.clone(), heir: heir.clone(), until };
            self.given.insert(endpoint.clone(), given);
        }
    }

    /// Whom `endpoint` is left to, in spite of a read at `asked_at` that found nobody.
    pub(super) fn heir(&self, endpoint: &EndpointId, asked_at: Moment) -> Option<&InstanceId> {
        self.given.get(endpoint).filter(|it| asked_at < it.until).map(|it| &it.heir)
    }

    /// Somebody has it, or nobody has come for it in time; `counts` unless nobody was to come.
    pub(super) fn close(
        &mut self,
        endpoint: &EndpointId,
        owner: Option<&InstanceId>,
        counts: bool,
    ) {
        let Some(given) = self.given.remove(endpoint) else { return };
        if owner == Some(&given.heir) {
            self.takers.insert(given.heir);
        } else if owner.is_none_or(|it| *it == given.from) && counts {
            self.absent.insert(given.heir);
        }
    }

    /// `instance` says that it took this, or that it has just let go of it. If it is the heir, it came.
    pub(super) fn had(&mut self, endpoint: &EndpointId, instance: &InstanceId) {
        if self.given.get(endpoint).is_some_and(|it| it.heir == *instance) {
            self.close(endpoint, Some(instance), true);
        }
    }

    /// `instance` has just taken something.
    pub(super) fn acts(&mut self, instance: &InstanceId) {
        self.takers.insert(instance.clone());
    }

    /// Nobody could take anything, so no heir failed to.
    pub(super) fn forget(&mut self) {
        self.given.clear();
        self.absent.clear();
    }

    /// Heirs that did not come, and instances that took something, since this was last asked.
    pub(super) fn take_news(&mut self) -> (BTreeSet<InstanceId>, BTreeSet<InstanceId>) {
        (std::mem::take(&mut self.absent), std::mem::take(&mut self.takers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1 << 40);
    const WHILE: Duration = Duration::from_secs(2);

    fn names() -> (EndpointId, InstanceId, InstanceId, InstanceId) {
        let [a, b, c] = ["a", "b", "c"].map(InstanceId::new);
        (EndpointId::parse("e").unwrap(), a, b, c)
    }

    #[test]
    fn a_lease_is_left_to_its_heir_until_its_time_is_up_however_often_that_is_said() {
        let (e, a, b, _) = names();
        let mut given = GivenLeases::default();
        given.give(&e, &a, &b, (NOW, NOW + WHILE));
        let later = NOW + WHILE / 2;
        given.give(&e, &a, &b, (later, later + WHILE));
        assert_eq!(given.heir(&e, later), Some(&b));
        assert_eq!(given.heir(&e, NOW + WHILE), None);
    }

    #[test]
    fn an_heir_is_absent_when_nobody_came_or_it_went_back_and_not_when_another_has_it() {
        let (e, a, b, c) = names();
        for (owner, counts, absent) in [
            (None, true, true),
            (None, false, false),
            (Some(&a), true, true),
            (Some(&b), true, false),
            (Some(&c), true, false),
        ] {
            let mut given = GivenLeases::default();
            given.give(&e, &a, &b, (NOW, NOW + WHILE));
            given.close(&e, owner, counts);
            assert_eq!(given.take_news().0.contains(&b), absent, "{owner:?} {counts}");
            given.close(&e, None, true);
            assert!(given.take_news().0.is_empty(), "it is told once");
        }
    }

    #[test]
    fn an_heir_that_took_it_and_gave_it_back_was_there() {
        let (e, a, b, c) = names();
        let mut given = GivenLeases::default();
        given.give(&e, &a, &b, (NOW, NOW + WHILE));
        given.had(&e, &c);
        assert_eq!(given.heir(&e, NOW), Some(&b), "another says so");
        given.had(&e, &b);
        given.close(&e, Some(&a), true);
        assert_eq!(given.take_news(), ([].into(), [b].into()));
    }
}
