//! Every failure scenario of the specification of elections (parts 003 and 004), by name.

use std::time::Duration;

use leasehold::election::State;
use leasehold::store::memory::Mishap;

use testkit::electorate::{
    ELECTION, Electorate, HEARTBEAT, MARGIN, STEP, TTL, UNKNOWN_HOLD_OFF, lease, settings,
};

const SOON: Duration = Duration::from_millis(50);

/// 003: "Exactly one instance runs the task at any time".
#[test]
fn of_five_that_start_at_once_one_leads_and_all_know_it() {
    let mut all = Electorate::empty();
    for name in ["a", "b", "c", "d", "e"] {
        all.join(name, settings("r"));
    }
    all.pass_until(UNKNOWN_HOLD_OFF + SOON, |it| it.leader("r").is_some());
    all.pass(SOON);
    let leader = all.leader("r").unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(
            all.role_state(name, "r").leader(),
            Some(all.id(&leader)),
            "{name} sees another"
        );
        let expected = if name == leader { State::Leader } else { State::Follower };
        assert_eq!(all.state(name, "r"), expected, "{name}");
    }
    assert_eq!(all.server.owner(&lease("r")), Some(all.id(&leader)));
}

/// 003: "Leader crashes: Lock expires after TTL, new leader elected". 004, scenario 1; failover table.
#[test]
fn a_crashed_leader_is_replaced_when_its_lease_ends_and_not_an_interval_later() {
    for waited in [0, 100, 990, 1_730] {
        let mut all = Electorate::led_by_first(&["a", "b", "c"]);
        all.pass(Duration::from_millis(waited));
        let left = all.server.lease_left(&lease("r")).unwrap();
        all.crash("a");
        let took = all.pass_until(left + SOON, |it| it.leader("r").is_some());
        assert!(took >= left, "elected {:?} before the lease ended", left - took);
        all.pass(SOON);
        let leader = all.leader("r").unwrap();
        let other = if leader == "b" { "c" } else { "b" };
        assert_eq!(all.state(other, "r"), State::Follower, "the one that was not elected");
        assert_eq!(all.role_state(other, "r").leader(), Some(all.id(&leader)));
    }
}

/// 003: "Network partition: Partitioned leader loses lock after TTL". 004, scenario 2: it does not go on
/// thinking that it leads.
#[test]
fn a_leader_that_is_cut_off_knows_it_before_another_leads() {
    let mut all = Electorate::led_by_first(&["a", "b", "c"]);
    all.cut_off("a", true);
    all.pass_until(HEARTBEAT + SOON, |it| !it.role_state("a", "r").is_leader());
    assert_eq!(all.leader("r"), None, "nobody leads between the two");
    assert_eq!(all.state("a", "r"), State::Leader, "it may still hear that it has been renewed");
    all.pass_until(TTL, |it| it.state("a", "r") == State::Follower);
    all.pass_until(TTL, |it| it.leader("r").is_some());
    assert_ne!(all.leader("r").as_deref(), Some("a"));
    all.cut_off("a", false);
    all.pass(2 * TTL);
    let leader = all.leader("r").unwrap();
    assert_eq!(all.role_state("a", "r").leader(), Some(all.id(&leader)), "the one that came back");
    for _ in 0..100 {
        all.pass(7 * STEP);
        assert_eq!(
            all.role_state("a", "r").leader(),
            Some(all.id(&leader)),
            "for a moment, nobody"
        );
    }
}

/// 004, failover table, "Network partition": TTL, not TTL + election interval.
#[test]
fn a_leader_that_is_cut_off_is_replaced_when_its_lease_ends() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let left = all.server.lease_left(&lease("r")).unwrap();
    all.cut_off("a", true);
    all.pass_until(left + SOON, |it| it.leader("r").as_deref() == Some("b"));
}

/// 003: "Redis unavailable: All instances become followers, tasks pause".
#[test]
fn without_redis_everybody_follows_and_nobody_leads() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let saved = all.server.snapshot();
    all.server.crash();
    all.pass_until(HEARTBEAT + SOON, |it| it.leader("r").is_none());
    all.pass(2 * TTL);
    for name in ["a", "b"] {
        assert_eq!(all.state(name, "r"), State::Follower, "{name}");
        assert!(!all.work(name, "r", TTL), "{name} works");
        assert_eq!(all.role_state(name, "r").leader(), None);
    }
    all.server.restart(Some(&saved));
    // R5: the leader from before may lead until then.
    all.pass_until(TTL + 3 * MARGIN + TTL / 12, |it| it.leader("r").is_some());
}

