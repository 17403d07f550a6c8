//! How are the keys and arguments of each script put together, and which replies count as confirmed?

use std::time::Duration;

use ::redis::{RedisResult, Value};

use crate::clock::{BootClock, Clock};
use crate::config::setting::Setting;
use crate::model::{EndpointId, Tenure};
use crate::store::announcement;
use crate::store::redis::RedisStore;
use crate::store::redis::connection::Connection;
use crate::store::redis::reply;
use crate::store::redis::script::{self, Call, Script};
use crate::store::{
    Fault, GRANTS_LAST, PeerMessage, Renew, RenewItem, RequestContext, StampedResult, StoreError,
    StoreResult, Verify,
};

impl RedisStore {
    /// Like `call`, for grants and renewals: an answer that fewer than `--min-replicas` replicas have counts as none,
    /// because a promoted replica may lack the write. The owner finds it by name (R7), or it expires.
    pub(crate) fn confirmed(
        &self,
        op: &'static str,
        context: &RequestContext,
        script: &Script,
        call: &Call,
    ) -> StoreResult<Value> {
        self.confirmed_by(op, context.timeout, |connection| script.run(connection, call))
    }

    /// The same for any exchange.
    pub(crate) fn confirmed_by<T>(
        &self,
        op: &'static str,
        timeout: Duration,
        exchange: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> StoreResult<T> {
        let needed = self.server.min_replicas;
        if needed == 0 {
            return self.call(op, timeout, exchange);
        }
        let began = BootClock.now();
        let (value, have) = self.call(op, timeout, |connection| {
            let value = exchange(connection)?;
            // On the same connection: it asks for what was written on it. The answer has to come in time, too.
            let left = (began + timeout).since(BootClock.now()) * 3 / 4;
            let mut wait = ::redis::cmd("WAIT");
            wait.arg(needed).arg(left.as_millis().max(1).to_string());
            Ok((value, wait.query::<u32>(connection)?))
        })?;
        if have >= needed {
            return Ok(value);
        }
        self.server.failures.count(Fault::Refused);
        let reason = format!(
            "{have} of the {needed} replicas that {} asks for have it: see INFO replication on the \
             master",
            self.server.locator.names().of(Setting::MinReplicas)
        );
        let target = self.server.shown.clone();
        Err(StoreError { op, target, fault: Fault::Refused, reason })
    }

    pub(crate) fn stamped<T>(
        &self,
        op: &'static str,
        context: &RequestContext,
        script: &Script,
        call: &Call,
        item: impl Fn(&Value) -> T,
    ) -> StampedResult<Vec<T>> {
        let value = self.call(op, context.timeout, |connection| script.run(connection, call))?;
        reply::stamped(op, &self.server, context, &value, item)
    }

    /// Keys of renew_by_owner.lua and verify_by_owner.lua.
    pub(crate) fn owner_call<'a>(
        &self,
        context: &RequestContext,
        tenures: impl Iterator<Item = &'a Tenure>,
    ) -> Call {
        let mut call = Call::framed(&self.server.keys, context, None);
        for tenure in tenures {
            call.lease(&self.server.keys, &tenure.endpoint);
        }
        call
    }

    /// Releases by owner name; `None` if fences must be compared.
    pub(crate) fn release_by_owner(
        &self,
        context: &RequestContext,
        tenures: &[Tenure],
        wakes: &[PeerMessage],
    ) -> StoreResult<Option<Vec<bool>>> {
        let op = "release on";
        let call = Call::release_by_owner(&self.server.keys, context, tenures, wakes);
        let value = self.call(op, context.timeout, |connection| {
            script::RELEASE_BY_OWNER.run(connection, &call)
        })?;
        reply::released_by_owner(&value, tenures.len()).ok_or_else(|| self.server.unexpected(op))
    }

    /// Renews by owner and fence.
    pub(crate) fn renew_by_fence(
        &self,
        context: &RequestContext,
        items: &[&RenewItem],
    ) -> StampedResult<Vec<Renew>> {
        let call = self.renew_call(context, items.iter().copied());
        let value = self.confirmed("renew on", context, &script::RENEW, &call)?;
        reply::stamped("renew on", &self.server, context, &value, reply::renew)
    }

    /// What renew.lua expects.
    pub(crate) fn renew_call<'a>(
        &self,
        context: &RequestContext,
        items: impl Iterator<Item = &'a RenewItem> + Clone,
    ) -> Call {
        let keys = &self.server.keys;
        let mut call = Call::framed(keys, context, items.clone().map(|it| &it.tenure.endpoint));
        call.key(keys.grants_key(&context.instance)).key(keys.highest_fence_key());
        call.arg(GRANTS_LAST.as_millis()).arg(context.highest_fence);
        for RenewItem { tenure, may_reclaim, .. } in items {
            call.lease_and_record(keys, &tenure.endpoint);
            call.arg(tenure.fence).arg(u8::from(*may_reclaim));
        }
        call
    }

    /// What acquire.lua expects.
    pub(crate) fn acquire_call(&self, context: &RequestContext, endpoints: &[EndpointId]) -> Call {
        let keys = &self.server.keys;
        let mut call = Call::framed(keys, context, endpoints);
        call.key(keys.node(&context.instance))
            .key(keys.highest_fence_key())
            .key(keys.grants_key(&context.instance));
        let message =
            PeerMessage { took: endpoints.to_vec(), ..PeerMessage::new(&context.instance, None) };
        call.arg(keys.node_prefix()).arg(keys.lease_prefix());
        call.arg(keys.message_channel(None))
            .arg(announcement::encode_message(&message, keys.database()));
        call.arg(GRANTS_LAST.as_millis());
        for endpoint in endpoints {
            call.lease_and_record(keys, endpoint);
        }
        call
    }

    /// Verifies by owner and fence.
    pub(crate) fn verify_by_fence(
        &self,
        context: &RequestContext,
        tenures: &[&Tenure],
    ) -> StampedResult<Vec<Verify>> {
        let call = self.verify_call(context, tenures);
        self.stamped("verify on", context, &script::VERIFY, &call, reply::verify)
    }

    /// What verify.lua expects.
    pub(crate) fn verify_call(&self, context: &RequestContext, tenures: &[&Tenure]) -> Call {
        let keys = &self.server.keys;
        let mut call = Call::framed(keys, context, tenures.iter().map(|it| &it.endpoint));
        for tenure in tenures {
            call.lease_and_record(keys, &tenure.endpoint);
            call.arg(tenure.fence);
        }
        call
    }
}
