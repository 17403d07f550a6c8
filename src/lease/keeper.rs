//! Which threads keep the held leases? Starts the threads `heartbeat`, `renewal`, `expiry` and `history`, and stops them.
//!
//! Each of them but `expiry`, which never touches the store, has a connection of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::event::Event;
use crate::lease::heartbeat::Heartbeat;
use crate::lease::history::History;
use crate::lease::parts::LeaseParts;
use crate::lease::report::{LeaseEventSink, Reporter};
use crate::lease::shutdown_release::ShutdownRelease;
use crate::lease::table::{LeaseTimings, OwnershipTable};
use crate::lease::trouble::Outage;
use crate::model::{InstanceId, LeaseDuration, Role, Weight};
use crate::store::redis::RedisStore;
use crate::store::{Failures, Fault, Store, StoreError};
use crate::thread::fail_stop::{FailStop, Failure};
use crate::thread::liveness::{Actor, Liveness};
use crate::thread::{Stop, StopSource, Thread, stop};

/// A connection to the store for each thread that must not wait behind another.
#[derive(Clone)]
pub struct Connections {
    /// For the thread `heartbeat`.
    pub heartbeat: Arc<dyn Store>,
    /// For the thread `renewal`.
    pub renewal: Arc<dyn Store>,
    /// For the thread `reconcile`: view, acquisitions and hand-overs.
    pub reconcile: Arc<dyn Store>,
    /// For the thread `dispatch`: verifications.
    pub dispatch: Arc<dyn Store>,
    /// For the thread `verify`: verifications of polls that run.
    pub verify: Arc<dyn Store>,
    /// For the thread `detect`: signs of life.
    pub detect: Arc<dyn Store>,
    /// For the thread `publish`: results.
    pub publish: Arc<dyn Store>,
    /// For the thread `history`.
    pub history: Arc<dyn Store>,
    /// For everything else.
    pub rest: Arc<dyn Store>,
    /// Counts the failed requests of all connections.
    pub failures: Arc<Failures>,
}

impl Connections {
    /// Connections to the Redis of `config`. Each connects with its first request.
    pub fn redis(config: &Config) -> Self {
        let store = RedisStore::of_endpoints(config);
        Self {
            heartbeat: Arc::new(store.connection()),
            renewal: Arc::new(store.connection()),
            reconcile: Arc::new(store.connection()),
            dispatch: Arc::new(store.connection()),
            verify: Arc::new(store.connection()),
            detect: Arc::new(store.connection()),
            publish: Arc::new(store.connection()),
            history: Arc::new(store.connection()),
            failures: Arc::clone(store.failures()),
            rest: Arc::new(store),
        }
    }

    /// One connection for all threads, for tests.
    pub fn shared(store: &Arc<dyn Store>) -> Self {
        let same = || Arc::clone(store);
        Self {
            heartbeat: same(),
            renewal: same(),
            reconcile: same(),
            dispatch: same(),
            verify: same(),
            detect: same(),
            publish: same(),
            history: same(),
            rest: same(),
            failures: Arc::default(),
        }
    }
}

/// The table of an instance with these settings.
pub fn table(config: &Config, me: InstanceId, clock: Arc<dyn Clock>) -> Arc<OwnershipTable> {
    Arc::new(new_table(config, me, clock))
}

/// The table of an instance that polls. Unless `--suspect-after` is 0 it may be revoked (R16).
pub fn polling_table(
    config: &Config,
    me: InstanceId,
    clock: Arc<dyn Clock>,
) -> Arc<OwnershipTable> {
    let table = new_table(config, me, clock);
    Arc::new(if config.suspect_after.is_zero() { table } else { table.revocable() })
}

fn new_table(config: &Config, me: InstanceId, clock: Arc<dyn Clock>) -> OwnershipTable {
    let timings = LeaseTimings {
        lease: LeaseDuration::new(config.lease_ttl),
        heartbeat: LeaseDuration::new(config.heartbeat_ttl),
        renew_interval: config.renew_interval,
        store_timeout: config.store_timeout,
    };
    OwnershipTable::new(me, timings, clock, config.new_fleet)
}

