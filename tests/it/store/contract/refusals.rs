//! Servers that refuse: no memory, the wrong role, the wrong moment, the wrong user.

use leasehold::model::{Tenure, Weight};
use leasehold::store::{
    Acquire, Fault, HeartbeatReply, PeerMessage, Publish, Push, Release, Renew, RequestContext,
    Store, StoreError, Verify,
};

use crate::store::contract::asker::{Asker, endpoint, items, publication};
use crate::store::contract::infos::{info, tells};
use crate::store::contract::world::{RedisWorld, TIMEOUT, TTL, store_at};
use testkit::redis::{RedisServer, eventually, tells_reading};

/// FINDINGS M: OOM in a batch. What is held can be kept without memory.
#[test]
fn without_memory_nothing_is_granted_and_what_is_held_is_kept() {
    let world = RedisWorld::new();
    let (mut a, mut b) = (Asker::alive(&world, "a"), Asker::alive(&world, "b"));
    let (kept, given) = (a.grant(&endpoint("e")), a.grant(&endpoint("g")));
    let also_given = a.grant(&endpoint("h"));
    a.publish(&kept, 1);
    world.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = a.acquire(&endpoint("f"));
    assert!(matches!(&refused, Acquire::Failed(why) if why.contains("OOM")), "{refused:?}");
    assert_eq!(a.owner(&endpoint("f")), None);
    assert_eq!(a.renew(&kept), Renew::Extended);
    assert_eq!(a.verify(&kept), Verify::Held);
    assert!(a.beat().unbroken, "the heartbeat ended");
    let published = a.publish(&kept, 2);
    assert!(matches!(&published, Publish::Failed(why) if why.contains("OOM")), "{published:?}");
    assert_eq!(world.server.cli(&["HGET", "poll:result:e", "started_at_ms"]), "1");
    assert_eq!(a.release(&given), Release::Released);
    assert_eq!(a.free(&also_given), Release::Released);
    world.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    b.grant(&endpoint("f"));
}

/// R4: what was released stays so, however little memory there was for it: no renewal that was asked for before
/// brings it back.
#[test]
fn without_memory_what_is_released_does_not_come_back() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenures = ["e", "f"].map(|it| a.grant(&endpoint(it)));
    let before = a.context();
    world.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(a.release(&tenures[0]), Release::Released);
    assert_eq!(a.free(&tenures[1]), Release::Released);
    world.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let late = a.store.renew(&before, &items(&tenures)).unwrap().answer.unwrap();
    assert_eq!(late, [Renew::NotOwner(None), Renew::NotOwner(None)]);
}

/// A clock that is behind costs a write to remember; a renewal must not depend on it.
#[test]
fn without_memory_what_is_held_is_kept_on_a_server_whose_clock_is_behind() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    a.observe_fence(a.stamp.unwrap().server_us + 3_600_000_000);
    assert_eq!(a.renew(&tenure), Renew::Extended);
}

fn wait_for_link(replica: &RedisServer) {
    let info = || replica.cli(&["INFO", "replication"]);
    eventually(|| info().contains("master_link_status:up"), info);
}

/// "Renew script on a key the replica lacks returns 0, not an error".
#[test]
fn a_replica_is_an_error_and_never_an_answer() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let (held, missing) = (a.grant(&endpoint("e")), a.grant(&endpoint("f")));
    world.server.cli(&["DEL", "poll:lease:f"]);
    let port = world.server.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    wait_for_link(&replica);
    assert_read_only(&store_at(&replica.url()), &a, &[held, missing]);
}

/// Connections survive demotions.
#[test]
fn a_demoted_master_is_an_error_and_never_an_answer() {
    let (world, other) = (RedisWorld::new(), RedisServer::start());
    let mut a = Asker::alive(&world, "a");
    let (held, missing) = (a.grant(&endpoint("e")), a.grant(&endpoint("f")));
    world.server.cli(&["DEL", "poll:lease:f"]);
    world.server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    assert_read_only(&*a.store, &a, &[held, missing]);
}

fn assert_read_only(store: &dyn Store, a: &Asker, tenures: &[Tenure]) {
    let context = a.context();
    let mut errors: Vec<StoreError> = vec![];
    errors.push(store.heartbeat(&context, TTL, Weight(1), None).unwrap_err());
    for tenure in tenures {
        let (one, id) = (std::slice::from_ref(tenure), std::slice::from_ref(&tenure.endpoint));
        errors.push(store.acquire(&context, id).unwrap_err());
        errors.push(store.renew(&context, &items(one)).unwrap_err());
        errors.push(store.verify(&context, one).unwrap_err());
        errors.push(store.publish(&context, &[publication(tenure, 1)]).unwrap_err());
        errors.push(store.release(&context, one, &[]).unwrap_err());
        let owner_only = RequestContext { owner_only: true, ..context.clone() };
        errors.push(store.release(&owner_only, one, &[]).unwrap_err());
    }
    errors.push(store.revoke(&a.me, true, TIMEOUT).unwrap_err());
    for error in errors {
        assert_eq!(error.fault, Fault::Refused, "{error}");
        assert!(error.reason.contains("READONLY"), "{error}");
    }
}

