//! Which roles does this process stand for and give back? The thread `elector` asks for all of them together.
//!
//! [`Elector`] is the state and the step; [`ElectorThread`] reads the channels of the thread before each step. The in-memory
//! electorate and the simulator call the same step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::election::parts::RoleKeeper;
use crate::election::role_elector::RoleElector;
use crate::election::rounds::{self, Round};
use crate::lease::watch::Nudge;
use crate::model::EndpointId;
use crate::store::{PeerMessage, Push, Store};
use crate::thread::Step;
use crossbeam_channel::{Receiver, Sender};

/// Most nudges that wait for the elector, and that it applies between two rounds.
pub(crate) const NUDGES_MAX: usize = 256;

/// A candidate on its way to the elector.
pub(crate) struct NewCandidate {
    pub(crate) candidate: RoleElector,
    /// Is told when the candidate has ended.
    pub(crate) gone: Sender<()>,
}

/// The body of the thread `elector`. Who sends something to it pokes it after that.
pub(crate) struct ElectorThread {
    pub(crate) elector: Elector,
    pub(crate) welcome: Receiver<Vec<NewCandidate>>,
    pub(crate) nudges: Receiver<Nudge>,
}

impl Step for ElectorThread {
    fn step(&mut self) -> Duration {
        let Self { elector, welcome, nudges } = self;
        welcome.try_iter().for_each(|it| elector.welcome_all(it));
        nudges.try_iter().take(NUDGES_MAX).for_each(|it| elector.apply(&it));
        let wait = elector.step();
        if nudges.is_empty() { wait } else { Duration::ZERO }
    }

    fn end(&mut self) {
        self.elector.give_back();
    }
}

/// Stands for roles and gives them back. Nothing else does.
pub struct Elector {
    store: Arc<dyn Store>,
    /// By role: a message concerns few of thousands.
    candidates: BTreeMap<EndpointId, NewCandidate>,
    keeper: RoleKeeper,
    is_away: Arc<AtomicBool>,
}

impl Elector {
    /// Asks `store` for roles that `keeper` then keeps. No candidate yet.
    pub fn new(store: Arc<dyn Store>, keeper: RoleKeeper) -> Self {
        Self { store, candidates: BTreeMap::new(), keeper, is_away: Arc::default() }
    }

    /// Whether the elector asked the store last and got no answer; other threads read it.
    pub(crate) fn is_away(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_away)
    }

    /// Stands for one more role, which the keeper keeps. Tells `gone` when the candidate has ended and the role is given back.
    pub fn welcome(&mut self, candidate: RoleElector, gone: Sender<()>) {
        self.candidates.insert(candidate.role().clone(), NewCandidate { candidate, gone });
    }

    fn welcome_all(&mut self, newcomers: Vec<NewCandidate>) {
        newcomers.into_iter().for_each(|it| self.welcome(it.candidate, it.gone));
    }

    /// Passes a message to the candidates that it is about. Any other nudge means that messages may be lost: all look again.
    pub fn apply(&mut self, nudge: &Nudge) {
        let Nudge::Push(Push::Message(message)) = nudge else {
            return self.candidates.values_mut().for_each(|it| it.candidate.look_now());
        };
        let PeerMessage { wants, freed, took, resign, .. } = message;
        let roles: BTreeSet<&EndpointId> =
            [wants, freed, took, resign].into_iter().flatten().collect();
        for role in roles {
            if let Some(it) = self.candidates.get_mut(role) {
                it.candidate.apply_message(message);
            }
        }
    }

    /// One round over all candidates; how long until the next round is due.
    pub fn step(&mut self) -> Duration {
        let candidates = self.candidates.values_mut().map(|it| &mut it.candidate);
        let was_away = self.is_away.load(Ordering::Acquire);
        let Round { wait, is_away } = rounds::elect(&*self.store, candidates, was_away);
        self.is_away.store(is_away, Ordering::Release);
        self.remove_finished();
        wait
    }

    /// Removes the candidates that have ended.
    fn remove_finished(&mut self) {
        let keeper = &self.keeper;
        self.candidates.retain(|_, NewCandidate { candidate, gone }| {
            let is_finished = candidate.is_finished();
            if is_finished {
                let _ = gone.try_send(());
                keeper.forget(candidate.role_state());
            }
            !is_finished
        });
    }

    /// All candidates have stopped: a role that is not given back now ends with its TTL.
    fn give_back(&mut self) {
        let candidates = self.candidates.values_mut().map(|it| &mut it.candidate);
        rounds::give_back(&*self.store, candidates, self.is_away.load(Ordering::Acquire));
        self.remove_finished();
    }
}
