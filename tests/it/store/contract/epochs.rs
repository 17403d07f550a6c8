//! Which life of the store this is, when it grants nothing, and the heartbeat.

use std::time::Duration;

use leasehold::model::{Epoch, FenceToken, LeaseDuration, Tenure, Weight};
use leasehold::store::{
    Acquire, Fault, HeartbeatReply, Publish, Release, Renew, RenewItem, RequestContext, Store,
    Verify,
};

use crate::store::contract::asker::{Asker, endpoint, only, publication};
use crate::store::contract::world::{DURATION, TTL, World};

fn epoch_of(asker: &mut Asker) -> Epoch {
    asker.holds_off();
    asker.stamp.unwrap().epoch
}

/// R5: "The first start ever on a Redis waits one TTL".
pub fn the_first_start_ever_waits(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::new(world, "a", false));
    a.beat();
    assert_eq!(a.acquire(&e), Acquire::HoldOff);
    let left = a.stamp.unwrap().hold_off;
    assert!(left <= DURATION.hold_off() && left > TTL / 2, "{left:?}");
    assert_eq!(a.owner(&e), None);
    world.end_hold_off();
    a.beat();
    a.grant(&e);
}

/// R5: a hold-off lasts a TTL and a margin, and then ends by itself.
pub fn a_hold_off_ends_by_itself_after_ttl_and_margin(world: &mut dyn World) {
    let (e, term) = (endpoint("e"), LeaseDuration::new(LeaseDuration::TTL_MIN));
    let mut a = Asker::with_duration(world, "a", true, term);
    a.beat();
    // Where roles are leased, it is that of the default TTL unless another candidate has been here before.
    world.flush();
    a.beat();
    let left = a.stamp.unwrap().hold_off;
    assert!(left <= term.hold_off() && left > term.ttl + term.margin() / 2, "{left:?}");
    assert_eq!(a.acquire(&e), Acquire::HoldOff);
    world.pass(term.hold_off());
    a.grant(&e);
    assert_eq!(a.stamp.unwrap().hold_off, Duration::ZERO);
}

/// R5: "skips exactly that case (key missing)".
pub fn the_word_that_the_fleet_is_new_skips_only_a_missing_epoch(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::new(world, "a", true));
    a.beat();
    a.grant(&e);
    a.suspect();
    let mut b = Asker::alive(world, "b");
    assert_eq!(b.acquire(&endpoint("f")), Acquire::HoldOff, "skipped a hold-off that runs");
    world.save();
    world.restart_from_saved();
    let mut c = Asker::alive(world, "c");
    assert_eq!(c.acquire(&endpoint("f")), Acquire::HoldOff, "skipped that of a restart");
}

/// R5: an instance that has seen the store knows that a fleet exists, whatever it was told.
pub fn a_running_instance_does_not_skip_the_hold_off_of_a_flush(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    world.flush();
    a.beat();
    assert_eq!(a.acquire(&endpoint("e")), Acquire::HoldOff);
    let named = RequestContext { new_fleet: true, ..a.context() };
    world.flush();
    let nothing = [Tenure::new(endpoint("e"), FenceToken::new(0))];
    let reply = a.store.verify(&named, &nothing).unwrap();
    assert!(reply.stamp.hold_off > Duration::ZERO);
}

