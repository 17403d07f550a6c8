//! Reading how roles stand on a real Redis.

use std::time::Duration;

use redis::Value;

use crate::model::{EndpointId, InstanceId, Tenure};
use crate::store::keys::TERM_FIELD;
use crate::store::redis::RedisStore;
use crate::store::reply;
use crate::store::{Asked, BATCH_MAX, BEAT_EXTRA, Seat, Wake};

impl RedisStore {
    pub(crate) fn read_seats(&self, roles: &[EndpointId], timeout: Duration) -> Asked<Vec<Seat>> {
        let (op, keys) = ("read roles on", &self.server.keys);
        let mut call = reply::Call::default();
        call.key(keys.epoch());
        call.arg(keys.leader_heartbeats().unwrap_or_default()).arg(BEAT_EXTRA.as_millis());
        for role in roles {
            call.key(keys.lease(role)).arg(keys.suffix(role));
        }
        let value = self.call(op, timeout, |wire| reply::SEATS.run(wire, &call))?;
        let seats = match &value {
            Value::Array(parts) => match &parts[..] {
                [Value::Int(now_us), seats @ ..] => {
                    let now_us = u64::try_from(*now_us).unwrap_or(0);
                    seats.iter().map(|it| reply::seat(now_us, it)).collect::<Option<Vec<Seat>>>()
                }
                _ => None,
            },
            _ => None,
        };
        seats.filter(|it| it.len() == roles.len()).ok_or_else(|| self.server.unexpected(op))
    }

    /// Gives back the roles of a dead leader, each by its own term; how many there were. A fresh heartbeat is
    /// no death, unless it is certain.
    pub(crate) fn bury_leader(
        &self,
        dead: &InstanceId,
        certain: bool,
        timeout: Duration,
    ) -> Asked<Option<usize>> {
        let (mut count, keys) = (0, &self.server.keys);
        for roles in self.list_roles(timeout)?.chunks(BATCH_MAX) {
            for (role, seat) in roles.iter().zip(self.read_seats(roles, timeout)?) {
                if seat.leader.is_none_or(|it| it.it != *dead) {
                    continue;
                }
                if !certain && seat.beaten.is_some() && !seat.is_stale {
                    return Ok(None);
                }
                let word = Wake { freed: vec![role.clone()], ..Wake::new(dead, None) };
                let tenure = Tenure::new(role.clone(), seat.term);
                let call = reply::Call::release(keys, dead, &[tenure], &[word]);
                self.call("release on", timeout, |wire| reply::RELEASE.run(wire, &call))?;
                count += 1;
            }
        }
        Ok(Some(count))
    }

    /// Every role that was ever led has its last term in the epoch's hash.
    pub(crate) fn list_roles(&self, timeout: Duration) -> Asked<Vec<EndpointId>> {
        let fields: Vec<Vec<u8>> = self.call("list roles on", timeout, |wire| {
            redis::cmd("HKEYS").arg(self.server.keys.epoch()).query(wire)
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
