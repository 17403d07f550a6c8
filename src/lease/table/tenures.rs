//! May something be done under this one tenure? For guards, which belong to a tenure and never to its successor.

use std::time::Duration;

use crate::lease::table::{Lost, OwnershipTable};
use crate::model::Tenure;

impl OwnershipTable {
    /// [`Self::may_poll`] for this tenure: false for ever once it has ended, even if its lease was granted anew.
    pub fn is_usable(&self, tenure: &Tenure) -> bool {
        let leases = self.leases.read();
        let Some(lease) = leases.find(tenure) else { return false };
        lease.is_open(&lease.state.lock(), self.now()) && self.is_of_this_process()
    }

    /// How long this tenure lasts unless a renewal is confirmed. `None` once it has ended, also if no thread has
    /// noticed that yet.
    pub fn time_left(&self, tenure: &Tenure) -> Option<Duration> {
        let leases = self.leases.read();
        let lease = leases.find(tenure).filter(|_| self.is_of_this_process())?;
        let (state, now) = (lease.state.lock(), self.now());
        lease.stands(&state, now).then(|| lease.deadline(&state).since(now))
    }

    /// R4: forgets this tenure right before its release is sent, and aborts its poll. False if it has ended before: then a
    /// later tenure of the same lease stays.
    pub fn forget_tenure(&self, tenure: &Tenure) -> bool {
        self.forget(tenure).map(|it| it.stop_poll()).is_some()
    }

    /// From now on calls `tell` for each lease that ends without a release, once, on the thread that ends it. That thread
    /// keeps other leases alive, so `tell` must not block. Only the first call counts.
    pub(crate) fn tell_losses(&self, tell: impl Fn(&Lost) + Send + Sync + 'static) {
        let _ = self.losses.listener.set(Box::new(tell));
    }
}
