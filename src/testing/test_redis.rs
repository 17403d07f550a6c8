//! A Redis in memory for tests of a user's program, and the clock that moves it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::scheduler::{Scheduler, Wait};
use crate::clock::{Clock, ManualClock, Moment};
use crate::config::{CheckedConfig, Config, ConfigError};
use crate::election::{Elections, RoleConnections};
use crate::lease::keeper::{Connections, StartError};
use crate::manager::LeaseManager;
use crate::model::{EndpointId, InstanceId};
use crate::store::Store;
use crate::store::lease_kind::LeaseKind;
use crate::store::memory::{MemoryServer, MemoryStore, PushObserver};
use crate::testing::scheduler::TestScheduler;

/// When the clock of a test begins: some time after the boot.
const BEGINNING: Moment = Moment::from_nanos(10_000_000_000_000);
/// Who takes something away ([`TestRedis::take_away`]).
const OTHER: &str = "another-instance";

/// A Redis in memory that has been up for long. Clones share it.
///
/// Managers on it agree on the TTL of leases, as on a real one: the first one sets it, and another TTL is refused.
#[derive(Clone)]
pub struct TestRedis {
    shared: Arc<Shared>,
}

/// The clock of a [`TestRedis`] and of all that runs on it. Clones share it.
#[derive(Clone)]
pub struct TestClock {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<ManualClock>,
    scheduler: Arc<TestScheduler>,
    /// One for each kind of lease and prefix.
    servers: Mutex<BTreeMap<(bool, String), Arc<MemoryServer>>>,
    clients: Mutex<Vec<Client>>,
}

/// The connections of one instance.
struct Client {
    instance: InstanceId,
    store: MemoryStore,
}

/// The same clock as managers and elections see it.
struct SteppedClock {
    clock: Arc<ManualClock>,
    scheduler: Arc<dyn Scheduler>,
}

impl Clock for SteppedClock {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn scheduler(&self) -> Option<&Arc<dyn Scheduler>> {
        Some(&self.scheduler)
    }
}

fn usual(host_name: &str) -> Result<CheckedConfig, ConfigError> {
    Config { host_name: host_name.into(), ..Config::default() }.checked()
}

impl Default for TestRedis {
    fn default() -> Self {
        Self::new()
    }
}

