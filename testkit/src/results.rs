//! The other half of the judge: every result that was announced or stored, and whether one was ever older
//! than one before it (G2). Results are ordered by (fence, start).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use redis::{Connection, RedisResult};
use serde_json::Value;

use crate::process::ms;
use crate::target::Request;

/// Between two looks at what is stored.
const LOOK: Duration = ms(200);
/// How much later than it was said an announcement may be read here, on a machine that is busy.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// A result, as everybody who subscribes hears it.
#[derive(Clone, Debug)]
pub struct Announced {
    pub endpoint: String,
    pub instance: String,
    pub fence: u64,
    pub started_at_ms: u64,
    pub at: Instant,
}

impl Announced {
    fn order(&self) -> Order {
        (self.fence, self.started_at_ms)
    }
}

/// Fence and start of a result.
type Order = (u64, u64);

#[derive(Default)]
struct Record {
    announced: Vec<Announced>,
    /// By the life of the server (a restart may bring back what was stored earlier) and endpoint.
    stored: BTreeMap<(String, String), Order>,
    fell: Vec<String>,
}

/// Listens and looks until dropped; whenever the server is away, as soon as it is back.
pub struct Results {
    url: Arc<Mutex<String>>,
    /// Of everything but the sessions.
    prefix: String,
    record: Arc<Mutex<Record>>,
    _running: Sender<()>,
}

impl Results {
    pub fn watch(url: &str) -> Self {
        Self::watch_under("poll", url)
    }

    pub fn watch_under(prefix: &str, url: &str) -> Self {
        let url = Arc::new(Mutex::new(url.to_owned()));
        let record = Arc::<Mutex<Record>>::default();
        let (running, over) = bounded(0);
        let results = Self { url, prefix: prefix.into(), record, _running: running };
        results.spawn(&over, listen);
        results.spawn(&over, look);
        results
    }

    /// The server is another now, or wants another password.
    pub fn go_to(&self, url: &str) {
        url.clone_into(&mut self.url.lock());
    }

    fn spawn(&self, over: &Receiver<()>, step: Step) {
        let (url, record, over) = (Arc::clone(&self.url), Arc::clone(&self.record), over.clone());
        let prefix = self.prefix.clone();
        std::thread::spawn(move || {
            while over.recv_timeout(ms(30)) == Err(RecvTimeoutError::Timeout) {
                let url = url.lock().clone();
                if let Ok(connection) = connect(&url) {
                    step(connection, &prefix, &record, &over);
                }
            }
        });
    }

    pub fn len(&self) -> usize {
        self.record.lock().announced.len()
    }

    /// Results that came after a result, or a poll, under a newer grant.
    pub fn stale(&self, polls: &[Request]) -> Vec<String> {
        let record = self.record.lock();
        let mut found = record.fell.clone();
        let mut highest: BTreeMap<&str, &Announced> = BTreeMap::new();
        for result in &record.announced {
            let before = highest.entry(&result.endpoint).or_insert(result);
            let twice = before.fence == result.fence && before.instance != result.instance;
            if before.order() > result.order() || twice {
                found.push(format!("{result:?} after {before:?}"));
            } else {
                *before = result;
            }
        }
        found.extend(overtaken(&record.announced, polls));
        found
    }
}

/// Until the server or the test is away.
type Step = fn(Connection, &str, &Mutex<Record>, &Receiver<()>);

/// Announced although another instance had polled under a newer grant, well before.
fn overtaken(announced: &[Announced], polls: &[Request]) -> Vec<String> {
    // Each endpoint's first poll under each fence: grants, as the endpoint saw them.
    let mut grants: BTreeMap<&str, BTreeMap<u64, Instant>> = BTreeMap::new();
    for poll in polls {
        let endpoint = poll.path.trim_start_matches('/');
        grants.entry(endpoint).or_default().entry(poll.fence).or_insert(poll.start);
    }
    let late = |it: &&Announced| {
        let newer = grants.get(it.endpoint.as_str()).map(|grants| grants.range(it.fence + 1..));
        newer.into_iter().flatten().any(|(_, began)| *began + HEARD_WITHIN < it.at)
    };
    announced.iter().filter(late).map(|it| format!("{it:?} after a newer poll")).collect()
}

fn connect(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(ms(500))?;
    connection.set_read_timeout(Some(ms(500)))?;
    Ok(connection)
}

