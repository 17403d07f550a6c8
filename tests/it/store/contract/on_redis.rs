//! What only a real server does: types, memory, roles, permissions, scripts forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::model::{
    CertificateLeft, FenceToken, InstanceId, Sample, Session, Tenure, Verdict, Weight,
};
use leasehold::store::{
    Acquire, Grant, Judging, PeerMessage, Publication, Publish, Push, RawSession, Release, Renew,
    RenewItem, RequestContext, Store, Verify,
};

use crate::store::contract::asker::{Asker, endpoint, items, publication};
use crate::store::contract::reads::sessions_of;
use crate::store::contract::world::{RedisWorld, TIMEOUT, World, store_at};
use testkit::redis::RedisServer;

fn hash(server: &RedisServer, key: &str) -> BTreeMap<String, String> {
    let text = server.cli(&["HGETALL", key]);
    let lines: Vec<&str> = text.split('\n').collect();
    lines.chunks(2).map(|it| (it[0].to_owned(), it[1].to_owned())).collect()
}

/// CONTRACT, "Redis keys".
#[test]
fn the_keys_are_those_of_the_contract() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "vm-1-17-aaaaaaaa");
    let tenure = a.grant(&endpoint("e"));
    a.publish(&tenure, 1_700_000_000_000);
    let mut keys: Vec<String> =
        world.server.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
    keys.sort_unstable();
    let expected = [
        "poll:epoch",
        "poll:fence",
        "poll:grants:vm-1-17-aaaaaaaa",
        "poll:lease:e",
        "poll:node:vm-1-17-aaaaaaaa",
        "poll:result:e",
    ];
    assert_eq!(keys, expected);
    assert_eq!(world.server.cli(&["GET", "poll:fence"]), tenure.fence.to_string());
    assert_eq!(world.server.cli(&["GET", "poll:lease:e"]), "vm-1-17-aaaaaaaa");
    assert_eq!(world.server.cli(&["GET", "poll:node:vm-1-17-aaaaaaaa"]), "1");
    let epoch = hash(&world.server, "poll:epoch");
    assert_eq!(epoch["lease_ttl_ms"], "30000");
    assert_eq!(epoch["margin_ms"], "1000");
    assert_eq!(epoch["epoch"], a.stamp.unwrap().epoch.to_string());
    assert!(world.server.cli(&["INFO", "replication"]).contains(&epoch["replid"]));
    assert!(epoch.contains_key("since_ms"));
}

/// What is noted of grants in two keys is no reason to grant nothing, whatever other clients wrote there.
#[test]
fn notes_of_grants_that_somebody_has_spoilt_are_mended_by_the_next_grant() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let mut last = a.grant(&endpoint("e"));
    for (fence, grants) in [("RPUSH", "RPUSH"), ("SADD", "SET"), ("SET", "RPUSH")] {
        world.server.cli(&["DEL", "poll:fence", "poll:grants:a"]);
        world.server.cli(&[fence, "poll:fence", "9007199254740991"]);
        world.server.cli(&[grants, "poll:grants:a", "no more"]);
        assert_eq!(a.free(&last), Release::Released, "{fence}");
        let next = a.grant(&endpoint("e"));
        assert!(next.fence > last.fence && next.fence.get() < 1 << 52, "{next:?} after {last:?}");
        assert_eq!(world.server.cli(&["GET", "poll:fence"]), next.fence.to_string());
        assert_eq!(world.server.cli(&["HGET", "poll:grants:a", "granted"]), next.fence.to_string());
        last = next;
    }
}

