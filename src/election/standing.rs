//! How does a process begin to stand for roles, one or thousands, and what became of a single attempt? The part of [`Elections`]
//! that asks the store before the thread `elector` takes over.
//!
//! The store is inspected once for all roles that begin together, its clock is read once, and their timings are named in
//! batches (R14).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, TryRecvError, bounded, never, select};

use crate::clock::Moment;
use crate::clock::scheduler::Wait;
use crate::election::elector::NewCandidate;
use crate::election::leadership::{Attempt, Leadership};
use crate::election::listeners::SharedListener;
use crate::election::parts::{CandidateContext, KeptRole, RoleParts};
use crate::election::role_elector::RoleElector;
use crate::election::role_elector::attempt::{Outcome, Verdict};
use crate::election::runtime::{ElectionRuntime, Elections, TICK};
use crate::election::settings::ElectionSettings;
use crate::election::{LeaderElection, rounds};
use crate::lease::keeper::{StartError, wait_for_store};
use crate::model::{InstanceId, Role};
use crate::store::{Fault, StoreError};
use crate::thread::Stop;

/// How to stand for a role, and who is told.
pub(crate) struct Candidacy {
    pub(crate) settings: ElectionSettings,
    /// Registered before anything can happen.
    pub(crate) listeners: Vec<SharedListener>,
}

impl From<ElectionSettings> for Candidacy {
    fn from(settings: ElectionSettings) -> Self {
        Self { settings, listeners: Vec::new() }
    }
}

impl Elections {
    /// Stands for a role. Without `until` fails if the store does not answer; with it, waits, and fails only if the
    /// store can never work as configured.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, Elections};
    ///
    /// let config = Config::default().checked()?;
    /// let elections = Elections::on_redis(&config)?;
    /// let election = elections.stand(config.election_settings("cleanup".parse()?), None)?;
    /// println!("{:?}", election.state());
    /// # Ok(()) }
    /// ```
    pub fn stand(
        &self,
        settings: ElectionSettings,
        until: Option<&Stop>,
    ) -> Result<LeaderElection, StartError> {
        self.stand_as(settings.into(), until)
    }

    pub(crate) fn stand_as(
        &self,
        candidacy: Candidacy,
        until: Option<&Stop>,
    ) -> Result<LeaderElection, StartError> {
        only(self.welcome(self.prepare([candidacy], until)))
    }

    /// [`Self::stand`] for many roles at once: an answer for each, in order, and one that is refused spoils no other. The store
    /// is asked for all of them together, so thousands of roles take a few round trips and not thousands.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, Elections};
    ///
    /// let config = Config::default().checked()?;
    /// let elections = Elections::on_redis(&config)?;
    /// let roles = (0..2_000).map(|n| config.election_settings(format!("shard-{n}").parse().expect("a role")));
    /// let stood: Result<Vec<_>, _> = elections.stand_many(roles, None).into_iter().collect();
    /// println!("stands for {} roles", stood?.len());
    /// # Ok(()) }
    /// ```
    pub fn stand_many(
        &self,
        roles: impl IntoIterator<Item = ElectionSettings>,
        until: Option<&Stop>,
    ) -> Vec<Result<LeaderElection, StartError>> {
        self.welcome(self.prepare(roles.into_iter().map(Candidacy::from), until))
    }

