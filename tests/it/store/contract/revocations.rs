//! R15 and R16 in the store: who can be revoked, what a revoked instance is refused, and when its leases may be taken over.

use std::time::Duration;

use leasehold::model::{EndpointId, InstanceId, LeaseDuration, Tenure, Weight};
use leasehold::store::{
    Acquire, Beat, Grant, Hint, RenewItem, Reply, RequestContext, Revocation, RevocationReply,
    SignsOfLife, StampedResult, Verify,
};

use crate::store::contract::asker::{Asker, endpoint, only, publication};
use crate::store::contract::infos::{info, tells};
use crate::store::contract::world::{DURATION, TIMEOUT, TTL, World};

const WAIT: Duration = Duration::from_millis(1_130);

/// An instance that keeps R15 and gives signs of life.
fn beating(world: &dyn World, name: &str) -> Asker {
    let mut a = Asker::alive(world, name);
    tells(&mut a, &info(0), TTL);
    assert_eq!(a.store.beat(&a.me, 1, TIMEOUT).unwrap(), Beat::Noted);
    a
}

/// As an instance that keeps R15 asks.
fn context(a: &Asker) -> RequestContext {
    RequestContext { revocable: true, ..a.context() }
}

fn revoke(by: &Asker, suspect: &InstanceId, hint: Hint) -> RevocationReply {
    let revocation = Revocation { suspect: suspect.clone(), hint, not_after_us: 0 };
    by.store.revoke_instance(&revocation, TIMEOUT).unwrap()
}

fn revoked(by: &Asker, suspect: &InstanceId) -> Duration {
    match revoke(by, suspect, Hint::Operator) {
        RevocationReply::Revoked(left) => left,
        other => panic!("{suspect} was not revoked: {other:?}"),
    }
}

fn signs(by: &Asker, of: &InstanceId) -> SignsOfLife {
    only(by.store.signs_of_life(std::slice::from_ref(of), TIMEOUT).unwrap())
}

fn acquire(by: &Asker, endpoint: &EndpointId, context: &RequestContext) -> Acquire {
    let reply = by.store.acquire(context, std::slice::from_ref(endpoint)).unwrap();
    only(reply.answer.expect("the epoch is known"))
}

fn takes_over(by: &Asker, endpoint: &EndpointId) -> bool {
    match acquire(by, endpoint, &context(by)) {
        Acquire::Granted { grant, .. } => grant == Grant::Takeover,
        _ => false,
    }
}

/// Nothing was decided, because the caller was revoked.
fn is_barred<T>(reply: StampedResult<T>) -> bool {
    let Reply { stamp, answer } = reply.unwrap();
    answer.is_none() && stamp.revoked_until_ms.is_some()
}

pub fn a_revoked_instance_is_refused_everything(world: &mut dyn World) {
    let (mut a, b) = (beating(world, "a"), beating(world, "b"));
    let tenure = a.grant(&endpoint("e"));
    let tenures = std::slice::from_ref(&tenure);
    let left = revoked(&b, &a.me);
    assert!(left <= WAIT && left > WAIT - Duration::from_millis(100), "{left:?}");
    let by_name = RequestContext { owner_only: true, ..context(&a) };
    assert!(is_barred(a.store.verify(&context(&a), tenures)), "R16: verify.lua");
    assert!(is_barred(a.store.verify(&by_name, tenures)), "R16: verify_by_owner.lua");
    let item = RenewItem::new(tenure.clone());
    let checked = RenewItem { fence_checked: true, ..item.clone() };
    assert!(is_barred(a.store.renew(&context(&a), &[item])), "R16: renew.lua");
    assert!(is_barred(a.store.renew(&context(&a), &[checked])), "R16: renew_by_owner.lua");
    let result = publication(&tenure, 1);
    assert!(is_barred(a.store.publish(&context(&a), &[result])), "R16: publish.lua");
    let other = [endpoint("other")];
    assert!(is_barred(a.store.acquire(&context(&a), &other)), "R16: acquire.lua");
    let beat = |context: &RequestContext| a.store.heartbeat(context, TTL, Weight(1), None);
    assert!(is_barred(beat(&context(&a))), "R16: heartbeat.lua");
    assert!(matches!(a.store.beat(&a.me, 2, TIMEOUT).unwrap(), Beat::Revoked(_)), "R16: beat.lua");
    assert_eq!(b.owner(&tenure.endpoint).as_deref(), Some("a"), "its lease stays where it is");
}

