//! What listeners are told: every row of 004's table, as exact sequences.

use std::sync::Arc;

use leasehold::election::ElectionEvent::{
    ElectionFailed, LeadershipAcquired, LeadershipLost, StateChanged,
};
use leasehold::election::State::{Candidate, Follower, Leader};
use leasehold::election::{ElectionEvent, LossReason, State};
use leasehold::model::{FenceToken, InstanceId, Tenure};
use leasehold::store::Store;
use leasehold::store::memory::Mishap;

use testkit::electorate::{
    Electorate, HEARTBEAT, STEP, TTL, UNKNOWN_HOLD_OFF, lease, role, settings,
};

fn changed(from: State, to: State) -> ElectionEvent {
    StateChanged { role: role("r"), from, to }
}

fn acquired(term: FenceToken) -> ElectionEvent {
    LeadershipAcquired { role: role("r"), term }
}

fn lost(term: FenceToken, reason: LossReason) -> ElectionEvent {
    LeadershipLost { role: role("r"), term, reason }
}

/// 004: "`* → LEADER`: StateChangedEvent, LeadershipAcquiredEvent".
#[test]
fn whoever_is_elected_hears_of_the_state_and_of_the_leadership() {
    let all = Electorate::led_by_first(&["a", "b"]);
    let term = all.role_state("a", "r").term().unwrap();
    let expected = [changed(Follower, Candidate), changed(Candidate, Leader), acquired(term)];
    assert_eq!(all.news("a", "r"), expected);
    assert_eq!(all.news("b", "r"), [], "004: it follows from the beginning");
}

/// 004: "`LEADER → *`: StateChangedEvent, LeadershipLostEvent", by its deadline.
#[test]
fn whoever_is_not_renewed_in_time_hears_that_it_expired() {
    let mut all = Electorate::led_by_first(&["a"]);
    let term = all.role_state("a", "r").term().unwrap();
    all.forget_news();
    all.cut_off("a", true);
    all.pass(TTL);
    assert_eq!(all.news("a", "r"), [changed(Leader, Follower), lost(term, LossReason::Expired)]);
}

/// The same by resignation, and by an operator's hand.
#[test]
fn whoever_gives_up_or_is_robbed_hears_why() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let term = all.role_state("a", "r").term().unwrap();
    all.forget_news();
    all.resign("a", "r");
    let resigned = [changed(Leader, Follower), lost(term, LossReason::Resigned)];
    assert_eq!(all.news("a", "r"), resigned, "at once, not when it is given back");
    all.pass(10 * STEP);
    let term = all.role_state("b", "r").term().unwrap();
    all.forget_news();
    all.is_tampered = true;
    all.server.put_lease(&lease("r"), &InstanceId::new("thief"), TTL);
    all.pass(HEARTBEAT + STEP);
    let taken = LossReason::Taken(InstanceId::new("thief"));
    assert_eq!(all.news("b", "r"), [changed(Leader, Follower), lost(term, taken)]);
    assert_eq!(all.role_state("b", "r").leader(), Some(InstanceId::new("thief")));
}

/// A later grant has ended this one, though nobody has it now.
#[test]
fn whoever_cannot_reclaim_hears_that_it_is_gone() {
    let mut all = Electorate::led_by_first(&["a"]);
    let term = all.role_state("a", "r").term().unwrap();
    all.forget_news();
    // Its own release, of which it does not know.
    let a = all.member("a");
    let ask = all.role_state("a", "r").table().request().context;
    a.store.release(&ask, &[Tenure::new(lease("r"), term)], &[]).unwrap();
    all.pass(HEARTBEAT + STEP);
    let news = all.news("a", "r");
    assert_eq!(news[..2], [changed(Leader, Follower), lost(term, LossReason::Gone)]);
    all.pass_until(2 * TTL, |it| it.leader("r").is_some());
    let again = all.role_state("a", "r").term().unwrap();
    let told: Vec<_> = news[2..].iter().cloned().chain(all.news("a", "r")).collect();
    assert_eq!(told, [changed(Follower, Candidate), changed(Candidate, Leader), acquired(again)]);
}

/// 004: "`* → FOLLOWER`: StateChangedEvent" and "Election Failed: ElectionFailedEvent", with the winner.
#[test]
fn whoever_loses_a_race_hears_who_won() {
    let mut all = Electorate::led_by_first(&["a", "b", "c"]);
    let winner = InstanceId::new("c");
    all.forget_news();
    all.crash("a");
    all.freeze("c", true);
    // b sees that nobody leads and stands, but c was faster.
    let server = Arc::clone(&all.server);
    let faster = winner.clone();
    let _stays = all.role_state("b", "r").listen_inline(move |event| {
        if matches!(event, StateChanged { to: Candidate, .. }) {
            server.put_lease(&lease("r"), &faster, TTL);
        }
    });
    all.pass(TTL + STEP);
    let reason = format!("{winner} was elected");
    let failed = ElectionFailed { role: role("r"), winner: Some(winner.clone()), reason };
    let expected = [changed(Follower, Candidate), failed, changed(Candidate, Follower)];
    assert_eq!(all.news("b", "r"), expected);
    assert_eq!(all.role_state("b", "r").leader(), Some(winner));
}

