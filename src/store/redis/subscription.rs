//! Which messages of other instances and which changes of keys does the server push? Reads them on a connection of its own.
//!
//! Changes come by client-side caching in broadcast mode, which says only that a key was touched, or by keyspace events if the
//! server refuses that and has them switched on; without either, only messages come. Messages and changes need separate rights:
//! if the server refuses one, the other still works.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHashMap;
use redis::{PushKind, RedisError, RedisResult, Value};

use crate::clock::{BootClock, Clock, Moment};
use crate::model::InstanceId;
use crate::store::announcement;
use crate::store::redis::connection::Connection;
use crate::store::redis::push_reader::PushReader;
use crate::store::redis::scan::glob_escaped;
use crate::store::redis::{Server, named_in};
use crate::store::{Changes, Push, StoreResult, Subscription};

/// A server that refuses everything is asked again after this: an operator may grant the rights meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(60);

pub(crate) struct RedisSubscription {
    server: Arc<Server>,
    reader: PushReader,
    me: InstanceId,
    my_channel: Vec<u8>,
    /// What the channels of keyspace events begin with.
    keyspace: Vec<u8>,
    allowed: Allowed,
    opened_at: Moment,
    /// How often the store had moved when this began.
    moves: u64,
}

/// What the server lets this user receive.
#[derive(Debug)]
struct Allowed {
    messages: bool,
    changes: bool,
    /// What it said to the rest, with the way out.
    refused: Option<String>,
}

impl RedisSubscription {
    pub(crate) fn open(
        server: Arc<Server>,
        me: &InstanceId,
        timeout: Duration,
    ) -> StoreResult<Self> {
        let (reader, allowed, moves) = open_connections(&server, me, timeout).map_err(|error| {
            server.locator.doubt(&error);
            server.error("listen on", &error)
        })?;
        let opened_at = BootClock.now();
        let my_channel = server.keys.message_channel(Some(me)).into_bytes();
        let keyspace = keyspace(&server).into_bytes();
        let me = me.clone();
        Ok(Self { server, reader, me, my_channel, keyspace, allowed, opened_at, moves })
    }

