//! What the scripts do, said again in Rust: the state of the in-memory server, and its mishaps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, ManualClock, Moment};
use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, SESSION_MAX_BYTES, Tenure, Weight};
use crate::store::{
    Acquire, Ask, Asked, Beat, Fault, Grant, Publication, Publish, RawSession, Release, Renew,
    RenewItem, Reply, Stamp, StoreError, Verify, Wake,
};

/// A server that all in-memory instances share.
pub struct MemoryServer {
    clock: Arc<ManualClock>,
    state: Mutex<State>,
}

/// Everything the server had at one moment, for a restart from it.
#[derive(Clone, Debug)]
pub struct Snapshot(Data);

type Deed = Box<dyn FnOnce(&mut State, &ManualClock) + Send>;

pub(crate) struct State {
    up: bool,
    replid: u64,
    /// How far the server's wall clock is ahead of the manual one, in microseconds.
    wall_ahead_us: i64,
    data: Data,
    ears: BTreeMap<InstanceId, VecDeque<Wake>>,
    later: Vec<(Moment, Deed)>,
    published: Vec<Announced>,
}

/// A result that was announced, with who did it.
#[derive(Clone, Debug)]
pub struct Announced {
    /// Who polled.
    pub instance: InstanceId,
    /// What was announced.
    pub publication: Publication,
}

#[derive(Clone, Debug, Default)]
struct Data {
    leases: BTreeMap<EndpointId, (InstanceId, u64)>,
    nodes: BTreeMap<InstanceId, (Weight, u64)>,
    results: BTreeMap<EndpointId, ResultHash>,
    epoch: Option<EpochHash>,
    sessions: BTreeMap<String, RawSession>,
    drains: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct ResultHash {
    granted: u64,
    fence: u64,
    started_at_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct EpochHash {
    epoch: u64,
    replid: u64,
    since_us: u64,
    floor_us: u64,
    lease_ttl: Duration,
}

/// What a script knows once the epoch is settled.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    us: u64,
    floor_us: u64,
    holding_off: bool,
    late: bool,
}

const WALL_START_US: i64 = 1_700_000_000_000_000;

impl MemoryServer {
    /// An empty server that is up.
    pub fn new(clock: &Arc<ManualClock>) -> Arc<Self> {
        let state = State {
            up: true,
            replid: 1,
            wall_ahead_us: WALL_START_US,
            data: Data::default(),
            ears: BTreeMap::new(),
            later: Vec::new(),
            published: Vec::new(),
        };
        Arc::new(Self { clock: Arc::clone(clock), state: Mutex::new(state) })
    }

    /// The clock it runs on.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Dies, and forgets what no snapshot holds. Connections and late requests die with it.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        state.up = false;
        state.later.clear();
        state.ears.clear();
    }

    /// Starts again, from a snapshot or empty, as another life.
    pub fn restart(&self, from: Option<&Snapshot>) {
        let mut state = self.state.lock();
        state.data = from.map(|it| it.0.clone()).unwrap_or_default();
        state.replid += 1;
        state.up = true;
    }

    /// A replica that has only what `from` holds becomes master. Connections live on.
    pub fn fail_over(&self, from: &Snapshot) {
        let mut state = self.state.lock();
        state.data = from.0.clone();
        state.replid += 1;
    }

