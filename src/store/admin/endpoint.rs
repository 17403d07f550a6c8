//! What is stored about one endpoint, or about all endpoints as sessions, and nothing beside it.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;

use crate::clock::{BootClock, Clock};
use crate::model::{EndpointId, InstanceId};
use crate::store::admin::overview::{Names, Overview};
use crate::store::redis::{RedisStore, reply};
use crate::store::{BATCH_MAX, RawSession, StoreResult};

impl RedisStore {
    /// An overview of this endpoint alone, with its owner: a script may ask about each of many endpoints.
    pub fn overview_of(&self, id: &EndpointId, timeout: Duration) -> StoreResult<Overview> {
        let (mut found, began) = (Overview::default(), BootClock.now());
        self.read_endpoints(&mut found, std::slice::from_ref(id), timeout)?;
        let owner = found.endpoints.first().and_then(|it| Some(it.lease.as_ref()?.value.clone()));
        if let Some(owner) = owner {
            self.read_nodes(&mut found, &[owner], timeout)?;
        }
        self.read_server(&mut found, timeout)?;
        found.took = BootClock.now().since(began);
        Ok(found)
    }

    /// The body of the last result; `None` where there is none.
    pub fn last_body(&self, id: &EndpointId, timeout: Duration) -> StoreResult<Option<Vec<u8>>> {
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(self.server.keys.record_key(id)).arg("body");
        let answers = self.each("read a result on", &pipe, timeout)?;
        let Some(Value::Array(values)) = answers.into_iter().next() else { return Ok(None) };
        Ok(match values.into_iter().next() {
            Some(Value::BulkString(body)) => Some(body),
            _ => None,
        })
    }

    /// Every session whose name is an endpoint id, by id.
    pub fn all_sessions(&self, timeout: Duration) -> StoreResult<Vec<(EndpointId, RawSession)>> {
        let (mut names, mut found) = (Names::default(), vec![]);
        self.list_sessions(&mut names, timeout)?;
        let ids: Vec<EndpointId> = names.endpoints.into_iter().collect();
        for batch in ids.chunks(BATCH_MAX) {
            let keys: Vec<String> = batch.iter().map(|it| self.server.keys.session(it)).collect();
            let sessions = self.read_sessions(&keys, timeout)?;
            let stored = batch.iter().cloned().zip(sessions);
            found.extend(stored.filter_map(|(id, session)| Some((id, session?))));
        }
        Ok(found)
    }

    /// The endpoints that have a session, without reading any.
    pub fn endpoint_names(&self, timeout: Duration) -> StoreResult<BTreeSet<EndpointId>> {
        let mut names = Names::default();
        self.list_sessions(&mut names, timeout)?;
        Ok(names.endpoints)
    }

    /// The instances that have a heartbeat.
    pub fn instance_names(&self, timeout: Duration) -> StoreResult<BTreeSet<InstanceId>> {
        let mut names = Names::default();
        self.list_coordination(&mut names, timeout)?;
        Ok(names.nodes)
    }

    /// The server's clock.
    pub fn server_ms(&self, timeout: Duration) -> StoreResult<u64> {
        let op = "read the time on";
        let mut pipe = redis::pipe();
        pipe.cmd("TIME");
        let time = self.each(op, &pipe, timeout)?.into_iter().next();
        let server_us = time.as_ref().and_then(reply::server_us);
        Ok(server_us.ok_or_else(|| self.server.unexpected(op))? / 1_000)
    }
}
