//! Which threads keep the held leases? Starts heartbeat, renewal and expiry, each on a thread and connection of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::event::Event;
use crate::lease::heartbeat::Heartbeat;
use crate::lease::history::History;
use crate::lease::parts::{LeaseParts, Release};
use crate::lease::report::{LeaseEventSink, Reporter};
use crate::lease::table::{LeaseTimings, OwnershipTable};
use crate::lease::trouble::Outage;
use crate::model::{InstanceId, LeaseDuration, Role, Weight};
use crate::store::redis::RedisStore;
use crate::store::{Failures, Fault, Store, StoreError};
use crate::thread::fail_stop::{FailStop, Failure};
use crate::thread::liveness::{Actor, Liveness};
use crate::thread::{Stop, StopSource, Thread, stop};

/// A way to the store for each who must not wait behind another.
#[derive(Clone)]
pub struct Connections {
    /// For the heartbeat.
    pub heartbeat: Arc<dyn Store>,
    /// For renewals.
    pub renewal: Arc<dyn Store>,
    /// For looking, acquiring and handing over.
    pub reconcile: Arc<dyn Store>,
    /// For verifying.
    pub dispatch: Arc<dyn Store>,
    /// For results.
    pub publish: Arc<dyn Store>,
    /// For the history.
    pub history: Arc<dyn Store>,
    /// For everything else.
    pub rest: Arc<dyn Store>,
    /// How often asking failed, on all of them.
    pub failures: Arc<Failures>,
}

impl Connections {
    /// A connection each to the Redis of `config`. Nothing is connected yet.
    pub fn redis(config: &Config) -> Self {
        let store = RedisStore::of_endpoints(config);
        Self {
            heartbeat: Arc::new(store.connection()),
            renewal: Arc::new(store.connection()),
            reconcile: Arc::new(store.connection()),
            dispatch: Arc::new(store.connection()),
            publish: Arc::new(store.connection()),
            history: Arc::new(store.connection()),
            failures: Arc::clone(store.failures()),
            rest: Arc::new(store),
        }
    }

    /// One way for all.
    pub fn shared(store: &Arc<dyn Store>) -> Self {
        let same = || Arc::clone(store);
        Self {
            heartbeat: same(),
            renewal: same(),
            reconcile: same(),
            dispatch: same(),
            publish: same(),
            history: same(),
            rest: same(),
            failures: Arc::default(),
        }
    }
}

/// The table of an instance with these settings.
pub fn table(config: &Config, me: InstanceId, clock: Arc<dyn Clock>) -> Arc<OwnershipTable> {
    let timings = LeaseTimings {
        lease: LeaseDuration::new(config.lease_ttl),
        heartbeat: LeaseDuration::new(config.heartbeat_ttl),
        renew_interval: config.renew_interval,
        store_timeout: config.store_timeout,
    };
    Arc::new(OwnershipTable::new(me, timings, clock, config.new_fleet))
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
    release: Release,
    history: History,
    history_thread: Option<(StopSource, Thread)>,
    fail_stop: Arc<FailStop>,
}

/// Why nothing could be started.
#[derive(Debug)]
pub enum StartError {
    /// Settings that cannot work, each alone or together: nothing was asked of the store.
    Settings(ConfigError),
    /// The store can never work as it is configured.
    Store(StoreError),
    /// A thread could not be started.
    Thread(io::Error),
    /// Told to stop before it began.
    Stopped,
    /// This instance stands for that role already: under one id, two would both be its leader (R7).
    StandsAlready(Role),
    /// A thread that this would depend on has panicked (R12).
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

impl std::error::Error for StartError {}

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
    /// Waits for a store that can be trusted (R14), announces this instance, and keeps what the table of `parts` will
    /// hold. Without an `until` that could end the wait, the first failure is the last.
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
        // If anything below fails, this is dropped, and withdraws the first heartbeat.
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

    /// A step that tells the watchdog first that its thread moves.
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

    /// The weight that others reckon with from the next beat on, which comes at once.
    pub fn set_weight(&self, weight: Weight) {
        self.heartbeat.set_weight(weight);
        let _ = self.heartbeat_now.try_send(()); // one that waits already is enough
    }

    /// Speaks for this instance, and has remembered what becomes of its leases.
    pub fn reporter(&self) -> Reporter {
        self.reporter.clone()
    }

    /// What becomes of this instance when one of its threads panics; for the threads that are started beside these.
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

    /// R11: from now on nobody counts us. Leases are still renewed. What is given back must not be
    /// taken by us again.
    pub fn end_heartbeat(&mut self) {
        if std::mem::replace(&mut self.withdrawn, true) {
            return;
        }
        drop(self.heartbeat_thread.take()); // the source, then the thread
        if let Err(error) = self.heartbeat.withdraw() {
            self.reporter.report(&Event::StoreUnreachable { error: &error });
        }
    }

    /// R11: gives back everything and wakes the heirs; renewal ends only then.
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
            // A child that was forked: leases, connections and threads are its parent's.
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

/// R12: what is done when a thread of this instance panics. Safety first, then what people want to know, and last
/// what can take as long as a call.
fn hold_nothing_after_a_panic(
    table: &Arc<OwnershipTable>,
    liveness: &Arc<Liveness>,
    reporter: &Reporter,
    heartbeat: &Arc<Heartbeat>,
) -> Arc<FailStop> {
    let fail_stop = FailStop::new();
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
    // If the store cannot be asked, the heartbeat ends by itself.
    fail_stop.then(move |_| drop(heartbeat.withdraw()));
    fail_stop
}

/// Tries until it works, is hopeless, or is no longer wanted.
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