    /// Stands once: leads until the guard is dropped, or says which instance leads (this one if another thread won). Waits out a
    /// hold-off. An error means that the store could not be asked.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Attempt, Config, Elections};
    ///
    /// let config = Config::default().checked()?;
    /// let elections = Elections::on_redis(&config)?;
    /// match elections.try_lead(config.election_settings("daily-report".parse()?))? {
    ///     Attempt::Elected(leadership) => println!("leads in term {:?}", leadership.term()),
    ///     other => println!("{other}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn try_lead(&self, settings: ElectionSettings) -> Result<Attempt, StartError> {
        self.try_lead_as(settings.into(), None)
    }

    /// [`Self::try_lead`], but gives up when `until` is over: [`Attempt::Cancelled`]. A role that was granted in that moment is
    /// given back. A hold-off lasts up to a TTL and a margin, so a program that is to stop should not wait for it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, Elections, Stop};
    ///
    /// let config = Config::default().checked()?;
    /// let elections = Elections::on_redis(&config)?;
    /// let (source, stop) = Stop::pair(); // drop the source, on any thread, to give up
    /// let attempt = elections.try_lead_until(config.election_settings("daily-report".parse()?), &stop)?;
    /// println!("{attempt}");
    /// # drop(source);
    /// # Ok(()) }
    /// ```
    pub fn try_lead_until(
        &self,
        settings: ElectionSettings,
        until: &Stop,
    ) -> Result<Attempt, StartError> {
        self.try_lead_as(settings.into(), Some(until))
    }

    pub(crate) fn try_lead_as(
        &self,
        candidacy: Candidacy,
        until: Option<&Stop>,
    ) -> Result<Attempt, StartError> {
        // An observer would wait for ever for a role without a leader.
        let settings = ElectionSettings { stands: true, ..candidacy.settings };
        let listeners = candidacy.listeners;
        let since = self.runtime.clock.now();
        loop {
            if until.is_some_and(Stop::is_over) {
                return Ok(Attempt::Cancelled);
            }
            // This instance stands for it already, perhaps by another thread: who leads is the answer for both.
            if let Some(leader) = self.leader_as_known(&settings.role) {
                return Ok(Attempt::LedBy(leader));
            }
            match self.try_once(settings.clone(), listeners.clone(), until) {
                Err(StartError::StandsAlready(_))
                    if self.will_know(&settings.role, since, settings.ttl) => {}
                tried => return tried,
            }
        }
    }

    fn try_once(
        &self,
        settings: ElectionSettings,
        listeners: Vec<SharedListener>,
        until: Option<&Stop>,
    ) -> Result<Attempt, StartError> {
        if self.kept(&settings.role).is_some() {
            return Err(StartError::StandsAlready(settings.role));
        }
        let (verdict, decided) = bounded::<Verdict>(1);
        let mut parts = only(self.prepare([Candidacy { settings, listeners }], None))?;
        parts.elector = parts.elector.once(verdict);
        let election = only(self.welcome(vec![Ok(parts)]))?;
        match self.wait_for_verdict(&decided, until) {
            Some(Ok(Ok(Outcome::Elected))) => Ok(Attempt::Elected(Leadership::of(election))),
            Some(Ok(Ok(Outcome::LedBy(leader)))) => Ok(Attempt::LedBy(leader)),
            Some(Ok(Err(error))) => Err(StartError::Store(error)),
            Some(Err(_)) => Err(StartError::Stopped),
            None => Ok(Attempt::Cancelled),
        }
    }

    /// `None` if `until` is over before.
    fn wait_for_verdict(
        &self,
        decided: &Receiver<Verdict>,
        until: Option<&Stop>,
    ) -> Option<Result<Verdict, RecvError>> {
        let mut told = None;
        Wait::begin(&*self.runtime.clock).until(until.map(|_| TICK), || {
            told = match decided.try_recv() {
                Err(TryRecvError::Empty) => None,
                received => Some(received.map_err(|_| RecvError)),
            };
            told.is_some() || until.is_some_and(Stop::is_over)
        });
        let never = never();
        told.or_else(|| {
            select! {
                recv(decided) -> told => Some(told),
                recv(until.map_or(&never, Stop::receiver)) -> _ => None,
            }
        })
    }

    fn kept(&self, role: &Role) -> Option<Arc<KeptRole>> {
        self.runtime.keeper.find(role)
    }

    /// Who leads, if this instance stands for it and knows.
    fn leader_as_known(&self, role: &Role) -> Option<InstanceId> {
        self.kept(role).and_then(|it| it.role_state.leader())
    }

    /// Waits a moment for what another thread will have found out; false if nothing is to be hoped for.
    fn will_know(&self, role: &Role, since: Moment, longest: Duration) -> bool {
        let Some(kept) = self.kept(role) else { return true };
        if !kept.stands || (self.is_away() && self.runtime.clock.now().since(since) > longest) {
            return false;
        }
        let wait = Wait::begin(&*self.runtime.clock);
        kept.role_state.wait_for_change(&wait, TICK);
        true
    }

    /// Everything that can be refused, for each of these roles.
    fn prepare(
        &self,
        roles: impl IntoIterator<Item = Candidacy>,
        until: Option<&Stop>,
    ) -> Vec<Result<RoleParts, StartError>> {
        let ElectionRuntime { me, clock, new_fleet, connections, poke, .. } = &*self.runtime;
        let (elector, renewal) = (&connections.elector, &connections.renewal);
        let context = CandidateContext { me, clock, new_fleet: *new_fleet, elector, renewal, poke };
        let assemble = |Candidacy { settings, listeners }: Candidacy| {
            settings.check()?;
            let parts = RoleParts::assemble(settings, &context);
            for listener in listeners {
                let _stays = parts.role_state.listen(move |event| listener.tell(event))?;
            }
            self.runtime.listeners.lock().iter().for_each(|it| parts.role_state.listen_by(it));
            Ok(parts)
        };
        let assembled: Vec<Result<RoleParts, StartError>> =
            roles.into_iter().map(assemble).collect();
        let electors: Vec<&RoleElector> =
            assembled.iter().flatten().map(|it| &it.elector).collect();
        let mut answers = self.introduce(&electors, until).into_iter();
        assembled
            .into_iter()
            .map(|it| it.and_then(|parts| answers.next().unwrap_or(Ok(())).map(|()| parts)))
            .collect()
    }

    /// Waits for a store that passes the checks of R14 and accepts the timing of each role.
    fn introduce(
        &self,
        electors: &[&RoleElector],
        until: Option<&Stop>,
    ) -> Vec<Result<(), StartError>> {
        let Some(first) = electors.first() else { return Vec::new() };
        let connections = &self.runtime.connections;
        let answers = RefCell::new(vec![None::<Result<(), StoreError>>; electors.len()]);
        let tried = wait_for_store(first.role_state().table(), until, || {
            connections.messages.inspect(first.timeout())?;
            let mut answers = answers.borrow_mut();
            let open: Vec<usize> =
                (0..electors.len()).filter(|&it| answers[it].is_none()).collect();
            let asked: Vec<&RoleElector> = open.iter().map(|&it| electors[it]).collect();
            let mut again = Ok(());
            for (at, answer) in
                open.into_iter().zip(rounds::introduce(&*connections.elector, &asked))
            {
                match answer {
                    Err(error) if until.is_some() && error.fault != Fault::Misconfigured => {
                        again = Err(error);
                    }
                    answer => answers[at] = Some(answer),
                }
            }
            again
        });
        let of_all = |error: &StartError| match error {
            StartError::Store(error) => StartError::Store(error.clone()),
            _ => StartError::Stopped,
        };
        let answer = |answer: Option<Result<(), StoreError>>| match (answer, &tried) {
            (Some(answer), _) => answer.map_err(StartError::Store),
            (None, Err(error)) => Err(of_all(error)),
            (None, Ok(())) => Err(StartError::Stopped),
        };
        answers.into_inner().into_iter().map(answer).collect()
    }

    /// Hands all of these to the elector, in one message.
    fn welcome(
        &self,
        prepared: Vec<Result<RoleParts, StartError>>,
    ) -> Vec<Result<LeaderElection, StartError>> {
        let mut newcomers = Vec::new();
        let stood = prepared
            .into_iter()
            .map(|parts| {
                let (election, newcomer) = self.keep(parts?)?;
                newcomers.push(newcomer);
                Ok(election)
            })
            .collect();
        // A wake-up that waits already is enough.
        for keep_now in &self.runtime.keep_now {
            let _ = keep_now.try_send(());
        }
        let _ = self.runtime.newcomers.send(newcomers);
        let _ = self.runtime.poke.try_send(());
        self.runtime.clock.scheduler().iter().for_each(|it| it.settle());
        stood
    }

    fn keep(&self, parts: RoleParts) -> Result<(LeaderElection, NewCandidate), StartError> {
        let role_state = Arc::clone(&parts.role_state);
        let Some(candidate) = self.runtime.keeper.keep(parts) else {
            return Err(StartError::StandsAlready(role_state.role().clone()));
        };
        // After it is kept: a failure or a stop after this finds it there.
        if let Some(failure) = self.failure() {
            role_state.table().close();
            return Err(StartError::Failed(failure.clone()));
        }
        if self.is_stopping() {
            self.runtime.keeper.forget(&role_state);
            return Err(StartError::Stopped);
        }
        let (gone, ended) = bounded(1);
        let election = LeaderElection::new(role_state, self.clone(), ended);
        Ok((election, NewCandidate { candidate, gone }))
    }
}

/// The answer to one question.
fn only<T>(mut answers: Vec<Result<T, StartError>>) -> Result<T, StartError> {
    answers.pop().unwrap_or(Err(StartError::Stopped))
}
