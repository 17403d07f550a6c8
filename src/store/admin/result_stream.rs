//! Results as they are announced, over a connection of its own. Anybody may announce: nothing is trusted.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use serde_json::{Map, Value as Json};

use crate::clock::{BootClock, Clock, Moment};
use crate::model::{CertificateLeft, EndpointId, FenceToken, InstanceId};
use crate::store::StoreResult;
use crate::store::admin::overview::LastResult;
use crate::store::announcement;
use crate::store::redis::push_reader::PushReader;
use crate::store::redis::scan::glob_escaped;
use crate::store::redis::subscription::{bytes, subscribe};
use crate::store::redis::{RedisStore, Server};

/// A longer announcement is not parsed: the body of a result is far shorter.
const ANNOUNCED_MAX_BYTES: usize = 64 * 1024 * 1024;

/// A connection on which results are received.
pub struct Results {
    server: Arc<Server>,
    reader: PushReader,
    prefix: String,
    /// Messages that were no results, since they were last taken.
    foreign: u64,
    /// How often the store had moved when this began: a master that was replaced may stay silent for ever.
    moves: u64,
}

/// A result as it was announced, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Whose, by the channel.
    pub endpoint: String,
    /// What the poll came to.
    pub result: LastResult,
}

impl RedisStore {
    /// Listens for the results of `endpoint`, or of all. What was announced before is not heard.
    pub fn follow_results(
        &self,
        endpoint: Option<&EndpointId>,
        timeout: Duration,
    ) -> StoreResult<Results> {
        let failed = |error| self.server.error("follow results on", &error);
        let keys = &self.server.keys;
        let mut connection =
            self.server.locator.connect_home(BootClock.now() + timeout).map_err(failed)?;
        let moves = self.server.locator.moves();
        let subscribed = match endpoint {
            Some(endpoint) => {
                subscribe(&mut connection, "SUBSCRIBE", &[keys.results_channel(endpoint)])
            }
            None => {
                let pattern = format!("{}*", glob_escaped(&keys.results_prefix()));
                subscribe(&mut connection, "PSUBSCRIBE", &[pattern])
            }
        };
        subscribed.map_err(failed)?;
        let (server, prefix) = (Arc::clone(&self.server), keys.results_prefix());
        let reader = PushReader::on(vec![connection], timeout).map_err(failed)?;
        Ok(Results { server, reader, prefix, foreign: 0, moves })
    }
}

impl Results {
    /// The next one; `None` when there was none in time, or what came was none.
    pub fn next(&mut self, wait: Duration) -> StoreResult<Option<Announced>> {
        let failed = |error| self.server.error("follow results on", &error);
        if self.server.locator.moves() != self.moves {
            return Err(failed(std::io::Error::other("the store has moved").into()));
        }
        let heard = self.reader.next(wait).map_err(failed)?;
        Ok(heard.and_then(|it| self.understand(&it)))
    }

    /// How many messages came since the last call that were neither results nor from another database.
    pub(crate) fn take_foreign(&mut self) -> u64 {
        std::mem::take(&mut self.foreign)
    }

    /// When something was last received: a silent connection is pinged, so it is known to work until then.
    pub(crate) fn received_at(&self) -> Moment {
        self.reader.received_at()
    }

    fn understand(&mut self, value: &Value) -> Option<Announced> {
        let Value::Array(parts) = value else { return None };
        let (channel, payload) = match &parts[..] {
            [kind, channel, payload] if bytes(kind)? == b"message" => (channel, payload),
            [kind, _, channel, payload] if bytes(kind)? == b"pmessage" => (channel, payload),
            _ => return None,
        };
        let endpoint = bytes(channel)?.strip_prefix(self.prefix.as_bytes())?;
        match announced(bytes(payload)?, self.server.keys.database()) {
            Heard::Result(result) => {
                let endpoint = String::from_utf8_lossy(endpoint).into_owned();
                Some(Announced { endpoint, result: *result })
            }
            Heard::OtherDatabase => None,
            Heard::Foreign => {
                self.foreign += 1;
                None
            }
        }
    }
}

/// What a message on the channel of a result is.
#[derive(Debug, PartialEq)]
enum Heard {
    Result(Box<LastResult>),
    /// A result of a fleet in another database of this server.
    OtherDatabase,
    /// No result.
    Foreign,
}

fn announced(payload: &[u8], database: u32) -> Heard {
    if payload.len() > ANNOUNCED_MAX_BYTES {
        return Heard::Foreign;
    }
    let Ok(Json::Object(fields)) = serde_json::from_slice(payload) else { return Heard::Foreign };
    if !announcement::is_from(&fields, database) {
        let names_another = fields.get("db").is_some_and(Json::is_u64);
        return if names_another { Heard::OtherDatabase } else { Heard::Foreign };
    }
    result(&fields).map_or(Heard::Foreign, |it| Heard::Result(Box::new(it)))
}

fn result(fields: &Map<String, Json>) -> Option<LastResult> {
    let number = |name: &str| fields.get(name).and_then(Json::as_u64);
    let text = |name: &str| fields.get(name).and_then(Json::as_str);
    let ok = match number("ok")? {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(LastResult {
        ok,
        status: fields.get("status").and_then(Json::as_i64),
        error: text("error").map(|it| it.chars().take(1_000).collect()),
        started_at_ms: number("started_at_ms"),
        interval_ms: number("interval_ms"),
        duration_ms: number("duration_ms"),
        fence: number("fence").map(FenceToken),
        instance: text("instance").filter(|it| !it.is_empty()).map(InstanceId::new),
        state: None,
        certificate: CertificateLeft::told(
            fields.get("cert_days").map(Json::to_string),
            number("cert_expiring"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_result_is_nothing() {
        for noise in
            ["", "{", "[]", "{}", r#"{"ok":2}"#, r#"{"ok":"1"}"#, "\u{0}", r#"{"ok":1,"db":"x"}"#]
        {
            assert_eq!(announced(noise.as_bytes(), 0), Heard::Foreign, "{noise:?}");
        }
        assert_eq!(announced(br#"{"ok":1,"db":3}"#, 0), Heard::OtherDatabase);
        let odd = announced(br#"{"ok":1,"status":"x","fence":-1,"instance":"","error":3}"#, 0);
        let Heard::Result(odd) = odd else { panic!("{odd:?}") };
        assert!(odd.ok && odd.status.is_none() && odd.fence.is_none() && odd.instance.is_none());
    }
}
