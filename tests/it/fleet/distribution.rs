//! US1: live instances share the work, and share it again when one joins or leaves.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use testkit::measure::{Measured, Stalls};
use testkit::process::{INTERVAL, Instance, SOON, Scene, TTL, eventually, ms, run, said};

/// US1.1.
#[test]
fn a_single_instance_polls_every_endpoint() {
    let scene = Scene::new(5);
    let one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert!(scene.target.requests().iter().all(|it| it.instance == one.id()));
    assert_eq!(scene.counts(&[&one]), [5]);
    scene.target.assert_sound();
}

/// US1.2, SC-006.
#[test]
fn a_third_instance_gets_its_share_and_nobody_misses_a_poll() {
    let scene = Scene::new(6);
    let fleet = scene.fleet(2);
    let before = Instant::now();
    let third = scene.join(&[]);
    scene.wait_for_balance(&[&fleet[0], &fleet[1], &third], SOON);
    scene.target.wait_until(SOON, "the third polls its share", |requests| {
        requests.iter().filter(|it| it.instance == third.id()).count() >= 6
    });
    assert_eq!(scene.counts(&[&fleet[0], &fleet[1], &third]), [2, 2, 2]);
    for endpoint in &scene.endpoints {
        let gap = scene.target.longest_gap(endpoint, before..Instant::now());
        assert!(gap <= INTERVAL + ms(800), "{endpoint} was not polled for {gap:?}");
    }
    scene.target.assert_sound();
}

/// US1.3: the specification allows 30 s. SC-002, SC-006.
#[test]
fn the_endpoints_of_a_stopped_instance_are_taken_over_within_two_seconds() {
    let scene = Scene::new(6);
    let mut fleet = scene.fleet(3);
    let mut third = fleet.pop().unwrap();
    let orphans = scene.owned_by(&third);
    assert_eq!(orphans.len(), 2);
    let stopped_at = Instant::now();
    assert!(third.term().success());
    scene.target.wait_until(ms(2_000), "takeover", |requests| {
        orphans.iter().all(|endpoint| {
            let path = format!("/{endpoint}");
            requests
                .iter()
                .any(|it| it.path == path && it.instance != third.id() && it.start > stopped_at)
        })
    });
    scene.wait_for_balance(&[&fleet[0], &fleet[1]], SOON);
    scene.target.assert_sound();
}

