//! How does a request reach a real Redis? Connections with deadlines, scripts, and the meaning of errors.
//!
//! A `RedisStore` keeps up to `idle_max` idle connections to each server. A thread whose requests must never wait behind those
//! of another thread has a `RedisStore` of its own ([`RedisStore::connection`]).

pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod endings;
pub(crate) mod history;
pub(crate) mod locator;
pub(crate) mod push_reader;
pub(crate) mod reply;
mod revocations;
pub(crate) mod role_status;
pub(crate) mod roles;
pub(crate) mod scan;
pub(crate) mod script;
pub(crate) mod server_check;
pub(crate) mod sharded_keys;
pub(crate) mod subscription;
pub(crate) mod tls;
pub(crate) mod verbs;

use std::sync::Arc;
use std::time::Duration;

use ::redis::{RedisError, RedisResult};
use parking_lot::{Mutex, MutexGuard};

use crate::clock::{BootClock, Clock};
use crate::config::{Config, Topology};
use crate::model::InstanceId;
use crate::store::keys::Keys;
use crate::store::redis::connection::Connection;
use crate::store::redis::locator::{Peer, Route, ServerLocator};
use crate::store::{Failures, Fault, StoreError, StoreResult};

/// A pool of connections to one Redis.
#[derive(Debug)]
pub struct RedisStore {
    pub(crate) server: Arc<Server>,
    idle: Mutex<Idle>,
    idle_max: usize,
}

/// The idle connections.
#[derive(Debug, Default)]
struct Idle {
    connections: Vec<Connection>,
    /// How often the store had moved when they were last used.
    moves: u64,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) locator: ServerLocator,
    pub(crate) shown: String,
    pub(crate) keys: Keys,
    pub(crate) failures: Arc<Failures>,
    /// How many replicas must have a grant or renewal before it counts.
    pub(crate) min_replicas: u32,
}

impl RedisStore {
    /// A store for `url`. Nothing is connected yet. `shown` is what people call it.
    #[cfg(any(test, feature = "__internals"))]
    pub fn new(url: &str, shown: &str, keys: Keys) -> StoreResult<Self> {
        let url = crate::config::RedisUrl::parse(url).map_err(|error| StoreError {
            op: "understand",
            target: shown.into(),
            fault: Fault::Misconfigured,
            reason: format!("the URL {error}"),
        })?;
        let config = Config { redis: url, ..Config::default() };
        let locator = ServerLocator::new(&config, &keys.epoch());
        Ok(Self::at(locator, shown, keys, 0))
    }

    fn at(locator: ServerLocator, shown: &str, keys: Keys, min_replicas: u32) -> Self {
        let failures = Arc::default();
        let keys = keys.in_database(locator.database());
        let server = Server { locator, shown: shown.into(), keys, failures, min_replicas };
        Self { server: Arc::new(server), idle: Mutex::default(), idle_max: 4 }
    }

    /// The leases on endpoints of `config`.
    pub fn of_endpoints(config: &Config) -> Self {
        Self::of(config, Keys::new(&config.prefix, &config.session_prefix))
    }

    /// The leases on roles of `config`.
    pub fn of_roles(config: &Config) -> Self {
        Self::of(config, Keys::of_roles(&config.leader_prefix, &config.leader_heartbeat_prefix()))
    }

    fn of(config: &Config, keys: Keys) -> Self {
        let locator = ServerLocator::new(config, &keys.epoch());
        Self::at(locator, &config.redis.to_string(), keys, config.min_replicas)
    }

    /// Another store for the same server, with one connection that it shares with no other store.
    pub fn connection(&self) -> Self {
        Self { server: Arc::clone(&self.server), idle: Mutex::default(), idle_max: 1 }
    }

    /// Counts the failed requests of all stores for the same server.
    pub fn failures(&self) -> &Arc<Failures> {
        &self.server.failures
    }

    /// One exchange under one deadline. Keeps the connection only if the exchange succeeded.
    pub(crate) fn call<T>(
        &self,
        op: &'static str,
        timeout: Duration,
        exchange: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> StoreResult<T> {
        self.call_at(Route::Home, op, timeout, exchange)
    }

    /// The same with a part of the store.
    pub(crate) fn call_at<T>(
        &self,
        route: Route<'_>,
        op: &'static str,
        timeout: Duration,
        exchange: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> StoreResult<T> {
        let deadline = BootClock.now() + timeout;
        let locator = &self.server.locator;
        let (mut tried, mut asked) = ("connect to", None);
        let answer = locator.peer(route, deadline).and_then(|peer| {
            let peer = asked.insert(peer);
            let mut connection = match self.idle(peer) {
                Some(connection) => connection,
                None => locator.connect(peer, deadline)?,
            };
            tried = op;
            connection.set_deadline(deadline);
            // A connection is dropped after any error: a reply may still be pending, or the server may no longer be the
            // right one.
            let answer = exchange(&mut connection)?;
            self.keep(connection);
            Ok(answer)
        });
        answer.map_err(|error| {
            locator.doubt(&error);
            let mut error = self.server.error(tried, &error);
            // The URL names several servers: says which one failed.
            if let Some(peer) = asked.filter(|_| locator.is_many()) {
                error.reason = format!("{peer}: {}", error.reason);
            }
            error
        })
    }

    /// A connection to this peer that is there already; those that lead elsewhere are left to callers that need them.
    fn idle(&self, peer: &Peer) -> Option<Connection> {
        let mut idle = self.idle_now();
        let at = idle.connections.iter().rposition(|it| *it.peer == *peer)?;
        let connection = idle.connections.swap_remove(at);
        drop(idle);
        connection.if_quiet()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle_now();
        if idle.connections.iter().filter(|it| it.peer == connection.peer).count() < self.idle_max {
            idle.connections.push(connection);
        }
    }

    /// Drops all idle connections after the store has moved: their servers may have been demoted or be gone.
    fn idle_now(&self) -> MutexGuard<'_, Idle> {
        let moves = self.server.locator.moves();
        let mut idle = self.idle.lock();
        if idle.moves != moves {
            *idle = Idle { connections: Vec::new(), moves };
        }
        idle
    }
}

impl Server {
    pub(crate) fn error(&self, op: &'static str, error: &RedisError) -> StoreError {
        let in_cluster = self.locator.topology() == Topology::Cluster;
        let (fault, reason) = server_check::explained(error, in_cluster, self.locator.names());
        self.failures.count(fault);
        StoreError { op, target: self.shown.clone(), fault, reason }
    }

    pub(crate) fn unexpected(&self, op: &'static str) -> StoreError {
        let reason = reply::GARBLED.into();
        self.failures.count(Fault::Refused);
        StoreError { op, target: self.shown.clone(), fault: Fault::Refused, reason }
    }
}

/// The instance whose key this is.
pub(crate) fn named_in(key: &[u8], prefix: &str) -> Option<InstanceId> {
    let id = std::str::from_utf8(key.strip_prefix(prefix.as_bytes())?).ok()?;
    Some(InstanceId::new(id))
}
