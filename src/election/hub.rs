//! The roles one process stands for: they share threads and connections.
//!
//! | thread | wakes on | does |
//! |---|---|---|
//! | `elector` | word, loss, wish, end of another's lease, end of a hold-off | looks, stands, hands over |
//! | `role-renewal` | role due, retry | renews what is led, and the leader's heartbeat with it |
//! | `role-expiry` | next deadline | ends what was not renewed in time; asks nobody |
//! | `role-watch` | word | passes it on to the elector |
//! | `listener` | event | one for each listener that is not called inline |

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select};
use parking_lot::RwLock;

use crate::clock::{BootClock, Clock};
use crate::config::Config;
use crate::daemon::expiry::Expiry;
use crate::daemon::keeper::{StartError, wait_for_store};
use crate::daemon::reconcile::Nudge;
use crate::daemon::renewal::Renewal;
use crate::daemon::thread::{Stop, StopSource, Thread, stop};
use crate::daemon::watch::Watch;
use crate::election::candidate::{Candidacy, Candidate, Outcome, Verdict};
use crate::election::office::Office;
use crate::election::{LeaderElection, Leadership};
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
        let (running, when) = stop();
        let (newcomers, welcome) = bounded(NEWCOMERS_MAX);
        let (poke, poked) = bounded(1);
        let (words, said) = bounded(WORDS_MAX);
        let kept = KeptRoles::default();
        let mut threads = Vec::new();
        let elector = Elector { candidates: Vec::new(), kept: Arc::clone(&kept) };
        let inlets = Inlets { welcome, poked, said };
        let until = when.clone();
        threads.push(Thread::spawn("elector", move || elector.run(inlets, &until))?);
        threads.push(keep("role-renewal", &kept, when.clone(), |it| it.renewal.step())?);
        threads.push(keep("role-expiry", &kept, when.clone(), |it| it.expiry.step())?);
        let nudge = move |nudge| drop(words.send(nudge));
        let mut watch = Watch::new(Arc::clone(&lines.words), me.clone(), timeout, nudge);
        threads.push(Thread::steps("role-watch", when, move || watch.step())?);
        let (_running, _threads) = (running, threads);
        let hub = Hub { me, clock, new_fleet, lines, kept, newcomers, poke, _running, _threads };
        Ok(Self { hub: Arc::new(hub) })
    }

    /// Who stands.
    pub fn instance_id(&self) -> &InstanceId {
        &self.hub.me
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
        let _ = self.hub.newcomers.send(Newcomer { candidate, gone });
        Ok(LeaderElection::new(office, self.clone(), ended))
    }
}

/// A thread that does one thing for every role in turn.
fn keep(
    name: &str,
    kept: &KeptRoles,
    when: Stop,
    step: impl Fn(&Kept) -> Duration + Send + 'static,
) -> io::Result<Thread> {
    let kept = Arc::clone(kept);
    Thread::steps(name, when, move || {
        let roles = kept.read().clone();
        roles.iter().map(|it| step(it)).min().unwrap_or(IDLE)
    })
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
