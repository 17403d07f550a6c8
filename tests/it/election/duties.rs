//! The leader's work: when it may begin, and that the role stays until it has ended.

use std::time::Duration;

use leasehold::election::{ElectionSettings, State};
use leasehold::store::memory::Mishap;

use testkit::electorate::{Electorate, HEARTBEAT, MARGIN, STEP, TTL, lease, role, settings};

const SOON: Duration = Duration::from_millis(50);

/// `run_if_leader`: only on the leader.
#[test]
fn work_begins_only_where_the_role_is_led() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    assert!(all.work("a", "r", TTL));
    assert!(!all.work("b", "r", TTL));
    all.cut_off("a", true);
    all.pass(HEARTBEAT + SOON);
    assert!(!all.work("a", "r", TTL), "R3: not knowing pauses");
}

/// R11: what is under way ends first, and is renewed meanwhile, however long it takes.
#[test]
fn a_resignation_waits_for_the_work_and_keeps_the_role_meanwhile() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    assert!(all.work("a", "r", 3 * TTL));
    assert!(all.work("a", "r", TTL));
    all.resign("a", "r");
    assert_eq!((all.leader("r"), all.state("a", "r")), (None, State::Follower));
    assert!(!all.work("a", "r", TTL), "nothing more begins");
    all.pass(3 * TTL - 2 * STEP);
    assert_eq!(all.server.owner(&lease("r")), Some(all.id("a")), "gone before the work had ended");
    all.pass_until(SOON, |it| it.leader("r").as_deref() == Some("b"));
}

/// The same for a stop, and for the higher priority that asks.
#[test]
fn a_stop_and_a_wish_wait_for_the_work_too() {
    for is_stop in [true, false] {
        let mut all = Electorate::led_by_first(&["a", "b"]);
        assert!(all.work("a", "r", TTL));
        if is_stop {
            all.stop("a");
        } else {
            all.join("c", ElectionSettings { priority: 1, ..settings("r") });
        }
        all.pass(TTL - 2 * STEP);
        assert_eq!(all.leader("r"), None);
        let heir = if is_stop { "b" } else { "c" };
        all.pass_until(SOON, |it| it.leader("r").as_deref() == Some(heir));
    }
}

/// What is under way when a leadership is lost cannot be called back: it is told.
#[test]
fn work_sees_that_its_leadership_is_over() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let duty = all.role_state("a", "r").enter().unwrap();
    assert_eq!(Some(duty.term()), all.role_state("a", "r").term());
    assert!(duty.holds() && duty.deadline().is_some());
    assert!(duty.remaining() > TTL / 2 && duty.remaining() < TTL, "{:?}", duty.remaining());
    assert_eq!(format!("{duty:?}"), format!("Duty(r, term {})", duty.term()));
    all.cut_off("a", true);
    all.pass_until(TTL, |it| it.leader("r").as_deref() == Some("b"));
    assert!(!duty.holds());
    assert_eq!((duty.deadline(), duty.remaining()), (None, Duration::ZERO));
    all.cut_off("a", false);
    all.stop("b");
    all.pass_until(TTL, |it| it.leader("r").as_deref() == Some("a"));
    assert!(!duty.holds(), "a later term of the same instance is another leadership");
}

/// A resignation during which the role is lost: the next term is not given up with it.
#[test]
fn a_resignation_ends_with_the_term_it_was_meant_for() {
    let mut all = Electorate::led_by_first(&["a"]);
    let duty = all.role_state("a", "r").enter().unwrap();
    all.resign("a", "r");
    all.cut_off("a", true);
    all.pass(TTL);
    all.cut_off("a", false);
    all.pass_until(2 * TTL, |it| it.leader("r").as_deref() == Some("a"));
    drop(duty);
    all.pass(2 * TTL);
    assert_eq!(all.leader("r").as_deref(), Some("a"), "given up by an old resignation");
}

/// "it stands again after two seconds".
#[test]
fn whoever_resigned_leaves_the_role_to_others_for_two_seconds() {
    let mut all = Electorate::led_by_first(&["a"]);
    all.resign("a", "r");
    all.pass(Duration::from_millis(1_950));
    assert_eq!(all.leader("r"), None);
    all.pass_until(2 * SOON, |it| it.leader("r").as_deref() == Some("a"));
}

