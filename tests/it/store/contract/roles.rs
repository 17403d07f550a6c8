//! What only roles have: a timing and a term each, and a leader's heartbeat.

use std::time::Duration;

use leasehold::model::{FenceToken, LeaseDuration, Tenure};
use leasehold::store::{Acquire, Fault, Grant, Release, Renew, RoleStatus, Verify};

use crate::store::contract::asker::{Asker, endpoint, only};
use crate::store::contract::world::{DURATION, TIMEOUT, TTL, World};

const SECOND: Duration = Duration::from_secs(1);
const SHORT: LeaseDuration = LeaseDuration::new(Duration::from_secs(3));
/// 004: "TTL: Leader TTL + 5 seconds".
const BEAT_LASTS: Duration = Duration::from_secs(35);

fn alive(world: &dyn World, name: &str, term: LeaseDuration) -> Asker {
    Asker::with_duration(world, name, true, term)
}

fn role_status(asker: &Asker, role: &str) -> RoleStatus {
    only(asker.store.role_statuses(&[endpoint(role)], TIMEOUT).unwrap())
}

fn refusal(asker: &Asker, role: &str) -> String {
    let error = asker.store.acquire(&asker.context(), &[endpoint(role)]).unwrap_err();
    assert_eq!(error.fault, Fault::Misconfigured, "{error}");
    error.to_string()
}

/// R14: "the first to name it sets it, another is refused with both values".
pub fn who_names_a_role_first_sets_its_ttl(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    assert_eq!(role_status(&a, "e").ttl, Some(TTL), "asking about it is naming it");
    let b = alive(world, "b", LeaseDuration::new(Duration::from_secs(12)));
    let shown = refusal(&b, "e");
    assert!(shown.contains("12") && shown.contains("30"), "{shown}");
    a.grant(&endpoint("e"));
    assert!(refusal(&b, "e").contains("30"));
    let tenure = Tenure::new(endpoint("e"), FenceToken::new(0));
    assert!(
        b.store.verify(&b.context(), &[tenure]).is_err(),
        "another TTL was let in by the back door"
    );
    assert_eq!(role_status(&a, "e").ttl, Some(TTL));
}

/// R14: agreed per role.
pub fn roles_of_different_ttl_live_side_by_side(world: &mut dyn World) {
    let (mut a, mut b) = (alive(world, "a", DURATION), alive(world, "b", SHORT));
    a.grant(&endpoint("long"));
    b.grant(&endpoint("short"));
    assert!(world.lease_left(&endpoint("long")).unwrap() > 20 * SECOND);
    assert!(world.lease_left(&endpoint("short")).unwrap() <= SHORT.ttl);
    assert!(refusal(&a, "short").contains("30"), "the long one took the short one's role");
    assert!(refusal(&b, "long").contains("30"));
}

/// R14: one exchange names many timings, and one that is refused spoils no other.
pub fn roles_are_verified_together_each_with_its_own_timing(world: &mut dyn World) {
    let (mut a, mut short) = (alive(world, "a", DURATION), alive(world, "a", SHORT));
    let held = a.grant(&endpoint("held"));
    let other_ttl = short.grant(&endpoint("short"));
    let new = Tenure::new(endpoint("new"), FenceToken::new(0));
    let asked = [held, other_ttl, new].map(|it| (a.context(), it));
    let answers = a.store.verify_roles(&asked);
    let told: Vec<Option<Verify>> =
        answers.into_iter().map(|it| it.ok().map(|it| only(it.answer.unwrap()))).collect();
    assert_eq!(told, [Some(Verify::Held), None, Some(Verify::Missing)]);
    assert_eq!(role_status(&a, "new").ttl, Some(TTL), "asking about it is naming it");
    assert_eq!(role_status(&a, "short").ttl, Some(SHORT.ttl), "the refused one changed it");
}

/// R5 protects those who may lead: of a role that nobody has named there is none.
pub fn a_new_role_in_an_old_epoch_needs_no_hold_off(world: &mut dyn World) {
    let mut a = Asker::new(world, "a", false);
    assert_eq!(a.acquire(&endpoint("e")), Acquire::HoldOff);
    world.end_hold_off();
    a.grant(&endpoint("e"));
    let mut b = Asker::new(world, "b", false);
    b.grant(&endpoint("f"));
}

