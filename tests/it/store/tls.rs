//! Redis over TLS, and secrets that are exchanged while everything runs: real processes, real servers.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use testkit::fake::Fake;
use testkit::process::{Instance, SOON, Scene, TempDir, eventually, leasehold, ms};
use testkit::redis::RedisServer;
use testkit::target::Target;

fn certificate(name: &str) -> String {
    format!("{}/tests/it/store/certificates/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A server that speaks TLS on a port of its own, and plainly to the tests on another.
fn server(name: &str, clients: &str) -> (RedisServer, String) {
    let (cert, key) = (certificate(&format!("{name}.pem")), certificate(&format!("{name}.key")));
    let ca = certificate("ca.pem");
    // Bound as long as it takes to know the number.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    let server = RedisServer::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        clients,
    ]);
    (server, format!("rediss://127.0.0.1:{port}/0"))
}

fn status(url: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = leasehold(&[&["status", "--redis", url], args].concat());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[track_caller]
fn refused(url: &str, args: &[&str], why: &str) {
    let (code, said) = status(url, args);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(why), "{said}");
    // And the daemon does not wait for what will not come.
    let mut run = Instance::start_at(url, args);
    let ended = run.wait();
    assert!(!ended.success(), "{:?}", run.log());
    assert!(run.says(why), "{:?}", run.log());
}

#[test]
fn a_fleet_works_over_tls() {
    let (redis, url) = server("server", "no");
    let scene = Scene { redis, target: Target::start(), endpoints: vec!["a".into(), "b".into()] };
    scene.put_sessions();
    let ca = format!("--redis-ca={}", certificate("ca.pem"));
    let one = Instance::start_at(&url, &[&ca, "--new-fleet"]);
    one.wait_for("event=daemon.ready");
    let mut two = Instance::start_at(&url, &[&ca]);
    scene.wait_for_balance(&[&one, &two], SOON);
    // What changes is heard over TLS, too.
    let before = Instant::now();
    assert_eq!(leasehold(&["sessions", "pause", "a", "--redis", &url, &ca]).status.code(), Some(0));
    eventually(
        SOON,
        "the pause",
        || format!("{:?}", scene.owners()),
        || !scene.owners().contains_key("a"),
    );
    assert!(before.elapsed() < ms(5_000), "a change was swept up and not heard");
    assert!(two.term().success());
    scene.target.wait_for_polls(&["b".into()], Instant::now(), SOON);
    assert_eq!(status(&url, &[&ca]).0, Some(0));
    scene.target.assert_sound();
}

#[test]
fn a_certificate_that_cannot_be_believed_is_refused_in_a_sentence() {
    let ca = format!("--redis-ca={}", certificate("ca.pem"));
    let (_redis, url) = server("server", "no");
    refused(&url, &[], "nobody we believe has signed its certificate: name the authority");
    let other = format!("--redis-ca={}", certificate("other-ca.pem"));
    refused(&url, &[&other], "nobody we believe has signed its certificate");
    let (_redis, url) = server("misnamed", "no");
    refused(&url, &[&ca], "its certificate is for another name");
    let (_redis, url) = server("expired", "no");
    refused(&url, &[&ca], "its certificate has expired");
}

