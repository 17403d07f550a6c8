//! verify.lua and verify_by_owner.lua again in Rust: does the caller hold its leases now (FR-010, R15)?

use std::time::Duration;

use crate::clock::ManualClock;
use crate::model::{Epoch, Tenure};
use crate::store::memory::scripts::Now;
use crate::store::memory::server::{EpochHash, ServerState};
use crate::store::{Reply, RequestContext, Stamp, StoreResult, Verify};

impl ServerState {
    /// What a request is told of the store, and what its script knows.
    pub(crate) fn entered(
        &self,
        context: &RequestContext,
        epoch: EpochHash,
        (now, left, late): (u64, u64, bool),
        wait: u64,
    ) -> (Stamp, Now) {
        let stamp = Stamp {
            epoch: Epoch(epoch.epoch),
            hold_off: Duration::from_micros(left),
            server_us: now,
            data_epoch: Epoch(epoch.born),
            revoked_until_ms: self.data.revoked.get(&context.instance).map(|it| it.0),
        };
        let (floor_us, last_fence) = (epoch.floor_us, self.data.fence);
        let is_of_loss = epoch.epoch - epoch.born < wait;
        let settling = context.revocable && is_of_loss && now < epoch.since_us + wait;
        (stamp, Now { us: now, floor_us, holding_off: left > 0, late, settling, last_fence })
    }

    /// The same for verifications, which have to wait at the beginning of an epoch (R15).
    pub(crate) fn verify_each<T>(
        &mut self,
        context: &RequestContext,
        clock: &ManualClock,
        items: &[Tenure],
        verb: impl FnMut(&mut Self, &Tenure, Now) -> T,
    ) -> StoreResult<Reply<Vec<T>>> {
        let mut settling = false;
        let mut verb = verb;
        let reply = self.for_each(context, clock, items, |state, it, now| {
            settling = now.settling;
            verb(state, it, now)
        })?;
        Ok(Reply { answer: reply.answer.filter(|_| !settling), ..reply })
    }

    /// verify_by_owner.lua
    pub(crate) fn verify_by_owner(
        &mut self,
        context: &RequestContext,
        tenure: &Tenure,
        _: Now,
    ) -> bool {
        self.owner(&tenure.endpoint).as_ref() == Some(&context.instance)
    }

    /// verify.lua
    pub(crate) fn verify(&mut self, context: &RequestContext, tenure: &Tenure, _: Now) -> Verify {
        let granted = self.data.results.get(&tenure.endpoint).map_or(0, |it| it.granted);
        match self.owner(&tenure.endpoint) {
            None => Verify::Missing,
            Some(owner) if owner != context.instance => Verify::NotOwner(Some(owner)),
            Some(_) if granted > tenure.fence.0 => Verify::NotOwner(None),
            Some(_) => Verify::Held,
        }
    }
}
