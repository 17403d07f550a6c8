//! Leases by way of an agent: the connection is the session, and every client is a holder of its own.

use std::io::Write;
use std::time::{Duration, Instant};

use testkit::agent::{Agent, Client, boot_ms, number, wait_until_free};
use testkit::process::{MARGIN, SOON, TTL, eventually, leasehold, ms};
use testkit::redis::RedisServer;

#[test]
fn a_client_acquires_asks_and_releases_and_every_line_is_answered_in_its_turn() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut client = agent.connect();
    let hello = client.ask("HELLO 1");
    let id = agent.process.id();
    let version = env!("CARGO_PKG_VERSION");
    let wanted = format!("HELLO 1 leasehold={version} instance={id} lease_ttl_ms=3000");
    assert_eq!(hello, wanted);
    for line in
        ["ACQUIRE a", "PING", "HOLDS b", "nonsense", "RELEASE a", "RELEASE a", "ACQUIRE a.b-1_2"]
    {
        client.say(line);
    }
    let told: Vec<String> = (0..7).map(|_| client.answer()).collect();
    let held = &told[0];
    assert!(held.starts_with("HELD a fence="), "{held}");
    assert_eq!(told[1..3], ["PONG", "NOTHELD b"]);
    assert!(told[3].starts_with("ERR unknown "), "{told:?}");
    assert_eq!(told[4..6], ["RELEASED a", "NOTHELD a"]);
    assert!(told[6].starts_with("HELD a.b-1_2 "), "{told:?}");
    assert_eq!(redis.cli(&["GET", "poll:lease:a.b-1_2"]), id);
    assert_eq!(client.pushes, [""; 0]);
}

/// R1: the deadline that is told has the margin in it, and counts from before the grant was asked for.
#[test]
fn no_time_past_the_deadline_of_the_lease_is_told_and_it_grows_with_each_renewal() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut client = agent.connect();
    let asked_at = boot_ms();
    let held = client.ask("ACQUIRE a");
    let until = number(&held, "until_ms");
    let usable = u64::try_from((TTL - MARGIN).as_millis()).unwrap();
    assert!(until <= boot_ms() + usable, "{held}");
    assert!(number(&held, "for_ms") <= usable, "{held}");
    // Counted from before the line was sent it ends no later than `until_ms`.
    assert!(asked_at + number(&held, "for_ms") <= until + 1, "{held}, asked at {asked_at}");
    let fence = number(&held, "fence");
    let grown = |client: &mut Client| number(&client.ask("HOLDS a"), "until_ms") >= until + 500;
    eventually(SOON, "a renewal", String::new, || grown(&mut client));
    assert_eq!(number(&client.ask("HOLDS a"), "fence"), fence);
}

#[test]
fn two_clients_of_one_agent_are_two_holders() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let (mut one, mut two) = (agent.connect(), agent.connect());
    let first = one.ask("ACQUIRE a");
    assert_eq!(two.ask("ACQUIRE a"), format!("HELDBY a {}", agent.process.id()));
    assert_eq!(two.ask("HOLDS a"), "NOTHELD a");
    assert_eq!(two.ask("RELEASE a"), "NOTHELD a");
    assert_eq!(number(&one.ask("HOLDS a"), "fence"), number(&first, "fence"));
    // The one that waits gets it in its turn, under a higher fence.
    two.say("ACQUIRE a 20000");
    assert_eq!(one.ask("RELEASE a"), "RELEASED a");
    let second = two.answer();
    assert!(number(&second, "fence") > number(&first, "fence"), "{first}, {second}");
    let mut three = agent.connect();
    three.say("ACQUIRE a 20000");
    assert_eq!(three.line_within(ms(200)), None, "it is held");
    drop(two);
    let third = three.answer();
    assert!(number(&third, "fence") > number(&second, "fence"), "{second}, {third}");
}

