//! Who is preferred: priorities, heirs, observers, single attempts.

use std::time::Duration;

use leasehold::election::role_elector::attempt::Outcome;
use leasehold::election::{ElectionSettings, State};
use leasehold::model::InstanceId;
use leasehold::store::PeerMessage;
use leasehold::store::memory::Mishap;

use testkit::electorate::{Electorate, HEARTBEAT, STEP, TTL, lease, settings};

const SOON: Duration = Duration::from_millis(50);
const REST: Duration = Duration::from_secs(2);

fn with_priority(priority: u32) -> ElectionSettings {
    ElectionSettings { priority, ..settings("r") }
}

#[test]
fn a_higher_priority_takes_over_at_once_and_gracefully() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.join("c", with_priority(5));
    all.pass_until(2 * SOON, |it| it.leader("r").as_deref() == Some("c"));
}

#[test]
fn an_equal_or_lower_priority_takes_nothing() {
    let mut all = Electorate::empty();
    all.join_with("a", with_priority(5), 1_000, true);
    all.pass(STEP);
    all.join("b", with_priority(5));
    all.join("c", with_priority(4));
    let term = all.role_state("a", "r").term();
    all.pass(10 * TTL);
    assert_eq!(all.role_state("a", "r").term(), term, "it was given up in between");
}

/// The one that gave way does not ask for it again.
#[test]
fn priorities_do_not_play_ping_pong() {
    let mut all = Electorate::empty();
    all.join_with("a", with_priority(1), 1_000, true);
    all.pass(STEP);
    all.join("b", with_priority(3));
    all.join("c", with_priority(2));
    all.pass(TTL);
    assert_eq!(all.leader("r").as_deref(), Some("b"));
    let (_, grants) = all.server.acquires();
    all.pass(20 * TTL);
    assert_eq!(all.server.acquires().1, grants, "the role moved");
}

/// While the heir is on its way nobody else takes it; not even one that is faster.
#[test]
fn the_heir_is_preferred_to_others_who_stand() {
    let mut all = Electorate::led_by_first(&["b", "a", "d"]);
    all.join("c", with_priority(5));
    // It takes its time.
    all.pass(STEP);
    all.member("c").store.plan("role_statuses", Mishap::LoseRequest);
    all.pass(2 * STEP);
    all.member("c").store.plan("role_statuses", Mishap::LoseRequest);
    let took = all.pass_until(Duration::from_secs(1), |it| it.leader("r").is_some());
    assert_eq!(all.leader("r").as_deref(), Some("c"), "after {took:?}");
}

/// An heir that dies before it comes: half a second, not a TTL.
#[test]
fn a_role_whose_heir_died_is_led_by_another_after_half_a_second() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let (id, r) = (InstanceId::new("ghost"), lease("r"));
    let wants = vec![r.clone()];
    all.say(&PeerMessage { wants, priority: 9, ..PeerMessage::new(&id, Some(all.id("a"))) });
    let took =
        all.pass_until(Duration::from_millis(600), |it| it.leader("r").as_deref() == Some("b"));
    assert!(took >= Duration::from_millis(500), "the heir had only {took:?}");
}

/// It asked, so it is to have it, even if it does not hear that it may.
#[test]
fn an_heir_that_hears_nothing_takes_what_it_asked_for() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.join("c", with_priority(5));
    all.lose_messages("c", true);
    all.pass_until(Duration::from_millis(450), |it| it.leader("r").as_deref() == Some("c"));
    all.pass(5 * TTL);
    assert_eq!(all.leader("r").as_deref(), Some("c"));
}

/// R10: "No voluntary move during a hold-off": nobody could be granted it.
#[test]
fn a_leader_does_not_give_way_in_a_hold_off() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.server.crash();
    all.server.restart(None);
    all.pass_until(2 * HEARTBEAT, |it| it.server.owner(&lease("r")) == Some(it.id("a")));
    all.join("c", with_priority(5));
    let before = all.role_state("a", "r").term();
    all.pass(Duration::from_millis(1_500));
    assert_eq!(all.role_state("a", "r").term(), before, "given up, and nobody can have it");
    all.pass_until(3 * TTL, |it| it.leader("r").as_deref() == Some("c"));
}