fn listen(mut connection: Connection, prefix: &str, record: &Mutex<Record>, over: &Receiver<()>) {
    let prefix = format!("{prefix}:results:");
    let mut channel = connection.as_pubsub();
    if channel.psubscribe(format!("{prefix}*")).is_err() {
        return;
    }
    while over.try_recv() == Err(crossbeam_channel::TryRecvError::Empty) {
        let message = match channel.get_message() {
            Ok(message) => message,
            Err(error) if error.is_timeout() => continue,
            Err(_) => return,
        };
        let at = Instant::now();
        let endpoint = message.get_channel_name().trim_start_matches(&prefix).to_owned();
        let text: String = message.get_payload().unwrap_or_default();
        let result: Value = serde_json::from_str(&text).unwrap_or_default();
        let instance = result["instance"].as_str().unwrap_or_default().to_owned();
        let fence = result["fence"].as_u64().unwrap_or_default();
        let started_at_ms = result["started_at_ms"].as_u64().unwrap_or_default();
        let announced = Announced { endpoint, instance, fence, started_at_ms, at };
        record.lock().announced.push(announced);
    }
}

fn look(mut connection: Connection, prefix: &str, record: &Mutex<Record>, over: &Receiver<()>) {
    // What a replica has may fall: it may have to forget what its new master never had.
    let script = redis::Script::new(
        "local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') \
         local info = redis.call('INFO', 'replication') \
         local r = {run .. string.match(info, 'master_replid:(%w+)')} \
         if not string.find(info, 'role:master', 1, true) then return r end \
         for _, k in ipairs(redis.call('KEYS', ARGV[1])) do \
         local f = redis.call('HMGET', k, 'fence', 'started_at_ms') \
         r[#r + 1] = k r[#r + 1] = f[1] or '0' r[#r + 1] = f[2] or '0' end return r",
    );
    let pattern = format!("{prefix}:result:*");
    while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let answer = script.arg(&pattern).invoke::<Vec<String>>(&mut connection);
        let Ok(answer) = answer else { return };
        let Some((life, found)) = answer.split_first() else { return };
        let mut record = record.lock();
        for it in found.chunks_exact(3) {
            let order = (it[1].parse().unwrap_or(0), it[2].parse().unwrap_or(0));
            let key = (life.clone(), it[0].clone());
            let before = record.stored.insert(key, order).unwrap_or_default();
            if before > order && order.0 > 0 {
                record.fell.push(format!("{} fell from {before:?} to {order:?}", it[0]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::{RedisServer, eventually};

    #[test]
    fn the_judge_sees_a_result_that_comes_after_one_with_more_right_to() {
        let redis = RedisServer::start();
        let results = Results::watch(&redis.url());
        let announce = |fence: u64, start: u64, instance: &str| {
            let text = serde_json::json!(
                {"instance": instance, "fence": fence, "started_at_ms": start}
            );
            let text = text.to_string();
            let before = results.len();
            let say = || redis.cli(&["PUBLISH", "poll:results:e1", &text]) != "0";
            eventually(say, || "nobody listens".into());
            eventually(|| results.len() > before, || "nothing was heard".into());
        };
        announce(7, 50, "a");
        announce(9, 20, "b");
        announce(9, 30, "b");
        assert!(results.stale(&[]).is_empty(), "{:?}", results.stale(&[]));
        announce(9, 20, "b");
        assert_eq!(results.stale(&[]).len(), 1, "an older start of the same grant");
        announce(8, 60, "a");
        assert_eq!(results.stale(&[]).len(), 2, "an older grant");
    }

    #[test]
    fn the_judge_sees_a_stored_result_that_falls() {
        let redis = RedisServer::start();
        let results = Results::watch(&redis.url());
        let seen = |fence: u64, start: u64| {
            let key = "poll:result:e1";
            let (fenced, started) = (fence.to_string(), start.to_string());
            redis.cli(&["HSET", key, "fence", &fenced, "started_at_ms", &started]);
            let stored = || {
                let record = results.record.lock();
                record.stored.iter().any(|it| it.0.1 == key && *it.1 == (fence, start))
            };
            eventually(stored, || "it was not looked at".into());
        };
        seen(8, 50);
        seen(9, 20);
        seen(9, 30);
        assert!(results.stale(&[]).is_empty());
        seen(9, 20);
        assert_eq!(results.stale(&[]).len(), 1, "an older start of the same grant");
        seen(8, 60);
        assert_eq!(results.stale(&[]).len(), 2, "an older grant");
    }

    #[test]
    fn the_judge_sees_a_result_that_comes_long_after_a_newer_poll() {
        let now = Instant::now();
        let (path, instance) = ("/e1".to_owned(), "b".to_owned());
        let poll = Request { path, instance, fence: 9, start: now, end: None };
        let result = |fence, after| {
            let (endpoint, instance) = ("e1".to_owned(), "a".to_owned());
            Announced { endpoint, instance, fence, started_at_ms: 0, at: now + after }
        };
        let late = |it: Announced| overtaken(&[it], std::slice::from_ref(&poll)).len();
        assert_eq!(late(result(8, ms(2_000))), 1);
        assert_eq!(late(result(8, ms(100))), 0);
        assert_eq!(late(result(9, ms(2_000))), 0);
    }
}
