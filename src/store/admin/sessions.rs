//! What people change: stored sessions, and who is drained. The daemon only ever reads these.

use std::ops::AddAssign;
use std::time::Duration;

use redis::Value;

use crate::model::{EndpointId, InstanceId};
use crate::store::redis::RedisStore;
use crate::store::redis::locator::Route;
use crate::store::redis::scan::of_wrong_type;
use crate::store::redis::script::{self, Call};
use crate::store::{RawSession, Store, StoreResult};

/// From what to what a session is to change; `None` where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCas {
    /// What it was.
    pub before: Option<Vec<u8>>,
    /// What it is to be.
    pub after: Option<Vec<u8>>,
}

/// What came of draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// It holds nothing from now on.
    Now,
    /// It was drained already.
    Before,
    /// Nothing was done: nobody would be left.
    NobodyLeft,
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
    pub fn session(&self, id: &EndpointId, timeout: Duration) -> StoreResult<Option<RawSession>> {
        Ok(self.sessions(std::slice::from_ref(id), timeout)?.pop().flatten())
    }

    /// Changes a session if it is still what it was; false if it is not.
    pub fn cas_session(
        &self,
        id: &EndpointId,
        cas: &SessionCas,
        timeout: Duration,
    ) -> StoreResult<bool> {
        let op = "change a session on";
        let mut call = Call::default();
        call.key(self.server.keys.session(id));
        for side in [&cas.before, &cas.after] {
            call.bytes(side.as_deref().unwrap_or_default()).arg(u8::from(side.is_some()));
        }
        let key = self.server.keys.session(id);
        match self.call_at(Route::Key(&key), op, timeout, |connection| {
            script::CAS_SESSION.run(connection, &call)
        })? {
            Value::Int(done) => Ok(done == 1),
            _ => Err(self.server.unexpected(op)),
        }
    }

    /// Stores these, whatever was there.
    pub fn store_sessions(
        &self,
        batch: &[(EndpointId, Vec<u8>)],
        timeout: Duration,
    ) -> StoreResult<Imported> {
        let op = "store sessions on";
        let keys: Vec<String> = batch.iter().map(|it| self.server.keys.session(&it.0)).collect();
        let answers = self.each_key(op, &keys, timeout, 1, |pipe, at| {
            pipe.cmd("SET").arg(&keys[at]).arg(&batch[at].1).arg("GET");
        })?;
        let before = answers.into_iter().map(|it| {
            let before = it.extract_error().and_then(|it| Ok(redis::from_redis_value(it)?));
            before.map_err(|error| self.server.error(op, &error))
        });
        let before: Vec<Option<Vec<u8>>> = before.collect::<StoreResult<_>>()?;
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

    /// Puts a name into the set of those who are to hold nothing, unless none of the `living` would be left to
    /// take the work. Decided where it is written: two who drain at once must not leave nobody.
    pub fn drain(
        &self,
        name: &str,
        living: &[InstanceId],
        force: bool,
        timeout: Duration,
    ) -> StoreResult<Drained> {
        let (op, keys) = ("drain on", &self.server.keys);
        let mut call = Call::default();
        call.key(keys.drain()).arg(name).arg(u8::from(force));
        for it in living {
            call.key(keys.node(it)).arg(it).arg(it.host());
        }
        let answer = self.call(op, timeout, |connection| script::DRAIN.run(connection, &call));
        match answer.map_err(|error| of_wrong_type(error, &keys.drain(), "a set"))? {
            Value::Int(1) => Ok(Drained::Now),
            Value::Int(0) => Ok(Drained::Before),
            Value::Int(_) => Ok(Drained::NobodyLeft),
            _ => Err(self.server.unexpected(op)),
        }
    }

    /// Takes a name out of the set of those who are to hold nothing; false if it was not in it.
    pub fn undrain(&self, name: &str, timeout: Duration) -> StoreResult<bool> {
        let key = self.server.keys.drain();
        self.call("undrain on", timeout, |connection| {
            redis::cmd("SREM").arg(&key).arg(name).query(connection)
        })
        .map_err(|error| of_wrong_type(error, &key, "a set"))
    }
}
