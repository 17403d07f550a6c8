//! How does a lease end: at its deadline, by a hand-over, or by a release?

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
            self.losses.count.fetch_add(1, Ordering::Release);
            let ended = Lost { tenure, loss };
            self.losses.listener.get().into_iter().for_each(|it| it(&ended));
            lost.push(ended);
        }
    }

    /// R14: the fleet has another lease TTL now, so its hold-off does not wait for these leases. They end at once.
    pub fn ttl_changed(&self, items: &[RenewItem]) -> Applied {
        let mut applied = Applied::default();
        for item in items {
            self.lose(item.tenure.clone(), Loss::Gone, &mut applied.lost);
        }
        applied
    }

    /// How many leases were lost so far. The informer (`Owners::apply_losses`) sees by it that the view names this instance
    /// as the owner of leases that have ended.
    pub fn losses(&self) -> u64 {
        self.losses.count.load(Ordering::Acquire)
    }

    pub(super) fn forget(&self, tenure: &Tenure) -> Option<Arc<Lease>> {
        let mut leases = self.leases.write();
        leases.find(tenure)?;
        let lease = leases.remove(&tenure.endpoint, self.now(), self.timings.lease.usable())?;
        // A thread that still has this lease cannot put it into the due index again.
        self.edit(&lease).ended = true;
        Some(lease)
    }

    /// R3, R13: ends every lease past its deadline, and aborts its running poll.
    pub fn expire(&self) -> Vec<Lost> {
        let now = self.now();
        // R13: a lapse of the heartbeat ends every lease, even before its own deadline. The generation is read before the
        // leases: grants of an older generation are not put into the table after this.
        let generation = self.heartbeat_deadline.generation();
        let lapsed = now >= self.heartbeat_deadline.valid_until()
            || self.generation.swap(generation, Ordering::SeqCst) != generation;
        let (past, running): (Vec<_>, Vec<Option<Arc<Abort>>>) = {
            let leases = self.leases.read();
            let past = |it: &Arc<Lease>| {
                let state = it.state.lock();
                let loss = || if it.was_revoked() { Loss::Revoked } else { Loss::Expired };
                let ended = || ((it.tenure.clone(), loss()), state.running.clone());
                (!it.stands(&state, now)).then(ended)
            };
            if lapsed {
                leases.all().filter_map(past).unzip()
            } else {
                let next = self.due_index.lock().ended(now);
                next.iter().filter_map(|it| leases.get(it)).filter_map(past).unzip()
            }
        };
        // All polls are aborted before the first lease is forgotten, because forgetting all of them may take longer than the
        // margin. `running` stays set until then, so that no other poll begins.
        running.iter().flatten().for_each(|it| it.fire());
        // R15: their leases stay. They are polled again when they are verified again.
        self.verifications.running.unverified(now).iter().for_each(|it| it.fire());
        let mut lost = Vec::new();
        for (tenure, loss) in past {
            self.lose(tenure, loss, &mut lost);
        }
        lost
    }

    /// R12: a thread that keeps this table has panicked. From now on no permit is issued or confirmed and no grant is
    /// accepted, and [`Self::expire`] ends every lease. Cannot be undone; never blocks.
    pub fn close(&self) {
        self.heartbeat_deadline.close();
    }

    /// Whether [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.heartbeat_deadline.is_closed()
    }

    /// When the next lease ends unless it is confirmed, or the verification of the next poll; `None` while no lease is held.
    pub fn next_deadline(&self) -> Option<Moment> {
        let lease_ends = self.due_index.lock().next_end();
        let lease_ends = lease_ends.map(|it| it.min(self.heartbeat_deadline.valid_until()));
        let verification_ends = self.verifications.lasts.and(self.verifications.running.next_end());
        lease_ends.into_iter().chain(verification_ends).min()
    }

    /// Drains every lease.
    pub fn drain_all(&self) {
        for endpoint in self.endpoints() {
            self.drain(&endpoint);
        }
    }

    /// R8: no new poll of `endpoint` begins, and its lease can be released when the running poll has ended. False if it is
    /// not held, or is draining already.
    pub fn drain(&self, endpoint: &EndpointId) -> bool {
        let leases = self.leases.read();
        let Some(lease) = leases.get(endpoint) else { return false };
        let mut state = self.edit(lease);
        let news = state.draining_since.is_none();
        state.draining_since.get_or_insert(self.now());
        news
    }

    /// R4: forgets the lease on `endpoint` right before its release is sent, and aborts its poll.
    pub fn forget_for_release(&self, endpoint: &EndpointId) -> Option<Tenure> {
        let tenure = self.tenure(endpoint)?;
        self.forget(&tenure)?.stop_poll();
        Some(tenure)
    }

    /// R10: keeps a draining lease after all, unless it was forgotten for its release.
    pub fn undrain(&self, endpoint: &EndpointId) {
        if let Some(lease) = self.leases.read().get(endpoint) {
            self.edit(lease).draining_since = None;
        }
    }

    /// R4: forgets the draining leases without a running poll, right before their release is sent. No answer brings such a
    /// tenure back. Aborts polls of leases that have been draining for `patience`.
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

    /// Aborts every running poll. The leases stay until they are released.
    pub fn abort_all(&self) {
        let running = |it: &Arc<Lease>| it.state.lock().running.clone();
        let aborts: Vec<_> = self.leases.read().all().filter_map(running).collect();
        aborts.iter().for_each(|it| it.fire());
    }

    /// When the next lease will have been draining for `patience`.
    pub fn next_drain_deadline(&self, patience: Duration) -> Option<Moment> {
        let now = self.now();
        let since = self.draining().into_iter().filter_map(|it| it.state.lock().draining_since);
        since.map(|it| it + patience).filter(|it| *it > now).min()
    }
}
