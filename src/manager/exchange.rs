//! How does a manager take a lease, and give it back? One request to the store at a time for each name.

use std::sync::Arc;

use crate::clock::Moment;
use crate::clock::scheduler::Wait;
use crate::event::Event;
use crate::lease::report::Reporter;
use crate::lease::table::{Gained, OwnershipTable};
use crate::manager::hold::Hold;
use crate::manager::lease::Lease;
use crate::manager::listeners::Listeners;
use crate::manager::listening::Listening;
use crate::manager::outcome::{Acquired, NotNow, Refusal, Released};
use crate::manager::turns::{Next, Parted, Place, Refused, Turns};
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
    pub(super) listeners: Arc<Listeners>,
}

/// The answer came too late to count.
const LATE: Refusal = Refusal::NotNow(NotNow::Late);

/// What the store said to one acquire.
pub(super) enum Outcome {
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
        let listeners = Listeners::new(&*table.clock().0);
        let exchange =
            Arc::new(Self { table, store, reporter, turns, fail_stop, listening, listeners });
        let told = Arc::downgrade(&exchange);
        exchange.table.tell_losses(move |lost| {
            let Some(exchange) = told.upgrade() else { return };
            exchange.turns.lost(lost); // first: no guard holds when a listener hears of it
            exchange.listeners.post(lost);
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

    /// Takes the lease as soon as it is free, or a share of it if this instance holds it. The last answer from `until` on, which
    /// is asked again after every change.
    pub(super) fn acquire_until(
        self: &Arc<Self>,
        endpoint: &EndpointId,
        until: &dyn Fn() -> Moment,
    ) -> Result<Acquired, StoreError> {
        self.usable("acquire", endpoint)?;
        let wait = Wait::begin(&*self.table.clock().0);
        let mut place = self.turns.join(endpoint);
        loop {
            match place.next(&self.table, &wait, until) {
                Next::Hold(hold) => return Ok(Acquired::Held(Lease::new(self, hold))),
                Next::Refused(told) => return told.map(Acquired::from),
                Next::Ask => self.ask(endpoint, &mut place, until()),
            }
        }
    }

    /// Asks the store, and tells all threads in line.
    fn ask(self: &Arc<Self>, endpoint: &EndpointId, place: &mut Place<'_>, until: Moment) {
        let outcome = self.usable("acquire", endpoint).and_then(|()| {
            let mut outcomes = self.acquire(std::slice::from_ref(endpoint));
            outcomes.pop().unwrap_or(Ok(Outcome::Refused(LATE)))
        });
        if let Some(refused) = self.share_out(outcome, place) {
            let ask_at = self.ask_again_at(endpoint, &refused, until);
            place.refused(refused, ask_at);
        }
    }

    /// Gives every thread in line a share of a grant; otherwise what to tell them.
    pub(super) fn share_out(
        &self,
        outcome: Result<Outcome, StoreError>,
        place: &mut Place<'_>,
    ) -> Option<Refused> {
        match outcome {
            Ok(Outcome::Granted(tenure)) if place.granted(&self.table, &tenure) => None,
            Ok(Outcome::Granted(tenure)) => Some(Ok(self.refuse_grant(tenure))),
            Ok(Outcome::Refused(refusal)) => Some(Ok(refusal)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Gives back a grant under which nothing may be done: nobody would have a guard of it.
    fn refuse_grant(&self, tenure: Tenure) -> Refusal {
        if !self.table.forget_tenure(&tenure) {
            return LATE;
        }
        let _ = self.release(&[tenure]); // without an answer it ends with its TTL
        Refusal::NotNow(NotNow::Uncertain)
    }

    /// Asks the store for at most one batch of different names, and answers in their order.
    pub(super) fn acquire(&self, wanted: &[EndpointId]) -> Vec<Result<Outcome, StoreError>> {
        let mut outcomes: Vec<_> = wanted.iter().map(|_| None).collect();
        // Once more when the epoch changed under the question (R5), or an answer came too late to count.
        for _ in 0..2 {
            let open: Vec<usize> = (0..wanted.len()).filter(|&it| outcomes[it].is_none()).collect();
            let names: Vec<EndpointId> = open.iter().map(|&it| wanted[it].clone()).collect();
            if names.is_empty() {
                break;
            }
            let request = self.table.request();
            let reply = match self.store.acquire(&request.context, &names) {
                Ok(reply) => reply,
                Err(error) => {
                    open.iter().for_each(|&it| outcomes[it] = Some(Err(error.clone())));
                    break;
                }
            };
            let (gained, _) = self.table.granted(&request, &names, &reply);
            gained.iter().for_each(|it| self.note_grant(it));
            let mut gained = gained.into_iter().peekable();
            for (&at, answer) in open.iter().zip(reply.answer.into_iter().flatten()) {
                let gained = gained.next_if(|it| it.tenure.endpoint == wanted[at]);
                outcomes[at] = self.outcome(&wanted[at], gained, answer).transpose();
            }
        }
        outcomes.into_iter().map(|it| it.unwrap_or(Ok(Outcome::Refused(LATE)))).collect()
    }

    /// `None` if the question is to be asked once more.
    fn outcome(
        &self,
        endpoint: &EndpointId,
        gained: Option<Gained>,
        answer: Acquire,
    ) -> Result<Option<Outcome>, StoreError> {
        let refusal = match answer {
            // Losing is an answer; what could not be decided is none.
            Acquire::Failed(why) => return Err(undecided(endpoint, why)),
            Acquire::Granted { .. } => {
                return Ok(gained.map(|it| Outcome::Granted(it.tenure)));
            }
            Acquire::HeldBy(owner) => Refusal::HeldBy(owner),
            Acquire::HoldOff => Refusal::HoldOff(self.table.hold_off().unwrap_or_default()),
            Acquire::NoHeartbeat => Refusal::NotNow(NotNow::NoHeartbeat),
            Acquire::Late => LATE,
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
            Parted::Last(_busy) => self.release_one(hold.tenure.clone()),
        }
    }

    /// Gives back whatever is held of this name.
    pub(super) fn release_all_of(&self, endpoint: &EndpointId) -> Result<Released, StoreError> {
        if !self.table.is_of_this_process() {
            self.usable("release", endpoint)?;
        }
        match self.turns.take(endpoint, &self.table) {
            Some((tenure, _busy)) => self.release_one(tenure),
            None => Ok(Released::NotHeld),
        }
    }

    fn release_one(&self, tenure: Tenure) -> Result<Released, StoreError> {
        Ok(self.release(&[tenure])?.pop().unwrap_or(Released::NotHeld))
    }

    /// Sends the release of tenures that have left the table (R4), at most one batch.
    pub(super) fn release(&self, tenures: &[Tenure]) -> Result<Vec<Released>, StoreError> {
        let _call = Wait::begin(&*self.table.clock().0);
        for tenure in tenures {
            let (reason, heir) = ("asked", None);
            self.reporter.report(&Event::LeaseReleased { tenure, reason, heir });
        }
        let freed = tenures.iter().map(|it| it.endpoint.clone()).collect();
        let message = PeerMessage { freed, ..PeerMessage::new(self.table.instance(), None) };
        let context = self.table.request().context;
        let told = self.store.release(&context, tenures, &[message])?;
        let released = |it| match it {
            store::Release::Released => Released::GivenBack,
            store::Release::NotOwner => Released::NotHeld,
        };
        Ok(told.into_iter().map(released).collect())
    }
}

fn undecided(endpoint: &EndpointId, reason: String) -> StoreError {
    StoreError { op: "acquire", target: endpoint.to_string(), fault: Fault::Refused, reason }
}
