//! How long a hand-over takes: an endpoint that moves keeps its rhythm, and its running poll ends first.

use std::time::{Duration, Instant};

use serde_json::json;

use testkit::measure::{Measured, Move, Stalls, moves};
use testkit::process::{Instance, SOON, Scene, eventually, ms};
use testkit::proxy::Proxy;
use testkit::target::Answer;

/// What a move may cost beyond the interval of the endpoint.
const BEYOND: Duration = ms(250);
/// From `daemon.started` on; 500 ms of it a newcomer waits for others who may be starting too.
const JOINED_WITHIN: Duration = ms(2_000);

/// When `instance` had acquired `n` leases, waiting for it.
#[track_caller]
fn acquired(instance: &Instance, n: usize) -> Instant {
    let lines = || instance.timed_lines(&["event=lease.acquired"]);
    eventually(
        SOON,
        "leases acquired",
        || format!("{} of {n}", lines().len()),
        || lines().len() >= n,
    );
    lines()[n - 1].0
}

/// The pauses of `moved`, against the rhythm of `interval`.
#[track_caller]
fn assert_rhythm(what: &str, moved: &[Move], interval: Duration, stalls: &Stalls) {
    let mut late =
        Measured::new(&format!("{what}, last poll of the old owner to first of the new"));
    let mut early = Measured::new(what);
    for it in moved {
        let told = format!("{} from {} to {}", it.endpoint, it.last.instance, it.first.instance);
        late.add(it.pause(), stalls.within(it.span()), told.clone());
        // A last poll that was held up on its way here is followed all the sooner.
        let on_its_way = it.last.start - ms(200)..it.last.start;
        early.add(it.pause(), stalls.within(on_its_way), told);
    }
    late.assert_within(interval + BEYOND);
    early.assert_at_least(interval - ms(50));
}

/// R8, SC-006: on join and on leave, over 400 moves.
#[test]
fn an_endpoint_that_changes_hands_is_polled_in_its_rhythm() {
    let interval = ms(400);
    let args = ["--interval=400ms", "--workers=8", "--log-level=debug"];
    let scene = Scene::new(100);
    let stayer = scene.first(&args);
    let stalls = Stalls::watch(&scene.redis);
    let mut joins = Measured::new("join, daemon.started to the last lease of its share");
    let mut newcomers = Vec::new();
    for round in 0..4 {
        scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
        let mut newcomer = Instance::start(&scene.redis, &args);
        let started = newcomer.when("event=daemon.started");
        let owned = acquired(&newcomer, 50);
        joins.add(owned - started, stalls.within(started..owned), format!("join {round}"));
        scene.wait_for_balance(&[&stayer, &newcomer], SOON);
        scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
        assert_eq!(newcomer.term().code(), Some(0));
        scene.wait_for_balance(&[&stayer], SOON);
        newcomers.push(newcomer.id());
    }
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    joins.assert_within(JOINED_WITHIN);
    let moved = moves(&scene.target.requests());
    let (leaves, joins): (Vec<Move>, Vec<Move>) =
        moved.into_iter().partition(|it| it.first.instance == stayer.id());
    assert_eq!((joins.len(), leaves.len()), (200, 200), "each moved once there and once back");
    assert!(joins.iter().all(|it| newcomers.contains(&it.first.instance)));
    assert_rhythm("join", &joins, interval, &stalls);
    assert_rhythm("leave", &leaves, interval, &stalls);
    scene.target.assert_sound();
}