/// "fail closed on Redis trouble": nobody won.
#[test]
fn whoever_cannot_ask_hears_that_the_election_failed() {
    let mut all = Electorate::empty();
    all.join_with("a", settings("r"), 1_000, true);
    all.member("a").store.plan("acquire", Mishap::LoseRequest);
    all.pass(STEP);
    let news = all.news("a", "r");
    let [first, ElectionFailed { winner: None, reason, .. }, last] = &news[..] else {
        panic!("{news:?}");
    };
    assert_eq!((first, last), (&changed(Follower, Candidate), &changed(Candidate, Follower)));
    assert!(reason.contains("no answer in time"), "{reason}");
    all.pass_until(TTL, |it| it.leader("r").is_some());
}

/// R5: nothing is decided, so nothing has failed.
#[test]
fn a_hold_off_is_no_failed_election() {
    let mut all = Electorate::empty();
    all.join("a", settings("r"));
    all.pass_until(UNKNOWN_HOLD_OFF + 2 * STEP, |it| it.leader("r").is_some());
    let term = all.role_state("a", "r").term().unwrap();
    let expected = [changed(Follower, Candidate), changed(Candidate, Leader), acquired(term)];
    assert_eq!(all.news("a", "r"), expected);
}

/// "never miss or reorder a transition": one that causes the next one from within.
#[test]
fn a_listener_that_resigns_hears_of_that_too_and_in_order() {
    let mut all = Electorate::empty();
    all.join_with("a", settings("r"), 1_000, true);
    let role_state = Arc::clone(all.role_state("a", "r"));
    let inner = Arc::clone(&role_state);
    let _stays = role_state.listen_inline(move |event| {
        if matches!(event, LeadershipAcquired { .. }) {
            assert_eq!(inner.state(), Leader);
            inner.resign(None);
            assert!(!inner.is_leader());
        }
    });
    all.pass(STEP);
    let news = all.news("a", "r");
    let Some(LeadershipAcquired { term, .. }) = news.get(2) else { panic!("{news:?}") };
    let expected = [
        changed(Follower, Candidate),
        changed(Candidate, Leader),
        acquired(*term),
        changed(Leader, Follower),
        lost(*term, LossReason::Resigned),
    ];
    assert_eq!(news, expected);
    all.pass(2 * STEP);
    assert_eq!(all.server.owner(&lease("r")), None, "it was given back");
}

/// A stop that overtakes the grant: the role is given back, not kept for ever.
#[test]
fn a_listener_that_stops_the_candidate_leaves_nothing_behind() {
    let mut all = Electorate::empty();
    all.join_with("a", settings("r"), 1_000, true);
    let role_state = Arc::clone(all.role_state("a", "r"));
    let (inner, events) =
        (Arc::clone(&role_state), Arc::clone(&all.member("a").stands["r"].events));
    let _stays = role_state.listen_inline(move |event| {
        if matches!(event, StateChanged { to: Candidate, .. }) {
            inner.stop();
        }
    });
    all.pass_until(10 * STEP, |it| it.members.is_empty());
    assert_eq!(all.server.owner(&lease("r")), None, "nobody leads, nobody else can");
    let news = events.lock().clone();
    let Some(LeadershipAcquired { term, .. }) = news.get(2) else { panic!("{news:?}") };
    assert_eq!(news[3..], [changed(Leader, Follower), lost(*term, LossReason::Resigned)]);
}

/// Each registration can be undone.
#[test]
fn an_unregistered_listener_hears_nothing_more() {
    let mut all = Electorate::led_by_first(&["a"]);
    let heard = Arc::new(parking_lot::Mutex::new(0));
    let count = Arc::clone(&heard);
    let registration = all.role_state("a", "r").listen_inline(move |_| *count.lock() += 1);
    assert_eq!(*heard.lock(), 2, "what is the case");
    all.resign("a", "r");
    assert_eq!(*heard.lock(), 4);
    registration.unregister();
    all.pass(2 * TTL);
    assert_eq!(all.leader("r").as_deref(), Some("a"), "it stands again after its rest");
    assert_eq!(*heard.lock(), 4);
}

/// A listener that is added late gets the current state first, then what happens.
#[test]
fn a_new_listener_is_told_what_is_the_case_first() {
    let mut all = Electorate::empty();
    all.join_with("a", settings("r"), 1_000, false);
    let listen = |all: &Electorate| {
        let heard = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let said = Arc::clone(&heard);
        let _stays = all.role_state("a", "r").listen_inline(move |it| said.lock().push(it.clone()));
        heard
    };
    let from_the_beginning = listen(&all);
    assert_eq!(*from_the_beginning.lock(), [], "every election begins as a follower");
    all.pass(2 * STEP);
    let as_candidate = listen(&all);
    assert_eq!(*as_candidate.lock(), [changed(Follower, Candidate)]);
    all.pass_until(UNKNOWN_HOLD_OFF, |it| it.leader("r").is_some());
    let term = all.role_state("a", "r").term().unwrap();
    let as_leader = listen(&all);
    assert_eq!(*as_leader.lock(), [changed(Follower, Leader), acquired(term)]);
    all.resign("a", "r");
    let end = [changed(Leader, Follower), lost(term, LossReason::Resigned)];
    for heard in [from_the_beginning, as_candidate, as_leader] {
        let heard = heard.lock();
        assert_eq!(heard[heard.len() - 2..], end);
    }
}
