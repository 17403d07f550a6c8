//! R15 and R16 with real processes at leases of 30 s: a long poll goes on, an instance that died is replaced in seconds, and one
//! that is alive stops before others poll what it had.

use std::time::{Duration, Instant};

use testkit::process::{Instance, SOON, Scene, eventually, ms, run, said};
use testkit::target::Answer;

const LONG: [&str; 6] = [
    "--lease-ttl=30s",
    "--renew-interval=10s",
    "--heartbeat-ttl=30s",
    "--heartbeat-interval=10s",
    "--store-timeout=2s",
    "--interval=200ms",
];

/// Options of leases of 30 s, with these.
fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&LONG[..], more].concat()
}

/// The first poll of each of these by another instance than `other_than`, since then.
fn polled_by_others(
    scene: &Scene,
    orphans: &[String],
    other_than: &str,
    since: Instant,
) -> Instant {
    let first = |requests: &[testkit::target::Request], id: &str| {
        let path = format!("/{id}");
        let others = requests.iter().filter(|it| it.path == path && it.instance != other_than);
        others.map(|it| it.start).filter(|it| *it > since).min()
    };
    scene.target.wait_until(Duration::from_secs(20), "a takeover of every endpoint", |requests| {
        orphans.iter().all(|it| first(requests, it).is_some())
    });
    let requests = scene.target.requests();
    orphans.iter().filter_map(|it| first(&requests, it)).max().unwrap()
}

/// R15: the thread `verify` verifies the lease of a poll that runs.
#[test]
fn r15_a_poll_that_takes_longer_than_its_verification_succeeds() {
    let scene = Scene::new(1);
    scene.target.answer("e1", Answer { delay: ms(2_600), ..Answer::default() });
    let one = scene.first(&with(&["--timeout=10s", "--log-level=debug"]));
    one.wait_for("event=poll.ok");
    assert!(!one.says("event=poll.aborted"), "{:?}", one.lines(&["event=poll.aborted"]));
}

/// R15: without an answer of Redis a poll ends within a second, and is made again when Redis answers.
#[test]
fn r15_a_poll_that_cannot_be_verified_is_aborted() {
    let scene = Scene::new(1);
    scene.target.answer("e1", Answer { hang: true, ..Answer::default() });
    let one = scene.first(&with(&["--timeout=60s"]));
    scene.target.wait_until(SOON, "a poll that hangs", |requests| !requests.is_empty());
    assert!(!one.says("event=poll.aborted"));
    let frozen_at = Instant::now();
    scene.redis.pause();
    one.wait_for("event=poll.aborted");
    let took = frozen_at.elapsed();
    assert!(took < ms(1_000) + SOON / 4, "V is 1 s, and its last half may have begun: {took:?}");
    scene.redis.resume();
    let before = scene.target.requests().len();
    scene.target.wait_until(SOON, "another poll", |requests| requests.len() > before);
    assert_eq!(scene.owned_by(&one).len(), 1, "the lease stayed");
}

/// R15: `--suspect-after 0` keeps polls alive while Redis is away, and nobody can be revoked.
#[test]
fn r15_is_off_with_suspect_after_0() {
    let scene = Scene::new(1);
    scene.target.answer("e1", Answer { delay: ms(3_000), ..Answer::default() });
    let one = scene.first(&with(&["--timeout=10s", "--suspect-after=0s", "--log-level=debug"]));
    scene.target.wait_until(SOON, "a poll that runs", |requests| !requests.is_empty());
    scene.redis.pause();
    one.wait_for("event=poll.ok");
    scene.redis.resume();
    assert_eq!(scene.redis.cli(&["HGET", &format!("poll:info:{}", one.id()), "beats"]), "");
    let output = run(&scene.redis, &["release", "--instance", &one.id(), "--force"]);
    assert!(output.status.success());
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warned.contains("could not be revoked"), "{warned}");
}

/// R16, hint *subscriber*: what a killed process had is polled by others long before its leases end.
#[test]
fn r16_the_endpoints_of_a_killed_process_are_polled_by_others_within_seconds() {
    let scene = Scene::new(6);
    let mut fleet = scene.fleet_with(3, &with(&[]));
    let mut dead = fleet.pop().unwrap();
    let (orphans, id) = (scene.owned_by(&dead), dead.id());
    let killed_at = Instant::now();
    dead.kill9();
    let took = polled_by_others(&scene, &orphans, &id, killed_at) - killed_at;
    println!("after {took:?}");
    assert!(took > ms(1_130) && took < ms(2_000) + SOON / 2, "{took:?}");
    let revoked = fleet.iter().flat_map(|it| it.lines(&["event=instance.revoked", &id]));
    assert_eq!(revoked.count(), 1, "one instance revokes it");
    let told = || said(&run(&scene.redis, &["history"]));
    eventually(SOON, "the history", told, || told().contains("revoked"));
    scene.target.assert_sound();
}

/// R16, hint *heartbeat*: so is what a frozen one had; it comes back as a newcomer, and never polls what others poll.
#[test]
fn r16_a_frozen_instance_is_replaced_and_comes_back() {
    let scene = Scene::new(6);
    let fleet = scene.fleet_with(3, &with(&["--suspect-after=2s"]));
    let frozen = &fleet[0];
    let orphans = scene.owned_by(frozen);
    let frozen_at = Instant::now();
    frozen.freeze();
    let took = polled_by_others(&scene, &orphans, &frozen.id(), frozen_at) - frozen_at;
    println!("after {took:?}");
    assert!(took > ms(2_000) && took < ms(4_000) + SOON / 2, "{took:?}");
    frozen.thaw();
    frozen.wait_for("event=daemon.revoked");
    let lost = frozen.lines(&["event=lease.lost"]);
    assert!(lost.iter().all(|it| it.contains("reason=revoked")) && !lost.is_empty(), "{lost:?}");
    scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), SOON);
    scene.target.assert_sound();
}

/// R16, hint *operator*: `release --force` is safe although the instance is alive and polls.
#[test]
fn r16_an_instance_that_is_released_by_force_stops_before_others_begin() {
    let scene = Scene::new(6);
    for id in &scene.endpoints {
        scene.target.answer(id, Answer { delay: ms(900), ..Answer::default() });
    }
    let fleet = scene.fleet_with(2, &with(&["--timeout=5s"]));
    let healthy = &fleet[0];
    let began = Instant::now();
    let output = run(&scene.redis, &["release", "--instance", &healthy.id(), "--force"]);
    assert!(began.elapsed() > ms(1_100), "it waits until the last verification has ended");
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).starts_with("revoked ")
    );
    healthy.wait_for("event=daemon.revoked");
    scene.wait_for_balance(&fleet.iter().collect::<Vec<&Instance>>(), SOON);
    scene.target.observe(ms(1_000));
    scene.target.assert_sound();
}
