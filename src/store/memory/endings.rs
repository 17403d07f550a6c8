//! How do leases and their records end? The scripts for release, revocation and retirement again in Rust.

use crate::model::{EndpointId, InstanceId, Tenure};
use crate::store::memory::scripts::micros;
use crate::store::memory::server::ServerState;
use crate::store::redis::endings::RETIRED_LASTS;
use crate::store::{PeerMessage, Release, RequestContext};

impl ServerState {
    /// release_by_owner.lua; `None` where that does not prove enough.
    pub(crate) fn release_by_owner(
        &mut self,
        context: &RequestContext,
        tenures: &[Tenure],
    ) -> Option<Vec<Release>> {
        let grants = self.data.grants.get_mut(&context.instance)?;
        if grants.granted == 0 || grants.granted > context.highest_fence.0 {
            return None;
        }
        grants.released = grants.released.max(context.floor_us);
        let free = |it: &Tenure| {
            if self.owner(&it.endpoint).as_ref() != Some(&context.instance) {
                return Release::NotOwner;
            }
            self.data.leases.remove(&it.endpoint);
            Release::Released
        };
        Some(tenures.iter().map(free).collect())
    }

    /// release.lua
    pub(crate) fn release(&mut self, me: &InstanceId, tenure: &Tenure) -> Release {
        let owner = self.owner(&tenure.endpoint);
        let result = self.data.results.entry(tenure.endpoint.clone()).or_default();
        if result.granted > tenure.fence.0 || owner.as_ref().is_some_and(|it| it != me) {
            return Release::NotOwner;
        }
        result.granted = tenure.fence.0 + 1;
        self.data.leases.remove(&tenure.endpoint);
        if owner.is_some() {
            self.data.roles.heartbeats.remove(me);
        }
        if owner.is_some() { Release::Released } else { Release::NotOwner }
    }

    /// revoke.lua
    pub(crate) fn revoke(&mut self, dead: &InstanceId, certain: bool) -> Option<usize> {
        if !certain && self.data.nodes.contains_key(dead) {
            return None;
        }
        self.withdraw(dead);
        let (mut count, results) = (0, &mut self.data.results);
        self.data.leases.retain(|endpoint, (owner, _)| {
            if owner == dead {
                count += 1;
                results.entry(endpoint.clone()).or_default().granted += 1;
            }
            owner != dead
        });
        Some(count)
    }

    /// retire.lua
    pub(crate) fn retire(&mut self, endpoints: &[EndpointId], now_us: u64) {
        for it in endpoints.iter().filter(|it| !self.data.leases.contains_key(*it)) {
            if let Some(result) = self.data.results.get(it) {
                let until = result.granted.max(now_us) + micros(RETIRED_LASTS);
                self.data.retired.entry(it.clone()).or_insert(until);
            }
        }
    }

    pub(crate) fn forget_retired(&mut self, now_us: u64) {
        let (results, retired) = (&mut self.data.results, &mut self.data.retired);
        retired.retain(|endpoint, until| {
            let stays = *until > now_us;
            if !stays {
                results.remove(endpoint);
            }
            stays
        });
    }

    pub(crate) fn withdraw(&mut self, me: &InstanceId) {
        self.data.nodes.remove(me);
        self.data.infos.remove(me);
        self.tell_node(me);
        self.say(&[PeerMessage::new(me, None)]);
    }

    /// last_polled.lua
    pub(crate) fn last_polled(&mut self, endpoint: &EndpointId) -> Option<u64> {
        self.data.retired.remove(endpoint);
        self.data.results.get(endpoint)?.started_at_ms
    }
}
