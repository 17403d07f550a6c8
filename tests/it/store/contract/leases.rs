//! Acquire, renew, verify, release: who may, and who may not.

use std::time::Duration;

use leasehold::model::{LeaseDuration, Tenure, Weight};
use leasehold::store::{Acquire, Grant, Publish, Release, Renew, RenewItem, Verify};

use crate::store::contract::asker::{Asker, endpoint, only, publication};
use crate::store::contract::world::{TIMEOUT, TTL, World};

/// FR-001.
pub fn a_free_lease_is_granted_once(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let granted = a.acquire(&e);
    assert!(matches!(granted, Acquire::Granted { grant: Grant::Free, .. }));
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()));
    assert_eq!(b.owner(&e).as_deref(), Some("a"));
    let left = world.lease_left(&e).unwrap();
    assert!(left <= TTL && left > TTL - Duration::from_secs(9), "{left:?} left of {TTL:?}");
}

/// FR-001: a lease nobody keeps ends by itself, after its TTL.
pub fn a_lease_is_free_again_after_its_ttl(world: &mut dyn World) {
    let (e, term) = (endpoint("e"), LeaseDuration::new(LeaseDuration::TTL_MIN));
    let [mut a, mut b] = ["a", "b"].map(|it| Asker::with_duration(world, it, true, term));
    a.beat();
    b.beat();
    let first = a.grant(&e);
    // Redis counts whole milliseconds, and a key is there in its last one.
    world.pass(term.ttl + Duration::from_millis(2));
    let second = b.acquire(&e);
    assert!(
        matches!(&second, Acquire::Granted { fence, grant: Grant::Free, .. } if *fence > first.fence),
        "{second:?}"
    );
    assert_eq!(a.renew(&first), Renew::NotOwner(Some(b.me.clone())));
}

/// FR-002, US3.3.
pub fn only_the_owner_renews(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    world.set_lease_left(&e, Some(Duration::from_secs(12)));
    assert_eq!(b.renew(&tenure), Renew::NotOwner(Some(a.me.clone())));
    assert!(world.lease_left(&e).unwrap() <= Duration::from_secs(12), "extended for a stranger");
    assert_eq!(a.renew(&tenure), Renew::Extended);
    assert!(world.lease_left(&e).unwrap() > Duration::from_secs(20), "not extended for its owner");
}

/// FR-003.
pub fn only_the_owner_releases(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    assert_eq!(b.release(&tenure), Release::NotOwner);
    assert_eq!(a.renew(&tenure), Renew::Extended, "a stranger's release has ended it");
    assert_eq!(a.release(&tenure), Release::Released);
    assert_eq!(a.owner(&e), None);
    assert_eq!(a.release(&tenure), Release::NotOwner, "released twice");
    b.grant(&e);
}

/// R7: the reply was lost, so an earlier request must not count.
pub fn meeting_its_own_id_is_a_new_grant(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let first = a.grant(&e);
    let second = a.acquire(&e);
    assert!(
        matches!(second, Acquire::Granted { fence, grant: Grant::Adopted, .. } if fence > first.fence),
        "{second:?}"
    );
}

/// R4: every verb matches owner and fence, so nothing said under an earlier grant counts.
pub fn an_earlier_grant_of_ones_own_counts_for_nothing(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let (old, new) = (a.grant(&e), a.grant(&e));
    world.set_lease_left(&e, Some(Duration::from_secs(12)));
    assert_eq!(a.renew(&old), Renew::NotOwner(None));
    assert!(world.lease_left(&e).unwrap() <= Duration::from_secs(12), "renewed by the old grant");
    assert_eq!(a.verify(&old), Verify::NotOwner(None));
    assert_eq!(a.publish(&old, 5), Publish::Fenced);
    assert_eq!(a.release(&old), Release::NotOwner);
    assert_eq!(a.verify(&new), Verify::Held);
    assert_eq!(a.publish(&new, 5), Publish::Stored(None));
}

/// R6: put back under the same fence, and that fence written back with it.
pub fn a_forgotten_lease_is_reclaimed_under_its_fence(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    world.delete_lease(&e);
    world.delete_result(&e);
    assert_eq!(a.verify(&tenure), Verify::Missing);
    assert_eq!(a.publish(&tenure, 1), Publish::Missing);
    assert_eq!(a.renew(&tenure), Renew::Reclaimed);
    assert_eq!(a.publish(&tenure, 1), Publish::Stored(None));
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()));
    assert!(world.lease_left(&e).unwrap() <= TTL);
}

