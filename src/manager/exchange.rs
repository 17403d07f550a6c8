//! How does a manager take a lease, and give it back? One request to the store at a time for each name.

use std::sync::Arc;

use crate::clock::Moment;
use crate::event::Event;
use crate::lease::report::Reporter;
use crate::lease::table::{Gained, OwnershipTable};
use crate::manager::hold::Hold;
use crate::manager::lease::Lease;
use crate::manager::listening::Listening;
use crate::manager::outcome::{Acquired, NotNow, Refusal, Released};
use crate::manager::turns::{Next, Parted, Place, Turns};
use crate::model::{EndpointId, Tenure};
use crate::store::{self, Acquire, Fault, Grant, PeerMessage, Store, StoreError};
use crate::thread::fail_stop::FailStop;

/// What the guards of a manager need of it. Outlives its threads: then nothing is held.
pub(super) struct Exchange {
    pub(super) table: Arc<OwnershipTable>,
    pub(super) store: Arc<dyn Store>,
    pub(super) reporter: Reporter,
    pub(super) turns: Turns,
    pub(super) fail_stop: Arc<FailStop>,
    pub(super) listening: Listening,
}

/// What the store said to one acquire.
enum Outcome {
    Granted(Tenure),
    Refused(Refusal),
}

impl Exchange {
    pub(super) fn new(
        table: &Arc<OwnershipTable>,
        store: &Arc<dyn Store>,
        reporter: Reporter,
        fail_stop: &Arc<FailStop>,
    ) -> Arc<Self> {
        let (table, store, fail_stop) =
            (Arc::clone(table), Arc::clone(store), Arc::clone(fail_stop));
        let (turns, listening) = (Turns::default(), Listening::default());
        let exchange = Arc::new(Self { table, store, reporter, turns, fail_stop, listening });
        let told = Arc::downgrade(&exchange);
        exchange.table.tell_losses(move |lost| {
            told.upgrade().iter().for_each(|it| it.turns.lost(lost));
        });
        let told = Arc::downgrade(&exchange);
        // A thread that waits is to hear of it.
        exchange.fail_stop.then(move |_| {
            told.upgrade().iter().for_each(|it| it.turns.ask_again_all());
        });
        exchange
    }

    /// An error where nothing can be granted any more: a thread has panicked, or this is a child that was forked.
    pub(super) fn usable(&self, op: &'static str, target: &EndpointId) -> Result<(), StoreError> {
        let reason = match self.fail_stop.failure() {
            Some(failure) => format!("{failure}; stop this manager and start another"),
            None if self.table.is_of_this_process() => return Ok(()),
            None => "this process was forked from the one that holds the leases; start a manager \
                     of its own"
                .into(),
        };
        let (target, fault) = (target.to_string(), Fault::Misconfigured);
        Err(StoreError { op, target, fault, reason })
    }

    /// Takes the lease as soon as it is free, or a share of it if this instance holds it. The last answer from `until` on.
    pub(super) fn acquire_until(
        self: &Arc<Self>,
        endpoint: &EndpointId,
        until: Moment,
    ) -> Result<Acquired, StoreError> {
        self.usable("acquire", endpoint)?;
        let mut place = self.turns.join(endpoint);
        loop {
            match place.next(&self.table, until) {
                Next::Hold(hold) => return Ok(Acquired::Held(Lease::new(self, hold))),
                Next::Refused(told) => return told.map(Acquired::from),
                Next::Ask => self.ask(endpoint, &mut place, until),
            }
        }
    }

    /// Asks the store, and tells all threads in line.
    fn ask(self: &Arc<Self>, endpoint: &EndpointId, place: &mut Place<'_>, until: Moment) {
        let acquired = self.usable("acquire", endpoint).and_then(|()| self.acquire(endpoint));
        let refused = match acquired {
            Ok(Outcome::Granted(tenure)) if place.granted(&self.table, &tenure) => return,
            Ok(Outcome::Granted(tenure)) => Ok(self.refuse_grant(tenure)),
            Ok(Outcome::Refused(refusal)) => Ok(refusal),
            Err(error) => Err(error),
        };
        let ask_at = self.ask_again_at(endpoint, &refused, until);
        place.refused(refused, ask_at);
    }