/// SC-003.
#[test]
fn ten_instances_share_twenty_endpoints_two_each() {
    let scene = Scene::new(20);
    let slow = ["--interval=1s", "--workers=2"];
    let mut fleet = vec![scene.first(&slow)];
    fleet.extend((0..9).map(|_| Instance::start(&scene.redis, &slow)));
    let everyone: Vec<&Instance> = fleet.iter().collect();
    scene.wait_for_balance(&everyone, SOON * 2);
    assert_eq!(scene.counts(&everyone), [2; 10]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.wait_until(SOON, "everybody polls", |requests| {
        fleet.iter().all(|one| requests.iter().any(|it| it.instance == one.id()))
    });
    scene.target.assert_sound();
}

/// FR-011.
#[test]
fn an_added_session_is_polled_within_two_seconds() {
    let scene = Scene::new(2);
    let _fleet = scene.fleet(2);
    let before = Instant::now();
    scene.put_session("late", json!({}));
    scene.target.wait_for_polls(&["late".into()], before, ms(2_000));
    scene.target.assert_sound();
}

/// FR-011.
#[test]
fn a_changed_address_is_polled_within_two_seconds_and_the_old_one_left_alone() {
    let scene = Scene::new(2);
    let _fleet = scene.fleet(2);
    let elsewhere = testkit::target::Target::start();
    let before = Instant::now();
    scene.put_session("e1", json!({"address": elsewhere.address()}));
    elsewhere.wait_for_polls(&["e1".into()], before, ms(2_000));
    let moved_at = elsewhere.requests()[0].start;
    scene.target.observe(ms(1_000));
    let late = scene.target.polls("e1").into_iter().filter(|it| it.start > moved_at).count();
    assert_eq!(late, 0, "polled at its old address\n{}", scene.target.story());
    scene.target.assert_sound();
    elsewhere.assert_sound();
}

/// FR-011.
#[test]
fn a_changed_interval_counts_within_two_seconds() {
    let scene = Scene::new(0);
    scene.put_session("e1", json!({"intervalMs": 60_000}));
    let _one = scene.first(&[]);
    scene.put_session("e1", json!({"intervalMs": 100}));
    scene.target.wait_until(ms(3_000), "ten polls", |requests| requests.len() >= 10);
    scene.put_session("e1", json!({"intervalMs": 1_500}));
    scene.target.observe(ms(2_000));
    let from = scene.target.polls("e1").len() - 1;
    scene.target.wait_until(SOON, "three slow polls", |requests| requests.len() >= from + 3);
    let polls = scene.target.polls("e1");
    for pair in polls[from..].windows(2) {
        let gap = pair[1].start - pair[0].start;
        assert!(gap >= ms(1_000), "polled after {gap:?}\n{}", scene.target.story());
    }
    scene.target.assert_sound();
}

/// FR-011: pausing gives the lease back, resuming takes it again.
#[test]
fn a_paused_session_is_released_within_two_seconds_and_polled_again_when_resumed() {
    let scene = Scene::new(3);
    let fleet = scene.fleet(2);
    scene.put_session("e1", json!({"isPaused": true}));
    eventually(
        ms(2_000),
        "e1 is released",
        || format!("{:?}", scene.owners()),
        || !scene.owners().contains_key("e1"),
    );
    let paused_at = Instant::now();
    scene.target.observe(ms(1_500));
    assert!(scene.target.polls("e1").iter().all(|it| it.start < paused_at), "polled while paused");
    assert!(
        fleet.iter().any(|it| !it.lines(&["lease.released", "e1", "reason=paused"]).is_empty())
    );
    let resumed_at = Instant::now();
    scene.put_session("e1", json!({"isPaused": false}));
    scene.target.wait_for_polls(&["e1".into()], resumed_at, ms(2_000));
    scene.target.assert_sound();
}

/// Nobody writes into the session when its pause ends: every instance knows from its bytes when that is.
#[test]
fn a_pause_with_an_end_ends_by_itself_for_instances_that_run_and_for_those_that_start_later() {
    let scene = Scene::new(3);
    let fleet = scene.fleet(2);
    let paused = said(&run(&scene.redis, &["sessions", "pause", "e1", "--for", "3s"]));
    let from = Instant::now();
    assert_eq!(paused, "paused e1\n");
    let stored = scene.redis.cli(&["GET", "session:e1"]);
    assert!(stored.contains("\"isPaused\":true") && stored.contains("pausedUntilMs"), "{stored}");
    let owners = || format!("{:?}", scene.owners());
    eventually(ms(2_000), "e1 is released", owners, || !scene.owners().contains_key("e1"));
    let state = || said(&run(&scene.redis, &["status", "-o", "names", "--state=paused"]));
    assert_eq!(state(), "e1\n");
    let released_at = Instant::now();
    scene.target.wait_for_polls(&["e1".into()], released_at, SOON);
    let polls = scene.target.polls("e1");
    let first = polls.iter().find(|it| it.start > released_at).unwrap().start;
    // From the write on; the estimate of the server's clock is off by milliseconds.
    assert!(first >= from + ms(2_800), "polled after {:?}", first - from);
    assert!(first <= from + ms(5_000), "polled after {:?}", first - from);
    assert_eq!(scene.redis.cli(&["GET", "session:e1"]), stored, "nobody wrote into it");
    assert_eq!(state(), "");
    drop(fleet);
    let restarted = Instant::now();
    let _one = scene.first(&[]);
    scene.target.wait_for_polls(&["e1".into()], restarted, SOON);
    scene.target.assert_sound();
}

/// FR-011: removing gives the lease back.
#[test]
fn a_removed_session_is_released_within_two_seconds_and_never_polled_again() {
    let scene = Scene::new(3);
    let fleet = scene.fleet(2);
    scene.redis.cli(&["DEL", "session:e1"]);
    eventually(
        ms(2_000),
        "e1 is released",
        || format!("{:?}", scene.owners()),
        || !scene.owners().contains_key("e1"),
    );
    let removed_at = Instant::now();
    scene.target.observe(ms(1_500));
    assert!(scene.target.polls("e1").iter().all(|it| it.start < removed_at), "polled when removed");
    assert!(
        fleet.iter().any(|it| !it.lines(&["lease.released", "e1", "reason=removed"]).is_empty())
    );
    scene.target.assert_sound();
}

/// FR-006, FR-007, FR-008.
#[test]
fn every_instance_has_a_heartbeat_key_that_expires_when_it_dies() {
    let scene = Scene::new(2);
    let mut fleet = scene.fleet(2);
    let nodes = || scene.redis.cli(&["KEYS", "poll:node:*"]);
    for one in &fleet {
        let key = format!("poll:node:{}", one.id());
        assert_eq!(scene.redis.cli(&["GET", &key]), "1");
        let ttl: u64 = scene.redis.cli(&["PTTL", &key]).parse().unwrap();
        assert!(ttl > 0 && ttl <= 3_000, "{ttl}");
    }
    assert_eq!(nodes().lines().count(), 2);
    fleet[1].kill9();
    let gone = format!("poll:node:{}", fleet[1].id());
    eventually(TTL + ms(500), "it expires", nodes, || !nodes().contains(&gone));
    assert!(nodes().contains(&fleet[0].id()));
    fleet[0].wait_for(&format!("other={}", fleet[1].id()));
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.assert_sound();
}

/// From a change in Redis to its effect there, for each of them.
fn effects(scene: &Scene, stalls: &Stalls, rounds: usize, within: Duration) {
    let mut times = Measured::new("a change of a session to its effect");
    for n in 0..rounds {
        let id = format!("pushed-{n}");
        let key = format!("poll:lease:{id}");
        let owned = || scene.redis.cli(&["EXISTS", &key]) == "1";
        let mut measure = |what: &str, owned_then: bool| {
            let since = Instant::now();
            match what {
                "added" | "resumed" => scene.put_session(&id, json!({})),
                "paused" => scene.put_session(&id, json!({"isPaused": true})),
                _ => drop(scene.redis.cli(&["DEL", &format!("session:{id}")])),
            }
            eventually(SOON, what, || format!("{id} {what}"), || owned() == owned_then);
            times.add(
                since.elapsed(),
                stalls.within(since..Instant::now()),
                format!("{id} {what}"),
            );
        };
        measure("added", true);
        measure("paused", false);
        measure("resumed", true);
        measure("removed", false);
    }
    times.assert_within(within);
}

/// FR-011: changes are pushed, so nobody waits for a look.
#[test]
fn a_change_of_a_session_takes_effect_within_a_fifth_of_a_second() {
    let scene = Scene::new(6);
    let _fleet = scene.fleet(3);
    effects(&scene, &Stalls::watch(&scene.redis), 10, ms(200));
    scene.target.assert_sound();
}

/// FR-011, on a server that pushes nothing and passes on no word: whole instances under such a user.
#[test]
fn where_nothing_is_pushed_and_nobody_is_heard_everything_takes_effect_within_two_seconds() {
    let scene = Scene::new(6);
    let rule = ["ACL", "SETUSER", "deaf", "on", ">pw", "~*", "resetchannels", "+@all"];
    assert_eq!(scene.redis.cli(&rule), "OK");
    assert_eq!(scene.redis.cli(&["ACL", "SETUSER", "deaf", "-client"]), "OK");
    let url = format!("redis://deaf:pw@127.0.0.1:{}/0", scene.redis.port());
    let fleet = [
        Instance::start_at(&url, &["--new-fleet"]),
        Instance::start_at(&url, &[]),
        Instance::start_at(&url, &[]),
    ];
    scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), SOON);
    effects(&scene, &Stalls::watch(&scene.redis), 2, ms(2_000));
    let newcomer = Instance::start_at(&url, &[]);
    let all: Vec<&Instance> = fleet.iter().chain([&newcomer]).collect();
    scene.wait_for_balance(&all, SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.assert_sound();
}