impl TestRedis {
    /// An empty one.
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::at(BEGINNING.as_nanos()));
        let scheduler = Arc::new(TestScheduler::new(&clock));
        let (servers, clients) = Default::default();
        Self { shared: Arc::new(Shared { clock, scheduler, servers, clients }) }
    }

    /// The clock that moves everything on it.
    pub fn clock(&self) -> TestClock {
        TestClock { shared: Arc::clone(&self.shared) }
    }

    /// A manager with the default settings on the host `host_name`.
    pub fn manager(&self, host_name: &str) -> Result<LeaseManager, StartError> {
        self.start_manager(&usual(host_name)?)
    }

    /// A manager with settings of its own. What these say of the address of Redis does not count.
    pub fn start_manager(&self, config: &CheckedConfig) -> Result<LeaseManager, StartError> {
        let server = self.server(LeaseKind::Poll, &config.prefix, config.lease_ttl);
        let (me, store) = self.client(&config.host_name, &server);
        let clock = self.stepped_clock();
        let _call = Wait::begin(&*clock);
        LeaseManager::start_on(config, me, &Connections::shared(&store), Arc::clone(&clock))
    }

    /// Elections with the default settings on the host `host_name`: stand by
    /// [`ElectionBuilder::start_in`](crate::ElectionBuilder::start_in).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::LeaderElection;
    /// use leasehold::testing::TestRedis;
    ///
    /// let redis = TestRedis::new();
    /// let elections = redis.elections("vm1")?;
    /// let election = LeaderElection::builder("cleanup")?.start_in(&elections)?;
    /// assert!(election.is_leader());
    /// redis.take_role_away("cleanup");
    /// redis.clock().advance(std::time::Duration::from_secs(11)); // it renews every ten seconds
    /// assert!(!election.is_leader());
    /// # Ok(()) }
    /// ```
    pub fn elections(&self, host_name: &str) -> Result<Elections, StartError> {
        self.start_elections(&usual(host_name)?)
    }

    /// Elections with settings of their own. What these say of the address of Redis does not count.
    pub fn start_elections(&self, config: &CheckedConfig) -> Result<Elections, StartError> {
        let server = self.server(LeaseKind::Role, &config.leader_prefix, config.lease_ttl);
        let (me, store) = self.client(&config.host_name, &server);
        let same = || Arc::clone(&store);
        let connections = RoleConnections { renewal: same(), elector: same(), messages: same() };
        let clock = self.stepped_clock();
        Elections::start(me, connections, clock, config.new_fleet, config.store_timeout)
    }

    /// Redis does not answer this instance any more, until [`Self::restore`].
    pub fn cut_off(&self, instance: &InstanceId) {
        self.set_cut_off(instance, true);
    }

    /// Redis answers this instance again.
    pub fn restore(&self, instance: &InstanceId) {
        self.set_cut_off(instance, false);
    }

    fn set_cut_off(&self, instance: &InstanceId, cut: bool) {
        let clients = self.shared.clients.lock();
        clients.iter().filter(|it| it.instance == *instance).for_each(|it| it.store.cut_off(cut));
        drop(clients);
        self.shared.scheduler.pushed();
    }

    /// Redis answers nobody, until [`Self::resume`]. It keeps its data, and what expires meanwhile expires.
    pub fn pause(&self) {
        self.each_server(|it| it.pause(true));
    }

    /// Redis answers again.
    pub fn resume(&self) {
        self.each_server(|it| it.pause(false));
    }

    /// Redis forgets everything, as after `FLUSHALL`, and then grants nothing for a TTL and a margin (R5). Instances write
    /// back what they hold.
    pub fn lose_data(&self) {
        self.each_server(|it| it.flush());
    }

    fn each_server(&self, change: impl Fn(&MemoryServer)) {
        self.shared.servers.lock().values().for_each(|it| change(it));
        self.shared.scheduler.pushed();
    }

    /// Another instance takes this lease from its owner, for one TTL. False if nobody holds it. The owner learns of it with
    /// its next renewal.
    pub fn take_away(&self, name: &str) -> bool {
        self.take(LeaseKind::Poll, name)
    }

    /// [`Self::take_away`] for the leadership of a role.
    pub fn take_role_away(&self, role: &str) -> bool {
        self.take(LeaseKind::Role, role)
    }

    fn take(&self, kind: LeaseKind, name: &str) -> bool {
        let (other, name) = (InstanceId::new(OTHER), EndpointId::parse(name));
        let take = |it: &Arc<MemoryServer>| name.iter().any(|name| it.take_away(name, &other));
        self.of_kind(kind).iter().filter(|it| take(it)).count() > 0
    }

    /// The instance that holds this lease, by the key in Redis.
    pub fn owner(&self, name: &str) -> Option<InstanceId> {
        let name = EndpointId::parse(name).ok()?;
        self.of_kind(LeaseKind::Poll).iter().find_map(|it| it.owner(&name))
    }

    /// Who leads this role, by what Redis has.
    pub fn leader(&self, role: &str) -> Option<InstanceId> {
        let role = EndpointId::parse(role).ok()?;
        self.of_kind(LeaseKind::Role).iter().find_map(|it| it.owner(&role))
    }

    fn of_kind(&self, kind: LeaseKind) -> Vec<Arc<MemoryServer>> {
        let servers = self.shared.servers.lock();
        servers.values().filter(|it| it.kind() == kind).cloned().collect()
    }

    fn server(&self, kind: LeaseKind, prefix: &str, ttl: Duration) -> Arc<MemoryServer> {
        let key = (kind == LeaseKind::Role, prefix.to_owned());
        let mut servers = self.shared.servers.lock();
        let server = servers.entry(key).or_insert_with(|| {
            let server = match kind {
                LeaseKind::Poll => MemoryServer::new(&self.shared.clock),
                LeaseKind::Role => MemoryServer::of_roles(&self.shared.clock),
            };
            server.establish(ttl);
            let scheduler = Arc::clone(&self.shared.scheduler);
            let _ = server.pushes.set(scheduler);
            server
        });
        Arc::clone(server)
    }

    /// A new instance. Its id is the same in every run of a test.
    fn client(&self, host: &str, server: &Arc<MemoryServer>) -> (InstanceId, Arc<dyn Store>) {
        let store = MemoryStore::new(server);
        let line = Arc::new(store.share());
        let mut clients = self.shared.clients.lock();
        let (nanos, number) = (self.shared.clock.now().as_nanos(), clients.len());
        let instance = InstanceId::new(&format!("{host}-{nanos}-{number:08x}"));
        clients.push(Client { instance: instance.clone(), store });
        (instance, line)
    }

    fn stepped_clock(&self) -> Arc<dyn Clock> {
        let scheduler = Arc::<TestScheduler>::clone(&self.shared.scheduler);
        Arc::new(SteppedClock { clock: Arc::clone(&self.shared.clock), scheduler })
    }
}

impl TestClock {
    /// Lets `duration` go by: everything that is due meanwhile happens, on all managers and elections, in the order in which it
    /// is due. When this returns, all listeners have heard of it, and threads that were to be woken have their answer.
    ///
    /// A zero duration lets happen what is due now. Threads that call it at once move the clock one after the other.
    ///
    /// # Panics
    ///
    /// In a listener, and when a listener does not return for ten seconds of real time.
    pub fn advance(&self, duration: Duration) {
        self.shared.scheduler.advance(duration);
    }

    /// How much time has gone by since [`TestRedis::new`].
    pub fn elapsed(&self) -> Duration {
        self.shared.clock.now().since(BEGINNING)
    }

    /// Returns when at least this many threads wait inside the library, so that a test moves the clock after that.
    ///
    /// # Panics
    ///
    /// After ten seconds of real time.
    pub fn wait_for_waiters(&self, threads: usize) {
        self.shared.scheduler.wait_for_waiters(threads);
    }
}

impl fmt::Debug for TestRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instances = self.shared.clients.lock().len();
        write!(f, "TestRedis({instances} instances, {:?})", self.clock())
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TestClock({:?})", self.elapsed())
    }
}
