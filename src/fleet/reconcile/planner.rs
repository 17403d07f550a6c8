//! When is a plan made, and which one is acted on? Reads the view, and touches nothing but its plan.

use std::time::Duration;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::informer::Informer;
use crate::fleet::placement::{Plan, plan};
use crate::fleet::reconcile::MoveContext;
use crate::fleet::reconcile::request::Requests;

/// Planning takes at most one part in this many of the time.
const PLANNING_SHARE: u32 = 5;
/// The longest rest after a plan: a process or a VM that stood still in the middle of a plan did not plan meanwhile.
const PLANNING_REST_MAX: Duration = Duration::from_secs(5);

/// The current plan, and when the next one may be made.
#[derive(Default)]
pub(super) struct Planner {
    pub(super) plan: Plan,
    pub(super) next: Moment,
    /// No instance may be given anything, and that was logged.
    stuck: bool,
}

impl Planner {
    /// When a new plan is due.
    pub(super) fn due(&self, informer: &Informer) -> Moment {
        if informer.view().has_changed() { self.next } else { Moment::MAX }
    }

    pub(super) fn make_plan(
        &mut self,
        context: &MoveContext,
        informer: &Informer,
        requests: &Requests,
    ) {
        self.plan = plan(informer.view(), &context.me);
        // Leases that were released for this instance come first: every other instance leaves them to it.
        self.plan.acquire.sort_by_cached_key(|it| !requests.was_asked(it));
        let is_stuck = self.plan.all_draining && informer.view().is_live(&context.me);
        if is_stuck && !self.stuck && informer.is_settled() {
            let reason = "every instance has weight 0: nothing new is taken";
            context.reporter.report(&Event::PlacementStuck { reason });
        }
        self.stuck = is_stuck;
    }

    /// A plan for a large fleet in turmoil takes its time: it is acted on before the next one is made.
    pub(super) fn rest(&mut self, began: Moment, now: Moment) {
        self.next = began + planning_rest(now.since(began));
    }
}

/// From the beginning of a plan that took this long to the next one.
fn planning_rest(took: Duration) -> Duration {
    took.saturating_mul(PLANNING_SHARE).min(took + PLANNING_REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM that was suspended for an hour while it planned plans again soon.
    #[test]
    fn a_plan_rests_in_proportion_and_never_for_long() {
        for (took_ms, rest_ms) in [(0, 0), (10, 50), (1_000, 5_000), (3_600_000, 3_605_000)] {
            let [took, rest] = [took_ms, rest_ms].map(Duration::from_millis);
            assert_eq!(planning_rest(took), rest);
        }
    }
}
