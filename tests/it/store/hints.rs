//! What is said on `poll:wake` and `poll:wake:<instance>` is a hint: no word, however wrong, moves a lease.

use std::time::{Duration, Instant};

use redis::Connection;
use serde_json::json;

use testkit::measure::{Measured, Stalls, gaps};
use testkit::process::{INTERVAL, Instance, SOON, Scene, ms};

/// How long the channels are shouted at.
const SHOUTING: Duration = ms(4_000);
/// What shouting may cost an endpoint beyond its interval.
const BEYOND: Duration = ms(250);

/// Every word that is said on the wake-up channels while `scene` changes, with its channel.
fn recorded(scene: &Scene, change: impl FnOnce()) -> Vec<(String, Vec<u8>)> {
    let mut connection = scene.redis.connect().unwrap();
    connection.set_read_timeout(Some(ms(300))).unwrap();
    let mut subscription = connection.as_pubsub();
    subscription.psubscribe("poll:wake*").unwrap();
    change();
    let mut words = Vec::new();
    // Until nothing was said for a while.
    while let Ok(word) = subscription.get_message() {
        words.push((word.get_channel_name().to_owned(), word.get_payload_bytes().to_vec()));
    }
    words
}

/// Words that nobody said, or nobody meant so.
fn lies(endpoints: &[String], fleet: &[&Instance]) -> Vec<Vec<u8>> {
    let ids: Vec<String> = fleet.iter().map(|it| it.id()).collect();
    let mut words: Vec<Vec<u8>> = vec![
        vec![],
        b"look".to_vec(),
        b"{\"from\":\"".to_vec(),
        vec![0xff; 300],
        vec![b'['; 100_000],
        vec![b'x'; 1_000_000],
        b"{\"from\":3,\"wants\":{}}".to_vec(),
        json!({"from": "nobody"}).to_string().into_bytes(),
        json!({"from": "nobody", "wants": endpoints, "freed": endpoints}).to_string().into_bytes(),
    ];
    for id in &ids {
        words.push(json!({"from": id, "wants": endpoints}).to_string().into_bytes());
        words.push(json!({"from": id, "freed": endpoints}).to_string().into_bytes());
        words.push(json!({"from": id}).to_string().into_bytes());
    }
    words
}

fn shout(connection: &mut Connection, words: &[(String, Vec<u8>)]) -> usize {
    let until = Instant::now() + SHOUTING;
    let mut said = 0;
    for (channel, word) in words.iter().cycle() {
        redis::cmd("PUBLISH").arg(channel).arg(word).exec(connection).unwrap();
        said += 1;
        if Instant::now() > until {
            break;
        }
    }
    said
}

/// R8: the store decides, words only say where to look.
#[test]
fn no_word_on_a_wake_up_channel_moves_a_lease_or_holds_up_a_poll() {
    let scene = Scene::new(12);
    let mut fleet = scene.fleet(2);
    // Real messages: one instance joins, and one leaves.
    let mut words = recorded(&scene, || {
        fleet.push(scene.join(&[]));
        scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), SOON);
        let mut leaver = scene.join(&[]);
        assert_eq!(leaver.term().code(), Some(0));
        scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), SOON);
    });
    assert!(words.len() >= 4, "{words:?}");
    let all: Vec<&Instance> = fleet.iter().collect();
    let truncated = words.iter().map(|(at, word)| (at.clone(), word[..word.len() / 2].to_vec()));
    words.extend(truncated.collect::<Vec<_>>());
    for lie in lies(&scene.endpoints, &all) {
        words.push(("poll:wake".into(), lie.clone()));
        words.extend(all.iter().map(|it| (format!("poll:wake:{}", it.id()), lie.clone())));
    }
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let (owners, since) = (scene.owners(), Instant::now());
    let stalls = Stalls::watch(&scene.redis);
    let said = shout(&mut scene.redis.connect().unwrap(), &words);
    println!("measured: {said} words in {:?}", since.elapsed());
    assert_eq!(scene.owners(), owners, "something moved");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let mut pauses = Measured::new("polls under shouting, one to the next");
    for (path, gap) in gaps(&scene.target.requests(), since) {
        pauses.add(gap.end - gap.start, stalls.within(gap), path);
    }
    pauses.assert_within(INTERVAL + BEYOND);
    for one in &all {
        for event in ["lease.acquired", "lease.released", "lease.lost", "lease.uncertain"] {
            let told = one.timed_lines(&[&format!("event={event} ")]);
            let told: Vec<_> = told.into_iter().filter(|it| it.0 > since).collect();
            assert!(told.is_empty(), "{told:#?}");
        }
    }
    scene.target.assert_sound();
}
