//! Which verdicts has this instance seen stored? What a store that lost data goes on from, which result changed one, and how
//! the endpoints of this instance are.

use std::cmp::Reverse;
use std::time::Duration;

use fnv::FnvHashMap;
use parking_lot::Mutex;

use crate::lease::table::OwnershipTable;
use crate::model::{EndpointId, KnownVerdict, Verdict, VerdictState};
use crate::store::Publication;
use crate::store::redis::endings::RETIRED_LASTS;

/// This many endpoints that are not held any more may be remembered, and as many as are held.
const SPARE: usize = 1_024;
/// An endpoint is late when its last result is older than this many intervals: one round was missed, and a poll may suddenly
/// take most of an interval.
const LATE_INTERVALS: u32 = 3;

/// The verdicts after the results that this instance has stored, for the publisher and for the metrics.
#[derive(Debug, Default)]
pub struct Verdicts(Mutex<FnvHashMap<EndpointId, Stored>>);

/// A verdict, and when the next result is due.
#[derive(Clone, Copy, Debug)]
struct Stored {
    known: KnownVerdict,
    interval: Duration,
}

/// How the endpoints are that this instance owns and has polled.
#[derive(Debug, Default)]
pub struct Survey {
    /// Whose verdict is failing.
    pub failing: usize,
    /// Without a result for `LATE_INTERVALS`.
    pub late: usize,
    /// For how long the one has been failing that has been so longest.
    pub failing_for: Duration,
    /// Each, failing ones first, by name.
    pub endpoints: Vec<(EndpointId, VerdictState)>,
}

impl Verdicts {
    /// Says with each result what was stored last, so that a verdict survives a Redis that lost its data. What is older than
    /// a record that ends is not said: the store may have let the record expire, so that the endpoint is a new one.
    pub(crate) fn fill_in(&self, batch: &mut [Publication]) {
        let stored = self.0.lock();
        for it in batch {
            let age = |known: u64| Duration::from_millis(it.started_at_ms.saturating_sub(known));
            let known = stored.get(&it.tenure.endpoint).map(|it| it.known);
            it.judging.known = known.filter(|it| age(it.started_at_ms) < RETIRED_LASTS);
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
        let stored = Stored { known, interval: it.interval };
        self.0.lock().insert(it.tenure.endpoint.clone(), stored);
        state.is_changed_by(started_at_ms).then_some(state)
    }

    /// Forgets endpoints that are not held, once there are many. A hold-off lets a lease come back, so they are kept a while.
    pub(crate) fn forget(&self, held: usize, is_held: impl Fn(&EndpointId) -> bool) {
        let mut stored = self.0.lock();
        if stored.len() > 2 * held + SPARE {
            stored.retain(|endpoint, _| is_held(endpoint));
        }
    }

    /// How the endpoints in `table` are now.
    pub(crate) fn survey(&self, table: &OwnershipTable) -> Survey {
        let stored: Vec<(EndpointId, Stored)> =
            self.0.lock().iter().map(|(endpoint, it)| (endpoint.clone(), *it)).collect();
        let Some(server_ms) = table.server_ms() else { return Survey::default() };
        let since = |ms: u64| Duration::from_millis(server_ms.saturating_sub(ms));
        let mut survey = Survey::default();
        for (endpoint, Stored { known, interval }) in stored {
            if table.tenure(&endpoint).is_none_or(|it| it.fence != known.fence) {
                continue;
            }
            if since(known.started_at_ms) > interval.saturating_mul(LATE_INTERVALS) {
                survey.late += 1;
            }
            if is_failing(&known.state) {
                survey.failing += 1;
                survey.failing_for = survey.failing_for.max(since(known.state.since_ms));
            }
            survey.endpoints.push((endpoint, known.state));
        }
        survey.endpoints.sort_by(|a, b| {
            (Reverse(is_failing(&a.1)), &a.0).cmp(&(Reverse(is_failing(&b.1)), &b.0))
        });
        survey
    }
}

/// Whether the verdict is failing.
pub(crate) fn is_failing(state: &VerdictState) -> bool {
    state.verdict == Some(Verdict::Failing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::testing::Holder;
    use crate::model::{FenceToken, Sample, Tenure};
    use crate::store::Judging;

    fn publication(tenure: &Tenure, started_at_ms: u64) -> Publication {
        let (tenure, interval) = (tenure.clone(), Duration::from_secs(5));
        let sample = Sample::failed("no answer", interval);
        Publication {
            tenure,
            started_at_ms,
            interval,
            sample,
            certificate: None,
            judging: Judging::default(),
        }
    }

    fn state(verdict: Verdict, since_ms: u64) -> Option<VerdictState> {
        Some(VerdictState { verdict: Some(verdict), since_ms, ..VerdictState::default() })
    }

    #[test]
    fn only_endpoints_that_are_held_are_counted_and_failing_ones_come_first() {
        let Holder { table, held, .. } = Holder::of(4);
        let now = table.server_ms().unwrap();
        let verdicts = Verdicts::default();
        let note = |n: usize, ago: u64, verdict, since_ago: u64| {
            verdicts
                .note_stored(&publication(&held[n], now - ago), state(verdict, now - since_ago));
        };
        note(0, 0, Verdict::Ok, 90_000);
        note(1, 20_000, Verdict::Ok, 80_000);
        note(2, 0, Verdict::Failing, 30_000);
        note(3, 0, Verdict::Failing, 60_000);
        drop(table.forget_for_release(&held[3].endpoint));
        let survey = verdicts.survey(&table);
        assert_eq!((survey.failing, survey.late), (1, 1));
        assert_eq!(survey.failing_for, Duration::from_secs(30));
        let names: Vec<_> = survey.endpoints.iter().map(|it| it.0.clone()).collect();
        assert_eq!(names, [2, 0, 1].map(|n| held[n].endpoint.clone()));
    }

    #[test]
    fn a_verdict_is_not_remembered_for_longer_than_the_result_of_a_removed_session_is_stored() {
        let tenure = Tenure { endpoint: EndpointId::parse("e0").unwrap(), fence: FenceToken(1) };
        let (verdicts, at) = (Verdicts::default(), 1_000_000);
        verdicts.note_stored(&publication(&tenure, at), state(Verdict::Failing, at));
        let known = |after: Duration| {
            let started_at_ms = at + u64::try_from(after.as_millis()).unwrap();
            let mut batch = [publication(&tenure, started_at_ms)];
            verdicts.fill_in(&mut batch);
            batch[0].judging.known.map(|it| it.started_at_ms)
        };
        let last = RETIRED_LASTS.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(known(last), Some(at), "it survives a restart of Redis");
        assert_eq!(known(RETIRED_LASTS), None, "the stored result may have expired");
    }

    #[test]
    fn what_is_not_held_is_forgotten_once_it_is_much() {
        let verdicts = Verdicts::default();
        let put = |n: usize| {
            let endpoint = EndpointId::parse(&format!("e{n}")).unwrap();
            let tenure = Tenure { endpoint, fence: FenceToken(1) };
            verdicts.note_stored(&publication(&tenure, 1), state(Verdict::Ok, 1));
        };
        (0..SPARE).for_each(put);
        verdicts.forget(0, |_| false);
        assert_eq!(verdicts.0.lock().len(), SPARE, "a lease may come back after a hold-off");
        put(SPARE);
        verdicts.forget(0, |it| it.as_str() == "e7");
        assert_eq!(verdicts.0.lock().len(), 1);
    }
}