/// R8: no lease is given away from under a poll.
#[test]
fn a_hand_over_waits_for_the_end_of_a_poll_that_takes_two_seconds() {
    let scene = Scene::new(4);
    for endpoint in &scene.endpoints {
        scene.target.answer(endpoint, Answer { delay: ms(2_000), ..Answer::default() });
    }
    let args = ["--timeout=10s", "--drain-timeout=5s"];
    let owner = scene.first(&args);
    scene.target.wait_for_polls(&scene.endpoints, owner.when("event=daemon.started"), SOON);
    let stalls = Stalls::watch(&scene.redis);
    let heir = scene.join(&args);
    scene.wait_for_balance(&[&owner, &heir], SOON);
    scene.target.wait_for_polls(&scene.owned_by(&heir), Instant::now(), SOON);
    let moved = moves(&scene.target.requests());
    assert_eq!(moved.len(), 2, "{}", scene.target.story());
    let mut pauses = Measured::new("hand-over, end of a poll of 2 s to the next");
    for it in &moved {
        let end = it.last.end.unwrap();
        let took = end - it.last.start;
        assert!(took >= ms(1_950), "it was cut short after {took:?}: {it:?}");
        assert!(it.first.start >= end, "polls of {} overlap: {it:?}", it.endpoint);
        let pause = it.first.start - end;
        pauses.add(pause, stalls.within(end..it.first.start), it.endpoint.clone());
    }
    pauses.assert_within(BEYOND);
    assert!(!owner.says("event=poll.aborted"));
    scene.target.assert_sound();
}

/// R8, `--drain-timeout`.
#[test]
fn a_hand_over_waits_for_a_poll_no_longer_than_the_drain_timeout() {
    let scene = Scene::new(4);
    for endpoint in &scene.endpoints {
        scene.put_session(endpoint, json!({"timeoutMs": 60_000}));
        scene.target.answer(endpoint, Answer { hang: true, ..Answer::default() });
    }
    let owner = scene.first(&["--drain-timeout=1s"]);
    scene.target.wait_for_polls(&scene.endpoints, owner.when("event=daemon.started"), SOON);
    let stalls = Stalls::watch(&scene.redis);
    for endpoint in &scene.endpoints {
        scene.target.answer(endpoint, Answer::default());
    }
    let heir = scene.join(&[]);
    let asked = heir.when("event=daemon.ready");
    scene.wait_for_balance(&[&owner, &heir], SOON);
    scene.target.wait_for_polls(&scene.owned_by(&heir), Instant::now(), SOON);
    let moved = moves(&scene.target.requests());
    assert_eq!(moved.len(), 2, "{}", scene.target.story());
    let mut patience = Measured::new("hand-over under a hanging poll, asked to polled by the heir");
    for it in &moved {
        assert!(it.first.start >= it.last.end.unwrap(), "polls of {} overlap", it.endpoint);
        let aborted = owner.lines(&["event=poll.aborted", &format!("endpoint={} ", it.endpoint)]);
        assert_eq!(aborted.len(), 1, "{aborted:?}");
        let took = it.first.start - asked;
        patience.add(took, stalls.within(asked..it.first.start), it.endpoint.clone());
    }
    patience.assert_at_least(ms(900));
    patience.assert_within(ms(1_000) + BEYOND);
    scene.target.assert_sound();
}

/// How often an instance acquired what it had released for an heir, next in its log.
fn take_backs(fleet: &[&Instance]) -> usize {
    let mut count = 0;
    for instance in fleet {
        let mut given = std::collections::BTreeSet::new();
        for line in instance.log() {
            if line.contains("event=instance.left") {
                given.clear(); // its heir may have stopped
            }
            let Some(endpoint) = line.split_once(" endpoint=").map(|it| it.1) else { continue };
            let endpoint = endpoint.split(' ').next().unwrap().to_owned();
            if line.contains("event=lease.released") && line.contains("reason=rebalance") {
                given.insert(endpoint);
            } else if line.contains("event=lease.acquired") && given.remove(&endpoint) {
                count += 1;
            }
        }
    }
    count
}

