//! Everything there is, read once, for people: instances, endpoints, leases, last results.
//!
//! Plain reading commands only, no script: a read-only user can ask. The answer is no snapshot, because keys change
//! while they are read, and it is not judged here. A key of another type is reported and skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::{ConnectionLike, Pipeline, Value};

use crate::clock::{BootClock, Clock};
use crate::model::{EndpointId, FenceToken, InstanceId, InstanceInfo, Weight};
use crate::store::admin::key_types::{SingletonKey, WrongType};
pub use crate::store::admin::last_result::LastResult;
use crate::store::admin::last_result::{NoResult, RESULT_FIELDS};
use crate::store::redis::{RedisStore, named_in, reply};
use crate::store::{BATCH_MAX, Fault, Lasting, RawSession, StoreResult};

/// The longest owner's id or weight that is read. Nothing of ours is half as long.
const NAME_MAX: usize = 255;

/// The fields of the epoch's hash that are read, in this order.
const EPOCH_FIELDS: [&str; 4] = ["epoch", "since_ms", "lease_ttl_ms", "margin_ms"];

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The server's clock after everything else was read.
    pub server_ms: u64,
    /// How long before that the first endpoint was read.
    pub took: Duration,
    /// The record of the store's epoch; `None` where nobody has run yet.
    pub epoch: Option<EpochRecord>,
    /// Instance ids and host names that are to hold nothing.
    pub drained: Vec<String>,
    /// Who has a heartbeat, by id.
    pub instances: Vec<(InstanceId, Lasting<Weight>)>,
    /// Those that were revoked and have not come back (R16).
    pub revoked: BTreeSet<InstanceId>,
    /// What they tell about themselves; nothing of those whose version does not.
    pub infos: BTreeMap<InstanceId, InstanceInfo>,
    /// Every endpoint that has a session or a lease, by id.
    pub endpoints: Vec<Stored>,
    /// Sessions whose names are no endpoint ids, by the suffix of their keys.
    pub misnamed: Vec<String>,
    /// Keys that are not what they should be, and why.
    pub odd_keys: Vec<(String, &'static str)>,
    /// Of the keys of which there is one, those of a wrong type.
    pub wrong_types: Vec<WrongType>,
}

/// All that is stored about one endpoint.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Which endpoint.
    pub id: EndpointId,
    /// Its session; `None` for a lease without one.
    pub session: Option<RawSession>,
    /// Who has it, and for how long unless it is renewed; [`Duration::MAX`] for ever.
    pub lease: Option<Lasting<InstanceId>>,
    /// The fence of its last grant.
    pub granted: Option<FenceToken>,
    /// What its last poll came to.
    pub result: Option<LastResult>,
}

/// What `poll:epoch` says about time (R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRecord {
    pub epoch: u64,
    pub since_ms: u64,
    pub lease_ttl_ms: u64,
    pub margin_ms: u64,
}

impl RedisStore {
    /// Reads everything, [`BATCH_MAX`] endpoints at a time. Each round trip may take `timeout`.
    pub fn overview(&self, timeout: Duration) -> StoreResult<Overview> {
        let (mut found, mut names) = (Overview::default(), Names::default());
        self.list_sessions(&mut names, timeout)?;
        self.list_coordination(&mut names, timeout)?;
        let began = BootClock.now();
        for batch in listed(names.endpoints).chunks(BATCH_MAX) {
            self.read_endpoints(&mut found, batch, timeout)?;
        }
        // One may have come after the list was made, and own something already.
        names
            .nodes
            .extend(found.endpoints.iter().filter_map(|it| Some(it.lease.as_ref()?.value.clone())));
        for batch in listed(names.nodes).chunks(BATCH_MAX) {
            self.read_nodes(&mut found, batch, timeout)?;
        }
        self.read_infos(&mut found, timeout)?;
        found.wrong_types = match self.wrong_types(timeout) {
            // Who may not ask for types is told of none.
            Err(error) if error.fault == Fault::Misconfigured => vec![],
            wrong_types => wrong_types?,
        };
        let history = found.wrong_types.iter().find(|it| it.which == SingletonKey::History);
        found.odd_keys.extend(history.map(|it| (it.key.clone(), "is not a stream")));
        // Last: an age must not come out too small.
        self.read_server(&mut found, timeout)?;
        found.took = BootClock.now().since(began);
        found.misnamed = listed(names.misnamed);
        found.odd_keys.extend(names.odd.into_iter().map(|it| (it, "has no name of ours")));
        Ok(found)
    }

