//! Has this tenure ended, and how? What all guards of one tenure share, and what they wait on.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::scheduler::{Changed, Wait};
use crate::lease::table::OwnershipTable;
use crate::manager::listeners::LeaseLoss;
use crate::model::Tenure;

/// Longest wait before the deadline of a lease is read again: the clock of a wait stands still in a suspend, that of the
/// deadline does not.
const WAIT: Duration = Duration::from_secs(1);

/// How a tenure ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    Lost(LeaseLoss),
    Released,
}

/// One tenure of this instance. Its end is final: a later grant of the same name is another `Hold`.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) tenure: Tenure,
    end: Mutex<Option<End>>,
    ended: Changed,
}

impl Hold {
    pub(super) fn new(tenure: Tenure) -> Self {
        Self { tenure, end: Mutex::default(), ended: Changed::default() }
    }

    /// Notes the end and wakes everybody who waits for it. The first end counts.
    pub(super) fn end(&self, how: End) {
        self.end.lock().get_or_insert(how);
        self.ended.notify_all();
    }

    /// Why it was lost, if it was.
    pub(super) fn loss(&self) -> Option<LeaseLoss> {
        match &*self.end.lock() {
            Some(End::Lost(loss)) => Some(loss.clone()),
            Some(End::Released) | None => None,
        }
    }

    /// Waits until the tenure has ended; false after `timeout`. Does not rely on being told: the deadline ends it, too.
    pub(super) fn wait_for_end(&self, table: &OwnershipTable, timeout: Duration) -> bool {
        let (until, wait) = (table.now() + timeout, Wait::begin(&*table.clock().0));
        let mut end = self.end.lock();
        loop {
            let Some(lasts) = table.time_left(&self.tenure).filter(|_| end.is_none()) else {
                return true;
            };
            let now = table.now();
            if now >= until {
                return false;
            }
            wait.on(&self.ended, &mut end, until.min(now + lasts.min(WAIT)));
        }
    }
}