/// A deleted result hash must not silence the owner for ever.
pub fn a_forgotten_fence_is_written_back_by_the_next_renewal(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    world.delete_result(&e);
    assert_eq!(a.publish(&tenure, 1), Publish::Fenced);
    assert_eq!(a.renew(&tenure), Renew::Extended);
    assert_eq!(a.publish(&tenure, 1), Publish::Stored(None));
}

/// Another instance was granted it and released it; this tenure is over.
pub fn a_lease_granted_to_another_meanwhile_is_not_reclaimed(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let lost = a.grant(&e);
    world.delete_lease(&e);
    b.grant(&e);
    world.delete_lease(&e);
    assert_eq!(a.renew(&lost), Renew::NotOwner(None));
    assert_eq!(a.owner(&e), None, "came back");
}

/// R3: past its deadline a lease is never reclaimed.
pub fn a_lease_past_its_deadline_is_not_reclaimed(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    let items = [RenewItem { may_reclaim: false, ..RenewItem::new(tenure.clone()) }];
    let renew = |a: &mut Asker| only(a.answered(|store, context| store.renew(context, &items)));
    assert_eq!(renew(&mut a), Renew::Extended);
    world.delete_lease(&e);
    assert_eq!(renew(&mut a), Renew::NotOwner(None));
    assert_eq!(a.owner(&e), None, "came back");
}

/// R4: a fence that was compared in this epoch need not be compared again; whatever else became of the
/// lease is said as ever.
pub fn a_matched_lease_is_kept_by_its_owners_name(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    let items = [RenewItem { fence_checked: true, ..RenewItem::new(tenure.clone()) }];
    let renew = |a: &mut Asker| only(a.answered(|store, context| store.renew(context, &items)));
    world.pass(Duration::from_millis(50));
    let before = world.lease_left(&e).unwrap();
    assert_eq!(renew(&mut a), Renew::Extended);
    assert!(world.lease_left(&e).unwrap() > before, "no new TTL");
    world.delete_lease(&e);
    assert_eq!(renew(&mut a), Renew::Reclaimed);
    world.delete_lease(&e);
    b.beat();
    let other = b.grant(&e);
    assert_eq!(renew(&mut a), Renew::NotOwner(Some(b.me.clone())));
    assert_eq!(b.release(&other), Release::Released);
    assert_eq!(renew(&mut a), Renew::NotOwner(None));
    assert_eq!(a.owner(&e), None, "came back");
}

/// R5: what was compared in another epoch was compared in another life.
pub fn a_matched_lease_of_another_epoch_is_not_kept(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let items = [RenewItem { fence_checked: true, ..RenewItem::new(a.grant(&e)) }];
    b.suspect();
    let reply = a.store.renew(&a.context(), &items).unwrap();
    assert_eq!(reply.answer, None);
}

/// R4: an acquire that was executed late grants nothing.
pub fn a_late_acquire_refuses_itself(world: &mut dyn World) {
    let (e, a) = (endpoint("e"), Asker::alive(world, "a"));
    let reply = a.store.acquire(&a.late_ask(), std::slice::from_ref(&e)).unwrap();
    assert_eq!(reply.answer, Some(vec![Acquire::Late]));
    assert_eq!(a.owner(&e), None);
}

