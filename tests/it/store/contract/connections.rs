//! Hung, slow, lying and dying servers: a call ends at its deadline, and a late reply answers nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::clock::BootClock;
use leasehold::model::{InstanceId, Weight};
use leasehold::store::{
    Fault, Lasting, Push, RawSession, Renew, RequestContext, Store, StoreError, Verify,
};

use crate::store::contract::asker::{Asker, endpoint};
use crate::store::contract::reads::sessions_of;
use crate::store::contract::world::{DURATION, RedisWorld, TIMEOUT, TTL, store_at};
use testkit::fake::Fake;
use testkit::redis::{RedisServer, eventually};

/// Beyond a call's timeout: what a thread may be kept from running on a busy machine.
const SLACK: Duration = Duration::from_millis(100);

/// Runs a call that must fail, and fail in time: the best of three, because on a busy machine the
/// thread itself may have to wait for its turn.
fn fails_within<T>(timeout: Duration, call: impl Fn() -> Result<T, StoreError>) -> StoreError {
    let mut took = Duration::ZERO;
    for _ in 0..3 {
        let began = Instant::now();
        let Err(error) = call() else { panic!("answered") };
        took = began.elapsed();
        if took < timeout + SLACK {
            return error;
        }
    }
    panic!("a call of {timeout:?} took {took:?}, three times");
}

/// Reads until the client hangs up.
fn swallow(mut stream: &TcpStream) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
}

/// Reads one request (each of them fits into one read here).
fn take_request(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0; 65_536]), Ok(1..))
}

const SHORT: Duration = Duration::from_millis(300);

/// R4: "connect OK (backlog), reply never".
#[test]
fn a_call_to_a_hung_server_ends_at_its_timeout() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.server.pause();
    let context = || RequestContext { timeout: SHORT, ..a.context() };
    for _ in 0..2 {
        let error =
            fails_within(SHORT, || a.store.verify(&context(), std::slice::from_ref(&tenure)));
        assert_eq!(error.fault, Fault::Unreachable, "{error}");
    }
    fails_within(SHORT, || a.store.withdraw(&context()));
    fails_within(SHORT, || a.store.inspect(SHORT));
    fails_within(SHORT, || a.store.listen(&a.me, SHORT));
    world.server.resume();
    assert_eq!(a.renew(&tenure), Renew::Extended);
}

/// "a timed-out reply once answered the next question".
#[test]
fn a_late_reply_never_answers_the_next_question() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.put_session_now("s", b"the session");
    for round in 0..5 {
        world.server.pause();
        let context = RequestContext { timeout: Duration::from_millis(50), ..a.context() };
        assert!(a.store.verify(&context, std::slice::from_ref(&tenure)).is_err(), "round {round}");
        world.server.resume();
        let found = sessions_of(&*a.store);
        assert_eq!(found["s"], RawSession::Value(b"the session".to_vec()), "round {round}");
        assert_eq!(a.verify(&tenure), Verify::Held, "round {round}");
    }
}

impl RedisWorld {
    fn put_session_now(&self, suffix: &str, value: &[u8]) {
        let key = format!("session:{suffix}");
        self.server.query(&[b"SET", key.as_bytes(), value]).unwrap();
    }
}

/// DEPENDENCIES, trap 2: each byte is in time, the reply is not.
#[test]
fn a_server_that_drips_is_cut_off_at_the_deadline() {
    let fake = Fake::serving(|mut stream| {
        take_request(&stream);
        for byte in b"$1000000\r\n".iter().chain(std::iter::repeat(&b'x')) {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50)); // the fault itself
        }
    });
    let error = fails_within(SHORT, || store_at(&fake.url()).inspect(SHORT));
    assert_eq!(error.fault, Fault::Unreachable, "{error}");
}

#[test]
fn a_server_that_never_answers_is_given_up_at_the_deadline() {
    let fake = Fake::serving(|stream| swallow(&stream));
    let error = fails_within(SHORT, || store_at(&fake.url()).inspect(SHORT));
    assert_eq!(error.fault, Fault::Unreachable, "{error}");
}

