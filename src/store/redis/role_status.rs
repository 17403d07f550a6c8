//! Who leads each role, since when and how certain is it? Reads it from a real Redis.

use std::time::Duration;

use redis::Value;

use crate::model::{EndpointId, FenceToken, InstanceId};
use crate::store::admin::overview::short_string;
use crate::store::keys::{TERM_FIELD, TTL_FIELD};
use crate::store::redis::RedisStore;
use crate::store::redis::reply;
use crate::store::redis::script::{self, Call};
use crate::store::{BATCH_MAX, LEADER_HEARTBEAT_EXTRA, Lasting, RoleStatus, StoreResult};

impl RedisStore {
    pub(crate) fn read_role_statuses(
        &self,
        roles: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<RoleStatus>> {
        let (op, keys) = ("read roles on", &self.server.keys);
        let mut call = Call::default();
        call.key(keys.epoch());
        call.arg(keys.leader_heartbeats()).arg(LEADER_HEARTBEAT_EXTRA.as_millis());
        for role in roles {
            call.lease(keys, role).arg(keys.field_suffix(role));
        }
        let value =
            self.call(op, timeout, |connection| script::ROLE_STATUS.run(connection, &call))?;
        let statuses = match &value {
            Value::Array(parts) => match &parts[..] {
                [Value::Int(now_us), statuses @ ..] => {
                    let now_us = u64::try_from(*now_us).unwrap_or(0);
                    statuses
                        .iter()
                        .map(|it| reply::role_status(now_us, it))
                        .collect::<Option<Vec<RoleStatus>>>()
                }
                _ => None,
            },
            _ => None,
        };
        statuses.filter(|it| it.len() == roles.len()).ok_or_else(|| self.server.unexpected(op))
    }

    /// How every role stands that was ever led, by plain reading commands: for people.
    pub fn role_overview(&self, timeout: Duration) -> StoreResult<Vec<(EndpointId, RoleStatus)>> {
        let (op, keys) = ("read roles on", &self.server.keys);
        let roles = self.list_roles(timeout)?;
        let mut statuses = Vec::with_capacity(roles.len());
        for batch in roles.chunks(BATCH_MAX) {
            let mut pipe = redis::pipe();
            pipe.cmd("TIME");
            for role in batch {
                short_string(&mut pipe, &keys.lease(role));
                let fields = [TTL_FIELD, TERM_FIELD].map(|it| format!("{it}{role}"));
                pipe.cmd("HMGET").arg(keys.epoch()).arg(&fields);
            }
            let answers = self.each(op, &pipe, timeout)?;
            let now_us = answers.first().and_then(reply::server_us).unwrap_or(0);
            let found: Vec<RoleStatus> =
                answers[1..].chunks(3).map(|it| plain_status(now_us, it)).collect();
            statuses.extend(self.with_heartbeats(found, now_us, timeout)?);
        }
        Ok(roles.into_iter().zip(statuses).collect())
    }

    fn with_heartbeats(
        &self,
        mut statuses: Vec<RoleStatus>,
        now_us: u64,
        timeout: Duration,
    ) -> StoreResult<Vec<RoleStatus>> {
        let keys = &self.server.keys;
        let led =
            || statuses.iter().enumerate().filter_map(|(n, it)| Some((n, it.leader.as_ref()?)));
        let mut pipe = redis::pipe();
        for heartbeat in led().map(|it| keys.leader_heartbeat(&it.1.value)) {
            short_string(&mut pipe, &heartbeat);
        }
        let places: Vec<usize> = led().map(|it| it.0).collect();
        let answers = self.each("read roles on", &pipe, timeout)?;
        for (place, answer) in places.into_iter().zip(answers.chunks(2)) {
            let written_ms = answer.first().and_then(reply::number_in);
            let status = &mut statuses[place];
            status.heartbeat_age = written_ms
                .map(|it| Duration::from_micros(now_us.saturating_sub(it.saturating_mul(1_000))));
            status.is_stale = status
                .heartbeat_age
                .zip(status.ttl)
                .is_some_and(|(age, ttl)| RoleStatus::is_stale_at(age, ttl));
        }
        Ok(statuses)
    }

    /// Every role that was ever led has its last term in the epoch's hash.
    pub(crate) fn list_roles(&self, timeout: Duration) -> StoreResult<Vec<EndpointId>> {
        let fields: Vec<Vec<u8>> = self.call("list roles on", timeout, |connection| {
            redis::cmd("HKEYS").arg(self.server.keys.epoch()).query(connection)
        })?;
        let role = |field: &Vec<u8>| {
            let name = field.strip_prefix(TERM_FIELD.as_bytes())?;
            EndpointId::parse(std::str::from_utf8(name).ok()?).ok()
        };
        let mut roles: Vec<EndpointId> = fields.iter().filter_map(role).collect();
        roles.sort_unstable();
        Ok(roles)
    }
}

/// From the owner, the time left, and the fields of the epoch's hash.
fn plain_status(now_us: u64, answers: &[Value]) -> RoleStatus {
    let leader = match answers {
        [Value::BulkString(owner), Value::Int(left), _] if !owner.is_empty() => {
            // One without an end is cut short by the first who stands for it.
            let left = u64::try_from(*left).map_or(Duration::MAX, Duration::from_millis);
            Some(Lasting { value: InstanceId::new(&String::from_utf8_lossy(owner)), left })
        }
        _ => None,
    };
    let field = |n: usize| match answers.get(2) {
        Some(Value::Array(fields)) => fields.get(n).and_then(reply::number_in),
        _ => None,
    };
    let term = FenceToken(field(1).unwrap_or(0));
    RoleStatus {
        leader,
        is_stale: false,
        heartbeat_age: None,
        term,
        led_for: now_us.checked_sub(term.0).map(Duration::from_micros),
        ttl: field(0).map(Duration::from_millis),
    }
}
