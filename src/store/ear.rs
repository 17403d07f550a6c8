//! Listening, over a connection of its own: to the words of other instances, and to changes of keys.
//!
//! Changes come by client-side caching in broadcast mode, which says no more than that a key was
//! touched, or by keyspace events where a server refuses that and has them switched on. A server that
//! offers neither only passes on words.

use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHashMap;
use redis::{PushKind, RedisResult, Value};

use crate::clock::{BootClock, Clock, Moment};
use crate::model::InstanceId;
use crate::store::message;
use crate::store::redis::{Server, named_in};
use crate::store::scan::glob_escaped;
use crate::store::wire::Wire;
use crate::store::{Asked, Changes, Ear, Heard};

/// A line that has been silent for this long is asked whether it still stands.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// A line on which the server speaks by itself.
pub(crate) struct Listening {
    wire: Wire,
    timeout: Duration,
    heard_at: Moment,
    pinged_at: Option<Moment>,
}

impl Listening {
    /// From now on, on a wire that is subscribed. A broken line is noticed within the silence and `timeout`.
    pub(crate) fn on(wire: Wire, timeout: Duration) -> Self {
        Self { wire, timeout, heard_at: BootClock.now(), pinged_at: None }
    }

    /// The next word of the server; `None` when there was none in time.
    pub(crate) fn next(&mut self, wait: Duration) -> RedisResult<Option<Value>> {
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
                value.extract_error().map(Some)
            }
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(crate) struct RedisEar {
    server: Arc<Server>,
    line: Listening,
    me: InstanceId,
    my_channel: Vec<u8>,
    /// What the channels of keyspace events begin with.
    keyspace: Vec<u8>,
    hears_changes: bool,
}

impl RedisEar {
    pub(crate) fn open(server: Arc<Server>, me: &InstanceId, timeout: Duration) -> Asked<Self> {
        let failed = |error| server.error("listen on", &error);
        let mut wire = Wire::connect(&server.info, BootClock.now() + timeout).map_err(failed)?;
        let mine = server.keys.wake(Some(me));
        let keyspace = format!("__keyspace@{}__:", server.info.redis_settings().db());
        // Roles are few: whoever stands for one looks at it in time, and hears the words.
        let of_roles = server.keys.leader_heartbeats().is_some();
        let tracked = !of_roles && track(&server, &mut wire).map_err(failed)?;
        let events = !of_roles && !tracked && has_keyspace_events(&mut wire).map_err(failed)?;
        subscribe(&mut wire, "SUBSCRIBE", &[server.keys.wake(None), mine.clone()])
            .map_err(failed)?;
        if events {
            let patterns = watched(&server).map(|it| format!("{keyspace}{}", glob_escaped(&it)));
            let [sessions, nodes, drain] = patterns;
            let patterns = [sessions + "*", nodes + "*", drain];
            subscribe(&mut wire, "PSUBSCRIBE", &patterns).map_err(failed)?;
        }
        Ok(Self {
            server,
            line: Listening::on(wire, timeout),
            me: me.clone(),
            my_channel: mine.into_bytes(),
            keyspace: keyspace.into_bytes(),
            hears_changes: tracked || events,
        })
    }

    fn understand(&self, value: Value) -> Option<Heard> {
        match value {
            Value::Push { kind: PushKind::Invalidate, data } => match data.into_iter().next() {
                Some(Value::Array(keys)) => self.changed(keys.iter().filter_map(bytes)),
                _ => Some(Heard::Everything),
            },
            Value::Push { kind: PushKind::Message, data } => match &data[..] {
                [channel, payload] => self.word(bytes(channel)?, bytes(payload)?),
                _ => None,
            },
            Value::Push { kind: PushKind::PMessage, data } => match &data[..] {
                [_, channel, _] => self.changed(bytes(channel)?.strip_prefix(&*self.keyspace)),
                _ => None,
            },
            // The same from a server that speaks only the older protocol.
            Value::Array(parts) => match &parts[..] {
                [kind, channel, payload] if bytes(kind)? == b"message" => {
                    self.word(bytes(channel)?, bytes(payload)?)
                }
                [kind, _, channel, _] if bytes(kind)? == b"pmessage" => {
                    self.changed(bytes(channel)?.strip_prefix(&*self.keyspace))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn word(&self, channel: &[u8], payload: &[u8]) -> Option<Heard> {
        let to = (channel == self.my_channel).then_some(&self.me);
        message::heard(to, payload).map(Heard::Word)
    }

    fn changed<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Option<Heard> {
        let [sessions, nodes, drain] = watched(&self.server);
        let mut changes = Changes::default();
        for key in keys {
            if let Some(name) = key.strip_prefix(sessions.as_bytes()) {
                changes.sessions.push(String::from_utf8_lossy(name).into_owned());
            } else if key == drain.as_bytes() {
                changes.drain = true;
            } else {
                changes.nodes.extend(named_in(key, &nodes));
            }
        }
        (changes != Changes::default()).then_some(Heard::Changed(changes))
    }
}

impl Ear for RedisEar {
    fn next(&mut self, wait: Duration) -> Asked<Option<Heard>> {
        let heard = self.line.next(wait).map_err(|error| self.server.error("listen on", &error))?;
        Ok(heard.and_then(|it| self.understand(it)))
    }

    fn hears_changes(&self) -> bool {
        self.hears_changes
    }
}

/// What changes are told about: keys that begin so, and the last one as it is.
fn watched(server: &Server) -> [String; 3] {
    let keys = &server.keys;
    [keys.session_prefix().into(), keys.node_prefix(), keys.drain()]
}

/// Asks to be told of changes; false when the server will not. Leases are not among them: to push each
/// renewal to everybody would make it five times dearer.
fn track(server: &Server, wire: &mut Wire) -> RedisResult<bool> {
    if !granted(redis::cmd("HELLO").arg(3).exec(wire))? {
        return Ok(false);
    }
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON").arg("BCAST");
    for prefix in watched(server) {
        tracking.arg("PREFIX").arg(prefix);
    }
    granted(tracking.exec(wire))
}

/// Whether every write and removal of a key is an event here.
fn has_keyspace_events(wire: &mut Wire) -> RedisResult<bool> {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("notify-keyspace-events");
    let classes = match ask.query::<FnvHashMap<String, String>>(wire) {
        Ok(found) => found.into_values().collect(),
        Err(error) if !error.is_io_error() => String::new(),
        Err(error) => return Err(error),
    };
    // Removals, strings, sets, expiries: with fewer, changes would go unheard, which is worse than none.
    let all = classes.contains('A') || "g$sx".chars().all(|it| classes.contains(it));
    Ok(classes.contains('K') && all)
}

/// A refusal is an answer; only a broken line is an error.
fn granted(answer: RedisResult<()>) -> RedisResult<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if !error.is_io_error() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Each must be confirmed, or words said from now on could be missed without a sign.
pub(crate) fn subscribe(wire: &mut Wire, verb: &str, channels: &[String]) -> RedisResult<()> {
    wire.send(redis::cmd(verb).arg(channels))?;
    let mut outstanding = channels.len();
    while outstanding > 0 {
        let value = wire.receive()?.extract_error()?;
        // News may come in between. They are lost, as whatever came before: who listens looks next.
        let news = matches!(
            value,
            Value::Push { kind: PushKind::Invalidate | PushKind::Message | PushKind::PMessage, .. }
        );
        outstanding -= usize::from(!news);
    }
    Ok(())
}

pub(crate) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(it) => Some(it),
        Value::SimpleString(it) => Some(it.as_bytes()),
        _ => None,
    }
}