/// R5: "Every call names the epoch it was decided under".
pub fn a_call_that_names_an_earlier_epoch_changes_nothing(world: &mut dyn World) {
    let (e, f, mut a) = (endpoint("e"), endpoint("f"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    world.set_lease_left(&e, Some(Duration::from_secs(12)));
    let epoch = epoch_of(&mut a);
    let old = RequestContext { epoch: Epoch(epoch.0 - 1), ..a.context() };
    let items = [RenewItem::new(tenure.clone())];
    assert_eq!(a.store.acquire(&old, std::slice::from_ref(&f)).unwrap().answer, None);
    assert_eq!(a.store.renew(&old, &items).unwrap().answer, None);
    let reply = a.store.verify(&old, std::slice::from_ref(&tenure)).unwrap();
    assert_eq!(reply.answer, None);
    let owner_only = RequestContext { owner_only: true, ..old.clone() };
    let reply = a.store.verify(&owner_only, std::slice::from_ref(&tenure)).unwrap();
    assert_eq!(reply.answer, None);
    if !world.of_roles() {
        let reply = a.store.publish(&old, &[publication(&tenure, 1)]).unwrap();
        assert_eq!(reply.answer, None);
    }
    assert_eq!(reply.stamp.epoch, epoch, "another epoch began");
    assert_eq!(reply.stamp.hold_off, Duration::ZERO);
    assert_eq!(a.owner(&f), None);
    assert!(world.lease_left(&e).unwrap() <= Duration::from_secs(12));
    assert!(world.announced().is_empty());
}

/// R5: an instance that knows a later epoch than the store proves that the store has forgotten one.
pub fn a_call_that_names_a_later_epoch_begins_one_beyond_it(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let later = Epoch(epoch_of(&mut a).0 + 1_000_000_000);
    let context = RequestContext { epoch: later, ..a.context() };
    let reply = a.store.acquire(&context, std::slice::from_ref(&e)).unwrap();
    assert_eq!(reply.answer, None);
    assert!(reply.stamp.epoch > later, "{later} is never reached by {}", reply.stamp.epoch);
    assert_eq!(a.acquire(&e), Acquire::HoldOff);
}

/// R5: "or the key is missing"; the number is one that no earlier life had.
pub fn a_flush_begins_an_epoch_never_seen_before(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let (tenure, mut seen) = (a.grant(&e), vec![epoch_of(&mut a)]);
    for asker in [&mut a, &mut b] {
        world.flush();
        world.pass(Duration::from_millis(1));
        let epoch = epoch_of(asker);
        assert!(!seen.contains(&epoch) && epoch > seen[0], "{epoch} of {seen:?}");
        assert!(asker.holds_off());
        seen.push(epoch);
    }
    assert_eq!(a.renew(&tenure), Renew::Reclaimed);
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()));
}

/// R5, R6: "a Redis that restarts empty within the TTL costs not one poll".
pub fn a_restart_without_data_begins_a_hold_off_in_which_leases_are_reclaimed(
    world: &mut dyn World,
) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let (tenure, before) = (a.grant(&e), epoch_of(&mut a));
    let (store, clock) = (world.store(), world.clock());
    world.restart_empty();
    world.pass(Duration::from_millis(1));
    let mut b = Asker::on(store, clock, "b", false, DURATION).of_roles(world.of_roles());
    b.beat();
    assert_eq!(b.acquire(&e), Acquire::HoldOff);
    assert!(epoch_of(&mut b) > before);
    // The connection from before may fail once.
    let _ = a.store.verify(&a.context(), std::slice::from_ref(&tenure));
    assert_eq!(a.renew(&tenure), Renew::Reclaimed);
    assert_eq!(a.publish(&tenure, 1), Publish::Stored(None));
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()));
}

/// R5: a snapshot is a life of its own too; what it says about owners may be old.
pub fn a_restart_from_a_snapshot_begins_a_hold_off_in_which_nothing_is_adopted(
    world: &mut dyn World,
) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let (tenure, before) = (a.grant(&e), epoch_of(&mut a));
    world.save();
    world.restart_from_saved();
    let _ = a.store.verify(&a.context(), std::slice::from_ref(&tenure));
    assert!(epoch_of(&mut a) > before);
    assert_eq!(a.acquire(&e), Acquire::HoldOff);
    assert_eq!(a.renew(&tenure), Renew::Extended, "its key was saved");
}

