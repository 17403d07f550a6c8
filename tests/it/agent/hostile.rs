//! Strangers at the socket: garbage, endless lines, clients that do not read, too many clients. Nobody else notices.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use testkit::agent::{Agent, Client, boot_ms, number};
use testkit::process::{SOON, TempDir, eventually, ms};
use testkit::random::Random;
use testkit::redis::RedisServer;

/// A client that must not be disturbed.
fn bystander(agent: &Agent) -> Client {
    let mut client = agent.connect();
    assert!(client.ask("ACQUIRE bystander").starts_with("HELD bystander "));
    client
}

#[track_caller]
fn is_undisturbed(client: &mut Client) {
    let asked_at = Instant::now();
    assert!(client.ask("HOLDS bystander").starts_with("HELD bystander "));
    let took = asked_at.elapsed();
    assert!(took < ms(1_000), "{took:?}");
    assert_eq!(client.pushes, [""; 0]);
}

#[test]
fn garbage_is_answered_or_ends_the_session_and_harms_nobody() {
    let redis = RedisServer::start();
    let mut agent = Agent::first(&redis, &[]);
    let mut other = bystander(&agent);
    let random = Random::new(7);
    for _ in 0..200 {
        let mut client = agent.connect();
        let length = random.below(3_000);
        let bytes: Vec<u8> =
            (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        // The agent may end the connection in between.
        client.send(&bytes);
        client.send(b"\n");
        client.end_sending();
        let told = client.rest();
        let is_answer = |it: &String| it.starts_with("ERR ") || it == "!BYE line";
        assert!(told.iter().all(is_answer) && !told.is_empty(), "{told:?} to {bytes:?}");
    }
    is_undisturbed(&mut other);
    assert!(agent.process.is_running());
    assert!(agent.process.lines(&["WARN"]).is_empty(), "{:?}", agent.process.lines(&["WARN"]));
}

#[test]
fn names_that_no_lease_can_have_are_refused_and_no_key_is_made() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut client = agent.connect();
    let long = "x".repeat(129);
    for name in ["../etc", "a:b", "a*", "{a}", "a\u{e4}", long.as_str(), "\u{1b}[31m"] {
        for verb in ["ACQUIRE", "RELEASE", "HOLDS", "LEAD", "YIELD", "RESIGN", "LEADS"] {
            let told = client.ask(&format!("{verb} {name}"));
            assert!(told.starts_with("ERR name ") || told.starts_with("ERR syntax "), "{told}");
        }
    }
    assert!(client.ask("LEAD epoch").starts_with("ERR name "));
    assert_eq!(redis.cli(&["KEYS", "poll:lease:*"]), "");
}

#[test]
fn an_endless_line_ends_the_session() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut other = bystander(&agent);
    let mut client = agent.connect();
    client.ask("ACQUIRE a");
    let piece = [b'x'; 1_000];
    let sent = (0..10_000).take_while(|_| client.send(&piece)).count();
    assert!(sent < 10_000, "it took {sent} pieces");
    assert!(client.rest().iter().all(|it| it == "!BYE line"));
    is_undisturbed(&mut other);
    // One that comes byte by byte, and half lines.
    let mut slow = agent.connect();
    for byte in b"PING\n" {
        slow.send(&[*byte]);
        is_undisturbed(&mut other);
    }
    assert_eq!(slow.answer(), "PONG");
    slow.send(b"ACQUIRE b");
    drop(slow);
    is_undisturbed(&mut other);
    assert_eq!(redis.cli(&["GET", "poll:lease:b"]), "(nil)");
}

/// A client that asks and never reads what it is told.
#[test]
fn a_client_that_does_not_read_is_disconnected_and_what_it_held_is_given_back() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let (mut other, mut heir) = (bystander(&agent), agent.connect());
    let mut deaf = agent.connect();
    let until = number(&deaf.ask("ACQUIRE a"), "until_ms");
    let lines = b"HELP\n".repeat(1_000);
    let began_at = Instant::now();
    while deaf.send(&lines) {
        assert!(began_at.elapsed() < SOON, "it is still connected");
        is_undisturbed(&mut other);
    }
    agent.process.wait_for_line(SOON, "its end", |it| it.contains("reason=unread"));
    assert!(heir.ask("ACQUIRE a 20000").starts_with("HELD a "));
    assert!(boot_ms() >= until, "given back {} ms early", until - boot_ms());
    is_undisturbed(&mut other);
}

