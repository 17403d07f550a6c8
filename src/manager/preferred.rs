//! Which instances live, and which of them should own a lease?

use crate::fleet::placement::preferred;
use crate::manager::outcome::named;
use crate::manager::{LeaseError, LeaseManager};
use crate::model::InstanceId;
use crate::store::StoreError;

impl LeaseManager {
    /// Every instance with a heartbeat (FR-007).
    pub fn live_instances(&self) -> Result<Vec<InstanceId>, StoreError> {
        let (store, timeout) = (&self.exchange.store, self.exchange.table.timings().store_timeout);
        let (mut live, mut cursor) = (Vec::new(), 0);
        loop {
            let page = store.instances(cursor, timeout)?;
            live.extend(page.found);
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        live.sort_unstable();
        live.dedup();
        Ok(live)
    }

    /// Who should own this lease by rendezvous hashing of the live instances (FR-013).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// if manager.preferred_owner("nightly-report")?.as_ref() == Some(manager.instance_id()) {
    ///     println!("mine, if it is free");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn preferred_owner(&self, name: impl AsRef<str>) -> Result<Option<InstanceId>, LeaseError> {
        let (endpoint, live) = (named(name)?, self.live_instances()?);
        Ok(preferred(&endpoint, &live).cloned())
    }

    /// [`Self::preferred_owner`] for any number of names: an answer for each, in their order. Reads the live instances once.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// for owner in manager.preferred_owners(["report-1", "report-2"]) {
    ///     println!("{:?}", owner?);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn preferred_owners<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Vec<Result<Option<InstanceId>, LeaseError>> {
        let live = self.live_instances();
        let owner = |name: N| {
            let (endpoint, live) = (named(name)?, live.as_ref().map_err(Clone::clone)?);
            Ok(preferred(&endpoint, live).cloned())
        };
        names.into_iter().map(owner).collect()
    }
}
