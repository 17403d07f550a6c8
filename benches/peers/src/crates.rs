//! Locks of other Rust crates.

use std::io;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use tokio::runtime::{Builder, Runtime};

use crate::{Peer, TTL, keys, timed};

fn refused() -> io::Error {
    io::Error::other("a lock was refused")
}

fn ttl_ms() -> usize {
    usize::try_from(TTL.as_millis()).unwrap_or(usize::MAX)
}

/// Dials for every operation. It knows no extension, and nothing at once.
pub(crate) struct Redislock {
    manager: redislock::RedisLock,
    keys: Vec<String>,
}

impl Redislock {
    pub(crate) fn new(url: &str) -> Self {
        Self { manager: redislock::RedisLock::new(vec![url]), keys: keys("redislock") }
    }
}

impl Peer for Redislock {
    fn name(&self) -> &'static str {
        "redislock 1.3.0"
    }

    fn pairs(&mut self, at_once: usize) -> io::Result<Option<Duration>> {
        if at_once > 1 {
            return Ok(None);
        }
        timed(|| {
            for key in &self.keys {
                let value = self.manager.get_unique_lock_id()?;
                let lock = self.manager.lock(key.as_bytes(), value, ttl_ms(), None, None);
                self.manager.unlock(&lock.ok_or_else(refused)?);
            }
            Ok(())
        })
    }

    fn renewals(&mut self, _: usize) -> io::Result<Option<Duration>> {
        Ok(None)
    }
}

/// Dials for every operation. It knows no extension, and nothing at once.
pub(crate) struct Redlock {
    manager: redlock::RedLock,
    keys: Vec<String>,
}

impl Redlock {
    pub(crate) fn new(url: &str) -> Self {
        Self { manager: redlock::RedLock::new(vec![url]), keys: keys("redlock") }
    }
}

impl Peer for Redlock {
    fn name(&self) -> &'static str {
        "redlock 2.0.0"
    }

    fn pairs(&mut self, at_once: usize) -> io::Result<Option<Duration>> {
        if at_once > 1 {
            return Ok(None);
        }
        timed(|| {
            for key in &self.keys {
                let lock = self.manager.lock(key.as_bytes(), ttl_ms()).map_err(io::Error::other)?;
                self.manager.unlock(&lock.ok_or_else(refused)?);
            }
            Ok(())
        })
    }

    fn renewals(&mut self, _: usize) -> io::Result<Option<Duration>> {
        Ok(None)
    }
}

/// Async, on one thread; all that is under way shares one connection.
pub(crate) struct Rslock {
    runtime: Runtime,
    manager: rslock::LockManager,
    keys: Vec<String>,
    held: Vec<rslock::Lock>,
}

impl Rslock {
    pub(crate) fn new(url: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let manager = rslock::LockManager::new(vec![url]);
        let held = keys("rslock-held");
        let take = held.iter().map(|key| manager.lock(key.as_bytes(), TTL));
        let held = runtime.block_on(try_join_all(take)).map_err(io::Error::other)?;
        Ok(Self { runtime, manager, keys: keys("rslock"), held })
    }
}

impl Peer for Rslock {
    fn name(&self) -> &'static str {
        "rslock 0.10.0"
    }

    fn pairs(&mut self, at_once: usize) -> io::Result<Option<Duration>> {
        timed(|| {
            for batch in self.keys.chunks(at_once) {
                let take = batch.iter().map(|key| self.manager.lock(key.as_bytes(), TTL));
                self.runtime.block_on(async {
                    let locks = try_join_all(take).await.map_err(io::Error::other)?;
                    join_all(locks.into_iter().map(rslock::Lock::release)).await;
                    io::Result::Ok(())
                })?;
            }
            Ok(())
        })
    }

    fn renewals(&mut self, at_once: usize) -> io::Result<Option<Duration>> {
        timed(|| {
            for batch in self.held.chunks(at_once) {
                let extend = batch.iter().map(|lock| self.manager.extend(lock, TTL));
                self.runtime.block_on(try_join_all(extend)).map_err(io::Error::other)?;
            }
            Ok(())
        })
    }
}
