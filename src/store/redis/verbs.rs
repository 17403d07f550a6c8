//! How does a real Redis serve each request of [`Store`]? One method each, by a script or by commands.

use std::sync::Arc;
use std::time::Duration;

use ::redis::ConnectionLike;

use crate::clock::{BootClock, Clock};
use crate::model::{EndpointId, InstanceId, InstanceInfo, Tenure, Weight};
use crate::store::announcement;
use crate::store::fast_path;
use crate::store::lease_kind::LeaseKind;
use crate::store::redis::reply;
use crate::store::redis::script::{self, Call};
use crate::store::redis::server_check;
use crate::store::redis::subscription::RedisSubscription;
use crate::store::redis::{RedisStore, named_in};
use crate::store::{
    ASK_LASTS, Acquire, HeartbeatReply, Lasting, Note, Page, PeerMessage, Publication, Publish,
    RawSession, Release, Renew, RenewItem, RequestContext, RoleStatus, StampedResult, Store,
    StoreError, StoreResult, Subscription, Verify,
};

impl Store for RedisStore {
    fn inspect(&self, timeout: Duration) -> StoreResult<()> {
        let told: [String; 3] = self.call("inspect", timeout, |connection| {
            let mut pipe = ::redis::pipe();
            for section in ["server", "memory", "replication"] {
                pipe.cmd("INFO").arg(section);
            }
            pipe.query(connection)
        })?;
        let [server, memory, replication] = &told;
        server_check::trustworthy(server, memory, replication).map_err(|(fault, reason)| {
            StoreError { op: "use", target: self.server.shown.clone(), fault, reason }
        })?;
        if !self.server.keys.kind().has_sessions() {
            return Ok(());
        }
        self.try_rights(timeout)?;
        // Sessions that may not be read are a setting to mend, not a store that is away.
        self.session_names(0, timeout)?;
        let any = EndpointId::parse("any").into_iter().collect::<Vec<_>>();
        self.sessions(&any, timeout).map(drop)
    }

    fn time(&self, timeout: Duration) -> StoreResult<u64> {
        let op = "read the time on";
        let told = self.call(op, timeout, |connection| ::redis::cmd("TIME").query(connection))?;
        reply::server_us(&told).ok_or_else(|| self.server.unexpected(op))
    }

    fn heartbeat(
        &self,
        context: &RequestContext,
        ttl: Duration,
        weight: Weight,
        info: Option<&InstanceInfo>,
    ) -> StampedResult<HeartbeatReply> {
        let mut call = Call::framed(&self.server.keys, context, None);
        call.key(self.server.keys.node(&context.instance));
        call.key(self.server.keys.drain());
        call.arg(ttl.as_millis()).arg(weight).arg(context.instance.host());
        call.arg(context.obeyed_ms);
        call.info(&self.server.keys, &context.instance, info);
        let value = self.call("write the heartbeat on", context.timeout, |connection| {
            script::HEARTBEAT.run(connection, &call)
        })?;
        reply::heartbeat(&self.server, context, &value)
    }

    fn acquire(
        &self,
        context: &RequestContext,
        endpoints: &[EndpointId],
    ) -> StampedResult<Vec<Acquire>> {
        let call = self.acquire_call(context, endpoints);
        let value = self.confirmed("acquire on", context, &script::ACQUIRE, &call)?;
        reply::acquired(&self.server, context, &value, endpoints.len())
    }

    fn renew(&self, context: &RequestContext, items: &[RenewItem]) -> StampedResult<Vec<Renew>> {
        let until = BootClock.now() + context.timeout;
        let has_fast_path = self.server.keys.kind().has_owner_fast_path();
        let is_proof = |it: &RenewItem| has_fast_path && it.fence_checked;
        let by_owner = |these: Vec<&RenewItem>| {
            let call = self.owner_call(context, these.iter().map(|it| &it.tenure));
            let value = self.confirmed("renew on", context, &script::RENEW_BY_OWNER, &call)?;
            reply::names_caller("renew on", &self.server, context, &value, these.len())
        };
        fast_path::by_owner_or_fence(items, is_proof, &Renew::Extended, by_owner, |these| {
            let context =
                RequestContext { timeout: until.since(BootClock.now()), ..context.clone() };
            self.renew_by_fence(&context, &these)
        })
    }

    fn verify(&self, context: &RequestContext, tenures: &[Tenure]) -> StampedResult<Vec<Verify>> {
        let until = BootClock.now() + context.timeout;
        let has_fast_path = context.owner_only && self.server.keys.kind().has_owner_fast_path();
        let by_owner = |these: Vec<&Tenure>| {
            let call = self.owner_call(context, these.iter().copied());
            let value = self.call("verify on", context.timeout, |connection| {
                script::VERIFY_BY_OWNER.run(connection, &call)
            })?;
            reply::names_caller("verify on", &self.server, context, &value, these.len())
        };
        fast_path::by_owner_or_fence(
            tenures,
            |_| has_fast_path,
            &Verify::Held,
            by_owner,
            |these| {
                let context =
                    RequestContext { timeout: until.since(BootClock.now()), ..context.clone() };
                self.verify_by_fence(&context, &these)
            },
        )
    }

