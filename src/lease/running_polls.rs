//! Which polls run now, and until when may each go on without another verification (R15)? Touches only memory.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use fnv::FnvHashMap;
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::lease::permit::Lease;
use crate::model::Tenure;
use crate::net::abort::Abort;

/// The leases under which a poll runs. A permit adds its lease, and removes it when it is dropped.
#[derive(Debug)]
pub(crate) struct RunningPolls {
    /// By address, because a poll under an ended tenure may still be on its way out when the next tenure's poll begins.
    leases: Mutex<FnvHashMap<usize, Arc<Lease>>>,
    first: (Sender<()>, Receiver<()>),
}

impl Default for RunningPolls {
    fn default() -> Self {
        Self { leases: Mutex::default(), first: bounded(1) }
    }
}

impl RunningPolls {
    /// A poll under `lease` begins.
    pub(crate) fn add(&self, lease: &Arc<Lease>) {
        let mut leases = self.leases.lock();
        let is_first = leases.is_empty();
        leases.insert(Arc::as_ptr(lease).addr(), Arc::clone(lease));
        drop(leases);
        if is_first {
            let _ = self.first.0.try_send(()); // one queued wake-up is enough
        }
    }

    /// The poll under `lease` has ended.
    pub(crate) fn remove(&self, lease: &Arc<Lease>) {
        self.leases.lock().remove(&Arc::as_ptr(lease).addr());
    }

    /// Whether no poll runs, aborted or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.leases.lock().is_empty()
    }

    /// Receives a wake-up when a poll begins while no other runs.
    pub(crate) fn first_began(&self) -> &Receiver<()> {
        &self.first.1
    }

    /// R15: the abort switches of the polls whose verification has ended by `now`.
    pub(crate) fn unverified(&self, now: Moment) -> Vec<Arc<Abort>> {
        self.collect(|lease| {
            let state = lease.state.lock();
            state.running.as_ref().filter(|_| state.verified_until <= now).cloned()
        })
    }

    /// The tenures of polls whose verification ends by `at`, and which were not aborted.
    pub(crate) fn ending_by(&self, at: Moment) -> Vec<Tenure> {
        self.collect(|lease| {
            let ends_at = ends_at(lease)?;
            (ends_at <= at).then(|| lease.tenure.clone())
        })
    }

    /// When the first verification of a poll that was not aborted ends.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        self.leases.lock().values().filter_map(|it| ends_at(it)).min()
    }

    fn collect<T>(&self, found: impl Fn(&Lease) -> Option<T>) -> Vec<T> {
        self.leases.lock().values().filter_map(|it| found(it)).collect()
    }
}

/// When the verification of the running poll ends; `None` when the poll was aborted.
fn ends_at(lease: &Lease) -> Option<Moment> {
    let state = lease.state.lock();
    let runs = state.running.as_ref().is_some_and(|it| !it.is_fired());
    runs.then_some(state.verified_until)
}
