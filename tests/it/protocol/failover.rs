//! US2: instances die, hang, are cut off and come back, and the endpoints are polled all the same.

use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use testkit::process::{INTERVAL, Instance, SOON, Scene, TTL, TempDir, eventually, leasehold, ms};
use testkit::proxy::Proxy;
use testkit::target::Answer;

/// When the first poll of each of `endpoints` by an instance other than `but` came, the last of them.
fn taken_over(scene: &Scene, endpoints: &[String], but: &str, since: Instant) -> Option<Instant> {
    let first = |endpoint: &String| {
        let polls = scene.target.polls(endpoint).into_iter();
        polls.filter(|it| it.instance != but && it.start > since).map(|it| it.start).next()
    };
    endpoints.iter().map(first).collect::<Option<Vec<Instant>>>()?.into_iter().max()
}

#[track_caller]
fn wait_for_takeover(
    scene: &Scene,
    endpoints: &[String],
    but: &str,
    since: Instant,
    limit: Duration,
) {
    let what = format!("takeover of {endpoints:?}");
    eventually(
        limit.saturating_sub(since.elapsed()),
        &what,
        || scene.target.story(),
        || taken_over(scene, endpoints, but, since).is_some(),
    );
    let took = taken_over(scene, endpoints, but, since).unwrap() - since;
    println!("measured: {what} took {took:?}");
}

/// US2.1, FR-017, FR-018, SC-002: and the others do not miss a poll meanwhile.
#[test]
fn the_endpoints_of_a_killed_instance_are_polled_again_when_its_leases_expire() {
    let scene = Scene::new(6);
    let mut fleet = scene.fleet(2);
    let mut dead = fleet.pop().unwrap();
    let orphans = scene.owned_by(&dead);
    assert_eq!(orphans.len(), 3);
    let killed_at = Instant::now();
    dead.kill9();
    let left = |key: String| ms(scene.redis.cli(&["PTTL", &key]).parse().unwrap());
    let node = left(format!("poll:node:{}", dead.id()));
    let leases = orphans.iter().map(|it| left(format!("poll:lease:{it}"))).max().unwrap();
    let free_at = Instant::now() + node.min(leases);
    wait_for_takeover(&scene, &orphans, &dead.id(), killed_at, TTL + ms(1_500));
    let late = taken_over(&scene, &orphans, &dead.id(), killed_at).unwrap() - free_at;
    println!("measured: that is {late:?} after expiry");
    for endpoint in scene.endpoints.iter().filter(|it| !orphans.contains(it)) {
        let gap = scene.target.longest_gap(endpoint, killed_at..Instant::now());
        assert!(gap <= INTERVAL + ms(800), "{endpoint} was not polled for {gap:?}");
    }
    assert_eq!(fleet[0].lines(&["lease.acquired", "reason=takeover"]).len(), 3);
    scene.target.assert_sound();
}

/// US2.2, FR-009, FR-012, FR-016, SC-001; edge case "network partition where instance can reach
/// polled service but not Redis".
fn cut_off(break_wire: impl Fn(&Proxy)) {
    let scene = Scene::new(4);
    let proxy = Proxy::start(scene.redis.port());
    let near = scene.first(&[]);
    let far = Instance::start_at(&proxy.url(), &[]);
    scene.wait_for_balance(&[&near, &far], SOON);
    let orphans = scene.owned_by(&far);
    scene.target.wait_until(SOON, "the far one polls", |requests| {
        requests.iter().filter(|it| it.instance == far.id()).count() >= 4
    });
    let cut_at = Instant::now();
    break_wire(&proxy);
    wait_for_takeover(&scene, &orphans, &far.id(), cut_at, TTL + ms(1_500));
    let last = scene.target.polls_of(&far.id()).pop().unwrap().start;
    println!("measured: cut off, polled for another {:?}", last.saturating_duration_since(cut_at));
    assert!(last < cut_at + TTL, "polled {:?} after it was cut off", last - cut_at);
    assert!(far.says("event=store.unreachable"));
    let healed_at = Instant::now();
    proxy.heal();
    far.wait_for_since(healed_at, "event=store.reachable");
    scene.wait_for_balance(&[&near, &far], SOON);
    scene.target.wait_until(SOON, "the far one polls again", |requests| {
        requests.iter().any(|it| it.instance == far.id() && it.start > healed_at)
    });
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.assert_sound();
}

