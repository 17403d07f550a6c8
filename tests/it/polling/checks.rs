//! Which answer is ok, as the fields of a session say: through the real poller, on a server that shows what it was asked.

use std::io::{Read, Write};
use std::sync::Arc;

use leasehold::lease::testing::permit_for_tests;
use leasehold::polling::net_poller::NetPoller;
use leasehold::polling::targets::Targets;
use leasehold::{Poller, Sample, Session};
use parking_lot::Mutex;
use serde_json::{Value, json};

use testkit::fake::Fake;
use testkit::process::{Scene, eventually, ms, run};
use testkit::redis::RedisServer;

/// A server that gives one answer to everything, and keeps what it was asked last.
struct Server {
    fake: Fake,
    asked: Arc<Mutex<String>>,
}

impl Server {
    fn answering(answer: &'static str) -> Self {
        let asked: Arc<Mutex<String>> = Arc::default();
        let kept = Arc::clone(&asked);
        let fake = Fake::serving(move |mut stream| {
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|it| it > 0) {
                request.push(byte[0]);
            }
            *kept.lock() = String::from_utf8(request).unwrap();
            let _ = stream.write_all(answer.as_bytes());
        });
        Self { fake, asked }
    }

    /// One poll of a session with these fields.
    fn poll(&self, fields: Value) -> Sample {
        let mut session = json!({"id": "e1", "address": format!("127.0.0.1:{}", self.fake.port)});
        session.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let session = Session::parse("e1", session.to_string().as_bytes()).unwrap();
        let (permit, _revoke) = permit_for_tests("e1", "vm-1", 7);
        let poller = NetPoller::new(Targets::default(), 16);
        poller.poll(&session, &permit, ms(10_000)).unwrap()
    }
}

#[track_caller]
fn assert_fails(sample: &Sample, error: &str) {
    assert_eq!((sample.ok, sample.error.as_deref()), (false, Some(error)));
}

#[test]
fn only_an_expected_status_is_ok() {
    let refusing = Server::answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
    let sample = refusing.poll(json!({"expectStatus": "200-299,401"}));
    assert_eq!((sample.ok, sample.status, sample.error), (true, Some(401), None));
    assert_fails(&refusing.poll(json!({})), "HTTP 401");
    assert_fails(&refusing.poll(json!({"expectStatus": "403,500"})), "HTTP 401, expected 403,500");
    let fine = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    assert_fails(&fine.poll(json!({"expectStatus": "404"})), "HTTP 200, expected 404");
    let moved =
        Server::answering("HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n");
    assert!(moved.poll(json!({"expectStatus": "302", "maxRedirects": 0})).ok);
}

#[test]
fn a_body_without_the_expected_text_is_a_failure() {
    let server = Server::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\nstatus: \"up\", and more.!",
    );
    assert!(server.poll(json!({"expectBody": "status: \"up\""})).ok);
    let sample = server.poll(json!({"expectBody": "and more"}));
    assert_fails(&sample, "the first 16 bytes of the body do not contain \"and more\"");
    assert_eq!((sample.status, &sample.body[..]), (Some(200), &b"status: \"up\", an"[..]));
    let short = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    assert_fails(&short.poll(json!({"expectBody": "ho"})), "the body does not contain \"ho\"");
    // What breaks off is said first, and the status before that.
    let cut = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi");
    let closed = "the connection was closed before the answer was complete";
    assert_fails(&cut.poll(json!({"expectBody": "ho"})), closed);
    assert_fails(
        &cut.poll(json!({"expectBody": "ho", "expectStatus": "204"})),
        "HTTP 200, expected 204",
    );
}

#[test]
fn head_asks_for_no_body_and_waits_for_none() {
    let server = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n");
    let sample = server.poll(json!({"method": "HEAD"}));
    assert_eq!((sample.ok, sample.error, sample.body), (true, None, Vec::new()));
    assert!(server.asked.lock().starts_with("HEAD / HTTP/1.1\r\n"));
    let chunked = Server::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(chunked.poll(json!({"method": "HEAD"})).ok);
    assert!(!chunked.poll(json!({"method": "GET"})).ok);
}

/// A header of the session takes the place of the usual one; who asks under which fence is never the session's to say.
#[test]
fn headers_of_a_session_are_sent_once() {
    let server = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let headers = json!({"host": "shop.example", "ACCEPT": "text/plain", "X-Key": "a: b"});
    assert!(server.poll(json!({"headers": headers})).ok);
    let asked = server.asked.lock().clone();
    let mut lines: Vec<&str> = asked.trim_end().split("\r\n").skip(1).collect();
    lines.sort_unstable();
    let agent = lines.iter().position(|it| it.starts_with("User-Agent: leasehold/"));
    lines.remove(agent.unwrap());
    let wanted = [
        "ACCEPT: text/plain",
        "Connection: close",
        "X-Key: a: b",
        "X-Leasehold-Fence: 7",
        "X-Leasehold-Instance: vm-1",
        "host: shop.example",
    ];
    assert_eq!(lines, wanted);
    assert!(asked.starts_with("GET / HTTP/1.1\r\n"), "{asked}");
}

#[test]
fn a_check_that_makes_no_sense_is_not_stored_by_an_import() {
    let redis = RedisServer::start();
    let dir = testkit::process::TempDir::new();
    let file = dir.path().join("sessions.jsonl");
    let lines = [
        r#"{"id":"e1","address":"h:1","method":"POST"}"#,
        r#"{"id":"e2","address":"h:1","headers":{"A":"hunter2\r\nB: c"}}"#,
        r#"{"id":"e3","address":"tcp://h:1","expectBody":"x"}"#,
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let output = run(&redis, &["sessions", "import", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for why in
        ["line 1: method must be GET", "line 2: headers has \"A\"", "line 3: expectBody is for"]
    {
        assert!(said.contains(why), "{why}: {said}");
    }
    assert!(!said.contains("hunter2") && redis.cli(&["DBSIZE"]) == "0", "{said}");
}

/// A session that makes no sense is named, and polled by nobody; the others are polled as before.
#[test]
fn an_invalid_check_disturbs_no_other_session() {
    let scene = Scene::new(1);
    scene.put_session("bad", json!({"headers": {"A": "hunter2\nB: c"}}));
    scene.put_session("other", json!({"expectStatus": "200", "expectedBody": "x"}));
    let one = scene.first(&[]);
    one.wait_for_line(ms(10_000), "the session by name", |it| {
        it.contains("event=session.invalid") && it.contains("endpoint=bad")
    });
    one.wait_for("did you mean expectBody?");
    let polled =
        || scene.result("other").contains_key("ok") && scene.result("e1").contains_key("ok");
    eventually(ms(10_000), "polls of the others", || one.log().join("\n"), polled);
    assert!(scene.result("bad").is_empty());
    assert!(!one.says("hunter2"));
}