    pub(super) fn list_sessions(&self, names: &mut Names, timeout: Duration) -> StoreResult<()> {
        let prefix = self.server.keys.session_prefix();
        let step = |cursor| self.scan_shards("list sessions on", prefix, cursor, timeout);
        walk(step, |key| {
            let Some(suffix) = key.strip_prefix(prefix.as_bytes()) else { return };
            match endpoint(suffix) {
                Some(endpoint) => drop(names.endpoints.insert(endpoint)),
                None => drop(names.misnamed.insert(lossy(suffix))),
            }
        })
    }

    /// Node keys and leases in one walk: each walk looks at every key of the server.
    pub(super) fn list_coordination(
        &self,
        names: &mut Names,
        timeout: Duration,
    ) -> StoreResult<()> {
        let keys = &self.server.keys;
        let (all, nodes, leases) =
            (keys.coordination_prefix(), keys.node_prefix(), keys.lease_prefix());
        let step = |cursor| self.scan("list instances and leases on", &all, cursor, timeout);
        walk(step, |key| {
            if key.starts_with(nodes.as_bytes()) {
                match named_in(key, &nodes) {
                    Some(instance) => drop(names.nodes.insert(instance)),
                    None => drop(names.odd.insert(lossy(key))),
                }
            } else if let Some(suffix) = key.strip_prefix(leases.as_bytes()) {
                match endpoint(suffix) {
                    Some(endpoint) => drop(names.endpoints.insert(endpoint)),
                    None => drop(names.odd.insert(lossy(key))),
                }
            }
        })
    }

