//! Whose turn is it to ask the store about a name? Threads that want the same lease share one question and one tenure.
//!
//! Every acquire is a new grant with a new fence (R7). So of two acquires of one process that are on their way at once, one
//! would end the tenure of the other, and a thread that was told "yes" would be left with a fence that is too old. Therefore
//! at most one request about a name is on its way, be it an acquire or a release. The threads that want the name stand in
//! line meanwhile, and a grant is shared out to all of them under the lock that ends the request: no thread is overtaken.
//!
//! The guards of a tenure are counted under the same lock. The last one takes the tenure out of the table and begins the
//! release in one step, so nobody gets a share of a tenure that is being given back. A thread that comes after that waits for
//! the release, and then asks for a new grant.
//!
//! A thread may wait for a lease that another instance holds. All threads that wait for one name share the time at which one
//! of them asks again. What is heard of a release brings that time forward, also while a question is on its way.
//!
//! Lock order: this one, then the table's. No lock is held across I/O.

use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHashMap;
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::clock::scheduler::{Changed, Wait};
use crate::lease::table::{Lost, OwnershipTable};
use crate::manager::hold::{End, Hold};
use crate::manager::outcome::{NotNow, Refusal};
use crate::model::{EndpointId, Tenure};
use crate::store::{Fault, StoreError};

/// How often a thread that waits looks at a lease that is held in doubt.
const LOOK: Duration = Duration::from_millis(20);

/// What a question that brought no grant was told.
pub(super) type Refused = Result<Refusal, StoreError>;

/// The names that a thread wants or holds.
#[derive(Default)]
pub(super) struct Turns {
    names: Mutex<FnvHashMap<EndpointId, Name>>,
}

/// Exists while a thread is in line, a request is on its way, or a tenure has guards.
#[derive(Default)]
struct Name {
    /// The threads that want it, in the order in which they came.
    line: Vec<InLine>,
    /// The number of the last question that was begun.
    begun: u64,
    /// A request about it is on its way.
    is_busy: bool,
    /// The number of the last question that was refused, and what it was told.
    refused: Option<(u64, Refused)>,
    held: Option<Held>,
    /// When the threads that wait are to ask again.
    ask_at: Moment,
    /// How often the name was said to be free.
    news: u64,
    /// Something of the above has changed.
    changed: Arc<Changed>,
}

struct InLine {
    place: u64,
    /// Its share of a grant that another thread was given, counted as a guard.
    share: Option<Arc<Hold>>,
}

struct Held {
    hold: Arc<Hold>,
    guards: usize,
}

/// What a thread in line is to do.
pub(super) enum Next {
    /// Hold it: this is counted as a guard.
    Hold(Arc<Hold>),
    /// Take this for an answer.
    Refused(Refused),
    /// Ask the store, and tell [`Place::granted`] or [`Place::refused`].
    Ask,
}

/// What giving up a share of a tenure has led to.
pub(super) enum Parted<'a> {
    /// Other guards hold it.
    Shared,
    /// It had ended before.
    Over,
    /// It was the last one: the release is to be sent now, and ends with the drop of this.
    Last(Busy<'a>),
}

impl Name {
    /// A share of what is held, if something may be done under it.
    fn share(&mut self, place: u64, table: &OwnershipTable) -> Option<Arc<Hold>> {
        let mine = self.line.iter_mut().find(|it| it.place == place);
        if let Some(given) = mine.and_then(|it| it.share.take()) {
            return Some(given);
        }
        let held = self.held.as_mut().filter(|it| table.is_usable(&it.hold.tenure))?;
        held.guards += 1;
        Some(Arc::clone(&held.hold))
    }

    fn ask_again(&mut self) {
        self.ask_at = Moment::MIN;
        self.news += 1;
        self.changed.notify_all();
    }

    /// The last answer, if its question began after this one.
    fn told_since(&self, number: u64) -> Option<Refused> {
        self.refused.as_ref().filter(|it| it.0 > number).map(|it| it.1.clone())
    }

    fn is_idle(&self) -> bool {
        self.line.is_empty() && !self.is_busy && self.held.is_none()
    }
}

