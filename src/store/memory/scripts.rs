//! epoch, heartbeat, acquire, renew, publish and read_capped again in Rust. `verification.rs` has verify, `revocations.rs` what
//! R16 needs, `endings.rs` release, revoke, retire and last_polled, `roles.rs` role_status. drain, cas_session and rights have no
//! counterpart.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::ManualClock;
use crate::model::{
    EndpointId, Epoch, FenceToken, InstanceId, KnownVerdict, SESSION_MAX_BYTES, Tenure, Weight,
};
use crate::store::error::JOIN_FLEET;
use crate::store::memory::malformed::is_ttl;
use crate::store::memory::roles::OnLease;
use crate::store::memory::server::{Announced, EpochHash, ServerState};
use crate::store::{
    Acquire, Changes, Fault, Grant, HeartbeatReply, Lasting, PeerMessage, Publication, Publish,
    Push, RawSession, Renew, RenewItem, Reply, RequestContext, Stamp, StoreError, StoreResult,
};

/// What a script knows once the epoch is settled.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) us: u64,
    pub(crate) floor_us: u64,
    pub(crate) holding_off: bool,
    pub(crate) late: bool,
    /// A verification of the last epoch may still count (R15).
    pub(crate) settling: bool,
    /// The highest fence of all, before this call.
    pub(crate) last_fence: u64,
}

impl ServerState {
    /// read_capped.lua
    pub(crate) fn cap_ttls(&mut self, clock: &ManualClock) {
        self.forget_expired(clock);
        let now = self.now_us(clock);
        let Some(epoch) = self.data.epoch else { return };
        if is_ttl(epoch.lease_ttl) {
            let longest = now + micros(epoch.lease_ttl);
            self.data.leases.values_mut().for_each(|it| it.1 = it.1.min(longest));
        }
        if is_ttl(epoch.heartbeat_ttl) {
            let longest = now + micros(epoch.heartbeat_ttl);
            self.data.nodes.values_mut().for_each(|it| it.1 = it.1.min(longest));
        }
    }

    /// epoch.lua
    fn enter(
        &mut self,
        context: &RequestContext,
        about: Option<&EndpointId>,
        clock: &ManualClock,
    ) -> StoreResult<(Stamp, Now)> {
        // No two calls in the same microsecond, as on a real server.
        self.wall_ahead_us += 1;
        self.forget_expired(clock);
        self.check_epoch(context)?;
        let now = self.now_us(clock);
        let late = context.not_after_us > 0 && now > context.not_after_us;
        let role = self.kind.own_ttl(about);
        let unknown = self.unknown_hold_off(role);
        let mut hold = micros(context.duration.hold_off().max(unknown));
        let (agreed, record) = (self.agreed(role), self.data.epoch);
        let mut before = record.filter(|_| !self.is_epoch_malformed(role));
        if let (Some(it), Some(agreed)) = (record, agreed.filter(|it| *it != context.duration.ttl))
        {
            let window = micros(agreed.max(unknown));
            let granted_nothing =
                before.is_some() && it.replid == self.replid && now < it.since_us + window;
            if context.epoch == Epoch(0) || context.duration.ttl < agreed || !granted_nothing {
                return Err(other_timing(context.duration.ttl, agreed));
            }
            before = None;
        }
        if let Some(role) = role {
            self.data.roles.ttls.insert(role.clone(), context.duration.ttl);
        }
        let mut epoch = match before {
            Some(it)
                if it.replid == self.replid
                    && it.epoch >= context.epoch.0
                    && !(context.suspect && it.epoch == context.epoch.0) =>
            {
                it
            }
            _ => EpochHash {
                epoch: now.max(context.epoch.0 + 1).max(record.map_or(0, |it| it.epoch + 1)),
                born: 0,
                replid: self.replid,
                since_us: now,
                floor_us: record.map_or(0, |it| it.floor_us),
                lease_ttl: context.duration.ttl,
                heartbeat_ttl: record.map_or(Duration::ZERO, |it| it.heartbeat_ttl),
            },
        };
        if epoch.born == 0 {
            let remembers =
                before.filter(|it| it.replid == self.replid && it.epoch >= context.epoch.0);
            epoch.born = remembers.map_or(epoch.epoch, |it| it.born);
        }
        if record.is_none() && context.new_fleet && context.epoch == Epoch(0) && !late {
            epoch.since_us = now - hold;
        }
        if self.confirm(role, context, epoch.born) {
            hold = micros(context.duration.hold_off());
        }
        epoch.since_us = epoch.since_us.min(now);
        let left = (epoch.since_us + hold).saturating_sub(now);
        if context.floor_us > now {
            let ahead = if left > 0 { hold } else { 0 };
            epoch.floor_us = epoch.floor_us.max(context.floor_us + ahead);
        }
        if before.is_none() {
            self.mend_epoch(role.cloned().as_ref());
        }
        self.data.epoch = Some(epoch);
        let wait = micros(context.duration.revocation());
        Ok(self.entered(context, epoch, (now, left, late), wait))
    }

