//! How are many roles granted, renewed and released in one exchange? Each role has its own timing, so each takes its own
//! script call; all calls are written and read together.

use std::time::Duration;

use redis::Value;

use crate::model::{EndpointId, Tenure};
use crate::store::redis::RedisStore;
use crate::store::redis::reply;
use crate::store::redis::script::{self, Call, Script};
use crate::store::{
    Acquire, PeerMessage, Renew, RenewItem, RequestContext, StampedResult, StoreError, StoreResult,
    Verify,
};

impl RedisStore {
    pub(crate) fn acquire_each(
        &self,
        asked: &[(RequestContext, EndpointId)],
    ) -> Vec<StampedResult<Vec<Acquire>>> {
        let call = |(context, role): &(RequestContext, EndpointId)| {
            self.acquire_call(context, std::slice::from_ref(role))
        };
        let calls: Vec<Call> = asked.iter().map(call).collect();
        let timeout = shortest(asked.iter().map(|it| &it.0));
        let values = self.each_role("acquire on", &script::ACQUIRE, &calls, timeout);
        let told = asked.iter().zip(values);
        told.map(|(it, value)| reply::acquired(&self.server, &it.0, &value?, 1)).collect()
    }

    pub(crate) fn renew_each(
        &self,
        asked: &[(RequestContext, Vec<RenewItem>)],
    ) -> Vec<StampedResult<Vec<Renew>>> {
        let op = "renew on";
        let calls: Vec<Call> = asked.iter().map(|it| self.renew_call(&it.0, it.1.iter())).collect();
        let timeout = shortest(asked.iter().map(|it| &it.0));
        let values = self.each_role(op, &script::RENEW, &calls, timeout);
        let told = asked.iter().zip(values);
        told.map(|(it, value)| reply::stamped(op, &self.server, &it.0, &value?, reply::renew))
            .collect()
    }

    pub(crate) fn verify_each(
        &self,
        asked: &[(RequestContext, Tenure)],
    ) -> Vec<StampedResult<Vec<Verify>>> {
        let op = "verify on";
        let calls: Vec<Call> = asked.iter().map(|it| self.verify_call(&it.0, &[&it.1])).collect();
        let timeout = shortest(asked.iter().map(|it| &it.0));
        let answers =
            self.call(op, timeout, |connection| script::VERIFY.run_each(connection, &calls));
        let values = self.of_each(op, answers, calls.len());
        let told = asked.iter().zip(values);
        told.map(|(it, value)| reply::stamped(op, &self.server, &it.0, &value?, reply::verify))
            .collect()
    }

    pub(crate) fn release_each(
        &self,
        freed: &[(RequestContext, Tenure, PeerMessage)],
    ) -> StoreResult<()> {
        let op = "release on";
        let call = |(context, tenure, message): &(RequestContext, Tenure, PeerMessage)| {
            let (tenures, messages) = (std::slice::from_ref(tenure), std::slice::from_ref(message));
            Call::release(&self.server.keys, &context.instance, tenures, messages)
        };
        let calls: Vec<Call> = freed.iter().map(call).collect();
        let timeout = shortest(freed.iter().map(|it| &it.0));
        let answers =
            self.call(op, timeout, |connection| script::RELEASE.run_each(connection, &calls))?;
        answers.into_iter().try_for_each(|it| self.understood(op, it).map(drop))
    }

    /// The answer of the server to each call, on as many replicas as are needed.
    fn each_role(
        &self,
        op: &'static str,
        script: &Script,
        calls: &[Call],
        timeout: Duration,
    ) -> Vec<StoreResult<Value>> {
        let answers =
            self.confirmed_by(op, timeout, |connection| script.run_each(connection, calls));
        self.of_each(op, answers, calls.len())
    }

    /// The answer of the server to each of `n` calls; the same error for all when the exchange broke off.
    fn of_each(
        &self,
        op: &'static str,
        answers: StoreResult<Vec<redis::RedisResult<Value>>>,
        n: usize,
    ) -> Vec<StoreResult<Value>> {
        match answers {
            Ok(answers) => answers.into_iter().map(|it| self.understood(op, it)).collect(),
            Err(error) => vec![Err(error); n],
        }
    }

    fn understood(
        &self,
        op: &'static str,
        answer: redis::RedisResult<Value>,
    ) -> StoreResult<Value> {
        answer.map_err(|error| -> StoreError {
            self.server.locator.doubt(&error);
            self.server.error(op, &error)
        })
    }
}

/// R4: the timeout of an exchange is that of its most urgent request.
fn shortest<'a>(asked: impl Iterator<Item = &'a RequestContext>) -> Duration {
    asked.map(|it| it.timeout).min().unwrap_or_default()
}
