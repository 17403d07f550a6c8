//! Whether the due index is what the leases say, and spares everybody a walk over all of them.

use std::time::Duration;

use crate::clock::{Clock, ManualClock};
use crate::lease::table::due_index::*;
use crate::lease::table::{LeaseTimings, OwnershipTable};
use crate::model::{Epoch, FenceToken, InstanceId, LeaseDuration, Weight};
use crate::store::{Acquire, BATCH_MAX, Grant, HeartbeatReply, Renew, Reply, Stamp};

const LEASES: usize = 20 * BATCH_MAX;
const INTERVAL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(10);

struct Rig {
    table: OwnershipTable,
    clock: Arc<ManualClock>,
}

impl Rig {
    fn new() -> Self {
        let duration = LeaseDuration::new(Duration::from_secs(30));
        let timings = LeaseTimings {
            lease: duration,
            heartbeat: duration,
            renew_interval: INTERVAL,
            store_timeout: Duration::from_secs(2),
        };
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let table = OwnershipTable::new(InstanceId::new("me"), timings, clock.clone(), false);
        let rig = Self { table, clock };
        rig.beat();
        rig
    }

    fn reply<T>(&self, answer: T) -> Reply<T> {
        let server_us = self.clock.now().as_nanos() / 1_000;
        let stamp = Stamp {
            epoch: Epoch(1),
            hold_off: Duration::ZERO,
            server_us,
            data_epoch: Epoch(1),
            revoked_until_ms: None,
        };
        Reply { stamp, answer: Some(answer) }
    }

    fn beat(&self) {
        let request = self.table.request();
        self.table.heartbeat_answered(
            &request,
            &self.reply(HeartbeatReply { unbroken: true, weight: Weight(1) }),
        );
    }

    /// A batch of grants.
    fn grant(&self, from: usize, n: usize) {
        let id = |it| EndpointId::parse(&format!("session-{it}")).unwrap();
        let endpoints: Vec<EndpointId> = (from..from + n).map(id).collect();
        let fence = FenceToken(7);
        let grant = Acquire::Granted { fence, grant: Grant::Free };
        let request = self.table.request();
        let (gained, _) = self.table.granted(&request, &endpoints, &self.reply(vec![grant; n]));
        assert_eq!(gained.len(), n);
    }

    /// What the threads `renewal` and `expiry` do again and again; how many were renewed.
    fn step(&self) -> usize {
        let (_, _) = (self.table.next_renewal(), self.table.is_doubtful());
        assert_eq!(self.table.expire(), []);
        self.table.next_deadline();
        // And `reconcile`.
        assert!(self.table.take_drained(PATIENCE).is_empty() && self.table.tenure_count() > 0);
        self.table.next_drain_deadline(PATIENCE);
        let Some((request, items)) = self.table.renewals() else { return 0 };
        let answers = vec![Renew::Extended; items.len()];
        let applied = self.table.renewed(&request, &items, &self.reply(answers));
        assert_eq!(applied.extended.len(), items.len());
        items.len()
    }

    /// What the due index says, against what a walk over all leases finds.
    fn check(&self) {
        let leases = self.table.leases.read();
        let state = |it: &Arc<Lease>| {
            let state = it.state.lock();
            (state.renew_at, state.valid_until, DueEntry::of(&state).unwrap())
        };
        let all: Vec<_> = leases.all().map(state).collect();
        let due_index = self.table.due_index.lock();
        assert_eq!(due_index.waiting.len() + due_index.due.len(), all.len());
        assert_eq!(due_index.ends.len(), all.len());
        let renewals =
            due_index.waiting.keys().map(|it| it.0).chain(due_index.due.values().copied());
        assert_eq!(renewals.min(), all.iter().map(|it| it.0).min());
        assert_eq!(due_index.next_end(), all.iter().map(|it| it.1).min());
        assert_eq!(due_index.doubtful.len(), all.iter().filter(|it| it.2.doubtful).count());
        assert_eq!(due_index.draining.len(), all.iter().filter(|it| it.2.draining).count());
    }
}

impl OwnershipTable {
    fn tenure_count(&self) -> usize {
        self.leases.read().len()
    }
}

/// A round over n leases in batches of 500 would look at n * n / 500 of them.
#[test]
fn no_step_goes_through_all_leases() {
    let rig = Rig::new();
    for batch in 0..LEASES / BATCH_MAX {
        rig.grant(batch * BATCH_MAX, BATCH_MAX);
    }
    let mut renewed = 0;
    let before = rig.table.leases.read().walked();
    for _ in 0..100 {
        rig.clock.pass(Duration::from_millis(100));
        while let n @ 1.. = rig.step() {
            renewed += n;
        }
        rig.table.drain(&EndpointId::parse("session-1").unwrap());
        rig.table.undrain(&EndpointId::parse("session-1").unwrap());
    }
    assert_eq!(renewed, LEASES, "a round is all leases, once each");
    let walked = rig.table.leases.read().walked() - before;
    assert_eq!(walked, 0, "leases were gone through to find those that are due");
    rig.check();
}

