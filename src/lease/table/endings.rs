//! How does a lease end: at its deadline, by a hand-over, or by a release?

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::clock::Moment;
use crate::lease::permit::Lease;
use crate::lease::table::{Applied, Loss, Lost, OwnershipTable};
use crate::model::{EndpointId, Tenure};
use crate::net::abort::Abort;
use crate::store::RenewItem;

impl OwnershipTable {
    pub(super) fn lose(&self, tenure: Tenure, loss: Loss, lost: &mut Vec<Lost>) {
        if let Some(lease) = self.forget(&tenure) {
            lease.stop_poll();
            self.losses.fetch_add(1, Ordering::Release);
            lost.push(Lost { tenure, loss });
        }
    }

    /// R14: the others agreed on another lease TTL, so their hold-off does not wait for these: they end at once.
    pub fn ttl_changed(&self, items: &[RenewItem]) -> Applied {
        let mut applied = Applied::default();
        for item in items {
            self.lose(item.tenure.clone(), Loss::Gone, &mut applied.lost);
        }
        applied
    }

    /// How many leases have ended against our will so far: the planner sees by it that a lease has ended.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    pub(super) fn forget(&self, tenure: &Tenure) -> Option<Arc<Lease>> {
        let mut leases = self.leases.write();
        leases.find(tenure)?;
        let lease = leases.remove(&tenure.endpoint, self.now(), self.timings.lease.usable())?;
        // A thread that found it before cannot add anything to the due index any more.
        self.edit(&lease).ended = true;
        Some(lease)
    }

    /// R3, R13: everything past its deadline is lost, and its running poll aborted.
    pub fn expire(&self) -> Vec<Lost> {
        let now = self.now();
        // R13: a heartbeat that lapsed ends every lease at once, even those before their own deadline. The generation is
        // read before the leases are: what is granted under an older one later is not taken into the table.
        let generation = self.heartbeat_deadline.generation();
        let lapsed = now >= self.heartbeat_deadline.valid_until()
            || self.generation.swap(generation, Ordering::SeqCst) != generation;
        let (past, running): (Vec<Tenure>, Vec<Option<Arc<Abort>>>) = {
            let leases = self.leases.read();
            let past = |it: &Arc<Lease>| {
                let state = it.state.lock();
                (!it.stands(&state, now)).then(|| (it.tenure.clone(), state.running.clone()))
            };
            if lapsed {
                leases.all().filter_map(past).unzip()
            } else {
                let next = self.due_index.lock().ended(now);
                next.iter().filter_map(|it| leases.get(it)).filter_map(past).unzip()
            }
        };
        // Every poll is stopped before the first lease is forgotten: to forget all of them may take longer than
        // the margin. Each poll keeps its place meanwhile, so that no other begins.
        running.iter().flatten().for_each(|it| it.fire());
        let mut lost = Vec::new();
        for tenure in past {
            self.lose(tenure, Loss::Expired, &mut lost);
        }
        lost
    }

    /// R12: no permit is issued or confirmed any more, and nothing is granted: a thread that keeps this table has
    /// panicked. [`Self::expire`] finds everything lost then. For good; never waits.
    pub fn close(&self) {
        self.heartbeat_deadline.close();
    }

    /// Whether [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.heartbeat_deadline.is_closed()
    }

    /// When the next lease will be lost if nothing confirms it; `None` while nothing is held.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.due_index.lock().next_end().map(|it| it.min(self.heartbeat_deadline.valid_until()))
    }

    /// Drains everything that is held.
    pub fn drain_all(&self) {
        for endpoint in self.endpoints() {
            self.drain(&endpoint);
        }
    }

    /// A poll of a draining lease has ended, or a heartbeat was confirmed: a shutdown may have more to release.
    pub fn note_shutdown_progress(&self) {
        let _ = self.shutdown_progress.0.try_send(()); // one wake-up that waits is enough
    }

    /// Receives a wake-up when a shutdown may have more to release.
    pub fn shutdown_progress(&self) -> &Receiver<()> {
        &self.shutdown_progress.1
    }

    /// R8: no new poll of this endpoint; it will be released when the running one has ended. False
    /// when it is not held or on its way already.
    pub fn drain(&self, endpoint: &EndpointId) -> bool {
        let leases = self.leases.read();
        let Some(lease) = leases.get(endpoint) else { return false };
        let mut state = self.edit(lease);
        let news = state.draining_since.is_none();
        state.draining_since.get_or_insert(self.now());
        news
    }

    /// R4: forgets what is held of `endpoint` at the moment its release is sent; its poll is aborted.
    pub fn forget_for_release(&self, endpoint: &EndpointId) -> Option<Tenure> {
        let tenure = self.tenure(endpoint)?;
        self.forget(&tenure)?.stop_poll();
        Some(tenure)
    }

    /// R10: it stays after all, unless its release has been sent.
    pub fn undrain(&self, endpoint: &EndpointId) {
        if let Some(lease) = self.leases.read().get(endpoint) {
            self.edit(lease).draining_since = None;
        }
    }

    /// R4: forgets, at the moment their release is sent, the draining leases whose last poll has
    /// ended; nothing can bring such a tenure back. Polls that outlast `patience` are aborted.
    pub fn take_drained(&self, patience: Duration) -> Vec<Tenure> {
        let now = self.now();
        let mut ready = Vec::new();
        let mut late = Vec::new();
        for lease in self.draining() {
            let state = lease.state.lock();
            match (&state.draining_since, &state.running) {
                (Some(_), None) => ready.push(lease.tenure.clone()),
                (Some(since), Some(abort)) if now.since(*since) >= patience => {
                    late.push(Arc::clone(abort));
                }
                _ => (),
            }
        }
        for abort in late {
            abort.fire();
        }
        ready.retain(|it| self.forget(it).map(|lease| lease.stop_poll()).is_some());
        ready
    }

    fn draining(&self) -> Vec<Arc<Lease>> {
        let draining = self.due_index.lock().draining();
        let leases = self.leases.read();
        draining.iter().filter_map(|it| leases.get(it).cloned()).collect()
    }

    /// Aborts every running poll; the leases stay until they are released.
    pub fn abort_all(&self) {
        let running = |it: &Arc<Lease>| it.state.lock().running.clone();
        let aborts: Vec<_> = self.leases.read().all().filter_map(running).collect();
        aborts.iter().for_each(|it| it.fire());
    }

    /// When the next running poll of a draining lease will have outlasted `patience`.
    pub fn next_drain_deadline(&self, patience: Duration) -> Option<Moment> {
        let now = self.now();
        let since = self.draining().into_iter().filter_map(|it| it.state.lock().draining_since);
        since.map(|it| it + patience).filter(|it| *it > now).min()
    }
}
