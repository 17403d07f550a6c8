//! The store forgets, lies about the time or gets in the way: the rules, for roles.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::election::{ElectionEvent, ElectionSettings, State};
use leasehold::store::memory::Mishap;

use testkit::electorate::{
    Electorate, HEARTBEAT, MARGIN, STEP, TTL, UNKNOWN_HOLD_OFF, lease, settings,
};

const SOON: Duration = Duration::from_millis(50);
const HOLD_OFF: Duration = TTL.saturating_add(MARGIN);

/// R5: "The first start ever on a Redis waits one TTL": nobody knows which, so the default.
#[test]
fn the_first_election_ever_waits_out_the_hold_off() {
    let mut all = Electorate::empty();
    all.join("a", settings("r"));
    all.pass(UNKNOWN_HOLD_OFF - 2 * STEP);
    assert_eq!((all.leader("r"), all.state("a", "r")), (None, State::Candidate));
    all.pass_until(2 * SOON, |it| it.leader("r").is_some());
}

/// R5: a stepped clock begins the hold-off anew. A candidate that notices asks at once, not after the first hold-off.
#[test]
fn a_server_clock_that_steps_ahead_in_a_hold_off_does_not_double_it() {
    let mut all = Electorate::empty();
    all.join("a", settings("r"));
    all.pass(SOON);
    all.server.step_clock(2_000);
    let noticed = settings("r").election_interval;
    assert!(2 * noticed < UNKNOWN_HOLD_OFF, "it looks in between");
    all.pass_until(noticed + UNKNOWN_HOLD_OFF + 4 * SOON, |it| it.leader("r").is_some());
}

/// R5, R14: the first to ask after a loss of memory names a shorter TTL than the leader has. `pass` would see two.
#[test]
fn after_a_flush_a_newcomer_with_a_shorter_ttl_does_not_lead_beside_the_old_leader() {
    let mut all = Electorate::led_by_first(&["a"]);
    all.pass_until(2 * HEARTBEAT, |it| {
        let held = it.role_state("a", "r").table().holding(&lease("r")).unwrap();
        it.clock.now().since(held.renewed_at) <= STEP && it.leader("r").is_some()
    });
    let term = all.role_state("a", "r").term();
    all.server.flush();
    // Its hold-off would be over long before the leader renews.
    let ttl = Duration::from_millis(500);
    all.join("c", ElectionSettings { ttl, heartbeat_interval: ttl / 3, ..settings("r") });
    all.pass(5 * TTL);
    assert_eq!(all.role_state("a", "r").term(), term, "and it costs the leader nothing");
    assert_eq!(all.server.owner(&lease("r")), Some(all.id("a")));
}

/// R14: the answer that another TTL was agreed on is an answer: a leader ends at once, not at its deadline.
#[test]
fn a_leader_that_is_told_of_another_ttl_leads_no_more() {
    let mut all = Electorate::led_by_first(&["a"]);
    let duty = all.role_state("a", "r").enter().unwrap();
    all.server.flush();
    all.join("c", ElectionSettings { ttl: 2 * TTL, ..settings("r") });
    all.forget_news();
    all.pass_until(HEARTBEAT + SOON, |it| it.leader("r").is_none());
    assert_eq!((duty.holds(), duty.deadline()), (false, None), "its work may go on");
    assert_eq!(all.state("a", "r"), State::Follower);
    let is_told = |it: &ElectionEvent| matches!(it, ElectionEvent::LeadershipLost { .. });
    assert!(all.news("a", "r").iter().any(is_told), "nobody was told");
}

/// R6: "a Redis that restarts empty within the TTL costs not one poll", nor a leader.
#[test]
fn a_store_that_restarts_empty_costs_no_leadership() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let term = all.role_state("a", "r").term();
    all.server.crash();
    all.pass(Duration::from_millis(300));
    all.server.restart(None);
    all.pass_until(2 * HEARTBEAT, |it| it.leader("r").is_some());
    all.pass(5 * TTL);
    assert_eq!(all.role_state("a", "r").term(), term);
    assert_eq!(all.server.owner(&lease("r")), Some(all.id("a")));
}

/// R5: the old leader may lead until its deadline, though the store knows nothing of it.
#[test]
fn after_a_flush_nobody_is_elected_while_the_old_leader_may_lead() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.cut_off("a", true);
    all.server.flush();
    all.stop("a");
    all.pass_until(HOLD_OFF + TTL + SOON, |it| it.leader("r").as_deref() == Some("b"));
}

/// R5: a replica without the last writes is promoted; the old leader reclaims or nobody leads.
#[test]
fn a_failover_that_lost_the_grant_does_not_make_two_leaders() {
    let mut all = Electorate::empty();
    all.join_with("z", settings("other"), 1_000, true);
    all.pass(STEP);
    let replica = all.server.snapshot();
    all.join("a", settings("r"));
    all.pass(SOON);
    assert_eq!(all.leader("r").as_deref(), Some("a"));
    all.server.fail_over(&replica);
    all.join("b", settings("r"));
    all.pass(3 * TTL);
    assert_eq!(all.leader("r").as_deref(), Some("a"), "it was not reclaimed");
}

