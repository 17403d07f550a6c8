//! How does one instance run? [`Daemon`] starts a thread for each part that `assembly.rs` wires, and ends them in the phases
//! of `shutdown.rs`.
//!
//! The table of all threads is in `ARCHITECTURE.md`, under "Threads".
//!
//! Every channel is bounded. What happens when one is full:
//!
//! | channel | when full |
//! |---|---|
//! | `lease_changes` | blocks `reconcile`; no thread that safety depends on waits for it |
//! | `jobs` | never: `dispatch` gives out no more jobs than its window (`window.rs`) |
//! | `dones` | never: it has room for every job given out |
//! | `notes` | drops the note and counts it |
//! | `samples` | blocks the pollers |
//! | changes for `--on-change` | drops the change and counts it |
//! | `nudges` | blocks `watch`, which must not lose a push; drops the nudges of pollers |

pub mod assembly;
pub mod exposition;
pub mod metrics_file;
pub mod metrics_http;
pub mod shutdown;
pub mod state_file;
pub mod status_line;
pub mod systemd;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::clock::{BootClock, Clock};
use crate::config::CheckedConfig;
use crate::event::Event;
use crate::fleet::failure_detector::FailureDetector;
use crate::fleet::reconcile::Reconcile;
use crate::instance::assembly::{Parts, Queues, assemble};
use crate::instance::exposition::Exposition;
use crate::instance::metrics_file::MetricsFile;
use crate::instance::metrics_http::MetricsHttp;
use crate::instance::shutdown::{Phase, Shutdown};
use crate::lease::keeper::{Connections, LeaseKeeper, StartError};
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::lease::watch::Watch;
use crate::model::{InstanceId, Weight};
use crate::polling::dispatch::Dispatch;
#[cfg(feature = "cli")]
use crate::polling::hooks::Hooks;
use crate::polling::intervals::PollIntervals;
use crate::polling::poller::Poller;
use crate::polling::poller_pool::PollerPool;
use crate::polling::publisher::Publisher;
use crate::polling::reverify::Reverifier;
use crate::thread::fail_stop::Failure;
use crate::thread::liveness::{Actor, Liveness};
use crate::thread::{Stop, StopSource, Thread, stop, stop_with_wire};

/// One running instance, until it is stopped or dropped.
#[must_use = "a daemon that is dropped stops"]
pub struct Daemon {
    table: Arc<OwnershipTable>,
    drain_timeout: Duration,
    hurry: Option<Stop>,
    keeper: LeaseKeeper,
    movers: Option<(StopSource, Vec<Thread>)>,
    dispatch: Option<(StopSource, Thread)>,
    revocable: RevocableThreads,
    pool: Option<PollerPool>,
    intervals: Sender<(PollIntervals, usize)>,
    publish: Option<(StopSource, Thread)>,
    hooks: Option<(StopSource, Vec<Thread>)>,
    liveness: Arc<Liveness>,
    exposition: Arc<Exposition>,
    // Last: what ends is shown to the end.
    _metrics: (Option<MetricsHttp>, Option<MetricsFile>),
}

/// The threads of an instance that may be revoked, and that watches others (R15, R16).
#[derive(Default)]
struct RevocableThreads {
    verify: Option<(StopSource, Thread)>,
    detect: Option<(StopSource, Thread)>,
}

impl Daemon {
    /// Starts an instance on the Redis of `config`; waits for a Redis that is away, until told to stop.
    ///
    /// ```no_run
    /// # fn f(poller: std::sync::Arc<dyn leasehold::Poller>) -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Config, Daemon, Stop};
    ///
    /// let (source, until) = Stop::pair(); // drop the source to give up
    /// let daemon = Daemon::start_redis(&Config::default().checked()?, poller, &until)?;
    /// # Ok(()) }
    /// ```
    pub fn start_redis(
        config: &CheckedConfig,
        poller: Arc<dyn Poller>,
        until: &Stop,
    ) -> Result<Self, StartError> {
        let connections = Connections::redis(config);
        let me = InstanceId::generate_now(&config.host_name);
        Self::start(config, me, Arc::new(BootClock), &connections, poller, until)
    }

