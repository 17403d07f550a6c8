//! The roles one process stands for: they share threads and connections.
//!
//! | thread | wakes on | does |
//! |---|---|---|
//! | `elector` | word, loss, wish, end of another's lease, end of a hold-off | looks, stands, hands over |
//! | `role-renewal` | role due, retry | renews what is led, and the leader's heartbeat with it |
//! | `role-expiry` | next deadline | ends what was not renewed in time; asks nobody |
//! | `role-watch` | word | passes it on to the elector |
//! | `listener` | event | one for each listener that is not called inline |

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select};
use parking_lot::RwLock;

use crate::clock::{BootClock, Clock};
use crate::config::Config;
use crate::daemon::expiry::Expiry;
use crate::daemon::fail_stop::{FailStop, Failure};
use crate::daemon::keeper::{StartError, wait_for_store};
use crate::daemon::reconcile::Nudge;
use crate::daemon::renewal::Renewal;
use crate::daemon::report::Hearer;
use crate::daemon::thread::{Stop, StopSource, Thread, stop_with_wire};
use crate::daemon::watch::Watch;
use crate::election::candidate::{Candidacy, Candidate, Outcome, Verdict};
use crate::election::office::Office;
use crate::election::{LeaderElection, Leadership};
use crate::event::Event;
use crate::model::InstanceId;
use crate::pipeline::ownership::OwnershipTable;
use crate::store::redis::RedisStore;
use crate::store::{Heard, Store};

const WORDS_MAX: usize = 256;
const NEWCOMERS_MAX: usize = 16;
/// Nothing is held: so often the threads that keep look whether that has changed.
const IDLE: Duration = Duration::from_millis(25);

/// A way to the store for each who must not wait behind another.
#[derive(Clone)]
pub struct RoleLines {
    /// For renewals.
    pub renewal: Arc<dyn Store>,
    /// For looking, standing and handing over.
    pub elector: Arc<dyn Store>,
    /// For words.
    pub words: Arc<dyn Store>,
}

impl RoleLines {
    /// A connection each to the Redis of `config`. Nothing is connected yet.
    pub fn redis(config: &Config) -> Self {
        let store = RedisStore::of_roles(config);
        Self {
            renewal: Arc::new(store.line()),
            elector: Arc::new(store.line()),
            words: Arc::new(store),
        }
    }
}

/// What keeps one role while it is led.
struct Kept {
    office: Arc<Office>,
    renewal: Renewal,
    expiry: Expiry,
}

type KeptRoles = Arc<RwLock<Vec<Arc<Kept>>>>;

/// A candidate on its way to the elector, and where its end is to be told.
struct Newcomer {
    candidate: Candidate,
    gone: Sender<()>,
}

/// The roles one process stands for. Cheap to clone; its threads end when the last clone and the last
/// election made with it are gone.
#[derive(Clone)]
pub struct Elections {
    hub: Arc<Hub>,
}

struct Hub {
    me: InstanceId,
    clock: Arc<dyn Clock>,
    new_fleet: bool,
    lines: RoleLines,
    kept: KeptRoles,
    newcomers: Sender<Newcomer>,
    poke: Sender<()>,
    fail_stop: Arc<FailStop>,
    // The sources go before the threads that wait for them.
    _running: StopSource,
    _threads: Vec<Thread>,
}

impl Elections {
    /// Elections on the Redis of `config`, which is checked ([`Config::checked`]), as an instance of its own. Nothing is
    /// connected yet.
    pub fn on_redis(config: &Config) -> Result<Self, StartError> {
        let config = &config.clone().checked()?;
        let lines = RoleLines::redis(config);
        let me = InstanceId::generate_now(&config.host_name);
        let clock = Arc::new(BootClock);
        Self::start(me, lines, clock, config.new_fleet, config.store_timeout)
    }

