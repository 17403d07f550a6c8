//! Does a permit say what the table knows, and wait for nobody?

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;

use crate::clock::ManualClock;
use crate::lease::permit::{PollPermit, Standing};
use crate::lease::table::{LeaseTimings, Loss, Lost, OwnershipTable, Readiness};
use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, LeaseDuration, Tenure, Weight};
use crate::store::{Acquire, Grant, HeartbeatReply, Renew, Reply, Stamp, Verify};

const DURATION: LeaseDuration = LeaseDuration::new(Duration::from_secs(30));
/// For what happens at once, or never.
const PATIENCE: Duration = Duration::from_secs(10);

fn reply<T>(answer: T) -> Reply<T> {
    let stamp = Stamp {
        epoch: Epoch(1),
        hold_off: Duration::ZERO,
        server_us: 1_000_000,
        data_epoch: Epoch(1),
        revoked_until_ms: None,
    };
    Reply { stamp, answer: Some(answer) }
}

/// A table that has beaten once.
fn beating(heartbeat: LeaseDuration) -> (OwnershipTable, Arc<ManualClock>) {
    let timings = LeaseTimings {
        lease: DURATION,
        heartbeat,
        renew_interval: Duration::from_secs(10),
        store_timeout: Duration::from_secs(2),
    };
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let same = Arc::<ManualClock>::clone(&clock);
    let table = OwnershipTable::new(InstanceId::new("me"), timings, same, false);
    let request = table.request();
    table
        .heartbeat_answered(&request, &reply(HeartbeatReply { unbroken: true, weight: Weight(1) }));
    (table, clock)
}

/// Grants this many leases.
fn gain(table: &OwnershipTable, count: usize) -> Vec<Tenure> {
    let id = |it| EndpointId::parse(&format!("e{it}")).unwrap();
    let endpoints: Vec<EndpointId> = (0..count).map(id).collect();
    let grant = Acquire::Granted { fence: FenceToken(7), grant: Grant::Free };
    let request = table.request();
    let (gained, _) = table.granted(&request, &endpoints, &reply(vec![grant; count]));
    gained.into_iter().map(|it| it.tenure).collect()
}

/// A table that beats and holds one lease.
fn with_one() -> (OwnershipTable, Tenure) {
    let (table, _) = beating(DURATION);
    let tenure = gain(&table, 1).remove(0);
    (table, tenure)
}

/// R2: a poll that is about to begin is not held up by a thread that renews, expires or loses leases, however long that takes.
#[test]
fn a_permit_is_confirmed_while_the_lease_and_the_whole_table_are_locked() {
    let (table, tenure) = with_one();
    let permit = table.permit(&tenure).unwrap();
    let lease = table.find(&tenure).unwrap();
    std::thread::scope(|scope| {
        let all = table.leases.write();
        let one = lease.state.lock();
        let (told, heard) = bounded(1);
        scope.spawn(move || told.send(permit.confirm()).unwrap());
        let confirmed = heard.recv_timeout(PATIENCE);
        drop((one, all)); // before anything is judged: every thread that waits for them must end
        assert_eq!(confirmed, Ok(Ok(())), "the permit was not confirmed while others held locks");
    });
}

/// R2, R3: what was decided under the lock counts for the permit from the moment the lock is free.
#[test]
fn a_permit_holds_no_longer_than_its_lease_does() {
    let doubt = |table: &OwnershipTable, tenure: &Tenure| {
        table.find(tenure).unwrap().state.lock().standing = Standing::Uncertain;
    };
    let let_go =
        |table: &OwnershipTable, tenure: &Tenure| drop(table.forget_for_release(&tenure.endpoint));
    let shorten = |table: &OwnershipTable, tenure: &Tenure| {
        table.find(tenure).unwrap().state.lock().valid_until = table.now();
    };
    type Deed = fn(&OwnershipTable, &Tenure);
    for (name, deed) in
        [("doubt", doubt as Deed), ("let go", let_go as Deed), ("its deadline", shorten as Deed)]
    {
        let (table, tenure) = with_one();
        let permit = table.permit(&tenure).unwrap();
        assert_eq!(permit.confirm(), Ok(()), "before: {name}");
        deed(&table, &tenure);
        assert!(permit.confirm().is_err(), "{name}");
    }
}

