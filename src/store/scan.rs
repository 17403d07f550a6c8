//! Reading many keys without choking on one: sessions, node keys, leases.

use std::time::Duration;

use redis::{ConnectionLike, Value};

use crate::model::SESSION_MAX_BYTES;
use crate::store::redis::RedisStore;
use crate::store::reply;
use crate::store::{Asked, RawSession, Seen};

/// How many keys one step of a scan looks at.
const SCAN_COUNT: usize = 1_000;
/// How many sessions are read in one exchange: each may be large.
pub(crate) const SESSIONS_AT_ONCE: usize = 200;

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

    pub(crate) fn read_clipped(
        &self,
        op: &'static str,
        longest: &str,
        keys: &[Vec<u8>],
        timeout: Duration,
    ) -> Asked<Seen<Vec<Option<Vec<u8>>>>> {
        let mut call = reply::Call::default();
        call.key(self.server.keys.epoch()).arg(longest);
        keys.iter().for_each(|it| {
            call.key(it);
        });
        let value = self.call(op, timeout, |wire| reply::CLIPPED.run(wire, &call))?;
        let unexpected = || self.server.unexpected(op);
        let Value::Array(mut values) = value else { return Err(unexpected()) };
        let first_end = match values.pop() {
            Some(Value::Int(ms)) => u64::try_from(ms).ok().map(Duration::from_millis),
            _ => return Err(unexpected()),
        };
        let found = redis::from_redis_value(Value::Array(values)).map_err(|_| unexpected())?;
        Ok(Seen { found, first_end })
    }

    /// By plain reading commands, so that a user who may only read sessions suffices; without choking
    /// on one that is no string, or enormous. `None` where one has vanished meanwhile.
    pub(crate) fn read_sessions(
        &self,
        keys: &[Vec<u8>],
        timeout: Duration,
        found: &mut Vec<Option<RawSession>>,
    ) -> Asked<()> {
        let op = "read sessions on";
        let answers = self.call(op, timeout, |wire| {
            let mut pipe = redis::pipe();
            for key in keys {
                pipe.cmd("STRLEN").arg(key).cmd("GETRANGE").arg(key).arg(0).arg(SESSION_MAX_BYTES);
            }
            wire.req_packed_commands(&pipe.get_packed_pipeline(), 0, 2 * keys.len())
        })?;
        let odd: Vec<&Vec<u8>> = (keys.iter().zip(answers.chunks(2)))
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
        for answer in answers.chunks(2) {
            found.push(match reply::session(answer) {
                Some(session) => Some(session),
                None => reply::odd_session(kinds.next().as_deref(), answer)
                    .map_err(|error| self.server.error(op, &error))?,
            });
        }
        Ok(())
    }
}

/// A prefix is text, not a pattern.
fn glob_escaped(prefix: &str) -> String {
    let special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\');
    prefix.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}
