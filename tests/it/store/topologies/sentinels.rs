//! `redis+sentinel://`.

use std::time::Instant;

use crate::store::topologies::{AGAIN, does_not_start, refused, revoked_path, whole_path};
use testkit::lead::{Hosts, TTL};
use testkit::process::{Instance, SOON, eventually, ms};
use testkit::redis::RedisServer;
use testkit::sentinel::{Addresses, PATIENCE, Sentinels, Watched};
use testkit::site::{Site, World};
use testkit::target::Target;

#[test]
fn everything_works_through_sentinels() {
    whole_path(Watched::start(1, &[]));
}

#[test]
fn r16_a_killed_process_is_replaced_in_seconds_through_sentinels() {
    assert_eq!(revoked_path(Watched::start(1, &[])), "subscriber");
}

#[test]
fn a_killed_master_is_replaced_and_nobody_polls_twice() {
    let mut world = World::populated(Watched::start(1, &[]), 2, &[]);
    let killed = Instant::now();
    world.site.servers[0].kill();
    world.site.wait_for_successor(0);
    println!("measured: replaced after {:?}", killed.elapsed());
    world.target.wait_for_polls(&world.endpoints, Instant::now(), AGAIN);
    println!("measured: all polled again after {:?}", killed.elapsed());
    world.settle();
    world.assert_sound();
}

#[test]
fn one_sentinel_that_hangs_or_is_gone_disturbs_nobody() {
    let mut world = World::populated(Watched::start(1, &[]), 2, &[]);
    let since = Instant::now();
    world.site.sentinels.pause(0);
    world.target.observe(ms(1_500));
    world.site.sentinels.kill(0);
    world.target.observe(ms(1_500));
    for endpoint in &world.endpoints {
        let gap = world.target.longest_gap(endpoint, since..Instant::now());
        assert!(gap < ms(1_200), "{endpoint} was not polled for {gap:?}");
    }
    for one in &world.fleet {
        let trouble = one.lines(&["store.unreachable"]);
        assert!(trouble.is_empty(), "{trouble:?}");
    }
    assert!(world.command(&["status"]).contains(&world.fleet[0].id()));
    world.assert_sound();
}

/// They may all be away: the master that is known goes on.
#[test]
fn without_sentinels_a_fleet_goes_on_and_nobody_joins_it() {
    let mut world = World::populated(Watched::start(0, &[]), 1, &[]);
    let url = world.site.url();
    (0..3).for_each(|it| world.site.sentinels.kill(it));
    let since = Instant::now();
    world.wait_for_polls(SOON);
    world.target.observe(ms(2_000));
    let gap = world.target.longest_gap("e1", since..Instant::now());
    assert!(gap < ms(1_200), "not polled for {gap:?}");
    let why = refused(&url, &[]);
    assert!(why.contains("too few of 3 sentinels answered to know the master of it"), "{why}");
    world.assert_sound();
}

/// While it was away it may have been replaced, and would go on as if nothing had happened.
#[test]
fn a_master_that_was_out_of_reach_needs_the_word_of_the_sentinels() {
    let world = World::populated(Watched::start(0, &[]), 1, &[]);
    (0..3).for_each(|it| world.site.sentinels.pause(it));
    world.site.servers[0].pause();
    world.fleet[0].wait_for("event=lease.uncertain");
    world.site.servers[0].resume();
    // What it has confirmed before goes on to its end.
    world.fleet[0].wait_for("event=lease.lost");
    let lost = Instant::now();
    world.target.observe(ms(1_500));
    let polls = world.target.requests().into_iter().filter(|it| it.start > lost + ms(500)).count();
    assert_eq!(polls, 0, "{}", world.target.story());
    (0..3).for_each(|it| world.site.sentinels.resume(it));
    world.wait_for_polls(SOON);
    world.assert_sound();
}

#[test]
fn a_name_that_sentinels_do_not_know_is_a_setting_to_mend() {
    let site = Watched::start(0, &[]);
    let url = site.url().replace("/it/", "/other/");
    let why = refused(&url, &[]);
    assert!(why.contains("the sentinels know no master other: see SENTINEL MASTERS"), "{why}");
    does_not_start(&url, &[], "the sentinels know no master other");
}

/// As long as the sentinels have not noticed it, it would answer with old news.
#[test]
fn a_replica_that_sentinels_call_master_is_not_asked() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let ips = Addresses::of_loopback(0);
    let sentinels =
        Sentinels::watch(&ips.sentinels, ("127.0.0.1", server.port()), &[], 60 * PATIENCE);
    assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]), "OK");
    let why = refused(&sentinels.url(&ips), &[]);
    assert!(
        why.contains(&format!("name 127.0.0.1:{}, which is a replica", server.port())),
        "{why}"
    );
}

#[test]
fn what_too_few_replicas_have_is_not_granted() {
    let site = Watched::start(1, &["--repl-timeout", "60"]);
    let world = World::new(site, Target::start(), 2);
    world.site.servers[1].pause();
    let url = world.site.url();
    let one = Instance::start_at(&url, &["--new-fleet", "--min-replicas=1"]);
    let why = "0 of the 1 replicas that --min-replicas asks for have it: see INFO replication";
    one.wait_for(why);
    world.target.observe(ms(1_000));
    assert_eq!(world.target.requests().len(), 0, "{}", world.target.story());
    world.site.servers[1].resume();
    world.wait_for_polls(SOON);
    assert!(world.command(&["status"]).contains(&one.id()));
    world.assert_sound();
}

/// The leader's command ends before another's begins, whichever server says who leads.
#[test]
fn an_election_survives_its_master() {
    let mut site = Watched::start(1, &[]);
    let hosts = Hosts::new();
    hosts.end_hold_off_at(&site.url());
    let _fleet: Vec<Instance> = (0..2).map(|_| hosts.lead_at(&site.url(), &[])).collect();
    hosts.wait_for_life(0);
    let synced = || {
        let term = |it: &RedisServer| it.cli(&["GET", "leader:job"]);
        term(&site.servers[0]) == term(&site.servers[1]) && term(&site.servers[0]) != "(nil)"
    };
    eventually(SOON, "a leader that the replica knows", String::new, synced);
    site.servers[0].kill();
    site.wait_for_successor(0);
    hosts.wait_for_work(Instant::now() + ms(100));
    let vacancy = hosts.longest_vacancy();
    println!("measured: vacant for {vacancy:?}");
    assert!(vacancy < AGAIN + TTL, "{vacancy:?}");
}