/// R3: to forget many leases takes longer than a poll may go on without one.
#[test]
fn every_poll_is_stopped_before_the_first_lease_that_has_ended_is_forgotten() {
    // With its heartbeat, or at its own deadline.
    for heartbeat in [DURATION, LeaseDuration::new(DURATION.ttl * 10)] {
        let (table, clock) = beating(heartbeat);
        let table = Arc::new(table);
        let permits: Vec<PollPermit> =
            gain(&table, 3).iter().map(|it| table.permit(it).unwrap()).collect();
        let (stopped, held) = bounded(3);
        for permit in &permits {
            let (table, stopped) = (Arc::clone(&table), stopped.clone());
            permit.abort().arm(move || stopped.send(table.len()).unwrap());
        }
        clock.pass(DURATION.ttl);
        assert_eq!(table.expire().len(), 3);
        assert_eq!(held.try_iter().collect::<Vec<usize>>(), [3, 3, 3], "how many were left");
        assert!(permits.iter().all(|it| it.confirm().is_err()));
        assert_eq!((table.len(), table.next_deadline()), (0, None));
    }
}

/// R12: what a poller has armed is its own affair. One that panics keeps no other poll from being stopped, and no lease
/// from being lost.
#[test]
fn every_poll_is_stopped_even_if_what_stops_the_first_panics() {
    let (table, clock) = beating(DURATION);
    let permits: Vec<PollPermit> =
        gain(&table, 3).iter().map(|it| table.permit(it).unwrap()).collect();
    permits.iter().for_each(|it| it.abort().arm(|| panic!("deliberately")));
    clock.pass(DURATION.ttl);
    assert_eq!(table.expire().len(), 3);
    assert!(permits.iter().all(|it| it.abort().is_fired() && it.abort().has_panicked()));
    assert_eq!((table.len(), table.next_deadline()), (0, None));
}

/// R12: nothing opens a table again that was closed.
#[test]
fn a_closed_table_issues_no_permit_confirms_none_and_takes_nothing() {
    for table in [
        with_one().0,
        OwnershipTable::of_role(
            InstanceId::new("me"),
            *with_one().0.timings(),
            Arc::new(ManualClock::at(1_000_000_000)),
            false,
        ),
    ] {
        let tenure = gain(&table, 1)
            .pop()
            .or_else(|| table.tenure(&EndpointId::parse("e0").unwrap()))
            .unwrap();
        let permit = table.permit(&tenure).unwrap();
        let before = table.request();
        table.close();
        assert!(permit.confirm().is_err() && table.permit(&tenure).is_none());
        assert!(!table.may_poll(&tenure.endpoint) && !table.is_beating() && table.is_closed());
        assert_eq!(table.expire().len(), 1);
        assert!(permit.abort().is_fired());
        // A heartbeat that is confirmed afterwards, and grants, asked for before and after.
        table.heartbeat_answered(
            &table.request(),
            &reply(HeartbeatReply { unbroken: false, weight: Weight(1) }),
        );
        for request in [before, table.request()] {
            let wanted = std::slice::from_ref(&tenure.endpoint);
            let grant = Acquire::Granted { fence: FenceToken(9), grant: Grant::Free };
            assert_eq!(table.granted(&request, wanted, &reply(vec![grant])).0, []);
        }
        assert!(table.is_empty() && table.is_closed());
    }
}

/// A child that was forked has a copy of the table, and nobody who keeps it.
#[test]
fn in_a_process_that_was_forked_nothing_is_held() {
    let (table, tenure) = with_one();
    assert!(table.may_poll(&tenure.endpoint) && table.holding(&tenure.endpoint).is_some());
    table.fork();
    assert!(!table.is_of_this_process());
    assert!(!table.may_poll(&tenure.endpoint) && table.usable(&tenure.endpoint).is_none());
    assert!(table.holding(&tenure.endpoint).is_none());
}