    fn publish(
        &self,
        context: &RequestContext,
        publications: &[Publication],
    ) -> StampedResult<Vec<Publish>> {
        let keys = &self.server.keys;
        let channels = keys.results_prefix();
        let mut call = Call::framed(keys, context, None);
        call.arg(keys.changes()).arg(keys.database());
        for it in publications {
            let endpoint = &it.tenure.endpoint;
            call.lease_and_record(keys, endpoint);
            call.arg(it.tenure.fence).arg(it.started_at_ms).channel(&channels, endpoint);
            call.bytes(
                announcement::encode_result(&context.instance, it, keys.database()).as_bytes(),
            );
            call.arg(u8::from(it.sample.ok));
            match it.sample.status {
                Some(status) => call.arg(status),
                None => call.bytes(b""),
            };
            call.bytes(it.sample.error.as_deref().unwrap_or("").as_bytes());
            call.arg(it.sample.duration.as_millis()).arg(it.interval.as_millis());
            call.bytes(&it.sample.body);
            call.judging(&it.judging);
            match it.certificate {
                Some(left) => call.arg(left.days).arg(u8::from(left.is_short)),
                None => call.bytes(b"").bytes(b""),
            };
        }
        self.stamped("publish on", context, &script::PUBLISH, &call, reply::publish)
    }

