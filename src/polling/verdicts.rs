//! Which verdicts has this instance seen stored? What a store that lost data goes on from, and which result changed one.

use fnv::FnvHashMap;
use parking_lot::Mutex;

use crate::model::{EndpointId, KnownVerdict, VerdictState};
use crate::store::Publication;

/// This many endpoints that are not held any more may be remembered, and as many as are held.
const SPARE: usize = 1_024;

/// The verdicts after the results that this instance has stored, for the publisher and for the metrics.
#[derive(Debug, Default)]
pub struct Verdicts(Mutex<FnvHashMap<EndpointId, KnownVerdict>>);

impl Verdicts {
    /// Says with each result what was stored last.
    pub(crate) fn fill_in(&self, batch: &mut [Publication]) {
        let known = self.0.lock();
        for it in batch {
            it.judging.known = known.get(&it.tenure.endpoint).copied();
        }
    }

    /// `it` is stored; without a `state` it is still the one that was filled in. The state, if this result changed the
    /// verdict.
    pub(crate) fn note_stored(
        &self,
        it: &Publication,
        state: Option<VerdictState>,
    ) -> Option<VerdictState> {
        let state = state.or(it.judging.known.map(|it| it.state))?;
        let (fence, started_at_ms) = (it.tenure.fence, it.started_at_ms);
        let known = KnownVerdict { fence, started_at_ms, state };
        self.0.lock().insert(it.tenure.endpoint.clone(), known);
        state.is_changed_by(started_at_ms).then_some(state)
    }

    /// Forgets endpoints that are not held, once there are many. A hold-off lets a lease come back, so they are kept a while.
    pub(crate) fn forget(&self, held: usize, is_held: impl Fn(&EndpointId) -> bool) {
        let mut known = self.0.lock();
        if known.len() > 2 * held + SPARE {
            known.retain(|endpoint, _| is_held(endpoint));
        }
    }
}
