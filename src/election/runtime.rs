//! Which threads and connections do the roles of a process share? See "Threads" in ARCHITECTURE.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, never};

use crate::clock::scheduler::Wait;
use crate::clock::{BootClock, Clock, Moment};
use crate::config::{CheckedConfig, Config};
use crate::election::elector::{Elector, ElectorThread, NUDGES_MAX, NewCandidate};
use crate::election::parts::{CandidateContext, KeptRole, RoleKeeper, RoleParts};
use crate::election::role_elector::attempt::{Outcome, Verdict};
use crate::election::role_state::RoleState;
use crate::election::settings::ElectionSettings;
use crate::election::{LeaderElection, Leadership};
use crate::event::Event;
use crate::lease::keeper::{StartError, wait_for_store};
use crate::lease::report::LeaseEventSink;
use crate::lease::watch::Watch;
use crate::model::{InstanceId, Role};
use crate::store::Store;
use crate::store::redis::RedisStore;
use crate::thread::fail_stop::{FailStop, Failure};
use crate::thread::group::ThreadGroup;
use crate::thread::{Stop, StopSource, stop_with_wire};

const NEWCOMERS_MAX: usize = 16;
/// How long the end waits beyond a store timeout for the last releases.
const FINAL_RELEASE_GRACE: Duration = Duration::from_millis(800);
/// How often a thread that waits for an end looks whether the store has ceased to answer.
const TICK: Duration = Duration::from_millis(20);

/// One connection for each thread that must not wait behind another.
#[derive(Clone)]
pub struct RoleConnections {
    /// For renewals.
    pub renewal: Arc<dyn Store>,
    /// For looking, standing and handing over.
    pub elector: Arc<dyn Store>,
    /// For messages.
    pub messages: Arc<dyn Store>,
}

impl RoleConnections {
    /// A connection each to the Redis of `config`. Nothing is connected yet.
    pub fn redis(config: &Config) -> Self {
        let store = RedisStore::of_roles(config);
        Self {
            renewal: Arc::new(store.connection()),
            elector: Arc::new(store.connection()),
            messages: Arc::new(store),
        }
    }
}

/// The roles one process stands for. Cheap to clone; its threads end when the last clone and the last
/// election made with it are gone.
#[derive(Clone)]
pub struct Elections {
    runtime: Arc<ElectionRuntime>,
}

struct ElectionRuntime {
    /// Dropped first: the threads end before their channels do.
    _threads: ElectionThreads,
    me: InstanceId,
    clock: Arc<dyn Clock>,
    new_fleet: bool,
    connections: RoleConnections,
    keeper: RoleKeeper,
    newcomers: Sender<NewCandidate>,
    poke: Sender<()>,
    fail_stop: Arc<FailStop>,
    /// Wake renewal and expiry when a role is added.
    keep_now: [Sender<()>; 2],
    /// The elector asked the store last and got no answer.
    is_away: Arc<AtomicBool>,
}

/// The threads of all elections of a process; they end when this is dropped.
struct ElectionThreads {
    running: Option<StopSource>,
    elector: ThreadGroup,
    others: ThreadGroup,
    /// Longest wait for the elector's last exchange with the store.
    timeout: Duration,
}

impl Drop for ElectionThreads {
    fn drop(&mut self) {
        self.running = None;
        // The elector releases its roles at the end. A thread that is left alone ends when the store answers or its time is up;
        // its request is about tenures that are over.
        self.elector.join_within(self.timeout + FINAL_RELEASE_GRACE);
        self.others.join_within(FINAL_RELEASE_GRACE);
    }
}

impl Elections {
    /// Elections on the Redis of `config`, as an instance of its own. Nothing is connected yet.
    pub fn on_redis(config: &CheckedConfig) -> Result<Self, StartError> {
        let connections = RoleConnections::redis(config);
        let me = InstanceId::generate_now(&config.host_name);
        let clock = Arc::new(BootClock);
        Self::start(me, connections, clock, config.new_fleet, config.store_timeout)
    }