/// R6: nor are they a reason to lose what is held.
#[test]
fn notes_of_grants_that_somebody_has_spoilt_keep_nobody_from_its_leases() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let [gone, unfenced] = ["e", "f"].map(|it| a.grant(&endpoint(it)));
    world.server.cli(&["DEL", "poll:lease:e", "poll:result:f", "poll:grants:a"]);
    world.server.cli(&["SET", "poll:grants:a", "no more"]);
    assert_eq!(a.renew(&unfenced), Renew::Extended);
    assert_eq!(a.renew(&gone), Renew::Reclaimed);
    world.server.cli(&["DEL", "poll:lease:e", "poll:grants:a"]);
    world.server.cli(&["SET", "poll:grants:a", "no more"]);
    // Whether it was released since cannot be known any more. Once is enough to be sure.
    assert_eq!(a.renew(&gone), Renew::Late);
    assert_eq!(a.renew(&gone), Renew::Reclaimed);
}

/// What could not be granted was not: a release that comes after it is as cheap as before.
#[test]
fn a_grant_that_failed_is_not_noted() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.server.cli(&["SET", "poll:result:x", "1"]);
    for owner in [None, Some("a")] {
        if let Some(owner) = owner {
            world.server.cli(&["SET", "poll:lease:x", owner, "PX", "30000"]);
        }
        let refused = a.acquire(&endpoint("x"));
        assert!(matches!(&refused, Acquire::Failed(_)), "{refused:?}");
    }
    let noted = world.server.cli(&["HGET", "poll:grants:a", "granted"]);
    assert_eq!(noted, tenure.fence.to_string());
}

/// All databases of a server share its channels, and each has fleets of its own.
#[test]
fn what_is_said_in_another_database_is_not_heard() {
    let world = RedisWorld::new();
    let url = |database: u32| format!("redis://127.0.0.1:{}/{database}", world.server.port());
    for (mine, other) in [(0, 3), (3, 0), (3, 4)] {
        let ours = store_at(&url(mine));
        let [mut a, mut b] = [Asker::at(&url(mine), "a"), Asker::at(&url(other), "b")];
        let mut results = ours.follow_results(None, TIMEOUT).unwrap();
        let mut subscription = ours.listen(&a.me, TIMEOUT).unwrap();
        for (asker, start) in [(&mut b, 5), (&mut a, 6)] {
            asker.beat();
            let tenure = asker.grant(&endpoint(&format!("e{mine}{other}")));
            assert_eq!(asker.publish(&tenure, start), Publish::Stored(None));
            let word = PeerMessage::new(&asker.me, None);
            asker.store.wake(&[word], TIMEOUT).unwrap();
            // The script writes this message itself, because only one of the two is granted.
            let mut late = Asker::at(&url(if start == 5 { other } else { mine }), "late");
            late.beat();
            let names = [format!("e{mine}{other}"), format!("free{mine}{other}")];
            let names = names.map(|it| endpoint(&it));
            assert_eq!(late.answered(|store, context| store.acquire(context, &names)).len(), 2);
        }
        // The other spoke first: whatever of it is heard comes before ours.
        let soon = Instant::now() + TIMEOUT;
        let heard = std::iter::repeat_with(|| results.next(TIMEOUT).unwrap())
            .take_while(|_| Instant::now() < soon)
            .find_map(|it| it);
        let heard = heard.map(|it| it.result.started_at_ms);
        assert_eq!(heard, Some(Some(6)), "in database {mine}, a result of {other}");
        let said = std::iter::repeat_with(|| subscription.next(TIMEOUT).unwrap())
            .take_while(|_| Instant::now() < soon)
            .find_map(|it| if let Some(Push::Message(word)) = it { Some(word.from) } else { None });
        assert_eq!(said.as_ref(), Some(&a.me), "in database {mine}, a word of {other}");
    }
}

