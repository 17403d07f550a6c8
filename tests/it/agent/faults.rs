//! Clients, agents and Redis are killed, frozen and restarted under leases and roles of clients.

use std::time::Instant;

use nix::sys::signal::Signal;

use testkit::agent::{Agent, boot_ms, number};
use testkit::process::{SOON, TTL, TempDir, eventually, leasehold, ms};
use testkit::redis::RedisServer;

/// The death of a program is the end of its connection.
#[test]
fn a_client_that_is_killed_loses_everything_at_once() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let mut took = Vec::new();
    for n in 0..5 {
        let (mut client, mut heir) = (here.process_client(), there.connect());
        let first = client.ask(&format!("ACQUIRE a{n}"));
        heir.say(&format!("ACQUIRE a{n} 20000"));
        assert_eq!(heir.line_within(ms(200)), None, "it is held");
        let killed_at = Instant::now();
        client.signal(Signal::SIGKILL);
        let second = heir.answer();
        took.push(killed_at.elapsed());
        assert!(number(&second, "fence") > number(&first, "fence"), "{first}, {second}");
    }
    took.sort_unstable();
    println!("SIGKILL of a client to the grant of the next, in order: {took:?}");
    assert!(took[2] < ms(500), "{took:?}");
}

/// It keeps its connection, and only the bound of its session ends it.
#[test]
fn a_client_that_is_frozen_keeps_its_lease_as_long_as_its_session_allows() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let (mut bounded, mut heir) = (here.process_client(), there.connect());
    bounded.ask("SESSION 1000");
    let until = number(&bounded.ask("ACQUIRE a"), "until_ms");
    let frozen_at = boot_ms();
    bounded.signal(Signal::SIGSTOP);
    heir.say("ACQUIRE a 20000");
    assert!(heir.answer().starts_with("HELD a "));
    let granted_at = boot_ms();
    assert!(granted_at >= until, "granted {} ms early", until - granted_at);
    assert!(granted_at < frozen_at + 3_000, "granted after {} ms", granted_at - frozen_at);
    // Without a bound it holds for as long as its agent renews.
    let mut unbounded = here.process_client();
    unbounded.ask("ACQUIRE b");
    unbounded.signal(Signal::SIGSTOP);
    let told = heir.ask("ACQUIRE b 4000");
    assert_eq!(told, format!("HELDBY b {}", here.process.id()), "longer than its TTL");
}

#[test]
fn an_agent_that_is_killed_takes_its_clients_connections_along_and_its_leases_end_with_their_ttl() {
    let redis = RedisServer::start();
    let (mut here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let (mut client, mut heir) = (here.connect(), there.connect());
    let held = client.ask("ACQUIRE a");
    client.ask("LEAD job");
    let elected = client.pushed("!ELECTED job ");
    let until = number(&held, "until_ms").max(number(&elected, "until_ms"));
    let killed_at = boot_ms();
    here.process.kill9();
    assert_eq!(client.line(), None, "the end of the connection is the loss of everything");
    heir.ask("LEAD job");
    heir.say("ACQUIRE a 20000");
    let next = heir.answer();
    assert!(next.starts_with("HELD a "), "{next}");
    assert!(boot_ms() >= number(&held, "until_ms"), "granted early");
    heir.pushed("!ELECTED job ");
    assert!(boot_ms() >= until, "elected early");
    let ttl = u64::try_from(TTL.as_millis()).unwrap();
    assert!(boot_ms() < killed_at + ttl + 3_000, "after {} ms", boot_ms() - killed_at);
}

/// Only where every client looks at its connection: docs/agent.md.
#[test]
fn release_gives_back_what_a_killed_agent_with_a_runtime_directory_held() {
    let (redis, dir) = (RedisServer::start(), TempDir::new());
    let option = dir.option("runtime-dir");
    let (mut here, there) = (Agent::first(&redis, &[&option]), Agent::start(&redis, &[]));
    let (mut client, mut heir) = (here.connect(), there.connect());
    client.ask("ACQUIRE a");
    client.ask("LEAD job");
    client.pushed("!ELECTED job ");
    here.process.kill9();
    let url = format!("--redis={}", redis.url());
    let released = leasehold(&["release", &option, &url]);
    let told = String::from_utf8(released.stdout).unwrap();
    assert!(told.contains("released 1 lease and 1 role of"), "{told}");
    let asked_at = Instant::now();
    assert!(heir.ask("ACQUIRE a 20000").starts_with("HELD a "));
    heir.ask("LEAD job");
    heir.pushed("!ELECTED job ");
    assert!(asked_at.elapsed() < ms(2_000), "{:?}", asked_at.elapsed());
}

/// The first thing that it says when it wakes up is what was lost.
#[test]
fn an_agent_that_was_frozen_past_the_ttl_tells_the_loss_before_it_answers_anything() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let (mut client, mut heir) = (here.connect(), there.connect());
    let held = client.ask("ACQUIRE a");
    client.ask("LEAD job");
    client.pushed("!ELECTED job ");
    here.process.freeze();
    for line in ["PING", "HOLDS a", "LEADS job"] {
        client.say(line);
    }
    let next = heir.ask("ACQUIRE a 20000");
    assert!(number(&next, "fence") > number(&held, "fence"), "{held}, {next}");
    assert!(boot_ms() >= number(&held, "until_ms"), "granted early");
    heir.ask("LEAD job");
    heir.pushed("!ELECTED job ");
    here.process.thaw();
    let told: Vec<String> = (0..2).map(|_| client.line().unwrap()).collect();
    let lost = format!("!LOST a fence={} ", number(&held, "fence"));
    assert!(told[0].starts_with(&lost) && told[1].starts_with("!FOLLOWER job "), "{told:?}");
    assert_eq!([client.answer(), client.answer()], ["PONG", "NOTHELD a"]);
    let follows = client.answer();
    assert!(follows.starts_with("FOLLOWING job "), "{follows}");
}

