//! How the four parts of the informer reach the store, the table of leases and the log, and how many exchanges they may use.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::fleet::informer::sessions::Sessions;
use crate::fleet::informer::tracked_view::TrackedView;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::model::{InstanceId, spread};
use crate::store::Store;

/// Which pushes the subscription of this instance delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PushSupport {
    /// Messages of other instances.
    pub(super) messages: bool,
    /// Names of changed keys.
    pub(super) changes: bool,
}

/// What every part of the informer may read. Only `Informer` changes it.
pub(super) struct ReadContext {
    pub(super) store: Arc<dyn Store>,
    pub(super) table: Arc<OwnershipTable>,
    pub(super) reporter: Reporter,
    pub(super) me: InstanceId,
    /// `None` until the first subscription succeeds or fails: an instance that reads before it subscribes misses the
    /// changes in between.
    pub(super) push: Option<PushSupport>,
    /// When the first resync had listed every session, owner and live instance.
    pub(super) synced_at: Option<Moment>,
    pub(super) quick_check_interval: Duration,
}

/// What `Owners` and `Resync` touch besides their own state.
pub(super) struct ReadScope<'a> {
    pub(super) context: &'a ReadContext,
    pub(super) view: &'a mut TrackedView,
    pub(super) sessions: &'a mut Sessions,
}

impl ReadContext {
    pub(super) fn now(&self) -> Moment {
        self.table.now()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.table.timings().store_timeout
    }

    pub(super) fn has_synced(&self) -> bool {
        self.synced_at.is_some()
    }

    pub(super) fn gets_messages(&self) -> bool {
        self.push.is_some_and(|it| it.messages)
    }

    pub(super) fn gets_changes(&self) -> bool {
        self.push.is_some_and(|it| it.changes)
    }

    /// A share of `span` that depends on the id of this instance, so that the fleet does not act in step.
    pub(super) fn own_part_of(&self, span: Duration) -> Duration {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(spread(self.me.as_str(), micros))
    }
}

/// How many more exchanges this read pass may have.
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new(exchanges: usize) -> Self {
        Self(exchanges)
    }

    /// Pays for one exchange; false when nothing is left.
    pub(super) fn spend(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}