/// During an upgrade: older versions do not say in which database they are.
#[test]
fn what_names_no_database_is_heard() {
    let world = RedisWorld::new();
    let store = store_at(&format!("redis://127.0.0.1:{}/3", world.server.port()));
    let mut results = store.follow_results(None, TIMEOUT).unwrap();
    let mut subscription = store.listen(&InstanceId::new("a"), TIMEOUT).unwrap();
    world.server.cli(&["PUBLISH", "poll:results:e", r#"{"ok":1,"started_at_ms":5}"#]);
    world.server.cli(&["PUBLISH", "poll:wake", r#"{"from":"b"}"#]);
    assert_eq!(results.next(TIMEOUT).unwrap().unwrap().result.started_at_ms, Some(5));
    assert!(matches!(subscription.next(TIMEOUT).unwrap(), Some(Push::Message(_))));
}

/// G2: a start that nobody can have written orders nothing.
#[test]
fn a_stored_start_that_is_no_number_keeps_no_result_out() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    let spoilt = ["", "soon", "nan", "inf", "-inf", "-5", "1e300", "9007199254740992"];
    for (n, spoilt) in (1..).zip(spoilt) {
        assert_eq!(a.publish(&tenure, n), Publish::Stored(None));
        world.server.cli(&["HSET", "poll:result:e", "started_at_ms", spoilt]);
        assert_eq!(a.publish(&tenure, n), Publish::Stored(None));
        assert_eq!(a.last_polled(&endpoint("e")), Some(n), "{spoilt:?}");
    }
    // And one that is missing.
    world.server.cli(&["HDEL", "poll:result:e", "started_at_ms"]);
    assert_eq!(a.publish(&tenure, 3), Publish::Stored(None));
    assert_eq!(a.last_polled(&endpoint("e")), Some(3));
}

/// A right that is missing in the middle of a batch leaves no lease behind that never ends.
#[test]
fn whoever_may_not_delete_leaves_no_lease_without_an_end() {
    let world = RedisWorld::new();
    let url = world.server.give_rule("leasehold");
    world.server.cli(&["ACL", "SETUSER", "leasehold", "-del"]);
    let mut a = Asker::at(&url, "a");
    a.beat();
    world.server.cli(&["SET", "poll:result:f", "1"]);
    let ids = ["e", "f", "g"].map(endpoint);
    let acquired = a.answered(|store, context| store.acquire(context, &ids));
    let [Acquire::Granted { .. }, Acquire::Failed(_), Acquire::Granted { .. }] = &acquired[..]
    else {
        panic!("{acquired:?}");
    };
    for id in ids {
        let left = world.server.cli(&["PTTL", &format!("poll:lease:{id}")]);
        assert!(left.parse::<i64>().unwrap() > 0, "{id} ends in {left} ms");
    }
}

/// What a server can do with less effort it does with more where it may not.
#[test]
fn whoever_lacks_what_only_saves_effort_is_granted_and_keeps_all_the_same() {
    let world = RedisWorld::new();
    let url = world.server.give_rule("leasehold");
    world.server.cli(&["ACL", "SETUSER", "leasehold", "-msetnx", "-pexpireat"]);
    let mut a = Asker::at(&url, "a");
    a.beat();
    let ids = ["e", "f"].map(endpoint);
    let all = |it: &Acquire| matches!(it, Acquire::Granted { grant: Grant::Free, .. });
    let acquired = a.answered(|store, context| store.acquire(context, &ids));
    assert!(acquired.iter().all(all), "{acquired:?}");
    let fence_checked = ids.map(|it| {
        world.server.cli(&["PEXPIRE", &format!("poll:lease:{it}"), "5000"]);
        RenewItem { fence_checked: true, ..RenewItem::new(Tenure::new(it, FenceToken::new(0))) }
    });
    let renewed = a.answered(|store, context| store.renew(context, &fence_checked));
    assert_eq!(renewed, [Renew::Extended, Renew::Extended]);
    for it in fence_checked {
        let left = world.server.cli(&["PTTL", &format!("poll:lease:{}", it.tenure.endpoint)]);
        assert!(left.parse::<u64>().unwrap() > 20_000, "it ends in {left} ms");
    }
}

/// FR-010: a name says as much as a fence that was compared before, in every case there is.
#[test]
fn what_is_verified_by_name_is_answered_as_by_the_fence() {
    let world = RedisWorld::new();
    let (mut a, mut b) = (Asker::alive(&world, "a"), Asker::alive(&world, "b"));
    let ids = ["held", "gone", "taken", "odd"].map(endpoint);
    let tenures = ids.each_ref().map(|it| a.grant(it));
    world.server.cli(&["DEL", "poll:lease:gone", "poll:lease:taken", "poll:lease:odd"]);
    world.server.cli(&["LPUSH", "poll:lease:odd", "1"]);
    b.grant(&ids[2]);
    let ways = [true, false].map(|owner_only| {
        a.answered(|store, context| {
            store.verify(&RequestContext { owner_only, ..context.clone() }, &tenures)
        })
    });
    let taken = Verify::NotOwner(Some(b.me.clone()));
    assert_eq!(ways[0][..3], [Verify::Held, Verify::Missing, taken]);
    assert!(matches!(ways[0][3], Verify::Failed(_)), "{ways:?}");
    assert_eq!(ways[0], ways[1]);
}

/// Who is told no is granted nothing, and nothing is noted of it.
#[test]
fn a_refused_acquire_writes_nothing() {
    let world = RedisWorld::new();
    let (mut a, mut b) = (Asker::alive(&world, "a"), Asker::alive(&world, "b"));
    let tenure = a.grant(&endpoint("e"));
    assert_eq!(b.acquire(&endpoint("e")), Acquire::HeldBy(a.me.clone()));
    assert_eq!(world.server.cli(&["EXISTS", "poll:grants:b"]), "0");
    assert_eq!(world.server.cli(&["GET", "poll:fence"]), tenure.fence.to_string());
}

/// CONTRACT: `poll:result:<endpoint>`, and "the same as JSON, at the same moment".
#[test]
fn a_result_is_stored_and_announced_with_the_fields_of_the_contract() {
    let mut world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let (e, f) = (a.grant(&endpoint("e")), a.grant(&endpoint("f")));
    let sample = Sample::failed("no route \"to\" host\n", Duration::from_millis(12));
    let light = Publication { interval: Duration::from_secs(30), sample, ..publication(&f, 6) };
    let certificate = Some(CertificateLeft { days: -3, is_short: true });
    let results = [Publication { certificate, ..publication(&e, 5) }, light];
    let stored = a.publish_all(&results);
    assert_eq!(stored, [Publish::Stored(None), Publish::Stored(None)]);
    let fields = |rows: [(&str, &str); 17]| -> BTreeMap<String, String> {
        rows.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    };
    let (e_fence, f_fence) = (e.fence.to_string(), f.fence.to_string());
    let good = fields([
        ("granted", &e_fence),
        ("fence", &e_fence),
        ("instance", "a"),
        ("ok", "1"),
        ("status", "200"),
        ("error", ""),
        ("started_at_ms", "5"),
        ("duration_ms", "7"),
        ("interval_ms", "500"),
        ("body", "hello"),
        ("cert_days", "-3"),
        ("cert_expiring", "1"),
        ("verdict", "ok"),
        ("since_ms", "5"),
        ("before_ms", "0"),
        ("failures", "0"),
        ("successes", "0"),
    ]);
    assert_eq!(hash(&world.server, "poll:result:e"), good);
    let bad = BTreeMap::from([
        ("ok", "0"),
        ("status", ""),
        ("fence", f_fence.as_str()),
        ("started_at_ms", "6"),
        ("duration_ms", "12"),
        ("interval_ms", "30000"),
        ("body", ""),
        ("cert_days", ""),
        ("cert_expiring", ""),
        ("verdict", "failing"),
        ("since_ms", "6"),
        ("failures", "1"),
    ]);
    for (name, value) in bad {
        assert_eq!(world.server.cli(&["HGET", "poll:result:f", name]), value, "{name}");
    }
    let error = world.server.cli(&["HGET", "poll:result:f", "error"]);
    assert_eq!(error, "no route \"to\" host\n");
    let announced = world.announcements();
    let expected = [
        serde_json::json!({"endpoint": "e", "fence": e.fence.get(), "instance": "a", "ok": 1,
            "status": 200, "error": null, "started_at_ms": 5, "duration_ms": 7,
            "interval_ms": 500, "cert_days": -3, "cert_expiring": 1, "db": 0, "body": "hello"}),
        serde_json::json!({"endpoint": "f", "fence": f.fence.get(), "instance": "a", "ok": 0,
            "status": null, "error": "no route \"to\" host\n", "started_at_ms": 6,
            "duration_ms": 12, "interval_ms": 30_000, "db": 0, "body": ""}),
    ];
    assert_eq!(announced, expected);
}

/// A poll that fails, of a session with this address.
fn failure(tenure: &Tenure, at: u64, address: &str) -> Publication {
    let id = tenure.endpoint.as_str();
    let json = serde_json::json!({"id": id, "address": address}).to_string();
    let session = Arc::new(Session::parse(id, json.as_bytes()).unwrap());
    let sample = Sample::failed("no \"route\"\n", Duration::from_millis(1));
    let judging = Judging { session: Some(session), ..Judging::default() };
    Publication { sample, judging, ..publication(tenure, at) }
}

/// CONTRACT: `poll:changes`, the stream and the channel.
#[test]
fn a_change_is_announced_as_json_on_a_channel_and_in_a_stream() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a \"host\"-1");
    let tenure = a.grant(&endpoint("e"));
    let mut listener = world.server.connect().unwrap();
    redis::cmd("SUBSCRIBE").arg("poll:changes").exec(&mut listener).unwrap();
    let failed = failure(&tenure, 1_700_000_000_001, "http://h/up?token=secret");
    let mut ok = publication(&tenure, 1_700_000_000_777);
    ok.judging.session = failed.judging.session.clone();
    a.publish_all(&[failed]);
    a.publish_all(&[ok]);
    let fence = tenure.fence.get();
    let expected = [
        serde_json::json!({"endpoint": "e", "address": "http://h/up", "verdict": "failing",
            "since_ms": 1_700_000_000_001_u64, "before_ms": null, "failures": 1, "status": null,
            "error": "no \"route\"\n", "fence": fence, "instance": "a \"host\"-1", "db": 0}),
        serde_json::json!({"endpoint": "e", "address": "http://h/up", "verdict": "ok",
            "since_ms": 1_700_000_000_777_u64, "before_ms": 1_700_000_000_001_u64, "failures": 0,
            "status": 200, "error": null, "fence": fence, "instance": "a \"host\"-1", "db": 0}),
    ];
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for expected in &expected {
        let heard = listener.recv_response().unwrap();
        let (_, channel, text): (String, String, String) = redis::from_redis_value(heard).unwrap();
        assert_eq!((channel.as_str(), &json(&text)), ("poll:changes", expected));
    }
    let stored = world.server.cli(&["XRANGE", "poll:changes", "-", "+"]);
    let stored: Vec<_> = stored.lines().filter(|it| it.starts_with('{')).map(json).collect();
    assert_eq!(stored, expected);
}

/// An older version writes a result without a verdict. What was decided stays, and the next result goes on from it.
#[test]
fn a_result_of_a_version_without_verdicts_leaves_the_verdict_alone() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    a.publish_all(&[failure(&tenure, 5, "h:1")]);
    let fence = tenure.fence.to_string();
    world.server.cli(&["HSET", "poll:result:e", "fence", &fence, "ok", "0", "started_at_ms", "6"]);
    a.publish_all(&[failure(&tenure, 7, "h:1")]);
    for (name, value) in [("verdict", "failing"), ("since_ms", "5"), ("failures", "2")] {
        assert_eq!(world.server.cli(&["HGET", "poll:result:e", name]), value, "{name}");
    }
    assert_eq!(world.server.cli(&["XLEN", "poll:changes"]), "1");
}