/// A question that cannot be sent has the same deadline as an answer that does not come.
#[test]
fn a_server_that_never_reads_is_given_up_at_the_deadline() {
    let (over, ended) = crossbeam_channel::bounded::<()>(0);
    let fake = Fake::serving(move |stream| {
        let _ = ended.recv();
        drop(stream);
    });
    let _over = over; // let go before the fake is waited for, also when the test fails
    let larger_than_any_buffer = InstanceId::new(&"x".repeat(32 << 20));
    let error =
        fails_within(SHORT, || store_at(&fake.url()).listen(&larger_than_any_buffer, SHORT));
    assert_eq!(error.fault, Fault::Unreachable, "{error}");
}

#[test]
fn bytes_that_are_no_reply_are_an_error() {
    for noise in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"\x00\x01\x02\x03\xff\xfe\r\n",
        b"*-5\r\n",
        b"$abc\r\n",
        b":99999999999999999999999\r\n",
        b"+OK\r\n",
        b"$3\r\nabcdef\r\n",
        b"*4\r\n$2\r\nok\r\n:1\r\n:0\r\n",
        b"*3\r\n$2\r\nok\r\n:1\r\n:0\r\n",
        b"*4\r\n$2\r\nok\r\n:-1\r\n:0\r\n:5\r\n",
        b"*1\r\n$6\r\ntiming\r\n",
        b"",
    ] {
        let fake = Fake::serving(move |mut stream| {
            if take_request(&stream) {
                let _ = stream.write_all(noise);
            }
        });
        let store = Arc::new(store_at(&fake.url()));
        let a = Asker::on(store, Arc::new(BootClock), "a", false, DURATION);
        let context = RequestContext { timeout: SHORT, ..a.context() };
        fails_within(SHORT, || a.store.verify(&context, &[]));
        fails_within(SHORT, || a.store.heartbeat(&context, TTL, Weight(1), None));
        fails_within(SHORT, || a.store.instances(0, SHORT));
    }
}

/// Lengths are a stranger's word: they must not be believed with memory, or nested without end.
#[test]
fn an_absurd_length_neither_hangs_nor_takes_memory() {
    let deep = b"*1\r\n".repeat(100_000);
    let noise: [&[u8]; 5] = [
        b"$999999999\r\nabc",
        b"*999999999\r\n:1\r\n",
        b"*9223372036854775807\r\n:1\r\n",
        b"$9223372036854775807\r\nabc",
        &deep,
    ];
    for noise in noise.map(<[u8]>::to_vec) {
        let shown = String::from_utf8_lossy(&noise[..noise.len().min(30)]).into_owned();
        let fake = Fake::serving(move |mut stream| {
            take_request(&stream);
            let _ = stream.write_all(&noise);
            swallow(&stream);
        });
        let before = resident_kb();
        fails_within(SHORT, || store_at(&fake.url()).instances(0, SHORT));
        let grown = resident_kb().saturating_sub(before);
        assert!(grown < 500_000, "{shown:?} took {grown} kB");
    }
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// One question, two replies: the second belongs to nothing.
#[test]
fn a_reply_too_many_answers_nothing() {
    let page = |suffix: &str| format!("*2\r\n$1\r\n0\r\n*1\r\n$11\r\npoll:node:{suffix}\r\n");
    let answer = |weight: u8| format!("*2\r\n$1\r\n{weight}\r\n:1000\r\n");
    let (scan, extra) = (page("a"), answer(9));
    let fake = Fake::serving(move |mut stream| {
        let mut first = true;
        while take_request(&stream) {
            let reply = if first { format!("{scan}{extra}") } else { answer(7) };
            first = false;
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    });
    // The second question goes over the same connection, or over a new one; either way the
    // surplus must not be taken for its answer.
    let store = store_at(&fake.url());
    let page = store.instances(0, SHORT).unwrap();
    assert_eq!((page.found.len(), page.cursor), (1, 0));
    if let Ok(live) = store.heartbeats(&page.found, SHORT) {
        assert_eq!(live, [Some(Lasting { value: Weight(7), left: Duration::from_secs(1) })]);
    }
}

/// A connection that was closed while idle is noticed before it is used.
#[test]
fn a_connection_closed_while_idle_costs_no_error() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    for _ in 0..20 {
        world.server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let clients = || world.server.cli(&["CLIENT", "LIST", "TYPE", "normal"]);
        eventually(|| clients().lines().count() == 1, clients);
        assert_eq!(a.renew(&tenure), Renew::Extended);
    }
}

/// One that is closed under a call costs that call, and no more.
#[test]
fn a_connection_closed_under_a_call_costs_one_error() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.server.cli(&["CLIENT", "PAUSE", "9000", "WRITE"]);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| a.store.verify(&a.context(), std::slice::from_ref(&tenure)));
        let clients = || world.server.cli(&["CLIENT", "LIST", "TYPE", "normal"]);
        eventually(
            || clients().lines().any(|it| it.contains("cmd=evalsha") && it.contains("flags=b")),
            clients,
        );
        world.server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert_eq!(call.join().unwrap().unwrap_err().fault, Fault::Unreachable);
    });
    world.server.cli(&["CLIENT", "UNPAUSE"]);
    assert_eq!(a.verify(&tenure), Verify::Held);
}