/// R5: a role whose TTL is short is granted again after that TTL, if a candidate is left that knows it.
pub fn the_hold_off_of_a_role_is_that_of_its_own_ttl(world: &mut dyn World) {
    let short = LeaseDuration::new(LeaseDuration::TTL_MIN);
    let (mut a, mut b) = (
        Asker::with_duration(world, "a", true, DURATION),
        Asker::with_duration(world, "b", true, short),
    );
    a.grant(&endpoint("long"));
    b.grant(&endpoint("short"));
    world.flush();
    assert_eq!(a.acquire(&endpoint("long")), Acquire::HoldOff);
    assert_eq!(b.acquire(&endpoint("short")), Acquire::HoldOff);
    assert!(b.stamp.unwrap().hold_off <= short.hold_off());
    world.pass(short.hold_off());
    b.grant(&endpoint("short"));
    assert_eq!(a.acquire(&endpoint("long")), Acquire::HoldOff, "ended with that of another role");
    let left = a.stamp.unwrap().hold_off;
    assert!(left > TTL / 2 && left < DURATION.hold_off(), "{left:?}");
}

/// R5: how long a leader of before may lead is not known to who was not there: at least the default TTL.
pub fn in_a_young_epoch_a_role_nobody_knew_holds_off_the_default(world: &mut dyn World) {
    let mut before = Asker::with_duration(world, "a", true, SHORT);
    before.grant(&endpoint("e"));
    world.flush();
    let mut newcomer = Asker::with_duration(world, "b", false, SHORT);
    assert_eq!(newcomer.acquire(&endpoint("e")), Acquire::HoldOff);
    let left = newcomer.stamp.unwrap().hold_off;
    assert!(left > TTL, "a leader with the default TTL may lead: {left:?}");
    assert_eq!(before.acquire(&endpoint("e")), Acquire::HoldOff);
    let left = before.stamp.unwrap().hold_off;
    assert!(left <= SHORT.hold_off(), "it knows the TTL of before: {left:?}");
    assert_eq!(newcomer.acquire(&endpoint("e")), Acquire::HoldOff);
    let left = newcomer.stamp.unwrap().hold_off;
    assert!(left <= SHORT.hold_off(), "and has said so to all: {left:?}");
}

/// R5: once a candidate has led, the leader from before the loss is over: no candidate waits longer than a TTL again.
pub fn a_role_that_was_led_holds_off_its_own_ttl_in_later_epochs(world: &mut dyn World) {
    let mut a = Asker::with_duration(world, "a", true, SHORT);
    a.grant(&endpoint("e"));
    world.save();
    world.restart_from_saved();
    let mut newcomer = Asker::with_duration(world, "b", false, SHORT);
    assert_ne!(newcomer.acquire(&endpoint("f")), Acquire::Late);
    assert!(newcomer.stamp.unwrap().hold_off > TTL, "nobody knows that role");
    let mut newcomer = Asker::with_duration(world, "c", false, SHORT);
    newcomer.acquire(&endpoint("e"));
    let left = newcomer.stamp.unwrap().hold_off;
    assert!(left <= SHORT.hold_off() && left > Duration::ZERO, "{left:?}");
}

/// R14: a newcomer names a TTL, and nothing is granted yet: who led before corrects it, however late that is.
pub fn who_led_before_a_loss_corrects_a_ttl_that_is_over_already(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.flush();
    let brief = LeaseDuration::new(LeaseDuration::TTL_MIN);
    let mut newcomer = Asker::with_duration(world, "b", false, brief);
    assert_eq!(newcomer.acquire(&endpoint("e")), Acquire::HoldOff);
    world.pass(brief.hold_off() + SECOND);
    assert_eq!(newcomer.acquire(&endpoint("e")), Acquire::HoldOff, "beside the leader of before");
    assert_eq!(a.renew(&tenure), Renew::Reclaimed);
    assert!(refusal(&newcomer, "e").contains("30"));
}

/// R14, for one role: see `epochs` for fleets.
pub fn who_led_before_a_loss_corrects_the_ttl_of_a_newcomer(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.flush();
    let mut newcomer =
        Asker::with_duration(world, "b", false, LeaseDuration::new(Duration::from_secs(12)));
    assert_eq!(newcomer.acquire(&endpoint("e")), Acquire::HoldOff);
    assert_eq!(a.renew(&tenure), Renew::Reclaimed);
    assert!(a.stamp.unwrap().hold_off > TTL / 2, "the hold-off of the newcomer was enough");
    assert!(refusal(&newcomer, "e").contains("30"));
    let stranger = Asker::with_duration(world, "c", false, LeaseDuration::new(2 * TTL));
    assert!(refusal(&stranger, "e").contains("30"), "a stranger changed the timing");
}

