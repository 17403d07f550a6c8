//! How does a wait for a lease end before its time? For the agent, whose clients may go while they wait.

use std::iter;

use crate::clock::Moment;
use crate::manager::{Acquired, LeaseError, LeaseManager};
use crate::model::EndpointId;

impl LeaseManager {
    /// [`LeaseManager::acquire`] until the moment that `until` says. It is asked again after [`Self::wake_waiting`].
    pub(crate) fn acquire_until(
        &self,
        name: &EndpointId,
        until: &dyn Fn() -> Moment,
    ) -> Result<Acquired, LeaseError> {
        Ok(self.exchange.acquire_until(name, until)?)
    }

    /// Lets the threads that wait for `name` ask again until when they wait.
    pub(crate) fn wake_waiting(&self, name: &EndpointId) {
        self.exchange.turns.ask_again(iter::once(name));
    }
}
