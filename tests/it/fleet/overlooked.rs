//! Ways in which something was once overlooked, a test each; and random ones. In memory.

use std::cell::RefCell;
use std::sync::Once;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::event::Event;
use leasehold::lease::report::Reporter;
use leasehold::model::{EndpointId, InstanceId};
use leasehold::store::memory::Mishap;
use leasehold::store::{PeerMessage, Store};

use testkit::cluster::{Cluster, INTERVAL, TTL, endpoint, for_each_seed, random};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        LINES.with(|it| it.borrow_mut().push(record.args().to_string()));
    }
    fn flush(&self) {}
}

fn capture() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Capture).unwrap();
        log::set_max_level(log::LevelFilter::Debug); // names every lease, however many there are
    });
    LINES.with(|it| it.borrow_mut().clear());
}

fn lines(with: &[&str]) -> Vec<String> {
    LINES.with(|it| {
        let all = it.borrow();
        all.iter().filter(|line| with.iter().all(|w| line.contains(w))).cloned().collect()
    })
}

fn calls(cluster: &Cluster, from: usize, op: &str) -> usize {
    cluster.server.journal()[from..].iter().filter(|it| **it == op).count()
}

/// Leases that were granted are polled even if nobody can say when they were polled last; that the store did not answer
/// is said, and nothing more is asked of it until it does.
#[test]
fn a_store_that_falls_silent_after_a_grant_is_said_to_be_away_and_what_it_granted_is_polled() {
    capture();
    let mut cluster = Cluster::new(&["a"], 3);
    assert_eq!(lines(&["store.unreachable"]), [""; 0]);
    cluster.member("a").store.plan("last_polled", Mishap::LoseRequest);
    cluster.add_session("new");
    let new = endpoint("new");
    cluster.pass_until(ms(200), |it| it.holder(&new).is_some());
    assert_eq!(lines(&["store.unreachable", "last_polled"]).len(), 1, "{:?}", lines(&["store."]));
    let from = cluster.clock.now();
    cluster.pass(2 * INTERVAL);
    assert!(cluster.polls_since(from).iter().any(|it| it.endpoint == new));
    cluster.pass_until(TTL, |_| lines(&["store.reachable"]).len() == 1);
}