    /// The same as the instance `me`, on stores and a clock of one's own.
    pub fn start(
        me: InstanceId,
        lines: RoleLines,
        clock: Arc<dyn Clock>,
        new_fleet: bool,
        timeout: Duration,
    ) -> Result<Self, StartError> {
        let (running, when, wire) = stop_with_wire()?;
        let (newcomers, welcome) = bounded(NEWCOMERS_MAX);
        let (poke, poked) = bounded(1);
        let (words, said) = bounded(WORDS_MAX);
        let kept = KeptRoles::default();
        let fail_stop = lead_nothing_after_a_panic(&me, &kept);
        let mut threads = Vec::new();
        let elector = Elector { candidates: Vec::new(), kept: Arc::clone(&kept) };
        let inlets = Inlets { welcome, poked, said };
        let until = when.clone();
        threads.push(fail_stop.spawn("elector", move || elector.run(inlets, &until))?);
        let renew = keep(&kept, |it| it.renewal.step());
        threads.push(fail_stop.steps("role-renewal", when.clone(), renew)?);
        let expire = keep(&kept, |it| it.expiry.step());
        threads.push(fail_stop.steps("role-expiry", when.clone(), expire)?);
        let nudge = move |nudge| drop(words.send(nudge));
        let watch = Watch::new(Arc::clone(&lines.words), me.clone(), timeout, nudge);
        let mut watch = watch.woken_by(wire);
        threads.push(fail_stop.steps("role-watch", when, move || watch.step())?);
        let (_running, _threads) = (running, threads);
        let hub = Hub {
            me,
            clock,
            new_fleet,
            lines,
            kept,
            newcomers,
            poke,
            fail_stop,
            _running,
            _threads,
        };
        Ok(Self { hub: Arc::new(hub) })
    }

    /// Who stands.
    pub fn instance_id(&self) -> &InstanceId {
        &self.hub.me
    }

    /// The thread that panicked, if one has (R12): from then on nothing is led here, and nobody stands. All that is left is
    /// to drop these elections, and to start others.
    pub fn failure(&self) -> Option<&Failure> {
        self.hub.fail_stop.failure()
    }

    /// Stands for a role. Fails if the store cannot be asked, or can never be stood on; with `until`,
    /// only in the second case, and otherwise waits.
    pub fn stand(
        &self,
        candidacy: Candidacy,
        until: Option<&Stop>,
    ) -> Result<LeaderElection, StartError> {
        let candidate = self.candidate(candidacy, until)?;
        self.welcome(candidate)
    }

    /// Stands for a role once: its leader until the guard is dropped, or who leads it. Waits out a
    /// hold-off.
    pub fn try_lead(
        &self,
        candidacy: Candidacy,
    ) -> Result<Result<Leadership, InstanceId>, StartError> {
        let (verdict, decided) = bounded::<Verdict>(1);
        // One that only looks would wait for ever where nobody leads.
        let candidacy = Candidacy { stands: true, ..candidacy };
        let candidate = self.candidate(candidacy, None)?.once(verdict);
        let election = self.welcome(candidate)?;
        match decided.recv() {
            Ok(Ok(Outcome::Elected)) => Ok(Ok(Leadership::of(election))),
            Ok(Ok(Outcome::LedBy(leader))) => Ok(Err(leader)),
            Ok(Err(error)) => Err(StartError::Store(error)),
            Err(_) => Err(StartError::Stopped),
        }
    }

    fn candidate(
        &self,
        candidacy: Candidacy,
        until: Option<&Stop>,
    ) -> Result<Candidate, StartError> {
        candidacy.check()?;
        let Hub { me, clock, new_fleet, lines, poke, .. } = &*self.hub;
        let table =
            OwnershipTable::of_role(me.clone(), candidacy.rhythm(), Arc::clone(clock), *new_fleet);
        let table = Arc::new(table);
        let office = Office::new(candidacy.role.clone(), Arc::clone(&table), poke.clone());
        let timeout = candidacy.store_timeout;
        let candidate = Candidate::new(office, Arc::clone(&lines.elector), candidacy);
        wait_for_store(&table, until, || {
            lines.words.inspect(timeout)?;
            candidate.introduce()
        })?;
        Ok(candidate)
    }

