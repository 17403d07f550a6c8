//! Which threads and connections do the roles of a process share? See "Threads" in ARCHITECTURE.md.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, never};
use parking_lot::Mutex;

use crate::clock::scheduler::{Mailbox, Wait};
use crate::clock::{BootClock, Clock, Moment};
use crate::config::{CheckedConfig, Config};
use crate::election::ElectionEvent;
use crate::election::elector::{Elector, ElectorThread, NUDGES_MAX, NewCandidate};
use crate::election::listeners::{Outlet, Registration};
use crate::election::parts::{KeptRole, RoleKeeper};
use crate::election::role_state::RoleState;
use crate::event::Event;
use crate::lease::keeper::StartError;
use crate::lease::report::LeaseEventSink;
use crate::lease::watch::Watch;
use crate::model::InstanceId;
use crate::store::Store;
use crate::store::redis::RedisStore;
use crate::thread::fail_stop::{FailStop, Failure};
use crate::thread::group::ThreadGroup;
use crate::thread::{StopSource, stop_with_wire};

const NEWCOMERS_MAX: usize = 16;
/// How long the end waits beyond a store timeout for the last releases.
const FINAL_RELEASE_GRACE: Duration = Duration::from_millis(800);
/// How often a thread that waits for an end looks whether the store has ceased to answer.
pub(super) const TICK: Duration = Duration::from_millis(20);

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

/// The roles one process stands for: one, or thousands. All of them share four threads and three connections. Cheap to clone; the
/// threads end when the last clone and the last election made with it are gone. That drop waits for them at most one store timeout
/// and a second.
#[derive(Clone)]
pub struct Elections {
    pub(super) runtime: Arc<ElectionRuntime>,
}

pub(super) struct ElectionRuntime {
    /// Dropped first: the threads end before their channels do.
    threads: ElectionThreads,
    pub(super) me: InstanceId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) new_fleet: bool,
    pub(super) connections: RoleConnections,
    pub(super) keeper: RoleKeeper,
    pub(super) newcomers: Sender<Vec<NewCandidate>>,
    pub(super) poke: Sender<()>,
    fail_stop: Arc<FailStop>,
    /// Wake renewal and expiry when a role is added.
    pub(super) keep_now: [Sender<()>; 2],
    /// The elector asked the store last and got no answer.
    is_away: Arc<AtomicBool>,
    /// Every role was given up for good.
    is_stopping: AtomicBool,
    /// Who is told of the events of every role.
    pub(super) listeners: Mutex<Vec<Outlet>>,
}

/// The threads of all elections of a process; they end when this is dropped.
struct ElectionThreads {
    running: Option<StopSource>,
    elector: ThreadGroup,
    others: ThreadGroup,
    /// Longest wait for the elector's last exchange with the store.
    timeout: Duration,
    /// The elector asked the store last and got no answer.
    is_away: Arc<AtomicBool>,
}

impl ElectionThreads {
    /// Ends all threads, and waits for them no longer than that. The elector releases its roles at the end. A thread that is
    /// left alone ends when the store answers or its time is up; its request is about tenures that are over.
    fn end_within(&mut self, longest: Duration) {
        self.running = None;
        let until = BootClock.now() + longest;
        self.elector.join_within(longest);
        self.others.join_within(until.since(BootClock.now()));
    }
}

impl Drop for ElectionThreads {
    fn drop(&mut self) {
        if self.running.is_some() {
            let is_away = self.is_away.load(Ordering::Acquire);
            // While the store does not answer, the last release is hurried.
            let timeout = if is_away { Duration::ZERO } else { self.timeout };
            self.end_within(timeout + FINAL_RELEASE_GRACE);
        }
    }
}