pub fn leases_of_a_revoked_instance_are_taken_over_when_its_verification_has_ended(
    world: &mut dyn World,
) {
    let (mut a, b) = (beating(world, "a"), beating(world, "b"));
    let old = Asker::alive(world, "old");
    let tenure = a.grant(&endpoint("e"));
    let left = revoked(&b, &a.me);
    assert!(!takes_over(&b, &tenure.endpoint), "R16: before its last verification has ended");
    let seen =
        |it: &Asker| only(it.store.heartbeats(std::slice::from_ref(&a.me), TIMEOUT).unwrap());
    assert!(seen(&b).is_some_and(|it| it.left <= left), "R9: everybody knows when to look again");
    world.pass(left);
    assert_eq!(seen(&b), None, "it counts as dead");
    let answer = acquire(&old, &tenure.endpoint, &old.context());
    assert_eq!(answer, Acquire::HeldBy(a.me.clone()), "R15 keeps only those safe that keep it");
    assert!(takes_over(&b, &tenure.endpoint));
}

pub fn a_revoked_instance_comes_back_when_it_has_obeyed(world: &mut dyn World) {
    let (mut a, b) = (beating(world, "a"), beating(world, "b"));
    let tenure = a.grant(&endpoint("e"));
    let left = revoked(&b, &a.me);
    let until_ms = signs(&b, &a.me).revoked_until_ms.unwrap();
    let obeyed = |a: &Asker, obeyed_ms| RequestContext { obeyed_ms, ..context(a) };
    let beat = |context: &RequestContext| a.store.heartbeat(context, TTL, Weight(1), None);
    assert!(is_barred(beat(&obeyed(&a, until_ms))), "somebody may wait for its last verification");
    world.pass(left);
    assert!(is_barred(beat(&obeyed(&a, 0))), "a heartbeat that was sent before");
    assert!(is_barred(beat(&obeyed(&a, until_ms - 1))), "it has obeyed an earlier one");
    let reply = beat(&obeyed(&a, until_ms)).unwrap();
    assert!(!reply.answer.unwrap().unbroken, "R13: it begins anew");
    assert_eq!(signs(&b, &a.me).revoked_until_ms, None);
    assert_eq!(
        only(b.store.heartbeats(std::slice::from_ref(&a.me), TIMEOUT).unwrap()).map(|it| it.value),
        Some(Weight(1))
    );
    assert!(!takes_over(&b, &tenure.endpoint), "it is alive");
    assert!(matches!(a.acquire(&tenure.endpoint), Acquire::Granted { grant: Grant::Adopted, .. }));
}

pub fn only_an_instance_that_looks_dead_is_revoked(world: &mut dyn World) {
    let (a, b) = (beating(world, "a"), beating(world, "b"));
    let nobody = InstanceId::new("nobody");
    assert_eq!(revoke(&b, &nobody, Hint::Operator), RevocationReply::Gone);
    let old = Asker::alive(world, "old");
    assert_eq!(
        revoke(&b, &old.me, Hint::Operator),
        RevocationReply::Unable,
        "it does not keep R15"
    );
    assert_eq!(signs(&b, &a.me).beats, Some(1));
    a.store.beat(&a.me, 2, TIMEOUT).unwrap();
    let silent = Hint::NoHeartbeat { beats: 1 };
    let unsubscribed = |beats| Hint::NoSubscriber { beats };
    assert_eq!(revoke(&b, &a.me, silent), RevocationReply::Alive, "it has beaten since");
    let subscription = a.store.listen(&a.me, TIMEOUT).unwrap();
    assert_eq!(signs(&b, &a.me).subscribers, Some(1));
    assert_eq!(revoke(&b, &a.me, unsubscribed(2)), RevocationReply::Alive);
    assert_eq!(revoke(&b, &a.me, unsubscribed(1)), RevocationReply::Alive);
    drop(subscription);
    let late = Revocation { suspect: a.me.clone(), hint: Hint::Operator, not_after_us: 1 };
    assert_eq!(b.store.revoke_instance(&late, TIMEOUT).unwrap(), RevocationReply::Late);
    assert!(matches!(
        revoke(&b, &a.me, Hint::NoHeartbeat { beats: 2 }),
        RevocationReply::Revoked(_)
    ));
    assert!(matches!(revoke(&b, &a.me, silent), RevocationReply::Already(_)));
}