impl Turns {
    /// Takes the last place in line.
    pub(super) fn join(&self, endpoint: &EndpointId) -> Place<'_> {
        let mut names = self.names.lock();
        let name = names.entry(endpoint.clone()).or_default();
        let place = name.line.last().map_or(0, |it| it.place + 1);
        name.line.push(InLine { place, share: None });
        let (joined_at, endpoint) = (name.begun, endpoint.clone());
        let (is_in_line, asks, news) = (true, false, 0);
        Place { turns: self, endpoint, place, joined_at, is_in_line, asks, news }
    }

    /// A guard of this tenure goes. The last one takes the tenure out of `table` under the lock that shares are given under.
    pub(super) fn part(&self, hold: &Arc<Hold>, table: &OwnershipTable) -> Parted<'_> {
        let endpoint = &hold.tenure.endpoint;
        let mut names = self.names.lock();
        let Some(name) = names.get_mut(endpoint) else { return Parted::Over };
        // A later tenure of the same name is none of this guard's business.
        let Some(held) = name.held.as_mut().filter(|it| Arc::ptr_eq(&it.hold, hold)) else {
            return Parted::Over;
        };
        held.guards -= 1;
        if held.guards > 0 {
            return Parted::Shared;
        }
        name.held = None;
        if !table.forget_tenure(&hold.tenure) {
            tidy(&mut names, endpoint);
            return Parted::Over;
        }
        hold.end(End::Released);
        name.is_busy = true;
        Parted::Last(Busy { turns: self, endpoint: endpoint.clone() })
    }

    /// Takes whatever is held of this name out of `table`, for its release. `None` if nothing is held. Waits for the request
    /// that is on its way.
    pub(super) fn take(
        &self,
        endpoint: &EndpointId,
        table: &OwnershipTable,
    ) -> Option<(Tenure, Busy<'_>)> {
        let mut names = self.names.lock();
        while let Some(name) = names.get(endpoint).filter(|it| it.is_busy) {
            let changed = Arc::clone(&name.changed);
            changed.wait(&mut names);
        }
        let tenure = table.forget_for_release(endpoint)?;
        let name = names.entry(endpoint.clone()).or_default();
        if let Some(held) = name.held.take() {
            held.hold.end(End::Released);
        }
        name.is_busy = true;
        Some((tenure, Busy { turns: self, endpoint: endpoint.clone() }))
    }

    /// A tenure has ended without a release. Only wakes threads, because a thread that keeps leases calls this.
    pub(super) fn lost(&self, lost: &Lost) {
        let endpoint = &lost.tenure.endpoint;
        let mut names = self.names.lock();
        let Some(name) = names.get_mut(endpoint) else { return };
        if let Some(held) = name.held.take_if(|it| it.hold.tenure == lost.tenure) {
            held.hold.end(End::Lost(lost.loss.clone().into()));
        }
        name.ask_again();
        tidy(&mut names, endpoint);
    }

    /// Other instances have freed these names, as far as is heard.
    pub(super) fn ask_again<'a>(&self, freed: impl Iterator<Item = &'a EndpointId>) {
        let mut names = self.names.lock();
        for endpoint in freed {
            if let Some(name) = names.get_mut(endpoint) {
                name.ask_again();
            }
        }
    }

    /// Any name may be free, or nothing can be granted any more.
    pub(super) fn ask_again_all(&self) {
        self.names.lock().values_mut().for_each(Name::ask_again);
    }

    /// The manager has given everything back.
    pub(super) fn end_all(&self) {
        let mut names = self.names.lock();
        for name in names.values_mut() {
            if let Some(held) = name.held.take() {
                held.hold.end(End::Released);
            }
            name.changed.notify_all();
        }
        names.retain(|_, it| !it.is_idle());
    }
}

/// Whether asking again cannot help.
fn is_final(told: &Refused) -> bool {
    told.as_ref().is_err_and(|it| it.fault == Fault::Misconfigured)
}

fn tidy(names: &mut FnvHashMap<EndpointId, Name>, endpoint: &EndpointId) {
    if names.get(endpoint).is_some_and(Name::is_idle) {
        names.remove(endpoint);
    }
}

/// A request about a name is on its way. Its end is noted in any case, also when the request panics.
pub(super) struct Busy<'a> {
    turns: &'a Turns,
    endpoint: EndpointId,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut names = self.turns.names.lock();
        let Some(name) = names.get_mut(&self.endpoint) else { return };
        name.is_busy = false;
        name.ask_again();
        tidy(&mut names, &self.endpoint);
    }
}

/// The place of a thread in line. Its end is noted in any case, also when what the thread calls panics.
pub(super) struct Place<'a> {
    turns: &'a Turns,
    endpoint: EndpointId,
    place: u64,
    /// The number of the last question that had begun when it came.
    joined_at: u64,
    is_in_line: bool,
    asks: bool,
    /// [`Name::news`] when it last began to ask.
    news: u64,
}

