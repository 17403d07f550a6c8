//! Redis hangs, dies, forgets, refuses, or is meddled with.

use std::time::{Duration, Instant};

use serde_json::json;

use testkit::process::{
    Instance, MARGIN, SOON, Scene, TTL, eventually, field, leasehold, ms, run_args,
};
use testkit::proxy::Proxy;
use testkit::target::Answer;

/// How long no endpoint at all may go without a poll between `since` and now.
#[track_caller]
fn assert_gaps(scene: &Scene, since: Instant, limit: Duration) {
    for endpoint in &scene.endpoints {
        let gap = scene.target.longest_gap(endpoint, since..Instant::now());
        println!("measured: {endpoint} gap {gap:?}");
        assert!(gap <= limit, "{endpoint} was not polled for {gap:?}\n{}", scene.target.story());
    }
}

fn lost(fleet: &[Instance]) -> Vec<String> {
    fleet.iter().flat_map(|it| it.lines(&["event=lease.lost"])).collect()
}

/// SC-005, FR-016, G3; edge case "Redis becomes unavailable".
#[test]
fn while_redis_hangs_for_three_lease_times_nothing_is_polled_and_then_everything_is() {
    let scene = Scene::new(4);
    let _fleet = scene.fleet(2);
    let paused_at = Instant::now();
    scene.redis.pause();
    scene.target.observe(TTL * 3);
    scene.redis.resume();
    let resumed_at = Instant::now();
    let paused = |it: Instant| it > paused_at && it < resumed_at;
    let last = scene.target.requests().iter().map(|it| it.start).filter(|it| paused(*it)).max();
    let last = last.unwrap_or(paused_at) - paused_at;
    println!("measured: Redis paused, polled for another {last:?}");
    assert!(last < TTL - MARGIN, "polled {last:?} after the last renewal that could be confirmed");
    scene.target.wait_for_polls(&scene.endpoints, resumed_at, ms(5_000));
    println!("measured: Redis back, all polled after {:?}", resumed_at.elapsed());
    scene.target.assert_sound();
}

/// SC-005, R3: shorter than a lease, nothing is lost.
#[test]
fn when_redis_hangs_for_less_than_a_lease_everybody_keeps_what_they_have() {
    let scene = Scene::new(4);
    let fleet = scene.fleet(2);
    let owners = scene.owners();
    let paused_at = Instant::now();
    scene.redis.pause();
    scene.target.observe(ms(1_200));
    scene.redis.resume();
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), ms(2_000));
    assert_gaps(&scene, paused_at, ms(2_700));
    assert_eq!(scene.owners(), owners);
    assert!(lost(&fleet).is_empty(), "{:?}", lost(&fleet));
    scene.target.assert_sound();
}

/// SC-005, R5, R6: owners reclaim, and nobody is granted anything until every old right is over.
#[test]
fn after_a_restart_without_its_leases_owners_reclaim_and_a_newcomer_waits() {
    let mut scene = Scene::new(4);
    scene.redis.save();
    let fleet = scene.fleet(2);
    let killed_at = Instant::now();
    scene.redis.kill();
    let newcomer = Instance::start(&scene.redis, &[]);
    newcomer.wait_for("event=store.unreachable");
    scene.redis.restart();
    let restarted_at = Instant::now();
    for one in &fleet {
        eventually(
            TTL,
            "it reclaims both",
            || one.log().join("\n"),
            || one.lines(&["event=lease.reclaimed"]).len() == 2,
        );
    }
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert_gaps(&scene, killed_at, ms(2_000));
    newcomer.wait_for("event=store.holdoff");
    scene.wait_for_balance(&[&fleet[0], &fleet[1], &newcomer], SOON);
    scene.target.wait_until(SOON, "the newcomer polls", |requests| {
        requests.iter().any(|it| it.instance == newcomer.id())
    });
    let first = scene.target.polls_of(&newcomer.id())[0].start - restarted_at;
    assert!(first >= TTL, "the newcomer polled after {first:?}");
    assert!(lost(&fleet).is_empty(), "{:?}", lost(&fleet));
    scene.target.assert_sound();
}

