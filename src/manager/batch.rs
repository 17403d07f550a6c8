//! How are thousands of leases taken and given back in one call? In batches, a few of them on their way at the same time.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::clock::scheduler::Wait;
use crate::manager::LeaseManager;
use crate::manager::exchange::Exchange;
use crate::manager::hold::Hold;
use crate::manager::lease::Lease;
use crate::manager::outcome::{Acquired, LeaseError, Released, named};
use crate::manager::turns::{Busy, Next, Parted};
use crate::model::{EndpointId, Tenure};
use crate::store::{BATCH_MAX, Fault, StoreError};

/// Batches on their way at the same time. The store keeps as many connections.
const LANES: usize = 4;

impl LeaseManager {
    /// [`Self::try_acquire`] for any number of names: an answer for each, in their order. One that fails spoils no other.
    ///
    /// Asks in batches, so 10,000 names take a fraction of a second where one round trip takes 10 ms. Give many guards
    /// back with [`Self::release_many`]: dropped, each takes a round trip.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// let mut leases = Vec::new();
    /// for told in manager.try_acquire_many(["report-1", "report-2"]) {
    ///     leases.extend(told?.held());
    /// }
    /// manager.release_many(leases);
    /// # Ok(()) }
    /// ```
    pub fn try_acquire_many<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Vec<Result<Acquired, LeaseError>> {
        self.exchange.try_acquire_many(names.into_iter().map(named).collect())
    }

    /// [`Lease::release`] for any number of guards, in batches: what became of each, in their order. When a batch gets no
    /// answer, those after it are not sent, and end with their TTL.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// let leases: Vec<_> = ["a", "b"].into_iter().filter_map(|it| manager.try_acquire(it).ok()?.held()).collect();
    /// for outcome in manager.release_many(leases) {
    ///     println!("{:?}", outcome?);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn release_many(
        &self,
        leases: impl IntoIterator<Item = Lease>,
    ) -> Vec<Result<Released, LeaseError>> {
        let holds: Vec<_> = leases.into_iter().map(|it| it.into_hold(&self.exchange)).collect();
        let mine: Vec<_> = holds.iter().filter_map(|it| it.as_ref().ok()).cloned().collect();
        let mut told = self.exchange.part_many(&mine).into_iter();
        let of = |hold: Result<_, Lease>| match hold {
            Ok(_) => Ok(told.next().unwrap_or(Ok(Released::NotHeld))?),
            Err(foreign) => foreign.release(), // of another manager
        };
        holds.into_iter().map(of).collect()
    }
}

/// The error of a batch that got no answer. The batches after it are not sent: each would wait for a timeout of its own.
#[derive(Default)]
struct NoAnswer(Mutex<Option<StoreError>>);

impl NoAnswer {
    fn known(&self) -> Option<StoreError> {
        self.0.lock().clone()
    }

    fn note(&self, error: &StoreError) {
        if error.fault != Fault::Refused {
            self.0.lock().get_or_insert_with(|| error.clone());
        }
    }
}

impl Exchange {
    /// One answer for each name, in their order.
    pub(super) fn try_acquire_many(
        self: &Arc<Self>,
        names: Vec<Result<EndpointId, LeaseError>>,
    ) -> Vec<Result<Acquired, LeaseError>> {
        let _call = Wait::begin(&*self.table.clock().0);
        let wanted: Vec<EndpointId> =
            names.iter().filter_map(|it| it.as_ref().ok()).cloned().collect();
        let no_answer = NoAnswer::default();
        let told = in_lanes(wanted, |chunk| self.acquire_batch(chunk, &no_answer));
        let mut told = told.into_iter();
        let answer = |name: Result<EndpointId, LeaseError>| {
            let name = name?;
            Ok(match told.next().flatten() {
                Some(told) => told?,
                // Another thread was asking about it, or it is named twice.
                None => self.acquire_until(&name, &|| Moment::MIN)?,
            })
        };
        names.into_iter().map(answer).collect()
    }

