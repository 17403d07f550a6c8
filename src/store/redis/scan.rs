//! How are many keys read, although one of them may be malformed? Walks over sessions, node keys and leases.

use std::time::Duration;

use redis::Value;

use crate::config::Topology;
use crate::model::{InstanceId, SESSION_MAX_BYTES, Weight};
use crate::store::redis::RedisStore;
use crate::store::redis::locator::Route;
use crate::store::redis::reply;
use crate::store::redis::script::{self, Call};
use crate::store::{Fault, Lasting, RawSession, SCAN_COUNT, StoreError, StoreResult};

impl RedisStore {
    /// A step of a walk over all keys that begin so, where everything but the sessions is.
    pub(crate) fn scan(
        &self,
        op: &'static str,
        prefix: &str,
        cursor: u64,
        timeout: Duration,
    ) -> StoreResult<(u64, Vec<Vec<u8>>)> {
        self.scan_at(Route::Home, op, prefix, cursor, timeout)
    }

    pub(crate) fn scan_at(
        &self,
        route: Route<'_>,
        op: &'static str,
        prefix: &str,
        cursor: u64,
        timeout: Duration,
    ) -> StoreResult<(u64, Vec<Vec<u8>>)> {
        let pattern = format!("{}*", glob_escaped(prefix));
        self.call_at(route, op, timeout, |connection| {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            scan.query(connection)
        })
    }

    /// Heartbeats with the time that each has left: that of a revoked instance ends when its leases may be taken over (R16).
    pub(crate) fn read_heartbeats(
        &self,
        instances: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<Lasting<Weight>>>> {
        let (keys, op) = (&self.server.keys, "read instances on");
        let ends: Vec<String> = instances.iter().map(|it| keys.revoked(it)).collect();
        let nodes = instances.iter().map(|it| keys.node(it));
        self.read_capped(op, "heartbeat_ttl_ms", nodes, &ends, timeout, Weight::from_node_value)
    }

    /// Keys that expire. Each of `ends` names a key that ends the one in the same place sooner.
    pub(crate) fn read_capped<T>(
        &self,
        op: &'static str,
        longest: &str,
        keys: impl Iterator<Item = String>,
        ends: &[String],
        timeout: Duration,
        read: impl Fn(&[u8]) -> T,
    ) -> StoreResult<Vec<Option<Lasting<T>>>> {
        let mut call = Call::default();
        call.key(self.server.keys.epoch()).arg(longest);
        for end in ends {
            call.bytes(end.as_bytes());
        }
        let mut asked = 0;
        for key in keys {
            call.key(key);
            asked += 1;
        }
        if asked == 0 {
            return Ok(vec![]);
        }
        let value =
            self.call(op, timeout, |connection| script::READ_CAPPED.run(connection, &call))?;
        let unexpected = || self.server.unexpected(op);
        let Value::Array(values) = value else { return Err(unexpected()) };
        let lasting = |pair: &[Value]| match pair {
            [Value::Nil, _] => Ok(None),
            [Value::BulkString(value), Value::Int(ms)] => {
                // A key without TTL, before any instance has recorded the longest one.
                let left = u64::try_from(*ms).map_or(Duration::MAX, Duration::from_millis);
                Ok(Some(Lasting { value: read(value), left }))
            }
            _ => Err(unexpected()),
        };
        let found: Vec<_> = values.chunks(2).map(lasting).collect::<StoreResult<_>>()?;
        if found.len() == asked { Ok(found) } else { Err(unexpected()) }
    }

    /// By one `EXISTS` of all of them. A cluster keeps sessions on several shards, where one command cannot ask for
    /// all, and a user may lack the right: then they have to be read.
    pub(crate) fn any_exists(&self, keys: &[String], timeout: Duration) -> StoreResult<bool> {
        if keys.is_empty() || self.server.locator.topology() == Topology::Cluster {
            return Ok(!keys.is_empty());
        }
        let count: StoreResult<u64> = self.call("look for sessions on", timeout, |connection| {
            redis::cmd("EXISTS").arg(keys).query(connection)
        });
        match count {
            Ok(count) => Ok(count > 0),
            Err(error) if error.fault == Fault::Unreachable => Err(error),
            Err(_) => Ok(true),
        }
    }

    /// Uses plain reading commands, so a read-only user suffices. One command answers for a key that is no string, or
    /// enormous. `None` where a session has vanished meanwhile.
    pub(crate) fn read_sessions(
        &self,
        keys: &[String],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<RawSession>>> {
        let op = "read sessions on";
        if keys.is_empty() {
            return Ok(vec![]);
        }
        let answers = self.each_key(op, keys, timeout, 2, |pipe, at| {
            let key = &keys[at];
            pipe.cmd("STRLEN").arg(key).cmd("GETRANGE").arg(key).arg(0).arg(SESSION_MAX_BYTES);
        })?;
        let odd: Vec<String> = (keys.iter().zip(answers.chunks(2)))
            .filter(|it| reply::session(it.1).is_none())
            .map(|it| it.0.clone())
            .collect();
        let kinds: Vec<Value> = if odd.is_empty() {
            vec![]
        } else {
            self.each_key(op, &odd, timeout, 1, |pipe, at| {
                pipe.cmd("TYPE").arg(&odd[at]);
            })?
        };
        let kinds = kinds.into_iter().map(|it| {
            let kind = it.extract_error().and_then(|it| Ok(redis::from_redis_value(it)?));
            kind.map_err(|error| self.server.error(op, &error))
        });
        let kinds: Vec<String> = kinds.collect::<StoreResult<_>>()?;
        let mut kinds = kinds.into_iter();
        let session = |answer: &[Value]| match reply::session(answer) {
            Some(session) => Ok(Some(session)),
            None => reply::odd_session(kinds.next().as_deref(), answer)
                .map_err(|error| self.server.error(op, &error)),
        };
        answers.chunks(2).map(session).collect()
    }
}

/// A prefix is text, not a pattern.
pub(crate) fn glob_escaped(prefix: &str) -> String {
    let special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\');
    prefix.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Says which key it is that holds something else than ours. That does not pass by itself.
pub(crate) fn of_wrong_type(error: StoreError, key: &str, kind: &str) -> StoreError {
    if !error.reason.contains("WRONGTYPE") {
        return error;
    }
    let reason =
        format!("WRONGTYPE the key {key} is not {kind}: look at it, and rename or delete it");
    StoreError { fault: Fault::Misconfigured, reason, ..error }
}