    /// The same as the instance `me`, on stores and a clock of one's own.
    #[doc(hidden)]
    pub fn start(
        me: InstanceId,
        connections: RoleConnections,
        clock: Arc<dyn Clock>,
        new_fleet: bool,
        timeout: Duration,
    ) -> Result<Self, StartError> {
        let (running, when, wire) = stop_with_wire()?;
        let (newcomers, welcome) = bounded(NEWCOMERS_MAX);
        let (poke, poked) = bounded(1);
        let (nudge, nudges) = bounded(NUDGES_MAX);
        let keeper = RoleKeeper::new(Arc::clone(&connections.renewal));
        let fail_stop = lead_nothing_after_a_panic(&me, &keeper, &*clock);
        let (mut electing, mut others) = (ThreadGroup::new(), ThreadGroup::new());
        let elector = Elector::new(Arc::clone(&connections.elector), keeper.clone());
        let is_away = elector.is_away();
        let elector = ElectorThread { elector, welcome, nudges };
        electing.steps(&fail_stop, "elector", &when, poked, elector)?;
        let ((renew_now, renewals), (expire_now, expiries)) = (bounded(1), bounded(1));
        let (renewing, expiring) = (keeper.clone(), keeper.clone());
        others.steps(&fail_stop, "role-renewal", &when, renewals, move || renewing.renew())?;
        others.steps(&fail_stop, "role-expiry", &when, expiries, move || expiring.expire())?;
        let poke_after = poke.clone();
        let nudge = move |it| {
            let _ = nudge.send(it);
            let _ = poke_after.try_send(());
        };
        let watch = Watch::new(Arc::clone(&connections.messages), me.clone(), timeout, nudge);
        let mut watch = watch.interrupted_by(wire);
        others.steps(&fail_stop, "role-watch", &when, never(), move || watch.step())?;
        let keep_now = [renew_now, expire_now];
        let _threads =
            ElectionThreads { running: Some(running), elector: electing, others, timeout };
        let runtime = ElectionRuntime {
            me,
            clock,
            new_fleet,
            connections,
            keeper,
            newcomers,
            poke,
            fail_stop,
            keep_now,
            is_away,
            _threads,
        };
        Ok(Self { runtime: Arc::new(runtime) })
    }

    /// Who stands.
    pub fn instance_id(&self) -> &InstanceId {
        &self.runtime.me
    }

    /// The thread that panicked, if one has (R12): from then on nothing is led here, and nobody stands. All that is left is
    /// to drop these elections, and to start others.
    pub fn failure(&self) -> Option<&Failure> {
        self.runtime.fail_stop.failure()
    }

    /// Stands for a role. Without `until` fails if the store does not answer; with it, waits, and fails only if the
    /// store can never work as configured.
    pub fn stand(
        &self,
        settings: ElectionSettings,
        until: Option<&Stop>,
    ) -> Result<LeaderElection, StartError> {
        let parts = self.candidate(settings, until)?;
        self.welcome(parts)
    }

    /// Stands once. Returns the leadership, or the instance that leads (this one if another thread won). Waits out a
    /// hold-off.
    pub fn try_lead(
        &self,
        settings: ElectionSettings,
    ) -> Result<Result<Leadership, InstanceId>, StartError> {
        // An observer would wait for ever for a role without a leader.
        let settings = ElectionSettings { stands: true, ..settings };
        let clock = &*self.runtime.clock;
        let (since, wait) = (clock.now(), Wait::begin(clock));
        loop {
            // This instance stands for it already, perhaps by another thread: who leads is the answer for both.
            if let Some(leader) = self.leader_as_known(&settings.role) {
                return Ok(Err(leader));
            }
            match self.try_once(settings.clone(), &wait) {
                Err(StartError::StandsAlready(_))
                    if self.will_know(&settings.role, since, settings.ttl, &wait) => {}
                tried => return tried,
            }
        }
    }

    fn try_once(
        &self,
        settings: ElectionSettings,
        wait: &Wait<'_>,
    ) -> Result<Result<Leadership, InstanceId>, StartError> {
        if self.kept(&settings.role).is_some() {
            return Err(StartError::StandsAlready(settings.role));
        }
        let (verdict, decided) = bounded::<Verdict>(1);
        let mut parts = self.candidate(settings, None)?;
        parts.elector = parts.elector.once(verdict);
        let election = self.welcome(parts)?;
        match wait.recv(&decided, Moment::MAX) {
            Ok(Ok(Outcome::Elected)) => Ok(Ok(Leadership::of(election))),
            Ok(Ok(Outcome::LedBy(leader))) => Ok(Err(leader)),
            Ok(Err(error)) => Err(StartError::Store(error)),
            Err(_) => Err(StartError::Stopped),
        }
    }