/// R4: a late takeover or adoption is a late grant too.
pub fn a_late_acquire_neither_adopts_nor_takes_over(world: &mut dyn World) {
    let (e, mut a, b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    let own = a.store.acquire(&a.late_ask(), std::slice::from_ref(&e)).unwrap();
    assert_eq!(own.answer, Some(vec![Acquire::Late]));
    world.delete_node(&a.me);
    let other = b.store.acquire(&b.late_ask(), std::slice::from_ref(&e)).unwrap();
    assert_eq!(other.answer, Some(vec![Acquire::Late]));
    assert_eq!(a.verify(&tenure), Verify::Held);
}

/// R4: a renewal takes nothing from anybody, so it may be late; a reclaim may not.
pub fn a_late_renewal_keeps_a_lease_but_reclaims_none(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let items = [RenewItem::new(a.grant(&e))];
    let kept = a.store.renew(&a.late_ask(), &items).unwrap();
    assert_eq!(kept.answer, Some(vec![Renew::Extended]));
    world.delete_lease(&e);
    let gone = a.store.renew(&a.late_ask(), &items).unwrap();
    assert_eq!(gone.answer, Some(vec![Renew::Late]));
    assert_eq!(a.owner(&e), None);
}

/// A renewal that overtook nothing, executed after the release.
pub fn a_renewal_after_the_release_cannot_bring_the_lease_back(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    assert_eq!(a.release(&tenure), Release::Released);
    assert_eq!(a.renew(&tenure), Renew::NotOwner(None));
    assert_eq!(a.owner(&e), None, "the released lease is back");
}

/// The same when the store had forgotten the lease, and its fence, before the release.
pub fn the_release_of_a_missing_lease_ends_its_tenure_too(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    world.delete_lease(&e);
    world.delete_result(&e);
    assert_eq!(a.release(&tenure), Release::NotOwner);
    assert_eq!(a.renew(&tenure), Renew::NotOwner(None));
    assert_eq!(a.owner(&e), None, "the released lease is back");
}

/// A release executed late, when another instance has the lease.
pub fn a_late_release_leaves_the_next_owner_alone(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let old = a.grant(&e);
    world.delete_lease(&e);
    let new = b.grant(&e);
    assert_eq!(a.release(&old), Release::NotOwner);
    assert_eq!(b.publish(&new, 1), Publish::Stored(None));
}

/// Released and granted to the same instance again before the old release is executed.
pub fn a_late_release_leaves_ones_own_next_tenure_alone(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let old = a.grant(&e);
    world.delete_lease(&e);
    let new = a.grant(&e);
    assert_eq!(a.release(&old), Release::NotOwner);
    assert_eq!(a.verify(&new), Verify::Held);
}

/// FR-003: the name alone frees nothing of another's, and nothing twice.
pub fn what_is_ours_by_its_name_is_given_back(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    assert_eq!(b.free(&tenure), Release::NotOwner);
    assert_eq!(a.owner(&e).as_deref(), Some("a"));
    assert_eq!(a.free(&tenure), Release::Released);
    assert_eq!(a.owner(&e), None);
    assert_eq!(a.free(&tenure), Release::NotOwner, "released twice");
    let next = b.grant(&e);
    assert!(next.fence > tenure.fence);
    assert_eq!(a.free(&tenure), Release::NotOwner, "that is another's");
    assert_eq!(b.publish(&next, 1), Publish::Stored(None));
}

/// A release by name that is executed late, when the same instance has the lease again. It may have heard of
/// that by then or not.
pub fn a_late_release_by_name_leaves_ones_own_next_tenure_alone(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let old = a.grant(&e);
    let late = a.release_request();
    world.delete_lease(&e);
    let new = a.grant(&e);
    let told = a.store.release(&late, std::slice::from_ref(&old), &[]).unwrap();
    assert_eq!(told, [Release::NotOwner]);
    assert_eq!(a.verify(&new), Verify::Held);
}

/// R6: the same when the store had forgotten that tenure, and it was put back.
pub fn a_late_release_by_name_leaves_what_was_put_back_alone(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let old = a.grant(&e);
    let late = a.release_request();
    let new = a.grant(&e);
    // As if this server had never heard of the last grant.
    world.delete_lease(&e);
    world.set_granted(&a.me, Some(old.fence));
    assert_eq!(a.renew(&new), Renew::Reclaimed);
    let told = a.store.release(&late, std::slice::from_ref(&old), &[]).unwrap();
    assert_eq!(told, [Release::NotOwner]);
    assert_eq!(a.verify(&new), Verify::Held);
}

/// R5: the same when it has forgotten the fence of that tenure only, and its first renewal wrote it back.
pub fn a_late_release_by_name_leaves_what_was_confirmed_anew_alone(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let old = a.grant(&e);
    let late = a.release_request();
    let new = a.grant(&e);
    // The key bears our name from before.
    world.delete_result(&e);
    world.set_granted(&a.me, Some(old.fence));
    assert_eq!(a.renew(&new), Renew::Extended);
    let told = a.store.release(&late, std::slice::from_ref(&old), &[]).unwrap();
    assert_eq!(told, [Release::NotOwner]);
    assert_eq!(a.verify(&new), Verify::Held);
}

/// R6: the same when it was another lease that was put back, of an older fence than the one in question.
pub fn a_late_release_by_name_leaves_all_that_was_heard_of_alone(world: &mut dyn World) {
    let (e, f, mut a) = (endpoint("e"), endpoint("f"), Asker::alive(world, "a"));
    let (other, old) = (a.grant(&f), a.grant(&e));
    let late = a.release_request();
    let new = a.grant(&e);
    world.set_granted(&a.me, None);
    world.delete_lease(&f);
    assert_eq!(a.renew(&other), Renew::Reclaimed);
    let told = a.store.release(&late, std::slice::from_ref(&old), &[]).unwrap();
    assert_eq!(told, [Release::NotOwner]);
    assert_eq!(a.verify(&new), Verify::Held);
}

/// Two releases by name, executed the wrong way round, and then a renewal from between them.
pub fn a_late_release_by_name_opens_no_door_that_a_later_one_closed(world: &mut dyn World) {
    let (e, f, mut a) = (endpoint("e"), endpoint("f"), Asker::alive(world, "a"));
    let (first, second) = (a.grant(&e), a.grant(&f));
    let late = a.release_request();
    let between = a.context();
    assert_eq!(a.free(&second), Release::Released);
    a.store.release(&late, std::slice::from_ref(&first), &[]).unwrap();
    let items = [RenewItem::new(second)];
    assert_eq!(a.store.renew(&between, &items).unwrap().answer, Some(vec![Renew::Late]));
    assert_eq!(a.owner(&f), None, "the released lease is back");
}

/// R4: one answer per item, in order.
pub fn of_many_that_are_given_back_by_name_each_is_told(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let mut tenures: Vec<Tenure> =
        ["e", "f", "g"].iter().map(|it| a.grant(&endpoint(it))).collect();
    tenures.insert(1, b.grant(&endpoint("h")));
    world.delete_lease(&endpoint("g"));
    let context = a.release_request();
    let told = a.store.release(&context, &tenures, &[]).unwrap();
    use Release::{NotOwner, Released};
    assert_eq!(told, [Released, NotOwner, Released, NotOwner]);
    assert_eq!(b.owner(&endpoint("h")).as_deref(), Some("b"));
}

/// A renewal that was asked for before the release, and executed after it.
pub fn a_renewal_asked_for_before_the_release_cannot_bring_the_lease_back(world: &mut dyn World) {
    let (e, f, mut a) = (endpoint("e"), endpoint("f"), Asker::alive(world, "a"));
    let (tenure, kept) = (a.grant(&e), a.grant(&f));
    let before = a.context();
    assert_eq!(a.free(&tenure), Release::Released);
    for fence_checked in [false, true] {
        let items = [RenewItem { fence_checked, ..RenewItem::new(tenure.clone()) }];
        assert_eq!(a.store.renew(&before, &items).unwrap().answer, Some(vec![Renew::Late]));
    }
    assert_eq!(a.owner(&e), None, "the released lease is back");
    // What is asked for afterwards is put back as ever.
    world.delete_lease(&f);
    assert_eq!(a.renew(&kept), Renew::Reclaimed);
}

/// Without a word of what was granted, each fence is compared.
pub fn where_nothing_is_known_of_the_last_grant_a_release_compares_the_fence(
    world: &mut dyn World,
) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let (old, new) = (a.grant(&e), a.grant(&e));
    world.set_granted(&a.me, None);
    assert_eq!(a.free(&old), Release::NotOwner);
    assert_eq!(a.verify(&new), Verify::Held);
    assert_eq!(a.free(&new), Release::Released);
    assert_eq!(a.owner(&e), None);
}

