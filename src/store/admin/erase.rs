//! Removes every key of a fleet that was started to try things on. No fleet in service is ever erased.

use std::time::Duration;

use crate::store::StoreResult;
use crate::store::redis::RedisStore;

impl RedisStore {
    /// Deletes every key whose name begins with `prefix`; how many there were. Not for clusters.
    pub fn erase(&self, prefix: &str, timeout: Duration) -> StoreResult<usize> {
        let (mut erased, mut cursor) = (0, 0);
        loop {
            let (next, keys) = self.scan("look for keys on", prefix, cursor, timeout)?;
            if !keys.is_empty() {
                erased += self.call("delete keys on", timeout, |connection| {
                    redis::cmd("DEL").arg(&keys).query::<usize>(connection)
                })?;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(erased);
            }
        }
    }
}