/// R5, R3: what Redis has forgotten may still be polled under, by an owner that cannot know.
#[test]
fn a_poll_under_a_lease_that_redis_forgot_is_over_before_anybody_else_begins() {
    let mut scene = Scene::new(0);
    scene.endpoints.push("e1".into());
    scene.put_session("e1", json!({"timeoutMs": 60_000}));
    scene.redis.save();
    scene.target.answer("e1", Answer { hang: true, ..Answer::default() });
    let proxy = Proxy::start(scene.redis.port());
    let owner = Instance::start_at(&proxy.url(), &["--new-fleet"]);
    scene.target.wait_until(SOON, "a poll", |requests| requests.len() == 1);
    scene.target.answer("e1", Answer::default());
    proxy.clog();
    scene.redis.restart();
    let newcomer = Instance::start(&scene.redis, &[]);
    scene.target.wait_until(SOON, "a poll by the newcomer", |requests| {
        requests.iter().any(|it| it.instance == newcomer.id())
    });
    let polls = scene.target.polls("e1");
    scene.target.assert_sound();
    let aborted = polls[0].end.unwrap();
    println!("measured: aborted {:?} before the next poll", polls[1].start - aborted);
    assert_eq!(owner.lines(&["event=poll.aborted", "endpoint=e1 "]).len(), 1);
    proxy.heal();
    scene.target.wait_for_polls(&scene.endpoints, Instant::now() + TTL / 2, SOON);
    scene.target.assert_sound();
}

/// R5: the snapshot names an owner from before the last move, under an older fence.
#[test]
fn after_a_restart_from_a_snapshot_older_than_the_last_move_nobody_polls_twice() {
    let mut scene = Scene::new(2);
    let mut fleet = scene.fleet(2);
    scene.redis.save();
    let mut leaver = fleet.pop().unwrap();
    let moved = scene.owned_by(&leaver);
    let before = Instant::now();
    assert!(leaver.term().success());
    scene.target.wait_until(SOON, "it moves", |requests| {
        requests.iter().any(|it| {
            it.path == format!("/{}", moved[0]) && it.instance == fleet[0].id() && it.start > before
        })
    });
    scene.redis.kill();
    scene.redis.restart();
    let restarted_at = Instant::now();
    scene.target.wait_for_polls(&scene.endpoints, restarted_at, SOON);
    println!("measured: old snapshot, all polled after {:?}", restarted_at.elapsed());
    scene.target.wait_for_polls(&scene.endpoints, Instant::now() + TTL, SOON);
    scene.target.assert_sound();
}

/// SC-005, R5: `FLUSHALL` changes nothing that a server tells about itself.
#[test]
fn after_a_flush_everything_is_polled_again_and_nothing_twice() {
    let scene = Scene::new(4);
    let fleet = scene.fleet(2);
    let newcomer = Instance::start(&scene.redis, &[]);
    assert_eq!(scene.redis.cli(&["FLUSHALL"]), "OK");
    scene.put_sessions();
    let flushed_at = Instant::now();
    scene.wait_for_balance(&[&fleet[0], &fleet[1], &newcomer], SOON);
    scene.target.wait_for_polls(&scene.endpoints, flushed_at, ms(7_000));
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert_gaps(&scene, flushed_at, ms(7_000));
    scene.target.assert_sound();
}

/// `run` waits for Redis.
#[test]
fn an_instance_started_while_redis_is_away_waits_says_so_once_and_then_works() {
    let mut scene = Scene::new(2);
    scene.redis.kill();
    let one = Instance::start(&scene.redis, &["--new-fleet"]);
    one.wait_for("event=store.unreachable");
    scene.target.observe(ms(1_500));
    assert_eq!(one.lines(&["event=store.unreachable"]).len(), 1);
    scene.redis.restart();
    scene.put_sessions();
    one.wait_for("event=store.reachable");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert_eq!(one.lines(&["event=store.unreachable"]).len(), 1);
    scene.target.assert_sound();
}

/// A stop is heard while waiting for Redis, too.
#[test]
fn an_instance_that_waits_for_redis_can_be_stopped() {
    let mut scene = Scene::new(0);
    scene.redis.kill();
    let mut one = Instance::start(&scene.redis, &[]);
    one.wait_for("event=store.unreachable");
    let told_at = Instant::now();
    assert_eq!(one.term().code(), Some(0));
    assert!(told_at.elapsed() < ms(2_000), "took {:?}", told_at.elapsed());
}

/// R11: a stop does not wait for a Redis that hangs.
#[test]
fn an_instance_can_be_stopped_while_redis_hangs() {
    let scene = Scene::new(4);
    let mut one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.redis.pause();
    let told_at = Instant::now();
    let status = one.term();
    let took = told_at.elapsed();
    scene.redis.resume();
    println!("measured: stop while Redis hangs took {took:?}");
    assert_eq!(status.code(), Some(0));
    assert!(took < ms(5_000), "took {took:?}");
    scene.target.assert_sound();
}