    /// Everything it has now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.state.lock().data.clone())
    }

    /// `FLUSHALL`: forgets everything, and shows no sign of it.
    pub fn flush(&self) {
        self.state.lock().data = Data::default();
    }

    /// Steps the wall clock it expires keys by.
    pub fn step_clock(&self, by_ms: i64) {
        self.state.lock().wall_ahead_us += by_ms * 1_000;
    }

    /// Stores a session, as an application would.
    pub fn put_session(&self, suffix: &str, value: &[u8]) {
        let value = RawSession::Value(value.to_vec());
        self.state.lock().data.sessions.insert(suffix.into(), value);
    }

    /// Removes a session, as an application would.
    pub fn remove_session(&self, suffix: &str) {
        self.state.lock().data.sessions.remove(suffix);
    }

    /// Deletes a lease, as an operator might.
    pub fn delete_lease(&self, endpoint: &EndpointId) {
        self.state.lock().data.leases.remove(endpoint);
    }

    /// Deletes a result and the fence of the last grant, as an operator might.
    pub fn delete_result(&self, endpoint: &EndpointId) {
        self.state.lock().data.results.remove(endpoint);
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
        self.state.lock().data.nodes.remove(instance);
    }

    /// Adds to or takes from the drain set.
    pub fn set_drain(&self, name: &str, drained: bool) {
        let mut state = self.state.lock();
        if drained {
            state.data.drains.insert(name.into())
        } else {
            state.data.drains.remove(name)
        };
    }

    /// Who owns `endpoint` in the store.
    pub fn owner(&self, endpoint: &EndpointId) -> Option<InstanceId> {
        let mut state = self.state.lock();
        state.forget_expired(&self.clock);
        state.owner(endpoint)
    }

    /// Every result announced so far.
    pub fn announced(&self) -> Vec<Announced> {
        self.state.lock().published.clone()
    }

    pub(crate) fn execute<T>(
        &self,
        op: &'static str,
        deed: impl FnOnce(&mut State, &ManualClock) -> Asked<T>,
    ) -> Asked<T> {
        self.catch_up();
        let mut state = self.state.lock();
        if !state.up {
            let (target, reason) = ("the store".into(), "connection refused".into());
            return Err(StoreError { op, target, fault: Fault::Unreachable, reason });
        }
        deed(&mut state, &self.clock)
    }

    pub(crate) fn execute_later(
        &self,
        delay: Duration,
        deed: impl FnOnce(&mut State, &ManualClock) + Send + 'static,
    ) {
        let at = self.clock.now() + delay;
        self.state.lock().later.push((at, Box::new(deed)));
    }

    /// Executes what was delayed until now.
    pub fn catch_up(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let (due, later) = std::mem::take(&mut state.later).into_iter().partition(|it| it.0 <= now);
        state.later = later;
        let due: Vec<(Moment, Deed)> = due;
        for (_, deed) in due {
            deed(&mut state, &self.clock);
        }
    }
}

impl State {
    fn now_us(&self, clock: &ManualClock) -> u64 {
        let micros = i64::try_from(clock.now().as_nanos() / 1_000).unwrap_or(i64::MAX);
        u64::try_from(micros.saturating_add(self.wall_ahead_us)).unwrap_or(0)
    }

    pub(crate) fn forget_expired(&mut self, clock: &ManualClock) {
        let now = self.now_us(clock);
        self.data.leases.retain(|_, it| it.1 > now);
        self.data.nodes.retain(|_, it| it.1 > now);
    }

    /// epoch.lua
    fn enter(&mut self, ask: &Ask, clock: &ManualClock) -> Asked<(Stamp, Now)> {
        self.forget_expired(clock);
        let now = self.now_us(clock);
        let hold = micros(ask.term.hold_off());
        let before = self.data.epoch;
        if let Some(it) = before.filter(|it| it.lease_ttl != ask.term.ttl) {
            return Err(StoreError {
                op: "join the fleet on",
                target: "the store".into(),
                fault: Fault::Misconfigured,
                reason: format!("--lease-ttl {:?}, the fleet has {:?}", ask.term.ttl, it.lease_ttl),
            });
        }
        let mut epoch = match before {
            Some(it)
                if it.replid == self.replid
                    && it.epoch >= ask.epoch.0
                    && !(ask.suspect && it.epoch == ask.epoch.0) =>
            {
                it
            }
            _ => EpochHash {
                epoch: now.max(ask.epoch.0 + 1).max(before.map_or(0, |it| it.epoch + 1)),
                replid: self.replid,
                since_us: now,
                floor_us: before.map_or(0, |it| it.floor_us),
                lease_ttl: ask.term.ttl,
            },
        };
        if before.is_none() && ask.new_fleet && ask.epoch == Epoch(0) {
            epoch.since_us = now - hold;
        }
        epoch.since_us = epoch.since_us.min(now);
        let left = (epoch.since_us + hold).saturating_sub(now);
        if ask.floor_us > now {
            let ahead = if left > 0 { hold } else { 0 };
            epoch.floor_us = epoch.floor_us.max(ask.floor_us + ahead);
        }
        self.data.epoch = Some(epoch);
        let stamp = Stamp {
            epoch: Epoch(epoch.epoch),
            hold_off: Duration::from_micros(left),
            server_us: now,
        };
        let late = ask.not_after_us > 0 && now > ask.not_after_us;
        Ok((stamp, Now { us: now, floor_us: epoch.floor_us, holding_off: left > 0, late }))
    }