/// R5: the epoch is asked for inside every script, not once per connection.
#[test]
fn a_promotion_under_a_living_connection_begins_a_hold_off() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    let before = a.stamp.unwrap().epoch;
    world.server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    world.server.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(a.acquire(&endpoint("f")), Acquire::HoldOff);
    assert!(a.stamp.unwrap().epoch > before);
    assert_eq!(a.renew(&tenure), Renew::Extended);
}

/// `BUSY` while a script hangs; it passes.
#[test]
fn a_busy_server_is_an_error_that_passes() {
    let server = RedisServer::start_with(&["--lua-time-limit", "50"]);
    let mut a = Asker::at(&server.url(), "a");
    a.beat();
    let tenure = a.grant(&endpoint("e"));
    let (port, pid) = (server.port(), server.pid());
    std::thread::scope(|scope| {
        scope.spawn(|| server.cli(&["EVAL", "while true do end", "0"]));
        eventually(
            || a.store.verify(&a.context(), &[]).is_err_and(|it| it.reason.contains("BUSY")),
            || format!("server {pid} on {port} never was busy"),
        );
        let error = a.store.renew(&a.context(), &items(std::slice::from_ref(&tenure))).unwrap_err();
        assert_eq!(error.fault, Fault::Refused, "{error}");
        assert_eq!(server.cli(&["SCRIPT", "KILL"]), "OK");
    });
    assert_eq!(a.renew(&tenure), Renew::Extended);
}

/// `LOADING` after a restart; it passes.
#[test]
fn a_loading_server_is_an_error_that_passes() {
    // It answers once for every 2 MB that it has read.
    let mut server = RedisServer::start_with(&["--key-load-delay", "50", "--rdbcompression", "no"]);
    let mut a = Asker::at(&server.url(), "a");
    a.beat();
    let tenure = a.grant(&endpoint("e"));
    server.cli(&["DEBUG", "POPULATE", "20000", "key", "2000"]);
    server.save();
    server.restart();
    let _ = a.store.wake(&[], TIMEOUT);
    let error = a.store.renew(&a.context(), &items(std::slice::from_ref(&tenure))).unwrap_err();
    assert_eq!(error.fault, Fault::Refused, "{error}");
    assert!(error.reason.contains("LOADING"), "{error}");
    let last = || a.store.verify(&a.context(), &[]).map(|it| it.stamp);
    eventually(|| last().is_ok(), || format!("still {:?}", last()));
    assert_eq!(a.renew(&tenure), Renew::Extended);
}

