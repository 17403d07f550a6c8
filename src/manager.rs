//! Which leases does a program of your own hold? No polling and no placement: only the rights and their deadlines.
//!
//! | file | question it answers |
//! |---|---|
//! | `lease.rs` | is this lease still held: the guard |
//! | `hold.rs` | has this tenure ended: what its guards share |
//! | `turns.rs` | whose turn is it to ask about a name, and who gets a share |
//! | `exchange.rs` | how is a lease taken and given back |
//! | `builder.rs` | with which settings is a manager started |
//! | `batch.rs` | how are thousands of leases taken and given back in one call |
//! | `called_off.rs` | how does a wait end before its time |
//! | `info.rs` | how does a lease stand, held here or not |
//! | `outcome.rs` | what can a program be told |
//! | `preferred.rs` | which instances live, and which of them should own a lease |
//! | `waiting.rs` | when is a lease that another instance holds asked for again |
//! | `listening.rs` | has another instance freed a lease that is waited for |
//! | `listeners.rs` | who is told of a lost lease |
//!
//! A lease ends in one of three ways: the last guard of its tenure goes, the table ends it at its deadline or by an answer of
//! the store, or the manager stops. The table decides whether something may be done under a lease, and a guard only asks the
//! table about its tenure. So a guard cannot be right longer than the table is.

mod batch;
mod builder;
#[cfg(feature = "cli")]
mod called_off;
mod exchange;
mod hold;
mod info;
mod lease;
mod listeners;
mod listening;
mod outcome;
mod preferred;
mod turns;
mod waiting;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::CheckedConfig;
use crate::lease::keeper::{Connections, LeaseKeeper, StartError, table};
use crate::lease::parts::LeaseParts;
use crate::manager::exchange::Exchange;
use crate::manager::outcome::named;
use crate::model::{EndpointId, FenceToken, InstanceId};
use crate::thread::Stop;
use crate::thread::fail_stop::Failure;

pub use crate::manager::builder::LeaseManagerBuilder;
pub use crate::manager::info::{LeaseInfo, LeaseState};
pub use crate::manager::lease::{Lease, LeaseWatch};
pub use crate::manager::listeners::{LeaseLoss, LossListener, LostLease};
pub use crate::manager::outcome::{Acquired, LeaseError, NotNow, Released};

/// A running instance that holds leases until it is stopped or dropped.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Acquired, LeaseManager};
///
/// let manager = LeaseManager::builder().redis("redis://127.0.0.1:6379")?.start()?;
/// match manager.try_acquire("nightly-report")? {
///     Acquired::Held(lease) => {
///         // Slow preparation comes first. Ask again right before each effect, and send the fence along.
///         if lease.holds() {
///             println!("sending the report under fence {}", lease.fence());
///         }
///     } // the guard is dropped, and the lease given back
///     refused => println!("{refused}"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "a manager that is dropped gives every lease back"]
pub struct LeaseManager {
    exchange: Arc<Exchange>,
    keeper: Option<LeaseKeeper>,
}

