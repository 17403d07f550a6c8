//! What only a real server does to roles: names, types, memory.

use std::time::Duration;

use leasehold::model::{FenceToken, Tenure};
use leasehold::store::{Acquire, Release, Renew, Verify};

use crate::store::contract::asker::{Asker, endpoint, only};
use crate::store::contract::world::{RedisWorld, TIMEOUT, World};

/// 003, 004: `leader:{role}` holds the instance id, `…heartbeat:<instance-id>` the time in milliseconds.
#[test]
fn the_keys_of_a_role_are_those_of_the_documents() {
    let world = RedisWorld::of_roles();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("cleanup"));
    let mut keys: Vec<String> =
        world.server.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["leader:cleanup", "leader:epoch", "leader:heartbeat:a"]);
    assert_eq!(world.server.cli(&["GET", "leader:cleanup"]), "a");
    let beaten: u64 = world.server.cli(&["GET", "leader:heartbeat:a"]).parse().unwrap();
    assert_eq!(beaten, tenure.fence.get() / 1_000, "the same moment as the grant");
    let field = |it: &str| world.server.cli(&["HGET", "leader:epoch", it]);
    assert_eq!(field("lease_ttl_ms:cleanup"), "30000");
    assert_eq!(field("margin_ms:cleanup"), "1000");
    assert_eq!(field("term:cleanup"), tenure.fence.to_string());
    assert_eq!(field("leader:cleanup"), "a");
}

/// R4: nobody's key is overwritten because a role has its name.
#[test]
fn a_role_whose_key_is_of_another_type_is_led_by_nobody() {
    let world = RedisWorld::of_roles();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.server.cli(&["DEL", "leader:e"]);
    world.server.cli(&["LPUSH", "leader:e", "1"]);
    assert!(matches!(a.acquire(&endpoint("e")), Acquire::Failed(why) if why.contains("WRONGTYPE")));
    assert!(matches!(a.renew(&tenure), Renew::Failed(_)));
    assert!(matches!(a.verify(&tenure), Verify::Failed(_)));
    assert_eq!(a.release(&tenure), Release::NotOwner);
    assert_eq!(only(a.store.role_statuses(&[endpoint("e")], TIMEOUT).unwrap()).leader, None);
    assert_eq!(world.server.cli(&["TYPE", "leader:e"]), "list", "a key of another program is gone");
}

/// Any key may be of any type: what cannot be read proves nothing, and is written over by its owner.
#[test]
fn a_heartbeat_of_another_type_or_with_garbage_proves_nothing() {
    let world = RedisWorld::of_roles();
    let (mut a, mut b) = (Asker::alive(&world, "a"), Asker::alive(&world, "b"));
    let tenure = a.grant(&endpoint("e"));
    for garbage in [["LPUSH", "1"], ["SET", "yesterday"], ["SET", ""], ["SET", "nan"]] {
        world.server.cli(&["DEL", "leader:heartbeat:a"]);
        world.server.cli(&[garbage[0], "leader:heartbeat:a", garbage[1]]);
        assert!(
            !only(b.store.role_statuses(&[endpoint("e")], TIMEOUT).unwrap()).is_stale,
            "{garbage:?}"
        );
        assert_eq!(b.acquire(&endpoint("e")), Acquire::HeldBy(a.me.clone()), "{garbage:?}");
        assert_eq!(a.renew(&tenure), Renew::Extended, "{garbage:?}");
        let beaten = world.server.cli(&["GET", "leader:heartbeat:a"]);
        assert!(beaten.parse::<u64>().is_ok_and(|it| it > 1_700_000_000_000), "{beaten}");
    }
}

/// "a leader that cannot write its heartbeat steps down by itself": its renewal fails as a whole.
#[test]
fn without_memory_for_the_heartbeat_no_role_is_kept_or_granted() {
    let world = RedisWorld::of_roles();
    let mut a = Asker::alive(&world, "a");
    let tenure = a.grant(&endpoint("e"));
    a.verify(&Tenure::new(endpoint("f"), FenceToken::new(0)));
    world.server.cli(&["PEXPIRE", "leader:e", "12000"]);
    let before = world.server.cli(&["GET", "leader:heartbeat:a"]);
    world.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = a.renew(&tenure);
    assert!(matches!(&refused, Renew::Failed(why) if why.contains("OOM")), "{refused:?}");
    let left: u64 = world.server.cli(&["PTTL", "leader:e"]).parse().unwrap();
    assert!(left <= 12_000, "kept for {left} ms without a heartbeat");
    assert_eq!(world.server.cli(&["GET", "leader:heartbeat:a"]), before);
    assert!(matches!(a.acquire(&endpoint("f")), Acquire::Failed(why) if why.contains("OOM")));
    assert_eq!(world.server.cli(&["EXISTS", "leader:f"]), "0");
    assert_eq!(a.release(&tenure), Release::Released, "giving up needs no memory");
    assert_eq!(world.server.cli(&["EXISTS", "leader:e", "leader:heartbeat:a"]), "0");
    world.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    a.grant(&endpoint("f"));
}

/// A key that some other program wrote, on a store that has never seen an election.
#[test]
fn a_role_that_nobody_named_and_that_never_ends_is_no_reason_to_look_again_and_again() {
    let world = RedisWorld::of_roles();
    world.server.cli(&["SET", "leader:e", "foreigner"]);
    let status = only(world.store().role_statuses(&[endpoint("e")], TIMEOUT).unwrap());
    assert!(status.leader.is_some_and(|it| it.left > Duration::from_secs(3_600)));
    assert_eq!(world.server.cli(&["PTTL", "leader:e"]), "-1", "cut to a TTL nobody named");
}
