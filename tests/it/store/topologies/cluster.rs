//! `redis+cluster://`.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::store::topologies::{AGAIN, does_not_start, refused, revoked_path, whole_path};
use testkit::lead::{Hosts, TTL};
use testkit::process::{Instance, SOON, eventually, ms};
use testkit::redis::RedisServer;
use testkit::shards::Shards;
use testkit::site::{Site, World};

#[test]
fn everything_works_on_a_cluster() {
    whole_path(Shards::start());
}

/// R16: subscriptions stand on the server that has the prefix, so its count of subscribers says who is gone.
#[test]
fn r16_a_killed_process_is_replaced_in_seconds_on_a_cluster() {
    assert_eq!(revoked_path(Shards::start()), "subscriber");
}

/// And one that is added to any of them is noticed at once.
#[test]
fn sessions_are_on_every_shard() {
    let mut world = World::populated(Shards::start(), 2, &[]);
    let shard = |id: &str| world.site.owner_of(&format!("session:{id}")).unwrap();
    let shards: BTreeSet<usize> = world.endpoints.iter().map(|it| shard(it)).collect();
    assert_eq!(shards.len(), 3, "{shards:?}");
    let added: Vec<String> = ["e7", "e8", "e2b"].map(Into::into).to_vec();
    let shards: BTreeSet<usize> = added.iter().map(|it| shard(it)).collect();
    assert_eq!(shards.len(), 3, "{shards:?}");
    for id in added {
        let before = Instant::now();
        world.put_session(&id);
        world.target.wait_for_polls(std::slice::from_ref(&id), before, SOON);
        assert!(before.elapsed() < ms(3_000), "{id} after {:?}", before.elapsed());
        world.endpoints.push(id);
    }
    let list = world.command(&["sessions", "list"]);
    assert!(world.endpoints.iter().all(|it| list.contains(it.as_str())), "{list}");
    world.settle();
    world.assert_sound();
}

fn shard_dies(key: &str) {
    let mut world = World::populated(Shards::start(), 2, &[]);
    let slot = world.site.slot(key);
    let owner = world.site.owner(slot).unwrap();
    let killed = Instant::now();
    world.site.nodes[owner].kill();
    world.site.wait_for_successor(slot, owner);
    println!("measured: replaced after {:?}", killed.elapsed());
    world.target.wait_for_polls(&world.endpoints, Instant::now(), AGAIN);
    println!("measured: all polled again after {:?}", killed.elapsed());
    world.settle();
    // What is on the shard that was replaced is found again, too.
    let list = world.command(&["sessions", "list"]);
    assert!(world.endpoints.iter().all(|it| list.contains(it.as_str())), "{list}");
    world.assert_sound();
}

#[test]
fn a_killed_home_is_replaced_and_nobody_polls_twice() {
    shard_dies("{poll}:epoch");
}

#[test]
fn a_killed_shard_with_sessions_is_replaced_and_nobody_polls_twice() {
    shard_dies("session:e1");
}

/// While it moves, a session is here or there, and afterwards there: ASK, and MOVED.
#[test]
fn sessions_that_move_to_another_shard_are_polled_on() {
    let world = World::populated(Shards::start(), 2, &[]);
    let slot = world.site.slot("session:e1");
    let from = world.site.owner(slot).unwrap();
    let to = (from + 1) % 3;
    let since = Instant::now();
    world.site.open(slot, from, to);
    assert_eq!(world.site.carry(slot, from, to), 1);
    // What is read now is asked for at the new place.
    let paused = world.command(&["sessions", "list"]);
    assert!(paused.contains("e1"), "{paused}");
    world.wait_for_polls(SOON);
    world.site.close(slot, to);
    eventually(SOON, "its new owner", String::new, || world.site.owner(slot) == Some(to));
    world.command(&["sessions", "pause", "e1"]);
    eventually(
        SOON,
        "the pause",
        || format!("{:?}", world.owners()),
        || !world.owners().contains_key("e1"),
    );
    world.command(&["sessions", "resume", "e1"]);
    world.wait_for_polls(SOON);
    for endpoint in &world.endpoints[1..] {
        let gap = world.target.longest_gap(endpoint, since..Instant::now());
        assert!(gap < ms(2_000), "{endpoint} was not polled for {gap:?}");
    }
    world.assert_sound();
}

#[test]
fn a_url_of_the_wrong_kind_is_refused_with_the_right_one() {
    let shards = Shards::start();
    for node in &shards.nodes[..3] {
        let why = refused(&node.url(), &[]);
        assert!(why.contains("write redis+cluster://"), "{why}");
    }
    does_not_start(&shards.nodes[0].url(), &[], "write redis+cluster://");
    let plain = RedisServer::start();
    let url = format!("redis+cluster://127.0.0.1:{}", plain.port());
    let place = format!("127.0.0.1:{}", plain.port());
    let why = format!("{place} is no node of a cluster: write redis://{place}");
    let said = refused(&url, &[]);
    assert!(said.contains(&why), "{said}");
    does_not_start(&url, &[], &why);
}

#[test]
fn two_fleets_share_a_cluster_and_nothing_else() {
    let mut east = World::new(Shards::start(), testkit::target::Target::start(), 4);
    let url = east.site.url();
    let of = |prefix: &str| {
        let prefix = format!("--prefix={prefix}");
        Instance::start_at(&url, &["--new-fleet", &prefix])
    };
    let slots = ["{east}", "{west}"].map(|it| east.site.owner_of(it));
    assert_ne!(slots[0], slots[1], "both homes are on one shard");
    let fleets = [of("east"), of("west")];
    // Each polls everything: they do not know of each other.
    for one in &fleets {
        let has_all = |it: &[testkit::target::Request]| {
            let mine = it.iter().filter(|it| it.instance == one.id()).map(|it| &it.path);
            mine.collect::<BTreeSet<_>>().len() == 4
        };
        east.target.wait_until(SOON, "polls of everything", has_all);
    }
    for (prefix, one) in ["east", "west"].iter().zip(&fleets) {
        let status = east.command(&["status", &format!("--prefix={prefix}")]);
        assert!(status.contains(&one.id()), "{status}");
        let other = fleets.iter().find(|it| it.pid() != one.pid()).unwrap();
        assert!(!status.contains(&other.id()), "{status}");
    }
    for mut one in fleets {
        assert_eq!(one.term().code(), Some(0));
    }
    east.fleet.clear();
}

#[test]
fn an_election_survives_its_shard() {
    let mut site = Shards::start();
    let hosts = Hosts::new();
    hosts.end_hold_off_at(&site.url());
    let _fleet: Vec<Instance> = (0..2).map(|_| hosts.lead_at(&site.url(), &[])).collect();
    hosts.wait_for_life(0);
    let slot = site.slot("{leader}:epoch");
    let owner = site.owner(slot).unwrap();
    site.nodes[owner].kill();
    site.wait_for_successor(slot, owner);
    hosts.wait_for_work(Instant::now() + ms(100));
    let vacancy = hosts.longest_vacancy();
    println!("measured: vacant for {vacancy:?}");
    assert!(vacancy < AGAIN + TTL, "{vacancy:?}");
}