impl LeaseManager {
    /// Every setting at its default: `redis://127.0.0.1:6379/0`, and leases of 30 s.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let manager = leasehold::LeaseManager::builder().redis("redis://10.0.0.7")?.start()?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> LeaseManagerBuilder {
        LeaseManagerBuilder::new()
    }

    /// Connects to the Redis of `config` and begins to beat. Fails where a daemon would wait.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, LeaseManager};
    ///
    /// let mut config = Config::default();
    /// config.prefix = "reports".into();
    /// let manager = LeaseManager::start(&config.checked()?)?;
    /// # Ok(()) }
    /// ```
    pub fn start(config: &CheckedConfig) -> Result<Self, StartError> {
        let connections = Connections::redis(config);
        let me = InstanceId::generate_now(&config.host_name);
        Self::start_on(config, me, &connections, Arc::new(BootClock))
    }

    /// The same on stores and a clock of one's own.
    #[doc(hidden)]
    pub fn start_on(
        config: &CheckedConfig,
        me: InstanceId,
        connections: &Connections,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        Self::start_waiting(config, me, connections, clock, None)
    }

    /// The same, but waits for the store to be there, until told to stop.
    pub(crate) fn start_waiting(
        config: &CheckedConfig,
        me: InstanceId,
        connections: &Connections,
        clock: Arc<dyn Clock>,
        until: Option<&Stop>,
    ) -> Result<Self, StartError> {
        // Daemons on the same prefix must not keep a share of their endpoints for us: we take none.
        let config = &config.without_weight();
        let table = table(config, me, clock);
        let parts = LeaseParts::assemble(config, &table, connections);
        let keeper = LeaseKeeper::start(parts, connections, &Arc::default(), until)?;
        let fail_stop = Arc::clone(keeper.fail_stop());
        let exchange = Exchange::new(&table, &connections.rest, keeper.reporter(), &fail_stop);
        Ok(Self { exchange, keeper: Some(keeper) })
    }

    /// The thread that panicked, if one has (R12): from then on nothing is held or granted, and nothing beats. Whatever
    /// was held is free for others. All that is left is to stop this manager, and to start another.
    pub fn failure(&self) -> Option<&Failure> {
        self.exchange.fail_stop.failure()
    }

    /// Is over when a thread has panicked: to wait for beside one's own reasons to stop.
    pub fn failed(&self) -> &Stop {
        self.exchange.fail_stop.failed()
    }

    /// Gives back everything and wakes the others. Dropping does the same. Guards that are left hold nothing any more.
    ///
    /// While Redis hangs this blocks for up to six times `store_timeout` (2 s by default): for a heartbeat and a renewal that
    /// are on their way, the withdrawal of the heartbeat, the release, the history and the subscription. What was not given
    /// back then is free when its TTL is over. [`Self::stop_within`] blocks no longer than it is told to.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// manager.stop();
    /// # Ok(()) }
    /// ```
    pub fn stop(self) {}

    /// [`Self::stop`], but waits at most `timeout`. True if everything was done by then; otherwise a thread of its own goes
    /// on with it. Nothing is held any more when this returns, in any case. Where no thread can be started it blocks as
    /// [`Self::stop`] does.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// use std::time::Duration;
    ///
    /// let in_time = manager.stop_within(Duration::from_millis(500));
    /// println!("{in_time}");
    /// # Ok(()) }
    /// ```
    pub fn stop_within(self, timeout: Duration) -> bool {
        self.exchange.table.drain_all(); // no guard holds from here on
        let (done, is_done) = bounded(1);
        let body = move || {
            drop(self);
            let _ = done.send(()); // nobody waits any more
        };
        // A thread that cannot be started drops the body, and the manager with it.
        let thread = std::thread::Builder::new().name("stop".into()).spawn(body);
        thread.is_err() || is_done.recv_timeout(timeout).is_ok()
    }

    /// Takes the lease if it is free. Held is also the answer when this instance holds it already: then the guard shares
    /// that tenure.
    ///
    /// Any number of threads may ask, also for the same name: one of them asks Redis at a time, and all share the answer.
    /// Blocks for at most two questions, the own one and one that was on its way.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// if let Some(lease) = manager.try_acquire("nightly-report")?.held() {
    ///     println!("held for {:?} unless it is renewed", lease.remaining());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn try_acquire(&self, name: impl AsRef<str>) -> Result<Acquired, LeaseError> {
        Ok(self.exchange.acquire_until(&named(name)?, &|| Moment::MIN)?)
    }

    /// [`Self::try_acquire`], and waits for the lease if another instance holds it. After `timeout` the answer says why it
    /// is not held. A zero timeout does not wait.
    ///
    /// A thread that waits is woken by the release of another instance within milliseconds, where Redis passes messages on,
    /// and by the expiry of its lease. Whatever was missed is found by asking again, at most every third of a lease TTL.
    /// Threads that wait for one name ask once for all of them, and all get a share of the grant, so none is overtaken.
    ///
    /// An outage of Redis is waited out: an error that may pass is returned after `timeout`, and any other at once.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// use std::time::Duration;
    ///
    /// if let Some(lease) = manager.acquire("nightly-report", Duration::from_secs(60))?.held() {
    ///     println!("under fence {}", lease.fence());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn acquire(
        &self,
        name: impl AsRef<str>,
        timeout: Duration,
    ) -> Result<Acquired, LeaseError> {
        let until = self.exchange.table.now() + timeout;
        Ok(self.exchange.acquire_until(&named(name)?, &|| until)?)
    }

    /// Runs `work` under the lease, and gives it back after that, also when `work` panics. Waits for the lease as
    /// [`Self::acquire`] does; `None` if it was not to be had. `work` asks [`Lease::holds`] before each effect.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// use std::time::Duration;
    ///
    /// let sent = manager.with_lease("nightly-report", Duration::from_secs(60), |lease| lease.holds())?;
    /// println!("{sent:?}");
    /// # Ok(()) }
    /// ```
    pub fn with_lease<T>(
        &self,
        name: impl AsRef<str>,
        timeout: Duration,
        work: impl FnOnce(&Lease) -> T,
    ) -> Result<Option<T>, LeaseError> {
        Ok(self.acquire(name, timeout)?.held().map(|lease| work(&lease)))
    }

    /// Calls `listener` for each lease that is lost from now on, once each, in order, on a thread of its own. It may take its
    /// time. A lease that is given back, by a guard, by its name or by a stop, is not lost. When the listener hears of a loss,
    /// no guard of that tenure holds any more. A stop waits until every listener has heard of every loss, at most 5 s.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// let listener = manager.on_lost(|lost| eprintln!("{lost}"))?;
    /// listener.unregister();
    /// # Ok(()) }
    /// ```
    pub fn on_lost(
        &self,
        listener: impl FnMut(&LostLease) + Send + 'static,
    ) -> io::Result<LossListener> {
        self.exchange.listeners.add(listener)
    }

    /// Gives the lease back, whichever guards it has: they hold nothing any more. To give back one guard, drop it or call
    /// [`Lease::release`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// println!("{:?}", manager.release("nightly-report")?);
    /// # Ok(()) }
    /// ```
    pub fn release(&self, name: impl AsRef<str>) -> Result<Released, LeaseError> {
        Ok(self.exchange.release_all_of(&named(name)?)?)
    }

    /// Whether something may be done under this lease, right now.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// if manager.is_owned("nightly-report") {
    ///     println!("under fence {:?}", manager.fence("nightly-report"));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn is_owned(&self, name: impl AsRef<str>) -> bool {
        named(name).is_ok_and(|it| self.exchange.table.may_poll(&it))
    }

    /// The fence under which this lease is held right now: send it along with every effect.
    pub fn fence(&self, name: impl AsRef<str>) -> Option<FenceToken> {
        self.exchange.table.usable(&named(name).ok()?).map(|it| it.fence)
    }

    /// Every held lease, in any standing.
    pub fn owned(&self) -> Vec<EndpointId> {
        let table = &self.exchange.table;
        if table.is_of_this_process() { table.endpoints() } else { Vec::new() }
    }

    /// Who this is.
    pub fn instance_id(&self) -> &InstanceId {
        self.exchange.table.instance()
    }
}