#[test]
fn a_client_that_waits_is_told_who_holds_it_when_its_time_is_over() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let (mut one, mut two) = (here.connect(), there.connect());
    one.ask("ACQUIRE a");
    let asked_at = Instant::now();
    assert_eq!(two.ask("ACQUIRE a 400"), format!("HELDBY a {}", here.process.id()));
    assert!(asked_at.elapsed() >= ms(400), "{:?}", asked_at.elapsed());
    // Others of its agent stand behind it, and are told so.
    two.say("ACQUIRE a 20000");
    let mut behind = there.connect();
    behind.ask_until("ACQUIRE a", "NOTNOW a queued");
    assert_eq!(one.ask("RELEASE a"), "RELEASED a");
    assert!(two.answer().starts_with("HELD a "));
    assert_eq!(behind.ask("ACQUIRE a"), format!("HELDBY a {}", there.process.id()));
}

#[test]
fn the_end_of_a_connection_gives_everything_back_at_once_also_while_a_line_waits() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let mut holder = there.connect();
    holder.ask("ACQUIRE busy");
    let mut client = here.connect();
    client.ask("ACQUIRE a");
    client.say("ACQUIRE busy 60000");
    client.say("ACQUIRE never");
    let mut heir = there.connect();
    heir.say("ACQUIRE a 20000");
    assert_eq!(heir.line_within(ms(300)), None, "it is held");
    let ended_at = Instant::now();
    drop(client);
    assert!(heir.answer().starts_with("HELD a "));
    let took = ended_at.elapsed();
    assert!(took < ms(1_500), "{took:?}");
    here.process.wait_for("event=agent.client_gone");
    assert_eq!(redis.cli(&["GET", "poll:lease:never"]), "(nil)", "it was not carried out");
}

/// `printf 'ACQUIRE a\n' | leasehold connect …`
#[test]
fn after_the_end_of_its_sending_side_a_client_gets_its_answers_and_nothing_waits_any_more() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let mut holder = there.connect();
    holder.ask("ACQUIRE busy");
    let mut client = here.connect();
    client.say("ACQUIRE a");
    client.say("ACQUIRE busy 60000");
    client.say("HOLDS a");
    client.end_sending();
    let told = client.rest();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("HELD a ") && told[2].starts_with("HELD a "), "{told:?}");
    assert!(told[1].starts_with("HELDBY busy ") || told[1].starts_with("NOTNOW busy "), "{told:?}");
    wait_until_free(&redis, "a", ms(2_000));
    let connected = here.process_client();
    assert_eq!(connected.finish(), "");
    let mut connected = here.process_client();
    assert!(connected.ask("ACQUIRE a").starts_with("HELD a "));
    assert_eq!(connected.finish(), "");
    wait_until_free(&redis, "a", ms(2_000));
}

/// A frozen client cannot outlive its session: what it was told is over by then.
#[test]
fn a_silent_session_ends_and_no_time_past_its_end_was_told() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let (mut silent, mut heir) = (agent.connect(), agent.connect());
    assert_eq!(silent.ask("SESSION 700"), "SESSION 700");
    let asked_at = boot_ms();
    let held = silent.ask("ACQUIRE a");
    let until = number(&held, "until_ms");
    assert!(number(&held, "for_ms") <= 700 && until <= boot_ms() + 700, "{held}");
    assert!(until + 1 >= asked_at + 700, "{held}: the line itself counts");
    heir.say("ACQUIRE a 20000");
    let next = heir.answer();
    assert!(next.starts_with("HELD a "), "{next}");
    assert!(boot_ms() >= until, "granted {} ms early", until - boot_ms());
    assert_eq!(silent.rest(), ["!BYE silent"]);
    // One that speaks goes on, whatever it says.
    let mut lively = agent.connect();
    lively.ask("SESSION 700");
    lively.ask("ACQUIRE b");
    let since = Instant::now();
    while since.elapsed() < ms(2_000) {
        assert_eq!(lively.line_within(ms(100)), None);
        assert_eq!(lively.ask("PING"), "PONG");
    }
    assert!(lively.ask("HOLDS b").starts_with("HELD b "));
}