    /// The same on stores and a clock of one's own.
    #[doc(hidden)]
    pub fn start(
        config: &CheckedConfig,
        me: InstanceId,
        clock: Arc<dyn Clock>,
        connections: &Connections,
        poller: Arc<dyn Poller>,
        until: &Stop,
    ) -> Result<Self, StartError> {
        let parts = assemble(config, me, clock, connections, poller, Queues::Bounded);
        let table = Arc::clone(&parts.lease.table);
        let liveness = Arc::new(Liveness::default());
        let (failures, verdicts) = (&connections.failures, parts.publisher.verdicts());
        let exposition = Exposition::of_instance(config, &table, &liveness, failures, verdicts);
        let exposition = Arc::new(exposition);
        // Before the store is waited for: that it is away is worth showing.
        let metrics = (
            MetricsHttp::of(config, table.instance(), &exposition)?,
            MetricsFile::of(config, table.instance(), &exposition)?,
        );
        let Parts { lease, watch, reconcile, detector, dispatch, reverifier, .. } = parts;
        let Parts { worker, jobs, publisher, intervals, .. } = parts;
        let keeper = LeaseKeeper::start(lease, connections, &liveness, Some(until))?;
        let fail_stop = Arc::clone(keeper.fail_stop());
        let mut daemon = Self {
            table,
            drain_timeout: config.drain_timeout,
            hurry: None,
            keeper,
            movers: None,
            dispatch: None,
            revocable: RevocableThreads::default(),
            pool: None,
            intervals,
            publish: None,
            hooks: None,
            liveness,
            exposition,
            _metrics: metrics,
        };
        #[cfg(feature = "cli")]
        let publisher = daemon.with_hooks(config, publisher)?;
        // Whatever fails, what runs already is stopped in the right order: what was not started is dropped in there.
        daemon.start_threads(watch, reconcile, dispatch, publisher)?;
        if daemon.table.verified_for().is_some() {
            daemon.start_revocable(reverifier, detector)?;
        }
        // Last: where there are few threads, pollers are what can be done without.
        daemon.pool = Some(PollerPool::start(worker, jobs, &fail_stop, config.workers)?);
        Ok(daemon)
    }

    /// Starts what runs the program of `--on-change`.
    #[cfg(feature = "cli")]
    fn with_hooks(
        &mut self,
        config: &CheckedConfig,
        publisher: Publisher,
    ) -> io::Result<Publisher> {
        let fail_stop = self.keeper.fail_stop();
        let Some((hooks, running)) = Hooks::start(config, &self.table, fail_stop)? else {
            return Ok(publisher);
        };
        self.hooks = Some(running);
        Ok(publisher.telling(move |change| hooks.put(change)))
    }

    fn start_threads(
        &mut self,
        watch: Watch,
        reconcile: Reconcile,
        dispatch: Dispatch,
        publisher: Publisher,
    ) -> io::Result<()> {
        let fail_stop = Arc::clone(self.keeper.fail_stop());
        let liveness = Arc::clone(&self.liveness);
        let (source, when) = stop();
        let mark = move |now| liveness.mark(Actor::Dispatch, now);
        let thread = fail_stop.spawn("dispatch", move || dispatch.run(&when, mark))?;
        self.dispatch = Some((source, thread));
        let (source, when) = stop();
        let thread = fail_stop.spawn("publish", move || publisher.run(&when))?;
        self.publish = Some((source, thread));
        let (source, when, wire) = stop_with_wire()?;
        let movers = &mut self.movers.insert((source, Vec::new())).1;
        let mut watch = watch.interrupted_by(wire);
        movers.push(fail_stop.steps("watch", when.clone(), move || watch.step())?);
        let liveness = Arc::clone(&self.liveness);
        let mark = move |now, is_ready: bool| {
            liveness.mark(Actor::Reconcile, now);
            if is_ready {
                liveness.mark_ready();
            }
        };
        movers.push(fail_stop.spawn("reconcile", move || reconcile.run(&when, mark))?);
        Ok(())
    }

    /// Starts them if `--suspect-after` is not 0.
    fn start_revocable(
        &mut self,
        reverifier: Reverifier,
        mut detector: FailureDetector,
    ) -> io::Result<()> {
        let fail_stop = Arc::clone(self.keeper.fail_stop());
        let ((source, when), nudges) = (stop(), reverifier.nudges());
        let thread = fail_stop.nudged_steps("verify", when, nudges, move || reverifier.step())?;
        self.revocable.verify = Some((source, thread));
        let (source, when) = stop();
        let thread = fail_stop.steps("detect", when, move || detector.step())?;
        self.revocable.detect = Some((source, thread));
        Ok(())
    }

