//! What does the agent do for one client? The thread `agent-client`: one line after another, each answered in its turn.
//!
//! A thread for each client, because a client may wait for a lease, and the wait of a `LeaseManager` blocks. The thread
//! `agent` reads and writes the sockets, so a wait delays nobody else, and its end is noticed at once.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::agent::Shared;
use crate::agent::candidacy::Candidacy;
use crate::agent::places::Turn;
use crate::agent::protocol::{Answer, QUEUED, Request, parse, reason};
use crate::agent::session::{Answering, NAMES_MAX, Remains, Session};
use crate::clock::{BootClock, Clock};
use crate::event::Event;
use crate::manager::Acquired;
use crate::model::{EndpointId, Role};

/// One client, as its thread sees it.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: Arc<Session>,
}

impl Client {
    /// Until no further line comes; then gives everything back.
    pub(crate) fn run(self, lines: &Receiver<Vec<u8>>) {
        for line in lines {
            if self.session.is_gone() {
                break;
            }
            self.carry_out(&line);
            drop(self.session.take_ended());
            self.shared.notice.now();
        }
        self.end_roles(self.session.take_followers());
        self.session.wait_out_promises(|| self.shared.is_hurried());
        self.give_back();
        self.session.over();
        self.shared.notice.now();
    }

    fn carry_out(&self, line: &[u8]) {
        let request = match parse(line) {
            Ok(request) => request,
            Err(mistake) => return self.say(Answer::Mistake(mistake)),
        };
        match request {
            Request::Hello => {
                let instance = self.shared.manager.instance_id().clone();
                self.say(Answer::Hello { instance, lease_ttl: self.shared.lease_ttl });
            }
            Request::Ping => self.say(Answer::Pong),
            Request::Help => self.say(Answer::Help),
            Request::Session(bound) => self.answer(|it| it.bound(bound)),
            Request::Acquire { name, wait } => self.acquire(&name, wait),
            Request::Release(name) => self.release(&name),
            Request::Holds(name) => self.answer(|it| it.holds(&name)),
            Request::Lead(role) => self.lead(&role),
            Request::Yield(role) => self.answer(|it| it.give_way(&role)),
            Request::Resign(role) => self.resign(&role),
            Request::Leads(role) => self.answer(|it| it.leads(&role)),
        }
    }

    fn say(&self, answer: Answer) {
        self.answer(|_| answer);
    }

    fn answer(&self, answer: impl FnOnce(&mut Answering<'_>) -> Answer) {
        self.session.answer(self.shared.beside(), answer);
    }

    fn acquire(&self, name: &EndpointId, wait: Duration) {
        if self.session.has_lease(name) {
            return self.answer(|it| it.holds(name));
        }
        if self.session.is_full() {
            return self.say(Answer::Limit { names_max: NAMES_MAX });
        }
        if self.shared.is_stopping() {
            return self.say(Answer::Stopping);
        }
        let (Shared { places, manager, .. }, session) = (&*self.shared, &*self.session);
        let ends_at = BootClock.now() + wait;
        let until = || session.until(ends_at);
        session.wait_for(Some(name));
        let turn = places.wait(name, session.id, until);
        let told = match &turn {
            Turn::Front => Some(manager.acquire_until(name, &until)),
            Turn::Held | Turn::Queued => None,
        };
        session.wait_for(None);
        let name = name.clone();
        let answer = match told {
            None if turn == Turn::Held => {
                Answer::HeldBy { name, owner: manager.instance_id().clone() }
            }
            None => Answer::NotNow { name, reason: QUEUED },
            Some(Ok(Acquired::Held(lease))) => return self.keep(&name, lease),
            Some(refused) => {
                places.leave(&name, session.id);
                refusal(name, refused)
            }
        };
        self.say(answer);
    }

    fn keep(&self, name: &EndpointId, lease: crate::manager::Lease) {
        let (places, session) = (&self.shared.places, &self.session);
        places.held(name);
        let mut refused = None;
        self.answer(|it| {
            it.keep(name, lease).unwrap_or_else(|lease| {
                refused = Some(lease);
                Answer::NotNow { name: name.clone(), reason: "late" }
            })
        });
        if let Some(lease) = refused {
            drop(lease);
            places.leave(name, session.id);
        }
    }

    fn release(&self, name: &EndpointId) {
        let Some(lease) = self.session.take(name) else {
            return self.say(Answer::NotHeld(name.clone()));
        };
        let released = lease.release();
        self.shared.places.leave(name, self.session.id);
        self.say(match released {
            Ok(_) => Answer::Released(name.clone()),
            Err(error) => Answer::Store(error.to_string()),
        });
    }

    fn lead(&self, role: &Role) {
        let (shared, session) = (&self.shared, &self.session);
        if shared.is_stopping() {
            return self.say(Answer::Stopping);
        }
        if session.is_full() && !session.has_role(role) {
            return self.say(Answer::Limit { names_max: NAMES_MAX });
        }
        let number = shared.roles.number();
        let is_new = session.add_role(role, number);
        self.say(Answer::Standing(role.clone())); // first: what follows is pushed
        if is_new {
            shared.roles.join(role, number, session);
        }
    }

    fn resign(&self, role: &Role) {
        let Some(candidacy) = self.session.take_role(role) else {
            return self.say(Answer::NotStanding(role.clone()));
        };
        drop(candidacy.end()); // waits until the role is given back
        self.shared.roles.leave(role, &self.session);
        self.say(Answer::Resigned(role.clone()));
    }

    /// All are given up before the end of one is waited for. The next client in line stands after that.
    fn end_roles(&self, roles: Vec<(Role, Candidacy)>) {
        let ending: Vec<_> = roles.into_iter().map(|(role, it)| (role, it.end())).collect();
        for (role, election) in ending {
            drop(election);
            self.shared.roles.leave(&role, &self.session);
        }
    }

    /// Releases everything. The next clients in line come after that.
    fn give_back(&self) {
        let (shared, session) = (&self.shared, &self.session);
        let Remains { leases, names, roles } = session.take_down();
        let held = leases.len() + roles.len();
        for (name, told) in names.iter().zip(shared.manager.release_many(leases)) {
            shared.places.leave(name, session.id);
            if let Err(error) = told {
                let endpoint = name;
                Event::LeaseFailed { endpoint, error: &error }.log(shared.manager.instance_id());
            }
        }
        self.end_roles(roles);
        drop(session.take_ended());
        let reason = session.bye().map_or("closed", |it| it.as_str());
        Event::AgentClientGone { client: session.id, reason, held }
            .log(shared.manager.instance_id());
    }
}

fn refusal(name: EndpointId, told: Result<Acquired, crate::LeaseError>) -> Answer {
    match told {
        Ok(Acquired::HeldBy(owner)) => Answer::HeldBy { name, owner },
        Ok(Acquired::HoldOff(left)) => Answer::HoldOff { name, left },
        Ok(Acquired::NotNow(why)) => Answer::NotNow { name, reason: reason(why) },
        Ok(Acquired::Held(_)) => Answer::NotNow { name, reason: "late" },
        Err(error) => Answer::Store(error.to_string()),
    }
}
