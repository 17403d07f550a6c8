//! Has this tenure ended already? Remembers the highest ended fence of each endpoint, so that no late answer brings it back (R4).
//!
//! Two threads can acquire the same endpoint. The later grant may be applied, released and granted to another instance before
//! the answer with the earlier grant is applied: the store has ended that tenure long ago. Fences grow with every grant, so a
//! grant is out of date if its fence is not above the last ended one. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::model::{EndpointId, FenceToken, Tenure};

/// How many old entries one call removes. A call adds at most one, so their number falls, and no call takes long.
const PRUNED_AT_ONCE: usize = 4;

/// For each endpoint the highest fence that was released, lost or replaced lately.
#[derive(Debug, Default)]
pub(super) struct RetiredFences {
    highest: FnvHashMap<EndpointId, (FenceToken, Moment)>,
    /// The endpoints in the order in which their tenures ended. An endpoint can be in it several times.
    order: VecDeque<(Moment, EndpointId)>,
}

impl RetiredFences {
    /// Remembers that this tenure ended at `now`.
    pub(super) fn retire(&mut self, tenure: &Tenure, now: Moment) {
        let note = self.highest.entry(tenure.endpoint.clone()).or_insert((tenure.fence, now));
        *note = (note.0.max(tenure.fence), now);
        self.order.push_back((now, tenure.endpoint.clone()));
    }

    /// Whether this tenure, or a later one of the same endpoint, has ended.
    pub(super) fn covers(&self, tenure: &Tenure) -> bool {
        self.highest.get(&tenure.endpoint).is_some_and(|it| tenure.fence <= it.0)
    }

    /// Removes entries older than `lifetime`, the time for which a grant counts (R1). A grant that is out of date was
    /// requested before the later tenure ended, so after `lifetime` it no longer counts by itself. This bounds the memory by
    /// the number of tenures that end within `lifetime`.
    pub(super) fn prune(&mut self, now: Moment, lifetime: Duration) {
        for _ in 0..PRUNED_AT_ONCE {
            if self.order.front().is_none_or(|it| it.0 + lifetime > now) {
                return;
            }
            let Some((at, endpoint)) = self.order.pop_front() else { return };
            if self.highest.get(&endpoint).is_some_and(|it| it.1 <= at) {
                self.highest.remove(&endpoint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(29);

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn tenure(name: &str, fence: u64) -> Tenure {
        Tenure::new(EndpointId::parse(name).unwrap(), FenceToken(fence))
    }

    #[test]
    fn what_ended_covers_itself_and_what_was_before_and_nothing_else() {
        let mut retired = RetiredFences::default();
        retired.retire(&tenure("e", 20), at(1));
        retired.retire(&tenure("e", 10), at(2)); // its end was noticed later
        let covered = |name, fence| retired.covers(&tenure(name, fence));
        assert!(covered("e", 10) && covered("e", 20));
        assert!(!covered("e", 21) && !covered("f", 10));
    }

    #[test]
    fn a_note_lasts_as_long_as_a_grant_that_was_asked_for_before_it_could_count() {
        let mut retired = RetiredFences::default();
        retired.retire(&tenure("e", 20), at(1));
        retired.retire(&tenure("e", 30), at(10));
        retired.prune(at(30), LIFETIME);
        assert!(retired.covers(&tenure("e", 30)), "it was let go of again");
        retired.prune(at(38), LIFETIME);
        assert!(retired.covers(&tenure("e", 30)));
        retired.prune(at(39), LIFETIME);
        assert!(!retired.covers(&tenure("e", 30)));
    }

    #[test]
    fn many_names_leave_no_more_behind_than_a_lifetime_of_them() {
        let mut retired = RetiredFences::default();
        for n in 0..200_000_u64 {
            let now = Moment::from_nanos(n * 1_000_000); // a thousand a second
            retired.retire(&tenure(&format!("e{n}"), n), now);
            retired.prune(now, LIFETIME);
        }
        assert!(retired.highest.len() <= 29_001, "{} notes", retired.highest.len());
        assert_eq!(retired.highest.len(), retired.order.len());
    }
}
