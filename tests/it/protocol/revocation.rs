//! R16 on a whole fleet in memory: who is revoked, how soon its leases are taken over, and who is spared.

use std::time::Duration;

use leasehold::store::memory::MemoryStore;
use leasehold::store::{Hint, Revocation, RevocationReply, Revocations};
use testkit::cluster::{Cluster, TTL, endpoint};

const SUSPECT_AFTER: Duration = Duration::from_secs(1);
/// V + margin for leases of 3 s.
const WAIT: Duration = Duration::from_millis(1_130);
const ENDPOINTS: usize = 12;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three settled instances that may revoke each other.
fn fleet() -> Cluster {
    let mut cluster = Cluster::empty(ENDPOINTS).revoking(SUSPECT_AFTER);
    ["a", "b", "c"].iter().for_each(|it| cluster.join(it));
    cluster.pass(3 * TTL);
    assert!(cluster.is_balanced(ENDPOINTS), "{:?}", cluster.counts());
    cluster
}

fn revocations(cluster: &Cluster) -> usize {
    cluster.server.journal().iter().filter(|it| **it == "revoke_instance").count()
}

/// How long after the fault `name` is without everything that it had, and the others have it.
fn taken_over_within(cluster: &mut Cluster, orphans: &[String], limit: Duration) -> Duration {
    cluster.pass_until(limit, |cluster| {
        let owned = |it: &String| {
            let others = cluster.members.iter().filter(|member| member.0 != "a");
            others.map(|it| it.1).any(|member| member.table.may_poll(&endpoint(it)))
        };
        orphans.iter().all(owned)
    })
}

fn held_by_a(cluster: &Cluster) -> Vec<String> {
    let held: Vec<String> =
        cluster.member("a").table.endpoints().iter().map(ToString::to_string).collect();
    assert_eq!(held.len(), ENDPOINTS / 3);
    held
}

#[test]
fn r16_a_killed_instance_is_replaced_when_its_connections_are_gone() {
    let mut cluster = fleet();
    let orphans = held_by_a(&cluster);
    cluster.kill("a");
    let took = taken_over_within(&mut cluster, &orphans, TTL);
    assert!(took > WAIT && took < WAIT + ms(800), "{took:?}");
    assert!(cluster.is_balanced(ENDPOINTS));
}

#[test]
fn r16_a_host_that_is_gone_is_replaced_when_it_was_silent_for_long_enough() {
    let mut cluster = fleet();
    let orphans = held_by_a(&cluster);
    cluster.crash("a");
    let took = taken_over_within(&mut cluster, &orphans, TTL);
    assert!(took > SUSPECT_AFTER - ms(250) + WAIT && took < TTL - ms(200), "{took:?}");
}

#[test]
fn r16_an_instance_that_stood_still_comes_back_and_gets_its_share() {
    let mut cluster = fleet();
    let orphans = held_by_a(&cluster);
    cluster.freeze("a", true);
    taken_over_within(&mut cluster, &orphans, TTL);
    cluster.pass(TTL);
    cluster.freeze("a", false);
    cluster.pass_until(Duration::from_secs(5), |it| it.is_balanced(ENDPOINTS));
}

#[test]
fn r16_a_healthy_instance_that_is_revoked_has_its_share_back_within_five_seconds() {
    let mut cluster = fleet();
    let orphans = held_by_a(&cluster);
    let suspect = cluster.member("a").table.instance().clone();
    let revocation = Revocation { suspect, hint: Hint::Operator, not_after_us: 0 };
    let reply = MemoryStore::new(&cluster.server).revoke_instance(&revocation, TTL).unwrap();
    assert!(matches!(reply, RevocationReply::Revoked(_)), "{reply:?}");
    let is_empty = |it: &Cluster| it.owned("a") == 0;
    let learned = cluster.pass_until(TTL, is_empty);
    assert!(learned <= ms(300), "it asks often enough to learn of it soon: {learned:?}");
    let back = cluster.pass_until(Duration::from_secs(5), |it| it.is_balanced(ENDPOINTS));
    assert!(learned + back <= Duration::from_secs(5));
    assert!(orphans.iter().all(|it| cluster.holder(&endpoint(it)).is_some()));
}

/// A Redis that does not answer makes everybody look dead.
#[test]
fn r16_nobody_is_revoked_while_redis_does_not_answer_nor_right_after() {
    let mut cluster = fleet();
    for cut in [true, false] {
        ["a", "b", "c"].iter().for_each(|it| cluster.cut_off(it, cut));
        cluster.pass(2 * TTL);
    }
    cluster.pass(4 * TTL);
    assert_eq!(revocations(&cluster), 0);
    assert_eq!(cluster.owned_total(), ENDPOINTS);
}

#[test]
fn r16_nobody_is_revoked_when_the_whole_fleet_stood_still() {
    let mut cluster = fleet();
    for frozen in [true, false] {
        ["a", "b", "c"].iter().for_each(|it| cluster.freeze(it, frozen));
        cluster.pass(2 * TTL);
    }
    cluster.pass(4 * TTL);
    assert_eq!(revocations(&cluster), 0);
}

#[test]
fn r16_an_instance_that_stands_still_for_less_is_not_revoked() {
    let mut cluster = fleet();
    for frozen in [true, false] {
        cluster.freeze("a", frozen);
        cluster.pass(ms(650));
    }
    cluster.pass(TTL);
    assert_eq!((revocations(&cluster), cluster.is_balanced(ENDPOINTS)), (0, true));
}

#[test]
fn r16_an_instance_that_stops_is_not_revoked() {
    let mut cluster = fleet();
    cluster.stop("a");
    cluster.pass(2 * TTL);
    assert_eq!(revocations(&cluster), 0);
}

#[test]
fn r16_with_suspect_after_0_nobody_is_revoked_and_leases_expire() {
    let mut cluster = Cluster::new(&["a", "b", "c"], ENDPOINTS);
    let orphans = held_by_a(&cluster);
    cluster.kill("a");
    let took = taken_over_within(&mut cluster, &orphans, 2 * TTL);
    assert!(took > TTL - ms(1_100), "{took:?}");
    assert_eq!(revocations(&cluster), 0);
}