impl Drop for LeaseManager {
    fn drop(&mut self) {
        if self.exchange.table.is_of_this_process() {
            self.exchange.listening.end();
        }
        drop(self.keeper.take()); // withdraws the heartbeat and gives everything back
        if self.exchange.table.is_of_this_process() {
            self.exchange.turns.end_all();
            self.exchange.listeners.close();
        }
    }
}

impl fmt::Debug for LeaseManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseManager({}, {} held)", self.instance_id(), self.exchange.table.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::config::Config;
    use crate::store::Store;
    use crate::store::memory::{MemoryServer, MemoryStore};

    fn manager() -> (LeaseManager, Arc<MemoryServer>) {
        let server = MemoryServer::new(&Arc::new(ManualClock::at(10_000_000_000_000)));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
        let config = Config { new_fleet: true, ..Config::default() }.checked().unwrap();
        let (me, connections) = (InstanceId::new("a"), Connections::shared(&store));
        (LeaseManager::start_on(&config, me, &connections, Arc::new(BootClock)).unwrap(), server)
    }

    /// The child has a copy of everything but the threads, and its connections are its parent's.
    #[test]
    fn in_a_process_that_was_forked_nothing_is_owned_asked_or_given_back() {
        let (a, server) = manager();
        let e = EndpointId::parse("e").unwrap();
        let lease = a.try_acquire(&e).unwrap().held().unwrap();
        assert!(lease.holds() && a.is_owned(&e));
        let asked = server.journal().len();
        a.exchange.table.fork();
        assert!(!lease.holds() && lease.remaining().is_zero() && lease.wait_lost(Duration::ZERO));
        assert!(!a.is_owned(&e) && a.fence(&e).is_none() && a.owned().is_empty());
        for refused in [a.try_acquire(&e).map(drop), a.release(&e).map(drop), a.info(&e).map(drop)]
            .map(Result::unwrap_err)
        {
            assert!(refused.to_string().contains("forked"), "{refused}");
        }
        drop(lease);
        drop(a);
        let verbs = ["acquire", "release", "withdraw"];
        let after: Vec<_> = server.journal().split_off(asked);
        assert!(!after.iter().any(|it| verbs.contains(it)), "{after:?}");
        assert_eq!(server.owner(&e), Some(InstanceId::new("a")), "it is its parent's");
    }
}