    /// A verb over many items, refused as a whole when it was decided under another epoch.
    pub(crate) fn for_each<I: OnLease, T>(
        &mut self,
        context: &RequestContext,
        clock: &ManualClock,
        items: &[I],
        mut verb: impl FnMut(&mut Self, &I, Now) -> T,
    ) -> StoreResult<Reply<Vec<T>>> {
        let (stamp, now) = self.enter(context, items.first().map(OnLease::about), clock)?;
        let named = stamp.epoch == context.epoch && stamp.revoked_until_ms.is_none();
        let answer = named.then(|| items.iter().map(|it| verb(self, it, now)).collect());
        Ok(Reply { stamp, answer })
    }

    /// heartbeat.lua
    pub(crate) fn heartbeat(
        &mut self,
        context: &RequestContext,
        ttl: Duration,
        weight: Weight,
        clock: &ManualClock,
    ) -> StoreResult<Reply<HeartbeatReply>> {
        let (stamp, now) = self.enter(context, None, clock)?;
        if now.late {
            return Ok(Reply { stamp: Stamp { revoked_until_ms: None, ..stamp }, answer: None });
        }
        let rejoins = stamp.revoked_until_ms;
        if let Some(until_ms) = rejoins {
            let wait = micros(context.duration.revocation());
            if until_ms * 1_000 > now.us + wait {
                return Ok(Reply {
                    stamp: self.shorten_revocation(context, stamp, ttl),
                    answer: None,
                });
            }
            if context.obeyed_ms != until_ms || now.us < until_ms * 1_000 {
                return Ok(Reply { stamp, answer: None });
            }
            self.data.revoked.remove(&context.instance);
        }
        let stamp = Stamp { revoked_until_ms: None, ..stamp };
        if let Some(epoch) = &mut self.data.epoch {
            epoch.heartbeat_ttl = epoch.heartbeat_ttl.max(ttl);
        }
        let me = &context.instance;
        let drained = [me.as_str(), me.host()].iter().any(|it| self.data.drains.contains(*it));
        let weight = if drained { Weight(0) } else { weight };
        let before = self.data.nodes.insert(me.clone(), (weight, now.us + micros(ttl)));
        self.tell_node(me);
        let unbroken = before.is_some() && rejoins.is_none();
        Ok(Reply { stamp, answer: Some(HeartbeatReply { unbroken, weight }) })
    }

