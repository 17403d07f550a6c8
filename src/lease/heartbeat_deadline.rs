//! Until when do the leases of this instance count, by its heartbeat (R13)? Two atomics that every permit reads.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::model::{Epoch, LeaseDuration};

/// R13: the heartbeat's deadline, which holds for every lease at once.
///
/// A generation ends when the heartbeat was not confirmed in time. Leases of an earlier generation are lost for good, even
/// if the next heartbeat is confirmed before any thread has noticed the lapse.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatDeadline {
    valid_until: AtomicU64,
    generation: AtomicU64,
    /// The epoch of the last confirmed heartbeat.
    epoch: AtomicU64,
    /// The last revocation that ended a generation (R16), and the generation that began with it.
    obeyed_ms: Mutex<u64>,
    begun_by_revocation: AtomicU64,
}

/// The last generation: no lease is valid in it, and none follows (R12).
const CLOSED: u64 = u64::MAX;

impl HeartbeatDeadline {
    /// For roles: a renewal writes the leader's heartbeat, which lasts longer than the role. So the role's own deadline
    /// always comes first, and this one never.
    pub(crate) fn of_renewals() -> Self {
        let heartbeat_deadline = Self::default();
        heartbeat_deadline.valid_until.store(Moment::MAX.as_nanos(), Ordering::SeqCst);
        heartbeat_deadline
    }

    /// The heartbeat sent at `sent` was answered at `now`. Never called by two threads at a time: the start sends the first
    /// heartbeat, then the thread `heartbeat`.
    ///
    /// A generation ends with a lapse. It also ends when the key was missing although the epoch is the same: an operator
    /// deleted the key, and other instances may have taken leases of this one over.
    pub(crate) fn confirm(
        &self,
        sent: Moment,
        now: Moment,
        heartbeat: LeaseDuration,
        seen: (bool, Epoch),
    ) {
        let (unbroken, epoch) = seen;
        let same_epoch = self.epoch.swap(epoch.0, Ordering::SeqCst) == epoch.0;
        if now >= self.valid_until() || (same_epoch && !unbroken) {
            // `CLOSED` has no successor.
            let next = |it: u64| it.checked_add(1);
            let _ = self.generation.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        }
        let until = (sent + heartbeat.usable()).as_nanos();
        self.valid_until.fetch_max(until, Ordering::SeqCst);
    }

    /// R16: another instance has revoked this one. All leases are lost for good. The next heartbeat that names the revocation
    /// begins anew. Whether this is news.
    pub(crate) fn revoke(&self, until_ms: u64) -> bool {
        let mut obeyed_ms = self.obeyed_ms.lock();
        if until_ms <= *obeyed_ms {
            return false; // a late answer, or another thread was first
        }
        // The generation first: once the revocation counts as obeyed, no lease of before may count.
        let successor = |it: u64| it.checked_add(1); // `CLOSED` has none
        let ended = self.generation.fetch_update(Ordering::SeqCst, Ordering::SeqCst, successor);
        if let Ok(ended) = ended {
            self.begun_by_revocation.store(ended + 1, Ordering::SeqCst);
        }
        *obeyed_ms = until_ms;
        true
    }

    /// The revocation that this instance has obeyed; 0 for none.
    pub(crate) fn obeyed_ms(&self) -> u64 {
        *self.obeyed_ms.lock()
    }

    /// Whether a revocation has ended the leases of `generation`.
    pub(crate) fn was_revoked(&self, generation: u64) -> bool {
        generation < self.begun_by_revocation.load(Ordering::SeqCst)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// R12: every lease is lost for good, and no grant is accepted any more.
    pub(crate) fn close(&self) {
        self.generation.store(CLOSED, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.generation() == CLOSED
    }

    /// Whether a grant that was requested in `generation` may be accepted at `now`.
    pub(crate) fn admits(&self, generation: u64, now: Moment) -> bool {
        generation != CLOSED && self.is_valid(generation, now)
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::SeqCst))
    }

    /// Whether leases of `generation` are valid at `now`. Reads the deadline before the generation: a reader that gets the
    /// deadline of a new generation then also gets the new generation.
    pub(crate) fn is_valid(&self, generation: u64, now: Moment) -> bool {
        now < self.valid_until() && generation == self.generation()
    }
}
