//! How does something stand that a client asks about? Answers, made under the lock of the session.

use std::time::Duration;

use crate::agent::candidacy::Candidacy;
use crate::agent::protocol::Answer;
use crate::agent::session::{Beside, HeldLease, Inner, Session};
use crate::clock::{BootClock, Clock};
use crate::manager::Lease;
use crate::model::{EndpointId, Role};

/// What an answer is made of, under the lock of the session.
pub(crate) struct Answering<'a> {
    session: &'a Session,
    inner: &'a mut Inner,
    beside: Beside<'a>,
}

impl<'a> Answering<'a> {
    pub(super) fn new(session: &'a Session, inner: &'a mut Inner, beside: Beside<'a>) -> Self {
        Self { session, inner, beside }
    }

    /// Keeps what was granted; the guard again if nothing may be done under it, or the client has gone meanwhile.
    pub(crate) fn keep(&mut self, name: &EndpointId, lease: Lease) -> Result<Answer, Lease> {
        if self.inner.is_taken_down || self.session.is_gone() || !lease.holds() {
            return Err(lease);
        }
        self.inner.leases.insert(name.clone(), HeldLease { lease, is_certain: true });
        Ok(self.holds(name))
    }

    /// How a lease of this client stands.
    pub(crate) fn holds(&mut self, name: &EndpointId) -> Answer {
        let name = name.clone();
        let Inner { promise, leases, .. } = &mut *self.inner;
        let Some(HeldLease { lease, .. }) = leases.get(&name) else { return Answer::NotHeld(name) };
        let (now, fence) = (BootClock.now(), lease.fence());
        let left = lease.remaining(); // after the clock was read: `until` is no later than the deadline
        if left.is_zero() {
            return Answer::Uncertain { name, fence };
        }
        Answer::Held { name, fence, lasts: promise.give(now, now + left) }
    }

    /// How a role of this client stands.
    pub(crate) fn leads(&mut self, role: &Role) -> Answer {
        let Inner { promise, roles, .. } = &mut *self.inner;
        let Some(candidacy) = roles.get_mut(role) else {
            return Answer::NotStanding(role.clone());
        };
        let leader = self.beside.roles.with_leader(role, |it| it.clone());
        candidacy.leads(role, leader, promise, BootClock.now())
    }

    /// Gives up the leadership of a role.
    pub(crate) fn give_way(&mut self, role: &Role) -> Answer {
        let candidacy = self.inner.roles.get_mut(role);
        if candidacy.is_some_and(Candidacy::give_way) {
            Answer::Yielded(role.clone())
        } else {
            Answer::NotLeading(role.clone())
        }
    }

    /// Sets the bound of the session.
    pub(crate) fn bound(&mut self, bound: Option<Duration>) -> Answer {
        self.inner.promise.bound = bound;
        Answer::Session(bound)
    }
}
