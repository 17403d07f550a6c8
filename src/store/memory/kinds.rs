//! What differs between polls and roles on the in-memory server: `lease_kind.lua` said again in Rust, one method each.

use crate::model::{EndpointId, InstanceId};
use crate::store::lease_kind::LeaseKind;
use crate::store::memory::roles::is_stale;
use crate::store::memory::scripts::{Now, micros};
use crate::store::memory::server::Data;
use crate::store::{LEADER_HEARTBEAT_EXTRA, RequestContext};

/// The steps of the scripts that a kind of lease takes in its own way.
pub(crate) trait Kind: Sync {
    /// The name of the epoch's key with the default prefix.
    fn epoch_key(&self) -> &'static str;

    /// The role whose own TTL a request agrees on (R14); `None` where all leases share one TTL.
    fn own_ttl<'a>(&self, about: Option<&'a EndpointId>) -> Option<&'a EndpointId>;

    /// Whether `me` may be granted anything.
    fn is_alive(&self, data: &Data, me: &InstanceId) -> bool;

    /// R13: whether the rights of `owner` have ended.
    fn is_dead(&self, data: &Data, owner: &InstanceId, context: &RequestContext, now: Now) -> bool;

    /// The fence that the next grant exceeds. `shared` is the highest fence of all before this call.
    fn last_fence(&self, data: &Data, endpoint: &EndpointId, shared: u64) -> u64;

    /// Notes the fence of a grant, before the grant counts.
    fn note_grant(&self, data: &mut Data, me: &InstanceId, fence: u64);

    /// R13: writes the heartbeat that goes with a grant or a renewal.
    fn write_heartbeat(&self, data: &mut Data, context: &RequestContext, now: Now);

    /// Deletes the heartbeat of the owner before `me`.
    fn succeed(
        &self,
        data: &mut Data,
        me: &InstanceId,
        endpoint: &EndpointId,
        owner: Option<InstanceId>,
    );

    /// Whether a renewal may be about a lease that a later request released.
    fn may_be_released(&self, data: &Data, context: &RequestContext) -> bool;

    /// Counts a lease or fence that the server had forgotten as granted.
    fn count_as_granted(&self, data: &mut Data, context: &RequestContext, fence: u64);
}

/// The implementation for `kind`.
pub(crate) fn of(kind: LeaseKind) -> &'static dyn Kind {
    match kind {
        LeaseKind::Poll => &Polls,
        LeaseKind::Role => &Roles,
    }
}

struct Polls;

impl Kind for Polls {
    fn epoch_key(&self) -> &'static str {
        "poll:epoch"
    }

    fn own_ttl<'a>(&self, _: Option<&'a EndpointId>) -> Option<&'a EndpointId> {
        None
    }

    fn is_alive(&self, data: &Data, me: &InstanceId) -> bool {
        data.nodes.contains_key(me)
    }

    fn is_dead(&self, data: &Data, owner: &InstanceId, context: &RequestContext, now: Now) -> bool {
        let revoked = data.revoked.get(owner).filter(|_| context.revocable);
        !data.nodes.contains_key(owner) || revoked.is_some_and(|it| now.us >= it.0 * 1_000)
    }

    /// A release has raised the fence of its tenure by one more.
    fn last_fence(&self, _: &Data, _: &EndpointId, shared: u64) -> u64 {
        shared + 1
    }

    fn note_grant(&self, data: &mut Data, me: &InstanceId, fence: u64) {
        data.fence = fence;
        data.grants.entry(me.clone()).or_default().granted = fence;
    }

    fn write_heartbeat(&self, _: &mut Data, _: &RequestContext, _: Now) {}

    fn succeed(&self, _: &mut Data, _: &InstanceId, _: &EndpointId, _: Option<InstanceId>) {}

    fn may_be_released(&self, data: &Data, context: &RequestContext) -> bool {
        data.grants.get(&context.instance).is_some_and(|it| it.released > context.floor_us)
    }

    fn count_as_granted(&self, data: &mut Data, context: &RequestContext, fence: u64) {
        let least = fence.max(context.highest_fence.0);
        let grants = data.grants.entry(context.instance.clone()).or_default();
        grants.granted = grants.granted.max(least);
        data.fence = data.fence.max(least);
    }
}

struct Roles;

impl Kind for Roles {
    fn epoch_key(&self) -> &'static str {
        "leader:epoch"
    }

    fn own_ttl<'a>(&self, about: Option<&'a EndpointId>) -> Option<&'a EndpointId> {
        about
    }

    fn is_alive(&self, _: &Data, _: &InstanceId) -> bool {
        true
    }

    fn is_dead(&self, data: &Data, owner: &InstanceId, context: &RequestContext, now: Now) -> bool {
        let heartbeat = data.roles.heartbeats.get(owner);
        heartbeat.is_some_and(|it| is_stale(now.us, it.0, context.duration.ttl))
    }

    fn last_fence(&self, data: &Data, endpoint: &EndpointId, _: u64) -> u64 {
        data.results.get(endpoint).map_or(0, |it| it.granted)
    }

    fn note_grant(&self, _: &mut Data, _: &InstanceId, _: u64) {}

    fn write_heartbeat(&self, data: &mut Data, context: &RequestContext, now: Now) {
        let lasts = micros(context.duration.ttl.saturating_add(LEADER_HEARTBEAT_EXTRA));
        let before = data.roles.heartbeats.get(&context.instance).map_or(0, |it| it.1);
        let heartbeat = (now.us / 1_000, before.max(now.us + lasts));
        data.roles.heartbeats.insert(context.instance.clone(), heartbeat);
    }

    fn succeed(
        &self,
        data: &mut Data,
        me: &InstanceId,
        endpoint: &EndpointId,
        owner: Option<InstanceId>,
    ) {
        let last = data.roles.leaders.insert(endpoint.clone(), me.clone());
        for predecessor in [last, owner].into_iter().flatten().filter(|it| it != me) {
            data.roles.heartbeats.remove(&predecessor);
        }
    }

    fn may_be_released(&self, _: &Data, _: &RequestContext) -> bool {
        false
    }

    fn count_as_granted(&self, _: &mut Data, _: &RequestContext, _: u64) {}
}
