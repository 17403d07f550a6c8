//! Roles by way of an agent: one candidate at a time for each role, and a leadership lasts as long as was told.

use std::time::Instant;

use testkit::agent::{Agent, boot_ms, number};
use testkit::process::{ms, run, said};
use testkit::redis::RedisServer;

#[test]
fn a_client_stands_leads_and_resigns() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let mut client = agent.connect();
    assert_eq!(client.ask("LEADS job"), "NOTSTANDING job");
    assert_eq!(client.ask("LEAD job"), "STANDING job");
    let elected = client.pushed("!ELECTED job ");
    let leading = client.ask("LEADS job");
    assert!(leading.starts_with("LEADING job "), "{leading}");
    assert_eq!(number(&leading, "term"), number(&elected, "term"));
    assert!(number(&leading, "until_ms") <= boot_ms() + 2_810, "{leading}");
    assert_eq!(client.ask("LEAD job"), "STANDING job", "it does already");
    assert_eq!(redis.cli(&["GET", "leader:job"]), agent.process.id());
    assert_eq!(client.ask("RESIGN job"), "RESIGNED job");
    assert_eq!(redis.cli(&["GET", "leader:job"]), "(nil)", "given back before the answer");
    assert_eq!(client.ask("RESIGN job"), "NOTSTANDING job");
    assert_eq!(client.ask("YIELD job"), "NOTLEADING job");
    assert_eq!(client.pushes, [""; 0]);
}

/// An instance has one candidate for a role.
#[test]
fn the_second_client_of_an_agent_follows_and_is_next_under_another_term() {
    let redis = RedisServer::start();
    let agent = Agent::first(&redis, &[]);
    let me = agent.process.id();
    let (mut one, mut two, mut three) = (agent.connect(), agent.connect(), agent.connect());
    one.ask("LEAD job");
    let first = one.pushed("!ELECTED job ");
    assert_eq!(two.ask("LEAD job"), "STANDING job");
    assert_eq!(two.pushed("!FOLLOWER job "), format!("!FOLLOWER job leader={me}"));
    assert_eq!(two.ask("LEADS job"), format!("FOLLOWING job leader={me}"));
    three.ask("LEAD job");
    three.pushed("!FOLLOWER job ");
    let ended_at = Instant::now();
    drop(one);
    let second = two.pushed("!ELECTED job ");
    let took = ended_at.elapsed();
    assert!(took < ms(2_000), "{took:?}");
    assert!(number(&second, "term") > number(&first, "term"), "{first}, {second}");
    assert_eq!(two.ask("RESIGN job"), "RESIGNED job");
    let third = three.pushed("!ELECTED job ");
    assert!(number(&third, "term") > number(&second, "term"), "{second}, {third}");
    assert!(three.ask("LEADS job").starts_with("LEADING job "));
}

#[test]
fn the_end_of_a_leaders_connection_lets_a_client_of_another_agent_lead() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let (mut one, mut two) = (here.connect(), there.connect());
    one.ask("LEAD job");
    let first = one.pushed("!ELECTED job ");
    two.ask("LEAD job");
    let follower = two.pushed("!FOLLOWER job ");
    assert_eq!(follower, format!("!FOLLOWER job leader={}", here.process.id()));
    let ended_at = Instant::now();
    drop(one);
    let second = two.pushed("!ELECTED job ");
    let took = ended_at.elapsed();
    assert!(took < ms(2_000), "{took:?}");
    assert!(number(&second, "term") > number(&first, "term"), "{first}, {second}");
}

/// An operator wants the role elsewhere: the leader is asked, and has the time that it was told.
#[test]
fn a_role_that_is_wanted_elsewhere_is_kept_until_its_leader_yields() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let (mut one, mut two) = (here.connect(), there.connect());
    one.ask("LEAD job");
    let term = number(&one.pushed("!ELECTED job "), "term");
    two.ask("LEAD job");
    two.pushed("!FOLLOWER job ");
    let until = number(&one.ask("LEADS job"), "until_ms");
    std::thread::scope(|scope| {
        let resigned = scope.spawn(|| said(&run(&redis, &["resign", "job"])));
        let wanted = one.pushed("!YIELD job ");
        assert_eq!((number(&wanted, "term"), number(&wanted, "until_ms")), (term, until));
        assert_eq!(redis.cli(&["GET", "leader:job"]), here.process.id(), "it can finish");
        assert_eq!(one.ask("LEADS job"), format!("SUSPENDED job term={term}"));
        assert_eq!(one.ask("YIELD job"), "YIELDED job");
        two.pushed("!ELECTED job ");
        let there = there.process.id();
        assert_eq!(one.pushed("!FOLLOWER job "), format!("!FOLLOWER job leader={there}"));
        resigned.join().unwrap();
    });
    // It stands on.
    drop(two);
    let next = one.pushed("!ELECTED job ");
    assert!(number(&next, "term") > term, "{next}");
}

/// A leader that does not answer, perhaps because it is frozen.
#[test]
fn a_leader_that_does_not_yield_loses_the_role_when_the_time_it_was_told_is_over() {
    let redis = RedisServer::start();
    let (here, there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let (mut one, mut two) = (here.connect(), there.connect());
    one.ask("LEAD job");
    let elected = one.pushed("!ELECTED job ");
    let (term, until) = (number(&elected, "term"), number(&elected, "until_ms"));
    two.ask("LEAD job");
    two.pushed("!FOLLOWER job ");
    std::thread::scope(|scope| {
        let resigned = scope.spawn(|| run(&redis, &["resign", "job"]));
        two.pushed("!ELECTED job ");
        assert!(boot_ms() >= until, "elected {} ms early", until - boot_ms());
        resigned.join().unwrap();
    });
    one.pushed("!YIELD job ");
    let lost = one.pushed("!FOLLOWER job ");
    assert!(lost.ends_with(&format!(" lost={term}")), "{lost}");
}
