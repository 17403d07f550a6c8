//! How does a lease stand, held here or not?

use std::time::Duration;

use crate::manager::outcome::named;
use crate::manager::{LeaseError, LeaseManager};
use crate::model::{FenceToken, InstanceId};

/// How a lease stands, as this instance sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// Never asked, or nobody's.
    Unknown,
    /// Ours, and confirmed.
    Owned,
    /// Another instance's.
    Other,
    /// Ours, but a question about it got no answer: do nothing under it.
    Uncertain,
}

/// One lease, as this instance knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// Whose it is, if anybody's.
    pub owner: Option<InstanceId>,
    /// How it stands.
    pub state: LeaseState,
    /// The fence, if it is ours.
    pub fence: Option<FenceToken>,
    /// How long ago the grant was asked for, if it is ours.
    pub acquired_ago: Option<Duration>,
    /// How long ago its last confirmation was asked for, if it is ours.
    pub renewed_ago: Option<Duration>,
    /// How long it lasts unless it is renewed, if it is ours.
    pub remaining: Option<Duration>,
}

impl LeaseManager {
    /// How a lease stands. Asks Redis only about a lease that is not held here.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// use leasehold::LeaseState;
    ///
    /// let info = manager.info("nightly-report")?;
    /// if info.state == LeaseState::Other {
    ///     println!("{:?} has it", info.owner);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn info(&self, name: impl AsRef<str>) -> Result<LeaseInfo, LeaseError> {
        let (endpoint, table) = (&named(name)?, &self.exchange.table);
        if let Some(held) = table.holding(endpoint) {
            let (owned, now) = (table.may_poll(endpoint), table.now());
            return Ok(LeaseInfo {
                owner: Some(self.instance_id().clone()),
                state: if owned { LeaseState::Owned } else { LeaseState::Uncertain },
                fence: Some(held.fence),
                acquired_ago: Some(now.since(held.acquired_at)),
                renewed_ago: Some(now.since(held.renewed_at)),
                remaining: Some(held.deadline.since(now)),
            });
        }
        if !table.is_of_this_process() {
            self.exchange.usable("look up", endpoint)?;
        }
        let (store, timeout) = (&self.exchange.store, table.timings().store_timeout);
        let owner = store.owners(std::slice::from_ref(endpoint), timeout)?.pop().flatten();
        let state = if owner.is_some() { LeaseState::Other } else { LeaseState::Unknown };
        let (fence, acquired_ago, renewed_ago, remaining) = (None, None, None, None);
        Ok(LeaseInfo { owner, state, fence, acquired_ago, renewed_ago, remaining })
    }
}