/// The threads that keep leases. Ends in two steps, because the order is the safety argument (R11).
pub struct LeaseKeeper {
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    heartbeat: Arc<Heartbeat>,
    heartbeat_thread: Option<(StopSource, Thread)>,
    heartbeat_now: Sender<()>,
    withdrawn: bool,
    lease_threads: Option<(StopSource, Vec<Thread>)>,
    release: ShutdownRelease,
    history: History,
    history_thread: Option<(StopSource, Thread)>,
    fail_stop: Arc<FailStop>,
}

/// Why an instance or election could not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Settings that cannot work, alone or together. No request was sent to the store.
    Settings(ConfigError),
    /// The store can never work as it is configured.
    Store(StoreError),
    /// A thread could not be started.
    Thread(io::Error),
    /// Told to stop before the store answered.
    Stopped,
    /// This instance is a candidate for that role already. Two candidates under one id would both be its leader (R7).
    StandsAlready(Role),
    /// A thread that the new one would depend on has panicked (R12).
    Failed(Failure),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Settings(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Stopped => f.write_str("stopped before it began"),
            Self::Failed(failure) => failure.fmt(f),
            Self::StandsAlready(role) => {
                write!(
                    f,
                    "this instance stands for the role {role} already; stop that election first"
                )
            }
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Settings(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Thread(error) => Some(error),
            Self::Failed(failure) => Some(failure),
            Self::Stopped | Self::StandsAlready(_) => None,
        }
    }
}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        Self::Settings(error)
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Thread(error)
    }
}

impl LeaseKeeper {
    /// Waits for a store that passes the checks of R14, sends the first heartbeat, and starts the threads. Without `until`
    /// there is no wait: the first failure is returned.
    pub fn start(
        parts: LeaseParts,
        connections: &Connections,
        liveness: &Arc<Liveness>,
        until: Option<&Stop>,
    ) -> Result<Self, StartError> {
        let LeaseParts {
            table,
            reporter,
            heartbeat,
            heartbeat_now,
            heartbeat_requests,
            renewal,
            expiry,
            ..
        } = parts;
        let LeaseParts { history, historian, release, .. } = parts;
        wait_for_store(&table, until, || {
            connections.rest.inspect(table.timings().store_timeout)?;
            heartbeat.send().map(drop)
        })?;
        let fail_stop = hold_nothing_after_a_panic(&table, liveness, &reporter, &heartbeat);
        // If a thread cannot be started, `keeper` is dropped, which withdraws the first heartbeat.
        let mut keeper = Self {
            reporter,
            table,
            heartbeat,
            heartbeat_thread: None,
            heartbeat_now,
            withdrawn: false,
            lease_threads: None,
            release,
            history,
            history_thread: None,
            fail_stop: Arc::clone(&fail_stop),
        };
        let (source, when) = stop();
        let remember = fail_stop.spawn("history", move || historian.run(&when))?;
        keeper.history_thread = Some((source, remember));
        keeper.history.note_instance("started");
        let heartbeat = Arc::clone(&keeper.heartbeat);
        let beat = keeper.marked(liveness, Actor::Heartbeat, move || heartbeat.step());
        let (source, when) = stop();
        keeper.heartbeat_thread =
            Some((source, fail_stop.nudged_steps("heartbeat", when, heartbeat_requests, beat)?));
        let renew = keeper.marked(liveness, Actor::Renewal, move || renewal.step());
        let (source, when) = stop();
        let keeping = &mut keeper.lease_threads.insert((source, Vec::new())).1;
        keeping.push(fail_stop.steps("renewal", when.clone(), renew)?);
        keeping.push(fail_stop.steps("expiry", when, move || expiry.step())?);
        Ok(keeper)
    }

    /// `step`, preceded by a mark for the watchdog that `actor` makes progress.
    fn marked<F: Fn() -> Duration>(
        &self,
        liveness: &Arc<Liveness>,
        actor: Actor,
        step: F,
    ) -> impl Fn() -> Duration + use<F> {
        let (liveness, table) = (Arc::clone(liveness), Arc::clone(&self.table));
        move || {
            liveness.mark(actor, table.now());
            step()
        }
    }

    /// Changes the weight by which all instances plan. Sends a heartbeat with it at once.
    pub fn set_weight(&self, weight: Weight) {
        self.heartbeat.set_weight(weight);
        let _ = self.heartbeat_now.try_send(()); // one queued request is enough
    }