/// US2.2: nothing arrives, and everything arrives late.
#[test]
fn an_instance_whose_words_to_redis_are_held_up_stops_before_its_leases_move() {
    cut_off(Proxy::clog);
}

/// US2.2: connections are refused.
#[test]
fn an_instance_whose_connections_to_redis_are_cut_stops_before_its_leases_move() {
    cut_off(Proxy::cut);
}

/// FR-012, R3: at its deadline a lease ends, and with it the poll that runs under it.
#[test]
fn a_poll_that_runs_when_its_instance_is_cut_off_is_aborted_before_anybody_else_begins() {
    let scene = Scene::new(1);
    scene.put_session("e1", json!({"timeoutMs": 60_000}));
    scene.target.answer("e1", Answer { hang: true, ..Answer::default() });
    let proxy = Proxy::start(scene.redis.port());
    let far = Instance::start_at(&proxy.url(), &["--new-fleet"]);
    scene.target.wait_until(SOON, "a poll", |requests| requests.len() == 1);
    scene.target.answer("e1", Answer::default());
    let near = scene.join(&[]);
    let cut_at = Instant::now();
    proxy.clog();
    wait_for_takeover(&scene, &scene.endpoints, &far.id(), cut_at, TTL + ms(1_500));
    let polls = scene.target.polls("e1");
    assert_eq!(polls[1].instance, near.id());
    scene.target.assert_sound();
    println!("measured: aborted {:?} before the next poll", polls[1].start - polls[0].end.unwrap());
    assert_eq!(far.lines(&["event=lease.lost", "reason=expired"]).len(), 1);
    assert_eq!(far.lines(&["event=poll.aborted", "endpoint=e1 "]).len(), 1);
    scene.target.assert_sound();
}