/// What another client wrote there is no verdict, and no count.
#[test]
fn odd_verdicts_and_counts_count_as_none() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    for (at, odd) in (1..).zip(["nan", "-5", "1e300", "", "OK", "9007199254740993"]) {
        let mut words = vec!["HSET", "poll:result:e"];
        let names = ["verdict", "since_ms", "before_ms", "failures", "successes"];
        names.iter().for_each(|it| words.extend([*it, odd]));
        world.server.cli(&words);
        let answer =
            a.answered(|store, context| store.publish(context, &[failure(&tenure, at, "h:1")]));
        let [Publish::Stored(Some(state))] = answer[..] else { panic!("{odd:?}: {answer:?}") };
        assert_eq!((state.verdict, state.failures), (Some(Verdict::Failing), 1), "{odd:?}");
        assert_eq!((state.since_ms, state.before_ms), (at, 0), "{odd:?}");
    }
}

/// CONTRACT: "A body that is not UTF-8 is stored as it is and announced lossily."
#[test]
fn a_body_that_is_not_utf8_is_stored_as_it_is() {
    let mut world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    let mut result = publication(&tenure, 5);
    result.sample.body = b"\xff\x00\r\n\x80".to_vec();
    let stored = a.publish_all(std::slice::from_ref(&result));
    assert_eq!(stored, [Publish::Stored(None)]);
    let body = world.server.query(&["HGET", "poll:result:e", "body"]).unwrap();
    assert_eq!(body, redis::Value::BulkString(result.sample.body));
    assert_eq!(world.announcements()[0]["body"], "\u{fffd}\0\r\n\u{fffd}");
}

