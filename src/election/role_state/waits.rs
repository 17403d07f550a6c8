//! For what does a thread wait in an election, and for how long? For a leadership, for its end, or for any change. By the
//! clock of the role, which a test may move.

use std::time::Duration;

use crate::clock::scheduler::Wait;
use crate::election::role_state::RoleState;
use crate::model::FenceToken;

impl RoleState {
    /// Waits for the right to lead, at most for the given time.
    pub(crate) fn wait_for_leadership(&self, timeout: Duration) -> bool {
        let (deadline, wait) = (self.table.now() + timeout, Wait::begin(&*self.table.clock().0));
        let mut inner = self.inner.lock();
        while !self.is_leader() {
            if self.table.now() >= deadline || inner.is_stopping {
                return false;
            }
            wait.on(&self.changed, &mut inner, deadline);
        }
        true
    }

    /// Waits for the right to lead, or for so much real time: the caller looks for something else, too.
    pub(crate) fn look_for_leadership(&self, interval: Duration) {
        let wait = Wait::begin(&*self.table.clock().0);
        let mut inner = self.inner.lock();
        if !self.is_leader() && !inner.is_stopping {
            wait.look(&self.changed, &mut inner, interval);
        }
    }

    /// Waits until something has changed, at most for the given time.
    pub(crate) fn wait_for_change(&self, wait: &Wait<'_>, longest: Duration) {
        wait.on(&self.changed, &mut self.inner.lock(), self.table.now() + longest);
    }

    /// Waits until the leadership of `term` has ended, at most for the given time; true if it has.
    pub(crate) fn wait_for_loss(&self, term: FenceToken, longest: Duration) -> bool {
        let wait = Wait::begin(&*self.table.clock().0);
        let mut inner = self.inner.lock();
        if self.leads_under(term) {
            wait.look(&self.changed, &mut inner, longest);
        }
        drop(inner);
        !self.leads_under(term)
    }

    /// How long to wait for the end of this election: until the deadline of what is held, because the caller that waits may
    /// itself have the work that has not ended; and long enough for the store to answer.
    pub(crate) fn patience(&self) -> Duration {
        let now = self.table.now();
        let held = self.table.holding(self.role.as_lease()).map(|it| it.deadline.since(now));
        held.unwrap_or_default().max(self.table.timings().store_timeout + Duration::from_secs(1))
    }

    /// Whether this instance leads under `term`, or would if its last renewal were answered. False once the role is being given up.
    pub(crate) fn leads_under(&self, term: FenceToken) -> bool {
        let held = self.table.holding(self.role.as_lease());
        held.is_some_and(|it| it.fence == term && !it.draining && self.table.now() < it.deadline)
    }

    /// The outcome of a release, or of a request for the role: whether it is known.
    pub(crate) fn given_back(&self, is_known: bool) {
        self.inner.lock().is_given_back = is_known;
    }

    /// Whether the store knows that nothing is led here, once nothing is.
    pub(crate) fn is_given_back(&self) -> bool {
        self.inner.lock().is_given_back
    }
}
