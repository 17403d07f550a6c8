//! All that is stored about one endpoint, read without looking at any other.

use std::time::Duration;

use redis::Value;

use crate::clock::{BootClock, Clock};
use crate::model::EndpointId;
use crate::store::StoreResult;
use crate::store::admin::overview::Overview;
use crate::store::redis::RedisStore;

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
}