fn refusal(url: &str) -> StoreError {
    let a = Asker::at(url, "a");
    let error = a.store.heartbeat(&a.context(), TTL, Weight(1), None).unwrap_err();
    assert_eq!(error.fault, Fault::Misconfigured, "{error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "the password is shown: {shown}");
    error
}

/// A password is either right or needs a person; it is never shown.
#[test]
fn a_wrong_or_missing_password_is_told_without_showing_it() {
    let server = RedisServer::start_with(&["--requirepass", "hunter2-right"]);
    let at = |user: &str| format!("redis://{user}127.0.0.1:{}/0", server.port());
    for user in [":hunter2-wrong@", "joe:hunter2@", ""] {
        let error = refusal(&at(user));
        assert!(error.reason.contains("check the user and the password"), "{user}: {error}");
    }
    Asker::at(&at(":hunter2-right@"), "a").beat();
    let open = RedisServer::start();
    let error = refusal(&format!("redis://:hunter2@127.0.0.1:{}/0", open.port()));
    assert!(error.reason.contains("wants no password"), "{error}");
}

/// A user with a name, and the permissions a user may lack.
#[test]
fn missing_permissions_are_told_with_the_way_out() {
    let server = RedisServer::start();
    let user = |name: &str, rules: &[&str]| {
        let mut command = vec!["ACL", "SETUSER", name, "on", ">hunter2", "resetchannels"];
        command.extend(rules);
        assert_eq!(server.cli(&command), "OK");
        format!("redis://{name}:hunter2@127.0.0.1:{}/0", server.port())
    };
    Asker::at(&user("all", &["~poll:*", "&poll:*", "+@all"]), "a").beat();
    for (name, rules) in [
        ("nothing", &["~*", "&*", "-@all"][..]),
        ("noinfo", &["~*", "&*", "+@all", "-info"]),
        ("nokeys", &["~other:*", "&*", "+@all"]),
        ("nohset", &["~*", "&*", "+@all", "-hset", "-hmget"]),
        ("noscripts", &["~*", "&*", "+@all", "-eval", "-evalsha"]),
    ] {
        let error = refusal(&user(name, rules));
        assert!(error.reason.contains("permissions"), "{name}: {error}");
    }
    let deaf = user("deaf", &["~*", "+@all"]);
    let a = Asker::at(&deaf, "a");
    let subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    assert!(
        subscription.receives_changes() && !subscription.receives_messages(),
        "what is allowed is kept"
    );
    let refused = subscription.refused().unwrap();
    assert!(refused.contains("ACL SETUSER deaf '&poll:*' +subscribe +publish"), "{refused}");
}

/// The rule in docs/redis.md is enough for everything a daemon does, and lets it write no session.
#[test]
fn a_user_with_just_the_rights_of_the_page_can_do_everything() {
    let server = RedisServer::start();
    server.cli(&["SET", "session:s", "{}"]);
    let url = server.give_rule("leasehold");
    let mut a = Asker::at(&url, "a");
    a.store.inspect(TIMEOUT).unwrap();
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    assert!(subscription.receives_changes(), "changes are pushed under this rule");
    a.beat();
    server.cli(&["HSET", "poll:epoch", "since_ms", "1"]);
    let tenure = a.grant(&endpoint("s"));
    assert_eq!(a.renew(&tenure), Renew::Extended);
    assert_eq!(a.verify(&tenure), Verify::Held);
    assert_eq!(a.publish(&tenure, 1), Publish::Stored(None));
    assert_eq!(a.store.session_names(0, TIMEOUT).unwrap().found, ["s"]);
    assert!(a.store.sessions(&[endpoint("s")], TIMEOUT).unwrap()[0].is_some());
    assert_eq!(a.live().len(), 1);
    assert_eq!(a.owner(&endpoint("s")).as_deref(), Some("a"));
    let word = PeerMessage::new(&a.me, None);
    assert_eq!(a.store.release(&a.context(), &[tenure], &[word]).unwrap(), [Release::Released]);
    assert!(subscription.next(TIMEOUT).unwrap().is_some());
    assert_eq!(a.store.revoke(&a.me, true, TIMEOUT).unwrap(), Some(0));
    a.withdraw();
    if tells_reading() {
        let denied = server.cli(&["ACL", "DRYRUN", "leasehold", "SET", "session:s", "x"]);
        assert!(denied.contains("permissions"), "{denied}");
    }
}

/// Inside a script a denied key is a plain ERR, whatever the key.
#[test]
fn a_key_denied_inside_a_script_is_told_as_a_missing_permission() {
    let world = RedisWorld::new();
    let mut b = Asker::alive(&world, "b");
    b.grant(&endpoint("e"));
    let rules = ["~poll:epoch", "~poll:node:a", "~poll:drain", "~poll:lease:*", "~poll:result:*"];
    let mut command = vec!["ACL", "SETUSER", "narrow", "on", ">hunter2", "+@all", "&*"];
    command.extend(rules);
    assert_eq!(world.server.cli(&command), "OK");
    let mut a =
        Asker::at(&format!("redis://narrow:hunter2@127.0.0.1:{}/0", world.server.port()), "a");
    a.beat();
    let error = a.store.acquire(&a.context(), &[endpoint("e")]).unwrap_err();
    assert_eq!(error.fault, Fault::Misconfigured, "{error}");
}

/// R14: "leases have a TTL and are the first to go".
#[test]
fn a_server_that_may_evict_leases_is_refused() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    store.inspect(TIMEOUT).unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    store.inspect(TIMEOUT).unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let error = store.inspect(TIMEOUT).unwrap_err();
    assert_eq!(error.fault, Fault::Misconfigured);
    assert!(error.reason.contains("volatile-lru"), "{error}");
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    store.inspect(TIMEOUT).unwrap();
}

/// A user who may do all but these.
fn without(server: &RedisServer, refused: &[&str]) -> String {
    let mut rule = vec!["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all"];
    rule.extend(refused);
    assert_eq!(server.cli(&rule), "OK");
    format!("redis://poor:pw@127.0.0.1:{}/0", server.port())
}