/// R13.
pub fn a_lease_is_taken_from_an_owner_without_heartbeat(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let old = a.grant(&e);
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()), "taken from a living owner");
    world.delete_node(&a.me);
    let taken = b.acquire(&e);
    assert!(
        matches!(taken, Acquire::Granted { fence, grant: Grant::Takeover, .. } if fence > old.fence),
        "{taken:?}"
    );
    assert_eq!(a.renew(&old), Renew::NotOwner(Some(b.me.clone())));
    assert!(world.lease_left(&e).is_some_and(|left| left <= TTL));
}

/// R13: whose heartbeat is gone would lose the lease to the next who asks.
pub fn nothing_is_granted_to_an_instance_without_heartbeat(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    world.delete_node(&a.me);
    assert_eq!(a.acquire(&e), Acquire::NoHeartbeat);
    assert_eq!(b.owner(&e), None);
    let tenure = b.grant(&e);
    world.delete_node(&b.me);
    assert_eq!(a.acquire(&e), Acquire::NoHeartbeat, "took over without a heartbeat");
    assert_eq!(b.acquire(&e), Acquire::NoHeartbeat, "adopted without a heartbeat");
    assert_eq!(b.verify(&tenure), Verify::Held);
}

/// FR-010.
pub fn verify_says_whose_a_lease_is(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    assert_eq!(a.verify(&tenure), Verify::Held);
    assert_eq!(b.verify(&tenure), Verify::NotOwner(Some(a.me.clone())));
    world.delete_lease(&e);
    assert_eq!(a.verify(&tenure), Verify::Missing);
}