pub fn nobody_is_revoked_in_a_hold_off(world: &mut dyn World) {
    let (mut a, b) = (beating(world, "a"), beating(world, "b"));
    a.suspect();
    assert!(a.holds_off());
    assert_eq!(revoke(&b, &a.me, Hint::Operator), RevocationReply::HoldOff);
}

pub fn a_fleet_revokes_thirty_instances_in_a_minute(world: &mut dyn World) {
    let b = beating(world, "b");
    let reply = |n: usize, hint| {
        let a = beating(world, &format!("a{n}"));
        revoke(&b, &a.me, hint)
    };
    for n in 0..30 {
        let reply = reply(n, Hint::NoHeartbeat { beats: 1 });
        assert!(matches!(reply, RevocationReply::Revoked(_)), "{n}: {reply:?}");
    }
    assert_eq!(reply(30, Hint::NoHeartbeat { beats: 1 }), RevocationReply::Limit);
    assert!(matches!(reply(31, Hint::Operator), RevocationReply::Revoked(_)), "he knows better");
}

/// R15: after a loss of data an owner that the store has forgotten may still poll under its last verification.
pub fn nothing_is_verified_at_the_beginning_of_an_epoch(world: &mut dyn World) {
    let mut a = beating(world, "a");
    let tenure = a.grant(&endpoint("e"));
    let verified = |a: &Asker, owner_only| {
        let context = RequestContext { owner_only, ..context(a) };
        let reply = a.store.verify(&context, std::slice::from_ref(&tenure)).unwrap();
        assert_eq!(reply.stamp.epoch, context.epoch);
        reply.answer
    };
    let held = Some(vec![Verify::Held]);
    world.pass(WAIT); // the first start is a loss, too
    a.suspect();
    assert!(a.holds_off());
    assert_eq!((verified(&a, false), verified(&a, true)), (held.clone(), held.clone()), "no loss");
    world.delete_epoch();
    assert!(a.holds_off());
    assert_eq!((verified(&a, false), verified(&a, true)), (None, None));
    a.suspect();
    assert!(a.holds_off());
    assert_eq!((verified(&a, false), verified(&a, true)), (None, None), "the wait goes on");
    world.pass(LeaseDuration::revocation(DURATION));
    assert_eq!((verified(&a, false), verified(&a, true)), (held.clone(), held));
    let tenure: &Tenure = &tenure;
    assert_eq!(a.verify(tenure), Verify::Held);
}

pub fn a_revocation_ends_in_time_although_the_clock_was_set_back(world: &mut dyn World) {
    let (a, b) = (beating(world, "a"), beating(world, "b"));
    revoked(&b, &a.me);
    world.clock_goes_back(Duration::from_secs(3_600));
    let beat = |a: &Asker, obeyed_ms| {
        let context = RequestContext { obeyed_ms, ..context(a) };
        a.store.heartbeat(&context, TTL, Weight(1), None).unwrap()
    };
    let until_ms = beat(&a, 1).stamp.revoked_until_ms.unwrap();
    world.pass(WAIT + Duration::from_millis(5));
    assert!(beat(&a, until_ms).answer.is_some());
}