    fn understand(&self, value: Value) -> Option<Push> {
        match value {
            Value::Push { kind: PushKind::Invalidate, data } => match data.into_iter().next() {
                Some(Value::Array(keys)) => self.changed(keys.iter().filter_map(bytes)),
                _ => Some(Push::Everything),
            },
            Value::Push { kind: PushKind::Message, data } => match &data[..] {
                [channel, payload] => self.message(bytes(channel)?, bytes(payload)?),
                _ => None,
            },
            Value::Push { kind: PushKind::PMessage, data } => match &data[..] {
                [_, channel, _] => self.changed(bytes(channel)?.strip_prefix(&*self.keyspace)),
                _ => None,
            },
            // The same from a server that speaks only the older protocol.
            Value::Array(parts) => match &parts[..] {
                [kind, channel, payload] if bytes(kind)? == b"message" => {
                    self.message(bytes(channel)?, bytes(payload)?)
                }
                [kind, _, channel, _] if bytes(kind)? == b"pmessage" => {
                    self.changed(bytes(channel)?.strip_prefix(&*self.keyspace))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn message(&self, channel: &[u8], payload: &[u8]) -> Option<Push> {
        let to = (channel == self.my_channel).then_some(&self.me);
        announcement::decode_message(to, payload, self.server.keys.database()).map(Push::Message)
    }

    fn changed<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Option<Push> {
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
        (changes != Changes::default()).then_some(Push::Changed(changes))
    }
}

impl Subscription for RedisSubscription {
    fn next(&mut self, wait: Duration) -> StoreResult<Option<Push>> {
        let failed = |error| self.server.error("listen on", &error);
        if self.server.locator.moves() != self.moves {
            return Err(failed(std::io::Error::other("the store has moved").into()));
        }
        let receives_nothing = !self.allowed.messages && !self.allowed.changes;
        if receives_nothing && BootClock.now().since(self.opened_at) >= ASK_AGAIN {
            return Err(failed(std::io::Error::other("nothing could be heard on it").into()));
        }
        let heard = self.reader.next(wait).map_err(failed)?;
        Ok(heard.and_then(|it| self.understand(it)))
    }

    fn receives_changes(&self) -> bool {
        self.allowed.changes
    }

    fn receives_messages(&self) -> bool {
        self.allowed.messages
    }

    fn refused(&self) -> Option<&str> {
        self.allowed.refused.as_deref()
    }

    fn interrupt_by(&mut self, interrupt: &Arc<UnixStream>) {
        self.reader.interrupt = Some(Arc::clone(interrupt));
    }
}

/// The prefixes of session and node keys, and the drain key: their changes are pushed.
fn watched(server: &Server) -> [String; 3] {
    let keys = &server.keys;
    [keys.session_prefix().into(), keys.node_prefix(), keys.drain()]
}

fn keyspace(server: &Server) -> String {
    format!("__keyspace@{}__:", server.locator.database())
}

/// A line to every shard, what may be heard on all of them, and how often the store had moved.
fn open_connections(
    server: &Server,
    me: &InstanceId,
    timeout: Duration,
) -> RedisResult<(PushReader, Allowed, u64)> {
    let deadline = BootClock.now() + timeout;
    let has_sessions = server.keys.kind().has_sessions();
    let mut peers = server.locator.peers(deadline)?;
    let moves = server.locator.moves();
    peers.truncate(if has_sessions { usize::MAX } else { 1 });
    let [sessions, nodes, drain] = watched(server);
    let (mut connections, mut changes) = (Vec::new(), has_sessions);
    let mut message_refusal = None;
    for (at, peer) in peers.iter().enumerate() {
        let mut connection = server.locator.connect(peer, deadline)?;
        let is_home = at == 0;
        let channels = [server.keys.message_channel(None), server.keys.message_channel(Some(me))];
        if is_home {
            // Checks that this user may publish. Nothing is subscribed yet, so nobody receives it.
            let published = redis::cmd("PUBLISH").arg(&channels[1]).arg("").exec(&mut connection);
            message_refusal = refusal(published)?;
        }
        let prefixes = if is_home { vec![&sessions, &nodes, &drain] } else { vec![&sessions] };
        let tracked = has_sessions && track(&mut connection, &prefixes)?;
        let events = has_sessions && !tracked && has_keyspace_events(&mut connection)?;
        if is_home && message_refusal.is_none() {
            message_refusal = refusal(subscribe(&mut connection, "SUBSCRIBE", &channels))?;
        }
        // Elections need nothing but messages.
        if let Some(refused) = message_refusal.take_if(|_| !has_sessions) {
            return Err(refused);
        }
        let mut heard = tracked;
        if events {
            let pattern = |it: &&String| {
                let any = if **it == drain { "" } else { "*" };
                format!("{}{}{any}", keyspace(server), glob_escaped(it))
            };
            let patterns: Vec<String> = prefixes.iter().map(pattern).collect();
            heard = refusal(subscribe(&mut connection, "PSUBSCRIBE", &patterns))?.is_none();
        }
        changes &= heard;
        connections.push(connection);
    }
    let messages = message_refusal.is_none();
    let refused =
        has_sessions.then(|| refusal_text(server, message_refusal.as_ref(), changes)).flatten();
    Ok((PushReader::on(connections, timeout)?, Allowed { messages, changes, refused }, moves))
}

/// What the server refuses, what that costs, and the way out.
fn refusal_text(server: &Server, denied: Option<&RedisError>, changes: bool) -> Option<String> {
    let user = server.locator.user().unwrap_or("default");
    let mut parts = Vec::new();
    if let Some(error) = denied {
        let said = error.detail().unwrap_or_default();
        let pattern = server.keys.message_channel(None).replace("wake", "*");
        parts.push(format!(
            "instances do not hear one another, so a lease changes hands seconds later ({said}): \
             ACL SETUSER {user} '&{pattern}' +subscribe +publish"
        ));
    }
    if !changes {
        parts.push(format!(
            "changes of keys are not pushed, so everything is read again and again: \
             ACL SETUSER {user} '+client|tracking', or a server of version 6 or later"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; ") + "; then restart this instance")
}

/// What the server itself refused; only a broken line is an error.
fn refusal(answer: RedisResult<()>) -> RedisResult<Option<RedisError>> {
    match answer {
        Ok(()) => Ok(None),
        Err(error) if error.code().is_some() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Asks to be told of changes; false when the server will not. Leases are not among them: to push each
/// renewal to everybody would make it five times dearer.
fn track(connection: &mut Connection, prefixes: &[&String]) -> RedisResult<bool> {
    if !granted(redis::cmd("HELLO").arg(3).exec(connection))? {
        return Ok(false);
    }
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON").arg("BCAST");
    for prefix in prefixes {
        tracking.arg("PREFIX").arg(prefix);
    }
    granted(tracking.exec(connection))
}

/// Whether every write and removal of a key is an event here.
fn has_keyspace_events(connection: &mut Connection) -> RedisResult<bool> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("notify-keyspace-events");
    let classes = match command.query::<FnvHashMap<String, String>>(connection) {
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

/// Each must be confirmed, or messages said from now on could be missed without a sign.
pub(crate) fn subscribe(
    connection: &mut Connection,
    verb: &str,
    channels: &[String],
) -> RedisResult<()> {
    connection.send(redis::cmd(verb).arg(channels))?;
    let mut outstanding = channels.len();
    while outstanding > 0 {
        let value = connection.receive()?.extract_error()?;
        // Pushes may come in between. They are lost, like all earlier pushes: a new subscriber reads everything next.
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