/// `leasehold resign`, from outside.
#[test]
fn a_leader_that_is_asked_to_resign_does() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let resign = vec![lease("r")];
    all.say(&PeerMessage { resign, ..PeerMessage::new(&InstanceId::new("operator"), None) });
    all.pass_until(2 * SOON, |it| it.leader("r").as_deref() == Some("b"));
}

/// Words are hints: whatever a stranger says, nobody leads twice and nobody leads less for long.
#[test]
fn forged_words_cost_at_most_a_hand_over() {
    let mut all = Electorate::led_by_first(&["a", "b", "c"]);
    let (stranger, r) = (InstanceId::new("stranger"), lease("r"));
    for n in 0..60 {
        let mut word = PeerMessage::new(&stranger, None);
        match n % 4 {
            0 => word.freed = vec![r.clone()],
            1 => word.took = vec![r.clone()],
            2 => (word.freed, word.heir) = (vec![r.clone()], Some(all.id("b"))),
            _ => (word.wants, word.priority) = (vec![r.clone()], 0),
        }
        all.say(&word);
        all.pass(Duration::from_millis(70));
        assert_eq!(all.leader("r").as_deref(), Some("a"), "{word:?}");
    }
}

/// Without any word everything still happens, at the next look.
#[test]
fn whoever_hears_nothing_follows_all_the_same() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.lose_messages("b", true);
    all.stop("a");
    all.pass_until(TTL + SOON, |it| it.leader("r").as_deref() == Some("b"));
}

#[test]
fn an_observer_knows_who_leads_and_never_stands() {
    let mut all = Electorate::led_by_first(&["a"]);
    all.join("o", ElectionSettings { stands: false, priority: 9, ..settings("r") });
    all.pass(SOON);
    assert_eq!(all.role_state("o", "r").leader(), Some(all.id("a")));
    all.crash("a");
    all.pass(5 * TTL);
    assert_eq!((all.leader("r"), all.state("o", "r")), (None, State::Follower));
    assert_eq!(all.role_state("o", "r").leader(), None);
    assert_eq!(all.news("o", "r"), []);
    assert_eq!(all.server.owner(&lease("r")), None);
}

/// "a one-shot form": elected, then never again.
#[test]
fn a_single_attempt_leads_until_it_ends_and_does_not_come_back() {
    let mut all = Electorate::led_by_first(&["z"]);
    all.stop("z");
    all.pass(SOON);
    let decided = all.join_once("a", settings("r"));
    all.pass(SOON);
    assert_eq!(decided.try_recv().unwrap().unwrap(), Outcome::Elected);
    all.pass(3 * TTL);
    assert_eq!(all.leader("r").as_deref(), Some("a"), "it is renewed");
    all.cut_off("a", true);
    all.pass(TTL);
    all.cut_off("a", false);
    all.pass(3 * TTL);
    assert_eq!(all.leader("r"), None, "once lost it does not come back");
}

#[test]
fn a_single_attempt_says_who_leads() {
    let mut all = Electorate::led_by_first(&["a"]);
    let decided = all.join_once("b", settings("r"));
    all.pass(SOON);
    assert_eq!(decided.try_recv().unwrap().unwrap(), Outcome::LedBy(all.id("a")));
    all.crash("a");
    all.pass(2 * TTL);
    assert_eq!(all.leader("r"), None, "it stood only once");
}

/// R5.
#[test]
fn a_single_attempt_waits_out_a_hold_off() {
    let mut all = Electorate::empty();
    let decided = all.join_once("a", settings("r"));
    // Of the default TTL, because nobody knows how long a leader of before may lead.
    all.pass(Duration::from_secs(30));
    assert!(decided.try_recv().is_err(), "decided in a hold-off");
    assert_eq!(all.state("a", "r"), State::Candidate);
    all.pass(Duration::from_secs(2));
    assert_eq!(decided.try_recv().unwrap().unwrap(), Outcome::Elected);
}

/// Without an answer there is a verdict too: nothing hangs.
#[test]
fn a_single_attempt_that_cannot_ask_fails() {
    let mut all = Electorate::led_by_first(&["a"]);
    let decided = all.join_once("b", settings("r"));
    all.member("b").store.plan("role_statuses", Mishap::LoseRequest);
    all.pass(SOON);
    assert!(decided.try_recv().unwrap().is_err());
}

