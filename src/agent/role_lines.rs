//! Which client of this agent stands for a role? The first in line: two clients are two candidates, and an instance has one.
//!
//! The thread `agent-roles` begins each election, because that asks Redis. When the first in line has gone, and its role is
//! given back, the next one stands, under a term of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use parking_lot::Mutex;

use crate::agent::session::Session;
use crate::config::Config;
use crate::election::{Elections, LeaderElection};
use crate::event::Event;
use crate::lease::keeper::StartError;
use crate::model::{InstanceId, Role};
use crate::thread::Stop;

/// How soon an election that could not begin is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// The roles that clients of this agent want.
pub(crate) struct RoleLines {
    roles: Mutex<BTreeMap<Role, Line>>,
    wake: Sender<()>,
    woken: Receiver<()>,
}

#[derive(Default)]
struct Line {
    clients: VecDeque<Arc<Session>>,
    /// The client at the front stands.
    is_standing: bool,
    leader: Option<InstanceId>,
}

impl RoleLines {
    pub(crate) fn new() -> Self {
        let (wake, woken) = bounded(1);
        Self { roles: Mutex::default(), wake, woken }
    }

    /// Takes the last place in line.
    pub(crate) fn join(&self, role: &Role, session: &Arc<Session>) {
        let mut roles = self.roles.lock();
        roles.entry(role.clone()).or_default().clients.push_back(Arc::clone(session));
        drop(roles);
        self.wake();
    }

    /// The client wants the role no more, and has given it back.
    pub(crate) fn leave(&self, role: &Role, session: &Session) {
        let mut roles = self.roles.lock();
        let Some(line) = roles.get_mut(role) else { return };
        if line.clients.front().is_some_and(|it| it.id == session.id) {
            line.is_standing = false;
        }
        line.clients.retain(|it| it.id != session.id);
        if line.clients.is_empty() {
            roles.remove(role);
        }
        drop(roles);
        self.wake();
    }

    /// The leader of a role, as far as the agent knows, to read and to change.
    pub(crate) fn with_leader<T>(
        &self,
        role: &Role,
        with: impl FnOnce(&mut Option<InstanceId>) -> T,
    ) -> T {
        match self.roles.lock().get_mut(role) {
            Some(line) => with(&mut line.leader),
            None => with(&mut None),
        }
    }

    fn wake(&self) {
        let _ = self.wake.try_send(()); // one that waits is enough
    }

    fn to_begin(&self) -> Vec<(Role, Arc<Session>)> {
        let roles = self.roles.lock();
        let waiting = roles.iter().filter(|it| !it.1.is_standing);
        let first = |(role, line): (&Role, &Line)| {
            line.clients.front().map(|it| (role.clone(), Arc::clone(it)))
        };
        waiting.filter_map(first).collect()
    }

    fn begun(&self, role: &Role, session: &Session) {
        if let Some(line) = self.roles.lock().get_mut(role)
            && line.clients.front().is_some_and(|it| it.id == session.id)
        {
            line.is_standing = true;
        }
    }
}

/// Begins elections.
pub(crate) struct Candidates {
    pub(crate) lines: Arc<RoleLines>,
    pub(crate) elections: Elections,
    pub(crate) config: Config,
    /// Wakes the thread `agent`, which tells clients what has changed.
    pub(crate) notice: Arc<dyn Fn() + Send + Sync>,
    /// Roles whose last attempt failed, each logged once.
    pub(crate) failed: BTreeSet<Role>,
}

impl Candidates {
    /// The body of the thread `agent-roles`.
    pub(crate) fn run(mut self, when: &Stop) {
        while !when.is_over() {
            let is_done = self.step();
            let retry =
                if is_done { crossbeam_channel::never() } else { crossbeam_channel::after(RETRY) };
            select! {
                recv(when.receiver()) -> _ => return,
                recv(self.lines.woken) -> _ => (),
                recv(retry) -> _ => (),
            }
        }
    }

    /// Begins every election that waits, all in a few round trips; false if one could not begin.
    fn step(&mut self) -> bool {
        let waiting = self.lines.to_begin();
        if waiting.is_empty() {
            return true;
        }
        let settings = waiting.iter().map(|it| self.config.election_settings(it.0.clone()));
        let stood = self.elections.stand_many(settings.collect::<Vec<_>>(), None);
        let mut is_done = true;
        for ((role, session), stood) in waiting.into_iter().zip(stood) {
            match stood {
                Ok(election) => {
                    self.failed.remove(&role);
                    self.begin(&role, &session, election);
                }
                Err(error) => {
                    is_done = false;
                    self.note_failure(role, &error);
                }
            }
        }
        is_done
    }

    fn begin(&self, role: &Role, session: &Session, election: LeaderElection) {
        let notice = Arc::clone(&self.notice);
        let _stays = election.listen_inline(move |_| notice());
        match session.stand(role, election) {
            Ok(()) => self.lines.begun(role, session),
            Err(unwanted) => drop(unwanted),
        }
        (self.notice)();
    }

    fn note_failure(&mut self, role: Role, error: &StartError) {
        // The election of the client before is about to end.
        let is_soon = matches!(error, StartError::StandsAlready(_));
        if !is_soon && self.failed.insert(role.clone()) {
            let role = &role;
            Event::LeaderElectionFailed { role, error }.log(self.elections.instance_id());
        }
    }
}