/// R4: a result was refused while a renewal was on its way. That renewal has compared nothing, or before; the next one
/// has to, and comes at once.
#[test]
fn a_renewal_on_its_way_does_not_end_a_mistrust() {
    for owner_only in [true, false] {
        let (table, clock) = beating(LeaseDuration::new(DURATION.ttl * 10));
        let tenure = gain(&table, 1).remove(0);
        if !owner_only {
            table.require_fence_check(&tenure);
        }
        clock.pass(Duration::from_secs(10));
        let (request, items) = table.renewals().unwrap();
        assert_eq!(items[0].fence_checked, owner_only);
        clock.pass(Duration::from_millis(1));
        table.require_fence_check(&tenure);
        table.renewed(&request, &items, &reply(vec![Renew::Extended]));
        assert!(table.may_poll(&tenure.endpoint), "it was extended all the same");
        assert!(!table.verification(std::slice::from_ref(&tenure)).context.owner_only);
        let (request, items) = table.renewals().expect("it is due at once");
        assert!(!items[0].fence_checked, "its fence is compared");
        table.renewed(&request, &items, &reply(vec![Renew::Extended]));
        assert!(table.verification(std::slice::from_ref(&tenure)).context.owner_only);
        assert!(table.renewals().is_none(), "and then it is as before");
    }
}

/// R8: a hand-over that began waits for the poll that runs, and R3: a doubt that passed is none.
#[test]
fn a_permit_outlasts_the_beginning_of_a_hand_over_and_a_doubt() {
    let (table, tenure) = with_one();
    let permit = table.permit(&tenure).unwrap();
    assert!(table.drain(&tenure.endpoint));
    assert_eq!(permit.confirm(), Ok(()));
    let lease = table.find(&tenure).unwrap();
    lease.state.lock().standing = Standing::Uncertain;
    assert!(permit.confirm().is_err());
    lease.state.lock().standing = Standing::Held;
    assert_eq!(permit.confirm(), Ok(()));
}

/// R4: a name is proof only of what was compared in the epoch it is asked in.
#[test]
fn what_was_not_compared_in_this_epoch_is_not_verified_by_name() {
    let (table, tenure) = with_one();
    let owner_only = |tenures: &[Tenure]| table.verification(tenures).context.owner_only;
    let other = Tenure::new(tenure.endpoint.clone(), FenceToken(6));
    assert!(owner_only(std::slice::from_ref(&tenure)));
    assert!(!owner_only(&[tenure.clone(), other]), "of another tenure nothing is known");
    table.require_fence_check(&tenure);
    assert!(!owner_only(std::slice::from_ref(&tenure)), "a result of it was refused");
    let (table, tenure) = with_one();
    let mut next = reply(HeartbeatReply { unbroken: true, weight: Weight(1) });
    next.stamp.epoch = Epoch(next.stamp.epoch.0 + 1);
    table.heartbeat_answered(&table.request(), &next);
    assert!(!table.verification(&[tenure]).context.owner_only, "another epoch");
}

/// A revocable table that beats and holds one lease, verified when it was granted.
fn revocable() -> (OwnershipTable, Arc<ManualClock>, Tenure) {
    let (table, clock) = beating(DURATION);
    let table = table.revocable();
    let tenure = gain(&table, 1).remove(0);
    (table, clock, tenure)
}

const V: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn verify(table: &OwnershipTable, tenure: &Tenure) {
    let tenures = std::slice::from_ref(tenure);
    let request = table.verification(tenures);
    let (held, _) = table.verified(&request, tenures, &reply(vec![Verify::Held]));
    assert_eq!(held, tenures);
}

/// R15: without an answer of the store that is younger than V no poll begins, and no permit is confirmed.
#[test]
fn r15_a_poll_starts_only_under_a_fresh_verification() {
    assert_eq!(DURATION.verification().ttl, V);
    let (table, clock, tenure) = revocable();
    let permit = table.permit(&tenure).unwrap();
    clock.pass(V - MS);
    assert_eq!(permit.confirm(), Ok(()), "a grant is a verification");
    clock.pass(MS);
    assert!(permit.confirm().is_err(), "it is V old");
    drop(permit);
    assert!(table.permit(&tenure).is_none() && !table.may_start_poll(&tenure.endpoint));
    assert_eq!(table.readiness(&tenure), Readiness::Ready, "it may be verified again");
    verify(&table, &tenure);
    assert!(table.permit(&tenure).is_some() && table.may_start_poll(&tenure.endpoint));
}

/// R1, R15: a verification counts from before the request.
#[test]
fn r15_a_verification_counts_from_before_its_request() {
    let (table, clock, tenure) = revocable();
    clock.pass(V);
    let tenures = std::slice::from_ref(&tenure);
    let request = table.verification(tenures);
    clock.pass(V - MS);
    table.verified(&request, tenures, &reply(vec![Verify::Held]));
    assert!(table.permit(&tenure).is_some());
    clock.pass(MS);
    assert!(table.permit(&tenure).is_none());
}

