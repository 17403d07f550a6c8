//! Which client of this agent stands for a role? The first in line: two clients are two candidates, and an instance has one.
//!
//! The thread `agent-roles` begins each election, because that asks Redis. When the first in line has gone, and its role is
//! given back, the next one stands, under a term of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// How many places were given out.
    places: AtomicU64,
    wake: Sender<()>,
    woken: Receiver<()>,
}

#[derive(Default)]
struct Line {
    clients: VecDeque<Place>,
    /// The client at the front stands.
    is_standing: bool,
    leader: Option<InstanceId>,
}

/// One client in line. Its number is of this place only: a client that leaves and joins again has another.
#[derive(Clone)]
struct Place {
    number: u64,
    session: Arc<Session>,
}

impl RoleLines {
    pub(crate) fn new() -> Self {
        let (wake, woken) = bounded(1);
        Self { roles: Mutex::default(), places: AtomicU64::new(0), wake, woken }
    }

    /// The number of a place, for [`Self::join`] and for the candidacy that stands from there.
    pub(crate) fn number(&self) -> u64 {
        self.places.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the last place in line.
    pub(crate) fn join(&self, role: &Role, number: u64, session: &Arc<Session>) {
        let place = Place { number, session: Arc::clone(session) };
        let mut roles = self.roles.lock();
        roles.entry(role.clone()).or_default().clients.push_back(place);
        drop(roles);
        self.wake();
    }

    /// The client wants the role no more, and has given it back.
    pub(crate) fn leave(&self, role: &Role, session: &Session) {
        let mut roles = self.roles.lock();
        let Some(line) = roles.get_mut(role) else { return };
        if line.clients.front().is_some_and(|it| it.session.id == session.id) {
            line.is_standing = false;
        }
        line.clients.retain(|it| it.session.id != session.id);
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

    fn to_begin(&self) -> Vec<(Role, Place)> {
        let roles = self.roles.lock();
        let waiting = roles.iter().filter(|it| !it.1.is_standing);
        let first = |(role, line): (&Role, &Line)| {
            line.clients.front().map(|it| (role.clone(), it.clone()))
        };
        waiting.filter_map(first).collect()
    }

    /// Whether a client is in line.
    fn is_wanted(&self, role: &Role) -> bool {
        self.roles.lock().contains_key(role)
    }

    /// The client at this place stands; if it has left, nobody does.
    fn begun(&self, role: &Role, number: u64) {
        if let Some(line) = self.roles.lock().get_mut(role)
            && line.clients.front().is_some_and(|it| it.number == number)
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
        self.failed.retain(|it| self.lines.is_wanted(it));
        let waiting = self.lines.to_begin();
        if waiting.is_empty() {
            return true;
        }
        let settings = waiting.iter().map(|it| self.config.election_settings(it.0.clone()));
        let stood = self.elections.stand_many(settings.collect::<Vec<_>>(), None);
        let mut is_done = true;
        for ((role, place), stood) in waiting.into_iter().zip(stood) {
            match stood {
                Ok(election) => {
                    self.failed.remove(&role);
                    self.begin(&role, &place, election);
                }
                Err(error) => {
                    is_done = false;
                    self.note_failure(role, &error);
                }
            }
        }
        is_done
    }

    fn begin(&self, role: &Role, place: &Place, election: LeaderElection) {
        let notice = Arc::clone(&self.notice);
        let _stays = election.listen_inline(move |_| notice());
        match place.session.stand(role, place.number, election) {
            Ok(()) => self.lines.begun(role, place.number),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{BootClock, ManualClock};
    use crate::election::RoleConnections;
    use crate::store::Store;
    use crate::store::memory::{MemoryServer, MemoryStore};

    /// The thread `agent-roles` by hand.
    struct Rig {
        candidates: Candidates,
        role: Role,
    }

    impl Rig {
        fn new() -> Self {
            let server = MemoryServer::of_roles(&Arc::new(ManualClock::at(10_000_000_000_000)));
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
            let connections = RoleConnections {
                renewal: Arc::clone(&store),
                elector: Arc::clone(&store),
                messages: store,
            };
            let config = Config { new_fleet: true, ..Config::default() };
            let (me, clock) = (InstanceId::new("a"), Arc::new(BootClock));
            let elections =
                Elections::start(me, connections, clock, true, config.store_timeout).unwrap();
            let candidates = Candidates {
                lines: Arc::new(RoleLines::new()),
                elections,
                config,
                notice: Arc::new(|| ()),
                failed: BTreeSet::new(),
            };
            Self { candidates, role: Role::parse("r").unwrap() }
        }

        fn lines(&self) -> &RoleLines {
            &self.candidates.lines
        }

        /// What `LEAD` does.
        fn lead(&self, session: &Arc<Session>) {
            let number = self.lines().number();
            assert!(session.add_role(&self.role, number));
            self.lines().join(&self.role, number, session);
        }

        /// What `RESIGN` does.
        fn resign(&self, session: &Session) -> Option<LeaderElection> {
            let election = session.take_role(&self.role).unwrap().end();
            self.lines().leave(&self.role, session);
            election
        }

        fn next(&self) -> Option<(Role, Place)> {
            self.lines().to_begin().pop()
        }

        fn stood(&self) -> LeaderElection {
            let settings = self.candidates.config.election_settings(self.role.clone());
            self.candidates.elections.stand_many([settings], None).remove(0).unwrap()
        }
    }

    #[test]
    fn a_client_that_resigned_and_asks_again_is_not_taken_for_one_that_stands() {
        let (rig, client) = (Rig::new(), Arc::new(Session::new(1)));
        rig.lead(&client);
        let (role, place) = rig.next().unwrap();
        client.stand(&role, place.number, rig.stood()).map_err(drop).unwrap();
        assert!(rig.resign(&client).is_some(), "it stood");
        rig.lead(&client);
        rig.lines().begun(&role, place.number); // the end of what was begun for its first place
        assert!(rig.next().is_some(), "nobody stands, and nobody will");
    }

    #[test]
    fn an_election_is_not_for_a_client_that_meanwhile_stands_behind_another() {
        let rig = Rig::new();
        let (first, second) = (Arc::new(Session::new(1)), Arc::new(Session::new(2)));
        rig.lead(&first);
        rig.lead(&second);
        let (role, place) = rig.next().unwrap();
        let election = rig.stood();
        assert!(rig.resign(&first).is_none());
        rig.lead(&first);
        rig.candidates.begin(&role, &place, election);
        assert_eq!(rig.next().map(|it| it.1.session.id), Some(2));
        assert!(rig.resign(&first).is_none(), "it stands out of its turn");
    }

    #[test]
    fn a_failure_is_remembered_while_the_role_is_wanted_and_no_longer() {
        let (mut rig, client) = (Rig::new(), Arc::new(Session::new(1)));
        rig.lead(&client);
        rig.candidates.elections.stop();
        assert!(!rig.candidates.step() && !rig.candidates.step());
        assert_eq!(rig.candidates.failed, BTreeSet::from([rig.role.clone()]));
        rig.resign(&client);
        assert!(rig.candidates.step(), "nobody waits");
        assert!(rig.candidates.failed.is_empty());
    }
}