/// Holds Redis up for `stall` in the middle of a resync of each of `clients` clients: a resync begins with a SCAN.
fn stall_resyncs(scene: &Scene, clients: usize, stall: Duration) {
    let mut monitor = TcpStream::connect(("127.0.0.1", scene.redis.port())).unwrap();
    monitor.set_read_timeout(Some(SOON)).unwrap();
    monitor.write_all(b"MONITOR\r\n").unwrap();
    let mut pausing = scene.redis.connect().unwrap();
    let (mut stalled, mut until) = (BTreeSet::new(), Instant::now());
    let deadline = Instant::now() + ms(10_000);
    for line in BufReader::new(monitor).lines() {
        let line = line.unwrap();
        assert!(Instant::now() < deadline, "some resync no more: only {stalled:?} did");
        let client = line.split(['[', ']']).nth(1).unwrap_or_default().to_owned();
        if !line.contains("\"SCAN\" \"0\" \"MATCH\" \"session:") || Instant::now() < until {
            continue;
        }
        if stalled.insert(client) {
            let ms = stall.as_millis().to_string();
            redis::cmd("CLIENT").arg(&["PAUSE", &ms, "ALL"]).exec(&mut pausing).unwrap();
            until = Instant::now() + stall;
        }
        if stalled.len() == clients {
            break;
        }
    }
    assert_eq!(scene.redis.cli(&["PING"]), "PONG", "it goes on");
}

