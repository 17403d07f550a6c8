//! Hand-overs where messages are lost, changes are not pushed, or the heir cannot take what it asks for: nothing goes
//! back and forth (G6). In memory.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::PollPermit;
use leasehold::clock::Clock;
use leasehold::model::{EndpointId, InstanceId};
use leasehold::store::{PeerMessage, Store};

use testkit::cluster::{Cluster, TTL, endpoint};
use testkit::process::ms;

const STEP: Duration = ms(20);

/// Who owned each lease last, and how often a lease went back to the instance that had released it.
#[derive(Default)]
struct Moves {
    owners: BTreeMap<EndpointId, (InstanceId, bool)>,
    take_backs: usize,
    moved: usize,
}

impl Moves {
    fn see(&mut self, cluster: &Cluster, n: usize) {
        for it in (0..n).map(|it| endpoint(&format!("e{it}"))) {
            let owner = cluster.server.owner(&it);
            let Some((last, is_free)) = self.owners.get_mut(&it) else {
                self.owners.extend(owner.map(|owner| (it, (owner, false))));
                continue;
            };
            match owner {
                None => *is_free = true,
                Some(owner) if owner != *last => {
                    self.moved += 1;
                    (*last, *is_free) = (owner, false);
                }
                Some(_) => self.take_backs += usize::from(std::mem::take(is_free)),
            }
        }
    }

    /// Lets time go by and looks at every step.
    fn pass(&mut self, cluster: &mut Cluster, n: usize, duration: Duration) {
        let until = duration.as_millis() / STEP.as_millis();
        for _ in 0..until {
            cluster.pass(STEP);
            self.see(cluster, n);
        }
    }
}

/// These instances, at rest, in a fleet that hears this much.
fn fleet(names: &[&str], messages: bool, changes: bool, n: usize) -> Cluster {
    let mut cluster = Cluster::empty(n);
    cluster.deliver(messages, changes);
    for name in names {
        cluster.join(name);
        cluster.pass(ms(260));
    }
    cluster.pass_until(4 * TTL, |it| it.is_balanced(n));
    cluster.pass(ms(1_500));
    cluster
}

/// 24 endpoints, 3 instances and a newcomer.
fn a_newcomer_gets_its_share(messages: bool, changes: bool) {
    let n = 24;
    let mut cluster = fleet(&["a", "b", "c"], messages, changes, n);
    let mut moves = Moves::default();
    moves.see(&cluster, n);
    cluster.join("d");
    moves.pass(&mut cluster, n, ms(5_000));
    assert!(cluster.is_balanced(n), "after 5 s {:?}", cluster.counts());
    moves.pass(&mut cluster, n, ms(3_000));
    assert_eq!((moves.moved, moves.take_backs), (6, 0), "moved, taken back");
}

/// A poll of each lease of these that runs until it is ended.
fn running(cluster: &Cluster, names: &[&str]) -> Vec<PollPermit> {
    let mut polls = Vec::new();
    for table in names.iter().map(|it| &cluster.member(it).table) {
        let of = |it: &EndpointId| table.permit(&table.tenure(it).unwrap());
        polls.extend(table.endpoints().iter().filter_map(of));
    }
    polls
}

fn end(cluster: &mut Cluster, names: &[&str], polls: Vec<PollPermit>) {
    drop(polls);
    names.iter().for_each(|it| cluster.poll_ended(it));
}

/// The running polls end at any moment, and so does the hand-over: between an owner's resync and its next, before or
/// after its heir has looked.
fn whenever_a_poll_ends_nothing_goes_back(messages: bool, changes: bool) {
    let n = 8;
    let mut bad = Vec::new();
    for phase in 0..8 {
        let mut cluster = fleet(&["a", "b"], messages, changes, n);
        let mut moves = Moves::default();
        moves.see(&cluster, n);
        let polls = running(&cluster, &["a", "b"]);
        cluster.join("c");
        cluster.pass(ms(2_400) + phase * ms(120));
        end(&mut cluster, &["a", "b"], polls);
        moves.pass(&mut cluster, n, ms(4_000));
        if moves.take_backs > 0 || !cluster.is_balanced(n) {
            bad.push((phase, moves.take_backs, cluster.counts()));
        }
    }
    assert!(bad.is_empty(), "phase, take-backs and counts: {bad:?}");
}

#[test]
fn g6_where_nobody_is_heard_a_newcomer_gets_its_share_and_nothing_goes_back() {
    a_newcomer_gets_its_share(false, false);
    whenever_a_poll_ends_nothing_goes_back(false, false);
}

#[test]
fn g6_where_only_words_are_heard_a_newcomer_gets_its_share_and_nothing_goes_back() {
    a_newcomer_gets_its_share(true, false);
    whenever_a_poll_ends_nothing_goes_back(true, false);
}

#[test]
fn g6_where_only_changes_are_heard_a_newcomer_gets_its_share_and_nothing_goes_back() {
    a_newcomer_gets_its_share(false, true);
    whenever_a_poll_ends_nothing_goes_back(false, true);
}

