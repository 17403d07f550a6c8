//! What does the in-memory server make of values that no script writes? `number.lua` said again in Rust, and the
//! functions by which a test puts such values into the store.

use std::time::Duration;

use crate::model::{EndpointId, InstanceId, LeaseDuration};
use crate::store::admin::key_types;
use crate::store::memory::scripts::micros;
use crate::store::memory::server::{MemoryServer, ServerState};
use crate::store::{Fault, RequestContext, StoreError, StoreResult};

/// No script writes this or more: near 2^53 a double loses its last digits.
const NUMBER_END: u64 = 9_000_000_000_000_000;

/// number.lua
fn number(text: &str, least: u64, most: u64) -> Option<u64> {
    let is_digits = text.len() <= 16 && text.bytes().all(|it| it.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_digits)?;
    (number < NUMBER_END && (least..=most).contains(&number)).then_some(number)
}

fn ttl(text: &str) -> Option<Duration> {
    let millis = |it: Duration| micros(it) / 1_000;
    let found = number(text, millis(LeaseDuration::TTL_MIN), millis(LeaseDuration::TTL_MAX));
    found.map(Duration::from_millis)
}

/// Whether a configuration can have this life of a lease.
pub(crate) fn is_ttl(ttl: Duration) -> bool {
    (LeaseDuration::TTL_MIN..=LeaseDuration::TTL_MAX).contains(&ttl)
}

impl ServerState {
    /// The beginning of epoch.lua: refuses what cannot be answered at all.
    pub(crate) fn check_epoch(&self, context: &RequestContext) -> StoreResult<()> {
        self.check_hash()?;
        if is_ttl(context.duration.ttl) {
            return Ok(());
        }
        let reason = format!("BADTTL the life of a lease cannot be {:?}", context.duration.ttl);
        Err(refusal(Fault::Misconfigured, reason))
    }

    /// Whether the epoch's key is of its type.
    pub(crate) fn check_hash(&self) -> StoreResult<()> {
        if !self.data.malformed.is_no_hash {
            return Ok(());
        }
        Err(refusal(Fault::Refused, key_types::no_epoch(self.kind.epoch_key())))
    }

    /// The life of a lease that all have agreed on, or of this role (R14).
    pub(crate) fn agreed(&self, role: Option<&EndpointId>) -> Option<Duration> {
        match role {
            Some(role) => self.data.roles.ttls.get(role).copied(),
            None => self.data.epoch.map(|it| it.lease_ttl).filter(|it| is_ttl(*it)),
        }
    }

    /// Whether a field of the epoch that counts for `role`, or for polls, has what no script wrote.
    pub(crate) fn is_epoch_malformed(&self, role: Option<&EndpointId>) -> bool {
        let fields = &self.data.malformed.fields;
        !fields.is_empty() && counted(role).iter().any(|it| fields.contains(it))
    }

    /// A new epoch has written all of them again.
    pub(crate) fn mend_epoch(&mut self, role: Option<&EndpointId>) {
        for field in counted(role) {
            self.data.malformed.fields.remove(&field);
        }
    }
}

fn refusal(fault: Fault, reason: String) -> StoreError {
    StoreError { op: "ask", target: "the store".into(), fault, reason }
}

/// The fields of the epoch's hash that are read for `role`, or for polls.
fn counted(role: Option<&EndpointId>) -> [String; 5] {
    let ttl = role.map_or_else(|| "lease_ttl_ms".into(), |it| format!("lease_ttl_ms:{it}"));
    ["epoch".into(), "since_ms".into(), "floor_us".into(), "born".into(), ttl]
}

impl MemoryServer {
    /// Writes into a field of the epoch's hash, as an operator with a console might.
    pub fn write_epoch(&self, field: &str, text: &str) {
        let mut state = self.state.lock();
        let data = &mut state.data;
        let any = number(text, 0, NUMBER_END);
        let is_number = if let Some(role) = field.strip_prefix("lease_ttl_ms:") {
            let Ok(role) = EndpointId::parse(role) else { return };
            data.roles.ttls.remove(&role);
            data.roles.untimed.extend(ttl(text).is_none().then(|| role.clone()));
            data.roles.ttls.extend(ttl(text).map(|it| (role, it)));
            ttl(text).is_some()
        } else if let Some(role) = field.strip_prefix("term:") {
            let Ok(role) = EndpointId::parse(role) else { return };
            data.results.entry(role).or_default().granted = any.unwrap_or(0);
            true
        } else {
            let Some(epoch) = &mut data.epoch else { return };
            match field {
                "epoch" => epoch.epoch = number(text, 1, NUMBER_END).unwrap_or(0),
                "since_ms" => epoch.since_us = any.unwrap_or(0).saturating_mul(1_000),
                "floor_us" => epoch.floor_us = any.unwrap_or(0),
                "born" => epoch.born = any.unwrap_or(0),
                "lease_ttl_ms" => epoch.lease_ttl = ttl(text).unwrap_or_default(),
                "heartbeat_ttl_ms" => epoch.heartbeat_ttl = ttl(text).unwrap_or_default(),
                _ => epoch.replid = u64::MAX,
            }
            match field {
                "epoch" => epoch.epoch > 0,
                "born" => epoch.born > 0 && epoch.born <= epoch.epoch,
                "lease_ttl_ms" => ttl(text).is_some(),
                _ => any.is_some(),
            }
        };
        data.malformed.fields.remove(field);
        data.malformed.fields.extend((!is_number).then(|| field.to_owned()));
    }

    /// Puts a key of another type where the epoch's hash is, as an operator with a console might, until it is deleted.
    pub fn replace_epoch(&self) {
        let mut state = self.state.lock();
        state.data.epoch = None;
        state.data.malformed.is_no_hash = true;
    }

    /// Writes where the highest fence of all is kept.
    pub fn write_fence(&self, text: &str) {
        self.state.lock().data.fence = number(text, 0, NUMBER_END).unwrap_or(0);
    }

    /// Writes what `instance` was granted last (`granted`), or its floor when it last gave something back.
    pub fn write_grants(&self, instance: &InstanceId, field: &str, text: &str) {
        let mut state = self.state.lock();
        let grants = state.data.grants.entry(instance.clone()).or_default();
        let field = if field == "granted" { &mut grants.granted } else { &mut grants.released };
        *field = number(text, 0, NUMBER_END).unwrap_or(0);
    }

    /// Writes the fence of the last grant of `endpoint`.
    pub fn write_granted(&self, endpoint: &EndpointId, text: &str) {
        let mut state = self.state.lock();
        let result = state.data.results.entry(endpoint.clone()).or_default();
        result.granted = number(text, 0, NUMBER_END).unwrap_or(0);
    }
}