    /// A verb over many items, refused as a whole when it was decided under another epoch.
    pub(crate) fn for_each<I, T>(
        &mut self,
        ask: &Ask,
        clock: &ManualClock,
        items: &[I],
        mut verb: impl FnMut(&mut Self, &I, Now) -> T,
    ) -> Asked<Reply<Vec<T>>> {
        let (stamp, now) = self.enter(ask, clock)?;
        let named = stamp.epoch == ask.epoch;
        let answer = named.then(|| items.iter().map(|it| verb(self, it, now)).collect());
        Ok(Reply { stamp, answer })
    }

    /// beat.lua
    pub(crate) fn beat(
        &mut self,
        ask: &Ask,
        ttl: Duration,
        weight: Weight,
        clock: &ManualClock,
    ) -> Asked<Reply<Beat>> {
        let (stamp, now) = self.enter(ask, clock)?;
        if now.late {
            return Ok(Reply { stamp, answer: None });
        }
        let me = &ask.instance;
        let drained = [me.as_str(), me.host()].iter().any(|it| self.data.drains.contains(*it));
        let weight = if drained { Weight(0) } else { weight };
        let before = self.data.nodes.insert(me.clone(), (weight, now.us + micros(ttl)));
        Ok(Reply { stamp, answer: Some(Beat { unbroken: before.is_some(), weight }) })
    }

    /// acquire.lua
    pub(crate) fn acquire(&mut self, ask: &Ask, endpoint: &EndpointId, now: Now) -> Acquire {
        let ttl = micros(ask.term.ttl);
        let grant = match self.data.leases.get_mut(endpoint) {
            None => Grant::Free,
            Some((owner, _)) if *owner == ask.instance => Grant::Adopted,
            Some((owner, until)) => {
                if now.holding_off || self.data.nodes.contains_key(owner) {
                    *until = (*until).min(now.us + ttl);
                    return Acquire::HeldBy(owner.clone());
                }
                Grant::Takeover
            }
        };
        if now.holding_off {
            return Acquire::HoldOff;
        }
        if !self.data.nodes.contains_key(&ask.instance) {
            return Acquire::NoHeartbeat;
        }
        if now.late {
            return Acquire::Late;
        }
        let result = self.data.results.entry(endpoint.clone()).or_default();
        let floor = now.floor_us.max(ask.floor_us) + 1;
        result.granted = (result.granted + 1).max(now.us).max(floor);
        let (fence, polled_at_ms) = (FenceToken(result.granted), result.started_at_ms);
        self.data.leases.insert(endpoint.clone(), (ask.instance.clone(), now.us + ttl));
        Acquire::Granted { fence, grant, polled_at_ms }
    }

    /// renew.lua
    pub(crate) fn renew(&mut self, ask: &Ask, item: &RenewItem, now: Now) -> Renew {
        let Tenure { endpoint, fence } = &item.tenure;
        let owner = self.owner(endpoint);
        if owner.as_ref().is_some_and(|it| *it != ask.instance) {
            return Renew::NotOwner(owner);
        }
        let result = self.data.results.entry(endpoint.clone()).or_default();
        if result.granted > fence.0 {
            return Renew::NotOwner(None);
        }
        if owner.is_none() && !item.may_reclaim {
            return Renew::NotOwner(None);
        }
        if owner.is_none() && now.late {
            return Renew::Late;
        }
        result.granted = fence.0;
        let until = now.us + micros(ask.term.ttl);
        self.data.leases.insert(endpoint.clone(), (ask.instance.clone(), until));
        if owner.is_some() { Renew::Extended } else { Renew::Reclaimed }
    }

