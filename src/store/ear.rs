//! Listening on the wake-up channels, over a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};

use crate::clock::{BootClock, Clock, Moment};
use crate::model::InstanceId;
use crate::store::message;
use crate::store::redis::Server;
use crate::store::wire::Wire;
use crate::store::{Asked, Ear, Wake};

/// A line that has been silent for this long is asked whether it still stands.
const SILENCE_MAX: Duration = Duration::from_secs(5);

pub(crate) struct RedisEar {
    server: Arc<Server>,
    wire: Wire,
    me: InstanceId,
    my_channel: Vec<u8>,
    timeout: Duration,
    heard_at: Moment,
    pinged_at: Option<Moment>,
}

impl RedisEar {
    pub(crate) fn open(server: Arc<Server>, me: &InstanceId, timeout: Duration) -> Asked<Self> {
        let now = BootClock.now();
        let failed = |error| server.error("listen on", &error);
        let mut wire = Wire::connect(&server.info, now + timeout).map_err(failed)?;
        let mine = server.keys.wake(Some(me));
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg(server.keys.wake(None)).arg(&mine);
        wire.send(&subscribe).map_err(failed)?;
        // Both must be confirmed, or words said from now on could be missed without a sign.
        for _ in 0..2 {
            wire.receive().and_then(Value::extract_error).map_err(failed)?;
        }
        let (me, my_channel) = (me.clone(), mine.into_bytes());
        Ok(Self { server, wire, me, my_channel, timeout, heard_at: now, pinged_at: None })
    }

    fn hear(&mut self, wait: Duration) -> RedisResult<Option<Wake>> {
        let now = BootClock.now();
        match self.pinged_at {
            None if now.since(self.heard_at) >= SILENCE_MAX => {
                self.wire.set_deadline(now + self.timeout);
                self.wire.send(&redis::cmd("PING"))?;
                self.pinged_at = Some(now);
            }
            Some(at) if now.since(at) >= self.timeout.max(wait) => {
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            }
            _ => (),
        }
        self.wire.set_deadline(now + wait);
        match self.wire.receive() {
            Ok(value) => {
                self.heard_at = BootClock.now();
                self.pinged_at = None;
                Ok(self.understand(value.extract_error()?))
            }
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn understand(&self, value: Value) -> Option<Wake> {
        let Value::Array(parts) = value else { return None };
        let [kind, Value::BulkString(channel), Value::BulkString(payload)] = &parts[..] else {
            return None;
        };
        let said = matches!(kind, Value::BulkString(it) if it == b"message");
        let to = (*channel == self.my_channel).then_some(&self.me);
        said.then(|| message::heard(to, payload)).flatten()
    }
}

impl Ear for RedisEar {
    fn next(&mut self, wait: Duration) -> Asked<Option<Wake>> {
        self.hear(wait).map_err(|error| self.server.error("listen on", &error))
    }
}