/// More than the lines that have room.
#[test]
fn a_client_that_sends_pings_while_it_waits_for_long_is_not_silent() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let (mut holder, mut client) = (agent.connect(), agent.connect());
    assert!(holder.ask("ACQUIRE a").starts_with("HELD a "));
    assert_eq!(client.ask("SESSION 1000"), "SESSION 1000");
    client.say("ACQUIRE a 3000");
    let mut n_pings = 80;
    client.send(&b"PING\n".repeat(n_pings));
    let told = loop {
        if let Some(line) = client.line_within(ms(100)) {
            break line;
        }
        client.say("PING");
        n_pings += 1;
    };
    let told = told.expect("the agent has ended the session");
    assert!(told.starts_with("HELDBY a "), "{told}");
    client.say("HOLDS a");
    for _ in 0..n_pings {
        assert_eq!(client.answer(), "PONG");
    }
    assert_eq!(client.answer(), "NOTHELD a");
}

/// What a client was told before it bounded its session counts, too.
#[test]
fn a_lease_is_kept_until_what_its_client_was_told_is_over_if_the_agent_ends_the_session() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let (mut client, mut heir) = (agent.connect(), agent.connect());
    let until = number(&client.ask("ACQUIRE a"), "until_ms");
    client.ask("SESSION 100");
    assert_eq!(client.rest(), ["!BYE silent"]);
    assert!(boot_ms() < until, "the end of the session came too late to see anything");
    assert_eq!(heir.ask("ACQUIRE a"), format!("HELDBY a {}", agent.process.id()));
    assert!(heir.ask("ACQUIRE a 20000").starts_with("HELD a "));
    assert!(boot_ms() >= until, "granted {} ms early", until - boot_ms());
}

#[test]
fn a_stop_tells_the_clients_waits_for_them_and_then_gives_everything_back() {
    let redis = RedisServer::start();
    let mut agent = Agent::first(&redis, &["--drain-timeout=10s"]);
    let (mut polite, mut other) = (agent.connect(), agent.connect());
    polite.ask("ACQUIRE a");
    other.ask("ACQUIRE b");
    agent.process.signal(nix::sys::signal::Signal::SIGTERM);
    let told = polite.pushed("!STOPPING");
    assert!(number(&told, "for_ms") <= 10_000, "{told}");
    assert!(polite.ask("HOLDS a").starts_with("HELD a "), "it can finish");
    assert!(polite.ask("ACQUIRE c").starts_with("ERR stopping "));
    assert!(polite.ask("LEAD c").starts_with("ERR stopping "));
    assert!(std::os::unix::net::UnixStream::connect(agent.socket()).is_err(), "nobody new");
    drop(polite);
    wait_until_free(&redis, "a", ms(2_000));
    assert!(redis.cli(&["GET", "poll:lease:b"]).starts_with("vm-"), "the other has not finished");
    other.pushed("!STOPPING");
    drop(other);
    assert!(agent.process.wait().success());
    assert_eq!(redis.cli(&["KEYS", "poll:lease:*"]), "");
    assert_eq!(redis.cli(&["KEYS", "poll:node:*"]), "", "its heartbeat is withdrawn");
    assert!(!agent.socket().exists());
}

/// The end of the agent's patience finds a client that may count on what it was told.
#[test]
fn a_stop_that_ends_connections_waits_out_what_clients_were_told_unless_it_is_hurried() {
    let redis = RedisServer::start();
    for hurried in [false, true] {
        let mut agent = Agent::start(&redis, &["--new-fleet", "--drain-timeout=0s"]);
        let mut client = agent.connect();
        let until = number(&client.ask("ACQUIRE a"), "until_ms");
        agent.process.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(client.rest().last().unwrap(), "!BYE stopping");
        if hurried {
            assert!(redis.cli(&["GET", "poll:lease:a"]).starts_with("vm-"));
            agent.process.signal(nix::sys::signal::Signal::SIGTERM);
        }
        assert!(agent.process.wait().success());
        assert_eq!(redis.cli(&["KEYS", "poll:lease:*"]), "");
        assert_eq!(boot_ms() < until, hurried, "until {until}, and it is {}", boot_ms());
    }
}