/// R14: what can never work ends it at start, with the way out.
#[track_caller]
fn refuses_to_run(scene: &Scene, url: &str, args: &[&str], words: &[&str]) {
    let output = leasehold(&run_args(url, args));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("leasehold: "), "{said}");
    for word in words {
        assert!(last.contains(word), "{word:?} is not in {last:?}");
    }
    assert!(!said.contains("hunter2"), "{said}");
    assert!(scene.target.requests().is_empty());
}

/// R5: every instance says what is wrong and the way out, goes on asking, and heals when the key is deleted.
#[test]
fn another_type_in_the_epochs_place_is_told_by_every_instance_and_heals_once_it_is_deleted() {
    let scene = Scene::new(2);
    let fleet = scene.fleet(2);
    scene.redis.cli(&["DEL", "poll:epoch"]);
    scene.redis.cli(&["SET", "poll:epoch", "1"]);
    let newcomer = Instance::start(&scene.redis, &[]);
    for (instance, event) in fleet
        .iter()
        .map(|it| (it, "event=heartbeat.failed"))
        .chain([(&newcomer, "event=store.unreachable")])
    {
        let parts =
            [event, "poll:epoch is no hash", "redis-cli DEL poll:epoch; costs one hold-off"];
        instance.wait_for_line(SOON, event, |line| parts.iter().all(|it| line.contains(it)));
    }
    scene.redis.cli(&["DEL", "poll:epoch"]);
    let healed_at = Instant::now();
    scene.target.wait_for_polls(&scene.endpoints, healed_at, 2 * TTL + ms(5_000));
    println!("measured: poll:epoch deleted, all polled after {:?}", healed_at.elapsed());
    scene.target.assert_sound();
}

/// R14.
#[test]
fn a_wrong_password_ends_it_at_start_with_a_sentence() {
    let scene = Scene::new(1);
    scene.redis.cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    refuses_to_run(&scene, &scene.redis.url(), &[], &["password"]);
    let wrong = format!("redis://:hunter22@127.0.0.1:{}/0", scene.redis.port());
    refuses_to_run(&scene, &wrong, &[], &["password"]);
}

