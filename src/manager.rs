//! Leases for a program of your own: no polling, no placement, just the rights and their deadlines.
//!
//! The `LeaseManager` of the specification as a Rust type, on top of the ownership table. A right can end at
//! any moment: ask [`LeaseManager::is_owned`] right before each effect, and pass the fence along.

mod turns;

use std::fmt;
use std::sync::Arc;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::event::Event;
use crate::fleet::placement::preference;
use crate::lease::keeper::{Connections, LeaseKeeper, StartError, table};
use crate::lease::parts::LeaseParts;
use crate::lease::report::Reporter;
use crate::lease::table::{Gained, OwnershipTable};
use crate::manager::turns::Turns;
use crate::model::{EndpointId, FenceToken, InstanceId};
use crate::store::{Acquire, Fault, Grant, PeerMessage, Store, StoreError};
use crate::thread::Stop;
use crate::thread::fail_stop::Failure;

/// A running instance that holds leases until it is stopped or dropped.
pub struct LeaseManager {
    table: Arc<OwnershipTable>,
    store: Arc<dyn Store>,
    keeper: LeaseKeeper,
    reporter: Reporter,
    turns: Turns,
}

/// How an endpoint stands, as this instance sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Never asked, or nobody's.
    Unknown,
    /// Ours, and confirmed.
    Owned,
    /// Another instance's.
    Other,
    /// Ours, but a question about it got no answer: do nothing under it.
    Uncertain,
}

/// One lease, as this instance knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Whose it is, if anybody's.
    pub owner: Option<InstanceId>,
    /// How it stands.
    pub state: LeaseState,
    /// The fence, if it is ours.
    pub fence: Option<FenceToken>,
    /// When the grant was asked for, if it is ours.
    pub acquired_at: Option<Moment>,
    /// When its last confirmation was asked for, if it is ours.
    pub last_renewed_at: Option<Moment>,
}