/// R5: "renewals and reclaims of running tenures go on, but nothing is granted".
pub fn in_a_hold_off_tenures_go_on_and_nothing_is_granted(world: &mut dyn World) {
    let (e, f, g) = (endpoint("e"), endpoint("f"), endpoint("g"));
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let (kept, forgotten) = (a.grant(&e), a.grant(&f));
    a.suspect();
    assert!(a.holds_off());
    assert_eq!(b.acquire(&g), Acquire::HoldOff, "granted");
    assert_eq!(a.acquire(&e), Acquire::HoldOff, "adopted");
    world.delete_node(&a.me);
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()), "taken over");
    world.delete_lease(&f);
    assert_eq!(a.renew(&kept), Renew::Extended);
    assert_eq!(a.renew(&forgotten), Renew::Reclaimed);
    assert_eq!(a.verify(&kept), Verify::Held);
    assert_eq!(a.publish(&kept, 3), Publish::Stored(None));
    assert_eq!(a.release(&kept), Release::Released);
}

/// In a hold-off too, no lease outlasts its TTL.
pub fn in_a_hold_off_a_lease_without_end_is_cut_to_the_ttl(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    a.grant(&e);
    a.suspect();
    world.set_lease_left(&e, None);
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()));
    assert!(world.lease_left(&e).unwrap() <= TTL);
}

/// R5: two who suspect the same step begin one epoch, not two.
pub fn a_suspicion_begins_one_epoch_however_many_share_it(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let before = epoch_of(&mut a);
    epoch_of(&mut b);
    a.suspect();
    let begun = epoch_of(&mut a);
    assert!(begun > before);
    assert!(a.holds_off());
    b.suspect();
    assert_eq!(epoch_of(&mut b), begun);
}

/// R6: an instance that may have slept asks what life of the store it was in, and a suspicion ends none.
pub fn a_loss_of_memory_begins_a_life_and_a_suspicion_only_an_epoch(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    epoch_of(&mut a);
    let first = a.stamp.unwrap();
    a.suspect();
    epoch_of(&mut a);
    let suspected = a.stamp.unwrap();
    assert!(suspected.epoch > first.epoch);
    assert_eq!(suspected.data_epoch, first.data_epoch, "nothing was forgotten");
    world.save();
    world.restart_from_saved();
    epoch_of(&mut a);
    let restarted = a.stamp.unwrap();
    assert_eq!(restarted.data_epoch, restarted.epoch, "what came after the snapshot is forgotten");
    world.flush();
    epoch_of(&mut a);
    let flushed = a.stamp.unwrap();
    assert!(flushed.data_epoch > restarted.data_epoch, "everything is forgotten");
}

/// R5: "Time that went back restarts the hold-off".
pub fn a_clock_set_back_restarts_the_hold_off(world: &mut dyn World) {
    let (e, f, mut a) = (endpoint("e"), endpoint("f"), Asker::alive(world, "a"));
    let mut b = Asker::alive(world, "b");
    let tenure = a.grant(&e);
    world.clock_goes_back(Duration::from_secs(3_600));
    assert_eq!(a.renew(&tenure), Renew::Extended);
    assert_eq!(a.acquire(&f), Acquire::HoldOff);
    let left = a.stamp.unwrap().hold_off;
    assert!(left <= DURATION.hold_off() && left > TTL / 2, "{left:?}");
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()));
    assert!(world.lease_left(&e).unwrap() <= TTL);
    world.end_hold_off();
    a.beat();
    a.grant(&f);
}

/// R14.
pub fn another_lease_ttl_is_refused_with_both_values(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let before = epoch_of(&mut a);
    let other = Asker::with_duration(world, "b", true, LeaseDuration::new(Duration::from_secs(12)));
    let error = other.store.heartbeat(&other.context(), TTL, Weight(1), None).unwrap_err();
    assert_eq!(error.fault, Fault::Misconfigured);
    let shown = error.to_string();
    assert!(shown.contains("12") && shown.contains("30"), "{shown}");
    assert_eq!(epoch_of(&mut a), before);
    let live = a.live();
    assert_eq!(live.len(), 1, "the refused one is listed: {live:?}");
}