/// Joins of a newcomer to three instances with 24 endpoints, all as this user: `LEASEHOLD_JOINS` or two of them.
fn newcomers_get_their_share(rule: &[&str], missing: &str) {
    let joins = std::env::var("LEASEHOLD_JOINS").map_or(2, |it| it.parse().unwrap());
    let scene = Scene::new(24);
    let make = ["ACL", "SETUSER", "narrow", "on", ">pw", "~*", "resetchannels", "+@all"];
    assert_eq!(scene.redis.cli(&[&make[..], rule].concat()), "OK");
    let url = format!("redis://narrow:pw@127.0.0.1:{}/0", scene.redis.port());
    let fleet: Vec<Instance> =
        [&["--log-level=debug", "--new-fleet"][..], &["--log-level=debug"], &["--log-level=debug"]]
            .into_iter()
            .map(|args| Instance::start_at(&url, args))
            .collect();
    let stayers: Vec<&Instance> = fleet.iter().collect();
    scene.wait_for_balance(&stayers, SOON);
    let told = fleet[0].wait_for("event=store.unheard");
    assert!(told.contains(missing), "{told}");
    let mut times = Vec::new();
    for join in 0..joins {
        let mut newcomer = Instance::start_at(&url, &["--log-level=debug"]);
        let started = newcomer.when("event=daemon.started");
        let all: Vec<&Instance> = fleet.iter().chain([&newcomer]).collect();
        scene.wait_for_balance(&all, SOON);
        times.push(acquired(&newcomer, 6) - started);
        assert_eq!(take_backs(&all), 0, "taken back at join {join}");
        assert_eq!(newcomer.term().code(), Some(0));
        scene.wait_for_balance(&stayers, SOON);
    }
    times.sort_unstable();
    println!("{joins} joins, median {:?}, longest {:?}", times[joins / 2], times[joins - 1]);
    assert!(times[joins - 1] <= ms(5_000), "without its share after 5 s: {times:?}");
    scene.target.assert_sound();
}

/// Neither messages nor changes.
#[test]
fn where_nobody_is_heard_a_newcomer_has_its_share_soon_and_nothing_goes_back() {
    newcomers_get_their_share(&["-client"], "do not hear one another");
}

/// A user made on Redis 7 without channels.
#[test]
fn where_only_changes_are_pushed_a_newcomer_has_its_share_soon_and_nothing_goes_back() {
    newcomers_get_their_share(&[], "ACL SETUSER narrow '&poll:*' +subscribe +publish");
}

#[test]
fn where_only_words_are_heard_a_newcomer_has_its_share_soon_and_nothing_goes_back() {
    newcomers_get_their_share(&["&*", "-client"], "changes of keys are not pushed");
}

/// With messages but no pushes, an heir that is 300 ms away was cut short again and again.
#[test]
fn an_heir_that_is_far_away_gets_its_share_and_nothing_goes_back() {
    let scene = Scene::new(6);
    let rule = ["ACL", "SETUSER", "narrow", "on", ">pw", "~*", "&*", "+@all", "-client"];
    assert_eq!(scene.redis.cli(&rule), "OK");
    let url = |port: u16| format!("redis://narrow:pw@127.0.0.1:{port}/0");
    let timeout = ["--lease-ttl=30s", "--store-timeout=2s", "--heartbeat-ttl=30s"];
    let first = [&timeout[..], &["--new-fleet"]].concat();
    let first = Instance::start_at(&url(scene.redis.port()), &first);
    first.wait_for("event=daemon.ready");
    let fleet = [first, Instance::start_at(&url(scene.redis.port()), &timeout)];
    scene.wait_for_balance(&[&fleet[0], &fleet[1]], SOON);
    let proxy = Proxy::start(scene.redis.port());
    proxy.lie_far_away(ms(150));
    let newcomer = Instance::start_at(&url(proxy.port()), &timeout);
    let all = [&fleet[0], &fleet[1], &newcomer];
    // Every exchange takes 300 ms, and a look at everything some seconds.
    scene.wait_for_balance(&all, SOON * 4);
    println!(
        "its share after {:?}",
        acquired(&newcomer, 2) - newcomer.when("event=daemon.started")
    );
    assert_eq!(take_backs(&all), 0, "{:?}", newcomer.log());
    scene.target.assert_sound();
}
