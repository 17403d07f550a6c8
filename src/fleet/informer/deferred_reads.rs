//! Which sessions are read later, if they are still free then? A queue in the order of time. Touches nothing else.

use std::collections::VecDeque;

use fnv::FnvHashSet;

use crate::clock::Moment;
use crate::model::EndpointId;

/// Endpoints with the time from which their session may be read, each once: a session may be written often before its
/// time comes.
#[derive(Debug, Default)]
pub(super) struct DeferredReads {
    /// In the order of time: every entry waits equally long.
    queue: VecDeque<(Moment, EndpointId)>,
    waiting: FnvHashSet<EndpointId>,
}

impl DeferredReads {
    /// Adds `endpoint` for `at`, which is not before the last entry; an endpoint that waits already keeps its time.
    pub(super) fn put(&mut self, at: Moment, endpoint: &EndpointId) {
        if self.waiting.insert(endpoint.clone()) {
            self.queue.push_back((at, endpoint.clone()));
        }
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.queue.front().map(|it| it.0)
    }

    pub(super) fn take_due(&mut self, now: Moment) -> Option<EndpointId> {
        let _due = self.next().filter(|it| *it <= now)?;
        let (_, endpoint) = self.queue.pop_front()?;
        self.waiting.remove(&endpoint);
        Some(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// While nothing is read, as in a hold-off, a session that is written again and again must not pile up.
    #[test]
    fn a_session_that_is_written_often_waits_once_and_from_the_first_time() {
        let [a, b] = ["a", "b"].map(|it| EndpointId::parse(it).unwrap());
        let mut reads = DeferredReads::default();
        (0..1_000).for_each(|it| reads.put(at(it), &a));
        reads.put(at(1_000), &b);
        assert_eq!((reads.queue.len(), reads.waiting.len(), reads.next()), (2, 2, Some(at(0))));
        assert_eq!([(); 2].map(|()| reads.take_due(at(999))), [Some(a.clone()), None]);
        reads.put(at(2_000), &a);
        assert_eq!([(); 3].map(|()| reads.take_due(at(2_000))), [Some(b), Some(a), None]);
        assert!(reads.waiting.is_empty());
    }
}
