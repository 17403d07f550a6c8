//! Looking is cheap and nothing is overlooked: discovery, owners by announcement, repair (in memory).

mod handover;

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::model::InstanceId;
use leasehold::store::memory::Mishap;
use leasehold::store::{PeerMessage, Store};

use testkit::cluster::{Cluster, INTERVAL, RENEW, TTL, endpoint};
use testkit::process::ms;

/// How often each of these calls was made since `from` calls ago.
fn calls(cluster: &Cluster, from: usize, ops: &[&str]) -> Vec<usize> {
    let journal = cluster.server.journal();
    ops.iter().map(|op| journal[from..].iter().filter(|it| *it == op).count()).collect()
}

/// FR-009: after the first look nobody walks over the keys again, and nobody reads sessions.
#[test]
fn at_rest_nothing_is_listed_and_no_session_is_read() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 30);
    let from = cluster.server.journal().len();
    let seconds = 60;
    cluster.pass(Duration::from_secs(seconds));
    assert_eq!(calls(&cluster, from, &["session_names", "instances", "sessions"]), [0, 0, 0]);
    // Each second a quick check of the heartbeats and a part of an audit, and one read per pushed heartbeat.
    let [nodes, expiring] = calls(&cluster, from, &["heartbeats", "expiring"])[..] else {
        panic!()
    };
    let beats = 9 * seconds as usize;
    assert!(nodes <= 3 * seconds as usize + beats, "{nodes} looks at heartbeats");
    assert!(expiring <= 3 * seconds as usize, "{expiring} looks at leases");
    let [owners] = calls(&cluster, from, &["owners"])[..] else { panic!() };
    assert!(owners <= 3 * seconds as usize, "{owners} looks at owners");
}

/// A name counts when its session was read: by each once, and by its poller once more, right before it takes the lease.
#[test]
fn a_new_session_is_read_once_by_each_and_a_changed_one_by_its_poller_only() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    let from = cluster.server.journal().len();
    cluster.add_session("new");
    cluster.pass(TTL);
    assert_eq!(calls(&cluster, from, &["sessions"]), [3 + 1]);
    let from = cluster.server.journal().len();
    cluster.restore_session("new");
    cluster.pass(TTL);
    assert_eq!(calls(&cluster, from, &["sessions"]), [1], "its owner reads it again");
}

/// One that nobody polls is read by everybody, once per change: each might have to take it.
#[test]
fn a_paused_session_is_read_once_by_each() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    let from = cluster.server.journal().len();
    cluster.pause_session("e1");
    cluster.pass(2 * TTL);
    assert_eq!(calls(&cluster, from, &["sessions"]), [3]);
    assert!(cluster.is_balanced(8), "{:?}", cluster.counts());
    cluster.restore_session("e1");
    cluster.pass_until(ms(200), |it| it.holder(&endpoint("e1")).is_some());
}

/// The same with one that is gone: after a mass of removals nobody reads all of them twice.
#[test]
fn a_removed_session_is_read_once_by_each() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    let from = cluster.server.journal().len();
    cluster.server.remove_session("e1");
    cluster.pass(2 * TTL);
    assert_eq!(calls(&cluster, from, &["sessions"]), [3]);
    assert!(cluster.is_balanced(8), "{:?}", cluster.counts());
    cluster.restore_session("e1");
    cluster.pass_until(ms(1_000), |it| it.holder(&endpoint("e1")).is_some());
}

/// A newcomer knows nothing about the sessions that nobody polls; its share must be right all the same.
#[test]
fn a_newcomer_to_a_fleet_with_paused_sessions_gets_its_share_of_the_others() {
    let mut cluster = Cluster::new(&["a", "b"], 30);
    (0..20).for_each(|it| cluster.pause_session(&format!("e{it}")));
    cluster.pass_until(ms(1_000), |it| it.is_balanced(10));
    cluster.join("c");
    cluster.pass_until(ms(2_000), |it| it.is_balanced(10));
    let grants = cluster.server.acquires().1;
    cluster.pass(3 * TTL);
    assert_eq!(cluster.server.acquires().1, grants);
}

#[test]
fn a_change_that_is_pushed_takes_effect_within_a_fifth_of_a_second() {
    let limit = ms(200);
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    cluster.add_session("new");
    cluster.pass_until(limit, |it| it.holder(&endpoint("new")).is_some());
    cluster.pause_session("new");
    cluster.pass_until(limit, |it| it.server.owner(&endpoint("new")).is_none());
    cluster.restore_session("new");
    cluster.pass_until(limit, |it| it.holder(&endpoint("new")).is_some());
    cluster.server.remove_session("new");
    cluster.pass_until(limit, |it| it.server.owner(&endpoint("new")).is_none());
    cluster.pass_until(ms(1_000), |it| it.is_balanced(9));
    cluster.drain("a", true);
    cluster.pass_until(limit, |it| it.owned("a") == 0 && it.owned_total() == 9);
    cluster.drain("a", false);
    cluster.pass_until(limit, |it| it.is_balanced(9));
}