/// Others on the same server would notice a burst of batches every interval.
#[test]
fn what_is_granted_at_once_is_not_renewed_at_once() {
    let rig = Rig::new();
    for batch in 0..LEASES / BATCH_MAX {
        rig.grant(batch * BATCH_MAX, BATCH_MAX);
    }
    let tenth = INTERVAL / 10;
    let mut most = 0;
    for _ in 0..20 {
        rig.clock.pass(tenth);
        rig.beat();
        let mut together = 0;
        while let n @ 1.. = rig.step() {
            together += n;
        }
        most = most.max(together);
    }
    assert!(most < LEASES / 3, "{most} of {LEASES} leases were renewed within {tenth:?}");
}

#[test]
fn whatever_happens_the_agenda_is_what_the_leases_say() {
    let rig = Rig::new();
    let id = |it: usize| EndpointId::parse(&format!("session-{it}")).unwrap();
    for round in 0..60 {
        rig.grant(round * 40, 40);
        rig.clock.pass(Duration::from_millis(937));
        rig.beat();
        rig.check();
        rig.table.drain(&id(round * 40));
        rig.table.drain(&id(round * 40 + 1));
        rig.table.undrain(&id(round * 40 + 1));
        rig.check();
        let tenure = rig.table.tenure(&id(round * 40 + 2)).unwrap();
        rig.table.require_fence_check(&tenure);
        rig.check();
        assert!(rig.table.forget_for_release(&id(round * 40 + 3)).is_some());
        if let Some((request, items)) = rig.table.renewals() {
            rig.check();
            match round % 5 {
                0 => drop(rig.table.unanswered(&items, "no")),
                1 => {
                    let late = vec![Renew::Late; items.len()];
                    rig.table.renewed(&request, &items, &rig.reply(late));
                    assert!(rig.table.is_doubtful());
                }
                2 => {
                    let gone = vec![Renew::NotOwner(None); items.len()];
                    rig.table.renewed(&request, &items, &rig.reply(gone));
                }
                _ => {
                    let kept = vec![Renew::Extended; items.len()];
                    rig.table.renewed(&request, &items, &rig.reply(kept));
                }
            }
        }
        rig.check();
        rig.table.take_drained(PATIENCE);
        rig.table.expire();
        rig.check();
    }
    rig.clock.pass(Duration::from_secs(60));
    rig.table.expire();
    rig.check();
    assert!(rig.table.is_empty() && !rig.table.is_doubtful());
    assert_eq!((rig.table.next_renewal(), rig.table.next_deadline()), (None, None));
}

/// One that is found, and then forgotten by another thread, before it is changed.
#[test]
fn a_lease_that_has_ended_is_not_put_on_the_agenda_again() {
    let rig = Rig::new();
    rig.grant(0, 1);
    let tenure = rig.table.tenure(&EndpointId::parse("session-0").unwrap()).unwrap();
    let lease = rig.table.find(&tenure).unwrap();
    rig.table.forget_for_release(&tenure.endpoint);
    rig.table.edit(&lease).renew_at = rig.clock.now();
    rig.check();
    assert_eq!(rig.table.next_renewal(), None);
}

/// Only a change that the due index is told of ends a lease.
#[test]
fn a_lease_whose_poll_was_stopped_before_it_is_forgotten_leaves_nothing_on_the_agenda() {
    let rig = Rig::new();
    rig.grant(0, 1);
    let tenure = rig.table.tenure(&EndpointId::parse("session-0").unwrap()).unwrap();
    rig.table.find(&tenure).unwrap().stop_poll();
    rig.check();
    rig.table.forget_for_release(&tenure.endpoint);
    rig.check();
    assert_eq!(rig.table.next_deadline(), None);
}

/// R3: those that end first go first, however long others have been due.
#[test]
fn of_those_that_are_due_the_ones_that_end_first_are_renewed_first() {
    let rig = Rig::new();
    rig.grant(0, 2);
    rig.clock.pass(Duration::from_secs(5));
    rig.grant(2, BATCH_MAX);
    rig.clock.pass(Duration::from_secs(15));
    rig.beat();
    // The first two have waited the shortest.
    for it in 0..2 {
        let endpoint = EndpointId::parse(&format!("session-{it}")).unwrap();
        rig.table.require_fence_check(&rig.table.tenure(&endpoint).unwrap());
    }
    let (_, items) = rig.table.renewals().unwrap();
    let names: BTreeSet<&str> = items.iter().map(|it| it.tenure.endpoint.as_str()).collect();
    assert_eq!(items.len(), BATCH_MAX);
    assert!(names.contains("session-0") && names.contains("session-1"));
}
