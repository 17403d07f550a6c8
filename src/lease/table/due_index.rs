//! Which leases are to be renewed, expired or released next? An index, so that no step has to walk over all leases. Pure.
//!
//! A lease is changed only through a [`LeaseEdit`], which updates the index. Lock order: map, one lease, index.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use fnv::{FnvHashMap, FnvHashSet};
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::lease::permit::{Lease, Locked, Standing, TenureState};
use crate::lease::table::retired::RetiredFences;
use crate::model::{EndpointId, Tenure};

/// The part of a lease's state that the index depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DueEntry {
    renew_at: Moment,
    valid_until: Moment,
    doubtful: bool,
    draining: bool,
}

impl DueEntry {
    /// `None` for an ended lease: it is in no order.
    fn of(state: &TenureState) -> Option<Self> {
        (!state.ended).then(|| Self {
            renew_at: state.renew_at,
            valid_until: state.valid_until,
            doubtful: state.standing == Standing::Uncertain,
            draining: state.draining_since.is_some(),
        })
    }
}

/// The leases, sorted by when they are to be renewed and by when they end.
#[derive(Debug, Default)]
pub(super) struct DueIndex {
    /// Leases that are not due yet, by renewal time; the value is their end. Every lease is in `waiting` or in `due`.
    waiting: BTreeMap<(Moment, EndpointId), Moment>,
    /// Leases that are due, by their end; the value is since when they are due.
    due: BTreeMap<(Moment, EndpointId), Moment>,
    ends: BTreeSet<(Moment, EndpointId)>,
    doubtful: FnvHashSet<EndpointId>,
    draining: BTreeSet<EndpointId>,
}

impl DueIndex {
    fn replace(
        &mut self,
        endpoint: &EndpointId,
        before: Option<DueEntry>,
        after: Option<DueEntry>,
    ) {
        let at = |moment| (moment, endpoint.clone());
        if let Some(it) = before {
            if self.waiting.remove(&at(it.renew_at)).is_none() {
                self.due.remove(&at(it.valid_until));
            }
            self.ends.remove(&at(it.valid_until));
            self.doubtful.remove(endpoint);
            self.draining.remove(endpoint);
        }
        if let Some(it) = after {
            self.waiting.insert(at(it.renew_at), it.valid_until);
            self.ends.insert(at(it.valid_until));
            if it.doubtful {
                self.doubtful.insert(endpoint.clone());
            }
            if it.draining {
                self.draining.insert(endpoint.clone());
            }
        }
    }

    /// At most `count` of those that are to be renewed by `now`, and do not end before `ends_from`: those that
    /// end first.
    pub(super) fn due(&mut self, now: Moment, ends_from: Moment, count: usize) -> Vec<EndpointId> {
        while let Some(first) = self.waiting.first_entry().filter(|it| it.key().0 <= now) {
            let ((renew_at, endpoint), ends_at) = first.remove_entry();
            self.due.insert((ends_at, endpoint), renew_at);
        }
        let in_time = self.due.keys().skip_while(|it| it.0 < ends_from);
        in_time.take(count).map(|it| it.1.clone()).collect()
    }

    /// When the next renewal is due, or since when the first one is.
    pub(super) fn next_renewal(&self) -> Option<Moment> {
        let waits = self.waiting.keys().next().map(|it| it.0);
        let is_due = self.due.values().next().copied();
        waits.into_iter().chain(is_due).min()
    }

    /// The leases that end by `now`.
    pub(super) fn ended(&self, now: Moment) -> Vec<EndpointId> {
        self.ends.iter().take_while(|it| it.0 <= now).map(|it| it.1.clone()).collect()
    }

    pub(super) fn next_end(&self) -> Option<Moment> {
        self.ends.first().map(|it| it.0)
    }

    pub(super) fn is_doubtful(&self) -> bool {
        !self.doubtful.is_empty()
    }

    pub(super) fn draining(&self) -> Vec<EndpointId> {
        self.draining.iter().cloned().collect()
    }
}

/// The held lock of a lease. Updates the due index before it releases the lock.
pub(super) struct LeaseEdit<'a> {
    state: Locked<'a>,
    before: Option<DueEntry>,
    endpoint: &'a EndpointId,
    due_index: &'a Mutex<DueIndex>,
}

impl<'a> LeaseEdit<'a> {
    pub(super) fn new(lease: &'a Lease, due_index: &'a Mutex<DueIndex>) -> Self {
        let state = lease.state.lock();
        Self { before: DueEntry::of(&state), state, endpoint: &lease.tenure.endpoint, due_index }
    }

    /// For a new lease, which is not in the due index yet.
    pub(super) fn first(lease: &'a Lease, due_index: &'a Mutex<DueIndex>) -> Self {
        let state = lease.state.lock();
        Self { before: None, state, endpoint: &lease.tenure.endpoint, due_index }
    }
}

impl Deref for LeaseEdit<'_> {
    type Target = TenureState;
    fn deref(&self) -> &TenureState {
        &self.state
    }
}

impl DerefMut for LeaseEdit<'_> {
    fn deref_mut(&mut self) -> &mut TenureState {
        &mut self.state
    }
}

impl Drop for LeaseEdit<'_> {
    fn drop(&mut self) {
        // The lock of the lease is released after this, so that updates of one lease reach the index in order.
        let after = DueEntry::of(&self.state);
        if after != self.before {
            self.due_index.lock().replace(self.endpoint, self.before, after);
        }
    }
}

/// All leases by endpoint.
#[derive(Debug, Default)]
pub(super) struct LeaseMap {
    leases: FnvHashMap<EndpointId, Arc<Lease>>,
    /// The fences of removed leases, under the same lock.
    retired: RetiredFences,
    /// How many leases `all` has walked over.
    #[cfg(test)]
    walked: std::sync::atomic::AtomicUsize,
}

impl LeaseMap {
    pub(super) fn get(&self, endpoint: &EndpointId) -> Option<&Arc<Lease>> {
        self.leases.get(endpoint)
    }

    /// The lease with this endpoint and fence.
    pub(super) fn find(&self, tenure: &Tenure) -> Option<&Arc<Lease>> {
        self.get(&tenure.endpoint).filter(|it| it.tenure.fence == tenure.fence)
    }

    pub(super) fn put(&mut self, lease: Arc<Lease>) {
        self.leases.insert(lease.tenure.endpoint.clone(), lease);
    }

    /// Removes a lease. From now on `is_newer` is false for grants up to its fence (R4). A grant counts for `lifetime`
    /// from before its request (R1).
    pub(super) fn remove(
        &mut self,
        endpoint: &EndpointId,
        now: Moment,
        lifetime: Duration,
    ) -> Option<Arc<Lease>> {
        let lease = self.leases.remove(endpoint)?;
        self.retired.retire(&lease.tenure, now);
        self.retired.prune(now, lifetime);
        Some(lease)
    }

    /// R4: whether this grant is later than every tenure of its endpoint, held or ended.
    pub(super) fn is_newer(&self, tenure: &Tenure) -> bool {
        let held = self.get(&tenure.endpoint);
        held.is_none_or(|it| it.tenure.fence < tenure.fence) && !self.retired.covers(tenure)
    }

    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Walks over all leases: not to be called for every batch.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Lease>> {
        #[cfg(test)]
        self.walked.fetch_add(self.len(), std::sync::atomic::Ordering::Relaxed);
        self.leases.values()
    }

    #[cfg(test)]
    pub(super) fn walked(&self) -> usize {
        self.walked.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
