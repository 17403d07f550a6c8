//! A store under test, and what a test may do to its server.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, ManualClock};
use leasehold::model::{
    EndpointId, FenceToken, InstanceId, InstanceInfo, LeaseDuration, VerdictState,
};
use leasehold::store::Store;
use leasehold::store::keys::Keys;
use leasehold::store::memory::{MemoryServer, MemoryStore, Snapshot};
use leasehold::store::redis::RedisStore;
use serde_json::Value as Json;

use testkit::redis::{RedisServer, eventually};

pub const TIMEOUT: Duration = Duration::from_secs(5);
pub const TTL: Duration = Duration::from_secs(30);
pub const DURATION: LeaseDuration = LeaseDuration::new(TTL);
/// Older than the heartbeat of a leader that has any right.
const TOO_OLD: Duration = Duration::from_secs(36);

/// A result as a subscriber got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedResult {
    pub endpoint: String,
    pub instance: String,
    pub fence: u64,
    pub started_at_ms: u64,
    pub interval_ms: u64,
}

/// A server that no other test knows.
pub trait World {
    /// A way to the server, for one instance.
    fn store(&self) -> Arc<dyn Store>;
    fn clock(&self) -> Arc<dyn Clock>;
    /// Until the server's clock shows that much more.
    fn pass(&mut self, duration: Duration);
    /// The wall clock of the server is set back.
    fn clock_goes_back(&mut self, by: Duration);
    /// Whatever hold-off runs is over. Leases and heartbeats may be, too.
    fn end_hold_off(&mut self);
    fn delete_lease(&mut self, endpoint: &EndpointId);
    fn delete_result(&mut self, endpoint: &EndpointId);
    /// Sets what the store knows of the last grant to an instance; `None` forgets it.
    fn set_granted(&mut self, instance: &InstanceId, fence: Option<FenceToken>);
    fn delete_epoch(&mut self);
    /// Another client writes into a field of the epoch's hash.
    fn write_epoch(&mut self, field: &str, text: &str);
    /// Another client puts a key of another type in the epoch's place.
    fn replace_epoch(&mut self);
    /// Another client writes where the highest fence of all is kept.
    fn write_fence(&mut self, text: &str);
    /// Another client writes into the record of an instance's grants and releases.
    fn write_grants(&mut self, instance: &InstanceId, field: &str, text: &str);
    /// Another client writes where the fence of the last grant is kept.
    fn write_granted(&mut self, endpoint: &EndpointId, text: &str);
    /// Whatever proves that it is dead: its heartbeat is gone or, a leader's, too old (R13).
    fn delete_node(&mut self, instance: &InstanceId);
    /// What an instance tells about itself.
    fn info(&mut self, instance: &InstanceId) -> Option<InstanceInfo>;
    /// What is leased here are roles: heartbeats are the leaders', and nothing is published.
    fn of_roles(&self) -> bool;
    /// How long ago the heartbeat of a leader was written, and how long it lasts.
    fn leader_beat(&mut self, leader: &InstanceId) -> Option<(Duration, Duration)>;
    /// As if it had been written this long ago and were renewed since; `None`: it is gone.
    fn set_leader_beat(&mut self, leader: &InstanceId, ago: Option<Duration>);
    /// `None`: it never ends by itself.
    fn set_lease_left(&mut self, endpoint: &EndpointId, left: Option<Duration>);
    fn lease_left(&mut self, endpoint: &EndpointId) -> Option<Duration>;
    /// How long what is remembered of it lasts, if that ends before the year does.
    fn result_left(&mut self, endpoint: &EndpointId) -> Option<Duration>;
    fn flush(&mut self);
    fn save(&mut self);
    fn restart_empty(&mut self);
    fn restart_from_saved(&mut self);
    fn put_session(&mut self, suffix: &str, value: &[u8]);
    fn remove_session(&mut self, suffix: &str);
    fn set_drain(&mut self, name: &str, drained: bool);
    /// Every result announced so far.
    fn announced(&mut self) -> Vec<AnnouncedResult>;
    /// Every change of a verdict announced so far: `endpoint instance verdict since before failures`.
    fn changes(&mut self) -> Vec<String>;
}