    fn last_polled(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<u64>>> {
        let op = "read results on";
        let mut call = Call::default();
        for endpoint in endpoints {
            call.record(&self.server.keys, endpoint);
        }
        let value =
            self.call(op, timeout, |connection| script::LAST_POLLED.run(connection, &call))?;
        let told: Vec<Vec<u8>> =
            ::redis::from_redis_value(value).map_err(|_| self.server.unexpected(op))?;
        if told.len() != endpoints.len() {
            return Err(self.server.unexpected(op));
        }
        Ok(told.iter().map(|it| str::from_utf8(it).ok()?.parse().ok()).collect())
    }

    fn acquire_roles(
        &self,
        asked: &[(RequestContext, EndpointId)],
    ) -> Vec<StampedResult<Vec<Acquire>>> {
        self.acquire_each(asked)
    }

    fn renew_roles(
        &self,
        asked: &[(RequestContext, Vec<RenewItem>)],
    ) -> Vec<StampedResult<Vec<Renew>>> {
        self.renew_each(asked)
    }

    fn verify_roles(&self, asked: &[(RequestContext, Tenure)]) -> Vec<StampedResult<Vec<Verify>>> {
        self.verify_each(asked)
    }

    fn release_roles(&self, freed: &[(RequestContext, Tenure, PeerMessage)]) -> StoreResult<()> {
        self.release_each(freed)
    }

    /// The cheap way where that proves enough, and otherwise by the fence.
    fn release(
        &self,
        context: &RequestContext,
        tenures: &[Tenure],
        wakes: &[PeerMessage],
    ) -> StoreResult<Vec<Release>> {
        let until = BootClock.now() + context.timeout;
        let answer = |ours| if ours { Release::Released } else { Release::NotOwner };
        if context.owner_only
            && !tenures.is_empty()
            && let Some(freed) = self.release_by_owner(context, tenures, wakes)?
        {
            return Ok(freed.into_iter().map(answer).collect());
        }
        let call = Call::release(&self.server.keys, &context.instance, tenures, wakes);
        let left = until.since(BootClock.now());
        let value =
            self.call("release on", left, |connection| script::RELEASE.run(connection, &call))?;
        let released: Vec<i64> =
            ::redis::from_redis_value(value).map_err(|_| self.server.unexpected("release on"))?;
        Ok(released.into_iter().map(|it| answer(it == 1)).collect())
    }

    fn withdraw(&self, context: &RequestContext) -> StoreResult<()> {
        self.withdraw_heartbeat(context)
    }

    fn wake(&self, wakes: &[PeerMessage], timeout: Duration) -> StoreResult<()> {
        let are_stored = self.server.keys.kind().stores_requests();
        self.call("send messages on", timeout, |connection| {
            let mut pipe = ::redis::pipe();
            for wake in wakes {
                let message = announcement::encode_message(wake, self.server.keys.database());
                if let Some(to) = wake.to.as_ref().filter(|_| are_stored && !wake.wants.is_empty())
                {
                    let key = self.server.keys.ask(to, &wake.from);
                    pipe.cmd("SET")
                        .arg(key)
                        .arg(&message)
                        .arg("PX")
                        .arg(ASK_LASTS.as_millis().to_string());
                }
                pipe.cmd("PUBLISH")
                    .arg(self.server.keys.message_channel(wake.to.as_ref()))
                    .arg(message);
            }
            // A refused message (no memory, no permission) must not keep the others from being sent.
            connection.req_packed_commands(&pipe.get_packed_pipeline(), 0, pipe.len()).map(drop)
        })
    }

    fn asks(
        &self,
        me: &InstanceId,
        of: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<PeerMessage>> {
        if of.is_empty() {
            return Ok(vec![]);
        }
        let messages: Vec<Option<Vec<u8>>> =
            self.call("read requests on", timeout, |connection| {
                let mut pipe = ::redis::pipe();
                for other in of {
                    pipe.cmd("GET").arg(self.server.keys.ask(me, other));
                }
                pipe.query(connection)
            })?;
        let heard = |it| announcement::decode_message(Some(me), it, self.server.keys.database());
        Ok(messages.iter().flatten().filter_map(|it| heard(it)).collect())
    }

    fn session_names(&self, cursor: u64, timeout: Duration) -> StoreResult<Page<String>> {
        let prefix = self.server.keys.session_prefix();
        let (cursor, keys) = self.scan_shards("list sessions on", prefix, cursor, timeout)?;
        let suffix = |key: &Vec<u8>| {
            let suffix = key.strip_prefix(prefix.as_bytes())?;
            Some(String::from_utf8_lossy(suffix).into_owned())
        };
        Ok(Page { found: keys.iter().filter_map(suffix).collect(), cursor })
    }

    fn sessions(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<RawSession>>> {
        let keys: Vec<String> = endpoints.iter().map(|it| self.server.keys.session(it)).collect();
        self.read_sessions(&keys, timeout)
    }

    fn any_session(&self, endpoints: &[EndpointId], timeout: Duration) -> StoreResult<bool> {
        let keys: Vec<String> = endpoints.iter().map(|it| self.server.keys.session(it)).collect();
        self.any_exists(&keys, timeout)
    }

    fn instances(&self, cursor: u64, timeout: Duration) -> StoreResult<Page<InstanceId>> {
        let prefix = self.server.keys.node_prefix();
        let (cursor, keys) = self.scan("list instances on", &prefix, cursor, timeout)?;
        let found = keys.iter().filter_map(|it| named_in(it, &prefix));
        Ok(Page { found: found.collect(), cursor })
    }

    fn heartbeats(
        &self,
        instances: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<Lasting<Weight>>>> {
        self.read_heartbeats(instances, timeout)
    }

    fn owners(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<InstanceId>>> {
        if endpoints.is_empty() {
            return Ok(vec![]);
        }
        let op = "read owners on";
        let values: Vec<Option<Vec<u8>>> = self.call(op, timeout, |connection| {
            let mut mget = ::redis::cmd("MGET");
            for endpoint in endpoints {
                mget.arg(self.server.keys.lease(endpoint));
            }
            mget.query(connection)
        })?;
        if values.len() != endpoints.len() {
            return Err(self.server.unexpected(op));
        }
        let owner = |value: Vec<u8>| InstanceId::new(&String::from_utf8_lossy(&value));
        Ok(values.into_iter().map(|it| it.map(owner)).collect())
    }

    fn leases(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<Lasting<InstanceId>>>> {
        let keys = endpoints.iter().map(|it| self.server.keys.lease(it));
        let owner = |value: &[u8]| InstanceId::new(&String::from_utf8_lossy(value));
        self.read_capped("read owners on", "lease_ttl_ms", keys, &[], timeout, owner)
    }

    fn expiring(
        &self,
        endpoints: &[EndpointId],
        soon: Duration,
        timeout: Duration,
    ) -> StoreResult<Vec<EndpointId>> {
        if endpoints.is_empty() {
            return Ok(vec![]);
        }
        let (op, keys) = ("read lease TTLs on", &self.server.keys);
        let mut call = Call::default();
        call.key(keys.epoch()).arg(soon.as_millis());
        endpoints.iter().for_each(|it| {
            call.lease(keys, it);
        });
        let value = self.call(op, timeout, |connection| script::EXPIRING.run(connection, &call))?;
        let places: Vec<usize> =
            ::redis::from_redis_value(value).map_err(|_| self.server.unexpected(op))?;
        let named = |it: usize| endpoints.get(it.checked_sub(1)?).cloned();
        Ok(places.into_iter().filter_map(named).collect())
    }

    fn revoke(
        &self,
        dead: &InstanceId,
        certain: bool,
        timeout: Duration,
    ) -> StoreResult<Option<usize>> {
        match self.server.keys.kind() {
            LeaseKind::Poll => self.revoke_leases(dead, certain, timeout),
            LeaseKind::Role => self.revoke_roles(dead, certain, timeout),
        }
    }

    fn retire(&self, endpoints: &[EndpointId], timeout: Duration) -> StoreResult<()> {
        self.retire_records(endpoints, timeout)
    }

    fn role_statuses(
        &self,
        roles: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<RoleStatus>> {
        self.read_role_statuses(roles, timeout)
    }

    fn role_names(&self, timeout: Duration) -> StoreResult<Vec<EndpointId>> {
        self.list_roles(timeout)
    }

    fn remember(&self, notes: &[Note], timeout: Duration) -> StoreResult<()> {
        self.append_notes(notes, timeout)
    }

    fn listen(&self, me: &InstanceId, timeout: Duration) -> StoreResult<Box<dyn Subscription>> {
        Ok(Box::new(RedisSubscription::open(Arc::clone(&self.server), me, timeout)?))
    }
}
