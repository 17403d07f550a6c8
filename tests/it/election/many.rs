//! Many roles of one process: their start, their renewal far from Redis, their end while Redis hangs. `make roles` is larger.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use leasehold::election::ElectionEvent::{LeadershipAcquired, LeadershipLost};
use leasehold::election::{ElectionEvent, ElectionSettings, Elections, LeaderElection, State};
use leasehold::{Config, RedisUrl, Role, StartError};
use testkit::proxy::Proxy;
use testkit::redis::eventually;

use crate::election::library::{LIMIT, Scene, TTL, within};

const N_ROLES: usize = 300;
const STORE_TIMEOUT: Duration = Duration::from_millis(300);
/// What a stop promises while Redis hangs, and a second for a machine that is busy.
const STOP_MAX: Duration = STORE_TIMEOUT.saturating_add(Duration::from_secs(2));

fn config(url: &str) -> Config {
    Config {
        redis: RedisUrl::parse(url).unwrap(),
        lease_ttl: TTL,
        renew_interval: TTL / 3,
        heartbeat_ttl: TTL,
        heartbeat_interval: TTL / 3,
        store_timeout: STORE_TIMEOUT,
        new_fleet: true,
        ..Config::default()
    }
}

fn settings(config: &Config, role: &str) -> ElectionSettings {
    config.election_settings(Role::parse(role).unwrap())
}

fn stand(elections: &Elections, config: &Config) -> Vec<LeaderElection> {
    let roles = (0..N_ROLES).map(|n| settings(config, &format!("r{n}")));
    let stood = elections.stand_many(roles, None);
    stood.into_iter().collect::<Result<Vec<_>, _>>().unwrap()
}

fn hub(url: &str) -> (Elections, Config) {
    let config = config(url);
    (Elections::on_redis(&config.clone().checked().unwrap()).unwrap(), config)
}

fn lead(all: &[LeaderElection]) {
    all.iter().for_each(|it| assert!(it.wait_for_leadership(LIMIT), "{it:?}"));
}

fn told(elections: &Elections) -> Receiver<ElectionEvent> {
    let (tell, told) = unbounded();
    let _stays = elections.listen(move |event| drop(tell.send(event.clone()))).unwrap();
    told
}

/// Point 9: the store is asked for all of them together, and renewals keep up.
#[test]
fn roles_far_from_redis_start_together_and_none_is_lost() {
    let scene = Scene::new();
    let proxy = Proxy::start(scene.redis.port());
    proxy.lie_far_away(Duration::from_millis(5));
    let (elections, config) = hub(&proxy.url());
    let told = told(&elections);
    let began = Instant::now();
    let all = stand(&elections, &config);
    lead(&all);
    let took = began.elapsed();
    println!("measured: {N_ROLES} roles 10 ms away are led after {took:?}");
    // One by one they would take 40 ms each.
    assert!(took < Duration::from_secs(5), "{took:?}");
    let until = Instant::now() + 2 * TTL;
    let mut n_elected = 0;
    while let Ok(event) = told.recv_deadline(until) {
        n_elected += usize::from(matches!(event, LeadershipAcquired { .. }));
        assert!(!matches!(event, LeadershipLost { .. }), "{event:?}");
    }
    assert_eq!(n_elected, N_ROLES);
    assert!(elections.stop_within(LIMIT));
    assert_eq!(scene.redis.cli(&["KEYS", "leader:r*"]), "", "not given back");
}

/// R14 for each: an answer for each role, in order, and one that is refused spoils no other.
#[test]
fn a_role_that_is_refused_spoils_no_other() {
    let scene = Scene::new();
    let _other_ttl = scene.builder("b").ttl(2 * TTL).start().unwrap();
    let (elections, config) = hub(&scene.redis.url());
    let odd = ElectionSettings { ttl: Duration::ZERO, ..settings(&config, "d") };
    let of = |role: &str| settings(&config, role);
    let stood = elections.stand_many([of("a"), of("b"), of("a"), odd, of("c")], None);
    let said: Vec<String> = stood
        .iter()
        .map(|it| it.as_ref().map_or_else(ToString::to_string, |it| it.role().to_string()))
        .collect();
    assert!(said[1].contains("6000ms") && said[2].contains("already"), "{said:?}");
    assert!(said[3].starts_with("ttl 0s is out of range"), "{said:?}");
    assert_eq!([&said[0], &said[4]], ["a", "c"]);
    let all: Vec<LeaderElection> = stood.into_iter().flatten().collect();
    lead(&all);
}

