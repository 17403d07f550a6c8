//! What does the in-memory server remember, and how does it crash, restart and fail over?

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, ManualClock, Moment};
use crate::model::{EndpointId, FenceToken, InstanceId, InstanceInfo, VerdictState, Weight};
use crate::store::lease_kind::LeaseKind;
use crate::store::memory::kinds::{self, Kind};
use crate::store::memory::subscription::PushObserver;
use crate::store::{
    Changes, Fault, PeerMessage, Publication, Push, RawSession, StoreError, StoreResult,
};

/// A server that all in-memory instances share.
pub struct MemoryServer {
    pub(crate) clock: Arc<ManualClock>,
    kind: LeaseKind,
    pub(crate) state: Mutex<ServerState>,
    pub(crate) pushes: OnceLock<Arc<dyn PushObserver>>,
}

/// Everything the server had at one moment, for a restart from it.
#[derive(Clone, Debug)]
pub struct Snapshot(pub(crate) Data);

type DelayedCall = Box<dyn FnOnce(&mut ServerState, &ManualClock) + Send>;

pub(crate) struct ServerState {
    pub(crate) up: bool,
    /// Demoted: it answers what only reads, and refuses the rest.
    read_only: bool,
    /// A subscriber was pushed something since [`MemoryServer::has_told`] was last called.
    pub(crate) told: bool,
    /// What this server does in the way of its kind of lease.
    pub(crate) kind: &'static dyn Kind,
    /// Those who lack a right that an acquire needs.
    pub(crate) unable: BTreeSet<InstanceId>,
    pub(crate) replid: u64,
    /// How far the server's wall clock is ahead of the manual one, in microseconds.
    pub(crate) wall_ahead_us: i64,
    pub(crate) data: Data,
    pub(crate) subscribers: BTreeMap<InstanceId, VecDeque<Push>>,
    pub(crate) later: Vec<(Moment, DelayedCall)>,
    pub(crate) journal: Journal,
}

/// What reached the server, for tests to read.
#[derive(Default)]
pub(crate) struct Journal {
    calls: Vec<&'static str>,
    pub(crate) results: Vec<Announced>,
    pub(crate) acquires: (usize, usize), // asked for, and granted
    pub(crate) revoked: BTreeSet<InstanceId>,
}

/// A result that was announced, with who did it.
#[derive(Clone, Debug)]
pub struct Announced {
    /// Who polled.
    pub instance: InstanceId,
    /// What.
    pub publication: Publication,
    /// The verdict after it.
    pub state: VerdictState,
}

impl Announced {
    /// Whether a change of the verdict was announced with it.
    pub fn is_change(&self) -> bool {
        self.state.is_changed_by(self.publication.started_at_ms)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) leases: BTreeMap<EndpointId, (InstanceId, u64)>,
    pub(crate) nodes: BTreeMap<InstanceId, (Weight, u64)>,
    pub(crate) infos: BTreeMap<InstanceId, (InstanceInfo, u64)>,
    /// From when (in ms) the leases of a revoked instance may be taken over, and the end of the key.
    pub(crate) revoked: BTreeMap<InstanceId, (u64, u64)>,
    /// How many were revoked in the last minute, and when it ends.
    pub(crate) revocations: (u32, u64),
    pub(crate) results: BTreeMap<EndpointId, ResultHash>,
    pub(crate) retired: BTreeMap<EndpointId, u64>, // when results end
    pub(crate) epoch: Option<EpochHash>,
    pub(crate) malformed: Malformed,
    /// The highest fence of all polls; each role has its own.
    pub(crate) fence: u64,
    pub(crate) grants: BTreeMap<InstanceId, Grants>,
    pub(crate) sessions: BTreeMap<String, RawSession>,
    pub(crate) drains: BTreeSet<String>,
    /// Stored requests, by the owner and the instance that asks; each with its end.
    pub(crate) asks: BTreeMap<(InstanceId, InstanceId), (PeerMessage, u64)>,
    pub(crate) roles: RoleData,
}

/// What a stranger has written into the epoch's key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Malformed {
    /// Fields whose value no script writes.
    pub(crate) fields: BTreeSet<String>,
    /// The key is no hash.
    pub(crate) is_no_hash: bool,
}