/// R8: what was released for an heir is left to it until its time is up, whatever is read meanwhile. This heir asks
/// and then hangs.
#[test]
fn r8_no_read_before_its_time_is_up_takes_from_an_heir_what_was_released_for_it() {
    let patience = |messages, changes| if messages && changes { ms(2_000) } else { ms(5_000) };
    for (messages, changes) in [(false, false), (true, false), (false, true), (true, true)] {
        let n = 8;
        let mut cluster = fleet(&["a", "b"], messages, changes, n);
        let polls = running(&cluster, &["a", "b"]);
        cluster.join("c");
        cluster.pass(ms(3_000));
        let is_free =
            |it: &Cluster| (0..n).any(|n| it.server.owner(&endpoint(&format!("e{n}"))).is_none());
        assert!(!is_free(&cluster), "released under a running poll");
        cluster.hang("c", true);
        end(&mut cluster, &["a", "b"], polls);
        cluster.pass_until(ms(100), is_free);
        let free = cluster.pass_until(ms(9_000), |it| !is_free(it));
        assert!(
            free + ms(100) >= patience(messages, changes),
            "{messages} {changes}: after {free:?}"
        );
        assert!(free <= ms(7_500), "{messages} {changes}: after {free:?}");
    }
}

/// It can ask, and cannot take.
#[test]
fn g6_an_heir_that_cannot_take_what_it_asks_for_gets_it_a_few_times_and_no_more() {
    let n = 12;
    let mut cluster = fleet(&["a", "b", "c"], true, true, n);
    let mut moves = Moves::default();
    moves.see(&cluster, n);
    cluster.server.refuse_acquires("d", true);
    cluster.join("d");
    let from = cluster.clock.now();
    moves.pass(&mut cluster, n, Duration::from_secs(60));
    assert_eq!(cluster.owned("d"), 0);
    // Each of its 3 leases at the start and after 30 s; the next time would be after 60 s more.
    assert!((1..=2 * 3).contains(&moves.take_backs), "{} in a minute", moves.take_backs);
    let gap = cluster.longest_gap(from);
    assert!(gap <= ms(3_500), "a gap of {gap:?}");
    cluster.server.refuse_acquires("d", false);
    cluster.pass_until(Duration::from_secs(70), |it| it.is_balanced(n));
}

#[test]
fn r8_what_could_not_be_acquired_is_not_asked_for_again_for_a_while() {
    let n = 4;
    let mut cluster = fleet(&["a"], true, true, n);
    cluster.server.refuse_acquires("b", true);
    cluster.join("b");
    let asks = |it: &Cluster| {
        let [a, b] = ["a", "b"].map(InstanceId::new);
        it.member("a").store.asks(&a, &[b], TTL).unwrap()
    };
    let held = |it: &Cluster| it.owned("a");
    cluster.pass_until(ms(3_000), |it| held(it) == 2);
    assert_eq!(asks(&cluster)[0].wants.len(), 2);
    cluster.pass_until(ms(3_000), |it| held(it) == 4);
    // An ask stands for 3 s, and b was refused since its last one.
    cluster.pass(ms(1_600));
    assert_eq!(asks(&cluster), []);
}

/// The heir of an older version asks again and again for what it does not take.
#[test]
fn r8_an_heir_that_did_not_take_what_it_was_given_gets_nothing_for_a_while() {
    let n = 4;
    let mut cluster = fleet(&["a"], true, true, n);
    cluster.hang("a", true);
    cluster.join("b");
    cluster.pass(ms(1_000));
    cluster.hang("b", true);
    cluster.hang("a", false);
    let b = InstanceId::new("b");
    let mut moves = Moves::default();
    moves.see(&cluster, n);
    for second in 0..90 {
        let wants = cluster.member("a").table.endpoints();
        let message = PeerMessage { wants, ..PeerMessage::new(&b, Some(InstanceId::new("a"))) };
        cluster.member("b").store.wake(&[message], TTL).unwrap();
        moves.pass(&mut cluster, n, ms(1_000));
        let given = moves.take_backs;
        assert!(second < 10 || given > 0, "it was given nothing at all");
    }
    // Both leases at the start and after 30 s, and not again before a minute has passed since then.
    assert_eq!(moves.take_backs, 2 * 2, "taken back in 90 s");
}

/// It took what it was given, was drained at once, and is to have it again.
#[test]
fn r8_an_heir_that_gave_back_what_it_had_taken_is_given_it_again() {
    for (messages, changes) in [(true, true), (false, false)] {
        let n = 4;
        let mut cluster = fleet(&["a"], messages, changes, n);
        cluster.join("b");
        cluster.pass_until(ms(5_000), |it| it.is_balanced(n));
        cluster.drain("b", true);
        cluster.pass_until(ms(6_000), |it| it.owned("a") == n);
        cluster.drain("b", false);
        cluster.pass_until(ms(6_000), |it| it.is_balanced(n));
    }
}