/// A change that cannot be announced must not keep the result from being stored.
#[test]
fn a_result_is_stored_where_its_change_cannot_be_announced() {
    let server = RedisServer::start();
    let odd_key = ["SET", "poll:changes", "of another type"];
    for (refused, spoil) in [
        (&["-xadd"][..], None),
        (&["-publish"], None),
        (&["resetkeys", "~poll:[^c]*", "~session:*", "resetchannels", "&poll:r*"], None),
        (&[], Some(odd_key)),
    ] {
        server.flushall();
        spoil.inspect(|it| drop(server.cli(it)));
        let mut a = Asker::at(&without(&server, refused), "a");
        a.beat();
        server.cli(&["HSET", "poll:epoch", "since_ms", "1"]);
        let tenure = a.grant(&endpoint("e"));
        let mut result = publication(&tenure, 7);
        result.sample.ok = false;
        assert_eq!(a.publish_all(&[result]), [Publish::Stored(None)], "{refused:?}");
        assert_eq!(server.cli(&["HGET", "poll:result:e", "verdict"]), "failing", "{refused:?}");
        assert_eq!(server.cli(&["HGET", "poll:result:e", "since_ms"]), "7", "{refused:?}");
    }
}

/// What a subscription is pushed of a write, a removal and a heartbeat; messages arrive in any case.
fn pushes(server: &RedisServer, url: &str) -> Vec<Push> {
    let mut a = Asker::at(url, "a");
    let mut subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    server.cli(&["SET", "session:s", "{}"]);
    server.cli(&["DEL", "session:s"]);
    a.beat();
    let last = PeerMessage::new(&a.me, None);
    a.store.wake(std::slice::from_ref(&last), TIMEOUT).unwrap();
    let mut heard = Vec::new();
    loop {
        match subscription.next(TIMEOUT).unwrap() {
            Some(Push::Message(word)) if word == last => break,
            Some(news) => heard.push(news),
            None => panic!("a message does not reach {url}"),
        }
    }
    assert_eq!(subscription.receives_changes(), !heard.is_empty());
    heard
}

/// Managed servers refuse one thing or another, and old ones do not know them: found out, and done without.
#[test]
fn a_subscription_makes_do_with_what_the_server_allows() {
    let server = RedisServer::start();
    let old = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let whole = pushes(&server, &server.url());
    assert_eq!(whole.len(), 3, "{whole:?}");
    let refuses = ["-client", "-config"];
    assert_eq!(pushes(&server, &without(&server, &refuses[..1])), []);
    assert_eq!(pushes(&server, &without(&server, &refuses)), []);
    assert_eq!(pushes(&old, &old.url()), []);
    for server in [&server, &old] {
        server.cli(&["CONFIG", "SET", "notify-keyspace-events", "Kg$xs"]);
        let heard = pushes(server, &without(server, &refuses[..1]));
        assert_eq!(heard, whole, "by keyspace events");
        // Some kinds of events only would leave changes unheard, which is worse than none.
        server.cli(&["CONFIG", "SET", "notify-keyspace-events", "Kg$s"]);
        assert_eq!(pushes(server, &without(server, &refuses[..1])), []);
        server.cli(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]);
        assert_eq!(pushes(server, &without(server, &refuses)), [], "it cannot know");
    }
}

/// R13: a heartbeat is worth more than what goes with it.
#[test]
fn a_key_of_another_type_in_the_infos_place_spoils_no_heartbeat() {
    let world = RedisWorld::new();
    let mut a = Asker::new(&world, "a", true);
    world.server.cli(&["SET", "poll:info:a", "mine"]);
    let first = tells(&mut a, &info(1), TTL);
    assert_eq!(first, HeartbeatReply { unbroken: false, weight: Weight(1) });
    assert_eq!(tells(&mut a, &info(1), TTL), HeartbeatReply { unbroken: true, weight: Weight(1) });
    assert_eq!(world.server.cli(&["GET", "poll:info:a"]), "mine");
    assert_eq!(world.server.cli(&["PTTL", "poll:info:a"]), "-1", "another client wrote it");
    assert_eq!(a.live().len(), 1);
}

/// A user that may not write hashes can still keep its heartbeat, and a server out of memory keeps it as well.
#[test]
fn what_cannot_be_written_beside_a_heartbeat_spoils_none() {
    let world = RedisWorld::new();
    let mut a = Asker::alive(&world, "a");
    world.server.cli(&["ACL", "SETUSER", "default", "-hset"]);
    assert!(tells(&mut a, &info(1), TTL).unbroken);
    world.server.cli(&["ACL", "SETUSER", "default", "+hset"]);
    assert!(tells(&mut a, &info(1), TTL).unbroken);
    world.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(tells(&mut a, &info(2), TTL).unbroken);
    world.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let left: i64 = world.server.cli(&["PTTL", "poll:info:a"]).parse().unwrap();
    assert!((1..=30_000).contains(&left), "{left}");
}
