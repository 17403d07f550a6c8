//! Signs of life and revocations as scripts (R16): beat.lua, signs_of_life.lua and revoke_instance.lua.

use std::time::Duration;

use ::redis::Value;

use crate::model::InstanceId;
use crate::store::StoreResult;
use crate::store::redis::RedisStore;
use crate::store::redis::reply;
use crate::store::redis::script::{self, Call};
use crate::store::revocations::{
    Beat, Hint, REVOCATIONS_PER_MINUTE, Revocation, RevocationReply, Revocations, SignsOfLife,
};

impl Revocations for RedisStore {
    fn beat(&self, me: &InstanceId, beats: u64, timeout: Duration) -> StoreResult<Beat> {
        let (op, keys) = ("write a sign of life on", &self.server.keys);
        let mut call = Call::default();
        call.key(keys.info(me)).key(keys.revoked(me)).arg(beats);
        let value = self.call(op, timeout, |connection| script::BEAT.run(connection, &call))?;
        match reply::number(&value) {
            Some(0) => Ok(Beat::Noted),
            Some(1) => Ok(Beat::Unknown),
            Some(until_ms) => Ok(Beat::Revoked(until_ms)),
            None => Err(self.server.unexpected(op)),
        }
    }

    fn signs_of_life(
        &self,
        instances: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<SignsOfLife>> {
        if instances.is_empty() {
            return Ok(vec![]);
        }
        let (op, keys) = ("read signs of life on", &self.server.keys);
        let mut call = Call::default();
        for instance in instances {
            call.key(keys.info(instance)).key(keys.revoked(instance));
            call.arg(keys.message_channel(Some(instance)));
        }
        let value =
            self.call(op, timeout, |connection| script::SIGNS_OF_LIFE.run(connection, &call))?;
        let signs = signs_of_life(&value).filter(|it| it.len() == instances.len());
        signs.ok_or_else(|| self.server.unexpected(op))
    }

    fn revoke_instance(
        &self,
        revocation: &Revocation,
        timeout: Duration,
    ) -> StoreResult<RevocationReply> {
        let (op, keys) = ("revoke an instance on", &self.server.keys);
        let Revocation { suspect, hint, not_after_us } = revocation;
        let beats = match hint {
            Hint::NoHeartbeat { beats } | Hint::NoSubscriber { beats } => *beats,
            Hint::Operator => 0,
        };
        let mut call = Call::default();
        call.key(keys.epoch()).key(keys.node(suspect)).key(keys.info(suspect));
        call.key(keys.revoked(suspect)).key(keys.revocations());
        call.arg(hint.as_str()).arg(beats).arg(keys.message_channel(Some(suspect)));
        call.arg(REVOCATIONS_PER_MINUTE).arg(not_after_us);
        // With `--min-replicas` a revocation counts only when they have it, as a grant does.
        let value = self.confirmed_by(op, timeout, |connection| {
            script::REVOKE_INSTANCE.run(connection, &call)
        })?;
        revocation_reply(&value).ok_or_else(|| self.server.unexpected(op))
    }
}

fn signs_of_life(value: &Value) -> Option<Vec<SignsOfLife>> {
    let Value::Array(instances) = value else { return None };
    let signs = |it: &Value| {
        let Value::Array(parts) = it else { return None };
        let [beats, subscribers, revoked] = &parts[..] else { return None };
        Some(SignsOfLife {
            beats: reply::number(beats),
            subscribers: reply::number(subscribers).and_then(|it| u32::try_from(it).ok()),
            revoked_until_ms: reply::number(revoked),
        })
    };
    instances.iter().map(signs).collect()
}

fn revocation_reply(value: &Value) -> Option<RevocationReply> {
    let Value::Array(parts) = value else { return None };
    let word = reply::text(parts.first()?)?;
    let left = || Some(Duration::from_millis(reply::number(parts.get(1)?)?));
    Some(match word.as_str() {
        "revoked" => RevocationReply::Revoked(left()?),
        "already" => RevocationReply::Already(left()?),
        "gone" => RevocationReply::Gone,
        "unable" => RevocationReply::Unable,
        "alive" => RevocationReply::Alive,
        "hold-off" => RevocationReply::HoldOff,
        "late" => RevocationReply::Late,
        "limit" => RevocationReply::Limit,
        _ => return None,
    })
}