/// Without any push: a bounded, cheap poll.
#[test]
fn on_a_server_that_tells_nothing_changes_are_found_all_the_same() {
    let limit = ms(2_000);
    let mut cluster = Cluster::empty(9);
    cluster.deliver_nothing();
    ["a", "b", "c"].iter().for_each(|it| cluster.join(it));
    cluster.pass_until(3 * TTL, |it| it.is_balanced(9));
    cluster.add_session("new");
    cluster.pass_until(limit, |it| it.holder(&endpoint("new")).is_some());
    cluster.pause_session("new");
    cluster.pass_until(limit, |it| it.server.owner(&endpoint("new")).is_none());
    cluster.pass(limit);
    cluster.restore_session("new");
    cluster.pass_until(limit, |it| it.holder(&endpoint("new")).is_some());
    cluster.server.remove_session("new");
    cluster.pass_until(limit, |it| it.server.owner(&endpoint("new")).is_none());
    cluster.join("d");
    cluster.pass_until(2 * limit, |it| it.is_balanced(9));
    cluster.crash("a");
    cluster.pass_until(TTL + ms(1_500), |it| it.is_balanced(9));
    let grants = cluster.server.acquires().1;
    cluster.pass(3 * TTL);
    assert_eq!(cluster.server.acquires().1, grants);
}

/// Every instance loses every message.
#[test]
fn losing_every_word_only_delays() {
    let mut cluster = Cluster::new(&["a", "b"], 10);
    let deaf = |cluster: &mut Cluster| {
        let names: Vec<String> = cluster.members.keys().cloned().collect();
        names.iter().for_each(|it| cluster.lose_messages(it, true));
    };
    cluster.join("c");
    deaf(&mut cluster);
    let from = cluster.clock.now();
    cluster.pass_until(2 * TTL, |it| it.is_balanced(10));
    cluster.join("d");
    deaf(&mut cluster);
    cluster.pass_until(2 * TTL, |it| it.is_balanced(10));
    cluster.crash("a");
    cluster.pass_until(2 * TTL, |it| it.is_balanced(10));
    let gap = cluster.longest_gap(from);
    assert!(gap <= TTL + ms(500), "a gap of {gap:?}");
    let grants = cluster.server.acquires().1;
    cluster.pass(5 * TTL);
    assert_eq!(cluster.server.acquires().1, grants, "something moves at rest");
}

/// Any client that can PUBLISH may lie. Nothing moves, and free leases are still acquired.
#[test]
fn forged_words_move_nothing_and_hide_nothing() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    let grants = cluster.server.acquires().1;
    let lies = |cluster: &Cluster, names: &[&str]| {
        let all: Vec<_> = (0..9).map(|it| endpoint(&format!("e{it}"))).collect();
        for name in names {
            let from = InstanceId::new(name);
            let heir = Some(InstanceId::new("b"));
            let word = || PeerMessage::new(&from, None);
            let wakes = [
                PeerMessage { took: all.clone(), ..word() },
                PeerMessage { freed: all.clone(), ..word() },
                PeerMessage { freed: all.clone(), heir, ..word() },
                PeerMessage { wants: all.clone(), ..word() },
            ];
            cluster.member("a").store.wake(&wakes, TTL).unwrap();
        }
    };
    for _ in 0..100 {
        lies(&cluster, &["a", "b", "c", "mallory"]);
        cluster.pass(ms(60));
    }
    let from = cluster.clock.now();
    assert_eq!(cluster.server.acquires().1, grants, "a lie moved something");
    // A lie about what is free: its heir finds out at once, and the next in line if the heir does not.
    cluster.hang("b", true);
    cluster.hang("c", true);
    for _ in 0..20 {
        lies(&cluster, &["b", "c"]);
        cluster.pass(ms(20));
    }
    cluster.add_session("new");
    let new = vec![endpoint("new")];
    for name in ["b", "c"] {
        let word =
            PeerMessage { took: new.clone(), ..PeerMessage::new(&InstanceId::new(name), None) };
        cluster.member("a").store.wake(&[word], TTL).unwrap();
    }
    cluster.pass_until(ms(1_000), |it| it.holder(&endpoint("new")).is_some());
    assert!(cluster.longest_gap(from) <= ms(2_500));
}

