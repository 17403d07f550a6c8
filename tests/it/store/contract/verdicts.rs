//! The verdict of an endpoint: counted over owners, and each change announced once.

use leasehold::model::{KnownVerdict, Tenure, Thresholds, Verdict, VerdictState};
use leasehold::store::{Judging, Publication, Publish, Renew};

use crate::store::contract::asker::{Asker, endpoint, only, publication};
use crate::store::contract::world::World;

const OK: bool = true;
const BAD: bool = false;

/// A result, and what its owner saw stored last.
fn result(tenure: &Tenure, at: u64, ok: bool, known: Option<KnownVerdict>) -> Publication {
    let mut it = publication(tenure, at);
    it.sample.ok = ok;
    it.judging =
        Judging { thresholds: Thresholds { fail_after: 2, ok_after: 2 }, known, ..it.judging };
    it
}

/// The state after a result of an owner that knows nothing.
fn judged(asker: &mut Asker, tenure: &Tenure, at: u64, ok: bool) -> VerdictState {
    judged_knowing(asker, tenure, at, ok, None).expect("told to an owner that knows nothing")
}

/// `None`: as it was known.
fn judged_knowing(
    asker: &mut Asker,
    tenure: &Tenure,
    at: u64,
    ok: bool,
    known: Option<KnownVerdict>,
) -> Option<VerdictState> {
    let results = [result(tenure, at, ok, known)];
    match only(asker.answered(|store, context| store.publish(context, &results))) {
        Publish::Stored(state) => state,
        other => panic!("{other:?}"),
    }
}

fn known(tenure: &Tenure, started_at_ms: u64, state: VerdictState) -> Option<KnownVerdict> {
    Some(KnownVerdict { fence: tenure.fence, started_at_ms, state })
}

/// Each change as `endpoint instance verdict since before failures`.
fn changes(world: &mut dyn World) -> Vec<String> {
    world.changes()
}

pub fn a_verdict_changes_after_enough_results_in_a_row_and_is_announced_once(
    world: &mut dyn World,
) {
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    let told: Vec<_> = [(1, OK), (2, BAD), (3, BAD), (4, BAD), (5, OK), (6, BAD), (7, OK), (8, OK)]
        .map(|(at, ok)| judged(&mut a, &tenure, at, ok))
        .map(|it| (it.verdict.unwrap().as_str(), it.since_ms, it.failures, it.successes))
        .into();
    let expected = [
        ("ok", 1, 0, 0),
        ("ok", 1, 1, 0),
        ("failing", 3, 2, 0),
        ("failing", 3, 3, 0),
        ("failing", 3, 0, 1),
        ("failing", 3, 1, 0),
        ("failing", 3, 0, 1),
        ("ok", 8, 0, 0),
    ];
    assert_eq!(told, expected);
    assert_eq!(changes(world), ["e a failing 3 1 2", "e a ok 8 3 0"]);
}

/// The reply that told the change was lost: its owner must hear of it, and nobody else again.
pub fn a_change_whose_reply_was_lost_is_told_again_to_its_owner_alone(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    for (at, ok) in [(1, BAD), (2, BAD), (3, OK), (4, OK)] {
        let first = judged(&mut a, &tenure, at, ok);
        let again = judged(&mut a, &tenure, at, ok);
        assert_eq!(again, first, "counted twice");
        assert_eq!(again.is_changed_by(at), at % 2 == 0);
    }
    assert_eq!(changes(world), ["e a failing 2 0 2", "e a ok 4 2 0"]);
}

pub fn the_next_owner_goes_on_counting(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let e = endpoint("e");
    let first = a.grant(&e);
    judged(&mut a, &first, 1, OK);
    judged(&mut a, &first, 2, BAD);
    a.release(&first);
    let second = b.grant(&e);
    let state = judged(&mut b, &second, 3, BAD);
    assert_eq!((state.verdict, state.failures), (Some(Verdict::Failing), 2));
    b.release(&second);
    let third = a.grant(&e);
    let state = judged(&mut a, &third, 4, BAD);
    assert!(!state.is_changed_by(4), "the endpoint was failing already");
    assert_eq!(changes(world), ["e b failing 3 1 2"]);
}

/// What this owner knew before another one polled is older than what is stored.
pub fn an_old_memory_of_a_verdict_counts_for_nothing(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let e = endpoint("e");
    let first = a.grant(&e);
    let state = judged(&mut a, &first, 1, OK);
    a.release(&first);
    let second = b.grant(&e);
    judged(&mut b, &second, 2, BAD);
    judged(&mut b, &second, 3, BAD);
    b.release(&second);
    let third = a.grant(&e);
    let state = judged_knowing(&mut a, &third, 4, BAD, known(&first, 1, state)).unwrap();
    assert_eq!((state.since_ms, state.failures), (3, 3));
    // And of the same tenure: a reply was lost after a later result.
    let old = known(&third, 1, VerdictState::default());
    let state = judged_knowing(&mut a, &third, 5, BAD, old).unwrap();
    assert_eq!((state.since_ms, state.failures), (3, 4));
    assert_eq!(changes(world), ["e b failing 3 1 2"]);
}

/// Nothing is announced again, and the count goes on.
pub fn a_store_that_lost_its_verdicts_goes_on_from_what_the_owner_knows(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    judged(&mut a, &tenure, 1, OK);
    let ok_until = judged(&mut a, &tenure, 2, BAD);
    world.save();
    let failing = judged(&mut a, &tenure, 3, BAD);
    let said = changes(world);
    // It comes back with what it had a while ago …
    world.restart_from_saved();
    a.store = world.store();
    assert!(matches!(a.renew(&tenure), Renew::Extended | Renew::Reclaimed));
    let state = judged_knowing(&mut a, &tenure, 4, BAD, known(&tenure, 3, failing)).unwrap();
    assert_eq!((state.since_ms, state.failures), (3, 3));
    assert_ne!(state.since_ms, ok_until.since_ms);
    // … and with nothing.
    world.restart_empty();
    a.store = world.store();
    assert_eq!(a.renew(&tenure), Renew::Reclaimed);
    let state = judged_knowing(&mut a, &tenure, 5, BAD, known(&tenure, 4, state)).unwrap();
    assert_eq!((state.verdict, state.since_ms, state.failures), (Some(Verdict::Failing), 3, 4));
    assert!(
        changes(world).iter().all(|it| said.contains(it)),
        "announced again: {:?}",
        changes(world)
    );
    judged(&mut a, &tenure, 6, OK);
    let state = judged(&mut a, &tenure, 7, OK);
    assert_eq!((state.since_ms, state.before_ms), (7, 3), "how long it was failing");
}

/// The usual case is the cheap one: the reply says that nothing is new.
pub fn a_verdict_that_stays_ok_is_not_told_to_an_owner_that_knows_it(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    let state = judged(&mut a, &tenure, 1, OK);
    assert_eq!(judged_knowing(&mut a, &tenure, 2, OK, known(&tenure, 1, state)), None);
    assert_eq!(judged_knowing(&mut a, &tenure, 3, OK, known(&tenure, 2, state)), None);
    assert_eq!(judged(&mut a, &tenure, 4, OK), state);
}
