//! How do heartbeats, leases and their records end? revoke.lua, retire.lua and the revocation of roles.

use std::time::Duration;

use ::redis::ConnectionLike;

use crate::model::{EndpointId, InstanceId, Tenure};
use crate::store::announcement;
use crate::store::redis::RedisStore;
use crate::store::redis::script::{self, Call};
use crate::store::{BATCH_MAX, PeerMessage, RequestContext, Store, StoreResult};

/// TTL of the result of an endpoint that is no longer polled.
pub(crate) const RETIRED_LASTS: Duration = Duration::from_secs(86_400);

impl RedisStore {
    /// Deletes the heartbeat of the caller and what it told about itself.
    pub(crate) fn withdraw_heartbeat(&self, context: &RequestContext) -> StoreResult<()> {
        let keys = &self.server.keys;
        let message = PeerMessage::new(&context.instance, None);
        self.call("withdraw on", context.timeout, |connection| {
            let mut pipe = ::redis::pipe();
            pipe.cmd("DEL").arg(keys.node(&context.instance));
            pipe.cmd("PUBLISH")
                .arg(keys.message_channel(None))
                .arg(announcement::encode_message(&message, keys.database()));
            pipe.cmd("DEL").arg(keys.info(&context.instance));
            // Ignore what is denied then: the heartbeat is deleted, the message is only a hint, and the info expires.
            let answers = connection.req_packed_commands(&pipe.get_packed_pipeline(), 0, 3)?;
            answers.into_iter().take(1).try_for_each(|it| it.extract_error().map(drop))
        })
    }

    /// Scans all leases: only for `release` of a dead instance.
    pub(crate) fn revoke_leases(
        &self,
        dead: &InstanceId,
        certain: bool,
        timeout: Duration,
    ) -> StoreResult<Option<usize>> {
        let keys = &self.server.keys;
        let prefix = keys.lease_prefix();
        let (mut cursor, mut count) = (0, 0);
        loop {
            let (next, page) = self.scan("list leases on", prefix, cursor, timeout)?;
            let mut call = Call::default();
            call.key(keys.node(dead)).arg(dead).arg(u8::from(certain)).arg(keys.info(dead));
            for key in &page {
                let suffix =
                    key.strip_prefix(prefix.as_bytes()).and_then(|it| std::str::from_utf8(it).ok());
                if let Some(endpoint) = suffix.and_then(|it| EndpointId::parse(it).ok()) {
                    call.lease_and_record(keys, &endpoint);
                }
            }
            let value = self
                .call("release on", timeout, |connection| script::REVOKE.run(connection, &call))?;
            let here: i64 =
                redis::from_redis_value(value).map_err(|_| self.server.unexpected("release on"))?;
            let Ok(here) = usize::try_from(here) else { return Ok(None) };
            count += here;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        let message = PeerMessage::new(dead, None);
        self.wake(&[message], timeout)?;
        Ok(Some(count))
    }

    /// One script for each batch.
    pub(crate) fn retire_records(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<()> {
        let keys = &self.server.keys;
        if !keys.kind().records_end() {
            return Ok(());
        }
        for batch in endpoints.chunks(BATCH_MAX) {
            let mut call = Call::default();
            call.arg(RETIRED_LASTS.as_millis());
            for it in batch {
                call.lease_and_record(keys, it);
            }
            self.call("retire results on", timeout, |connection| {
                script::RETIRE.run(connection, &call)
            })?;
        }
        Ok(())
    }

    /// Gives back the roles of a dead leader, each by its own term; how many there were. A fresh heartbeat is
    /// no death, unless it is certain.
    pub(crate) fn revoke_roles(
        &self,
        dead: &InstanceId,
        certain: bool,
        timeout: Duration,
    ) -> StoreResult<Option<usize>> {
        let mut count = 0;
        for roles in self.list_roles(timeout)?.chunks(BATCH_MAX) {
            for (role, status) in roles.iter().zip(self.read_role_statuses(roles, timeout)?) {
                if status.leader.is_none_or(|it| it.value != *dead) {
                    continue;
                }
                if !certain && status.heartbeat_age.is_some() && !status.is_stale {
                    return Ok(None);
                }
                let tenure = Tenure::new(role.clone(), status.term);
                self.release_of_dead(dead, &tenure, timeout)?;
                count += 1;
            }
        }
        Ok(Some(count))
    }

    /// R4: deletes the role of a dead leader if it still has this term, retires the term, and notifies the candidates.
    pub(crate) fn release_of_dead(
        &self,
        dead: &InstanceId,
        tenure: &Tenure,
        timeout: Duration,
    ) -> StoreResult<()> {
        let freed = vec![tenure.endpoint.clone()];
        let message = PeerMessage { freed, ..PeerMessage::new(dead, None) };
        let (tenures, messages) = (std::slice::from_ref(tenure), std::slice::from_ref(&message));
        let call = Call::release(&self.server.keys, dead, tenures, messages);
        self.call("release on", timeout, |connection| script::RELEASE.run(connection, &call))?;
        Ok(())
    }
}