/// Point 4: registered before the roles stand, a listener misses nothing, and one thread tells it of all.
#[test]
fn a_listener_of_all_roles_hears_each_from_the_beginning() {
    let scene = Scene::new();
    let (elections, config) = hub(&scene.redis.url());
    let told = told(&elections);
    let (said, never) = unbounded();
    elections.listen(move |event| drop(said.send(event.clone()))).unwrap().unregister();
    let all = stand(&elections, &config);
    lead(&all);
    elections.stop();
    let mut heard: BTreeMap<Role, Vec<ElectionEvent>> = BTreeMap::new();
    // Each stands, leads and resigns: three changes, one beginning, one end.
    for _ in 0..5 * N_ROLES {
        let event = told.recv_timeout(LIMIT).expect("something was missed");
        let role = match &event {
            ElectionEvent::StateChanged { role, .. }
            | LeadershipAcquired { role, .. }
            | LeadershipLost { role, .. } => role.clone(),
            other => panic!("{other:?}"),
        };
        heard.entry(role).or_default().push(event);
    }
    assert_eq!(heard.len(), N_ROLES);
    for (role, heard) in heard {
        let (from, to) = (State::Follower, State::Candidate);
        assert_eq!(heard[0], ElectionEvent::StateChanged { role, from, to });
        assert!(matches!(heard[4], LeadershipLost { .. }), "{heard:#?}");
    }
    assert!(never.try_recv().is_err(), "told after it was taken out");
}

/// Ends all of them; true if Redis knows.
type Way = fn(Elections, Vec<LeaderElection>) -> bool;

/// Point 9: all of them share one wait.
#[test]
fn a_stop_of_all_roles_waits_once_for_a_redis_that_hangs() {
    let ways: [(&str, Way); 3] = [
        ("stop_within", |elections, all| {
            let is_given_back = elections.stop_within(LIMIT);
            assert!(!all.iter().any(LeaderElection::is_leader));
            is_given_back
        }),
        ("stop", |elections, _all| {
            elections.stop();
            false
        }),
        ("a drop of each", |_, all| {
            drop(all);
            false
        }),
    ];
    for (way, stop) in ways {
        let scene = Scene::new();
        let (elections, config) = hub(&scene.redis.url());
        let all = stand(&elections, &config);
        lead(&all);
        scene.redis.pause();
        let began = Instant::now();
        let is_given_back = within(LIMIT, way, move || stop(elections, all));
        let took = began.elapsed();
        scene.redis.resume();
        println!("measured: {way}: {N_ROLES} roles end in {took:?} while Redis hangs");
        assert!(took < STOP_MAX, "{way}: {took:?}");
        assert!(!is_given_back, "{way}: Redis was told nothing");
    }
}

/// What was stopped stays stopped, and a drop after it does not wait.
#[test]
fn after_a_stop_nobody_stands() {
    let scene = Scene::new();
    let (elections, config) = hub(&scene.redis.url());
    let election = elections.stand(settings(&config, "r"), None).unwrap();
    assert!(election.wait_for_leadership(LIMIT));
    assert!(elections.stop_within(LIMIT));
    assert!(!election.is_leader());
    assert_eq!(scene.redis.cli(&["EXISTS", "leader:r"]), "0");
    let refused = elections.stand(settings(&config, "other"), None).map(drop);
    assert!(matches!(refused, Err(StartError::Stopped)), "{refused:?}");
    let refused = elections.try_lead(settings(&config, "other")).map(drop);
    assert!(matches!(refused, Err(StartError::Stopped)), "{refused:?}");
}

/// `stop_within` returns in time, whatever Redis and the work do, and nothing is led any more.
#[test]
fn a_stop_within_a_time_takes_no_longer() {
    let scene = Scene::new();
    let soon = Duration::from_millis(100);
    let (election, working) = (scene.leader("r"), scene.leader("work"));
    let (idle, duty) = (scene.leader("idle"), working.enter().unwrap());
    assert!(idle.stop_within(LIMIT), "Redis knows");
    assert_eq!(scene.redis.cli(&["EXISTS", "leader:idle"]), "0");
    let began = Instant::now();
    assert!(!working.stop_within(soon), "the work goes on");
    assert!(!duty.holds() && duty.remaining().is_zero());
    assert_eq!(scene.redis.cli(&["EXISTS", "leader:work"]), "1", "given back during the work");
    scene.redis.pause();
    assert!(!election.stop_within(soon), "Redis hangs");
    let took = began.elapsed();
    scene.redis.resume();
    // Two waits of 100 ms, on a machine that is busy.
    assert!(took < Duration::from_secs(1), "{took:?}");
    drop(duty);
    let left = || scene.redis.cli(&["EXISTS", "leader:work"]);
    eventually(|| left() == "0", || "not given back after the work".into());
}