    /// The reporter of this instance, with its history.
    pub fn reporter(&self) -> Reporter {
        self.reporter.clone()
    }

    /// What happens when a thread of this instance panics. Threads that others start beside these share it.
    pub fn fail_stop(&self) -> &Arc<FailStop> {
        &self.fail_stop
    }

    /// R11: other instances plan without this one from the next heartbeat on, which comes at once. It keeps its leases.
    pub fn leave_plan(&self) {
        self.release.leave_plan();
    }

    /// R11: releases the drained leases that no poll runs under any more, once the other instances plan without this one.
    pub fn release_idle(&self) {
        self.release.release_idle();
    }

    /// R11: withdraws the heartbeat, so that no plan contains this instance and none of its released leases comes back to
    /// it. Leases are still renewed.
    pub fn end_heartbeat(&mut self) {
        if std::mem::replace(&mut self.withdrawn, true) {
            return;
        }
        drop(self.heartbeat_thread.take()); // the source, then the thread
        if let Err(error) = self.heartbeat.withdraw() {
            self.reporter.report(&Event::StoreUnreachable { error: &error });
        }
    }

    /// R11: ends renewal, releases every lease and tells all instances.
    pub fn release_all(&mut self) {
        let tenures = self.release.forget_all();
        if let Some((keeping, threads)) = self.lease_threads.take() {
            drop(keeping);
            threads.into_iter().for_each(Thread::join);
        }
        self.release.give_back(&tenures);
        self.reporter.report_rest();
        if let Some((writing, thread)) = self.history_thread.take() {
            self.history.note_instance("stopped");
            drop((writing, thread)); // writes what is still queued
        }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        if !self.table.is_of_this_process() {
            // In a forked child: leases, connections and threads belong to the parent.
            std::mem::forget((
                self.heartbeat_thread.take(),
                self.lease_threads.take(),
                self.history_thread.take(),
            ));
            return;
        }
        self.end_heartbeat();
        self.release_all();
    }
}

/// R12: what happens when a thread of this instance panics. First the table is closed, then the log gets its lines, and
/// last comes the request to the store, which can block.
fn hold_nothing_after_a_panic(
    table: &Arc<OwnershipTable>,
    liveness: &Arc<Liveness>,
    reporter: &Reporter,
    heartbeat: &Arc<Heartbeat>,
) -> Arc<FailStop> {
    let fail_stop = FailStop::by(&*table.clock().0);
    let (closed, failed) = (Arc::clone(table), Arc::clone(liveness));
    fail_stop.then(move |_| {
        closed.close();
        failed.mark_failed();
    });
    let speaker = reporter.clone();
    fail_stop.then(move |Failure { thread, message }| {
        speaker.report(&Event::ThreadPanicked { thread, error: message });
    });
    let (held, speaker) = (Arc::clone(table), reporter.clone());
    fail_stop.then(move |_| speaker.lost(&held.expire()));
    let speaker = reporter.clone();
    fail_stop.then(move |_| speaker.report_rest()); // the thread that ticks may be the one that panicked
    let heartbeat = Arc::clone(heartbeat);
    // If the store does not answer, the heartbeat ends with its TTL.
    fail_stop.then(move |_| drop(heartbeat.withdraw()));
    fail_stop
}

/// Repeats `attempt` until it succeeds, fails for good, or `until` ends the wait.
pub(crate) fn wait_for_store(
    table: &OwnershipTable,
    until: Option<&Stop>,
    attempt: impl Fn() -> Result<(), StoreError>,
) -> Result<(), StartError> {
    let reporter = Reporter::new(table);
    let mut outage = Outage::default();
    loop {
        match attempt() {
            Ok(()) => break,
            Err(error) if error.fault == Fault::Misconfigured || until.is_none() => {
                return Err(StartError::Store(error));
            }
            Err(error) => {
                if outage.begin(table.now()) {
                    reporter.report(&Event::StoreUnreachable { error: &error });
                }
            }
        }
        if until.is_some_and(|it| it.within(table.timings().retry_interval())) {
            return Err(StartError::Stopped);
        }
    }
    if let Some(away) = outage.end(table.now()) {
        reporter.report(&Event::StoreReachable { away });
    }
    Ok(())
}
