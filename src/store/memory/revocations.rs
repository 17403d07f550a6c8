//! Signs of life and revocations again in Rust: beat.lua, signs_of_life.lua and revoke_instance.lua (R16).

use std::time::Duration;

use crate::clock::ManualClock;
use crate::model::{InstanceId, LeaseDuration, Weight};
use crate::store::memory::client::MemoryStore;
use crate::store::memory::scripts::micros;
use crate::store::memory::server::{MemoryServer, ServerState};
use crate::store::revocations::{
    Beat, Hint, REVOCATIONS_PER_MINUTE, Revocation, RevocationReply, Revocations, SignsOfLife,
};
use crate::store::{Lasting, RequestContext, Stamp, StoreResult};

const MINUTE_US: u64 = 60_000_000;

impl Revocations for MemoryStore {
    fn beat(&self, me: &InstanceId, beats: u64, _: Duration) -> StoreResult<Beat> {
        let me = me.clone();
        self.call("beat", move |state, clock| {
            state.forget_expired(clock);
            if let Some((until_ms, _)) = state.data.revoked.get(&me) {
                return Ok(Beat::Revoked(*until_ms));
            }
            let Some((info, _)) = state.data.infos.get_mut(&me) else { return Ok(Beat::Unknown) };
            info.beats = Some(beats);
            Ok(Beat::Noted)
        })
    }

    fn signs_of_life(
        &self,
        instances: &[InstanceId],
        _: Duration,
    ) -> StoreResult<Vec<SignsOfLife>> {
        let instances = instances.to_vec();
        self.call("signs_of_life", move |state, clock| {
            state.forget_expired(clock);
            Ok(instances.iter().map(|it| state.signs_of_life(it)).collect())
        })
    }

    fn revoke_instance(
        &self,
        revocation: &Revocation,
        _: Duration,
    ) -> StoreResult<RevocationReply> {
        let revocation = revocation.clone();
        self.call("revoke_instance", move |state, clock| {
            state.forget_expired(clock);
            Ok(state.revoke_instance(&revocation, clock))
        })
    }
}

impl MemoryServer {
    /// Whether this instance was ever revoked.
    pub fn was_revoked(&self, instance: &InstanceId) -> bool {
        self.state.lock().journal.revoked.contains(instance)
    }

    /// A deliberate weakness: leases of revoked instances may be taken over this much earlier.
    pub fn hasten_revocations(&self, by_ms: u64) {
        self.state.lock().data.revoked.values_mut().for_each(|it| it.0 -= by_ms);
    }

    /// The process of this instance is gone: its connection was closed.
    pub fn hang_up(&self, instance: &InstanceId) {
        self.state.lock().subscribers.remove(instance);
    }
}

impl ServerState {
    fn beats(&self, instance: &InstanceId) -> Option<u64> {
        self.data.infos.get(instance)?.0.beats
    }

    fn signs_of_life(&self, instance: &InstanceId) -> SignsOfLife {
        SignsOfLife {
            beats: self.beats(instance),
            subscribers: Some(u32::from(self.subscribers.contains_key(instance))),
            revoked_until_ms: self.data.revoked.get(instance).map(|it| it.0),
        }
    }

    fn revoke_instance(&mut self, it: &Revocation, clock: &ManualClock) -> RevocationReply {
        let now = self.now_us(clock);
        if it.not_after_us > 0 && now > it.not_after_us {
            return RevocationReply::Late;
        }
        if !self.data.nodes.contains_key(&it.suspect) {
            return RevocationReply::Gone;
        }
        if let Some((until_ms, _)) = self.data.revoked.get(&it.suspect) {
            return RevocationReply::Already(Duration::from_micros(
                (until_ms * 1_000).saturating_sub(now),
            ));
        }
        let Some(beats) = self.beats(&it.suspect) else { return RevocationReply::Unable };
        let epoch = self.data.epoch.filter(|it| it.replid == self.replid);
        let Some(epoch) = epoch.filter(|_| !self.is_epoch_malformed(None)) else {
            return RevocationReply::HoldOff;
        };
        let duration = LeaseDuration::new(epoch.lease_ttl);
        if now < epoch.since_us + micros(duration.hold_off()) {
            return RevocationReply::HoldOff;
        }
        match it.hint {
            Hint::NoHeartbeat { beats: seen } | Hint::NoSubscriber { beats: seen }
                if seen != beats =>
            {
                return RevocationReply::Alive;
            }
            Hint::NoSubscriber { .. } if self.subscribers.contains_key(&it.suspect) => {
                return RevocationReply::Alive;
            }
            _ => (),
        }
        if it.hint != Hint::Operator {
            if self.data.revocations.1 <= now {
                self.data.revocations = (0, now + MINUTE_US);
            }
            if self.data.revocations.0 >= REVOCATIONS_PER_MINUTE {
                return RevocationReply::Limit;
            }
            self.data.revocations.0 += 1;
        }
        let wait = duration.revocation();
        let until_ms = now / 1_000 + micros(wait).div_ceil(1_000);
        let lasts = wait + duration.hold_off().max(epoch.heartbeat_ttl);
        self.data.revoked.insert(it.suspect.clone(), (until_ms, now + micros(lasts)));
        self.journal.revoked.insert(it.suspect.clone());
        self.tell_node(&it.suspect);
        RevocationReply::Revoked(wait)
    }

    /// heartbeat.lua, after the server's clock was set back.
    pub(crate) fn shorten_revocation(
        &mut self,
        context: &RequestContext,
        stamp: Stamp,
        heartbeat_ttl: Duration,
    ) -> Stamp {
        let until_ms = (stamp.server_us + micros(context.duration.revocation())).div_ceil(1_000);
        let lasts = context.duration.hold_off() + heartbeat_ttl;
        let ends = stamp.server_us + micros(lasts);
        self.data.revoked.insert(context.instance.clone(), (until_ms, ends));
        Stamp { revoked_until_ms: Some(until_ms), ..stamp }
    }

    /// The heartbeat of an instance; of a revoked one until its leases may be taken over.
    pub(crate) fn lasting_node(
        &self,
        instance: &InstanceId,
        clock: &ManualClock,
    ) -> Option<Lasting<Weight>> {
        let mut node = self.lasting(self.data.nodes.get(instance)?, clock);
        if let Some((until_ms, _)) = self.data.revoked.get(instance) {
            let left = (until_ms * 1_000).saturating_sub(self.now_us(clock));
            node.left = node.left.min(Duration::from_micros(left));
        }
        Some(node).filter(|it| !it.left.is_zero())
    }
}