/// R13 for roles: "the leader heartbeat … written by the same script that renews the role".
pub fn a_grant_and_a_renewal_write_the_heartbeat_and_nothing_else_does(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    assert_eq!(world.leader_beat(&a.me), None, "written by a look");
    let tenure = a.grant(&endpoint("e"));
    let (age, left) = world.leader_beat(&a.me).expect("a grant writes it");
    assert!(age < 9 * SECOND && left > TTL, "{age:?} old, lasts {left:?}");
    assert_eq!(b.acquire(&endpoint("e")), Acquire::HeldBy(a.me.clone()));
    assert_eq!(world.leader_beat(&b.me), None, "written without a role");
    let aged = Duration::from_secs(20);
    world.set_leader_beat(&a.me, Some(aged));
    let is_aged = |world: &mut dyn World, a: &Asker| world.leader_beat(&a.me).unwrap().0 >= aged;
    a.verify(&tenure);
    role_status(&a, "e");
    b.acquire(&endpoint("e"));
    let lost = Tenure::new(endpoint("e"), FenceToken::new(tenure.fence.get() - 1));
    assert_eq!(a.renew(&lost), Renew::NotOwner(None));
    assert!(is_aged(world, &a), "written by what keeps nothing");
    assert_eq!(a.renew(&tenure), Renew::Extended);
    assert!(!is_aged(world, &a), "not written by a renewal");
    world.delete_lease(&endpoint("e"));
    world.set_leader_beat(&a.me, None);
    assert_eq!(a.renew(&tenure), Renew::Reclaimed);
    assert!(world.leader_beat(&a.me).is_some(), "not written by a reclaim");
}

/// 004: "SETEX heartbeat … TTL: 35 seconds (leader_ttl + 5s)".
pub fn a_heartbeat_lasts_five_seconds_longer_than_the_role(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    for _ in 0..2 {
        let left = world.leader_beat(&a.me).unwrap().1;
        assert!(left <= BEAT_LASTS && left > BEAT_LASTS - 9 * SECOND, "{left:?}");
        assert_eq!(a.renew(&tenure), Renew::Extended);
    }
}

/// One key for all roles of an instance.
pub fn a_short_role_does_not_shorten_the_heartbeat_of_a_long_one(world: &mut dyn World) {
    let (mut long, mut short) = (alive(world, "a", DURATION), alive(world, "a", SHORT));
    long.grant(&endpoint("long"));
    let tenure = short.grant(&endpoint("short"));
    assert_eq!(short.renew(&tenure), Renew::Extended);
    let left = world.leader_beat(&long.me).unwrap().1;
    assert!(left > BEAT_LASTS - 9 * SECOND, "{left:?}");
}

/// 004, scenario 3: "heartbeatAge > (leaderTTL + 5) * 1000".
pub fn a_heartbeat_just_young_enough_is_no_proof(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&endpoint("e"));
    // A real server's clock goes on meanwhile.
    world.set_leader_beat(&a.me, Some(BEAT_LASTS - 5 * SECOND));
    assert!(!role_status(&b, "e").is_stale);
    assert_eq!(b.acquire(&endpoint("e")), Acquire::HeldBy(a.me.clone()));
    assert_eq!(a.renew(&tenure), Renew::Extended);
}

/// 004, scenario 3: replaced by one script, under a later term.
pub fn a_heartbeat_just_too_old_is_proof(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let old = a.grant(&endpoint("e"));
    world.set_leader_beat(&a.me, Some(BEAT_LASTS + Duration::from_millis(2)));
    assert!(role_status(&b, "e").is_stale);
    let taken = b.acquire(&endpoint("e"));
    assert!(
        matches!(taken, Acquire::Granted { fence, grant: Grant::Takeover, .. } if fence > old.fence),
        "{taken:?}"
    );
    assert_eq!(a.renew(&old), Renew::NotOwner(Some(b.me.clone())));
    assert!(!role_status(&b, "e").is_stale);
}

/// A heartbeat can be deleted while its leader is within its rights: what is left ends with the lease.
pub fn a_missing_heartbeat_is_no_proof(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&endpoint("e"));
    world.set_leader_beat(&a.me, None);
    let seen = role_status(&b, "e");
    assert_eq!((seen.is_stale, seen.heartbeat_age), (false, None));
    assert_eq!(b.acquire(&endpoint("e")), Acquire::HeldBy(a.me.clone()));
    assert_eq!(a.renew(&tenure), Renew::Extended);
}

