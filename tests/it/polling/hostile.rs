//! Whatever a stranger writes, sends or answers: no panic, no hang, nothing believed that makes no sense.
//!
//! Properties over generated input, the same for a seed every time (`LEASEHOLD_SEEDS=a..b` for more). Named
//! cases stand beside the code they are about; here is what nobody thought of.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::clock::{BootClock, Clock};
use leasehold::config::{RedisUrl, parse_duration};
use leasehold::lease::table::{LeaseTimings, OwnershipTable};
use leasehold::lease::testing::permit_for_tests;
use leasehold::model::{EndpointId, FenceToken, Header, HeaderValue};
use leasehold::model::{InstanceId, LeaseDuration, Tenure, Weight};
use leasehold::polling::net_poller::NetPoller;
use leasehold::polling::targets::Targets;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Acquire, Judging, Publication, Push, RenewItem, Store};
use leasehold::{Poller, Sample, Session};
use parking_lot::Mutex;

use testkit::cluster::{for_each_seed, random};
use testkit::fake::Fake;
use testkit::process::ms;
use testkit::redis::RedisServer;

/// Beyond a timeout: what a thread may be kept from running on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

type Chance<'a> = &'a mut dyn FnMut(u64) -> u64;

/// Bytes that have broken parsers, and some of the input's own.
const BITS: &[&str] = &[
    "",
    "0",
    "-1",
    "9007199254740993",
    "18446744073709551616",
    "1e999",
    "null",
    "true",
    "{}",
    "[]",
    "\"",
    "\\",
    "\\u0000",
    "\u{0}",
    "\u{feff}",
    "ä",
    "\u{202e}",
    "://",
    "@",
    "%",
    "%zz",
    "%00",
    "[",
    "]",
    ":",
    "::1",
    ":99999",
    "/",
    "?",
    "#",
    "\r\n",
    "\n",
    " ",
    "\t",
    "{{{{{{{{{{",
    "[[[[[[[[[[",
    "ms",
    "s",
    "h",
    "id",
    "address",
    "isPaused",
];

fn below(chance: Chance<'_>, n: usize) -> usize {
    usize::try_from(chance(u64::try_from(n.max(1)).unwrap())).unwrap()
}

