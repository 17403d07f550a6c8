//! Which paused sessions are read again, because their pause ends? Each once, in the order of time. Touches nothing else.

use std::collections::BTreeSet;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::model::EndpointId;

/// Paused endpoints with the moment at which their pause ends.
#[derive(Debug, Default)]
pub(super) struct PauseEnds {
    by_time: BTreeSet<(Moment, EndpointId)>,
    times: FnvHashMap<EndpointId, Moment>,
}

impl PauseEnds {
    /// Notes the end of this pause; `None`: it has none, or there is no pause.
    pub(super) fn note(&mut self, endpoint: &EndpointId, end: Option<Moment>) {
        if let Some(before) = self.times.remove(endpoint) {
            self.by_time.remove(&(before, endpoint.clone()));
        }
        if let Some(end) = end {
            self.times.insert(endpoint.clone(), end);
            self.by_time.insert((end, endpoint.clone()));
        }
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.by_time.first().map(|it| it.0)
    }

    pub(super) fn take_due(&mut self, now: Moment) -> Option<EndpointId> {
        let _due = self.next().filter(|it| *it <= now)?;
        let (_, endpoint) = self.by_time.pop_first()?;
        self.times.remove(&endpoint);
        Some(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_is_written_anew_has_one_end_and_one_that_is_taken_back_has_none() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let [a, b] = ["a", "b"].map(|it| EndpointId::parse(it).unwrap());
        let mut ends = PauseEnds::default();
        ends.note(&a, Some(at(1)));
        ends.note(&b, Some(at(2)));
        ends.note(&a, Some(at(3)));
        assert_eq!((ends.next(), ends.take_due(at(1))), (Some(at(2)), None));
        ends.note(&b, None);
        assert_eq!([(); 2].map(|()| ends.take_due(at(9))), [Some(a), None]);
        assert!(ends.times.is_empty() && ends.by_time.is_empty());
    }
}