/// R14: a misconfigured newcomer that asks first after a loss does not lock the fleet out, nor shorten
/// the hold-off its leases need.
pub fn a_fleet_corrects_the_timing_of_a_newcomer_that_came_first_after_a_loss(
    world: &mut dyn World,
) {
    let mut a = Asker::alive(world, "a");
    a.grant(&endpoint("e"));
    world.flush();
    let short = LeaseDuration::new(Duration::from_secs(12));
    let mut newcomer = Asker::with_duration(world, "b", false, short);
    newcomer.beat();
    a.beat();
    assert!(a.holds_off());
    let error = newcomer.store.heartbeat(&newcomer.context(), TTL, Weight(1), None).unwrap_err();
    assert_eq!(error.fault, Fault::Misconfigured, "{error}");
    let longer = Asker::with_duration(world, "c", false, LeaseDuration::new(2 * TTL));
    let error = longer.store.heartbeat(&longer.context(), TTL, Weight(1), None).unwrap_err();
    assert_eq!(error.fault, Fault::Misconfigured, "a stranger changed the timing: {error}");
}

/// FR-006, R13: an instance whose heartbeat answer is "broken" knows that others may have taken its leases.
pub fn a_heartbeat_says_whether_the_one_before_was_still_there(world: &mut dyn World) {
    let mut a = Asker::new(world, "a", true);
    assert_eq!(a.beat(), HeartbeatReply { unbroken: false, weight: Weight(1) });
    assert_eq!(a.beat(), HeartbeatReply { unbroken: true, weight: Weight(1) });
    world.delete_node(&a.me);
    assert_eq!(a.beat(), HeartbeatReply { unbroken: false, weight: Weight(1) });
    let short = Duration::from_millis(150);
    let beat = |store: &dyn Store, context: &RequestContext| {
        store.heartbeat(context, short, Weight(3), None)
    };
    assert_eq!(a.answered(beat), HeartbeatReply { unbroken: true, weight: Weight(3) });
    assert_eq!(a.live(), [(a.me.clone(), Weight(3))]);
    world.pass(short);
    assert_eq!(a.beat(), HeartbeatReply { unbroken: false, weight: Weight(1) });
}

/// A heartbeat that is there is given its whole life again.
pub fn a_heartbeat_is_kept_by_the_next(world: &mut dyn World) {
    let mut a = Asker::new(world, "a", true);
    let short = Duration::from_millis(300);
    a.answered(|store, context| store.heartbeat(context, short, Weight(1), None));
    a.beat();
    world.pass(short);
    assert_eq!(a.live().len(), 1, "ended with the one before");
}

/// FINDINGS M: "late heartbeat after withdrawal revives the node key".
pub fn a_late_heartbeat_does_not_revive_who_has_withdrawn(world: &mut dyn World) {
    let a = Asker::alive(world, "a");
    let late = a.late_ask();
    a.withdraw();
    assert_eq!(a.store.heartbeat(&late, TTL, Weight(1), None).unwrap().answer, None);
    assert_eq!(a.live(), []);
}

/// CONTRACT: `poll:drain` has instance ids and host names.
pub fn an_instance_is_drained_by_its_id_and_by_its_host(world: &mut dyn World) {
    let (vm1, vm2) = ("vm-1-17-aaaaaaaa", "vm-2-18-bbbbbbbb");
    let (mut a, mut b) = (Asker::alive(world, vm1), Asker::alive(world, vm2));
    for name in [vm1, "vm-1"] {
        world.set_drain(name, true);
        assert_eq!(a.beat().weight, Weight(0), "{name} is drained");
        assert_eq!(b.beat().weight, Weight(1), "{name} is drained");
        let live = a.live();
        assert_eq!(live, [(a.me.clone(), Weight(0)), (b.me.clone(), Weight(1))]);
        world.set_drain(name, false);
        assert_eq!(a.beat().weight, Weight(1), "{name} is undrained");
    }
}

/// R11: a heartbeat that was withdrawn frees the leases at once.
pub fn a_withdrawn_heartbeat_is_gone_at_once(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    a.grant(&e);
    a.withdraw();
    assert_eq!(only(b.live()).0, b.me);
    b.grant(&e);
}