/// The rule of docs/redis.md is enough.
#[test]
fn an_agent_needs_no_more_rights_than_a_daemon() {
    let redis = RedisServer::start();
    let url = redis.give_rule("leasehold");
    let agents = [Agent::start_at(&url, &["--new-fleet"]), Agent::start_at(&url, &[])];
    let [mut one, mut two] = [agents[0].connect(), agents[1].connect()];
    assert!(one.ask("ACQUIRE a").starts_with("HELD a "));
    one.ask("LEAD job");
    one.pushed("!ELECTED job ");
    two.ask("LEAD job");
    two.pushed("!FOLLOWER job ");
    two.say("ACQUIRE a 20000");
    assert_eq!(two.line_within(ms(1_500)), None, "it is renewed");
    assert!(one.ask("HOLDS a").starts_with("HELD a "));
    drop(one);
    assert!(two.answer().starts_with("HELD a "));
    two.ask_until("LEADS job", "LEADING job ");
    for agent in agents {
        assert!(agent.process.lines(&["NOPERM"]).is_empty(), "{:?}", agent.process.log());
        assert!(agent.process.lines(&["WARN"]).is_empty(), "{:?}", agent.process.log());
    }
}

#[test]
fn a_client_has_a_bound_of_names_and_can_go_on_below_it() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut client = agent.connect();
    for n in 0..256 {
        assert!(client.ask(&format!("ACQUIRE n{n}")).starts_with("HELD "), "{n}");
    }
    assert!(client.ask("ACQUIRE more").starts_with("ERR limit "));
    assert!(client.ask("LEAD more").starts_with("ERR limit "));
    assert!(client.ask("ACQUIRE n7").starts_with("HELD n7 "), "it has n7");
    assert_eq!(client.ask("RELEASE n7"), "RELEASED n7");
    assert!(client.ask("ACQUIRE more").starts_with("HELD more "));
}

#[test]
fn an_agent_says_what_is_wrong_with_its_options() {
    let refused = |args: &[&str]| {
        let output = leasehold(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let at = "--socket=/nowhere/agent.sock";
    for (args, words) in [
        (&["agent"][..], "needs the path of a socket"),
        (&["connect"], "needs the path of a socket"),
        (&["agent", at, "--socket-mode=rw"], "--socket-mode is no mode"),
        (&["agent", at, "--socket-mode=0888"], "--socket-mode is no mode"),
        (&["agent", at, "--socket-mode=01777"], "--socket-mode is no mode"),
        (&["agent", at, "--max-clients=0"], "--max-clients"),
        (&["agent", at, "--lease-ttl=2h"], "--lease-ttl"),
    ] {
        let told = refused(args);
        assert!(told.contains(words) && told.lines().count() == 1, "{args:?}: {told}");
    }
    let nobody = leasehold(&["connect", at]);
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    let told = String::from_utf8(nobody.stderr).unwrap();
    assert!(told.contains("cannot connect to the agent at /nowhere/agent.sock"), "{told}");
}

/// A program that writes without reading must not be able to stop itself by its own pipe.
#[test]
fn lines_that_are_sent_in_one_piece_are_all_answered() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut client = agent.connect();
    let mut lines = Vec::new();
    for n in 0..500 {
        writeln!(lines, "HOLDS n{n}").unwrap();
    }
    assert!(client.send(&lines));
    for n in 0..500 {
        assert_eq!(client.answer(), format!("NOTHELD n{n}"));
    }
    assert_eq!(client.line_within(Duration::from_millis(50)), None);
}