pub struct MemoryWorld {
    server: Arc<MemoryServer>,
    clock: Arc<ManualClock>,
    saved: Option<Snapshot>,
    of_roles: bool,
}

impl MemoryWorld {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        Self { server: MemoryServer::new(&clock), clock, saved: None, of_roles: false }
    }

    pub fn of_roles() -> Self {
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        Self { server: MemoryServer::of_roles(&clock), clock, saved: None, of_roles: true }
    }
}

impl World for MemoryWorld {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(&self.server))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    fn pass(&mut self, duration: Duration) {
        self.clock.pass(duration);
    }

    fn clock_goes_back(&mut self, by: Duration) {
        self.server.step_clock(-i64::try_from(by.as_millis()).unwrap());
    }

    fn end_hold_off(&mut self) {
        self.clock.pass(DURATION.hold_off());
    }

    fn delete_lease(&mut self, endpoint: &EndpointId) {
        self.server.delete_lease(endpoint);
    }

    fn delete_result(&mut self, endpoint: &EndpointId) {
        self.server.delete_result(endpoint);
    }

    fn set_granted(&mut self, instance: &InstanceId, fence: Option<FenceToken>) {
        self.server.set_granted(instance, fence);
    }

    fn delete_epoch(&mut self) {
        self.server.delete_epoch();
    }

    fn write_epoch(&mut self, field: &str, text: &str) {
        self.server.write_epoch(field, text);
    }

    fn replace_epoch(&mut self) {
        self.server.replace_epoch();
    }

    fn write_fence(&mut self, text: &str) {
        self.server.write_fence(text);
    }

    fn write_grants(&mut self, instance: &InstanceId, field: &str, text: &str) {
        self.server.write_grants(instance, field, text);
    }

    fn write_granted(&mut self, endpoint: &EndpointId, text: &str) {
        self.server.write_granted(endpoint, text);
    }

    fn delete_node(&mut self, instance: &InstanceId) {
        match self.of_roles {
            false => self.server.delete_node(instance),
            true => self.server.set_leader_beat(instance, Some(TOO_OLD)),
        }
    }

    fn info(&mut self, instance: &InstanceId) -> Option<InstanceInfo> {
        self.server.info(instance)
    }

    fn of_roles(&self) -> bool {
        self.of_roles
    }

    fn leader_beat(&mut self, leader: &InstanceId) -> Option<(Duration, Duration)> {
        self.server.leader_beat(leader)
    }

    fn set_leader_beat(&mut self, leader: &InstanceId, ago: Option<Duration>) {
        self.server.set_leader_beat(leader, ago);
    }

    fn set_lease_left(&mut self, endpoint: &EndpointId, left: Option<Duration>) {
        self.server.set_lease_left(endpoint, left);
    }

    fn lease_left(&mut self, endpoint: &EndpointId) -> Option<Duration> {
        self.server.lease_left(endpoint)
    }

    fn result_left(&mut self, endpoint: &EndpointId) -> Option<Duration> {
        self.server.result_left(endpoint)
    }

    fn flush(&mut self) {
        self.server.flush();
    }

    fn save(&mut self) {
        self.saved = Some(self.server.snapshot());
    }

    fn restart_empty(&mut self) {
        self.server.crash();
        self.server.restart(None);
    }

    fn restart_from_saved(&mut self) {
        self.server.crash();
        self.server.restart(self.saved.as_ref());
    }

    fn put_session(&mut self, suffix: &str, value: &[u8]) {
        self.server.put_session(suffix, value);
    }

    fn remove_session(&mut self, suffix: &str) {
        self.server.remove_session(suffix);
    }

    fn set_drain(&mut self, name: &str, drained: bool) {
        self.server.set_drain(name, drained);
    }

    fn announced(&mut self) -> Vec<AnnouncedResult> {
        let heard = |it: &leasehold::store::memory::Announced| AnnouncedResult {
            endpoint: it.publication.tenure.endpoint.to_string(),
            instance: it.instance.to_string(),
            fence: it.publication.tenure.fence.get(),
            started_at_ms: it.publication.started_at_ms,
            interval_ms: it.publication.interval.as_millis() as u64,
        };
        self.server.announced_since(0).iter().map(heard).collect()
    }

    fn changes(&mut self) -> Vec<String> {
        let told = |it: &leasehold::store::memory::Announced| {
            let (endpoint, instance) = (&it.publication.tenure.endpoint, &it.instance);
            let VerdictState { since_ms, before_ms, failures, .. } = it.state;
            let verdict = it.state.verdict.unwrap();
            format!("{endpoint} {instance} {verdict} {since_ms} {before_ms} {failures}")
        };
        let announced = self.server.announced_since(0);
        announced.iter().filter(|it| it.is_change()).map(told).collect()
    }
}

