//! What does the server say about itself? Questions of `leasehold doctor`, by plain commands that change
//! nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::model::InstanceId;
use crate::store::redis::{RedisStore, reply};
use crate::store::{Store, StoreResult};

/// What `INFO` says, by field.
#[derive(Clone, Debug, Default)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// From the text of a reply.
    pub fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|it| it.trim().split_once(':'));
        Self(fields.map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// A field as it stands.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

/// The server's clock, read between two moments of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Before the question.
    pub asked_at: Moment,
    /// After the answer.
    pub answered_at: Moment,
    /// The server's time in between.
    pub server_us: u64,
}

impl RedisStore {
    /// One exchange, and how long it took; the first connects and logs in, too.
    pub fn ping(&self, timeout: Duration) -> StoreResult<Duration> {
        let began = BootClock.now();
        self.call("ping", timeout, |connection| redis::cmd("PING").exec(connection))?;
        Ok(BootClock.now().since(began))
    }

    /// Connects and logs in, and tells how long that took.
    pub fn greet(&self, timeout: Duration) -> StoreResult<Duration> {
        let began = BootClock.now();
        self.call("connect to", timeout, |_| Ok(()))?;
        Ok(BootClock.now().since(began))
    }

    /// Everything that `INFO` tells.
    pub fn info(&self, timeout: Duration) -> StoreResult<Info> {
        let text: String =
            self.call("read INFO of", timeout, |connection| redis::cmd("INFO").query(connection))?;
        Ok(Info::parse(&text))
    }

    /// A setting of the server; `None` where it does not tell, as most managed ones.
    pub fn setting(&self, name: &str, timeout: Duration) -> StoreResult<Option<String>> {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        let answer = self.refusable("read settings of", timeout, &command)?;
        let found: Option<BTreeMap<String, String>> =
            answer.ok().and_then(|it| redis::from_redis_value(it).ok());
        Ok(found.and_then(|it| it.into_values().next()))
    }

    /// Its clock.
    pub fn clock(&self, timeout: Duration) -> StoreResult<Reading> {
        let asked_at = BootClock.now();
        let op = "read the time of";
        let told = self.call(op, timeout, |connection| redis::cmd("TIME").query(connection))?;
        let server_us = reply::server_us(&told).ok_or_else(|| self.server.unexpected(op))?;
        Ok(Reading { asked_at, answered_at: BootClock.now(), server_us })
    }

    /// Whether changes of keys would be heard of.
    pub fn pushes(&self, timeout: Duration) -> StoreResult<bool> {
        Ok(self.listen(&InstanceId::new("doctor"), timeout)?.receives_changes())
    }
}