    fn welcome(&self, candidate: Candidate) -> Result<LeaderElection, StartError> {
        let office = Arc::clone(candidate.office());
        let (line, table) = (Arc::clone(&self.hub.lines.renewal), office.table());
        let kept = Kept {
            renewal: Renewal::new(line, Arc::clone(table), Arc::clone(&office)),
            expiry: Expiry::new(Arc::clone(table), Arc::clone(&office)),
            office: Arc::clone(&office),
        };
        {
            let mut roles = self.hub.kept.write();
            if roles.iter().any(|it| it.office.role() == office.role()) {
                return Err(StartError::StandsAlready(office.role().clone()));
            }
            // Kept before it can be held.
            roles.push(Arc::new(kept));
        }
        let (gone, ended) = bounded(1);
        // After it is kept: a failure after this finds it there.
        if let Some(failure) = self.failure() {
            office.table().close();
            return Err(StartError::Failed(failure.clone()));
        }
        let _ = self.hub.newcomers.send(Newcomer { candidate, gone });
        Ok(LeaderElection::new(office, self.clone(), ended))
    }
}

/// R12: what is done when a thread that keeps roles panics. The roles are not given back: what is done under one may
/// go on until its deadline, and only then another may lead.
fn lead_nothing_after_a_panic(me: &InstanceId, kept: &KeptRoles) -> Arc<FailStop> {
    let fail_stop = FailStop::new();
    let closed = Arc::clone(kept);
    fail_stop.then(move |_| closed.read().iter().for_each(|it| it.office.table().close()));
    let me = me.clone();
    fail_stop.then(move |Failure { thread, message }| {
        Event::ThreadPanicked { thread, error: message }.log(&me);
    });
    let kept = Arc::clone(kept);
    fail_stop.then(move |_| {
        let roles = kept.read().clone();
        roles.iter().for_each(|it| it.office.lost(&it.office.table().expire()));
    });
    fail_stop
}

/// The step of a thread that does one thing for every role in turn.
fn keep(
    kept: &KeptRoles,
    step: impl Fn(&Kept) -> Duration + Send + 'static,
) -> impl FnMut() -> Duration + Send + 'static {
    let kept = Arc::clone(kept);
    move || {
        let roles = kept.read().clone();
        roles.iter().map(|it| step(it)).min().unwrap_or(IDLE)
    }
}

struct Inlets {
    welcome: Receiver<Newcomer>,
    poked: Receiver<()>,
    said: Receiver<Nudge>,
}

/// The thread `elector`: the only one that stands and gives back.
struct Elector {
    candidates: Vec<Newcomer>,
    kept: KeptRoles,
}

impl Elector {
    fn run(mut self, mut inlets: Inlets, until: &Stop) {
        loop {
            let due = after(self.step());
            select! {
                recv(until.receiver()) -> _ => return,
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
            Nudge::Heard(Heard::Word(word)) => candidates.for_each(|it| it.hear(word)),
            // Whatever was said before is lost.
            _ => candidates.for_each(Candidate::look_now),
        }
    }

    /// One step of each; how long until the next is due.
    fn step(&mut self) -> Duration {
        let waits = self.candidates.iter_mut().map(|it| it.candidate.step());
        let wait = waits.min().unwrap_or(Duration::from_secs(1));
        let finished: Vec<Newcomer> =
            self.candidates.extract_if(.., |it| it.candidate.is_finished()).collect();
        for Newcomer { candidate, gone } in finished {
            let is_it = |it: &Arc<Kept>| Arc::ptr_eq(&it.office, candidate.office());
            self.kept.write().retain(|it| !is_it(it));
            let _ = gone.send(());
        }
        wait
    }
}
