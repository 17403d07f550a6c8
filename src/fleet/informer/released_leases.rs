//! Which leases were released for a named heir (R8), until when is each left to that heir, and did the heir acquire it?
//! Touches nothing else.
//!
//! The heir has asked, so it is alive; but it may be slow, or may not get the message. Until its time is up a read that
//! finds no key does not make the lease free: another instance would acquire it before the heir does.

use std::collections::BTreeSet;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::model::{EndpointId, InstanceId};

/// Entries that are over and were never looked up are removed this often.
const TIDIED_EVERY: Duration = Duration::from_secs(60);

/// A lease that was released for an heir.
#[derive(Clone, Debug)]
struct ReleasedLease {
    from: InstanceId,
    heir: InstanceId,
    /// Until when the lease is left to the heir.
    until: Moment,
}

/// Every lease that was released for an heir, by this instance or by another that announced it.
#[derive(Debug, Default)]
pub(super) struct ReleasedLeases {
    released: FnvHashMap<EndpointId, ReleasedLease>,
    /// Heirs that did not acquire a lease that was released for them, since [`Self::take_outcomes`].
    absent: BTreeSet<InstanceId>,
    /// Instances that acquired a lease, since [`Self::take_outcomes`].
    active: BTreeSet<InstanceId>,
    tidied_at: Moment,
}

impl ReleasedLeases {
    /// `from` released `endpoint` for `heir`, which has until `until` to acquire it. A repeated message does not prolong
    /// that: anybody may forge a message.
    pub(super) fn insert(
        &mut self,
        endpoint: &EndpointId,
        from: &InstanceId,
        heir: &InstanceId,
        (now, until): (Moment, Moment),
    ) {
        if now.since(self.tidied_at) >= TIDIED_EVERY {
            self.tidied_at = now;
            self.released.retain(|_, it| now.since(it.until) < TIDIED_EVERY);
        }
        let is_same = |it: &ReleasedLease| it.from == *from && it.heir == *heir && now < it.until;
        if !self.released.get(endpoint).is_some_and(is_same) {
            let lease = ReleasedLease { from: from.clone(), heir: heir.clone(), until };
            self.released.insert(endpoint.clone(), lease);
        }
    }

    /// The heir to which `endpoint` is left, although a read at `asked_at` found no owner.
    pub(super) fn heir(&self, endpoint: &EndpointId, asked_at: Moment) -> Option<&InstanceId> {
        self.released.get(endpoint).filter(|it| asked_at < it.until).map(|it| &it.heir)
    }

    /// The lease has this owner now, or the time of its heir is up. With `counts` an heir that did not acquire it is
    /// absent.
    pub(super) fn close(
        &mut self,
        endpoint: &EndpointId,
        owner: Option<&InstanceId>,
        counts: bool,
    ) {
        let Some(lease) = self.released.remove(endpoint) else { return };
        if owner == Some(&lease.heir) {
            self.active.insert(lease.heir);
        } else if owner.is_none_or(|it| *it == lease.from) && counts {
            self.absent.insert(lease.heir);
        }
    }

    /// `instance` announced that it acquired or released this. If it is the heir, it was not absent.
    pub(super) fn note_owner(&mut self, endpoint: &EndpointId, instance: &InstanceId) {
        if self.released.get(endpoint).is_some_and(|it| it.heir == *instance) {
            self.close(endpoint, Some(instance), true);
        }
    }

    /// `instance` has acquired some lease.
    pub(super) fn note_active(&mut self, instance: &InstanceId) {
        self.active.insert(instance.clone());
    }

    /// Nobody could acquire anything, so no heir was absent.
    pub(super) fn clear(&mut self) {
        self.released.clear();
        self.absent.clear();
    }

    /// Absent heirs, and instances that acquired something, since the last call.
    pub(super) fn take_outcomes(&mut self) -> (BTreeSet<InstanceId>, BTreeSet<InstanceId>) {
        (std::mem::take(&mut self.absent), std::mem::take(&mut self.active))
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
        let mut released = ReleasedLeases::default();
        released.insert(&e, &a, &b, (NOW, NOW + WHILE));
        let later = NOW + WHILE / 2;
        released.insert(&e, &a, &b, (later, later + WHILE));
        assert_eq!(released.heir(&e, later), Some(&b));
        assert_eq!(released.heir(&e, NOW + WHILE), None);
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
            let mut released = ReleasedLeases::default();
            released.insert(&e, &a, &b, (NOW, NOW + WHILE));
            released.close(&e, owner, counts);
            assert_eq!(released.take_outcomes().0.contains(&b), absent, "{owner:?} {counts}");
            released.close(&e, None, true);
            assert!(released.take_outcomes().0.is_empty(), "it is told once");
        }
    }

    #[test]
    fn an_heir_that_took_it_and_gave_it_back_was_there() {
        let (e, a, b, c) = names();
        let mut released = ReleasedLeases::default();
        released.insert(&e, &a, &b, (NOW, NOW + WHILE));
        released.note_owner(&e, &c);
        assert_eq!(released.heir(&e, NOW), Some(&b), "another says so");
        released.note_owner(&e, &b);
        released.close(&e, Some(&a), true);
        assert_eq!(released.take_outcomes(), ([].into(), [b].into()));
    }
}