/// G2: what was fenced has written nothing, not even the announcement's fields.
#[test]
fn a_refused_result_leaves_the_stored_one_untouched() {
    let mut world = RedisWorld::new();
    let (mut a, mut b) = (Asker::alive(&world, "a"), Asker::alive(&world, "b"));
    let old = a.grant(&endpoint("e"));
    a.publish(&old, 1);
    world.delete_node(&a.me);
    b.grant(&endpoint("e"));
    let before = hash(&world.server, "poll:result:e");
    assert_eq!(a.publish(&old, 2), Publish::Fenced);
    assert_eq!(hash(&world.server, "poll:result:e"), before);
}

/// R4: "an item that errs (wrong type, out of memory) does not spoil the others".
#[test]
fn a_lease_of_the_wrong_type_fails_alone() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let ids = ["e", "x", "g"].map(endpoint);
    let tenures: Vec<Tenure> = ids.iter().map(|it| a.grant(it)).collect();
    world.server.cli(&["DEL", "poll:lease:x"]);
    world.server.cli(&["LPUSH", "poll:lease:x", "1"]);
    let acquired = a.answered(|store, context| store.acquire(context, &ids));
    let [Acquire::Granted { .. }, Acquire::Failed(why), Acquire::Granted { .. }] = &acquired[..]
    else {
        panic!("{acquired:?}");
    };
    assert!(why.contains("WRONGTYPE"), "{why}");
    let fence = |it: &Acquire| match it {
        Acquire::Granted { fence, .. } => *fence,
        _ => tenures[1].fence,
    };
    let tenures: Vec<Tenure> =
        ids.iter().zip(&acquired).map(|(id, it)| Tenure::new(id.clone(), fence(it))).collect();
    let renewed = a.answered(|store, context| store.renew(context, &items(&tenures)));
    assert!(matches!(renewed[..], [Renew::Extended, Renew::Failed(_), Renew::Extended]));
    let verified = a.answered(|store, context| store.verify(context, &tenures));
    assert!(matches!(verified[..], [Verify::Held, Verify::Failed(_), Verify::Held]));
    let results: Vec<_> = tenures.iter().map(|it| publication(it, 1)).collect();
    let published = a.publish_all(&results);
    assert!(matches!(
        published[..],
        [Publish::Stored(None), Publish::Failed(_), Publish::Stored(None)]
    ));
    let released = a.store.release(&a.context(), &tenures, &[]).unwrap();
    assert_eq!(released, [Release::Released, Release::NotOwner, Release::Released]);
    assert_eq!(
        world.server.cli(&["TYPE", "poll:lease:x"]),
        "list",
        "a key of another program is gone"
    );
}