    /// Gives back a grant under which nothing may be done: nobody would have a guard of it.
    fn refuse_grant(&self, tenure: Tenure) -> Refusal {
        if !self.table.forget_tenure(&tenure) {
            return Refusal::NotNow(NotNow::Late);
        }
        let _ = self.release(tenure); // without an answer it ends with its TTL
        Refusal::NotNow(NotNow::Uncertain)
    }

    fn acquire(&self, endpoint: &EndpointId) -> Result<Outcome, StoreError> {
        // Once more when the epoch changed under the question (R5), or the answer came too late to count.
        for _ in 0..2 {
            let request = self.table.request();
            let wanted = std::slice::from_ref(endpoint);
            let reply = self.store.acquire(&request.context, wanted)?;
            let (gained, _) = self.table.granted(&request, wanted, &reply);
            gained.iter().for_each(|it| self.note_grant(it));
            let answer = reply.answer.and_then(|it| it.into_iter().next());
            if let Some(outcome) = self.outcome(endpoint, gained.into_iter().next(), answer)? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Refused(Refusal::NotNow(NotNow::Late)))
    }

    /// `None` if the question is to be asked once more.
    fn outcome(
        &self,
        endpoint: &EndpointId,
        gained: Option<Gained>,
        answer: Option<Acquire>,
    ) -> Result<Option<Outcome>, StoreError> {
        let refusal = match (answer, gained) {
            // Losing is an answer; what could not be decided is none.
            (Some(Acquire::Failed(why)), _) => return Err(undecided(endpoint, why)),
            (Some(Acquire::Granted { .. }), Some(gained)) => {
                return Ok(Some(Outcome::Granted(gained.tenure)));
            }
            (Some(Acquire::Granted { .. }) | None, _) => return Ok(None),
            (Some(Acquire::HeldBy(owner)), _) => Refusal::HeldBy(owner),
            (Some(Acquire::HoldOff), _) => {
                Refusal::HoldOff(self.table.hold_off().unwrap_or_default())
            }
            (Some(Acquire::NoHeartbeat), _) => Refusal::NotNow(NotNow::NoHeartbeat),
            (Some(Acquire::Late), _) => Refusal::NotNow(NotNow::Late),
        };
        Ok(Some(Outcome::Refused(refusal)))
    }

    fn note_grant(&self, gained: &Gained) {
        let reason = match gained.grant {
            Grant::Free => "asked",
            Grant::Adopted => "adopted",
            Grant::Takeover => "takeover",
        };
        let (endpoint, fence) = (&gained.tenure.endpoint, gained.tenure.fence);
        self.reporter.report(&Event::LeaseAcquired { endpoint, fence, reason });
    }

    /// One guard of this tenure goes; the last one gives it back. In a child that was forked nothing happens: the lease is
    /// its parent's, and so is the thread that may hold a lock.
    pub(super) fn part(&self, hold: &Arc<Hold>) -> Result<Released, StoreError> {
        if !self.table.is_of_this_process() {
            return Ok(Released::NotHeld);
        }
        match self.turns.part(hold, &self.table) {
            Parted::Shared => Ok(Released::StillShared),
            Parted::Over => Ok(Released::NotHeld),
            Parted::Last(_busy) => self.release(hold.tenure.clone()),
        }
    }

    /// Gives back whatever is held of this name.
    pub(super) fn release_all_of(&self, endpoint: &EndpointId) -> Result<Released, StoreError> {
        if !self.table.is_of_this_process() {
            self.usable("release", endpoint)?;
        }
        match self.turns.take(endpoint, &self.table) {
            Some((tenure, _busy)) => self.release(tenure),
            None => Ok(Released::NotHeld),
        }
    }

    /// Sends the release of a tenure that has left the table (R4).
    fn release(&self, tenure: Tenure) -> Result<Released, StoreError> {
        let (tenure, reason) = (&tenure, "asked");
        self.reporter.report(&Event::LeaseReleased { tenure, reason, heir: None });
        let freed = vec![tenure.endpoint.clone()];
        let message = PeerMessage { freed, ..PeerMessage::new(self.table.instance(), None) };
        let context = self.table.request().context;
        let released = self.store.release(&context, std::slice::from_ref(tenure), &[message])?;
        Ok(match released.first() {
            Some(store::Release::Released) => Released::GivenBack,
            Some(store::Release::NotOwner) | None => Released::NotHeld,
        })
    }
}

fn undecided(endpoint: &EndpointId, reason: String) -> StoreError {
    StoreError { op: "acquire", target: endpoint.to_string(), fault: Fault::Refused, reason }
}