#[test]
fn a_server_that_is_not_there_is_unreachable() {
    let mut server = RedisServer::start();
    let a = Asker::at(&server.url(), "a");
    server.kill();
    let error = fails_within(TIMEOUT, || a.store.heartbeat(&a.context(), TTL, Weight(1), None));
    assert_eq!(error.fault, Fault::Unreachable, "{error}");
    let socket = store_at("unix:///nowhere/redis.sock");
    let error = fails_within(SHORT, || socket.inspect(SHORT));
    assert_eq!(error.fault, Fault::Unreachable, "{error}");
}

/// A unix socket whose backlog is full lets nobody in, and tells nobody.
#[test]
fn a_full_unix_socket_is_given_up_at_the_deadline() {
    use socket2::{Domain, SockAddr, Socket, Type};
    let path = std::env::temp_dir().join(format!("leasehold-full-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    listener.listen(0).unwrap();
    let mut full = Vec::new();
    loop {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        if socket.connect(&SockAddr::unix(&path).unwrap()).is_err() {
            break;
        }
        full.push(socket);
    }
    let store = store_at(&format!("unix://{}", path.display()));
    let (done, answers) = crossbeam_channel::bounded(1);
    let call = std::thread::spawn(move || done.send(store.inspect(SHORT)));
    let answer = answers.recv_timeout(SHORT + Duration::from_secs(5));
    drop(listener); // ends a call that still waits
    drop(full);
    let _ = call.join();
    let _ = std::fs::remove_file(&path);
    let error = answer.expect("still waiting long after the deadline").unwrap_err();
    assert_eq!(error.fault, Fault::Unreachable, "{error}");
}

/// A word may come in pieces, with silence in between.
#[test]
fn a_word_in_pieces_is_heard_whole() {
    let (go, next) = crossbeam_channel::bounded::<()>(0);
    let fake = Fake::serving(move |mut stream| {
        // An old server: it knows neither HELLO nor what its settings are.
        for _ in 0..2 {
            take_request(&stream);
            let _ = stream.write_all(b"-ERR unknown command\r\n");
        }
        take_request(&stream);
        let confirmed = "*3\r\n$9\r\nsubscribe\r\n$9\r\npoll:wake\r\n:1\r\n".repeat(2);
        let word = "*3\r\n$7\r\nmessage\r\n$9\r\npoll:wake\r\n$12\r\n{\"from\":\"b\"}\r\n";
        let _ = stream.write_all(confirmed.as_bytes());
        for piece in word.as_bytes().chunks(20) {
            if next.recv().is_err() || stream.write_all(piece).is_err() {
                return;
            }
        }
        swallow(&stream);
    });
    let go = go; // let go before the fake is waited for, also when the test fails
    let mut subscription = store_at(&fake.url()).listen(&InstanceId::new("a"), TIMEOUT).unwrap();
    let mut heard = None;
    for _ in 0..4 {
        heard = heard.or(subscription.next(Duration::from_millis(20)).unwrap());
        let _ = go.send_timeout((), Duration::from_millis(100));
    }
    drop(go);
    let heard = heard.or_else(|| subscription.next(TIMEOUT).unwrap());
    assert!(matches!(heard, Some(Push::Message(it)) if it.from.as_str() == "b"));
}

/// A line that went silent is asked whether it still stands: words may be missed on it.
#[test]
fn a_subscription_on_a_hung_server_notices() {
    let server = RedisServer::start();
    let mut subscription = store_at(&server.url()).listen(&InstanceId::new("a"), SHORT).unwrap();
    server.pause();
    let mut heard = Ok(None);
    eventually(
        || {
            heard = subscription.next(Duration::from_millis(50));
            heard.is_err()
        },
        || "still listening".into(),
    );
    assert_eq!(heard.unwrap_err().fault, Fault::Unreachable);
}