    fn kept(&self, role: &Role) -> Option<Arc<KeptRole>> {
        self.runtime.keeper.find(role)
    }

    /// Who leads, if this instance stands for it and knows.
    fn leader_as_known(&self, role: &Role) -> Option<InstanceId> {
        self.kept(role).and_then(|it| it.role_state.leader())
    }

    /// Waits a moment for what another thread will have found out; false if nothing is to be hoped for.
    fn will_know(&self, role: &Role, since: Moment, longest: Duration, wait: &Wait<'_>) -> bool {
        let Some(kept) = self.kept(role) else { return true };
        let is_away = self.runtime.is_away.load(Ordering::Acquire);
        if !kept.stands || (is_away && self.runtime.clock.now().since(since) > longest) {
            return false;
        }
        kept.role_state.wait_for_change(wait, TICK);
        true
    }

    /// Waits until what is held of `role_state` has been given back; not while the store does not answer, and not past
    /// the deadline of what is held.
    pub(crate) fn wait_for_end(&self, role_state: &RoleState, ended: &Receiver<()>) {
        let clock = &*self.runtime.clock;
        let (until, wait) = (clock.now() + role_state.patience(), Wait::begin(clock));
        loop {
            let now = clock.now();
            let tick = if wait.is_in_vain() { now } else { until.min(now + TICK) };
            let is_over = wait.recv(ended, tick) != Err(RecvTimeoutError::Timeout);
            let is_away = self.runtime.is_away.load(Ordering::Acquire);
            let is_enough = now >= until || wait.is_in_vain();
            if is_over || is_enough || (is_away && role_state.is_idle()) {
                return;
            }
        }
    }

    fn candidate(
        &self,
        settings: ElectionSettings,
        until: Option<&Stop>,
    ) -> Result<RoleParts, StartError> {
        settings.check()?;
        let ElectionRuntime { me, clock, new_fleet, connections, poke, .. } = &*self.runtime;
        let (elector, renewal, timeout) =
            (&connections.elector, &connections.renewal, settings.store_timeout);
        let context = CandidateContext { me, clock, new_fleet: *new_fleet, elector, renewal, poke };
        let parts = RoleParts::assemble(settings, &context);
        wait_for_store(parts.role_state.table(), until, || {
            connections.messages.inspect(timeout)?;
            parts.elector.introduce()
        })?;
        Ok(parts)
    }

    fn welcome(&self, parts: RoleParts) -> Result<LeaderElection, StartError> {
        let role_state = Arc::clone(&parts.role_state);
        let Some(candidate) = self.runtime.keeper.keep(parts) else {
            return Err(StartError::StandsAlready(role_state.role().clone()));
        };
        // A wake-up that waits already is enough.
        for keep_now in &self.runtime.keep_now {
            let _ = keep_now.try_send(());
        }
        let (gone, ended) = bounded(1);
        // After it is kept: a failure after this finds it there.
        if let Some(failure) = self.failure() {
            role_state.table().close();
            return Err(StartError::Failed(failure.clone()));
        }
        let _ = self.runtime.newcomers.send(NewCandidate { candidate, gone });
        let _ = self.runtime.poke.try_send(());
        self.runtime.clock.scheduler().iter().for_each(|it| it.settle());
        Ok(LeaderElection::new(role_state, self.clone(), ended))
    }
}

/// R12: closes every table. The roles are not released: work under them may go on until its deadline.
fn lead_nothing_after_a_panic(
    me: &InstanceId,
    keeper: &RoleKeeper,
    clock: &dyn Clock,
) -> Arc<FailStop> {
    let fail_stop = FailStop::by(clock);
    let closed = keeper.clone();
    fail_stop.then(move |_| closed.all().iter().for_each(|it| it.role_state.table().close()));
    let me = me.clone();
    fail_stop.then(move |Failure { thread, message }| {
        Event::ThreadPanicked { thread, error: message }.log(&me);
    });
    let lost = keeper.clone();
    fail_stop.then(move |_| {
        lost.all().iter().for_each(|it| it.role_state.lost(&it.role_state.table().expire()));
    });
    fail_stop
}
