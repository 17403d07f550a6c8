//! The same keys without any of our promises: plain commands and one-key scripts, pipelined 500 to a round trip.

use std::io;

use leasehold::store::BATCH_MAX;
use redis::{Connection, Pipeline};

use testkit::bench::holder::all;

const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                     return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) else return 0 end";

pub(crate) struct Plain {
    line: Connection,
    owner: String,
    ttl_ms: u64,
    renew: String,
    release: String,
}

impl Plain {
    pub(crate) fn new(mut line: Connection, owner: String, ttl_ms: u64) -> io::Result<Self> {
        let mut load = |script: &str| {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script).query(&mut line).map_err(io::Error::other)
        };
        let (renew, release) = (load(RENEW)?, load(RELEASE)?);
        Ok(Self { line, owner, ttl_ms, renew, release })
    }

    /// Another TTL for the key, whatever its value.
    pub(crate) fn pexpire(&mut self, keys: &[String]) -> io::Result<()> {
        let ttl = self.ttl_ms;
        self.ones(keys, |pipe, key| pipe.cmd("PEXPIRE").arg(key).arg(ttl))
    }

    /// Another life if the key has our name: one script a key.
    pub(crate) fn renew(&mut self, keys: &[String]) -> io::Result<()> {
        let (sha, owner, ttl) = (self.renew.clone(), self.owner.clone(), self.ttl_ms);
        self.ones(keys, |pipe, key| {
            pipe.cmd("EVALSHA").arg(&sha).arg(1).arg(key).arg(&owner).arg(ttl)
        })
    }

    pub(crate) fn set(&mut self, keys: &[String]) -> io::Result<()> {
        let (owner, ttl) = (self.owner.clone(), self.ttl_ms);
        let is_set = |it: &Option<String>| it.as_deref() == Some("OK");
        self.done(keys, is_set, |pipe, key| {
            pipe.cmd("SET").arg(key).arg(&owner).arg("NX").arg("PX").arg(ttl)
        })
    }

    pub(crate) fn get(&mut self, keys: &[String]) -> io::Result<()> {
        let owner = self.owner.clone();
        let is_ours = |it: &Option<String>| it.as_deref() == Some(&owner);
        self.done(keys, is_ours, |pipe, key| pipe.cmd("GET").arg(key))
    }

    pub(crate) fn del(&mut self, keys: &[String]) -> io::Result<()> {
        self.ones(keys, |pipe, key| pipe.cmd("DEL").arg(key))
    }

    /// Takes the key away if it has our name: one script a key.
    pub(crate) fn release(&mut self, keys: &[String]) -> io::Result<()> {
        let (sha, owner) = (self.release.clone(), self.owner.clone());
        self.ones(keys, |pipe, key| pipe.cmd("EVALSHA").arg(&sha).arg(1).arg(key).arg(&owner))
    }

    /// Each command answers 1 when it was done.
    fn ones(
        &mut self,
        keys: &[String],
        add: impl for<'a> Fn(&'a mut Pipeline, &str) -> &'a mut Pipeline,
    ) -> io::Result<()> {
        self.done(keys, |it: &i64| *it == 1, add)
    }

    fn done<T: redis::FromRedisValue>(
        &mut self,
        keys: &[String],
        is_done: impl Fn(&T) -> bool,
        add: impl for<'a> Fn(&'a mut Pipeline, &str) -> &'a mut Pipeline,
    ) -> io::Result<()> {
        let mut done = 0;
        for batch in keys.chunks(BATCH_MAX) {
            let mut pipe = Pipeline::with_capacity(batch.len());
            for key in batch {
                add(&mut pipe, key);
            }
            let answers: Vec<T> = pipe.query(&mut self.line).map_err(io::Error::other)?;
            done += answers.iter().filter(|it| is_done(it)).count();
        }
        all("done by a plain command", keys.len(), done)
    }
}