/// A line that breaks misses what happens meanwhile; that is repaired when it is mended.
#[test]
fn what_happened_while_the_line_was_broken_is_found_when_it_is_mended() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    cluster.cut_off("c", true);
    cluster.add_session("new");
    cluster.server.remove_session("e0");
    cluster.join("d");
    cluster.pass(ms(1_000));
    cluster.cut_off("c", false);
    cluster.pass_until(ms(3_000), |it| it.is_balanced(9));
    let grants = cluster.server.acquires().1;
    cluster.pass(3 * TTL);
    assert_eq!(cluster.server.acquires().1, grants);
}

/// R9: an owner that beats but renews no more. Its leases end, and the instance that watches them sees it.
#[test]
fn r9_leases_that_end_under_a_live_owner_are_taken_when_they_end() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    let taken = |cluster: &Cluster| cluster.owned("b") + cluster.owned("c");
    cluster.stop_renewing("a");
    cluster.hang("a", true);
    let took = cluster.pass_until(TTL + ms(500), |it| taken(it) == 9);
    assert!(took + RENEW + ms(100) >= TTL, "taken after {took:?}");
}

/// G6: five that start together take their shares in one go.
#[test]
fn a_storm_of_joins_moves_no_more_than_one_join_of_all() {
    let mut cluster = Cluster::new(&["a", "b"], 60);
    let grants = cluster.server.acquires().1;
    for name in ["c", "d", "e", "f"] {
        cluster.join(name);
        cluster.pass(ms(120));
    }
    let from = cluster.clock.now();
    cluster.pass_until(ms(2_000), |it| it.is_balanced(60));
    cluster.pass(2 * TTL);
    assert_eq!(cluster.server.acquires().1 - grants, 40, "each newcomer gets ten, once");
    assert!(cluster.longest_gap(from) <= INTERVAL + ms(150));
}

/// G6, FR-014: a mass of leases that lapse at once is taken once each, without a stampede.
#[test]
fn a_hundred_leases_of_the_dead_cost_little_more_than_a_hundred_acquires() {
    let mut cluster = Cluster::new(&["a", "b", "c", "d"], 400);
    let before = cluster.server.acquires();
    cluster.crash("a");
    cluster.pass_until(TTL + ms(500), |it| it.is_balanced(400));
    cluster.pass(TTL);
    let after = cluster.server.acquires();
    let (asked, granted) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(granted, 100);
    assert!(asked * 10 <= granted * 12, "{asked} asked for {granted}");
}

/// The same after the first hold-off of a fleet: everything is free at once.
#[test]
fn after_a_hold_off_everything_is_taken_once() {
    let mut cluster = Cluster::empty(400);
    ["a", "b", "c", "d"].iter().for_each(|it| cluster.join(it));
    cluster.pass_until(2 * TTL, |it| it.is_balanced(400));
    cluster.pass(TTL);
    let (asked, granted) = cluster.server.acquires();
    assert_eq!(granted, 400);
    assert!(asked * 10 <= granted * 12, "{asked} asked for {granted}");
}

/// A change that was pushed to no instance is found by the next resync of any instance, which tells the others.
#[test]
fn what_one_finds_in_a_resync_all_know() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    cluster.server.put_session_unheard("new", br#"{"id":"new","address":"127.0.0.1:1"}"#);
    cluster.pass(TTL);
    assert_eq!(cluster.server.owner(&endpoint("new")), None, "nobody can know");
    let from = cluster.server.journal().len();
    cluster.pass_until(Duration::from_secs(450), |it| it.holder(&endpoint("new")).is_some());
    let resyncs = calls(&cluster, from, &["session_names"]);
    assert!(resyncs[0] <= 2, "{resyncs:?} resyncs until it was found");
    cluster.pass_until(ms(1_000), |it| it.is_balanced(10));
}

/// R7: a grant whose reply was lost stands under our name. Reading the key must not make it count as held.
#[test]
fn r7_what_a_look_finds_under_our_own_name_but_we_do_not_hold_is_free_to_us() {
    let mut cluster = Cluster::empty(3);
    cluster.deliver_nothing(); // so that everything is read again every second
    cluster.join("a");
    cluster.pass_until(3 * TTL, |it| it.owned_total() == 3);
    // The first reply is lost, and the attempt after it is not even heard: a look comes in between.
    cluster.member("a").store.plan("acquire", Mishap::LoseReply);
    cluster.member("a").store.plan("acquire", Mishap::LoseRequest);
    cluster.add_session("new");
    cluster.pass_until(2 * TTL, |it| it.server.owner(&endpoint("new")).is_some());
    assert_eq!(cluster.owned_total(), 3, "it cannot know");
    cluster.pass_until(TTL - ms(500), |it| it.owned_total() == 4);
}

