//! The page: `leasehold web` and `run --web-listen`. Only reads, is safe by construction, and costs nobody anything.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;

use testkit::process::{Instance, SOON, Scene, binary, eventually, leasehold, run};
use testkit::redis::free_port;

/// What is answered to these bytes, by a client that does not hang up before.
fn asked(port: u16, request: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    stream.set_read_timeout(Some(SOON)).unwrap();
    // It may have hung up on us already.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// The code and the body of a page.
fn got(port: u16, path: &str) -> (u16, String) {
    let answer = asked(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0), body.into())
}

fn web(redis: &str, args: &[&str]) -> (Instance, u16) {
    let port = free_port();
    let mut command = Command::new(binary());
    command.args(["web", &format!("--redis={redis}"), &format!("--listen=127.0.0.1:{port}")]);
    let web = Instance::spawn(command.args(args).stdout(Stdio::null()));
    eventually(SOON, "the page", || web.log().join("\n"), || got(port, "/healthz").0 == 200);
    (web, port)
}

#[test]
fn the_page_is_safe_by_construction() {
    let scene = Scene::new(1);
    let (mut web, port) = web(&scene.redis.url(), &["--web-hosts=fleet.example.com"]);
    for path in ["/", "/endpoints", "/status.json", "/metrics", "/healthz", "/page.css", "/page.js"]
    {
        let answer = asked(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        for header in [
            "Content-Security-Policy: default-src 'none'",
            "frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "Referrer-Policy: no-referrer",
            "Cache-Control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {header} in {head}");
        }
        assert!(!head.contains("unsafe"), "{path}: {head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{path}: {head}");
        let headless = asked(port, &format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(
            headless.ends_with("\r\n\r\n") && headless.starts_with("HTTP/1.1 200"),
            "{headless}"
        );
        // A page of a stranger whose name suddenly means 127.0.0.1 asks under its own name.
        for (host, code) in [("evil.example", 421), ("fleet.example.com", 200), ("127.0.0.1", 200)]
        {
            let answer = asked(port, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{path} of {host}: {answer}");
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let answer =
                asked(port, &format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 405 "), "{method} {path}: {answer}");
        }
    }
    assert_eq!(got(port, "/nothing").0, 404);
    assert_eq!(asked(port, &"x".repeat(100_000)), "", "an endless header");
    let began = Instant::now();
    assert_eq!(asked(port, "GET / HTTP/1.1\r\nHost: local"), "", "one that never ends");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(web.term().success());
}

#[test]
fn other_hosts_see_the_page_only_if_a_setting_says_so() {
    let scene = Scene::new(1);
    for (command, option) in [("web", "--listen"), ("run", "--web-listen")] {
        let output = leasehold(&[command, &format!("{option}=0.0.0.0:0")]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains("--web-remote"), "{why}");
        let output = leasehold(&[command, &format!("{option}=9465")]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let port = free_port();
    let mut command = Command::new(binary());
    command.args(["web", "--web-remote", &format!("--listen=0.0.0.0:{port}")]);
    let _web = Instance::spawn(
        command.arg(format!("--redis={}", scene.redis.url())).stdout(Stdio::null()),
    );
    eventually(SOON, "the page", String::new, || got(port, "/healthz").0 == 200);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("--listen={}", taken.local_addr().unwrap());
    let output = run(&scene.redis, &["web", &listen]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("cannot listen on"), "{why}");
}

/// How often the set of drained instances was read: once in each reading of everything.
fn readings(scene: &Scene) -> u64 {
    let stats = scene.redis.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find(|it| it.starts_with("cmdstat_smembers:")).unwrap_or_default();
    let calls = line.split("calls=").nth(1).and_then(|it| it.split(',').next());
    calls.and_then(|it| it.parse().ok()).unwrap_or(0)
}

#[test]
fn however_many_look_redis_is_read_at_most_once_a_second() {
    let scene = Scene::new(3);
    let (_web, port) = web(&scene.redis.url(), &[]);
    assert_eq!(readings(&scene), 0, "nobody looks");
    let began = Instant::now();
    while readings(&scene) < 4 {
        let ask = || std::thread::spawn(move || got(port, "/").0);
        let codes: Vec<_> = (0..20).map(|_| ask()).collect();
        let codes: Vec<u16> = codes.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(codes, [200; 20]);
        assert!(began.elapsed() < SOON, "{} readings", readings(&scene));
    }
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn it_says_what_status_says_also_while_redis_is_away() {
    let mut scene = Scene::new(4);
    let one = scene.first(&["--lead=mailer"]);
    scene.wait_for_balance(&[&one], SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let (_web, port) = web(&scene.redis.url(), &[]);
    let document =
        || -> Value { serde_json::from_str(&got(port, "/status.json").1).unwrap_or_default() };
    let verdict = "1 instance has 4 endpoints to itself: all polled, balanced.";
    eventually(SOON, "the verdict", || document().to_string(), || document()["verdict"] == verdict);
    let (code, page) = got(port, "/");
    assert_eq!(code, 200);
    for part in [verdict, "All is well", "mailer", &one.id()] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let (code, page) = got(port, &format!("/endpoint?id={}", scene.endpoints[0]));
    assert_eq!(code, 200);
    assert!(page.contains(&format!("{} owns {}, and polls it.", one.id(), scene.endpoints[0])));
    assert!(page.contains("acquired"), "its moves: {page}");
    scene.redis.kill();
    let page = || got(port, "/").1;
    eventually(SOON, "the outage", page, || page().contains("Redis has not answered for"));
    assert!(page().contains(verdict), "the last state stays");
    assert_eq!(got(port, "/status.json").0, 503, "no program takes it for what is");
    assert_eq!(got(port, "/healthz").0, 200, "the page itself is well");
    scene.redis.restart_empty();
    eventually(SOON, "the end of it", page, || !page().contains("Redis has not answered for"));
}

/// Each keeps its connection open and says a little; the kernel holds those that the page has no place for.
#[test]
fn a_thousand_slow_clients_disturb_neither_polls_nor_renewals() {
    const SLOW: usize = 1_000;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let (scene, port) = (Scene::new(8), free_port());
    let mut one = scene.first(&[&format!("--web-listen=127.0.0.1:{port}"), "--log-level=debug"]);
    eventually(SOON, "the page", || one.log().join("\n"), || got(port, "/").0 == 200);
    scene.wait_for_balance(&[&one], SOON);
    let metrics = got(port, "/metrics").1;
    assert!(metrics.contains("leasehold_leases_owned"), "those of the instance: {metrics}");
    let began = Instant::now();
    let slow: Vec<TcpStream> = (0..SLOW)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: local");
            stream
        })
        .collect();
    let asked_at = Instant::now();
    assert_eq!(got(port, "/").0, 200);
    assert!(asked_at.elapsed() < SOON, "{:?}", asked_at.elapsed());
    for round in 0..5 {
        scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
        assert!(got(port, "/").0 == 200, "round {round}");
    }
    let span = began..Instant::now();
    for it in &scene.endpoints {
        let gap = scene.target.longest_gap(it, span.clone());
        assert!(gap < Duration::from_secs(2), "{it}: no poll for {gap:?}");
    }
    for event in [
        "event=lease.uncertain",
        "event=lease.lost",
        "event=poll.deferred",
        "event=heartbeat.failed",
    ] {
        assert_eq!(one.lines(&[event]), Vec::<String>::new());
    }
    drop(slow);
    assert!(one.term().success());
}

#[test]
fn a_port_that_is_taken_keeps_nobody_from_polling() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let scene = Scene::new(2);
    let mut one = scene.first(&[&format!("--web-listen=127.0.0.1:{port}")]);
    let line = one.wait_for("event=web.failed");
    assert!(line.contains("cannot listen on"), "{line}");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    drop(taken);
    one.wait_for("event=web.resumed");
    eventually(SOON, "the page", String::new, || got(port, "/").0 == 200);
    assert!(one.term().success());
}

/// Where there is one: a container of CI may have none.
#[test]
fn a_real_browser_shows_the_page() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/web-check");
    let output = Command::new("python3").arg(script).arg(binary()).arg("--small").output();
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            println!("{text}");
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => println!("skipped, because there is no python3: {error}"),
    }
}