    /// acquire.lua
    pub(crate) fn acquire(
        &mut self,
        context: &RequestContext,
        endpoint: &EndpointId,
        now: Now,
    ) -> Acquire {
        if self.unable.contains(&context.instance) {
            return Acquire::Failed("ERR the user executing the script can't".into());
        }
        let ttl = micros(context.duration.ttl);
        let owner = self.owner(endpoint);
        let grant = match &owner {
            None => Grant::Free,
            Some(owner) if *owner == context.instance => Grant::Adopted,
            Some(owner) => {
                if now.holding_off || !self.kind.is_dead(&self.data, owner, context, now) {
                    let until = self.data.leases.get_mut(endpoint).map(|it| &mut it.1);
                    until.into_iter().for_each(|it| *it = (*it).min(now.us + ttl));
                    return Acquire::HeldBy(owner.clone());
                }
                Grant::Takeover
            }
        };
        if now.holding_off {
            return Acquire::HoldOff;
        }
        if !self.kind.is_alive(&self.data, &context.instance) {
            return Acquire::NoHeartbeat;
        }
        if now.late {
            return Acquire::Late;
        }
        let fence = self.next_fence(context, endpoint, now);
        self.data.results.entry(endpoint.clone()).or_default().granted = fence;
        self.kind.note_grant(&mut self.data, &context.instance, fence);
        self.data.leases.insert(endpoint.clone(), (context.instance.clone(), now.us + ttl));
        self.kind.write_heartbeat(&mut self.data, context, now);
        self.kind.succeed(&mut self.data, &context.instance, endpoint, owner);
        Acquire::Granted { fence: FenceToken(fence), grant }
    }

    /// The same for all of a call.
    fn next_fence(&self, context: &RequestContext, endpoint: &EndpointId, now: Now) -> u64 {
        let last = self.kind.last_fence(&self.data, endpoint, now.last_fence);
        let floor = now.floor_us.max(context.floor_us) + 1;
        now.us.max(floor).max(last + 1)
    }

    /// renew_by_owner.lua
    pub(crate) fn renew_by_owner(
        &mut self,
        context: &RequestContext,
        item: &RenewItem,
        now: Now,
    ) -> bool {
        let lease = self.data.leases.get_mut(&item.tenure.endpoint);
        let ours = lease.filter(|it| it.0 == context.instance);
        ours.map(|it| it.1 = now.us + micros(context.duration.ttl)).is_some()
    }

    /// renew.lua
    pub(crate) fn renew(&mut self, context: &RequestContext, item: &RenewItem, now: Now) -> Renew {
        let Tenure { endpoint, fence } = &item.tenure;
        let owner = self.owner(endpoint);
        if owner.as_ref().is_some_and(|it| *it != context.instance) {
            return Renew::NotOwner(owner);
        }
        let granted = self.data.results.get(endpoint).map_or(0, |it| it.granted);
        if granted > fence.0 {
            return Renew::NotOwner(None);
        }
        if owner.is_none() && !item.may_reclaim {
            return Renew::NotOwner(None);
        }
        if owner.is_none() && (now.late || self.kind.may_be_released(&self.data, context)) {
            return Renew::Late;
        }
        if owner.is_none() || granted < fence.0 {
            self.kind.count_as_granted(&mut self.data, context, fence.0);
        }
        self.data.results.entry(endpoint.clone()).or_default().granted = fence.0;
        if owner.is_none() {
            self.data.retired.remove(endpoint);
        }
        let until = now.us + micros(context.duration.ttl);
        self.data.leases.insert(endpoint.clone(), (context.instance.clone(), until));
        self.kind.write_heartbeat(&mut self.data, context, now);
        if owner.is_some() { Renew::Extended } else { Renew::Reclaimed }
    }

    /// publish.lua
    pub(crate) fn publish(&mut self, context: &RequestContext, it: &Publication) -> Publish {
        let owner = self.owner(&it.tenure.endpoint);
        let result = self.data.results.entry(it.tenure.endpoint.clone()).or_default();
        let fence = it.tenure.fence.0;
        if owner.is_none() && result.granted <= fence {
            return Publish::Missing;
        }
        if owner.as_ref() != Some(&context.instance) || result.granted != fence {
            return Publish::Fenced;
        }
        if result.fence != fence {
            self.data.retired.remove(&it.tenure.endpoint);
        }
        if (result.fence, result.started_at_ms) < (fence, Some(it.started_at_ms)) {
            let stored_at = (result.fence, result.started_at_ms);
            let is_behind = |known: &KnownVerdict| {
                result.verdict.is_none() || stored_at < (known.fence.0, Some(known.started_at_ms))
            };
            let known = it.judging.known.filter(is_behind).map(|it| it.state);
            let before = known.or(result.verdict).unwrap_or_default();
            let state = before.after(it.sample.ok, it.started_at_ms, it.judging.thresholds);
            (result.fence, result.started_at_ms) = (fence, Some(it.started_at_ms));
            result.verdict = Some(state);
            let instance = context.instance.clone();
            self.journal.results.push(Announced { instance, publication: it.clone(), state });
            let is_seen = |it: KnownVerdict| stored_at == (it.fence.0, Some(it.started_at_ms));
            if state == before && it.judging.known.is_some_and(is_seen) {
                return Publish::Stored(None);
            }
        }
        Publish::Stored(result.verdict)
    }