/// A release that got lost: the key stays until its TTL, and nobody leads under it.
#[test]
fn a_lost_release_costs_time_and_nothing_else() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    all.member("a").store.plan("release", Mishap::LoseRequest);
    all.stop("a");
    all.pass(SOON);
    assert!(!all.members.contains_key("a") && all.leader("r").is_none());
    all.pass_until(TTL + SOON, |it| it.leader("r").as_deref() == Some("b"));
}

/// R4: a release that is executed late does not end a later term.
#[test]
fn a_release_executed_late_leaves_the_next_term_alone() {
    let mut all = Electorate::led_by_first(&["a", "b"]);
    let late = Mishap::ExecuteLate(TTL + Duration::from_millis(500));
    all.member("a").store.plan("release", late);
    all.resign("a", "r");
    all.pass_until(TTL + SOON, |it| it.leader("r").is_some());
    let (leader, term) = (all.leader("r").unwrap(), all.server.granted(&lease("r")));
    all.pass(TTL);
    assert_eq!((all.leader("r"), all.server.granted(&lease("r"))), (Some(leader), term));
}

/// Two roles of one instance share a heartbeat: giving one up costs the other nothing.
#[test]
fn an_instance_leads_several_roles_and_gives_up_one() {
    let mut all = Electorate::empty();
    all.join_with("a", settings("r"), 1_000, true);
    all.join("a", ElectionSettings { ttl: 2 * TTL, ..settings("s") });
    all.pass_until(2 * TTL + 3 * MARGIN, |it| it.leader("s").is_some());
    all.join("b", settings("r"));
    all.join("b", ElectionSettings { ttl: 2 * TTL, ..settings("s") });
    all.pass(SOON);
    all.resign("a", "r");
    all.pass_until(SOON, |it| it.leader("r").as_deref() == Some("b"));
    all.pass(5 * TTL);
    assert_eq!(all.leader("s").as_deref(), Some("a"));
    assert_eq!(all.role_state("b", "s").leader(), Some(all.id("a")));
    assert_eq!(all.role_state("a", "r").role(), &role("r"));
    assert!(all.server.leader_beat(&all.id("a")).is_some_and(|it| it.0 <= HEARTBEAT + SOON));
}

/// Hundreds of roles are looked at, won, renewed and given back in a few exchanges, not in one each.
#[test]
fn hundreds_of_roles_cost_a_few_round_trips() {
    const ROLES: usize = 300;
    let mut all = Electorate::empty();
    let names: Vec<String> = (0..ROLES).map(|it| format!("r{it}")).collect();
    names.iter().for_each(|it| all.join_with("a", settings(it), 1_000, true));
    let calls =
        |all: &Electorate, op: &str| all.server.journal().iter().filter(|it| **it == op).count();
    all.pass_until(SOON, |it| names.iter().all(|name| it.leader(name).is_some()));
    let asked = (calls(&all, "role_statuses"), calls(&all, "acquire"));
    assert!(asked.0 <= 4 && asked.1 <= 4, "looked and stood in {asked:?} exchanges");
    let before = calls(&all, "renew");
    all.pass(3 * HEARTBEAT + SOON);
    let renewals = calls(&all, "renew") - before;
    assert!((3..=6).contains(&renewals), "renewed in {renewals} exchanges");
    assert!(names.iter().all(|it| all.leader(it).is_some()));
    all.stop("a");
    all.pass_until(SOON, |it| it.members.is_empty());
    assert_eq!(calls(&all, "release"), 1, "given back in one exchange");
    assert!(names.iter().all(|it| all.server.owner(&lease(it)).is_none()));
}

/// Roles of different TTLs go together, and each keeps its own; one that is about to end costs the others nothing.
#[test]
fn roles_of_different_ttls_are_renewed_together() {
    let mut all = Electorate::empty();
    let long = |name: &str| {
        let heartbeat_interval = 2 * HEARTBEAT;
        ElectionSettings { ttl: 2 * TTL, heartbeat_interval, ..settings(name) }
    };
    all.join_with("a", settings("r"), 1_000, true);
    all.join("a", long("s"));
    all.pass_until(SOON, |it| it.leader("r").is_some() && it.leader("s").is_some());
    let terms = [all.role_state("a", "r").term(), all.role_state("a", "s").term()];
    all.pass(10 * TTL);
    assert_eq!([all.role_state("a", "r").term(), all.role_state("a", "s").term()], terms);
    let left = |all: &Electorate, name: &str| all.server.lease_left(&lease(name)).unwrap();
    assert!(left(&all, "r") <= TTL && left(&all, "s") > TTL, "each has its own TTL");
}