/// R4, with the other key of an item.
#[test]
fn a_result_of_the_wrong_type_fails_alone() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    world.server.cli(&["SET", "poll:result:x", "1"]);
    let ids = ["e", "x"].map(endpoint);
    let acquired = a.answered(|store, context| store.acquire(context, &ids));
    assert!(matches!(acquired[..], [Acquire::Granted { .. }, Acquire::Failed(_)]), "{acquired:?}");
    assert_eq!(a.owner(&ids[1]), None, "granted without a fence");
    let mut tenures: Vec<Tenure> = vec![a.grant(&ids[0]), a.grant(&endpoint("y"))];
    world.server.cli(&["DEL", "poll:result:y"]);
    world.server.cli(&["SET", "poll:result:y", "1"]);
    tenures.swap(0, 1);
    let renewed = a.answered(|store, context| store.renew(context, &items(&tenures)));
    assert!(matches!(renewed[..], [Renew::Failed(_), Renew::Extended]), "{renewed:?}");
    let verified = a.answered(|store, context| store.verify(context, &tenures));
    assert!(matches!(verified[..], [Verify::Failed(_), Verify::Held]), "{verified:?}");
    let results: Vec<_> = tenures.iter().map(|it| publication(it, 1)).collect();
    let published = a.publish_all(&results);
    assert!(matches!(published[..], [Publish::Failed(_), Publish::Stored(None)]), "{published:?}");
    assert_eq!(a.store.revoke(&a.me, true, TIMEOUT).unwrap(), Some(2));
}