#[test]
fn without_redis_a_lease_is_uncertain_then_lost_and_can_be_acquired_again_later() {
    let mut redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut client = agent.connect();
    let held = client.ask("ACQUIRE a");
    client.ask("LEAD job");
    client.pushed("!ELECTED job ");
    redis.kill();
    let fence = number(&held, "fence");
    let doubted = client.pushed("!UNCERTAIN a ");
    assert_eq!(number(&doubted, "fence"), fence);
    client.pushes.clear();
    let told = client.ask("HOLDS a");
    assert!(told.starts_with("UNCERTAIN a ") || told == "NOTHELD a", "{told}");
    let mut pushes = std::mem::take(&mut client.pushes);
    let lost_both = |it: &[String]| {
        let has = |start: &str| it.iter().any(|it| it.starts_with(start));
        has("!LOST a ") && has("!FOLLOWER job ")
    };
    while !lost_both(&pushes) {
        pushes.extend(client.line());
    }
    let lost = pushes.iter().find(|it| it.starts_with("!LOST a ")).unwrap();
    assert_eq!(*lost, format!("!LOST a fence={fence} expired"));
    assert!(pushes.iter().any(|it| it.starts_with("!SUSPENDED job ")), "{pushes:?}");
    assert_eq!(client.ask("HOLDS a"), "NOTHELD a");
    assert!(client.ask("ACQUIRE a").starts_with("ERR store "));
    redis.restart();
    let mut heir = agent.connect();
    let again = heir.ask_until("ACQUIRE a 1000", "HELD a ");
    assert!(number(&again, "fence") > fence, "{held}, {again}");
    client.pushed("!ELECTED job ");
    drop(heir);
    client.ask_until("ACQUIRE a 1000", "HELD a ");
}

#[test]
fn a_doubt_that_passes_is_told_and_the_lease_is_kept() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut client = agent.connect();
    let fence = number(&client.ask("ACQUIRE a"), "fence");
    client.ask("LEAD job");
    let term = number(&client.pushed("!ELECTED job "), "term");
    // A pause that begins right after a renewal is over before the deadline.
    let until = number(&client.ask("HOLDS a"), "until_ms");
    eventually(SOON, "a renewal", String::new, || {
        number(&client.ask("HOLDS a"), "until_ms") > until
    });
    redis.pause();
    let doubted = client.pushed("!UNCERTAIN a ");
    redis.resume();
    assert_eq!(number(&doubted, "fence"), fence);
    let certain = client.pushed("!CERTAIN a ");
    assert_eq!(number(&certain, "fence"), fence);
    assert!(client.ask("HOLDS a").starts_with("HELD a "));
    let leads = client.ask_until("LEADS job", "LEADING job ");
    assert_eq!(number(&leads, "term"), term);
}

/// R6: the lease is written back, and others wait out the hold-off.
#[test]
fn a_redis_that_comes_back_empty_costs_no_lease() {
    let mut redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let (mut client, mut other) = (here.connect(), there.connect());
    let fence = number(&client.ask("ACQUIRE a"), "fence");
    redis.kill();
    redis.restart();
    let told = other.ask_until("ACQUIRE b", "HOLDOFF b ");
    let left: u64 = told.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(left > 0, "{told}");
    let held = client.ask_until("HOLDS a", "HELD a ");
    assert_eq!(number(&held, "fence"), fence);
    let told = other.ask_until("ACQUIRE a 1000", "HELDBY a ");
    assert_eq!(told, format!("HELDBY a {}", here.process.id()));
    assert_eq!(number(&client.ask("HOLDS a"), "fence"), fence);
}

/// Started before Redis: the socket is there once the agent can grant.
#[test]
fn an_agent_waits_for_redis_and_can_be_stopped_meanwhile() {
    let (mut redis, dir) = (RedisServer::start(), TempDir::new());
    redis.kill();
    let path = dir.path().join("s");
    let mut waiting = Agent::spawn(&redis.url(), &path, &["--new-fleet"]);
    waiting.wait_for("event=store.unreachable");
    assert!(!path.exists());
    assert!(waiting.term().success());
    let waiting = Agent::spawn(&redis.url(), &path, &["--new-fleet"]);
    waiting.wait_for("event=store.unreachable");
    redis.restart();
    waiting.wait_for("event=agent.listening");
    let mut client = testkit::agent::Client::connect(&path);
    assert!(client.ask("ACQUIRE a 20000").starts_with("HELD a "));
}