/// An announced grant is checked in the store by the instance next in line for the lease.
#[test]
fn a_lie_that_a_hung_instance_took_something_hides_it_for_a_moment_only() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 9);
    cluster.hang("b", true);
    let names: Vec<String> = (0..6).map(|it| format!("new{it}")).collect();
    for name in &names {
        cluster.add_session(name);
        let took = vec![endpoint(name)];
        let word = PeerMessage { took, ..PeerMessage::new(&InstanceId::new("b"), None) };
        cluster.member("a").store.wake(&[word], TTL).unwrap();
        cluster.pass(ms(20));
    }
    cluster
        .pass_until(ms(1_200), |it| names.iter().all(|name| it.holder(&endpoint(name)).is_some()));
}

/// Only the subscription breaks: requests are answered all the time. The instance knows, and reads what changes itself.
#[test]
fn what_is_pushed_while_the_subscription_is_broken_is_found_by_reading() {
    let mut cluster = Cluster::new(&["a"], 3);
    cluster.break_subscription("a", 10 * TTL);
    cluster.add_session("new");
    cluster.pass_until(ms(1_500), |it| it.holder(&endpoint("new")).is_some());
}

/// R9: where no end of a key is pushed, the key is read right when it ends, not at the next quick check.
#[test]
fn r9_on_a_server_that_tells_nothing_the_end_of_a_heartbeat_is_seen_when_it_comes() {
    for after_ms in [0, 330, 660, 900] {
        // Shorter than a lease, so that it is the first to end.
        let mut cluster = Cluster::empty(9).with_heartbeat(ms(2_000));
        cluster.deliver_nothing();
        // Out of step, so that no quick check happens to fall on the end of the other's heartbeat.
        cluster.join("a");
        cluster.pass(ms(460));
        cluster.join("b");
        cluster.pass_until(3 * TTL, |it| it.is_balanced(9));
        cluster.pass(2 * TTL + ms(after_ms));
        cluster.crash("a");
        let lives = |cluster: &Cluster| {
            let live = cluster.member("b").store.instances(0, TTL).unwrap().found;
            live.contains(&InstanceId::new("a"))
        };
        while lives(&cluster) {
            cluster.pass(ms(20));
        }
        cluster.pass(ms(80));
        assert_eq!(cluster.owned("b"), 9, "crashed {after_ms} ms after a round");
    }
}

/// R9: the same for a lease. Its heir may be the very one that hangs: then the next takes it, half a second later.
#[test]
fn r9_a_lease_that_ends_under_a_live_owner_is_looked_at_right_then() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 30);
    let left = cluster.member("a").table.endpoints();
    cluster.stop_renewing("a");
    cluster.hang("a", true);
    let mut free_at = std::collections::BTreeMap::new();
    let mut longest = Duration::ZERO;
    for _ in 0..400 {
        cluster.pass(ms(20));
        let now = cluster.clock.now();
        for it in &left {
            match cluster.server.owner(it) {
                None => drop(free_at.entry(it.clone()).or_insert(now)),
                Some(owner) if owner.as_str() != "a" => {
                    let since = free_at.remove(it).unwrap_or(now);
                    longest = longest.max(now.since(since));
                }
                Some(_) => (),
            }
        }
    }
    assert_eq!(cluster.owned("b") + cluster.owned("c"), 30);
    assert!(longest <= ms(560), "free for {longest:?}");
}

/// A server that tells nothing is asked once a second, not all the time.
#[test]
fn at_rest_on_a_server_that_tells_nothing_everything_is_read_once_a_second() {
    let mut cluster = Cluster::empty(9);
    cluster.deliver_nothing();
    ["a", "b", "c"].iter().for_each(|it| cluster.join(it));
    cluster.pass_until(3 * TTL, |it| it.is_balanced(9));
    cluster.pass(2 * TTL);
    let from = cluster.server.journal().len();
    let seconds = 20;
    cluster.pass(Duration::from_secs(seconds as u64));
    for (op, often) in [("session_names", 1), ("instances", 1), ("heartbeats", 3), ("sessions", 2)]
    {
        let made = calls(&cluster, from, &[op])[0];
        assert!(made <= 3 * seconds * often + 3, "{made} times {op} in {seconds} s by three");
    }
}