/// Any key may be of any type: one typing error of an operator must not stop the fleet.
#[test]
fn a_drain_set_of_the_wrong_type_stops_no_heartbeat() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    world.server.cli(&["SET", "poll:drain", "a"]);
    assert_eq!(a.beat().weight, Weight(1));
}

#[test]
fn a_node_with_a_garbage_weight_counts_as_one() {
    let world = RedisWorld::new();
    let a = Asker::alive(&world, "a");
    world.server.cli(&["SET", "poll:node:b", "many"]);
    world.server.query(&[&b"SET"[..], b"poll:node:c", b"\xff"]).unwrap();
    world.server.query(&[&b"SET"[..], b"poll:node:\xff", b"1"]).unwrap();
    world.server.cli(&["SET", "poll:node:d", "5000000"]);
    let live = a.live();
    let live: Vec<_> = live.iter().map(|(id, weight)| (id.as_str(), weight.0)).collect();
    assert_eq!(live, [("a", 1), ("b", 1), ("c", 1), ("d", 1_000)]);
}

/// FR-009: sessions come from strangers.
#[test]
fn a_session_of_another_type_is_told_by_its_type() {
    let world = RedisWorld::new();
    world.server.cli(&["HSET", "session:h", "a", "b"]);
    world.server.cli(&["SET", "session:ok", "{}"]);
    world.server.cli(&["SET", "sessionx", "{}"]);
    world.server.cli(&["SET", "poll:session:y", "{}"]);
    let found = sessions_of(&*world.store());
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found["h"], RawSession::WrongType("hash".into()));
    assert_eq!(found["ok"], RawSession::Value(b"{}".to_vec()));
}

/// A prefix is text, not a pattern.
#[test]
fn a_session_prefix_with_pattern_characters_matches_only_itself() {
    let server = RedisServer::start();
    let keys = leasehold::store::keys::Keys::new("poll", "s[ab]*?\\:");
    let store = leasehold::store::redis::RedisStore::new(&server.url(), "redis", keys).unwrap();
    for key in ["s[ab]*?\\:one", "sa:two", "sb*?\\:three", "s[ab]xx\\:four"] {
        server.cli(&["SET", key, "{}"]);
    }
    let found = sessions_of(&store);
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), ["one"]);
}

