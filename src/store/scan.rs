//! Reading many keys without choking on one: sessions, node keys, leases.

use std::time::Duration;

use redis::{ConnectionLike, Value};

use crate::model::SESSION_MAX_BYTES;
use crate::store::redis::RedisStore;
use crate::store::reply;
use crate::store::{Asked, Lasting, RawSession};

/// How many keys one step of a scan looks at.
const SCAN_COUNT: usize = 1_000;
impl RedisStore {
    pub(crate) fn scan(
        &self,
        op: &'static str,
        prefix: &str,
        cursor: u64,
        timeout: Duration,
    ) -> Asked<(u64, Vec<Vec<u8>>)> {
        let pattern = format!("{}*", glob_escaped(prefix));
        self.call(op, timeout, |wire| {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            scan.query(wire)
        })
    }

    pub(crate) fn read_clipped<T>(
        &self,
        op: &'static str,
        longest: &str,
        keys: impl Iterator<Item = String>,
        timeout: Duration,
        read: impl Fn(&[u8]) -> T,
    ) -> Asked<Vec<Option<Lasting<T>>>> {
        let mut call = reply::Call::default();
        call.key(self.server.keys.epoch()).arg(longest);
        let mut asked = 0;
        for key in keys {
            call.key(key);
            asked += 1;
        }
        if asked == 0 {
            return Ok(vec![]);
        }
        let value = self.call(op, timeout, |wire| reply::CLIPPED.run(wire, &call))?;
        let unexpected = || self.server.unexpected(op);
        let Value::Array(values) = value else { return Err(unexpected()) };
        let lasting = |pair: &[Value]| match pair {
            [Value::Nil, _] => Ok(None),
            [Value::BulkString(value), Value::Int(ms)] => {
                // One that lasts for ever, on a server that nobody has set a time on yet.
                let left = u64::try_from(*ms).map_or(Duration::MAX, Duration::from_millis);
                Ok(Some(Lasting { it: read(value), left }))
            }
            _ => Err(unexpected()),
        };
        let found: Vec<_> = values.chunks(2).map(lasting).collect::<Asked<_>>()?;
        if found.len() == asked { Ok(found) } else { Err(unexpected()) }
    }

    /// By plain reading commands, so that a user who may only read sessions suffices; without choking
    /// on one that is no string, or enormous. `None` where one has vanished meanwhile.
    pub(crate) fn read_sessions(
        &self,
        keys: &[String],
        timeout: Duration,
    ) -> Asked<Vec<Option<RawSession>>> {
        let op = "read sessions on";
        if keys.is_empty() {
            return Ok(vec![]);
        }
        let answers = self.call(op, timeout, |wire| {
            let mut pipe = redis::pipe();
            for key in keys {
                pipe.cmd("STRLEN").arg(key).cmd("GETRANGE").arg(key).arg(0).arg(SESSION_MAX_BYTES);
            }
            wire.req_packed_commands(&pipe.get_packed_pipeline(), 0, 2 * keys.len())
        })?;
        let odd: Vec<&String> = (keys.iter().zip(answers.chunks(2)))
            .filter(|it| reply::session(it.1).is_none())
            .map(|it| it.0)
            .collect();
        let kinds: Vec<String> = if odd.is_empty() {
            vec![]
        } else {
            self.call(op, timeout, |wire| {
                let mut pipe = redis::pipe();
                odd.iter().for_each(|it| {
                    pipe.cmd("TYPE").arg(*it);
                });
                pipe.query(wire)
            })?
        };
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