    /// Goes on with other settings: interval, timeout, light polling, workers and weight. The rest of
    /// `config` is as it was, or comes with the next start.
    ///
    /// ```no_run
    /// # fn f(poller: std::sync::Arc<dyn leasehold::Poller>) -> Result<(), Box<dyn std::error::Error>> {
    /// # let (source, until) = leasehold::Stop::pair();
    /// use leasehold::{Config, Daemon};
    ///
    /// let mut config = Config::default();
    /// let mut daemon = Daemon::start_redis(&config.clone().checked()?, poller, &until)?;
    /// config.workers = 512;
    /// daemon.reload(&config.checked()?);
    /// # Ok(()) }
    /// ```
    pub fn reload(&mut self, config: &CheckedConfig) {
        if let Some(pool) = &self.pool {
            pool.resize(config.workers);
        }
        // Blocks while dispatch has not taken the last change. Fails only when dispatch has ended.
        let _ = self.intervals.send((PollIntervals::of(config), config.workers));
        self.keeper.set_weight(Weight(config.weight));
    }

    /// When this is over, a stop aborts the polls that still run instead of waiting for them.
    ///
    /// ```no_run
    /// # fn f(poller: std::sync::Arc<dyn leasehold::Poller>) -> Result<(), Box<dyn std::error::Error>> {
    /// # let (source, until) = leasehold::Stop::pair();
    /// use leasehold::{Config, Daemon, Stop};
    ///
    /// let mut daemon = Daemon::start_redis(&Config::default().checked()?, poller, &until)?;
    /// let (patient, hurry) = Stop::pair();
    /// daemon.hurry_at(hurry);
    /// drop(patient); // aborts the polls that a stop would wait for
    /// daemon.stop();
    /// # Ok(()) }
    /// ```
    pub fn hurry_at(&mut self, hurry: Stop) {
        self.hurry = Some(hurry);
    }

    /// The thread that panicked, if one has (R12): from then on this instance holds nothing, polls nothing and does not beat.
    /// All that is left is to stop it, and to start another.
    pub fn failure(&self) -> Option<&Failure> {
        self.keeper.fail_stop().failure()
    }

    /// Is over when a thread has panicked: to wait for beside one's own reasons to stop.
    pub fn failed(&self) -> &Stop {
        self.keeper.fail_stop().failed()
    }

    /// What this instance holds.
    #[doc(hidden)]
    pub fn table(&self) -> &Arc<OwnershipTable> {
        &self.table
    }

    /// How its threads are.
    #[doc(hidden)]
    pub fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    /// What it has to show in numbers.
    #[doc(hidden)]
    pub fn exposition(&self) -> &Arc<Exposition> {
        &self.exposition
    }

    /// Stops it. Dropping does the same.
    ///
    /// ```no_run
    /// # fn f(poller: std::sync::Arc<dyn leasehold::Poller>) -> Result<(), Box<dyn std::error::Error>> {
    /// # let (source, until) = leasehold::Stop::pair();
    /// let config = leasehold::Config::default().checked()?;
    /// leasehold::Daemon::start_redis(&config, poller, &until)?.stop();
    /// # Ok(()) }
    /// ```
    pub fn stop(self) {
        drop(self);
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Daemon({}, {} held)", self.table.instance(), self.table.len())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.table.is_of_this_process() {
            // A child that was forked: none of these threads is its own.
            let threads = (self.movers.take(), self.dispatch.take(), self.publish.take());
            let revocable = std::mem::take(&mut self.revocable);
            std::mem::forget((threads, revocable, self.pool.take(), self.hooks.take()));
            return;
        }
        let mut shutdown = Shutdown::default();
        while let Some(phase) = shutdown.begin_next() {
            self.shut_down(phase);
        }
        let held = self.table.len();
        Reporter::new(&self.table).report(&Event::DaemonStopped { held });
    }
}

impl Daemon {
    /// One phase of R11: dropping a thread joins it.
    fn shut_down(&mut self, phase: Phase) {
        match phase {
            Phase::EndMoves => {
                drop(self.revocable.detect.take());
                drop(self.movers.take());
            }
            Phase::EndDispatch => {
                self.table.drain_all();
                drop(self.dispatch.take());
            }
            Phase::LeavePlan => self.keeper.leave_plan(),
            Phase::EndPolls => {
                let Some(mut pool) = self.pool.take() else { return };
                let (hurry, progress) = (self.hurry.as_ref(), self.table.shutdown_progress());
                let release_idle = || self.keeper.release_idle();
                if !pool.drain(self.drain_timeout, hurry, progress, release_idle) {
                    self.table.abort_all();
                }
                pool.join_all();
                drop(self.revocable.verify.take()); // R15: polls are verified until the last one has ended
            }
            Phase::PublishRest => {
                drop(self.publish.take());
                drop(self.hooks.take());
            }
            Phase::EndHeartbeat => self.keeper.end_heartbeat(),
            Phase::ReleaseLeases => self.keeper.release_all(),
        }
    }
}