impl LeaseManager {
    /// Connects to the Redis of `config`, which is checked ([`Config::checked`]), and begins to beat. Fails where a
    /// daemon would wait.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let config = config.checked()?;
        let connections = Connections::redis(&config);
        let me = InstanceId::generate_now(&config.host_name);
        Self::start_on(&config, me, &connections, Arc::new(BootClock))
    }

    /// The same on stores and a clock of one's own.
    #[doc(hidden)]
    pub fn start_on(
        config: &Config,
        me: InstanceId,
        connections: &Connections,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        // Daemons on the same prefix must not keep a share of their endpoints for us: we take none.
        let config = &Config { weight: 0, ..config.clone() }.checked()?;
        let table = table(config, me, clock);
        let parts = LeaseParts::assemble(config, &table, connections);
        let keeper = LeaseKeeper::start(parts, connections, &Arc::default(), None)?;
        let store = Arc::clone(&connections.reconcile);
        let reporter = keeper.reporter();
        Ok(Self { table, store, keeper, reporter, turns: Turns::default() })
    }

    /// The thread that panicked, if one has (R12): from then on nothing is held or granted, and nothing beats. Whatever
    /// was held is free for others. All that is left is to stop this manager, and to start another.
    pub fn failure(&self) -> Option<&Failure> {
        self.keeper.fail_stop().failure()
    }

    /// Is over when a thread has panicked: to wait for beside one's own reasons to stop.
    pub fn failed(&self) -> &Stop {
        self.keeper.fail_stop().failed()
    }

    /// An error where nothing can be granted any more: a thread has panicked, or this is a child that was forked.
    fn usable(&self, op: &'static str, target: &EndpointId) -> Result<(), StoreError> {
        let reason = match self.failure() {
            Some(failure) => format!("{failure}; stop this manager and start another"),
            None if self.table.is_of_this_process() => return Ok(()),
            None => "this process was forked from the one that holds the leases; start a manager \
                     of its own"
                .into(),
        };
        let (target, fault) = (target.to_string(), Fault::Misconfigured);
        Err(StoreError { op, target, fault, reason })
    }

    /// Gives back everything and wakes the others. Dropping does the same.
    pub fn stop(self) {
        drop(self.keeper);
    }

    /// Takes the lease if it is free. True also when it is held already; false when another has it,
    /// or nothing is granted yet.
    ///
    /// Any number of threads may ask, also for the same name: one of them asks the store at a time, and all are told
    /// what this instance holds then, under one fence.
    pub fn try_acquire(&self, endpoint: &EndpointId) -> Result<bool, StoreError> {
        self.usable("acquire", endpoint)?;
        if let Some(known) = self.known(endpoint) {
            return Ok(known);
        }
        self.turns.ask(endpoint, || self.known(endpoint), || self.acquire(endpoint))
    }

    /// Whether something may be done under it now; `None` when it is not held.
    fn known(&self, endpoint: &EndpointId) -> Option<bool> {
        self.table.holds(endpoint).then(|| self.table.may_poll(endpoint))
    }

    fn acquire(&self, endpoint: &EndpointId) -> Result<bool, StoreError> {
        // Once more when the epoch changed under the question (R5), or the answer came too late to count.
        for _ in 0..2 {
            let request = self.table.request();
            let wanted = std::slice::from_ref(endpoint);
            let reply = self.store.acquire(&request.context, wanted)?;
            let (gained, _) = self.table.granted(&request, wanted, &reply);
            gained.iter().for_each(|it| self.note_grant(it));
            match reply.answer.and_then(|it| it.into_iter().next()) {
                // Losing is an answer; what could not be decided is none.
                Some(Acquire::Failed(why)) => return Err(undecided(endpoint, why)),
                Some(Acquire::Granted { .. }) if gained.is_empty() => (),
                Some(_) => break,
                None => (),
            }
        }
        Ok(self.table.may_poll(endpoint))
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

    /// Gives the lease back, if it is held, and says so.
    pub fn release(&self, endpoint: &EndpointId) -> Result<(), StoreError> {
        if !self.table.is_of_this_process() {
            self.usable("release", endpoint)?;
        }
        let Some(tenure) = self.table.forget_for_release(endpoint) else { return Ok(()) };
        self.reporter.report(&Event::LeaseReleased {
            tenure: &tenure,
            reason: "asked",
            heir: None,
        });
        let freed = vec![endpoint.clone()];
        let message = PeerMessage { freed, ..PeerMessage::new(self.table.instance(), None) };
        self.store.release(&self.table.request().context, &[tenure], &[message]).map(drop)
    }

    /// Whether something may be done under this lease, right now.
    pub fn is_owned(&self, endpoint: &EndpointId) -> bool {
        self.table.may_poll(endpoint)
    }

    /// The fence under which `endpoint` is held right now: send it along with every effect.
    pub fn fence(&self, endpoint: &EndpointId) -> Option<FenceToken> {
        self.table.usable(endpoint).map(|it| it.fence)
    }

    /// Every held lease, in any standing.
    pub fn owned(&self) -> Vec<EndpointId> {
        if self.table.is_of_this_process() { self.table.endpoints() } else { Vec::new() }
    }

    /// How `endpoint` stands. Asks the store only about a lease that is not held here.
    pub fn info(&self, endpoint: &EndpointId) -> Result<LeaseInfo, StoreError> {
        if let Some(held) = self.table.holding(endpoint) {
            let owned = self.table.may_poll(endpoint);
            return Ok(LeaseInfo {
                owner: Some(self.instance_id().clone()),
                state: if owned { LeaseState::Owned } else { LeaseState::Uncertain },
                fence: Some(held.fence),
                acquired_at: Some(held.acquired_at),
                last_renewed_at: Some(held.renewed_at),
            });
        }
        if !self.table.is_of_this_process() {
            self.usable("look up", endpoint)?;
        }
        let timeout = self.table.timings().store_timeout;
        let owner = self.store.owners(std::slice::from_ref(endpoint), timeout)?.pop().flatten();
        let state = if owner.is_some() { LeaseState::Other } else { LeaseState::Unknown };
        Ok(LeaseInfo { owner, state, fence: None, acquired_at: None, last_renewed_at: None })
    }

    /// Every instance with a heartbeat (FR-007).
    pub fn live_instances(&self) -> Result<Vec<InstanceId>, StoreError> {
        let (mut live, mut cursor) = (Vec::new(), 0);
        loop {
            let page = self.store.instances(cursor, self.table.timings().store_timeout)?;
            live.extend(page.found);
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        live.sort_unstable();
        live.dedup();
        Ok(live)
    }

    /// Who should own `endpoint` by rendezvous hashing of the live instances (FR-013).
    pub fn preferred_owner(&self, endpoint: &EndpointId) -> Result<Option<InstanceId>, StoreError> {
        let live = self.live_instances()?;
        Ok(preference(endpoint, &live).first().map(|it| (*it).clone()))
    }

    /// Who this is.
    pub fn instance_id(&self) -> &InstanceId {
        self.table.instance()
    }
}

fn undecided(endpoint: &EndpointId, reason: String) -> StoreError {
    StoreError { op: "acquire", target: endpoint.to_string(), fault: Fault::Refused, reason }
}

impl fmt::Debug for LeaseManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseManager({}, {} held)", self.instance_id(), self.table.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::store::memory::{MemoryServer, MemoryStore};

    fn manager() -> (LeaseManager, Arc<MemoryServer>) {
        let server = MemoryServer::new(&Arc::new(ManualClock::at(10_000_000_000_000)));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
        let config = Config { new_fleet: true, ..Config::default() };
        let (me, connections) = (InstanceId::new("a"), Connections::shared(&store));
        (LeaseManager::start_on(&config, me, &connections, Arc::new(BootClock)).unwrap(), server)
    }

    /// The child has a copy of everything but the threads, and its connections are its parent's.
    #[test]
    fn in_a_process_that_was_forked_nothing_is_owned_asked_or_given_back() {
        let (a, server) = manager();
        let e = EndpointId::parse("e").unwrap();
        assert!(a.try_acquire(&e).unwrap() && a.is_owned(&e));
        let asked = server.journal().len();
        a.table.fork();
        assert!(!a.is_owned(&e) && a.fence(&e).is_none() && a.owned().is_empty());
        for refused in [a.try_acquire(&e).map(drop), a.release(&e), a.info(&e).map(drop)]
            .map(Result::unwrap_err)
        {
            assert!(refused.to_string().contains("forked"), "{refused}");
        }
        drop(a);
        let verbs = ["acquire", "release", "withdraw"];
        let after: Vec<_> = server.journal().split_off(asked);
        assert!(!after.iter().any(|it| verbs.contains(it)), "{after:?}");
        assert_eq!(server.owner(&e), Some(InstanceId::new("a")), "it is its parent's");
    }
}
