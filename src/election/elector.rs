//! The thread `elector`: the only one that stands and gives back, for all roles of a process.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, after, bounded, never, select};
use parking_lot::RwLock;

use crate::election::role_elector::RoleElector;
use crate::election::role_state::RoleState;
use crate::election::rounds::{self, Round};
use crate::lease::expiry::Expiry;
use crate::lease::renewal::Renewal;
use crate::lease::watch::Nudge;
use crate::store::{Push, Store};
use crate::thread::fail_stop::FailStop;
use crate::thread::{Stop, Thread};

pub(crate) const WORDS_MAX: usize = 256;

/// What keeps one role while it is led.
pub(crate) struct Kept {
    pub(crate) role_state: Arc<RoleState>,
    /// Whether it stands for it, or only looks who leads.
    pub(crate) stands: bool,
    pub(crate) renewal: Renewal,
    pub(crate) expiry: Expiry,
}

pub(crate) type KeptRoles = Arc<RwLock<Vec<Arc<Kept>>>>;

/// A candidate on its way to the elector, and where its end is to be told.
pub(crate) struct Newcomer {
    pub(crate) candidate: RoleElector,
    pub(crate) gone: Sender<()>,
}

/// Threads that are joined when they end soon enough, and otherwise left alone.
pub(crate) struct Company {
    threads: Vec<Thread>,
    /// Every thread holds the first end; when all are gone the second one sees it.
    here: Option<Sender<Infallible>>,
    gone: Receiver<Infallible>,
}

impl Company {
    pub(crate) fn new() -> Self {
        let (here, gone) = bounded(0);
        Self { threads: Vec::new(), here: Some(here), gone }
    }

    pub(crate) fn spawn(
        &mut self,
        fail_stop: &Arc<FailStop>,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let here = self.here.clone();
        let body = move || {
            let _here = here;
            body();
        };
        self.threads.push(fail_stop.spawn(name, body)?);
        Ok(())
    }

    pub(crate) fn part_within(&mut self, patience: Duration) {
        self.here = None;
        let have_gone = self.gone.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected);
        let threads = std::mem::take(&mut self.threads);
        if have_gone {
            threads.into_iter().for_each(Thread::join);
        } else {
            // They end when the store answers or their time is up. Nothing depends on it: what they asked is about
            // tenures that are over.
            std::mem::forget(threads);
        }
    }
}

/// Where the elector is told things.
pub(crate) struct Inlets {
    pub(crate) welcome: Receiver<Newcomer>,
    pub(crate) poked: Receiver<()>,
    pub(crate) said: Receiver<Nudge>,
}

/// The thread `elector`: the only one that stands and gives back.
pub(crate) struct Elector {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) candidates: Vec<Newcomer>,
    pub(crate) kept: KeptRoles,
    pub(crate) is_away: Arc<AtomicBool>,
}

impl Elector {
    pub(crate) fn run(mut self, mut inlets: Inlets, until: &Stop) {
        loop {
            let due = after(self.step());
            select! {
                recv(until.receiver()) -> _ => return self.give_back(),
                recv(inlets.welcome) -> newcomer => match newcomer {
                    Ok(newcomer) => self.candidates.push(newcomer),
                    Err(_) => inlets.welcome = never(),
                },
                recv(inlets.said) -> nudge => match nudge {
                    Ok(nudge) => self.hear(&nudge),
                    Err(_) => inlets.said = never(),
                },
                recv(inlets.poked) -> _ => (),
                recv(due) -> _ => (),
            }
            inlets.said.try_iter().take(WORDS_MAX).for_each(|it| self.hear(&it));
        }
    }

    fn hear(&mut self, nudge: &Nudge) {
        let candidates = self.candidates.iter_mut().map(|it| &mut it.candidate);
        match nudge {
            Nudge::Push(Push::Word(word)) => candidates.for_each(|it| it.hear(word)),
            // Whatever was said before is lost.
            _ => candidates.for_each(RoleElector::look_now),
        }
    }

    /// A round over all of them; how long until the next is due.
    fn step(&mut self) -> Duration {
        let candidates = self.candidates.iter_mut().map(|it| &mut it.candidate);
        let was_away = self.is_away.load(Ordering::Acquire);
        let Round { wait, is_away } = rounds::elect(&*self.store, candidates, was_away);
        self.is_away.store(is_away, Ordering::Release);
        self.take_leave();
        wait
    }

    /// Those that are finished go.
    fn take_leave(&mut self) {
        let finished: Vec<Newcomer> =
            self.candidates.extract_if(.., |it| it.candidate.is_finished()).collect();
        for Newcomer { candidate, gone } in finished {
            let is_it = |it: &Arc<Kept>| Arc::ptr_eq(&it.role_state, candidate.role_state());
            self.kept.write().retain(|it| !is_it(it));
            let _ = gone.send(());
        }
    }

    /// Everybody has stopped: what is not given back now ends with its TTL.
    fn give_back(&mut self) {
        let candidates = self.candidates.iter_mut().map(|it| &mut it.candidate);
        rounds::give_back(&*self.store, candidates, self.is_away.load(Ordering::Acquire));
        self.take_leave();
    }
}