/// FR-011: a stall of Redis in the middle of a resync is not counted as the cost of a resync.
#[test]
fn where_nothing_is_pushed_a_stall_of_redis_does_not_blind_the_fleet() {
    let scene = Scene::new(6);
    // So that a resync takes some exchanges.
    let fill = "for i = 1, 5000 do redis.call('SET', 'filler:' .. i, '') end";
    scene.redis.cli(&["EVAL", fill, "0"]);
    let rule = ["ACL", "SETUSER", "untold", "on", ">pw", "~*", "allchannels", "+@all", "-client"];
    assert_eq!(scene.redis.cli(&rule), "OK");
    let url = format!("redis://untold:pw@127.0.0.1:{}/0", scene.redis.port());
    let slow =
        ["--lease-ttl=12s", "--heartbeat-ttl=12s", "--renew-interval=3s", "--store-timeout=3s"];
    let mut fleet = vec![Instance::start_at(&url, &[&slow[..], &["--new-fleet"]].concat())];
    fleet.extend((0..2).map(|_| Instance::start_at(&url, &slow)));
    scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), SOON);
    let stalls = Stalls::watch(&scene.redis);
    stall_resyncs(&scene, fleet.len(), ms(600));
    // The resync that was held up last may still find what is there by now.
    scene.target.observe(ms(200));
    effects(&scene, &stalls, 1, ms(2_000));
    scene.target.assert_sound();
}

/// Commands that the server has executed, but those of the test itself.
fn commands(scene: &Scene) -> u64 {
    let stats = scene.redis.cli(&["INFO", "commandstats"]);
    let calls = stats
        .lines()
        .filter(|it| !it.starts_with("cmdstat_set:"))
        .filter_map(|line| line.split_once(":calls=")?.1.split_once(',')?.0.parse::<u64>().ok());
    calls.sum()
}

/// Redis names keys of all databases in its invalidations.
#[test]
fn sessions_of_another_database_cost_a_fleet_next_to_nothing() {
    let scene = Scene::new(12);
    let fleet = scene.fleet(3);
    let everyone: Vec<&Instance> = fleet.iter().collect();
    let mut other = scene.redis.connect().unwrap();
    redis::cmd("SELECT").arg(1).exec(&mut other).unwrap();
    let (owners, since, stalls) = (scene.owners(), Instant::now(), Stalls::watch(&scene.redis));
    let mut spent = |noise: bool| {
        let (from, began, mut n) = (commands(&scene), Instant::now(), 0);
        while began.elapsed() < ms(3_000) {
            let mut pipe = redis::pipe();
            (0..if noise { 20 } else { 0 }).for_each(|k| {
                pipe.cmd("SET").arg(format!("session:other-{n}-{k}")).arg("x").ignore();
            });
            if noise {
                pipe.exec(&mut other).unwrap();
            }
            n += 1;
            scene.target.observe(ms(20));
        }
        (commands(&scene) - from) as f64 / began.elapsed().as_secs_f64()
    };
    let (quiet, busy) = (spent(false), spent(true));
    println!("{quiet:.0} commands a second, {busy:.0} beside sessions of another database");
    assert!(busy <= quiet * 1.5 + 50.0, "{busy:.0} commands a second instead of {quiet:.0}");
    // Leases end where the machine or Redis stands still for as long as they last, and may be others' then.
    let stood_still = stalls.within(since..Instant::now());
    let moved = scene.owners() != owners;
    assert!(
        !moved || stood_still > ms(1_000),
        "something moved; the machine stood still for {stood_still:?}"
    );
    let newcomer = scene.join(&[]);
    scene.wait_for_balance(&[everyone, vec![&newcomer]].concat(), SOON);
    scene.target.assert_sound();
}
