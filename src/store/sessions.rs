//! What people change: stored sessions, and who is drained. The daemon only ever reads these.

use std::ops::AddAssign;
use std::time::Duration;

use redis::Value;

use crate::model::EndpointId;
use crate::store::place::Spot;
use crate::store::redis::RedisStore;
use crate::store::reply;
use crate::store::{Asked, BATCH_MAX, RawSession, Store};

/// From what to what a session is to change; `None` where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// What it was.
    pub before: Option<Vec<u8>>,
    /// What it is to be.
    pub after: Option<Vec<u8>>,
}

/// What came of storing many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Not there before.
    pub added: usize,
    /// Another before.
    pub changed: usize,
    /// The same before.
    pub unchanged: usize,
}

impl Imported {
    /// All of them.
    pub fn total(self) -> usize {
        self.added + self.changed + self.unchanged
    }
}

impl AddAssign for Imported {
    fn add_assign(&mut self, more: Self) {
        self.added += more.added;
        self.changed += more.changed;
        self.unchanged += more.unchanged;
    }
}

impl RedisStore {
    /// One session, as it is stored.
    pub fn session(&self, id: &EndpointId, timeout: Duration) -> Asked<Option<RawSession>> {
        Ok(self.sessions(std::slice::from_ref(id), timeout)?.pop().flatten())
    }

    /// Changes a session if it is still what it was; false if it is not.
    pub fn swap_session(&self, id: &EndpointId, swap: &Swap, timeout: Duration) -> Asked<bool> {
        let op = "change a session on";
        let mut call = reply::Call::default();
        call.key(self.server.keys.session(id));
        for side in [&swap.before, &swap.after] {
            call.bytes(side.as_deref().unwrap_or_default()).arg(u8::from(side.is_some()));
        }
        let key = self.server.keys.session(id);
        match self.call_at(Spot::Key(&key), op, timeout, |wire| reply::SWAP.run(wire, &call))? {
            Value::Int(done) => Ok(done == 1),
            _ => Err(self.server.unexpected(op)),
        }
    }

    /// Stores these, whatever was there.
    pub fn store_sessions(
        &self,
        batch: &[(EndpointId, Vec<u8>)],
        timeout: Duration,
    ) -> Asked<Imported> {
        let op = "store sessions on";
        let keys: Vec<String> = batch.iter().map(|it| self.server.keys.session(&it.0)).collect();
        let answers = self.each_key(op, &keys, timeout, 1, |pipe, at| {
            pipe.cmd("SET").arg(&keys[at]).arg(&batch[at].1).arg("GET");
        })?;
        let before = answers.into_iter().map(|it| {
            let before = it.extract_error().and_then(|it| Ok(redis::from_redis_value(it)?));
            before.map_err(|error| self.server.error(op, &error))
        });
        let before: Vec<Option<Vec<u8>>> = before.collect::<Asked<_>>()?;
        let mut imported = Imported::default();
        for ((_, text), before) in batch.iter().zip(before) {
            match before {
                None => imported.added += 1,
                Some(before) if before == *text => imported.unchanged += 1,
                Some(_) => imported.changed += 1,
            }
        }
        Ok(imported)
    }

    /// Puts a name into the set of those who are to hold nothing, or takes it out; false if that was so already.
    pub fn set_drain(&self, name: &str, drained: bool, timeout: Duration) -> Asked<bool> {
        let verb = if drained { "SADD" } else { "SREM" };
        let key = self.server.keys.drain();
        self.call("drain on", timeout, |wire| redis::cmd(verb).arg(key).arg(name).query(wire))
    }

    /// Every stored session whose name is an id, by id.
    pub fn all_sessions(&self, timeout: Duration) -> Asked<Vec<(EndpointId, RawSession)>> {
        let (mut names, mut cursor) = (Vec::new(), 0);
        loop {
            let page = self.session_names(cursor, timeout)?;
            names.extend(page.found.iter().filter_map(|it| EndpointId::parse(it).ok()));
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        names.sort_unstable();
        names.dedup();
        let mut found = Vec::with_capacity(names.len());
        for batch in names.chunks(BATCH_MAX) {
            let read = self.sessions(batch, timeout)?;
            let there = batch.iter().zip(read).filter_map(|(id, it)| Some((id.clone(), it?)));
            found.extend(there);
        }
        Ok(found)
    }
}
