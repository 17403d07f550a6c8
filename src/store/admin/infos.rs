//! What do the live instances tell about themselves?

use std::time::Duration;

use redis::Value;

use crate::model::InstanceInfo;
use crate::store::admin::overview::{Overview, text};
use crate::store::redis::RedisStore;
use crate::store::{BATCH_MAX, Fault, StoreResult};

impl RedisStore {
    /// Reads it of those that were found. An instance of an older version tells nothing, and a user who may not read it is
    /// told nothing.
    pub(crate) fn read_infos(&self, found: &mut Overview, timeout: Duration) -> StoreResult<()> {
        let keys = &self.server.keys;
        let mut answers = Vec::with_capacity(found.instances.len());
        for batch in found.instances.chunks(BATCH_MAX) {
            let mut pipe = redis::pipe();
            for (id, _) in batch {
                pipe.cmd("HMGET").arg(keys.info(id)).arg(&InstanceInfo::FIELDS);
            }
            match self.each("read instances on", &pipe, timeout) {
                Err(error) if error.fault == Fault::Misconfigured => return Ok(()),
                told => answers.extend(told?),
            }
        }
        for ((id, _), answer) in found.instances.iter().zip(answers) {
            let Value::Array(values) = answer else {
                found.odd_keys.push((keys.info(id), "is not a hash"));
                continue;
            };
            let info = InstanceInfo::parse(&values.iter().map(text).collect::<Vec<_>>());
            found.infos.extend(info.map(|it| (id.clone(), it)));
        }
        Ok(())
    }
}