/// Words from strangers are passed over, and so is a word that is not meant as one.
#[test]
fn a_malformed_word_is_passed_over() {
    let world = RedisWorld::new();
    let a = Asker::alive(&world, "a");
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    let huge = format!(r#"{{"from":"{}"}}"#, "x".repeat(300_000));
    let noise: [&[u8]; 5] = [b"look", b"\xff\x00", b"{}", b"[[[[", huge.as_bytes()];
    for word in noise {
        world.server.query(&[b"PUBLISH", &b"poll:wake"[..], word]).unwrap();
    }
    world.server.cli(&["PUBLISH", "poll:wake:a", r#"{"from":"b"}"#]);
    let mut heard = None;
    for _ in 0..=noise.len() {
        heard = heard.or(subscription.next(TIMEOUT).unwrap());
    }
    assert!(matches!(heard, Some(Push::Message(it)) if it.from.as_str() == "b"));
}

/// `SCRIPT FLUSH` costs a round, never an error.
#[test]
fn forgotten_scripts_cost_no_error() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(a.renew(&tenure), Renew::Extended);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = world.server.connect().unwrap();
            while !over.load(Ordering::Relaxed) {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
            }
        });
        for n in 0..200 {
            assert_eq!(a.renew(&tenure), Renew::Extended);
            assert_eq!(a.publish(&tenure, n), Publish::Stored(None));
            assert!(a.beat().unbroken);
            a.owner(&endpoint("e")).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Servers on which EVALSHA was renamed away.
#[test]
fn a_server_without_evalsha_is_asked_with_eval() {
    let server = RedisServer::start_with(&["--rename-command", "EVALSHA", ""]);
    let mut a = Asker::at(&server.url(), "a");
    a.beat();
    a.grant(&endpoint("e"));
}

/// CONTRACT: `redis://…/DB` and `unix://`.
#[test]
fn a_database_number_and_a_unix_socket_lead_to_the_right_place() {
    let server = RedisServer::start();
    let mut a = Asker::at(&format!("redis://127.0.0.1:{}/3", server.port()), "a");
    a.beat();
    assert_eq!(server.cli(&["EXISTS", "poll:node:a"]), "0");
    assert!(server.cli(&["INFO", "keyspace"]).contains("db3:"));
    let mut b = Asker::at(&server.unix_url(), "b");
    b.beat();
    b.grant(&endpoint("e"));
    assert_eq!(server.cli(&["GET", "poll:lease:e"]), "b");
    assert!(
        matches!(a.acquire(&endpoint("e")), Acquire::Granted { .. }),
        "one database is another"
    );
}

/// The password is said on every new connection, over a unix socket too.
#[test]
fn a_password_is_sent_over_a_unix_socket_and_after_a_reconnect() {
    let server = RedisServer::start_with(&["--requirepass", "hunter2"]);
    let mut b = Asker::at(&format!("{}?pass=hunter2&db=2", server.unix_url()), "b");
    b.beat();
    server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(b.beat().unbroken);
}

/// A clock set back would keep a dead instance and its leases for as long as the step.
#[test]
fn a_heartbeat_or_lease_with_too_long_an_end_is_cut_by_whoever_looks() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    a.grant(&endpoint("e"));
    for (key, longest) in [("poll:node:a", 30_000), ("poll:lease:e", 30_000)] {
        assert_eq!(world.server.cli(&["PEXPIRE", key, "3600000"]), "1");
        a.live();
        a.store.leases(&[endpoint("e")], TIMEOUT).unwrap();
        let left: u64 = world.server.cli(&["PTTL", key]).parse().unwrap();
        assert!(left <= longest, "{key} lasts {left} ms");
    }
}
