//! What each make and version of a server answers when an instance begins, recorded once from the real ones:
//! without any of these servers, the tests show that each is understood and asked the right things.
//!
//! `LEASEHOLD_RECORD=redis-9.9 LEASEHOLD_TEST_SERVER=… cargo test --test it the_server_at_hand` adds one.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use leasehold::inspect::doctor::server;
use leasehold::inspect::doctor::{Finding, Grade};
use leasehold::model::Weight;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Acquire, Fault, RequestContext, Store, StoreError};
use parking_lot::Mutex;
use redis::Parser;
use serde_json::json;

use crate::store::contract::asker::{Asker, endpoint};
use crate::store::contract::world::{TIMEOUT, TTL};
use testkit::fake::Fake;
use testkit::process::leasehold;
use testkit::redis::RedisServer;

/// Question and answer, in order. Of a script only the verb is kept: it changes more often than the servers.
type Exchange = Vec<(String, String)>;

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/store/handshakes")
}

fn load(name: &str) -> Exchange {
    let text = fs::read_to_string(dir().join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn names() -> BTreeSet<String> {
    let files = fs::read_dir(dir()).unwrap().map(|it| it.unwrap().file_name());
    files.map(|it| it.to_str().unwrap().trim_end_matches(".json").into()).collect()
}

/// The next command that a client sends; `None` when it has hung up.
fn command(from: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let number = |from: &mut dyn BufRead| {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse::<usize>().ok()
    };
    let n_words = number(from)?;
    let mut words = Vec::new();
    for _ in 0..n_words {
        let mut word = vec![0; number(from)? + 2];
        from.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

fn told(words: &[Vec<u8>]) -> String {
    let words: Vec<_> = words.iter().map(|it| String::from_utf8_lossy(it)).collect();
    let kept = if words[0].starts_with("EVAL") { 1 } else { words.len() };
    words[..kept].join(" ")
}

/// Answers as `exchange` has it. What is not in there is an error, and kept in `unheard_of`.
fn replaying(exchange: Exchange, unheard_of: &Arc<Mutex<Vec<String>>>) -> Fake {
    let left = Mutex::new(exchange);
    let unheard_of = Arc::clone(unheard_of);
    Fake::serving(move |mut stream: TcpStream| {
        let mut from = BufReader::new(stream.try_clone().unwrap());
        while let Some(words) = command(&mut from) {
            let asked = told(&words);
            let mut left = left.lock();
            let answer = match left.iter().position(|it| it.0 == asked) {
                Some(at) => left.remove(at).1,
                None => {
                    unheard_of.lock().push(asked);
                    "-ERR that was not recorded\r\n".into()
                }
            };
            drop(left);
            if stream.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    })
}

/// Passes every question on to `port`, one at a time, and keeps it with its answer.
fn recording(port: u16, exchange: &Arc<Mutex<Exchange>>) -> Fake {
    let exchange = Arc::clone(exchange);
    Fake::serving(move |mut stream: TcpStream| {
        let mut far = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut from = BufReader::new(stream.try_clone().unwrap());
        while let Some(words) = command(&mut from) {
            let mut packed = redis::Cmd::new();
            packed.arg(&words);
            far.write_all(&packed.get_packed_command()).unwrap();
            // Each channel is confirmed by itself.
            let n = if words[0] == b"SUBSCRIBE" { words.len() - 1 } else { 1 };
            let answer = answers(&mut far, n);
            exchange.lock().push((told(&words), without_whereabouts(&answer)));
            stream.write_all(answer.as_bytes()).unwrap();
        }
    })
}

fn answers(far: &mut TcpStream, n: usize) -> String {
    let mut bytes = Vec::new();
    let whole = |bytes: &[u8]| {
        let (mut parser, mut rest) = (Parser::new(), bytes);
        (0..n).all(|_| parser.parse_value(&mut rest).is_ok())
    };
    while !whole(&bytes) {
        let mut more = [0; 16 * 1024];
        let n = far.read(&mut more).unwrap();
        assert!(n > 0, "it hung up after {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend(&more[..n]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Without the lines of `INFO` that tell where it was recorded.
fn without_whereabouts(answer: &str) -> String {
    let Some((_, text)) = answer.split_once("\r\n").filter(|_| answer.contains("\r\nexecutable:"))
    else {
        return answer.into();
    };
    let is_private = |it: &&str| it.starts_with("os:") || it.contains(":/") || it.contains("=/");
    let kept: Vec<&str> = text.trim_end().split("\r\n").filter(|it| !is_private(it)).collect();
    let text = kept.join("\r\n") + "\r\n";
    format!("${}\r\n{text}\r\n", text.len())
}

/// What became of a first contact: everything that an instance asks before it polls.
struct Contact {
    hears_changes: bool,
    version: Finding,
}

fn contact(url: &str) -> Result<Contact, StoreError> {
    let store = RedisStore::new(url, "redis", Keys::new("poll", "session:")).unwrap();
    store.inspect(TIMEOUT)?;
    let a = Asker::at(url, "a");
    // The time, which is read before this, was not recorded: every server tells it.
    let first = RequestContext { new_fleet: true, ..a.context() };
    let beat = store.heartbeat(&first, TTL, Weight(1), None)?;
    assert!(beat.answer.is_some_and(|it| !it.unbroken), "{beat:?}");
    let mut context = a.context();
    context.epoch = beat.stamp.epoch;
    let granted = store.acquire(&context, &[endpoint("e")])?.answer.unwrap();
    assert!(matches!(granted[..], [Acquire::Granted { .. }]), "{granted:?}");
    let subscription = store.listen(&a.me, TIMEOUT)?;
    let drift = store.clock(TIMEOUT)?.server_us.abs_diff(beat.stamp.server_us);
    assert!(drift < 60_000_000, "its clocks differ by {drift} us");
    let version = server::version(&store.info(TIMEOUT)?);
    Ok(Contact { hears_changes: subscription.receives_changes(), version })
}

#[test]
fn every_recorded_server_is_understood_and_asked_only_what_it_was_asked_then() {
    let names = names();
    for (name, grade) in [
        ("redis-5.0", Grade::Warn),
        ("redis-6.0", Grade::Warn),
        ("redis-6.2", Grade::Warn),
        ("redis-7.0", Grade::Ok),
        ("redict-7.3", Grade::Ok),
        ("redis-8.0", Grade::Ok),
        ("redis-8.6", Grade::Ok),
        ("valkey-8.0", Grade::Ok),
        ("valkey-8.1", Grade::Ok),
        ("valkey-9.0", Grade::Ok),
        ("valkey-9.1", Grade::Ok),
    ] {
        assert!(names.contains(name), "{name} is not recorded");
        let unheard_of = Arc::default();
        let fake = replaying(load(name), &unheard_of);
        let contact = contact(&fake.url()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(*unheard_of.lock(), Vec::<String>::new(), "{name}");
        // Pushes came with 6.0.
        assert_eq!(contact.hears_changes, name != "redis-5.0", "{name}");
        let called = contact.version.found.to_lowercase().replacen(' ', "-", 1);
        assert!(called.starts_with(name), "{name}: {called}");
        assert_eq!(contact.version.grade, grade, "{name}: {called}");
    }
}

/// The recordings are still what a server says: the questions to the one that is here are among them.
#[test]
fn the_server_at_hand_is_asked_what_was_recorded() {
    let server = RedisServer::start();
    let exchange: Arc<Mutex<Exchange>> = Arc::default();
    let proxy = recording(server.port(), &exchange);
    contact(&proxy.url()).unwrap();
    if let Ok(name) = std::env::var("LEASEHOLD_RECORD") {
        record(&name, &exchange.lock());
    }
    let asked: BTreeSet<String> = exchange.lock().iter().map(|it| it.0.clone()).collect();
    let recorded: BTreeSet<String> = load("redis-7.0").into_iter().map(|it| it.0).collect();
    assert_eq!(asked, recorded, "record them anew");
}

/// Adds a recording, of the server that is here.
fn record(name: &str, exchange: &Exchange) {
    let rows: Vec<String> = exchange.iter().map(|it| json!(it).to_string()).collect();
    fs::write(dir().join(format!("{name}.json")), format!("[\n{}\n]\n", rows.join(",\n"))).unwrap();
}

/// A recording in which some words were others.
fn but(name: &str, from: &str, to: &str) -> Exchange {
    let mut n = 0;
    let changed = load(name).into_iter().map(|(asked, answer)| {
        let text = answer.replacen(from, to, 1);
        n += usize::from(text != answer);
        let length = |it: &str| it.split_once("\r\n").map_or(0, |it| it.1.len().saturating_sub(2));
        let (old, new) = (format!("${}\r", length(&answer)), format!("${}\r", length(&text)));
        (asked, text.replacen(&old, &new, 1))
    });
    let changed = changed.collect();
    assert!(n > 0, "{from} is not in {name}");
    changed
}

/// What cannot be used is said at once, in one sentence: what was found, and the way out.
#[test]
fn what_cannot_be_used_is_named_with_the_way_out() {
    let replica = "role:slave\r\nmaster_host:10.0.0.7\r\nmaster_port:6380";
    for (exchange, fault, words) in [
        (
            but("redis-5.0", "redis_version:5.0.7", "redis_version:4.0.9"),
            Fault::Misconfigured,
            ["it is Redis 4.0.9", "use Redis 6.2 or later, or Valkey"],
        ),
        (
            but("redis-8.6", "role:master", replica),
            Fault::Refused,
            ["it is a replica", "connect to its master, 10.0.0.7:6380"],
        ),
        (
            but("valkey-9.1", "master_replid:", "nothing:"),
            Fault::Misconfigured,
            ["does not tell its master_replid", "could not be noticed"],
        ),
    ] {
        let fake = || replaying(exchange.clone(), &Arc::default());
        let error = contact(&fake().url()).err().unwrap();
        assert_eq!(error.fault, fault, "{error}");
        assert!(words.iter().all(|it| error.reason.contains(it)), "{error}");
        if fault == Fault::Misconfigured {
            assert_refused(fake, &words);
        }
    }
}

#[test]
fn what_is_no_redis_is_named_as_such() {
    for greeting in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "ERROR\r\n"] {
        let fake = || {
            Fake::serving(move |mut stream| {
                let mut bytes = [0; 1024];
                while stream.read(&mut bytes).is_ok_and(|it| it > 0) {
                    drop(stream.write_all(greeting.as_bytes()));
                }
            })
        };
        let words = ["does not speak Redis", "check host and port of --redis"];
        assert_refused(fake, &words);
    }
}

/// `run` and `lead` end at once with exit code 1.
fn assert_refused(fake: impl Fn() -> Fake, words: &[&str]) {
    for (args, wrapped) in [(&["run"][..], &[][..]), (&["lead", "job"], &["--", "true"])] {
        let fake = fake();
        let redis = format!("--redis={}", fake.url());
        let output = leasehold(&[args, &[&redis], wrapped].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        let last = said.lines().last().unwrap();
        assert!(words.iter().all(|it| last.contains(it)), "{args:?}: {said}");
    }
}
