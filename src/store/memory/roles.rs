//! How does the in-memory server serve many roles in one message, and report their status?

use std::time::Duration;

use crate::clock::ManualClock;
use crate::model::{EndpointId, FenceToken, LeaseDuration, Tenure};
use crate::store::memory::MemoryStore;
use crate::store::memory::scripts::micros;
use crate::store::memory::server::ServerState;
use crate::store::{
    Acquire, PeerMessage, Publication, Renew, RenewItem, RequestContext, RoleStatus, StampedResult,
    StoreResult, Verify,
};

/// The TTL assumed for a role whose TTL was lost: the default (epoch.lua, `UNKNOWN_HOLD_MS`).
const UNKNOWN_ROLE_DURATION: LeaseDuration = LeaseDuration::new(Duration::from_secs(30));

/// The lease that an item of a request is about.
pub(crate) trait OnLease {
    fn about(&self) -> &EndpointId;
}

impl OnLease for EndpointId {
    fn about(&self) -> &EndpointId {
        self
    }
}

impl OnLease for Tenure {
    fn about(&self) -> &EndpointId {
        &self.endpoint
    }
}

impl OnLease for RenewItem {
    fn about(&self) -> &EndpointId {
        &self.tenure.endpoint
    }
}

impl OnLease for Publication {
    fn about(&self) -> &EndpointId {
        &self.tenure.endpoint
    }
}

/// Many roles in one message.
impl MemoryStore {
    pub(crate) fn acquire_each(
        &self,
        asked: &[(RequestContext, EndpointId)],
    ) -> Vec<StampedResult<Vec<Acquire>>> {
        let (n, asked) = (asked.len(), asked.to_vec());
        let replies = self.call("acquire", move |state, clock| {
            let acquire = |(context, role): &(RequestContext, EndpointId)| {
                let roles = std::slice::from_ref(role);
                let verb =
                    |state: &mut ServerState, it: &EndpointId, now| state.acquire(context, it, now);
                let reply = state.for_each(context, clock, roles, verb)?;
                state.tell_grants(&context.instance, roles, &reply);
                Ok(reply)
            };
            Ok(asked.iter().map(acquire).collect())
        });
        replies.unwrap_or_else(|error| vec![Err(error); n])
    }

    pub(crate) fn renew_each(
        &self,
        asked: &[(RequestContext, Vec<RenewItem>)],
    ) -> Vec<StampedResult<Vec<Renew>>> {
        let (n, asked) = (asked.len(), asked.to_vec());
        let replies = self.call("renew", move |state, clock| {
            let renew = |(context, items): &(RequestContext, Vec<RenewItem>)| {
                state
                    .for_each(context, clock, items, |state, it, now| state.renew(context, it, now))
            };
            Ok(asked.iter().map(renew).collect())
        });
        replies.unwrap_or_else(|error| vec![Err(error); n])
    }

    pub(crate) fn verify_each(
        &self,
        asked: &[(RequestContext, Tenure)],
    ) -> Vec<StampedResult<Vec<Verify>>> {
        let (n, asked) = (asked.len(), asked.to_vec());
        let replies = self.call("verify", move |state, clock| {
            let verify = |(context, tenure): &(RequestContext, Tenure)| {
                let tenures = std::slice::from_ref(tenure);
                state.for_each(context, clock, tenures, |state, it, now| {
                    state.verify(context, it, now)
                })
            };
            Ok(asked.iter().map(verify).collect())
        });
        replies.unwrap_or_else(|error| vec![Err(error); n])
    }

    pub(crate) fn release_each(
        &self,
        freed: &[(RequestContext, Tenure, PeerMessage)],
    ) -> StoreResult<()> {
        let freed = freed.to_vec();
        self.call("release", move |state, clock| {
            state.forget_expired(clock);
            for (context, tenure, message) in &freed {
                state.release(&context.instance, tenure);
                state.say(std::slice::from_ref(message));
            }
            Ok(())
        })
    }
}

impl ServerState {
    /// epoch.lua: the least hold-off of a role until its TTL is confirmed or it was granted again.
    pub(crate) fn unknown_hold_off(&self, role: Option<&EndpointId>) -> Duration {
        let Some(role) = role else { return Duration::ZERO };
        let was_led = self.data.results.get(role).is_some_and(|it| it.granted > 0);
        let is_known = was_led || self.data.roles.confirmed.contains(role);
        let is_known = is_known && !self.data.roles.untimed.contains(role);
        if is_known { Duration::ZERO } else { UNKNOWN_ROLE_DURATION.hold_off() }
    }

    /// epoch.lua: confirms the TTL: the caller was a candidate before the last loss of data.
    pub(crate) fn confirm(
        &mut self,
        role: Option<&EndpointId>,
        context: &RequestContext,
        born: u64,
    ) -> bool {
        let Some(role) = role.filter(|_| context.epoch.0 > 0 && context.epoch.0 < born) else {
            return false;
        };
        self.data.roles.confirmed.insert(role.clone());
        self.data.roles.untimed.remove(role);
        true
    }

    /// role_status.lua
    pub(crate) fn role_status(&mut self, role: &EndpointId, clock: &ManualClock) -> RoleStatus {
        self.forget_expired(clock);
        let now = self.now_us(clock);
        let ttl = self.data.roles.ttls.get(role).copied();
        if let (Some(ttl), Some(lease)) = (ttl, self.data.leases.get_mut(role)) {
            lease.1 = lease.1.min(now + micros(ttl));
        }
        let leader = self.data.leases.get(role).map(|it| self.lasting(it, clock));
        let beat = leader.as_ref().and_then(|it| self.data.roles.heartbeats.get(&it.value));
        let term = FenceToken(self.data.results.get(role).map_or(0, |it| it.granted));
        RoleStatus {
            is_stale: beat.zip(ttl).is_some_and(|(beat, ttl)| is_stale(now, beat.0, ttl)),
            heartbeat_age: beat.map(|it| Duration::from_micros(now.saturating_sub(it.0 * 1_000))),
            leader,
            term,
            led_for: now.checked_sub(term.0).map(Duration::from_micros),
            ttl,
        }
    }
}

pub(crate) fn is_stale(now_us: u64, written_ms: u64, ttl: Duration) -> bool {
    let age = Duration::from_micros(now_us.saturating_sub(written_ms * 1_000));
    RoleStatus::is_stale_at(age, ttl)
}