    pub(super) fn read_endpoints(
        &self,
        found: &mut Overview,
        batch: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<()> {
        let keys = &self.server.keys;
        let names: Vec<String> = batch.iter().map(|it| keys.session(it)).collect();
        let sessions = self.read_sessions(&names, timeout)?;
        let mut pipe = redis::pipe();
        for id in batch {
            short_string(&mut pipe, &keys.lease(id));
            pipe.cmd("HMGET").arg(keys.record_key(id)).arg(&RESULT_FIELDS);
        }
        let answers = self.each("read leases and results on", &pipe, timeout)?;
        for ((id, session), answers) in batch.iter().zip(sessions).zip(answers.chunks(3)) {
            let [owner, left, result] = answers else { continue };
            let lease = found.lasting(|| keys.lease(id), owner, left);
            let lease = lease
                .map(|it| Lasting { value: InstanceId::new(&lossy(&it.value)), left: it.left });
            if session.is_none() && lease.is_none() {
                continue; // gone since it was listed
            }
            let (granted, result) = found.result(|| keys.record_key(id), result);
            found.endpoints.push(Stored { id: id.clone(), session, lease, granted, result });
        }
        Ok(())
    }

    pub(super) fn read_nodes(
        &self,
        found: &mut Overview,
        batch: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<()> {
        let keys = &self.server.keys;
        let mut pipe = redis::pipe();
        for it in batch {
            short_string(&mut pipe, &keys.node(it));
            pipe.cmd("STRLEN").arg(keys.revoked(it));
        }
        let answers = self.each("read instances on", &pipe, timeout)?;
        for (id, answers) in batch.iter().zip(answers.chunks(3)) {
            let [weight, left, revoked] = answers else { continue };
            if reply::number(revoked).is_some_and(|it| it > 0) {
                found.revoked.insert(id.clone());
            }
            if let Some(it) = found.lasting(|| keys.node(id), weight, left) {
                let weight = Weight::from_node_value(&it.value);
                found.instances.push((id.clone(), Lasting { value: weight, left: it.left }));
            }
        }
        Ok(())
    }

    /// The record of the store's epoch alone; `None` where nobody has run yet.
    pub fn epoch(&self, timeout: Duration) -> StoreResult<Option<EpochRecord>> {
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(self.server.keys.epoch()).arg(&EPOCH_FIELDS);
        let answers = self.each("read the epoch on", &pipe, timeout)?;
        Ok(answers.first().and_then(epoch_record))
    }

    pub(super) fn read_server(&self, found: &mut Overview, timeout: Duration) -> StoreResult<()> {
        let (op, keys) = ("read the epoch on", &self.server.keys);
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(keys.epoch()).arg(&EPOCH_FIELDS);
        pipe.cmd("SMEMBERS").arg(keys.drain()).cmd("TIME");
        let answers = self.each(op, &pipe, timeout)?;
        let [epoch, drained, time] = &answers[..] else { return Err(self.server.unexpected(op)) };
        found.server_ms = reply::server_us(time).ok_or_else(|| self.server.unexpected(op))? / 1_000;
        found.epoch = epoch_record(epoch);
        if found.epoch.is_none() && !is_empty(epoch) {
            found.odd_keys.push((keys.epoch(), "is no record of an epoch"));
        }
        match drained {
            Value::Array(_) | Value::Set(_) => found.drained = texts(drained),
            _ => found.odd_keys.push((keys.drain(), "is not a set: it drains nobody")),
        }
        found.drained.sort();
        Ok(())
    }

    /// Every answer of a pipeline. Only a key of the wrong type is an answer; any other refusal is not.
    pub(crate) fn each(
        &self,
        op: &'static str,
        pipe: &Pipeline,
        timeout: Duration,
    ) -> StoreResult<Vec<Value>> {
        if pipe.is_empty() {
            return Ok(vec![]);
        }
        self.call(op, timeout, |connection| {
            let packed = pipe.get_packed_pipeline();
            let answers = connection.req_packed_commands(&packed, 0, pipe.len())?;
            let answer = |it: Value| match it {
                Value::ServerError(error) if error.code() == "WRONGTYPE" => {
                    Ok(Value::ServerError(error))
                }
                other => other.extract_error(),
            };
            answers.into_iter().map(answer).collect()
        })
    }
}

/// Takes steps of a scan until there are no more.
fn walk(
    mut step: impl FnMut(u64) -> StoreResult<(u64, Vec<Vec<u8>>)>,
    mut meet: impl FnMut(&[u8]),
) -> StoreResult<()> {
    let mut cursor = 0;
    loop {
        let (next, page) = step(cursor)?;
        page.iter().for_each(|it| meet(it));
        cursor = next;
        if cursor == 0 {
            return Ok(());
        }
    }
}

/// The names that a walk over all keys came upon.
#[derive(Default)]
pub(super) struct Names {
    pub(super) endpoints: BTreeSet<EndpointId>,
    pub(super) nodes: BTreeSet<InstanceId>,
    misnamed: BTreeSet<String>,
    odd: BTreeSet<String>,
}

impl Overview {
    /// From the answers to [`short_string`]: what it holds and for how long; `None` where there is nothing.
    fn lasting(
        &mut self,
        key: impl Fn() -> String,
        value: &Value,
        left: &Value,
    ) -> Option<Lasting<Vec<u8>>> {
        let Value::BulkString(value) = value else {
            self.odd_keys.push((key(), "is not a string"));
            return None;
        };
        match left {
            Value::Int(-1) => Some(Lasting { value: value.clone(), left: Duration::MAX }),
            Value::Int(ms) => {
                let left = Duration::from_millis(u64::try_from(*ms).ok()?);
                Some(Lasting { value: value.clone(), left })
            }
            _ => None,
        }
    }

    /// The last grant and the last result; there may be one without the other.
    fn result(
        &mut self,
        key: impl Fn() -> String,
        hash: &Value,
    ) -> (Option<FenceToken>, Option<LastResult>) {
        let Value::Array(fields) = hash else {
            self.odd_keys.push((key(), "is not a hash"));
            return (None, None);
        };
        let texts: Vec<Option<String>> = fields.iter().map(text).collect();
        let (granted, result) = LastResult::of(&texts);
        let result = result.unwrap_or_else(|NoResult| {
            self.odd_keys.push((key(), "holds no result: its ok is neither 0 nor 1"));
            None
        });
        (granted, result)
    }
}

/// Asks for the beginning of a string and how long it lasts: another client may have put megabytes there.
pub(crate) fn short_string(pipe: &mut Pipeline, key: &str) {
    pipe.cmd("GETRANGE").arg(key).arg(0).arg(NAME_MAX).cmd("PTTL").arg(key);
}

fn epoch_record(hash: &Value) -> Option<EpochRecord> {
    Some(EpochRecord {
        epoch: field(hash, 0)?,
        since_ms: field(hash, 1)?,
        lease_ttl_ms: field(hash, 2)?,
        margin_ms: field(hash, 3)?,
    })
}

/// Whether the answer to an HMGET says that nothing is there.
fn is_empty(hash: &Value) -> bool {
    matches!(hash, Value::Array(fields) if fields.iter().all(|it| *it == Value::Nil))
}

/// The number at a place of a list.
fn field(list: &Value, at: usize) -> Option<u64> {
    let Value::Array(items) = list else { return None };
    items.get(at).and_then(text)?.parse().ok()
}

pub(crate) fn text(value: &Value) -> Option<String> {
    let Value::BulkString(it) = value else { return None };
    Some(lossy(it))
}

fn texts(list: &Value) -> Vec<String> {
    match list {
        Value::Array(items) | Value::Set(items) => items.iter().filter_map(text).collect(),
        _ => vec![],
    }
}

fn endpoint(suffix: &[u8]) -> Option<EndpointId> {
    std::str::from_utf8(suffix).ok().and_then(|it| EndpointId::parse(it).ok())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn listed<T>(names: BTreeSet<T>) -> Vec<T> {
    names.into_iter().collect()
}