/// R15: a poll that runs is aborted when its verification ends; the lease stays.
#[test]
fn r15_a_running_poll_is_aborted_when_its_verification_ends() {
    let (table, clock, tenure) = revocable();
    let permit = table.permit(&tenure).unwrap();
    assert_eq!(table.next_deadline(), Some(table.now() + V), "the thread expiry wakes then");
    clock.pass(V / 2);
    verify(&table, &tenure);
    clock.pass(V - MS);
    assert!(table.expire().is_empty() && !permit.abort().is_fired(), "it was verified again");
    clock.pass(MS);
    assert!(table.expire().is_empty(), "the lease stays");
    assert!(permit.abort().is_fired() && table.has(&tenure));
    assert!(table.next_deadline() > Some(table.now() + V), "one abort is enough");
}

/// R15: what runs is to be verified when half of its time is over.
#[test]
fn r15_a_running_poll_is_verified_again_in_time() {
    let (table, clock, tenure) = revocable();
    assert_eq!((table.polls_to_verify(), table.next_verification()), (vec![], None), "none runs");
    let permit = table.permit(&tenure).unwrap();
    assert!(table.first_poll_began().try_recv().is_ok());
    assert_eq!(table.next_verification(), Some(table.now() + V / 2));
    clock.pass(V / 2 - MS);
    assert!(table.polls_to_verify().is_empty());
    clock.pass(MS);
    assert_eq!(table.polls_to_verify(), std::slice::from_ref(&tenure));
    verify(&table, &tenure);
    assert!(table.polls_to_verify().is_empty());
    drop(permit);
    assert_eq!(table.next_verification(), None);
}

/// R15 is off where nobody may revoke.
#[test]
fn r15_a_table_that_cannot_be_revoked_needs_no_verification() {
    let (table, clock) = beating(DURATION);
    let tenure = gain(&table, 1).remove(0);
    let permit = table.permit(&tenure).unwrap();
    clock.pass(10 * V);
    assert!(permit.confirm().is_ok() && table.may_start_poll(&tenure.endpoint));
    assert_eq!((table.polls_to_verify(), table.verified_for()), (vec![], None));
    assert!(!table.request().context.revocable);
}

fn barred<T>() -> Reply<T> {
    let granted: Reply<()> = reply(());
    let stamp = Stamp { revoked_until_ms: Some(77), ..granted.stamp };
    Reply { stamp, answer: None }
}

/// R16: a revocation ends every lease for good, whichever answer tells of it; the next heartbeat names it.
#[test]
fn r16_a_revoked_instance_ends_its_generation() {
    let (table, _, tenure) = revocable();
    let permit = table.permit(&tenure).unwrap();
    let asked_before = table.request();
    let tenures = std::slice::from_ref(&tenure);
    table.verified(&table.verification(tenures), tenures, &barred());
    assert!(permit.confirm().is_err() && table.permit(&tenure).is_none());
    assert_eq!(table.request().context.obeyed_ms, 77);
    let lost = table.expire();
    assert_eq!(lost, [Lost { tenure: tenure.clone(), loss: Loss::Revoked }]);
    assert!(permit.abort().is_fired());
    // A heartbeat or a grant from before brings nothing back.
    let beat = HeartbeatReply { unbroken: true, weight: Weight(1) };
    table.heartbeat_answered(&asked_before, &reply(beat));
    let grant = Acquire::Granted { fence: FenceToken(8), grant: Grant::Free };
    let endpoints = [tenure.endpoint.clone()];
    let (gained, _) = table.granted(&asked_before, &endpoints, &reply(vec![grant.clone()]));
    assert!(gained.is_empty() && !table.may_poll(&tenure.endpoint));
    // It begins anew.
    let request = table.request();
    table.heartbeat_answered(&request, &reply(HeartbeatReply { unbroken: false, ..beat }));
    assert_eq!(table.granted(&table.request(), &endpoints, &reply(vec![grant])).0.len(), 1);
    assert!(!table.revoked(77), "it has obeyed that one");
    assert!(table.may_start_poll(&tenure.endpoint));
    assert!(table.revoked(78) && !table.may_start_poll(&tenure.endpoint), "another one");
}