/// US2.2: shorter than the TTL, nothing moves.
#[test]
fn an_instance_cut_off_for_less_than_its_lease_keeps_it() {
    let scene = Scene::new(2);
    let proxy = Proxy::start(scene.redis.port());
    let near = scene.first(&[]);
    let far = Instance::start_at(&proxy.url(), &[]);
    scene.wait_for_balance(&[&near, &far], SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let owners = scene.owners();
    let cut_at = Instant::now();
    proxy.cut();
    scene.target.observe(ms(1_000));
    proxy.heal();
    scene.target.wait_for_polls(&scene.owned_by(&far), Instant::now(), SOON);
    let endpoint = &scene.owned_by(&far)[0];
    println!(
        "measured: cut for 1 s, gap {:?}",
        scene.target.longest_gap(endpoint, cut_at..Instant::now())
    );
    assert_eq!(scene.owners(), owners);
    assert!(!far.says("event=lease.lost"), "{:?}", far.lines(&["lease.lost"]));
    scene.target.assert_sound();
}

/// US2.3, FR-002, FR-005.
#[test]
fn a_restarted_process_is_another_instance_and_waits_for_the_leases_of_the_first() {
    let scene = Scene::new(3);
    let mut first = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let killed_at = Instant::now();
    first.kill9();
    let second = Instance::start(&scene.redis, &[]);
    assert_ne!(first.id(), second.id());
    wait_for_takeover(&scene, &scene.endpoints, &first.id(), killed_at, TTL + ms(2_500));
    let earliest = scene.target.polls_of(&second.id())[0].start;
    assert!(earliest > killed_at + ms(1_000), "took over after {:?}", earliest - killed_at);
    assert_eq!(second.lines(&["lease.acquired"]).len(), 3);
    scene.target.assert_sound();
}

/// SC-006, R11, G4: the specification allows 30 s.
#[test]
fn a_stop_leaves_nothing_behind_and_nobody_waits_a_second_for_the_next_poll() {
    let scene = Scene::new(6);
    let mut fleet = scene.fleet(2);
    let mut leaver = fleet.pop().unwrap();
    let handed = scene.owned_by(&leaver);
    let before = Instant::now();
    let status = leaver.term();
    assert_eq!(status.code(), Some(0));
    let keys = scene.redis.cli(&["KEYS", "poll:node:*"]);
    assert!(!keys.contains(&leaver.id()), "{keys}");
    assert!(!scene.owners().values().any(|it| *it == leaver.id()));
    assert!(leaver.says("event=daemon.stopping") && leaver.says("event=daemon.stopped"));
    assert_eq!(leaver.lines(&["lease.released", "reason=shutdown"]).len(), 3);
    scene.target.wait_for_polls(&handed, Instant::now() + INTERVAL, SOON);
    for endpoint in &scene.endpoints {
        let gap = scene.target.longest_gap(endpoint, before..Instant::now());
        println!("measured: stop, gap {gap:?}");
        assert!(gap <= ms(1_000), "{endpoint} was not polled for {gap:?}");
    }
    scene.target.assert_sound();
}

/// R11: the running poll ends, and its result is stored.
#[test]
fn a_poll_that_runs_when_the_instance_is_stopped_is_finished_and_published() {
    let scene = Scene::new(1);
    scene.target.answer("e1", Answer { delay: ms(700), ..Answer::default() });
    let mut one = scene.first(&[]);
    scene.target.wait_until(SOON, "a second poll", |requests| requests.len() == 2);
    assert_eq!(one.term().code(), Some(0));
    let polls = scene.target.polls("e1");
    assert_eq!(polls.len(), 2, "{}", scene.target.story());
    let age = polls[1].start.elapsed();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let began_ms = (now - age).as_millis() as i64;
    let result = scene.result("e1");
    let stored_ms: i64 = result["started_at_ms"].parse().unwrap();
    assert!((stored_ms - began_ms).abs() < 300, "{stored_ms} is not {began_ms}");
    assert_eq!((result["ok"].as_str(), result["instance"].clone()), ("1", one.id()));
    scene.target.assert_sound();
}

/// R11, `--drain-timeout`.
#[test]
fn a_poll_that_hangs_holds_up_a_stop_no_longer_than_the_drain_timeout() {
    let scene = Scene::new(1);
    scene.target.answer("e1", Answer { hang: true, ..Answer::default() });
    scene.put_session("e1", json!({"timeoutMs": 60_000}));
    let mut one = scene.first(&["--drain-timeout=1s"]);
    scene.target.wait_until(SOON, "a poll", |requests| requests.len() == 1);
    let told_at = Instant::now();
    assert_eq!(one.term().code(), Some(0));
    let took = told_at.elapsed();
    println!("measured: stop with a hanging poll took {took:?}");
    assert!(took >= ms(900) && took < ms(3_000), "stopped after {took:?}");
    assert!(scene.owners().is_empty());
    scene.target.assert_sound();
}

/// R11, G4: leases that no poll runs under move at once, and a lease whose poll runs moves when the poll has ended.
#[test]
fn a_stop_hands_over_idle_leases_at_once_however_long_a_poll_takes() {
    let scene = Scene::new(9);
    let mut fleet = scene.fleet_with(3, &["--timeout=10s", "--drain-timeout=10s"]);
    let mut leaver = fleet.pop().unwrap();
    let mut idle = scene.owned_by(&leaver);
    let slow = idle.pop().unwrap();
    let began = Instant::now();
    scene.target.answer(&slow, Answer { delay: ms(4_000), ..Answer::default() });
    let path = scene.target.polls(&slow)[0].path.clone();
    scene.target.wait_until(SOON, "a slow poll", |requests| {
        requests.iter().any(|it| it.path == path && it.start > began && it.end.is_none())
    });
    scene.target.answer(&slow, Answer::default());
    let told_at = Instant::now();
    assert_eq!(leaver.term().code(), Some(0));
    let stopped_at = Instant::now();
    assert!(stopped_at - told_at > ms(2_500), "stopped after {:?}", stopped_at - told_at);
    scene.target.wait_for_polls(&scene.endpoints, stopped_at + INTERVAL, SOON);
    for endpoint in scene.endpoints.iter().filter(|it| **it != slow) {
        let gap = scene.target.longest_gap(endpoint, told_at..Instant::now());
        println!("measured: stop with a slow poll, gap of an idle endpoint {gap:?}");
        assert!(gap <= INTERVAL + ms(1_000), "{endpoint} was not polled for {gap:?}");
    }
    for endpoint in &idle {
        let polls = scene.target.polls(endpoint);
        let next = polls.iter().find(|it| it.start > told_at && it.instance != leaver.id());
        assert!(next.unwrap().start < stopped_at, "{endpoint} waited for {slow}");
    }
    let polls = scene.target.polls(&slow);
    let last = polls.iter().rfind(|it| it.instance == leaver.id()).unwrap();
    let next = polls.iter().find(|it| it.instance != leaver.id() && it.start > told_at).unwrap();
    let pause = next.start - last.end.unwrap();
    println!("measured: stop with a slow poll, end of that poll to the next {pause:?}");
    assert!(pause <= INTERVAL + ms(1_000), "{slow} was not polled for {pause:?}");
    assert!(!leaver.says("event=poll.aborted"));
    scene.target.assert_sound();
}

/// G4, R12: what `ExecStopPost` does after a SIGKILL or an OOM kill.
#[test]
fn release_after_a_kill_frees_everything_at_once() {
    let scene = Scene::new(4);
    let dir = TempDir::new();
    let other = scene.first(&[]);
    let mut dead = scene.join(&[&dir.option("runtime-dir")]);
    scene.wait_for_balance(&[&other, &dead], SOON);
    scene.target.wait_until(SOON, "both poll", |requests| {
        requests.iter().any(|it| it.instance == dead.id())
    });
    let orphans = scene.owned_by(&dead);
    dead.kill9();
    let killed_at = Instant::now();
    let url = format!("--redis={}", scene.redis.url());
    let release = leasehold(&["release", &url, &dir.option("runtime-dir")]);
    assert_eq!(release.status.code(), Some(0), "{release:?}");
    let said = String::from_utf8_lossy(&release.stdout).into_owned();
    assert!(said.contains(&format!("released 2 leases of {}", dead.id())), "{said}");
    wait_for_takeover(&scene, &orphans, &dead.id(), killed_at, ms(1_500));
    let again = leasehold(&["release", &url, &dir.option("runtime-dir")]);
    assert_eq!(again.status.code(), Some(0), "a second time does no harm: {again:?}");
    scene.target.assert_sound();
}

/// R12: the lock is the proof of death.
#[test]
fn release_refuses_while_the_process_lives() {
    let scene = Scene::new(2);
    let dir = TempDir::new();
    let mut one = scene.first(&[&dir.option("runtime-dir")]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let owners = scene.owners();
    let url = format!("--redis={}", scene.redis.url());
    let by_id = leasehold(&["release", &url, "--instance", &one.id()]);
    assert_eq!(by_id.status.code(), Some(1), "{by_id:?}");
    let why = String::from_utf8_lossy(&by_id.stderr).into_owned();
    assert!(why.contains("still has a heartbeat"), "{why}");
    let by_dir = leasehold(&["release", &url, &dir.option("runtime-dir")]);
    assert_eq!(by_dir.status.code(), Some(1), "{by_dir:?}");
    assert_eq!(scene.owners(), owners);
    assert!(one.is_running());
    assert_eq!(one.term().code(), Some(0));
    scene.target.assert_sound();
}

/// R12: without systemd, the successor does what `ExecStopPost` would have done.
#[test]
fn a_restart_in_the_same_runtime_directory_frees_what_its_predecessor_left() {
    let scene = Scene::new(3);
    let dir = TempDir::new();
    let mut first = scene.first(&[&dir.option("runtime-dir")]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    first.kill9();
    let killed_at = Instant::now();
    let _second = Instance::start(&scene.redis, &[&dir.option("runtime-dir")]);
    wait_for_takeover(&scene, &scene.endpoints, &first.id(), killed_at, ms(2_000));
    scene.target.assert_sound();
}
