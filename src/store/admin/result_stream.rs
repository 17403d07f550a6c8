//! Results as they are announced, over a connection of its own. Anybody may announce: nothing is trusted.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use serde_json::Value as Json;

use crate::clock::{BootClock, Clock};
use crate::model::{CertificateLeft, EndpointId, FenceToken, InstanceId};
use crate::store::StoreResult;
use crate::store::admin::overview::LastResult;
use crate::store::announcement;
use crate::store::redis::scan::glob_escaped;
use crate::store::redis::subscription::{PushReader, bytes, subscribe};
use crate::store::redis::{RedisStore, Server};

/// A connection on which results are received.
pub struct Results {
    server: Arc<Server>,
    reader: PushReader,
    prefix: String,
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
        Ok(Results { server, reader, prefix })
    }
}

impl Results {
    /// The next one; `None` when there was none in time, or what came was none.
    pub fn next(&mut self, wait: Duration) -> StoreResult<Option<Announced>> {
        let failed = |error| self.server.error("follow results on", &error);
        let heard = self.reader.next(wait).map_err(failed)?;
        Ok(heard.and_then(|it| self.understand(&it)))
    }

    fn understand(&self, value: &Value) -> Option<Announced> {
        let Value::Array(parts) = value else { return None };
        let (channel, payload) = match &parts[..] {
            [kind, channel, payload] if bytes(kind)? == b"message" => (channel, payload),
            [kind, _, channel, payload] if bytes(kind)? == b"pmessage" => (channel, payload),
            _ => return None,
        };
        let endpoint = bytes(channel)?.strip_prefix(self.prefix.as_bytes())?;
        let result = announced(bytes(payload)?, self.server.keys.database())?;
        Some(Announced { endpoint: String::from_utf8_lossy(endpoint).into_owned(), result })
    }
}

/// A result that was announced in this database.
fn announced(payload: &[u8], database: u32) -> Option<LastResult> {
    let Ok(Json::Object(fields)) = serde_json::from_slice(payload) else { return None };
    if !announcement::is_from(&fields, database) {
        return None;
    }
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
            ["", "{", "[]", "{}", r#"{"ok":2}"#, r#"{"ok":"1"}"#, "\u{0}", r#"{"ok":1,"db":3}"#]
        {
            assert_eq!(announced(noise.as_bytes(), 0), None, "{noise:?}");
        }
        let odd = announced(br#"{"ok":1,"status":"x","fence":-1,"instance":"","error":3}"#, 0);
        let odd = odd.unwrap();
        assert!(odd.ok && odd.status.is_none() && odd.fence.is_none() && odd.instance.is_none());
    }
}