    /// verify.lua
    pub(crate) fn verify(&mut self, ask: &Ask, tenure: &Tenure) -> Verify {
        let granted = self.data.results.get(&tenure.endpoint).map_or(0, |it| it.granted);
        match self.owner(&tenure.endpoint) {
            None => Verify::Missing,
            Some(owner) if owner != ask.instance => Verify::NotOwner(Some(owner)),
            Some(_) if granted > tenure.fence.0 => Verify::NotOwner(None),
            Some(_) => Verify::Held,
        }
    }

    /// publish.lua
    pub(crate) fn publish(&mut self, ask: &Ask, it: &Publication) -> Publish {
        let owner = self.owner(&it.tenure.endpoint);
        let result = self.data.results.entry(it.tenure.endpoint.clone()).or_default();
        let fence = it.tenure.fence.0;
        if owner.as_ref() != Some(&ask.instance) || result.granted != fence {
            return Publish::Fenced;
        }
        if (result.fence, result.started_at_ms) != (fence, Some(it.started_at_ms)) {
            (result.fence, result.started_at_ms) = (fence, Some(it.started_at_ms));
            let instance = ask.instance.clone();
            self.published.push(Announced { instance, publication: it.clone() });
        }
        Publish::Stored
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
        if owner.is_some() { Release::Released } else { Release::NotOwner }
    }

    /// bury.lua
    pub(crate) fn bury(&mut self, dead: &InstanceId) -> usize {
        self.withdraw(dead);
        let (mut count, results) = (0, &mut self.data.results);
        self.data.leases.retain(|endpoint, (owner, _)| {
            if owner == dead {
                count += 1;
                results.entry(endpoint.clone()).or_default().granted += 1;
            }
            owner != dead
        });
        count
    }

    pub(crate) fn withdraw(&mut self, me: &InstanceId) {
        self.data.nodes.remove(me);
        let word = Wake { to: None, from: me.clone(), wants: vec![], freed: vec![] };
        self.say(&[word]);
    }

    pub(crate) fn say(&mut self, wakes: &[Wake]) {
        for wake in wakes {
            for (instance, words) in &mut self.ears {
                if wake.to.as_ref().is_none_or(|to| to == instance) {
                    words.push_back(wake.clone());
                }
            }
        }
    }

    pub(crate) fn subscribe(&mut self, me: &InstanceId) {
        self.ears.insert(me.clone(), VecDeque::new());
    }

    /// An ear does not outlive the server's life it was opened in.
    pub(crate) fn heard(&mut self, me: &InstanceId) -> Asked<Option<Wake>> {
        match self.ears.get_mut(me) {
            Some(words) => Ok(words.pop_front()),
            None => Err(StoreError {
                op: "hear",
                target: "the store".into(),
                fault: Fault::Unreachable,
                reason: "the connection was closed".into(),
            }),
        }
    }

    pub(crate) fn owner(&self, endpoint: &EndpointId) -> Option<InstanceId> {
        self.data.leases.get(endpoint).map(|it| it.0.clone())
    }

    pub(crate) fn instances(&self) -> Vec<(InstanceId, Weight)> {
        self.data.nodes.iter().map(|(id, it)| (id.clone(), it.0)).collect()
    }

    pub(crate) fn sessions(&self) -> Vec<(String, RawSession)> {
        let found = |it: &RawSession| match it {
            RawSession::Value(it) if it.len() > SESSION_MAX_BYTES => RawSession::TooLarge(it.len()),
            other => other.clone(),
        };
        self.data.sessions.iter().map(|(id, it)| (id.clone(), found(it))).collect()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