#[test]
fn a_server_that_asks_who_we_are_is_told() {
    let ca = format!("--redis-ca={}", certificate("ca.pem"));
    let with = |name: &str| {
        let cert = format!("--redis-cert={}", certificate(&format!("{name}.pem")));
        (cert, format!("--redis-key={}", certificate(&format!("{name}.key"))))
    };
    let (_redis, url) = server("server", "yes");
    refused(&url, &[&ca], "it asks for a certificate of ours: give --redis-cert and --redis-key");
    let (cert, key) = with("stranger");
    refused(
        &url,
        &[&ca, &cert, &key],
        "it refused us: see whether its authority signed --redis-cert",
    );
    let (cert, key) = with("client");
    let (code, said) = status(&url, &[&ca, &cert, &key]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_port_without_tls_is_told_from_one_with() {
    let (redis, url) = server("server", "no");
    let ca = format!("--redis-ca={}", certificate("ca.pem"));
    let plain = format!("rediss://127.0.0.1:{}", redis.port());
    let (code, said) = status(&plain, &[&ca, "--store-timeout=300ms"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("does it speak TLS on this port?"), "{said}");
    // One that says something of its own at once.
    let other = Fake::serving(|mut stream| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let plain = other.url().replace("redis://", "rediss://");
    refused(&plain, &[&ca], "it does not speak TLS there: write redis://, or its TLS port");
    let (code, said) = status(&url.replace("rediss", "redis"), &[]);
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn a_handshake_that_never_ends_ends_at_the_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}", silent.local_addr().unwrap());
    let began = Instant::now();
    let (code, said) = status(&url, &["--store-timeout=300ms"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no answer in time"), "{said}");
    assert!(began.elapsed() < ms(5_000), "{:?}", began.elapsed());
}

#[test]
fn files_that_hold_no_certificate_are_refused_by_their_flag() {
    let dir = TempDir::new();
    let junk = written(&dir, "junk.pem", b"no certificate");
    let (code, said) = status("rediss://127.0.0.1:1", &[&format!("--redis-ca={}", junk.display())]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--redis-ca") && said.contains("holds no certificate"), "{said}");
    let missing = status("rediss://127.0.0.1:1", &["--redis-ca=/nowhere/ca.pem"]);
    assert_eq!(missing.0, Some(2), "{}", missing.1);
    assert!(missing.1.contains("cannot read --redis-ca \"/nowhere/ca.pem\""), "{}", missing.1);
}

fn written(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Replaces a file as operators and secret managers do: at once.
fn replace(path: &Path, bytes: &[u8]) {
    let next = path.with_extension("next");
    fs::write(&next, bytes).unwrap();
    fs::rename(next, path).unwrap();
}

/// Everybody is thrown out, and has to come in anew; then everything is polled without a loss.
#[track_caller]
fn goes_on(scene: &Scene, instance: &Instance) {
    let before = Instant::now();
    scene.redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    scene.redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    // Longer than a lease lasts: it was renewed over a connection that was let in.
    scene.target.wait_for_polls(&scene.endpoints, before + ms(4_000), SOON);
    assert!(!instance.says("event=lease.lost"), "{:?}", instance.log());
}

#[test]
fn certificates_are_exchanged_without_a_restart() {
    let (redis, url) = server("server", "no");
    let scene = Scene { redis, target: Target::start(), endpoints: vec!["a".into()] };
    scene.put_sessions();
    let dir = TempDir::new();
    let ca = written(&dir, "ca.pem", &fs::read(certificate("ca.pem")).unwrap());
    let named = format!("--redis-ca={}", ca.display());
    let one = Instance::start_at(&url, &[&named, "--new-fleet"]);
    one.wait_for("event=daemon.ready");
    replace(&ca, &fs::read(certificate("other-ca.pem")).unwrap());
    let (cert, key) = (certificate("other-server.pem"), certificate("other-server.key"));
    let set = ["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key];
    assert_eq!(scene.redis.cli(&set), "OK");
    goes_on(&scene, &one);
}

#[test]
fn a_password_is_exchanged_without_a_restart() {
    let redis = RedisServer::start();
    let scene = Scene { redis, target: Target::start(), endpoints: vec!["a".into()] };
    scene.put_sessions();
    let user = |password: &str| {
        let rule = ["ACL", "SETUSER", "fleet", "on", "resetpass", password, "~*", "&*", "+@all"];
        assert_eq!(scene.redis.cli(&rule), "OK");
    };
    user(">hunter2");
    let dir = TempDir::new();
    let file = written(&dir, "password", b"hunter2\n");
    let named = format!("--redis-password-file={}", file.display());
    let url = format!("redis://fleet@127.0.0.1:{}/0", scene.redis.port());
    let one = Instance::start_at(&url, &[&named, "--new-fleet"]);
    one.wait_for("event=daemon.ready");
    user(">hunter3");
    replace(&file, b"hunter3\n");
    goes_on(&scene, &one);
    assert!(!one.log().iter().any(|it| it.contains("hunter")), "{:?}", one.log());
}