/// R5, 004: a stale heartbeat proves nothing in a hold-off; and asking again and again helps nobody.
#[test]
fn in_a_hold_off_a_stale_leader_stays_and_is_not_asked_about_a_thousand_times() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let old = all.id("a");
    all.crash("a");
    let snapshot = all.server.snapshot();
    all.server.fail_over(&snapshot);
    all.server.put_lease(&lease("r"), &old, Duration::from_secs(3_600));
    all.server.set_leader_beat(&old, Some(Duration::from_secs(60)));
    let (before, _) = all.server.acquires();
    all.pass(HOLD_OFF - SOON);
    assert_eq!(all.leader("r"), None);
    let asked = all.server.acquires().0 - before;
    assert!(asked < 20, "asked {asked} times");
    all.pass_until(TTL + SOON, |it| it.leader("r").as_deref() == Some("b"));
}

/// R1, R5: a clock set back neither ends a leadership nor keeps a dead one.
#[test]
fn a_server_clock_set_back_by_an_hour_keeps_no_dead_leader() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.server.step_clock(-3_600_000);
    all.pass(2 * TTL);
    assert_eq!(all.leader("r").as_deref(), Some("a"));
    all.crash("a");
    all.pass_until(HOLD_OFF + TTL + SOON, |it| it.leader("r").as_deref() == Some("b"));
}

/// R5: a step ahead ends leases early; the leader becomes uncertain, and no other instance leads meanwhile.
#[test]
fn a_server_clock_that_steps_ahead_makes_the_leader_ask_again() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.server.step_clock(150);
    all.pass(3 * TTL);
    assert_eq!(all.leaders("r").len(), 1);
}

/// FR-010, R1: frozen for longer than its lease, it wakes as a follower.
#[test]
fn a_frozen_leader_wakes_as_a_follower() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.freeze("a", true);
    all.pass_until(TTL + SOON, |it| it.leader("r").as_deref() == Some("b"));
    assert!(!all.role_state("a", "r").is_leader(), "the clock alone tells");
    assert_eq!(all.state("a", "r"), State::Follower, "and no thread had to run for it");
    all.freeze("a", false);
    all.pass(3 * TTL);
    assert_eq!(all.leader("r").as_deref(), Some("b"));
}

/// docs/protocol.md, "Not promised": a pause that no clock counts is noticed with the next answer.
#[test]
fn a_leader_that_slept_on_a_stopped_clock_knows_better_after_one_heartbeat() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.sleep("a", 2 * TTL);
    all.pass(HEARTBEAT + SOON);
    assert!(!all.role_state("a", "r").is_leader());
    all.pass(3 * TTL);
    assert_eq!(all.leader("r").as_deref(), Some("b"));
}

/// R3: one lost answer is no lost leadership, and the listeners do not hear of it.
#[test]
fn one_unanswered_renewal_pauses_and_does_not_end_the_leadership() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let term = all.role_state("a", "r").term();
    all.forget_news();
    all.member("a").store.plan("renew", Mishap::LoseReply);
    all.pass_until(HEARTBEAT + SOON, |it| it.leader("r").is_none());
    assert_eq!(all.role_state("a", "r").leader(), None, "it does not know");
    all.pass_until(TTL / 12 + SOON, |it| it.leader("r").is_some());
    assert_eq!((all.role_state("a", "r").term(), all.news("a", "r")), (term, vec![]));
}

/// R4: an acquire that is executed when nobody waits for it any more grants nothing.
#[test]
fn an_attempt_that_arrives_late_elects_nobody() {
    let mut all = Electorate::led_by_first(&["z"]);
    all.join("a", settings("r"));
    all.pass(SOON);
    all.member("a").store.plan("acquire", Mishap::ExecuteLate(Duration::from_secs(1)));
    all.stop("z");
    all.pass(2 * STEP);
    all.crash("a");
    all.pass(TTL);
    assert_eq!(all.server.owner(&lease("r")), None, "a dead instance was elected");
}

/// R14: a candidate with another TTL is refused, and the role goes on.
#[test]
fn a_candidate_with_another_ttl_is_never_elected() {
    let mut all = Electorate::led_by_first(&["a"]);
    all.join("b", ElectionSettings { ttl: 2 * TTL, ..settings("r") });
    all.pass(SOON);
    all.stop("a");
    all.pass(3 * TTL);
    assert_eq!(all.leader("r"), None);
}

/// R1: three percent of difference between the clocks, either way.
#[test]
fn clocks_that_run_at_different_rates_make_no_two_leaders() {
    for (leader, others) in [(970, 1_030), (1_030, 970), (985, 1_015)] {
        let mut all = Electorate::empty();
        all.join_with("a", settings("r"), leader, true);
        all.pass(STEP);
        all.join_with("b", settings("r"), others, false);
        for _ in 0..10 {
            all.cut_off("a", true);
            all.pass_until(2 * TTL, |it| it.leader("r").as_deref() == Some("b"));
            all.cut_off("a", false);
            all.stop("b");
            all.pass_until(2 * TTL, |it| it.leader("r").as_deref() == Some("a"));
            all.join_with("b", settings("r"), others, false);
            all.pass(HEARTBEAT);
        }
    }
}

/// A leader that an operator robs of its key reclaims it; nobody else had the time.
#[test]
fn a_deleted_key_is_put_back_by_its_leader() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let term = all.role_state("a", "r").term();
    all.server.delete_lease(&lease("r"));
    all.pass(2 * HEARTBEAT);
    assert_eq!(all.server.owner(&lease("r")), Some(all.id("a")));
    assert_eq!(all.role_state("a", "r").term(), term);
}