/// No lease outlasts its TTL, wherever its end came from.
pub fn a_lease_with_too_long_or_no_end_is_cut_to_the_ttl(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let tenure = a.grant(&e);
    for wrong in [Some(TTL * 100), None] {
        world.set_lease_left(&e, wrong);
        assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()));
        assert!(world.lease_left(&e).unwrap() <= TTL, "{wrong:?} survived a look");
        world.set_lease_left(&e, wrong);
        assert_eq!(a.renew(&tenure), Renew::Extended);
        assert!(world.lease_left(&e).unwrap() <= TTL, "{wrong:?} survived a renewal");
    }
    world.set_lease_left(&e, Some(Duration::from_secs(20)));
    assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()));
    assert!(world.lease_left(&e).unwrap() <= Duration::from_secs(20), "a look extended it");
}

/// R4: one answer per item, in order, at the size of the largest batch.
pub fn a_batch_of_five_hundred_is_answered_item_by_item(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let all: Vec<_> = (0..500).map(|n| endpoint(&format!("e{n}"))).collect();
    b.grant(&all[250]);
    let answers = a.answered(|store, context| store.acquire(context, &all));
    assert_eq!(answers.len(), 500);
    let mut tenures = Vec::new();
    for (n, (endpoint, answer)) in all.iter().zip(answers).enumerate() {
        match answer {
            Acquire::Granted { fence, .. } if n != 250 => {
                tenures.push(Tenure::new(endpoint.clone(), fence));
            }
            Acquire::HeldBy(owner) if n == 250 => assert_eq!(owner, b.me),
            other => panic!("{n}: {other:?}"),
        }
    }
    world.delete_lease(&all[7]);
    let item = |tenure: &Tenure| RenewItem::new(tenure.clone());
    let items: Vec<_> = tenures.iter().map(item).collect();
    let renewed = a.answered(|store, context| store.renew(context, &items));
    assert!(renewed.iter().enumerate().all(|(n, it)| match it {
        Renew::Reclaimed => n == 7,
        other => n != 7 && *other == Renew::Extended,
    }));
    let verified = a.answered(|store, context| store.verify(context, &tenures));
    assert_eq!(verified, vec![Verify::Held; 499]);
    let results: Vec<_> = tenures.iter().map(|it| publication(it, 9)).collect();
    let published = a.publish_all(&results);
    assert_eq!(published, vec![Publish::Stored(None); 499]);
    let released = a.store.release(&a.context(), &tenures, &[]).unwrap();
    assert_eq!(released, vec![Release::Released; 499]);
}

/// R12: `leasehold release` on behalf of a process that is gone.
pub fn revoking_frees_the_leases_of_the_dead_and_no_other(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let kept = b.grant(&endpoint("kept"));
    let tenures: Vec<_> = (0..20).map(|n| a.grant(&endpoint(&format!("e{n}")))).collect();
    assert_eq!(b.store.revoke(&a.me, false, TIMEOUT).unwrap(), None, "it has a heartbeat");
    assert_eq!(b.owner(&endpoint("e0")).as_deref(), Some("a"));
    assert_eq!(b.store.revoke(&a.me, true, TIMEOUT).unwrap(), Some(20));
    assert_eq!(b.store.revoke(&a.me, false, TIMEOUT).unwrap(), Some(0), "revoked twice");
    assert_eq!(b.live(), [(b.me.clone(), Weight(1))]);
    assert_eq!(b.renew(&kept), Renew::Extended);
    for tenure in tenures {
        assert_eq!(a.renew(&tenure), Renew::NotOwner(None), "the dead came back");
        assert!(b.grant(&tenure.endpoint).fence > tenure.fence);
    }
}