/// Lines wait for a client that waits itself; they cost no more than its bound.
#[test]
fn a_client_that_waits_is_read_no_further_than_its_bound() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut other = bystander(&agent);
    let mut client = agent.connect();
    client.say("ACQUIRE bystander 60000");
    let stream = UnixStream::connect(agent.socket()).unwrap();
    drop(stream);
    // Far more than 64 lines and the buffers of the kernel.
    let (sent, done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let lines = b"PING\n".repeat(200_000);
            client.send(&lines);
            sent.send(()).unwrap();
            client
        });
        let early = done.recv_timeout(ms(700));
        assert!(early.is_err(), "a megabyte went into the agent");
        is_undisturbed(&mut other);
        drop(other); // it gets the lease, and its lines are read
        agent.process.wait_for_line(SOON, "its end", |it| it.contains("reason=unread"));
        done.recv_timeout(SOON).unwrap();
    });
}

#[test]
fn thousands_of_connections_come_and_go_and_the_agent_has_as_many_threads_as_before() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &["--max-clients=64", "--log-level=info"]);
    let mut other = bystander(&agent);
    let threads = || {
        let status = fs::read_to_string(format!("/proc/{}/status", agent.process.pid())).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("Threads:")).unwrap();
        line.trim().parse::<usize>().unwrap()
    };
    let before = threads();
    for n in 0..3_000 {
        // A full backlog refuses for a moment.
        let Ok(mut stream) = UnixStream::connect(agent.socket()) else { continue };
        if n % 3 == 0 {
            let _ = stream.write_all(b"ACQUIRE x");
        }
    }
    is_undisturbed(&mut other);
    eventually(SOON, "the threads end", || threads().to_string(), || threads() <= before);
    // At most this many at a time, and the others are told.
    let mut admitted = Vec::new();
    eventually(SOON, "63 clients", String::new, || {
        let mut client = agent.connect();
        client.send(b"PING\n");
        if client.line().unwrap() == "PONG" {
            admitted.push(client);
        }
        admitted.len() == 63
    });
    for _ in 0..20 {
        assert_eq!(agent.connect().rest(), ["!BYE full"]);
    }
    assert_eq!(agent.process.lines(&["event=agent.client_refused"]).len(), 1, "said once");
    is_undisturbed(&mut other);
    drop(admitted);
    let mut next = String::new();
    eventually(SOON, "room", String::new, || {
        let mut client = agent.connect();
        client.send(b"PING\n");
        next = client.line().unwrap();
        next == "PONG"
    });
}

/// The mode is there before the socket can be reached, and a socket belongs to one agent.
#[test]
fn the_socket_has_its_mode_and_that_of_a_live_agent_is_refused_and_of_a_dead_one_replaced() {
    let (redis, dir) = (RedisServer::start(), TempDir::new());
    let path = dir.path().join("s");
    let listening = "event=agent.listening";
    for (mode, wanted) in [("0600", 0o600), ("0666", 0o666), ("660", 0o660)] {
        let mode = format!("--socket-mode={mode}");
        let mut agent = Agent::spawn(&redis.url(), &path, &["--new-fleet", &mode]);
        agent.wait_for(listening);
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o7777, wanted);
        let mine = fs::metadata(dir.path()).unwrap();
        assert_eq!((found.uid(), found.gid()), (mine.uid(), mine.gid()));
        // Another one, also while this one is frozen.
        agent.freeze();
        let mut second = Agent::spawn(&redis.url(), &path, &[]);
        assert_eq!(second.wait().code(), Some(1));
        assert!(second.says("another agent listens at"), "{:?}", second.log());
        agent.thaw();
        assert_eq!(Client::connect(&path).ask("PING"), "PONG");
        // It leaves its socket behind.
        agent.kill9();
        assert!(path.exists());
    }
    let names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the socket and its lock: {names:?}");
    // A file that is no socket is somebody's.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let mut agent = Agent::spawn(&redis.url(), &path, &[]);
    assert_eq!(agent.wait().code(), Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    // A socket without a lock was left by a program that is gone.
    fs::remove_file(&path).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    let agent = Agent::spawn(&redis.url(), &path, &[]);
    agent.wait_for(listening);
    assert_eq!(Client::connect(&path).ask("PING"), "PONG");
}