/// 003: "Graceful shutdown: Immediate lock release, fast failover". 004, failover table: not an interval.
#[test]
fn a_leader_that_stops_is_replaced_within_milliseconds() {
    let mut all = Electorate::led_by_first(&["a", "b", "c"]);
    all.stop("a");
    let took = all.pass_until(SOON, |it| it.leader("r").is_some());
    println!("measured: handed over in {took:?} of an election interval of {ELECTION:?}");
    assert!(!all.members.contains_key("a"), "it is gone");
}

/// 004, scenario 3: "Heartbeat Stale but Leader Key Present".
#[test]
fn a_stale_leader_is_replaced_though_its_key_is_there() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let (old, term) = (all.id("a"), all.server.granted(&lease("r")));
    all.crash("a");
    // Another process keeps its key alive, as the documents' own election task would.
    let stale_after = TTL + Duration::from_secs(5);
    let mut waited = Duration::ZERO;
    while all.leader("r").is_none() {
        all.server.set_lease_left(&lease("r"), Some(TTL));
        let age = all.server.leader_beat(&old).map(|it| it.0);
        all.server.set_leader_beat(&old, age);
        assert!(waited <= stale_after + TTL, "still there after {waited:?}");
        all.pass(STEP);
        waited += STEP;
    }
    assert!(waited > stale_after - HEARTBEAT - SOON, "replaced after {waited:?}, too early");
    assert_eq!(all.leader("r").as_deref(), Some("b"));
    assert!(all.role_state("b", "r").term().unwrap() > term);
    assert_eq!(all.server.leader_beat(&old), None, "004: cleaned up by the new leader");
}

/// 004, scenario 3: why that is safe. A leader that cannot write its heartbeat has stepped down long before.
#[test]
fn a_leader_whose_heartbeat_cannot_be_written_has_stepped_down_before_it_is_stale() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let old = all.id("a");
    for _ in 0..200 {
        all.member("a").store.plan("renew", Mishap::LoseRequest);
    }
    let mut waited = Duration::ZERO;
    while all.state("a", "r") == State::Leader {
        all.server.set_lease_left(&lease("r"), Some(TTL));
        all.pass(STEP);
        waited += STEP;
        assert!(waited < TTL, "leads after {waited:?} without a heartbeat");
    }
    let (age, _) = all.server.leader_beat(&old).unwrap();
    assert!(age < TTL, "its heartbeat is {age:?} old");
    assert_eq!(all.leader("r"), None);
}

/// 004, "Double Verification": the reply to the grant was lost, and the role is not.
#[test]
fn a_grant_whose_reply_was_lost_is_found_and_led_under_a_new_term() {
    let mut all = Electorate::empty();
    all.join_with("a", settings("r"), 1_000, true);
    all.member("a").store.plan("acquire", Mishap::LoseReply);
    all.pass(STEP);
    let lost = all.server.granted(&lease("r"));
    assert_eq!(all.leader("r"), None, "nobody may lead on a guess");
    assert_eq!(all.server.owner(&lease("r")), Some(all.id("a")));
    all.pass_until(TTL / 12 + SOON, |it| it.leader("r").is_some());
    assert!(all.role_state("a", "r").term().unwrap() > lost);
}

/// 004, "Random Startup Delay (0-10s)": an option.
#[test]
fn startup_jitter_delays_the_first_attempt_and_nothing_else() {
    let mut all = Electorate::empty();
    let jitter = Duration::from_secs(10);
    let mut first = settings("other");
    first.ttl = TTL;
    all.join_with("z", first, 1_000, true);
    all.pass(STEP);
    for name in ["a", "b", "c", "d"] {
        all.join(
            name,
            leasehold::election::ElectionSettings { startup_jitter: jitter, ..settings("r") },
        );
    }
    let took = all.pass_until(jitter, |it| it.leader("r").is_some());
    assert!(took > 2 * STEP, "no delay: {took:?}");
    let leader = all.leader("r").unwrap();
    all.pass(jitter);
    assert_eq!(all.leader("r"), Some(leader.clone()), "another took it when its delay was over");
    all.stop(&leader);
    all.pass_until(SOON, |it| it.leader("r").is_some());
}

/// 004, "State Transitions": every state is seen, and from where the diagram says.
#[test]
fn every_state_is_reached() {
    let mut all = Electorate::empty();
    all.join("a", settings("r"));
    assert_eq!(all.state("a", "r"), State::Follower, "004: initial state");
    all.pass(2 * STEP);
    assert_eq!(all.state("a", "r"), State::Candidate, "R5: nobody leads, nothing is granted yet");
    all.pass_until(UNKNOWN_HOLD_OFF + SOON, |it| it.state("a", "r") == State::Leader);
    all.resign("a", "r");
    assert_eq!(all.state("a", "r"), State::Follower);
}