/// R14.
#[test]
fn another_lease_ttl_than_the_fleets_ends_it_at_start_with_both_values() {
    let scene = Scene::new(1);
    let _fleet = scene.first(&[]);
    let output =
        leasehold(&run_args(&scene.redis.url(), &["--lease-ttl=6s", "--renew-interval=2s"]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    let both = |a: &str, b: &str| last.contains(a) && last.contains(b);
    assert!(both("3s", "6s") || both("3000ms", "6000ms"), "{last}");
    assert!(last.contains("--lease-ttl"), "{last}");
}

/// R14: leases have a TTL and are the first to go.
#[test]
fn a_server_that_may_evict_keys_is_refused() {
    let scene = Scene::new(1);
    scene.redis.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    scene.redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let words = ["maxmemory-policy", "allkeys-lru", "noeviction"];
    refuses_to_run(&scene, &scene.redis.url(), &[], &words);
}

/// R4.
#[test]
fn scripts_that_are_flushed_again_and_again_do_no_harm() {
    let scene = Scene::new(4);
    let fleet = scene.fleet(2);
    let since = Instant::now();
    while since.elapsed() < ms(2_500) {
        assert_eq!(scene.redis.cli(&["SCRIPT", "FLUSH"]), "OK");
        scene.target.observe(ms(20));
    }
    assert_gaps(&scene, since, ms(1_000));
    assert!(lost(&fleet).is_empty(), "{:?}", lost(&fleet));
    scene.target.assert_sound();
}

/// R4: a dropped connection costs one retry.
#[test]
fn connections_that_are_killed_again_and_again_do_no_harm() {
    let scene = Scene::new(4);
    let fleet = scene.fleet(2);
    let since = Instant::now();
    while since.elapsed() < ms(3_500) {
        scene.redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        scene.redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        scene.target.observe(ms(100));
    }
    assert_gaps(&scene, since, ms(1_500));
    assert!(lost(&fleet).is_empty(), "{:?}", lost(&fleet));
    scene.target.assert_sound();
}

/// G3, R4: a full Redis refuses new keys, but can still extend old ones.
#[test]
fn a_redis_out_of_memory_pauses_nothing_that_is_held() {
    let scene = Scene::new(4);
    let fleet = scene.fleet(2);
    let since = Instant::now();
    assert_eq!(scene.redis.cli(&["CONFIG", "SET", "maxmemory", "1mb"]), "OK");
    let refused = scene.redis.cli(&["SET", "more", "x"]);
    assert!(refused.contains("OOM"), "{refused}");
    scene.target.observe(TTL + ms(1_500));
    assert_gaps(&scene, since, ms(1_000));
    assert!(lost(&fleet).is_empty(), "{:?}", lost(&fleet));
    scene.redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let healed_at = scene.redis.cli(&["TIME"]);
    let healed_ms = healed_at.lines().next().unwrap().parse::<u64>().unwrap() * 1_000;
    eventually(
        SOON,
        "results are stored again",
        || format!("{:?}", scene.result("e1")),
        || scene.result("e1")["started_at_ms"].parse::<u64>().unwrap() > healed_ms,
    );
    scene.target.assert_sound();
}

/// FR-010, R6.
#[test]
fn a_lease_that_an_operator_deletes_is_taken_back_and_polled_by_one() {
    let scene = Scene::new(4);
    let _fleet = scene.fleet(2);
    let since = Instant::now();
    for _ in 0..5 {
        assert_eq!(scene.redis.cli(&["DEL", "poll:lease:e1"]), "1");
        eventually(ms(2_000), "it is owned again", String::new, || {
            scene.owners().contains_key("e1")
        });
        scene.target.wait_for_polls(&["e1".into()], Instant::now(), ms(2_000));
    }
    assert_gaps(&scene, since, ms(1_500));
    scene.target.assert_sound();
}

/// The stored fence is gone, and fences grow all the same.
#[test]
fn result_hashes_that_an_operator_deletes_come_back_and_fences_do_not_fall() {
    let scene = Scene::new(4);
    let mut fleet = scene.fleet(2);
    let keys: Vec<String> = scene.endpoints.iter().map(|it| format!("poll:result:{it}")).collect();
    let del: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(scene.redis.cli(&del), "4");
    for endpoint in &scene.endpoints {
        eventually(
            ms(3_000),
            "the result comes back",
            || fleet[0].log().join("\n"),
            || scene.result(endpoint).contains_key("started_at_ms"),
        );
    }
    assert_eq!(scene.redis.cli(&del), "4");
    assert!(fleet.pop().unwrap().term().success());
    scene.wait_for_balance(&[&fleet[0]], SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.assert_sound();
}

/// R13: without its key an instance counts as dead for a moment.
#[test]
fn a_heartbeat_key_that_an_operator_deletes_comes_back_and_nobody_polls_twice() {
    let scene = Scene::new(6);
    let fleet = scene.fleet(2);
    let since = Instant::now();
    for _ in 0..3 {
        assert_eq!(scene.redis.cli(&["DEL", &format!("poll:node:{}", fleet[1].id())]), "1");
        eventually(ms(2_000), "it comes back", String::new, || {
            scene.redis.cli(&["KEYS", "poll:node:*"]).contains(&fleet[1].id())
        });
    }
    scene.wait_for_balance(&[&fleet[0], &fleet[1]], SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert_gaps(&scene, since, ms(2_000));
    scene.target.assert_sound();
}

/// R13: a lease without a TTL, in the name of nobody.
#[test]
fn a_lease_of_somebody_who_never_was_is_taken_over() {
    let scene = Scene::new(2);
    scene.redis.cli(&["SET", "poll:lease:e1", "ghost"]);
    let one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let line = one.lines(&["lease.acquired", "endpoint=e1 "]).remove(0);
    assert_eq!(field(&line, "reason").as_deref(), Some("takeover"), "{line}");
    scene.target.assert_sound();
}

/// R4: one item that errs does not spoil the others.
#[test]
fn keys_of_the_wrong_type_harm_only_their_own_endpoint() {
    let scene = Scene::new(3);
    scene.redis.cli(&["RPUSH", "poll:lease:e1", "x"]);
    scene.redis.cli(&["SET", "poll:result:e2", "x"]);
    scene.redis.cli(&["RPUSH", "poll:node:strange", "x"]);
    let one = scene.first(&[]);
    scene.target.wait_for_polls(&["e3".into()], Instant::now(), SOON);
    let since = Instant::now();
    scene.target.observe(ms(2_500));
    let gap = scene.target.longest_gap("e3", since..Instant::now());
    assert!(gap <= ms(1_000), "{gap:?}");
    let failures = one.lines(&["lease.failed", "endpoint=e1 "]).len();
    assert!((1..=12).contains(&failures), "said {failures} times in some 3 s");
    scene.redis.cli(&["DEL", "poll:lease:e1", "poll:result:e2"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), ms(3_000));
    scene.target.assert_sound();
}