/// A web application that keeps its own keys under our prefix must not fill the journal.
#[test]
fn sessions_that_are_not_understood_are_named_up_to_a_limit_and_then_counted() {
    capture();
    let mut cluster = Cluster::new(&["a"], 3);
    for n in 0..20 {
        cluster.server.put_session(&format!("bad{n}"), b"{");
    }
    cluster.pass(ms(1_000));
    assert_eq!(lines(&["event=session.invalid "]).len(), 20, "a few are all named");
    assert_eq!(lines(&["event=session.unreported"]), [""; 0]);
    // Two minutes, 250 keys a second: half with names that are no ids.
    for n in 0..3_000 {
        for k in 0..5 {
            let name = if k % 2 == 0 { format!("web{n}-{k}") } else { format!("web:{n}:{k}") };
            cluster.server.put_session(&name, br#"{"user":7}"#);
        }
        cluster.pass(ms(40));
    }
    let named = lines(&["event=session.invalid "]).len();
    assert!((100..=300).contains(&named), "{named} lines for 15,000 keys in two minutes");
    cluster.pass(Duration::from_secs(61));
    let counted: usize = lines(&["event=session.unreported"])
        .iter()
        .map(|it| {
            it.split_once("count=").unwrap().1.split(' ').next().unwrap().parse::<usize>().unwrap()
        })
        .sum();
    let named = lines(&["event=session.invalid "]).len();
    assert_eq!(named + counted, 15_020, "{:?}", lines(&["event=session.unreported"]));
    assert!(cluster.is_balanced(3), "{:?}", cluster.counts());
    // Later on they are named again.
    cluster.server.put_session("late", b"{");
    cluster.pass(ms(1_000));
    assert_eq!(lines(&["event=session.invalid ", "endpoint=late"]).len(), 1);
}

/// One lost reply right after the first resync, and the newcomer does nothing until the next one.
#[test]
fn one_lost_reply_at_the_end_of_the_first_resync_does_not_blind_a_newcomer() {
    let mut cluster = Cluster::new(&["a", "b"], 9);
    cluster.join("c");
    cluster.member("c").store.plan("heartbeats", Mishap::LoseRequest);
    cluster.pass_until(ms(10_000), |it| it.is_balanced(9));
}

/// A fleet that takes longer than 500 ms to take everything reads every session n times.
#[test]
fn taking_everything_slowly_does_not_make_everybody_read_everything() {
    let n = 1_600;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut cluster = Cluster::empty(n);
    names.iter().for_each(|it| cluster.join(it));
    for name in names {
        (0..20).for_each(|_| cluster.member(name).store.plan("acquire", Mishap::Slow(ms(60))));
    }
    cluster.pass_until(6 * TTL, |it| it.owned_total() == n);
    let read = calls(&cluster, 0, "sessions");
    assert!(read <= 2 * n / 200 + 2 * names.len(), "{read} reads of up to 200 for {n} sessions");
}

/// An instance with weight 0 never learns what is paused, so its plan differs and it keeps some for ever.
#[test]
fn a_drained_instance_gives_everything_whatever_was_added_paused_meanwhile() {
    let mut stuck = Vec::new();
    for n in 20..25 {
        let mut cluster = Cluster::new(&["a", "b", "c", "d"], n);
        ["a", "b", "c", "d"].iter().for_each(|it| cluster.drain(it, true));
        cluster.pass(ms(1_000));
        (0..30).for_each(|it| cluster.pause_session(&format!("p{it}")));
        cluster.pass(ms(1_000));
        cluster.hang("d", true);
        ["a", "b", "c"].iter().for_each(|it| cluster.drain(it, false));
        cluster.pass(ms(2_000));
        cluster.hang("d", false);
        cluster.pass(Duration::from_secs(60));
        if cluster.owned("d") > 0 {
            stuck.push((n, cluster.counts()));
        }
    }
    assert!(stuck.is_empty(), "{stuck:?}");
}

/// One release that gets lost on its way, and others count a ghost until the next resync.
#[test]
fn a_lost_release_of_a_removed_session_does_not_unbalance_the_fleet_for_minutes() {
    for n in 0..10 {
        let mut cluster = Cluster::new(&["a", "b", "c"], 10);
        let e = endpoint(&format!("e{n}"));
        let owner = cluster.holder(&e).unwrap().to_owned();
        cluster.member(&owner).store.plan("release", Mishap::LoseRequest);
        cluster.server.remove_session(e.as_str());
        let until = cluster.clock.now() + Duration::from_secs(30);
        while !cluster.is_balanced(9) {
            assert!(cluster.clock.now() < until, "e{n} of {owner}: {:?}", cluster.counts());
            cluster.pass(ms(100));
        }
    }
}

/// Connections survive a promotion (R5), but what it brought back is not looked at.
#[test]
fn a_session_that_a_failover_brought_back_is_polled() {
    let mut cluster = Cluster::new(&["a", "b"], 4);
    let before = cluster.server.snapshot();
    cluster.server.remove_session("e1");
    cluster.pass(ms(500));
    cluster.server.fail_over(&before);
    cluster.pass_until(4 * TTL, |it| it.holder(&endpoint("e1")).is_some());
}

/// CONTRACT: reported once per change. Written again as it is, or only touched, is no change.
#[test]
fn an_invalid_session_that_is_written_again_unchanged_is_not_reported_again() {
    capture();
    let mut cluster = Cluster::new(&["a", "b"], 2);
    for _ in 0..5 {
        cluster.server.put_session("bad", b"{");
        cluster.pass(ms(2_000));
    }
    let told = lines(&["event=session.invalid", "endpoint=bad"]);
    assert_eq!(told.len(), 2, "{told:#?}");
}

/// The same for a bad name, over an outage.
#[test]
fn a_misnamed_session_is_not_reported_again_after_an_outage() {
    capture();
    let mut cluster = Cluster::new(&["a", "b"], 2);
    cluster.server.put_session("a b", b"{}");
    cluster.pass(ms(1_000));
    let kept = cluster.server.snapshot();
    cluster.server.crash();
    cluster.pass(ms(2_000));
    cluster.server.restart(Some(&kept));
    ["a", "b"].iter().for_each(|it| {
        cluster.member(it).store.plan("session_names", Mishap::LoseRequest);
    });
    cluster.pass(3 * TTL);
    let told = lines(&["event=session.invalid"]);
    assert_eq!(told.len(), 2, "{told:#?}");
}

/// CONTRACT: an instance that ends in a flood logs the count of the events that it has not named.
#[test]
fn the_events_of_a_flood_that_were_only_counted_are_told_at_the_end() {
    capture();
    let cluster = Cluster::new(&["a"], 12);
    let table = &cluster.member("a").table;
    let (held, reporter) = (table.endpoints(), Reporter::new(table));
    for endpoint in &held {
        reporter.report(&Event::LeaseUncertain { endpoint, error: &"no answer" });
    }
    assert_eq!(lines(&["event=lease.uncertain", "others="]), [""; 0]);
    reporter.report_rest();
    reporter.report_rest();
    let told = lines(&["event=lease.uncertain", "others=2"]);
    assert_eq!(told.len(), 1, "{told:#?}");
}

/// The slots are over before the store is back: all resync at once.
#[test]
fn after_an_outage_not_every_instance_resyncs_at_once() {
    let names: Vec<String> = (0..20).map(|it| format!("i{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut cluster = Cluster::new(&names, 20);
    let kept = cluster.server.snapshot();
    cluster.server.crash();
    cluster.pass(Duration::from_secs(10));
    cluster.server.restart(Some(&kept));
    let from = cluster.server.journal().len();
    cluster.pass(ms(500));
    let begun = calls(&cluster, from, "session_names");
    // 20 slots of 100 ms: about 5 of 20 in the first 500 ms.
    assert!(begun <= 12, "{begun} resyncs begun in half a second");
}

/// CONTRACT, reasons: its owner died.
#[test]
fn what_was_asked_for_in_vain_and_left_by_the_dead_is_a_takeover() {
    capture();
    for after in 0..10 {
        let mut cluster = Cluster::new(&["a", "b"], 8);
        cluster.hang("a", true);
        cluster.join("c");
        cluster.pass(ms(3_000 + 100 * after));
        cluster.crash("a");
        LINES.with(|it| it.borrow_mut().clear());
        cluster.pass(2 * TTL);
        let told = lines(&["event=lease.acquired"]);
        assert!(told.iter().all(|it| !it.contains("reason=handover")), "{after} {told:#?}");
    }
}

/// G6: a drain that is taken back before the running polls have ended moves nothing.
#[test]
fn a_drain_that_is_taken_back_in_time_moves_nothing() {
    let mut cluster = Cluster::new(&["a", "b"], 4);
    let table = std::sync::Arc::clone(&cluster.member("a").table);
    let polls: Vec<_> = table
        .endpoints()
        .iter()
        .map(|it| table.permit(&table.tenure(it).unwrap()).unwrap())
        .collect();
    let grants = cluster.server.acquires().1;
    cluster.drain("a", true);
    cluster.pass(ms(300));
    cluster.drain("a", false);
    cluster.pass(ms(500));
    drop(polls);
    cluster.pass(ms(3_000));
    assert_eq!(cluster.server.acquires().1, grants, "moved there and back");
}

/// R8: an ask that is old proves nothing.
#[test]
fn an_ask_from_before_a_hold_off_is_not_answered_after_it() {
    let mut cluster = Cluster::new(&["a", "b"], 4);
    cluster.join("c");
    cluster.pass(ms(100));
    let all = cluster.server.snapshot();
    cluster.server.fail_over(&all);
    cluster.pass(ms(100));
    // What c said just before it learned of the hold-off, and then it hangs.
    let wants = [cluster.member("a").table.endpoints(), cluster.member("b").table.endpoints()];
    let c = InstanceId::new("c");
    for (to, wants) in ["a", "b"].iter().zip(wants) {
        let word = PeerMessage { wants, ..PeerMessage::new(&c, Some(InstanceId::new(to))) };
        cluster.member("c").store.wake(&[word], TTL).unwrap();
    }
    cluster.pass(ms(100));
    cluster.hang("c", true);
    let grants = cluster.server.acquires().1;
    cluster.pass(4 * TTL);
    assert_eq!(cluster.server.acquires().1, grants, "given to one that hangs, and taken back");
}

/// After any faults and changes of sessions: everything that is to be polled is, nothing else, in balance.
#[test]
fn whatever_happened_the_fleet_comes_to_rest_in_balance() {
    for_each_seed(through_changes);
}

fn through_changes(seed: u64) {
    let mut next = random(seed);
    let n = 12;
    let mut cluster = Cluster::empty(n);
    let names = ["a", "b", "c", "d"];
    names[..3].iter().for_each(|it| cluster.join(it));
    cluster.pass(2 * TTL);
    let mut state = vec![1; n]; // 0 gone, 1 polled, 2 paused
    let ops = [
        "acquire",
        "release",
        "sessions",
        "owners",
        "heartbeats",
        "verify",
        "wake",
        "asks",
        "instances",
        "session_names",
        "heartbeat",
        "renew",
    ];
    for _ in 0..12 {
        for _ in 0..1 + next(4) {
            let name = names[next(4) as usize];
            let kind = next(12);
            let (x, y) = (next(n as u64) as usize, next(ops.len() as u64) as usize);
            let here = cluster.members.contains_key(name);
            match kind {
                0..=2 => {
                    let to = next(3) as usize;
                    state[x] = to;
                    let id = format!("e{x}");
                    match to {
                        0 => cluster.server.remove_session(&id),
                        1 => cluster.restore_session(&id),
                        _ => cluster.pause_session(&id),
                    }
                }
                3 | 4 if here => cluster.member(name).store.plan(ops[y], Mishap::LoseRequest),
                5 if here => cluster.member(name).store.plan(ops[y], Mishap::LoseReply),
                6 if here && cluster.members.len() > 1 => cluster.crash(name),
                6 if !here => cluster.join(name),
                7 if here => cluster.drain(name, true),
                8 if here => cluster.cut_off(name, true),
                9 if here => cluster.hang(name, true),
                10 if here => cluster.freeze(name, true),
                11 if here => cluster.lose_messages(name, true),
                _ => (),
            }
            cluster.pass(ms(20 * (1 + next(10))));
        }
        cluster.pass(ms(next(2_000)));
        for name in names {
            if cluster.members.contains_key(name) {
                cluster.freeze(name, false);
                cluster.cut_off(name, false);
                cluster.hang(name, false);
                cluster.lose_messages(name, false);
                cluster.drain(name, false);
            }
        }
        cluster.pass(ms(next(1_500)));
    }
    let count = state.iter().filter(|it| **it == 1).count();
    let rest = cluster.clock.now();
    let limit = ms(12_000);
    let settled = |it: &Cluster| {
        it.is_balanced(count)
            && state
                .iter()
                .enumerate()
                .all(|(i, state)| it.holder(&endpoint(&format!("e{i}"))).is_some() == (*state == 1))
    };
    while !settled(&cluster) {
        let waited = cluster.clock.now().since(rest);
        if waited >= limit {
            let wrong: Vec<_> = state
                .iter()
                .enumerate()
                .filter(|(i, state)| {
                    cluster.holder(&endpoint(&format!("e{i}"))).is_some() != (**state == 1)
                })
                .map(|(i, state)| format!("e{i} is {state}"))
                .collect();
            panic!("{count} to poll, {:?}, {wrong:?}", cluster.counts());
        }
        cluster.pass(ms(20));
    }
    let grants = cluster.server.acquires().1;
    cluster.pass(3 * TTL);
    assert_eq!(cluster.server.acquires().1, grants, "a settled fleet moves something");
    assert!(settled(&cluster), "{:?}", cluster.counts());
}

/// Item 8. An instance that missed messages keeps a lease it is asked for, because its view of the owners is wrong.
#[test]
fn an_owner_that_missed_words_gives_what_it_is_asked_for_in_the_end() {
    let mut late = Vec::new();
    for n in 8..11 {
        for (deaf, drained) in [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")] {
            let mut cluster = Cluster::new(&["a", "b", "c"], n);
            cluster.lose_messages(deaf, true);
            cluster.drain(drained, true);
            cluster.pass(ms(300));
            cluster.drain(drained, false);
            cluster.pass(ms(300));
            cluster.lose_messages(deaf, false);
            cluster.pass(Duration::from_secs(60));
            if !cluster.is_balanced(n) {
                late.push((n, deaf, drained, cluster.counts()));
            }
        }
    }
    assert!(late.is_empty(), "after a minute: {late:?}");
}

/// R8. A random story of lost messages and drains: the fleet is in balance a minute later.
#[test]
fn a_fleet_that_missed_words_is_in_balance_within_a_minute() {
    const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    let mut late = Vec::new();
    // In story 59 an heir with a stale view once never asked. Other parts of R8 repair this view today, too.
    for seed in [59] {
        let mut chance = random(seed);
        let names = &NAMES[..4 + usize::try_from(chance(4)).unwrap()];
        let n = names.len() + usize::try_from(chance(15)).unwrap();
        let mut cluster = Cluster::new(names, n);
        for _ in 0..3 {
            for it in names {
                cluster.lose_messages(it, chance(3) > 0);
            }
            let drained = names[usize::try_from(chance(names.len() as u64)).unwrap()];
            cluster.drain(drained, true);
            cluster.pass(ms(100 + chance(900)));
            cluster.drain(drained, false);
            cluster.pass(ms(100 + chance(900)));
        }
        names.iter().for_each(|it| cluster.lose_messages(it, false));
        cluster.pass(Duration::from_secs(60));
        if !cluster.is_balanced(n) {
            late.push((seed, cluster.counts()));
        }
    }
    assert!(late.is_empty(), "after a minute: {late:?}");
}

/// R8. The heir missed the messages about two moves. By its view every instance has its share, so it never asks, and no
/// audit of its own covers the leases that moved. The owner that has too many tells it after 10 s, and the heir resyncs.
#[test]
fn an_heir_that_does_not_ask_is_told() {
    let n = 11;
    let mut cluster = Cluster::new(&["c", "f"], n);
    cluster.join("i");
    cluster.pass(2 * TTL);
    assert_eq!(cluster.counts(), [4, 4, 3]);
    // While the heir i neither looks nor gets messages, f gives two leases to c and takes one back.
    cluster.lose_messages("i", true);
    cluster.hang("i", true);
    cluster.drain("f", true);
    cluster.pass_until(ms(2_000), |it| it.counts() == [6, 2, 3]);
    cluster.drain("f", false);
    cluster.pass_until(ms(2_000), |it| it.counts() == [5, 3, 3]);
    cluster.hang("i", false);
    cluster.pass(ms(500));
    cluster.lose_messages("i", false);
    // An audit takes 2 * TTL, and repairs nothing here. If it ever does, this story no longer shows what it is to show.
    cluster.pass(2 * TTL + ms(500));
    let believed = |name: &str| cluster.member("i").view().owned_by(&InstanceId::new(name)).len();
    assert_eq!(["c", "f", "i"].map(believed), [4, 4, 3], "the heir knows that it should ask");
    cluster.pass_until(ms(5_000), |it| it.is_balanced(n));
}

/// R8. A drained instance releases leases for an heir, which hangs before it acquires them. The third instance reads them
/// when the heir's time (2 s) is up: an audit would take 2 * TTL.
#[test]
fn leases_released_for_an_heir_that_hangs_are_free_when_its_time_is_up() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 60);
    let before = cluster.member("b").table.endpoints();
    cluster.drain("b", true);
    // The heir a steps before b, so it has not seen the release when it hangs.
    let is_free = |it: &Cluster, endpoint: &EndpointId| it.holder(endpoint).is_none();
    cluster.pass_until(ms(3_000), |it| before.iter().any(|e| is_free(it, e)));
    cluster.hang("a", true);
    cluster.pass(ms(100));
    let released: Vec<_> = before.into_iter().filter(|it| is_free(&cluster, it)).collect();
    assert!(released.len() > 5, "{} leases are released for a", released.len());
    cluster.pass_until(ms(3_000), |it| !released.iter().any(|e| is_free(it, e)));
}

/// R8. A message names an owner of leases that are free: it is old, or forged. The instances that watch these leases read
/// them 250 ms later: an audit would take 2 * TTL.
#[test]
fn a_grant_that_was_announced_and_is_not_there_is_looked_up() {
    let n = 60;
    let mut cluster = Cluster::new(&["a", "b", "c"], n);
    let left = cluster.member("c").table.endpoints();
    cluster.hang("a", true);
    cluster.crash("c");
    let c = InstanceId::new("c");
    cluster.pass_until(2 * TTL, |it| !it.member("b").view().is_live(&c));
    let word = PeerMessage { took: left.clone(), ..PeerMessage::new(&InstanceId::new("a"), None) };
    cluster.member("a").store.wake(&[word], TTL).unwrap();
    cluster.pass_until(ms(1_500), |it| left.iter().all(|e| it.holder(e).is_some()));
}