pub struct RedisWorld {
    pub server: RedisServer,
    listener: redis::Connection,
    announced: Vec<Json>,
    of_roles: bool,
}

impl RedisWorld {
    pub fn new() -> Self {
        let server = RedisServer::start();
        let mut listener = server.connect().unwrap();
        redis::cmd("PSUBSCRIBE").arg("poll:results:*").exec(&mut listener).unwrap();
        Self { server, listener, announced: vec![], of_roles: false }
    }

    pub fn of_roles() -> Self {
        Self { of_roles: true, ..Self::new() }
    }

    pub fn redis_store(&self) -> RedisStore {
        match self.of_roles {
            false => store_at(&self.server.url()),
            true => role_store_at(&self.server.url()),
        }
    }

    fn prefix(&self) -> &'static str {
        if self.of_roles { "leader" } else { "poll" }
    }

    pub fn lease_key(&self, endpoint: &EndpointId) -> String {
        match self.of_roles {
            false => format!("poll:lease:{endpoint}"),
            true => format!("leader:{endpoint}"),
        }
    }

    fn lease_keys(&self) -> Vec<String> {
        let pattern = if self.of_roles { "leader:*" } else { "poll:lease:*" };
        let keys = self.server.cli(&["KEYS", pattern]);
        let others = ["leader:epoch", "leader:heartbeat:"];
        let lease = |it: &&str| !it.is_empty() && !others.iter().any(|other| it.starts_with(other));
        keys.lines().filter(lease).map(str::to_owned).collect()
    }

    /// Every announcement so far as it was sent. One more, sent now, tells that none is outstanding.
    pub fn announcements(&mut self) -> &[Json] {
        self.server.cli(&["PUBLISH", "poll:results:", "the end"]);
        loop {
            let message = self.listener.recv_response().unwrap();
            let parts: (String, String, String, String) = redis::from_redis_value(message).unwrap();
            if parts.3 == "the end" {
                return &self.announced;
            }
            let json: Json = serde_json::from_str(&parts.3).unwrap();
            assert_eq!(parts.2, format!("poll:results:{}", json["endpoint"].as_str().unwrap()));
            self.announced.push(json);
        }
    }

    pub fn forget_announcements(&mut self) {
        self.announced.clear();
    }

    fn now_us(&self) -> u64 {
        let shown = self.server.cli(&["TIME"]);
        let (seconds, micros) = shown.split_once('\n').unwrap();
        seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
    }

    fn now_ms(&self) -> u64 {
        self.now_us() / 1_000
    }

    fn epoch_since(&self, shift_ms: i64) {
        let key = format!("{}:epoch", self.prefix());
        let since: i64 = self.server.cli(&["HGET", &key, "since_ms"]).parse().unwrap();
        let shifted = (since + shift_ms).max(0).to_string();
        self.server.cli(&["HSET", &key, "since_ms", &shifted]);
    }
}

/// A store for `url` under the usual names.
pub fn store_at(url: &str) -> RedisStore {
    RedisStore::new(url, "redis", Keys::new("poll", "session:")).unwrap()
}