impl Place<'_> {
    /// A share of what is held, as soon as something is. Until then it asks whenever it is time to, unless another thread
    /// does. From `until` on, the answer of a question that began after this thread had come: an earlier one may be about
    /// what was before. So a thread that does not wait is told after at most two questions, unless what was granted is
    /// released at once.
    ///
    /// `until` is asked again after every change, so that a wait can be called off.
    pub(super) fn next(
        &mut self,
        table: &OwnershipTable,
        wait: &Wait<'_>,
        until: &dyn Fn() -> Moment,
    ) -> Next {
        let mut names = self.turns.names.lock();
        loop {
            let name = names.entry(self.endpoint.clone()).or_default();
            let now = table.now();
            match self.look(name, table, now, until()) {
                Ok(next) => return next,
                Err(wake_at) => {
                    let changed = Arc::clone(&name.changed);
                    wait.on(&changed, &mut names, wake_at);
                }
            }
        }
    }

    /// [`Self::next`] for a thread that asks about many names at once: `None`, where it would have to wait.
    pub(super) fn next_at_once(&mut self, table: &OwnershipTable) -> Option<Next> {
        let mut names = self.turns.names.lock();
        let name = names.entry(self.endpoint.clone()).or_default();
        let next = self.look(name, table, table.now(), Moment::MIN).ok();
        if next.is_none() {
            self.leave(name);
        }
        next
    }

    /// What to do now, or until when to wait for a change.
    fn look(
        &mut self,
        name: &mut Name,
        table: &OwnershipTable,
        now: Moment,
        until: Moment,
    ) -> Result<Next, Moment> {
        if let Some(hold) = name.share(self.place, table) {
            self.leave(name);
            return Ok(Next::Hold(hold));
        }
        let told = name.told_since(self.joined_at);
        let is_told = told.is_some();
        if let Some(told) = told.filter(|it| now >= until || is_final(it)) {
            self.leave(name);
            return Ok(Next::Refused(told));
        }
        if name.is_busy {
            return Err(if is_told { until } else { Moment::MAX });
        }
        // The thread that was granted it has panicked before it shared it out.
        if let Some(tenure) = table.usable(&self.endpoint) {
            let hold = Arc::new(Hold::new(tenure));
            name.held = Some(Held { hold: Arc::clone(&hold), guards: 1 });
            self.leave(name);
            return Ok(Next::Hold(hold));
        }
        // Held, and nothing may be done under it: the threads that renew and end leases decide what becomes of it.
        if table.holds(&self.endpoint) {
            if now < until {
                return Err(until.min(now + LOOK));
            }
            self.leave(name);
            return Ok(Next::Refused(Ok(Refusal::NotNow(NotNow::Uncertain))));
        }
        if is_told && now < name.ask_at {
            return Err(until.min(name.ask_at));
        }
        self.begin(name);
        Ok(Next::Ask)
    }

    fn begin(&mut self, name: &mut Name) {
        name.begun += 1;
        name.is_busy = true;
        self.asks = true;
        self.news = name.news;
    }

    /// Out of line, under the lock under which it was decided: so no share is given to a thread that has gone.
    fn leave(&mut self, name: &mut Name) {
        self.is_in_line = false;
        name.line.retain(|it| it.place != self.place);
    }

    /// The store has granted this tenure: every thread in line gets a share. False if nothing may be done under it (any
    /// more): then it is not shared, and the caller is still the one that asks.
    pub(super) fn granted(&mut self, table: &OwnershipTable, tenure: &Tenure) -> bool {
        let mut names = self.turns.names.lock();
        let Some(name) = names.get_mut(&self.endpoint) else { return false };
        if !table.is_usable(tenure) {
            return false;
        }
        let hold = Arc::new(Hold::new(tenure.clone()));
        name.line.iter_mut().for_each(|it| it.share = Some(Arc::clone(&hold)));
        name.held = Some(Held { hold, guards: name.line.len() });
        name.refused = None;
        self.answered(name);
        true
    }

    /// The question brought no grant. The threads that wait ask again at `ask_at`, if the caller knows when; at once, if the
    /// name was said to be free since the question began.
    pub(super) fn refused(&mut self, told: Refused, ask_at: Option<Moment>) {
        let mut names = self.turns.names.lock();
        let Some(name) = names.get_mut(&self.endpoint) else { return };
        name.refused = Some((name.begun, told));
        if let Some(ask_at) = ask_at {
            name.ask_at = if name.news == self.news { ask_at } else { Moment::MIN };
        }
        self.answered(name);
    }

    fn answered(&mut self, name: &mut Name) {
        self.asks = false;
        name.is_busy = false;
        name.changed.notify_all();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut names = self.turns.names.lock();
        let Some(name) = names.get_mut(&self.endpoint) else { return };
        if self.is_in_line {
            name.line.retain(|it| it.place != self.place);
        }
        if self.asks {
            self.answered(name);
        }
        tidy(&mut names, &self.endpoint);
    }
}

#[cfg(test)]
mod tests;