/// What only a server of roles remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoleData {
    /// The agreed TTL of each role (R14).
    pub(crate) ttls: BTreeMap<EndpointId, Duration>,
    /// Roles whose TTL a candidate from before the last loss of memory has confirmed.
    pub(crate) confirmed: BTreeSet<EndpointId>,
    /// Roles whose TTL a stranger has written over.
    pub(crate) untimed: BTreeSet<EndpointId>,
    /// The last leader of each role.
    pub(crate) leaders: BTreeMap<EndpointId, InstanceId>,
    /// When each leader's heartbeat was written, in milliseconds, and its end.
    pub(crate) heartbeats: BTreeMap<InstanceId, (u64, u64)>,
}

/// What an instance was granted last, and its floor when it last gave something back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grants {
    pub(crate) granted: u64,
    pub(crate) released: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ResultHash {
    pub(crate) granted: u64,
    pub(crate) fence: u64,
    pub(crate) started_at_ms: Option<u64>,
    pub(crate) verdict: Option<VerdictState>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochHash {
    pub(crate) epoch: u64,
    /// The epoch that began with the last loss of memory.
    pub(crate) born: u64,
    pub(crate) replid: u64,
    pub(crate) since_us: u64,
    pub(crate) floor_us: u64,
    pub(crate) lease_ttl: Duration,
    pub(crate) heartbeat_ttl: Duration,
}

/// What a replica answers, too.
const READS: [&str; 14] = [
    "inspect",
    "signs_of_life",
    "time",
    "asks",
    "session_names",
    "sessions",
    "any_session",
    "instances",
    "heartbeats",
    "owners",
    "expiring",
    "role_names",
    "listen",
    "next_push",
];

const WALL_START_US: i64 = 1_700_000_000_000_000;

impl MemoryServer {
    /// An empty server that is up.
    pub fn new(clock: &Arc<ManualClock>) -> Arc<Self> {
        Self::of(clock, LeaseKind::Poll)
    }

    /// The same for roles.
    pub fn of_roles(clock: &Arc<ManualClock>) -> Arc<Self> {
        Self::of(clock, LeaseKind::Role)
    }

    fn of(clock: &Arc<ManualClock>, kind: LeaseKind) -> Arc<Self> {
        let state = ServerState {
            up: true,
            read_only: false,
            told: false,
            kind: kinds::of(kind),
            unable: BTreeSet::new(),
            replid: 1,
            wall_ahead_us: WALL_START_US,
            data: Data::default(),
            subscribers: BTreeMap::new(),
            later: Vec::new(),
            journal: Journal::default(),
        };
        let state = Mutex::new(state);
        Arc::new(Self { clock: Arc::clone(clock), kind, state, pushes: OnceLock::new() })
    }

    /// Which leases it keeps.
    pub(crate) fn kind(&self) -> LeaseKind {
        self.kind
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
        state.subscribers.clear();
    }

    /// Starts again, from a snapshot or empty, as another life.
    pub fn restart(&self, from: Option<&Snapshot>) {
        let mut state = self.state.lock();
        state.data = from.map(|it| it.0.clone()).unwrap_or_default();
        state.replid += 1;
        state.up = true;
        state.read_only = false;
    }

    /// A replica that has only what `from` holds becomes master. Connections live on.
    pub fn fail_over(&self, from: &Snapshot) {
        let mut state = self.state.lock();
        state.data = from.0.clone();
        state.replid += 1;
        state.read_only = false;
    }

    /// Becomes a replica, until it is promoted by [`Self::fail_over`]. What arrives late is refused, too.
    pub fn demote(&self) {
        self.state.lock().read_only = true;
    }

    /// Deletes what it knows of its own life, as an eviction might.
    pub fn delete_epoch(&self) {
        let mut state = self.state.lock();
        state.data.epoch = None;
        state.data.malformed = Malformed::default();
    }

    /// Whether a subscriber was pushed something since the last call.
    pub fn has_told(&self) -> bool {
        std::mem::take(&mut self.state.lock().told)
    }

    /// Everything it has now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.state.lock().data.clone())
    }

    /// `FLUSHALL`: forgets everything, and tells only those who listen.
    pub fn flush(&self) {
        let mut state = self.state.lock();
        state.data = Data::default();
        state.tell(&Push::Everything);
    }

    /// Steps the wall clock it expires keys by.
    pub fn step_clock(&self, by_ms: i64) {
        self.state.lock().wall_ahead_us += by_ms * 1_000;
    }

    /// Stores a session, as an application would.
    pub fn put_session(&self, suffix: &str, value: &[u8]) {
        let mut state = self.state.lock();
        state.data.sessions.insert(suffix.into(), RawSession::Value(value.to_vec()));
        state.tell_session(suffix);
    }

    /// Stores a session, and the push gets lost.
    pub fn put_session_unheard(&self, suffix: &str, value: &[u8]) {
        let mut state = self.state.lock();
        state.data.sessions.insert(suffix.into(), RawSession::Value(value.to_vec()));
    }

    /// A session of this name is written in another database: an invalidation names keys of all of them.
    pub fn touch_elsewhere(&self, suffix: &str) {
        self.state.lock().tell_session(suffix);
    }

    /// Removes a session, as an application would.
    pub fn remove_session(&self, suffix: &str) {
        let mut state = self.state.lock();
        state.data.sessions.remove(suffix);
        state.tell_session(suffix);
    }

    /// Who owns `endpoint` in the store.
    pub fn owner(&self, endpoint: &EndpointId) -> Option<InstanceId> {
        let mut state = self.state.lock();
        state.forget_expired(&self.clock);
        state.owner(endpoint)
    }

    /// The fence of the last grant of `endpoint`.
    pub fn granted(&self, endpoint: &EndpointId) -> FenceToken {
        let state = self.state.lock();
        FenceToken(state.data.results.get(endpoint).map_or(0, |it| it.granted))
    }

    /// The results announced after the first `n`.
    pub fn announced_since(&self, n: usize) -> Vec<Announced> {
        self.state.lock().journal.results[n..].to_vec()
    }

    pub(crate) fn execute<T>(
        &self,
        op: &'static str,
        execute: impl FnOnce(&mut ServerState, &ManualClock) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.catch_up();
        let mut state = self.state.lock();
        if !state.up {
            let (target, reason) = ("the store".into(), "connection refused".into());
            return Err(StoreError { op, target, fault: Fault::Unreachable, reason });
        }
        if state.read_only && !READS.contains(&op) {
            let (target, reason) = ("the store".into(), "READONLY this server is a replica".into());
            return Err(StoreError { op, target, fault: Fault::Refused, reason });
        }
        state.journal.calls.push(op);
        let answer = execute(&mut state, &self.clock);
        let observer = self.pushes.get().filter(|_| std::mem::take(&mut state.told));
        drop(state);
        observer.into_iter().for_each(|it| it.pushed());
        answer
    }

    /// Every call that reached it, in order.
    pub fn journal(&self) -> Vec<&'static str> {
        self.state.lock().journal.calls.clone()
    }

    /// How many leases were asked for so far, and how many granted.
    pub fn acquires(&self) -> (usize, usize) {
        self.state.lock().journal.acquires
    }

    pub(crate) fn execute_later(
        &self,
        delay: Duration,
        execute: impl FnOnce(&mut ServerState, &ManualClock) + Send + 'static,
    ) {
        let at = self.clock.now() + delay;
        self.state.lock().later.push((at, Box::new(execute)));
    }

    /// Executes what was delayed until now.
    pub fn catch_up(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.later.is_empty() {
            return;
        }
        let (due, later): (Vec<_>, _) =
            std::mem::take(&mut state.later).into_iter().partition(|it| it.0 <= now);
        state.later = later;
        if !state.read_only {
            due.into_iter().for_each(|(_, execute)| execute(&mut state, &self.clock));
        }
    }
}

