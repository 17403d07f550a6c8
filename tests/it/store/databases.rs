//! Two fleets with the same prefixes in two databases of one Redis, whose channels all databases share: neither hears the other.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::model::{EndpointId, InstanceId};
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{PeerMessage, Push, Store};
use serde_json::{Value, json};

use testkit::lead::Hosts;
use testkit::process::{Instance, SOON, Scene, binary, eventually, leasehold};
use testkit::redis::RedisServer;
use testkit::target::Target;

const TIMEOUT: Duration = Duration::from_secs(5);

fn in_database(redis: &RedisServer, database: u32) -> String {
    redis.url().replace("/0", &format!("/{database}"))
}

fn endpoint(name: &str) -> EndpointId {
    EndpointId::parse(name).unwrap()
}

/// Words to all and to one by name, of polls and of roles. What was said in one's own database comes after them.
#[test]
fn a_message_is_not_heard_in_another_database() {
    let redis = RedisServer::start();
    for keys in [Keys::new("poll", "session:"), Keys::of_roles("leader", "leader:heartbeat:")] {
        let [zero, one] = [0, 1].map(|it| {
            RedisStore::new(&in_database(&redis, it), "the server", keys.clone()).unwrap()
        });
        let (me, other) = (InstanceId::new("a"), InstanceId::new("b"));
        let said = |name: &str, to: Option<&InstanceId>| PeerMessage {
            took: vec![endpoint(name)],
            resign: vec![endpoint(name)],
            ..PeerMessage::new(&other, to.cloned())
        };
        for (here, there) in [(&zero, &one), (&one, &zero)] {
            let mut subscription = here.listen(&me, TIMEOUT).unwrap();
            let foreign = [said("foreign", None), said("foreign", Some(&me))];
            there.wake(&foreign, TIMEOUT).unwrap();
            let own = [said("own", None), said("own", Some(&me))];
            here.wake(&own, TIMEOUT).unwrap();
            for wanted in own {
                // What is no message, or none for us, is passed over.
                let heard = (0..100).find_map(|_| match subscription.next(TIMEOUT).unwrap() {
                    Some(Push::Message(message)) => Some(message),
                    _ => None,
                });
                assert_eq!(heard, Some(wanted));
            }
        }
    }
}

/// Also those of a version that does not say its database: its fleet has only one.
#[test]
fn results_of_another_database_are_not_followed() {
    let redis = RedisServer::start();
    let keys = Keys::new("poll", "session:");
    let store = RedisStore::new(&in_database(&redis, 1), "the server", keys).unwrap();
    let mut results = store.follow_results(None, TIMEOUT).unwrap();
    for (db, error) in [(json!(0), "foreign"), (json!(1), "own"), (Value::Null, "foreign")] {
        let message = json!({"ok": 0, "error": error, "db": db}).to_string();
        redis.cli(&["PUBLISH", "poll:results:e1", &message]);
    }
    redis.cli(&["PUBLISH", "poll:results:e1", r#"{"ok": 0, "error": "of an older version"}"#]);
    let mut heard = || loop {
        if let Some(heard) = results.next(TIMEOUT).unwrap() {
            return heard.result.error.unwrap();
        }
    };
    assert_eq!([heard(), heard()], ["own", "of an older version"]);
}

/// The same sessions in both, each fleet with a target of its own; one fleet moves its leases meanwhile.
#[test]
fn two_fleets_in_two_databases_live_side_by_side() {
    let scene = Scene::new(4);
    let (redis, second) = (&scene.redis, Target::start());
    let url = in_database(redis, 1);
    let mut database = redis.connect().unwrap();
    redis::cmd("SELECT").arg(1).exec(&mut database).unwrap();
    for id in &scene.endpoints {
        let document = second.session(id).to_string();
        redis::cmd("SET").arg(format!("session:{id}")).arg(document).exec(&mut database).unwrap();
    }
    let zero = scene.first(&["--host-name=zero"]);
    zero.wait_for("event=daemon.ready");
    let one = Instance::start_at(&url, &["--new-fleet", "--host-name=one"]);
    one.wait_for("event=daemon.ready");
    let mut two = Instance::start_at(&url, &["--host-name=two"]);
    two.wait_for("event=lease.acquired");

    let mut watch = Command::new(binary());
    watch.args(["watch", "--json", "--redis", &url]).stdin(Stdio::null());
    watch.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watch = watch.spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let hundred: Vec<String> = lines.filter(|it| it.contains("durationMs")).take(100).collect();
    let _ = watch.kill();
    let _ = watch.wait();
    assert_eq!(hundred.len(), 100);
    let foreign = hundred.iter().find(|it| it.contains(&zero.id()));
    assert_eq!(foreign, None, "a result of the other fleet");

    assert!(two.term().success());
    one.wait_for("event=instance.left");
    let by_both =
        |target: &Target| target.requests().iter().map(|it| it.instance.clone()).collect();
    let (first, second): (Vec<String>, Vec<String>) = (by_both(&scene.target), by_both(&second));
    assert!(first.iter().all(|it| *it == zero.id()), "{first:?}");
    assert!(second.iter().all(|it| *it == one.id() || *it == two.id()), "{second:?}");
    let log = zero.log().join("\n");
    for word in ["instance.joined", "instance.left", "lease.lost", "lease.released", "WARN"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
    scene.target.assert_sound();
}

/// A role is led in each database, whatever the priorities; a resignation in one is none in the other.
#[test]
fn a_role_is_led_in_each_database() {
    let hosts = Hosts::new();
    let url = in_database(&hosts.redis, 1);
    hosts.end_hold_off_at(&url);
    let work = ["sleep", "60"];
    let zero = hosts.lead_with(&hosts.redis.url(), &[], &work);
    zero.wait_for("event=leader.elected");
    let one = hosts.lead_with(&url, &["--priority=9"], &work);
    one.wait_for("event=leader.elected");
    let resigned = leasehold(&["resign", "job", "--redis", &url]);
    assert!(resigned.status.success(), "{resigned:?}");
    one.wait_for("event=leader.resigned");
    let beat = || hosts.redis.cli(&["GET", &format!("leader:heartbeat:{}", hosts.leader())]);
    let before = beat();
    eventually(SOON, "a renewal", || zero.log().join("\n"), || beat() != before);
    let events = zero.lines(&["event=leader."]);
    assert!(!events.iter().any(|it| it.contains("resigned") || it.contains("lost")), "{events:?}");
}