/// A store of roles for `url` under the usual names.
pub fn role_store_at(url: &str) -> RedisStore {
    RedisStore::new(url, "redis", Keys::of_roles("leader", "leader:heartbeat:")).unwrap()
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

impl World for RedisWorld {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.redis_store())
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(BootClock)
    }

    fn pass(&mut self, duration: Duration) {
        // Redis counts in milliseconds, and a key lasts through the millisecond in which it ends.
        let until = self.now_us() + duration.as_micros() as u64 + 1_000;
        let otherwise = || format!("the server's clock stands before {until}");
        eventually(|| self.now_us() > until, otherwise);
    }

    /// What a server sees whose clock was set back: everything it wrote down lies further ahead.
    fn clock_goes_back(&mut self, by: Duration) {
        self.epoch_since(by.as_millis() as i64);
        for key in self.lease_keys() {
            let left: u128 = self.server.cli(&["PTTL", &key]).parse().unwrap();
            self.server.cli(&["PEXPIRE", &key, &(left + by.as_millis()).to_string()]);
        }
    }

    fn end_hold_off(&mut self) {
        self.epoch_since(-(DURATION.hold_off().as_millis() as i64));
    }

    fn delete_lease(&mut self, endpoint: &EndpointId) {
        self.server.cli(&["DEL", &self.lease_key(endpoint)]);
    }

    fn delete_result(&mut self, endpoint: &EndpointId) {
        match self.of_roles {
            false => self.server.cli(&["DEL", &format!("poll:result:{endpoint}")]),
            true => self.server.cli(&["HDEL", "leader:epoch", &format!("term:{endpoint}")]),
        };
    }

    fn set_granted(&mut self, instance: &InstanceId, fence: Option<FenceToken>) {
        let key = format!("poll:grants:{instance}");
        match fence {
            Some(fence) => self.server.cli(&["HSET", &key, "granted", &fence.to_string()]),
            None => self.server.cli(&["DEL", &key]),
        };
    }

    fn delete_epoch(&mut self) {
        self.server.cli(&["DEL", &format!("{}:epoch", self.prefix())]);
    }

    fn write_epoch(&mut self, field: &str, text: &str) {
        self.server.cli(&["HSET", &format!("{}:epoch", self.prefix()), field, text]);
    }

    fn replace_epoch(&mut self) {
        self.delete_epoch();
        self.server.cli(&["SET", &format!("{}:epoch", self.prefix()), "1"]);
    }

    fn write_fence(&mut self, text: &str) {
        self.server.cli(&["SET", "poll:fence", text]);
    }

    fn write_grants(&mut self, instance: &InstanceId, field: &str, text: &str) {
        self.server.cli(&["HSET", &format!("poll:grants:{instance}"), field, text]);
    }

    fn write_granted(&mut self, endpoint: &EndpointId, text: &str) {
        match self.of_roles {
            false => {
                self.server.cli(&["HSET", &format!("poll:result:{endpoint}"), "granted", text])
            }
            true => self.server.cli(&["HSET", "leader:epoch", &format!("term:{endpoint}"), text]),
        };
    }

    fn delete_node(&mut self, instance: &InstanceId) {
        match self.of_roles {
            false => drop(self.server.cli(&["DEL", &format!("poll:node:{instance}")])),
            true => self.set_leader_beat(instance, Some(TOO_OLD)),
        }
    }

    fn info(&mut self, instance: &InstanceId) -> Option<InstanceInfo> {
        let mut connection = self.server.connect().unwrap();
        let mut read = redis::cmd("HMGET");
        read.arg(format!("poll:info:{instance}")).arg(&InstanceInfo::FIELDS);
        let values: Vec<Option<String>> = read.query(&mut connection).unwrap();
        InstanceInfo::parse(&values)
    }

    fn of_roles(&self) -> bool {
        self.of_roles
    }

    fn leader_beat(&mut self, leader: &InstanceId) -> Option<(Duration, Duration)> {
        let key = format!("leader:heartbeat:{leader}");
        let written: u64 = self.server.cli(&["GET", &key]).parse().ok()?;
        let left: i64 = self.server.cli(&["PTTL", &key]).parse().unwrap();
        let left = u64::try_from(left).map_or(Duration::MAX, Duration::from_millis);
        Some((Duration::from_millis(self.now_ms().saturating_sub(written)), left))
    }

    fn set_leader_beat(&mut self, leader: &InstanceId, ago: Option<Duration>) {
        let key = format!("leader:heartbeat:{leader}");
        match ago {
            None => self.server.cli(&["DEL", &key]),
            Some(ago) => {
                let written = self.now_ms() - ago.as_millis() as u64;
                self.server.cli(&["SET", &key, &written.to_string()])
            }
        };
    }

    fn set_lease_left(&mut self, endpoint: &EndpointId, left: Option<Duration>) {
        let key = self.lease_key(endpoint);
        match left {
            Some(left) => self.server.cli(&["PEXPIRE", &key, &millis(left)]),
            None => self.server.cli(&["PERSIST", &key]),
        };
    }

    fn result_left(&mut self, endpoint: &EndpointId) -> Option<Duration> {
        let left = self.server.cli(&["PTTL", &format!("poll:result:{endpoint}")]);
        let left = left.parse().ok().map(Duration::from_millis)?;
        (left < Duration::from_secs(365 * 86_400)).then_some(left)
    }

    fn lease_left(&mut self, endpoint: &EndpointId) -> Option<Duration> {
        let left: i64 = self.server.cli(&["PTTL", &self.lease_key(endpoint)]).parse().unwrap();
        match left {
            -2 => None,
            -1 => Some(Duration::MAX),
            left => Some(Duration::from_millis(left as u64)),
        }
    }

    fn flush(&mut self) {
        self.server.flushall();
    }

    fn save(&mut self) {
        self.server.save();
    }

    fn restart_empty(&mut self) {
        self.server.restart_empty();
    }

    fn restart_from_saved(&mut self) {
        self.server.restart();
    }

    fn put_session(&mut self, suffix: &str, value: &[u8]) {
        let key = format!("session:{suffix}");
        self.server.query(&[b"SET", key.as_bytes(), value]).unwrap();
    }

    fn remove_session(&mut self, suffix: &str) {
        self.server.cli(&["DEL", &format!("session:{suffix}")]);
    }

    fn set_drain(&mut self, name: &str, drained: bool) {
        self.server.cli(&[if drained { "SADD" } else { "SREM" }, "poll:drain", name]);
    }

    fn announced(&mut self) -> Vec<AnnouncedResult> {
        let heard = |it: &Json| AnnouncedResult {
            endpoint: it["endpoint"].as_str().unwrap().into(),
            instance: it["instance"].as_str().unwrap().into(),
            fence: it["fence"].as_u64().unwrap(),
            started_at_ms: it["started_at_ms"].as_u64().unwrap(),
            interval_ms: it["interval_ms"].as_u64().unwrap(),
        };
        self.announcements().iter().map(heard).collect()
    }

    fn changes(&mut self) -> Vec<String> {
        let mut connection = self.server.connect().unwrap();
        let mut read = redis::cmd("XRANGE");
        let entries: Vec<(String, Vec<String>)> =
            read.arg("poll:changes").arg("-").arg("+").query(&mut connection).unwrap();
        let told = |(_, fields): &(String, Vec<String>)| {
            let [name, json] = &fields[..] else { panic!("{fields:?}") };
            assert_eq!(name, "change");
            let it: Json = serde_json::from_str(json).unwrap();
            let text = |name: &str| it[name].as_str().unwrap().to_owned();
            let before = it["before_ms"].as_u64().unwrap_or(0);
            let (since, failures) = (&it["since_ms"], &it["failures"]);
            let [endpoint, instance, verdict] = ["endpoint", "instance", "verdict"].map(text);
            format!("{endpoint} {instance} {verdict} {since} {before} {failures}")
        };
        entries.iter().map(told).collect()
    }
}