/// R5: "no early takeover (R13)".
pub fn nobody_is_stale_in_a_hold_off(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&endpoint("e"));
    a.suspect();
    assert!(b.holds_off());
    world.set_leader_beat(&a.me, Some(2 * BEAT_LASTS));
    assert_eq!(b.acquire(&endpoint("e")), Acquire::HeldBy(a.me.clone()));
    assert_eq!(a.renew(&tenure), Renew::Extended);
}

/// 004: "Stale heartbeats are cleaned up by new leader on acquisition".
pub fn a_successor_takes_the_heartbeat_of_an_expired_leader_away(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    a.grant(&endpoint("e"));
    world.delete_lease(&endpoint("e"));
    assert!(world.leader_beat(&a.me).is_some(), "it lasts longer than the lease");
    b.grant(&endpoint("e"));
    assert_eq!(world.leader_beat(&a.me), None);
    assert!(world.leader_beat(&b.me).is_some());
}

/// 004, scenario 3.
pub fn a_successor_takes_the_heartbeat_of_a_stale_leader_away(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    a.grant(&endpoint("e"));
    world.set_leader_beat(&a.me, Some(2 * BEAT_LASTS));
    b.grant(&endpoint("e"));
    assert_eq!(world.leader_beat(&a.me), None);
}

/// 003: "Immediate lock release"; nothing of the leader stays behind.
pub fn a_release_takes_the_heartbeat_away(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    assert_eq!(a.release(&tenure), Release::Released);
    assert_eq!(world.leader_beat(&a.me), None);
}

/// A release executed late, when another instance leads, or when it leads again.
pub fn a_release_of_what_is_anothers_leaves_heartbeats_alone(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let old = a.grant(&endpoint("e"));
    world.delete_lease(&endpoint("e"));
    let other = a.grant(&endpoint("f"));
    b.grant(&endpoint("e"));
    assert_eq!(a.renew(&other), Renew::Extended);
    assert_eq!(a.release(&old), Release::NotOwner);
    assert!(world.leader_beat(&a.me).is_some(), "it leads another role");
    assert!(world.leader_beat(&b.me).is_some());
}

/// What `leader()` and a look are made of.
pub fn a_role_status_says_who_leads_for_how_long_and_since_when(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let vacant = role_status(&a, "e");
    assert_eq!((vacant.leader, vacant.term, vacant.is_stale), (None, FenceToken::new(0), false));
    assert_eq!(role_status(&a, "nobody-named-it").ttl, None);
    let tenure = a.grant(&endpoint("e"));
    world.pass(Duration::from_millis(20));
    let seen = role_status(&a, "e");
    let leader = seen.leader.unwrap();
    assert_eq!(leader.value, a.me);
    assert!(leader.left <= TTL && leader.left > TTL - 9 * SECOND, "{leader:?}");
    assert_eq!((seen.term, seen.ttl, seen.is_stale), (tenure.fence, Some(TTL), false));
    let led_for = seen.led_for.unwrap();
    assert!(led_for >= Duration::from_millis(20) && led_for < 9 * SECOND, "{led_for:?}");
    assert!(seen.heartbeat_age.is_some_and(|it| it < 9 * SECOND));
    let both = a.store.role_statuses(&[endpoint("f"), endpoint("e")], TIMEOUT).unwrap();
    assert_eq!(both.iter().map(|it| it.leader.is_some()).collect::<Vec<_>>(), [false, true]);
    a.release(&tenure);
    assert_eq!(role_status(&a, "e").leader, None);
}

/// A clock set back would keep a dead leader for as long as the step.
pub fn a_role_status_without_end_is_cut_to_the_ttl(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    a.grant(&endpoint("e"));
    for wrong in [None, Some(100 * TTL)] {
        world.set_lease_left(&endpoint("e"), wrong);
        assert!(role_status(&a, "e").leader.unwrap().left <= TTL, "{wrong:?} is believed");
        assert!(world.lease_left(&endpoint("e")).unwrap() <= TTL, "{wrong:?} survived a look");
    }
}

/// For those who look from outside.
pub fn every_role_ever_led_is_listed(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    assert_eq!(a.store.role_names(TIMEOUT).unwrap(), []);
    let tenure = a.grant(&endpoint("one"));
    a.grant(&endpoint("two"));
    a.release(&tenure);
    assert_eq!(a.store.role_names(TIMEOUT).unwrap(), ["one", "two"].map(endpoint));
}