/// A few random changes: bytes flipped, taken out, put in, doubled, cut off.
fn spoiled(input: &[u8], chance: Chance<'_>) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=below(chance, 4) {
        let at = below(chance, bytes.len());
        let to = (at + below(chance, 8)).min(bytes.len());
        match below(chance, 6) {
            0 if !bytes.is_empty() => bytes[at] = u8::try_from(chance(256)).unwrap(),
            1 => drop(bytes.drain(at..to)),
            2 => {
                let bit = BITS[below(chance, BITS.len())].as_bytes();
                bytes.splice(at..at, bit.iter().copied());
            }
            3 => {
                let again = bytes[at..to].repeat(1 + below(chance, 50));
                bytes.splice(at..at, again);
            }
            4 => bytes.truncate(at),
            _ => {
                let bit = BITS[below(chance, BITS.len())].as_bytes();
                bytes.splice(at..to, bit.iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn a_session_is_understood_or_refused_in_a_sentence() {
    const GOOD: &str = r#"{"id":"e1","name":"n","address":"http://10.0.0.7:8080/a?b=c","path":"/x",
        "isPaused":false,"intervalMs":1000,"timeoutMs":500,"other":[1,{"a":null}],"method":"GET",
        "expectStatus":"200-299,401","expectBody":"up","headers":{"Accept":"a/b","Host":"h"},"maxRedirects":0}"#;
    assert!(Session::parse("e1", GOOD.as_bytes()).is_ok());
    for_each_seed(|seed| {
        let mut chance = random(seed);
        for _ in 0..5_000 {
            let text = spoiled(GOOD.as_bytes(), &mut chance);
            match Session::parse("e1", &text) {
                Ok(session) => {
                    assert_eq!(session.endpoint.as_str(), "e1");
                    assert_eq!(session.document.as_bytes(), text);
                    assert!(session.interval.is_none_or(|it| it >= ms(10)), "{session:?}");
                    assert!(session.timeout.is_none_or(|it| it >= ms(1)), "{session:?}");
                    for Header { value, .. } in &session.check().headers {
                        let (HeaderValue::Text(text) | HeaderValue::File(text)) = value;
                        assert!(!text.contains(['\r', '\n', '\0']), "{session:?}");
                    }
                }
                Err(error) => {
                    let sentence = error.to_string();
                    assert!(!sentence.is_empty() && sentence.len() < 1_000, "{sentence}");
                }
            }
        }
    });
}

#[test]
fn a_deeply_nested_session_does_not_exhaust_the_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = format!("{}1{}", open.repeat(20_000), close.repeat(20_000));
        let text = format!(r#"{{"id":"e1","address":"a:1","x":{nested}}}"#);
        assert!(Session::parse("e1", text.as_bytes()).is_err());
    }
}

#[test]
fn a_duration_is_understood_or_refused() {
    for_each_seed(|seed| {
        let mut chance = random(seed);
        for good in ["500ms", "30s", "5m", "1h", "18446744073709551615h"] {
            for _ in 0..1_000 {
                let text = spoiled(good.as_bytes(), &mut chance);
                let text = String::from_utf8_lossy(&text);
                if let Ok(duration) = parse_duration(&text) {
                    let digits = text.chars().all(|it| it.is_ascii_digit() || "msh".contains(it));
                    assert!(digits, "{text:?} was taken for {duration:?}");
                }
            }
        }
    });
}

/// Neither a panic nor a password in what is said of it.
#[test]
fn a_url_is_understood_or_refused_without_its_password() {
    const SECRET: &str = "s3cr3tpassw0rd";
    for_each_seed(|seed| {
        let mut chance = random(seed);
        for good in [
            "redis://user:PW@host:6379/3",
            "unix:///run/r.sock?db=2&pass=PW",
            "rediss://:PW@[::1]/0",
        ] {
            for _ in 0..1_000 {
                let text = spoiled(good.as_bytes(), &mut chance);
                let text = String::from_utf8_lossy(&text).replace("PW", SECRET);
                let said = match RedisUrl::parse(&text) {
                    Ok(url) => format!("{url} {url:?}"),
                    Err(error) => format!("{error} {error:?}"),
                };
                // Where a host or a path belongs, nobody can tell that it is a password.
                let is_one = [format!(":{SECRET}@"), format!("pass={SECRET}")];
                if text.matches(SECRET).count() == 1 && is_one.iter().any(|it| text.contains(it)) {
                    assert!(!said.contains(SECRET), "{text:?}: {said}");
                }
            }
        }
    });
}

/// A reply as a server might send it, or one that has lost its mind.
fn reply(depth: usize, chance: Chance<'_>, out: &mut Vec<u8>) {
    let words =
        ["ok", "epoch", "timing", "late", "vm-1", "", "\u{0}\u{ff}", "0", "1", "-1", "9e99"];
    let number = [0, 1, 2, 3, 4, 5, 6, -1, 1 << 53, i64::MAX, i64::MIN][below(chance, 11)];
    match below(chance, if depth == 0 { 9 } else { 14 }) {
        0..=2 => out.extend(format!(":{number}\r\n").bytes()),
        3..=5 => {
            let word = words[below(chance, words.len())];
            out.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
        6 => out.extend(b"$-1\r\n"),
        7 => out.extend(b"+OK\r\n"),
        8 => {
            let code = ["ERR", "WRONGTYPE", "READONLY", "OOM", "BUSY", "MOVED 1 a:1"];
            out.extend(format!("-{} why\r\n", code[below(chance, code.len())]).bytes());
        }
        9 => out.extend(b"*-1\r\n"),
        10 => out.extend(b"_\r\n"),
        _ => {
            let n = below(chance, 7);
            out.extend(format!("*{n}\r\n").bytes());
            (0..n).for_each(|_| reply(depth - 1, chance, out));
        }
    }
}

/// Begins like an answer of ours, and then goes wrong; or is anything at all.
fn answer(chance: Chance<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if chance(3) == 0 {
        reply(3, chance, &mut out);
        return out;
    }
    let status = ["ok", "ok", "ok", "epoch", "timing", "late", "what"][below(chance, 7)];
    let items = below(chance, 4);
    let head = format!("${}\r\n{status}\r\n:0\r\n:0\r\n:1700000000000000\r\n:0\r\n", status.len());
    out.extend(format!("*{}\r\n{head}", 5 + items).bytes());
    (0..items).for_each(|_| reply(2, chance, &mut out));
    match chance(20) {
        0 => spoiled(&out, chance),
        _ => out,
    }
}

/// Everything a daemon asks, to a server that answers anything.
fn ask_everything(store: &dyn Store, table: &OwnershipTable, timeout: Duration) {
    let one = [EndpointId::parse("e1").unwrap()];
    let tenure = Tenure::new(one[0].clone(), FenceToken::new(7));
    let me = [table.instance().clone()];
    let request = table.request();
    drop(
        store
            .heartbeat(&request.context, timeout, Weight(1), None)
            .map(|it| drop(table.heartbeat_answered(&request, &it))),
    );
    let granted = store.acquire(&request.context, &one).map(|it| {
        let codes = it.answer.iter().flatten().filter(|it| matches!(it, Acquire::Granted { .. }));
        assert!(table.granted(&request, &one, &it).0.len() <= codes.count());
    });
    drop(granted);
    let items = [RenewItem::new(tenure.clone())];
    drop(
        store.renew(&request.context, &items).map(|it| drop(table.renewed(&request, &items, &it))),
    );
    let tenures = [tenure.clone()];
    drop(
        store
            .verify(&request.context, &tenures)
            .map(|it| drop(table.verified(&request, &tenures, &it))),
    );
    let sample = Sample::failed("no", timeout);
    let publication = Publication {
        tenure: tenure.clone(),
        started_at_ms: 1,
        interval: timeout,
        sample,
        judging: Judging::default(),
        certificate: None,
    };
    drop(store.publish(&request.context, &[publication]));
    drop(store.release(&request.context, &tenures, &[]));
    drop(store.withdraw(&request.context));
    drop(store.asks(&me[0], &me, timeout));
    drop(store.session_names(0, timeout));
    drop(store.sessions(&one, timeout));
    drop(store.instances(0, timeout));
    drop(store.heartbeats(&me, timeout));
    drop(store.owners(&one, timeout));
    drop(store.leases(&one, timeout));
    drop(store.expiring(&one, timeout, timeout));
    drop(store.role_statuses(&one, timeout));
    drop(store.role_names(timeout));
    drop(store.inspect(timeout));
    if let Ok(mut subscription) = store.listen(&me[0], timeout) {
        for _ in 0..5 {
            drop(subscription.next(ms(5)));
        }
    }
}

/// One connection after another gets answers of its own.
fn serve(stream: TcpStream, chance: &Mutex<Box<dyn FnMut(u64) -> u64 + Send>>) {
    let mut stream = stream;
    let mut buffer = [0; 65_536];
    while let Ok(1..) = stream.read(&mut buffer) {
        // A pipeline gets as many answers as it asked questions, or nearly.
        let questions = 1 + buffer.windows(3).take(200).filter(|it| it == b"\r\n*").count();
        let mut out = Vec::new();
        {
            let mut chance = chance.lock();
            (0..questions).for_each(|_| out.extend(answer(&mut *chance)));
        }
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}

#[test]
fn a_server_that_answers_anything_is_an_error_and_never_more() {
    for_each_seed(|seed| {
        let chance = Mutex::new(Box::new(random(seed)) as Box<dyn FnMut(u64) -> u64 + Send>);
        let fake = Fake::serving(move |stream| serve(stream, &chance));
        let (timeout, term) = (ms(60), LeaseDuration::new(Duration::from_secs(30)));
        let timings = LeaseTimings {
            lease: term,
            heartbeat: term,
            renew_interval: term.ttl / 3,
            store_timeout: timeout,
        };
        for keys in [Keys::new("poll", "session:"), Keys::of_roles("leader", "leader:heartbeat:")] {
            let store = RedisStore::new(&fake.url(), "redis", keys).unwrap();
            for _ in 0..25 {
                let clock: Arc<dyn Clock> = Arc::new(BootClock);
                let table = OwnershipTable::new(InstanceId::new("vm-1"), timings, clock, false);
                let began = Instant::now();
                ask_everything(&store, &table, timeout);
                let took = began.elapsed();
                // Some take two round trips, a subscription a few.
                assert!(took < 40 * timeout + SLACK, "{took:?}");
            }
        }
    });
}

/// What an endpoint may send, well-formed or not.
fn response(chance: Chance<'_>) -> Vec<u8> {
    let good = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.0 503 No\r\n\r\nbye",
        "HTTP/1.1 204 None\r\nX: y\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    ];
    let mut out = good[below(chance, good.len())].as_bytes().to_vec();
    match chance(8) {
        0 => out,
        1 => {
            let at = out.windows(2).position(|it| it == b"\r\n").unwrap_or(0) + 2;
            let header = format!("A{}: {}\r\n", chance(9), "v".repeat(below(chance, 3_000)));
            out.splice(at..at, header.repeat(1 + below(chance, 200)).into_bytes());
            out
        }
        2 => {
            out.extend(vec![b'x'; below(chance, 300_000)]);
            out
        }
        3 => (0..chance(2_000)).map(|_| u8::try_from(chance(256)).unwrap()).collect(),
        _ => spoiled(&out, chance),
    }
}

#[test]
fn an_endpoint_that_answers_anything_is_polled_in_time_and_in_bounds() {
    const BODY_MAX: usize = 4_096;
    for_each_seed(|seed| {
        let chance = Mutex::new(random(seed));
        let fake = Fake::serving(move |mut stream| {
            let _ = stream.read(&mut [0; 4_096]);
            let bytes = response(&mut *chance.lock());
            let _ = stream.write_all(&bytes);
            // Half of them hang up, the others leave it open.
            if chance.lock()(2) == 0 {
                let _ = stream.set_read_timeout(Some(ms(200)));
                let _ = stream.read(&mut [0; 16]);
            }
        });
        let poller = NetPoller::new(Targets::default(), BODY_MAX);
        let text = format!(r#"{{"id":"e1","address":"127.0.0.1:{}"}}"#, fake.port);
        let session = Session::parse("e1", text.as_bytes()).unwrap();
        for _ in 0..150 {
            let (permit, _revoke) = permit_for_tests("e1", "vm-1", 1);
            let began = Instant::now();
            let sample = poller.poll(&session, &permit, ms(150)).unwrap();
            assert!(began.elapsed() < ms(150) + SLACK, "{:?}", began.elapsed());
            assert!(sample.body.len() <= BODY_MAX, "{}", sample.body.len());
            assert!(sample.ok || sample.error.is_some() || sample.status.is_some(), "{sample:?}");
            assert!(sample.error.as_ref().is_none_or(|it| it.len() < 2_000), "{sample:?}");
        }
    });
}

/// Any client may write to a channel. A message without sense is ignored, and the subscription goes on.
#[test]
fn whatever_is_sent_to_a_channel_the_subscription_goes_on() {
    const GOOD: &str = r#"{"from":"vm-1","wants":["e1","e2"],"freed":["e3"],"heir":"vm-2","took":[],
        "dropped":["e4"],"surprises":["e5"],"unasked":true,"resign":["job"],"priority":7}"#;
    let redis = RedisServer::start();
    let me = InstanceId::new("vm-2");
    for keys in [Keys::new("poll", "session:"), Keys::of_roles("poll", "poll:heartbeat:")] {
        let store = RedisStore::new(&redis.url(), "redis", keys).unwrap();
        let mut subscription = store.listen(&me, SLACK).unwrap();
        let mut said = redis.connect().unwrap();
        let mut chance = random(1);
        for n in 0..500 {
            let mut pipe = redis::pipe();
            for channel in ["poll:wake", "poll:wake:vm-2"] {
                pipe.cmd("PUBLISH")
                    .arg(channel)
                    .arg(spoiled(GOOD.as_bytes(), &mut chance))
                    .ignore();
            }
            // The last one makes sense: everything before it has been heard, one way or the other.
            let last = format!(r#"{{"from":"vm-{n}","priority":{n}}}"#);
            pipe.cmd("PUBLISH").arg("poll:wake").arg(last).ignore();
            pipe.exec(&mut said).unwrap();
            let sender = InstanceId::new(&format!("vm-{n}"));
            let began = Instant::now();
            loop {
                assert!(began.elapsed() < SLACK, "deaf after {n}");
                match subscription.next(SLACK).unwrap() {
                    Some(Push::Message(word)) if word.from == sender && word.priority == n => break,
                    _ => (),
                }
            }
        }
    }
}