impl Elections {
    /// Elections on the Redis of `config`, as an instance of its own. Nothing is connected yet.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, Elections};
    ///
    /// let elections = Elections::on_redis(&Config::default().checked()?)?;
    /// # Ok(()) }
    /// ```
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
        let threads = ElectionThreads {
            running: Some(running),
            elector: electing,
            others,
            timeout,
            is_away: Arc::clone(&is_away),
        };
        let runtime = ElectionRuntime {
            threads,
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
            is_stopping: AtomicBool::new(false),
            listeners: Mutex::default(),
        };
        Ok(Self { runtime: Arc::new(runtime) })
    }

    /// Calls `listener` for every event of every role that these elections stand for from now on, on one thread for all of them.
    /// Registered before the roles stand, it misses nothing. Events of one role arrive in order. A listener that takes its time
    /// delays only itself, and no stop waits for it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, Elections};
    ///
    /// let elections = Elections::on_redis(&Config::default().checked()?)?;
    /// let _stays = elections.listen(|event| println!("{event:?}"))?;
    /// # Ok(()) }
    /// ```
    pub fn listen(
        &self,
        listener: impl FnMut(&ElectionEvent) + Send + 'static,
    ) -> io::Result<Registration> {
        let mailbox = Mailbox::new(self.runtime.clock.scheduler());
        let (outlet, _) = Outlet::start(Box::new(listener), None, mailbox)?;
        let registration = outlet.registration();
        let mut listeners = self.runtime.listeners.lock();
        listeners.retain(|it| !it.is_out());
        listeners.push(outlet);
        Ok(registration)
    }

    /// Who stands.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let elections = leasehold::Elections::on_redis(&leasehold::Config::default().checked()?)?;
    /// println!("{}", elections.instance_id());
    /// # Ok(()) }
    /// ```
    pub fn instance_id(&self) -> &InstanceId {
        &self.runtime.me
    }

    /// The thread that panicked, if one has (R12): from then on nothing is led here, and nobody stands. All that is left is
    /// to drop these elections, and to start others.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let elections = leasehold::Elections::on_redis(&leasehold::Config::default().checked()?)?;
    /// if let Some(failure) = elections.failure() {
    ///     eprintln!("{failure}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn failure(&self) -> Option<&Failure> {
        self.runtime.fail_stop.failure()
    }

    /// Gives up every role of these elections for good: nobody stands for one any more, by any clone, and
    /// [`Self::stand`] is refused. Waits for work under a [`Duty`](crate::Duty), at most until the last deadline that a role has at
    /// this moment (at most a TTL), and for Redis to be told. While Redis does not answer and no work runs, the wait takes at most
    /// one store timeout, whatever the number of roles. Dropping an election after that does not wait for its role again.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, Elections};
    ///
    /// let elections = Elections::on_redis(&Config::default().checked()?)?;
    /// // … stands for thousands of roles …
    /// elections.stop();
    /// # Ok(()) }
    /// ```
    pub fn stop(&self) {
        let roles = self.give_up_all();
        let longest = roles.iter().map(|it| it.role_state.patience()).max().unwrap_or_default();
        self.wait_until_given_back(&roles, BootClock.now() + longest);
    }

    /// [`Self::stop`], but waits at most `timeout`. True if Redis knows that nothing is led here any more; false if Redis did not
    /// answer, or if work under a [`Duty`](crate::Duty) still runs: its role is renewed until it ends, and given back then.
    /// Nothing is led any more when this returns, in any case: [`LeaderElection::is_leader`](crate::LeaderElection::is_leader) is false for every role.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use leasehold::{Config, Elections};
    ///
    /// let elections = Elections::on_redis(&Config::default().checked()?)?;
    /// println!("given back: {}", elections.stop_within(Duration::from_millis(500)));
    /// # Ok(()) }
    /// ```
    pub fn stop_within(&self, timeout: Duration) -> bool {
        let until = BootClock.now() + timeout;
        let roles = self.give_up_all();
        self.wait_until_given_back(&roles, until)
    }

    /// Before any role is told: a role that is kept after this is refused ([`Self::welcome`]).
    fn give_up_all(&self) -> Vec<Arc<KeptRole>> {
        self.runtime.is_stopping.store(true, Ordering::SeqCst);
        let roles = self.runtime.keeper.all();
        roles.iter().for_each(|it| it.role_state.stop());
        roles
    }

    fn wait_until_given_back(&self, roles: &[Arc<KeptRole>], until: Moment) -> bool {
        let wait = Wait::begin(&*self.runtime.clock);
        loop {
            let left = until.since(BootClock.now());
            // R12: after a panic nothing is given back.
            let is_silent = wait.is_in_vain()
                || self.failure().is_some()
                || self.is_away() && roles.iter().all(|it| it.role_state.is_idle());
            let patience = if is_silent { Duration::ZERO } else { left.min(TICK) };
            if self.runtime.keeper.wait_until_empty(patience) {
                let is_known = |it: &Arc<KeptRole>| it.role_state.is_given_back();
                return self.failure().is_none() && roles.iter().all(is_known);
            }
            if patience.is_zero() {
                return false;
            }
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.runtime.is_stopping.load(Ordering::SeqCst)
    }

    /// Whether the store did not answer the elector's last request.
    pub(super) fn is_away(&self) -> bool {
        self.runtime.is_away.load(Ordering::Acquire)
    }

    /// Waits until what is held of `role_state` has been given back, at most until `until`, and not while the store does not
    /// answer. True if the store knows it.
    pub(crate) fn wait_for_end(
        &self,
        role_state: &RoleState,
        ended: &Receiver<()>,
        until: Moment,
    ) -> bool {
        let wait = Wait::begin(&*self.runtime.clock);
        loop {
            let left = until.since(BootClock.now());
            let is_silent = self.is_away() && role_state.is_idle();
            let patience =
                if wait.is_in_vain() || is_silent { Duration::ZERO } else { left.min(TICK) };
            match ended.recv_timeout(patience) {
                Ok(()) => return self.failure().is_none() && role_state.is_given_back(),
                Err(RecvTimeoutError::Timeout) if !patience.is_zero() => (),
                Err(_) => return false,
            }
        }
    }

    /// Ends the threads, if these are the last of their elections and nothing else keeps them, and waits for that no longer
    /// than until `until`.
    pub(crate) fn end_by(self, until: Moment) {
        if let Some(mut runtime) = Arc::into_inner(self.runtime) {
            runtime.threads.end_within(until.since(BootClock.now()));
        }
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

impl std::fmt::Debug for Elections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Elections({})", self.runtime.me)
    }
}

impl std::fmt::Debug for RoleConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RoleConnections")
    }
}
