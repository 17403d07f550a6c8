//! What can an operator with a console do to the keys of the in-memory server? Tests call it.

use std::time::Duration;

#[cfg(feature = "testing")]
use crate::model::Weight;
use crate::model::{EndpointId, FenceToken, InstanceId, InstanceInfo};
use crate::store::memory::scripts::micros;
#[cfg(feature = "testing")]
use crate::store::memory::server::EpochHash;
use crate::store::memory::server::MemoryServer;
use crate::store::{Changes, Push};

impl MemoryServer {
    /// Takes a right that an acquire needs from `instance`, or gives it back.
    pub fn refuse_acquires(&self, instance: &str, refused: bool) {
        let (unable, instance) = (&mut self.state.lock().unable, InstanceId::new(instance));
        if refused {
            unable.insert(instance);
        } else {
            unable.remove(&instance);
        }
    }

    /// Deletes a lease, as an operator might.
    pub fn delete_lease(&self, endpoint: &EndpointId) {
        self.state.lock().data.leases.remove(endpoint);
    }

    /// Gives a lease to `owner`, as an operator might.
    pub fn put_lease(&self, endpoint: &EndpointId, owner: &InstanceId, left: Duration) {
        let mut state = self.state.lock();
        let until = state.now_us(&self.clock) + micros(left);
        state.data.leases.insert(endpoint.clone(), (owner.clone(), until));
    }

    /// Deletes a result and the fence of the last grant, as an operator might.
    pub fn delete_result(&self, endpoint: &EndpointId) {
        self.state.lock().data.results.remove(endpoint);
    }

    /// Sets the last grant of an instance, as a lost write might; `None` forgets it.
    pub fn set_granted(&self, instance: &InstanceId, fence: Option<FenceToken>) {
        let grants = &mut self.state.lock().data.grants;
        match fence {
            Some(fence) => grants.entry(instance.clone()).or_default().granted = fence.0,
            None => drop(grants.remove(instance)),
        }
    }

    /// How long a result is still remembered, if not for good.
    pub fn result_left(&self, endpoint: &EndpointId) -> Option<Duration> {
        let state = self.state.lock();
        let until = state.data.retired.get(endpoint)?;
        Some(Duration::from_micros(until.saturating_sub(state.now_us(&self.clock))))
    }

    /// Lets a lease end that much later from now, or never, as an operator might.
    pub fn set_lease_left(&self, endpoint: &EndpointId, left: Option<Duration>) {
        let mut state = self.state.lock();
        let now = state.now_us(&self.clock);
        if let Some(lease) = state.data.leases.get_mut(endpoint) {
            lease.1 = left.map_or(u64::MAX, |it| now + micros(it));
        }
    }

    /// How long a lease still lasts.
    pub fn lease_left(&self, endpoint: &EndpointId) -> Option<Duration> {
        let state = self.state.lock();
        let until = state.data.leases.get(endpoint)?.1;
        Some(Duration::from_micros(until.saturating_sub(state.now_us(&self.clock))))
    }

    /// Deletes a heartbeat, as an operator or an eviction might.
    pub fn delete_node(&self, instance: &InstanceId) {
        let mut state = self.state.lock();
        state.data.nodes.remove(instance);
        state.tell_node(instance);
    }

    /// What an instance tells about itself.
    pub fn info(&self, instance: &InstanceId) -> Option<InstanceInfo> {
        let mut state = self.state.lock();
        state.forget_expired(&self.clock);
        state.data.infos.get(instance).map(|it| it.0.clone())
    }

    /// How long ago the heartbeat of a leader was written, and how long it lasts.
    pub fn leader_beat(&self, leader: &InstanceId) -> Option<(Duration, Duration)> {
        let mut state = self.state.lock();
        state.forget_expired(&self.clock);
        let now = state.now_us(&self.clock);
        let (written_ms, until) = *state.data.roles.heartbeats.get(leader)?;
        let age = Duration::from_micros(now.saturating_sub(written_ms * 1_000));
        Some((age, Duration::from_micros(until - now)))
    }

    /// Sets when the heartbeat of a leader was written, and keeps it, as an operator might; `None` deletes it.
    pub fn set_leader_beat(&self, leader: &InstanceId, ago: Option<Duration>) {
        let mut state = self.state.lock();
        let now = state.now_us(&self.clock);
        state.data.roles.heartbeats.remove(leader);
        if let Some(ago) = ago {
            let written_ms = now.saturating_sub(micros(ago)) / 1_000;
            state.data.roles.heartbeats.insert(leader.clone(), (written_ms, u64::MAX));
        }
    }

    /// Adds to or takes from the drain set.
    pub fn set_drain(&self, name: &str, drained: bool) {
        let mut state = self.state.lock();
        if drained {
            state.data.drains.insert(name.into())
        } else {
            state.data.drains.remove(name)
        };
        state.tell(&Push::Changed(Changes { drain: true, ..Changes::default() }));
    }
}

/// What a user's test does to the server ([`crate::testing`]).
#[cfg(feature = "testing")]
impl MemoryServer {
    /// Has been up for long, with a fleet whose leases last `ttl`: nothing is held off. Nothing happens if it has an epoch.
    pub(crate) fn establish(&self, ttl: Duration) {
        let mut state = self.state.lock();
        let (now, replid) = (state.now_us(&self.clock), state.replid);
        state.data.epoch.get_or_insert(EpochHash {
            epoch: now,
            born: now,
            replid,
            since_us: 0,
            floor_us: 0,
            lease_ttl: ttl,
            heartbeat_ttl: Duration::ZERO,
        });
    }

    /// Answers nobody, or again. Time goes on meanwhile.
    pub(crate) fn pause(&self, paused: bool) {
        self.state.lock().up = !paused;
    }

    /// Gives a lease that somebody holds to `other`, with its heartbeat, for one TTL. False if nobody holds it.
    pub(crate) fn take_away(&self, endpoint: &EndpointId, other: &InstanceId) -> bool {
        let mut state = self.state.lock();
        state.forget_expired(&self.clock);
        if state.owner(endpoint).is_none() {
            return false;
        }
        let now = state.now_us(&self.clock);
        let role = state.data.roles.ttls.get(endpoint).copied();
        let ttl = role.or(state.data.epoch.map(|it| it.lease_ttl)).unwrap_or_default();
        let until = now + micros(ttl);
        state.data.leases.insert(endpoint.clone(), (other.clone(), until));
        state.data.nodes.insert(other.clone(), (Weight(0), until));
        state.data.roles.heartbeats.insert(other.clone(), (now / 1_000, until));
        true
    }
}