    /// The end of acquire.lua
    pub(crate) fn tell_grants(
        &mut self,
        me: &InstanceId,
        endpoints: &[EndpointId],
        reply: &Reply<Vec<Acquire>>,
    ) {
        let answers = endpoints.iter().zip(reply.answer.iter().flatten());
        let granted = answers.filter(|it| matches!(it.1, Acquire::Granted { .. }));
        let took: Vec<EndpointId> = granted.map(|it| it.0.clone()).collect();
        self.journal.acquires.0 += endpoints.len();
        self.journal.acquires.1 += took.len();
        if !took.is_empty() {
            self.say(&[PeerMessage { took, ..PeerMessage::new(me, None) }]);
        }
    }

    pub(crate) fn tell_node(&mut self, instance: &InstanceId) {
        self.tell(&Push::Changed(Changes { nodes: vec![instance.clone()], ..Changes::default() }));
    }

    /// Tells everybody who listens.
    pub(crate) fn tell(&mut self, news: &Push) {
        self.told = true;
        self.subscribers.values_mut().for_each(|it| it.push_back(news.clone()));
    }

    pub(crate) fn say(&mut self, wakes: &[PeerMessage]) {
        self.told = true;
        for wake in wakes {
            for (instance, messages) in &mut self.subscribers {
                if wake.to.as_ref().is_none_or(|to| to == instance) {
                    messages.push_back(Push::Message(wake.clone()));
                }
            }
        }
    }

    pub(crate) fn subscribe(&mut self, me: &InstanceId) {
        self.subscribers.insert(me.clone(), VecDeque::new());
    }

    pub(crate) fn heard(&mut self, me: &InstanceId) -> StoreResult<Option<Push>> {
        match self.subscribers.get_mut(me) {
            Some(messages) => Ok(messages.pop_front()),
            None => Err(StoreError {
                op: "listen on",
                target: "the store".into(),
                fault: Fault::Unreachable,
                reason: "the connection was closed".into(),
            }),
        }
    }

    pub(crate) fn owner(&self, endpoint: &EndpointId) -> Option<InstanceId> {
        self.data.leases.get(endpoint).map(|it| it.0.clone())
    }

    pub(crate) fn lasting<T: Clone>(&self, it: &(T, u64), clock: &ManualClock) -> Lasting<T> {
        let left = Duration::from_micros(it.1.saturating_sub(self.now_us(clock)));
        Lasting { value: it.0.clone(), left }
    }

    pub(crate) fn session_names(&self) -> Vec<String> {
        self.data.sessions.keys().cloned().collect()
    }

    pub(crate) fn session(&self, endpoint: &EndpointId) -> Option<RawSession> {
        Some(match self.data.sessions.get(endpoint.as_str())? {
            RawSession::Value(it) if it.len() > SESSION_MAX_BYTES => RawSession::TooLarge(it.len()),
            other => other.clone(),
        })
    }
}

fn other_timing(ours: Duration, theirs: Duration) -> StoreError {
    let reason = format!("--lease-ttl {ours:?}, the fleet has {theirs:?}");
    let (op, target) = (JOIN_FLEET, "the store".into());
    StoreError { op, target, fault: Fault::Misconfigured, reason }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
