//! Which instances are alive, for the thread `detect`? `reconcile` knows, and tells it when that changes.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::InstanceId;

/// The live instances as `reconcile` last saw them.
#[derive(Debug, Default)]
pub struct LiveInstances {
    ids: Mutex<Arc<Vec<InstanceId>>>,
}

impl LiveInstances {
    /// Replaces them.
    pub fn set<'a>(&self, ids: impl Iterator<Item = &'a InstanceId>) {
        *self.ids.lock() = Arc::new(ids.cloned().collect());
    }

    /// All of them.
    pub fn get(&self) -> Arc<Vec<InstanceId>> {
        Arc::clone(&self.ids.lock())
    }
}
