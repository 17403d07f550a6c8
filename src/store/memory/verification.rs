//! verify.lua and verify_by_owner.lua again in Rust: does the caller hold its leases now (FR-010, R15)?

use crate::clock::ManualClock;
use crate::model::Tenure;
use crate::store::memory::scripts::Now;
use crate::store::memory::server::ServerState;
use crate::store::{Reply, RequestContext, StoreResult, Verify};

impl ServerState {
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
