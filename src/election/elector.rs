//! Which roles does this process stand for and give back? The thread `elector` asks for all of them together.
//!
//! [`Elector`] is the state and the step; [`ElectorThread`] reads the channels of the thread before each step. The in-memory
//! electorate and the simulator call the same step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::election::parts::RoleKeeper;
use crate::election::role_elector::RoleElector;
use crate::election::rounds::{self, Round};
use crate::lease::watch::Nudge;
use crate::store::{Push, Store};
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
    pub(crate) welcome: Receiver<NewCandidate>,
    pub(crate) nudges: Receiver<Nudge>,
}

impl Step for ElectorThread {
    fn step(&mut self) -> Duration {
        let Self { elector, welcome, nudges } = self;
        welcome.try_iter().for_each(|it| elector.welcome(it.candidate, it.gone));
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
    candidates: Vec<NewCandidate>,
    keeper: RoleKeeper,
    is_away: Arc<AtomicBool>,
}

impl Elector {
    /// Asks `store` for roles that `keeper` then keeps. No candidate yet.
    pub fn new(store: Arc<dyn Store>, keeper: RoleKeeper) -> Self {
        Self { store, candidates: Vec::new(), keeper, is_away: Arc::default() }
    }

    /// Whether the elector asked the store last and got no answer; other threads read it.
    pub(crate) fn is_away(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_away)
    }

    /// Stands for one more role. Tells `gone` when the candidate has ended and the role is given back.
    pub fn welcome(&mut self, candidate: RoleElector, gone: Sender<()>) {
        self.candidates.push(NewCandidate { candidate, gone });
    }

    /// Passes a message to every candidate. Any other nudge means that messages may be lost: all look again.
    pub fn apply(&mut self, nudge: &Nudge) {
        let candidates = self.candidates.iter_mut().map(|it| &mut it.candidate);
        match nudge {
            Nudge::Push(Push::Message(message)) => {
                candidates.for_each(|it| it.apply_message(message))
            }
            _ => candidates.for_each(RoleElector::look_now),
        }
    }

    /// One round over all candidates; how long until the next round is due.
    pub fn step(&mut self) -> Duration {
        let candidates = self.candidates.iter_mut().map(|it| &mut it.candidate);
        let was_away = self.is_away.load(Ordering::Acquire);
        let Round { wait, is_away } = rounds::elect(&*self.store, candidates, was_away);
        self.is_away.store(is_away, Ordering::Release);
        self.remove_finished();
        wait
    }

    /// Removes the candidates that have ended.
    fn remove_finished(&mut self) {
        let finished: Vec<NewCandidate> =
            self.candidates.extract_if(.., |it| it.candidate.is_finished()).collect();
        for NewCandidate { candidate, gone } in finished {
            self.keeper.forget(candidate.role_state());
            let _ = gone.send(());
        }
    }

    /// All candidates have stopped: a role that is not given back now ends with its TTL.
    fn give_back(&mut self) {
        let candidates = self.candidates.iter_mut().map(|it| &mut it.candidate);
        rounds::give_back(&*self.store, candidates, self.is_away.load(Ordering::Acquire));
        self.remove_finished();
    }
}