    /// `None` for a name that another thread asks about.
    fn acquire_batch(
        self: &Arc<Self>,
        wanted: Vec<EndpointId>,
        no_answer: &NoAnswer,
    ) -> Vec<Option<Result<Acquired, StoreError>>> {
        let mut told: Vec<_> = wanted.iter().map(|_| None).collect();
        let (mut names, mut asking) = (Vec::new(), Vec::new());
        for (at, name) in wanted.into_iter().enumerate() {
            if let Err(error) = self.usable("acquire", &name) {
                told[at] = Some(Err(error));
                continue;
            }
            let mut place = self.turns.join(&name);
            match place.next_at_once(&self.table) {
                Some(Next::Ask) => {
                    names.push(name);
                    asking.push((at, place));
                }
                next => told[at] = next.and_then(|it| self.answer(it)),
            }
        }
        let outcomes = match no_answer.known() {
            Some(error) => names.iter().map(|_| Err(error.clone())).collect(),
            None => self.acquire(&names),
        };
        for ((at, mut place), outcome) in asking.into_iter().zip(outcomes) {
            outcome.as_ref().err().into_iter().for_each(|it| no_answer.note(it));
            if let Some(refused) = self.share_out(outcome, &mut place) {
                place.refused(refused, None);
            }
            told[at] = place.next_at_once(&self.table).and_then(|it| self.answer(it));
        }
        told
    }

    fn answer(self: &Arc<Self>, next: Next) -> Option<Result<Acquired, StoreError>> {
        match next {
            Next::Hold(hold) => Some(Ok(Acquired::Held(Lease::new(self, hold)))),
            Next::Refused(told) => Some(told.map(Acquired::from)),
            Next::Ask => None,
        }
    }

    /// What became of each guard, in their order.
    pub(super) fn part_many(&self, holds: &[Arc<Hold>]) -> Vec<Result<Released, StoreError>> {
        if !self.table.is_of_this_process() {
            return holds.iter().map(|_| Ok(Released::NotHeld)).collect();
        }
        let mut told = Vec::with_capacity(holds.len());
        let mut last: Vec<(usize, Tenure, Busy<'_>)> = Vec::new();
        for (at, hold) in holds.iter().enumerate() {
            told.push(Ok(match self.turns.part(hold, &self.table) {
                Parted::Shared => Released::StillShared,
                Parted::Over => Released::NotHeld,
                Parted::Last(busy) => {
                    last.push((at, hold.tenure.clone(), busy));
                    Released::NotHeld
                }
            }));
        }
        let no_answer = NoAnswer::default();
        let released = in_lanes(last, |chunk| self.release_batch(chunk, &no_answer));
        released.into_iter().for_each(|(at, it)| told[at] = it);
        told
    }

    fn release_batch(
        &self,
        chunk: Vec<(usize, Tenure, Busy<'_>)>,
        no_answer: &NoAnswer,
    ) -> Vec<(usize, Result<Released, StoreError>)> {
        let tenures: Vec<Tenure> = chunk.iter().map(|it| it.1.clone()).collect();
        let told = match no_answer.known() {
            Some(error) => Err(error),
            None => self.release(&tenures).inspect_err(|it| no_answer.note(it)),
        };
        let of = |n: usize| match &told {
            Ok(released) => Ok(released.get(n).copied().unwrap_or(Released::NotHeld)),
            Err(error) => Err(error.clone()),
        };
        chunk.iter().enumerate().map(|(n, it)| (it.0, of(n))).collect()
    }
}

/// `work` on the items, one batch at a time on each of a few threads, this one among them. Its results in the order of the
/// items.
fn in_lanes<I: Send, T: Send>(items: Vec<I>, work: impl Fn(Vec<I>) -> Vec<T> + Sync) -> Vec<T> {
    let mut items = items.into_iter();
    let mut chunks = Vec::new();
    loop {
        let chunk: Vec<I> = items.by_ref().take(BATCH_MAX).collect();
        if chunk.is_empty() {
            break;
        }
        chunks.push(chunk);
    }
    let lanes = LANES.min(chunks.len());
    let (todo, done) = (Mutex::new(chunks.into_iter().enumerate()), Mutex::new(Vec::new()));
    let lane = || {
        loop {
            let Some((number, chunk)) = todo.lock().next() else { return };
            let results = work(chunk);
            done.lock().push((number, results));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..lanes {
            // Without another thread the work takes longer.
            let _ = std::thread::Builder::new().name("batch".into()).spawn_scoped(scope, lane);
        }
        lane();
    });
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|it| it.0);
    done.into_iter().flat_map(|it| it.1).collect()
}