impl ServerState {
    pub(crate) fn now_us(&self, clock: &ManualClock) -> u64 {
        let micros = i64::try_from(clock.now().as_nanos() / 1_000).unwrap_or(i64::MAX);
        u64::try_from(micros.saturating_add(self.wall_ahead_us)).unwrap_or(0)
    }

    pub(crate) fn forget_expired(&mut self, clock: &ManualClock) {
        let now = self.now_us(clock);
        forget(&mut self.data.leases, now);
        forget(&mut self.data.asks, now);
        forget(&mut self.data.roles.heartbeats, now);
        self.forget_retired(now);
        // Nobody is told: Redis may take its time to notice that a key has expired.
        forget(&mut self.data.nodes, now);
        forget(&mut self.data.infos, now);
        forget(&mut self.data.revoked, now);
    }

    fn tell_session(&mut self, suffix: &str) {
        let sessions = vec![suffix.to_owned()];
        self.tell(&Push::Changed(Changes { sessions, ..Changes::default() }));
    }
}

/// Seldom anything has expired, and to look for it first is cheaper.
fn forget<K: Ord, T>(map: &mut BTreeMap<K, (T, u64)>, now: u64) {
    if map.values().any(|it| it.1 <= now) {
        map.retain(|_, it| it.1 > now);
    }
}