/// After a resignation everybody else comes first, even where priorities say otherwise.
#[test]
fn a_high_priority_that_resigns_is_followed_by_another_for_a_while() {
    let mut all = Electorate::empty();
    all.join_with("a", with_priority(5), 1_000, true);
    all.pass(STEP);
    all.join("b", with_priority(0));
    all.pass(SOON);
    all.resign("a", "r");
    all.pass_until(SOON, |it| it.leader("r").as_deref() == Some("b"));
    all.pass(REST - 2 * SOON);
    assert_eq!(all.leader("r").as_deref(), Some("b"), "it rests for two seconds");
    // Then it asks: it does not wait until the lease that it saw would have ended.
    all.pass_until(4 * SOON, |it| it.leader("r").as_deref() == Some("a"));
}

/// docs/elections.md: "as soon as the command has ended". The rest is for others to lead, and one has.
#[test]
fn after_a_higher_priority_came_and_left_the_role_is_led_at_once() {
    for stays in [STEP, Duration::from_millis(500)] {
        let mut all = Electorate::led_by_first(&["a"]);
        all.join("c", with_priority(5));
        all.pass_until(2 * SOON, |it| it.leader("r").as_deref() == Some("c"));
        all.pass(stays);
        all.stop("c");
        all.pass_until(2 * SOON, |it| it.leader("r").as_deref() == Some("a"));
    }
}

/// Half a second for the heir, and a moment for others who stand; not the two seconds of a resignation.
#[test]
fn whoever_gave_up_for_an_heir_that_died_leads_again_within_a_second() {
    let mut all = Electorate::led_by_first(&["a"]);
    let ghost = InstanceId::new("ghost");
    let word = PeerMessage::new(&ghost, Some(all.id("a")));
    all.say(&PeerMessage { wants: vec![lease("r")], priority: 9, ..word });
    all.pass_until(2 * SOON, |it| it.leader("r").is_none());
    all.pass_until(Duration::from_millis(850), |it| it.leader("r").as_deref() == Some("a"));
}

/// A candidate that may ask but cannot be elected (a right is missing) is given way to once, not for ever.
#[test]
fn a_candidate_that_cannot_be_elected_costs_one_hand_over_in_half_a_minute() {
    for is_refused in [true, false] {
        let mut all = Electorate::led_by_first(&["a", "b"]);
        all.join("c", with_priority(5));
        if is_refused {
            all.server.refuse_acquires("c", true);
        } else {
            (0..5_000).for_each(|_| all.member("c").store.plan("acquire", Mishap::LoseRequest));
        }
        costs_one_hand_over(all);
    }
}

fn costs_one_hand_over(mut all: Electorate) {
    let asks = |all: &Electorate| all.server.journal().iter().filter(|it| **it == "wake").count();
    let (grants, asked) = (all.server.acquires().1, asks(&all));
    all.pass(Duration::from_secs(29));
    assert_eq!(all.server.acquires().1, grants + 1, "it was given way to again");
    assert_eq!(asks(&all), asked + 1, "it asked again for what it could not take");
    all.pass(Duration::from_secs(80));
    let more = all.server.acquires().1 - grants;
    assert!(more <= 3, "{more} hand-overs in 109 s: after 30 s, then after 60 s");
}

/// It asks again and again, and does not know itself that it cannot be elected: the leaders do, all of them.
#[test]
fn leaders_remember_for_whom_they_gave_up_in_vain() {
    let mut all = Electorate::led_by_first(&["a", "b", "d"]);
    let ghost = InstanceId::new("ghost");
    let grants = all.server.acquires().1;
    for _ in 0..29 {
        let wants = vec![lease("r")];
        all.say(&PeerMessage { wants, priority: 9, ..PeerMessage::new(&ghost, None) });
        all.pass(Duration::from_secs(1));
    }
    assert_eq!(all.server.acquires().1, grants + 1, "given up in vain again");
    all.join("c", with_priority(5));
    all.pass_until(2 * SOON, |it| it.leader("r").as_deref() == Some("c"));
}

/// An heir that came is given the role the next time, too.
#[test]
fn an_heir_that_came_is_not_kept_waiting() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.join("c", with_priority(5));
    all.pass_until(2 * SOON, |it| it.leader("r").as_deref() == Some("c"));
    for _ in 0..3 {
        all.resign("c", "r");
        all.pass_until(2 * SOON, |it| it.leader("r").is_some_and(|it| it != "c"));
        let limit = Duration::from_secs(16);
        all.pass_until(limit, |it| it.leader("r").as_deref() == Some("c"));
    }
}
