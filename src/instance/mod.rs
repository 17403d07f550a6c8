//! The threads: the only place that spawns, waits, or wires stages together.
//!
//! | thread | wakes on | reads | writes | sends |
//! |---|---|---|---|---|
//! | `heartbeat` | tick, a change of `poll:drain` | | Redis `poll:node`; table | |
//! | `renewal` | lease due, retry | table | Redis leases; table | |
//! | `expiry` | next deadline | table | table; aborts polls | |
//! | `watch` | push from Redis | Redis: touched keys, words | | `Nudge` → reconcile, a nudge → heartbeat |
//! | `reconcile` | tick, nudge, the end of a key (R9), fallback due, end of a hold-off | Redis; table | Redis leases; table | `LeaseChange` → dispatch |
//! | `dispatch` | change, poll done, next due; a few ms after the last time at the soonest, unless pollers would run out of jobs | table; Redis (verify) | its schedule | `PollJob` → pollers |
//! | `poller-NN` | job | table (permit) | the endpoint | `Polled` → publish, `PollDone` → dispatch, `Nudge` → reconcile |
//! | `publish` | result; a few ms after the last time at the soonest | table | Redis results (fenced) | `Nudge` → reconcile |
//! | `history` | something became of a lease | its queue | Redis `poll:history` | |
//! | `watchdog` | tick, under systemd | progress of the threads; table | the manager's socket | |
//! | `metrics` | tick | what was counted; table | the metrics file | |
//! | `metrics-http` | a client on this host | the same | the client | |
//! | `main` | signals | | pollers, weight (`reload`) | pace → dispatch; at the end nothing: drops the stop sources |
//!
//! Every channel is bounded. `changes` blocks reconcile, which nothing safety depends on waits for;
//! `jobs` has only what dispatch wants to wait (`window.rs`); `dones` fits every job given out;
//! `notes` drops what does not fit, and counts it; `samples` blocks pollers; `nudges` blocks watch, which must not miss anything, and drops what pollers say.

pub mod exposition;
pub mod metrics_file;
pub mod metrics_http;
pub mod state_file;
pub mod status_line;
pub mod systemd;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, select};

use crate::clock::{BootClock, Clock};
use crate::config::Config;
use crate::event::Event;
use crate::fleet::lease_change::LeaseChange;
use crate::fleet::reconcile::Reconcile;
use crate::instance::exposition::Exposition;
use crate::instance::metrics_file::MetricsFile;
use crate::instance::metrics_http::MetricsHttp;
use crate::lease::keeper;
use crate::lease::keeper::{Connections, LeaseKeeper, StartError};
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::lease::watch::Nudge;
use crate::lease::watch::Watch;
use crate::model::{InstanceId, Weight};
use crate::polling::dispatch::{Dispatch, PollDone};
use crate::polling::job_queue::jobs;
use crate::polling::poller::Poller;
use crate::polling::poller_pool::PollerPool;
use crate::polling::publish::Outbox;
use crate::polling::publisher::Publisher;
use crate::polling::schedule::PollIntervals;
use crate::polling::worker::PollWorker;
use crate::store::{Changes, Push, Store};
use crate::thread::fail_stop::{FailStop, Failure};
use crate::thread::liveness::{Actor, Liveness};
use crate::thread::{Stop, StopSource, Thread, stop, stop_with_wire};

const CHANGES_MAX: usize = 1_024;
const NUDGES_MAX: usize = 256;

/// One running instance, until it is stopped or dropped.
pub struct Daemon {
    table: Arc<OwnershipTable>,
    drain_timeout: Duration,
    hurry: Option<Stop>,
    keeper: LeaseKeeper,
    movers: Option<(StopSource, Vec<Thread>)>,
    dispatch: Option<(StopSource, Thread)>,
    pool: Option<PollerPool>,
    paces: Sender<(PollIntervals, usize)>,
    publish: Option<(StopSource, Thread)>,
    liveness: Arc<Liveness>,
    exposition: Arc<Exposition>,
    // Last: what ends is shown to the end.
    _metrics: (Option<MetricsHttp>, Option<MetricsFile>),
}

impl Daemon {
    /// Starts an instance on the Redis of `config`, which is checked ([`Config::checked`]); waits for a Redis that is
    /// away, until told to stop.
    pub fn start_redis(
        config: &Config,
        poller: Arc<dyn Poller>,
        until: &Stop,
    ) -> Result<Self, StartError> {
        let config = &config.clone().checked()?;
        let connections = Connections::redis(config);
        let me = InstanceId::generate_now(&config.host_name);
        Self::start(config, me, Arc::new(BootClock), &connections, poller, until)
    }

    /// The same on stores and a clock of one's own.
    pub fn start(
        config: &Config,
        me: InstanceId,
        clock: Arc<dyn Clock>,
        connections: &Connections,
        poller: Arc<dyn Poller>,
        until: &Stop,
    ) -> Result<Self, StartError> {
        let config = &config.clone().checked()?;
        let table = keeper::table(config, me, clock);
        let liveness = Arc::new(Liveness::default());
        let (name, workers) = (config.metrics_name(), config.workers);
        let exposition =
            Exposition::of_instance(name, &table, &liveness, &connections.failures, workers);
        let exposition = Arc::new(exposition);
        // Before the store is waited for: that it is away is worth showing.
        let metrics = (
            MetricsHttp::of(config, table.instance(), &exposition)?,
            MetricsFile::of(config, table.instance(), &exposition)?,
        );
        let keeper = LeaseKeeper::start(config, &table, connections, &liveness, Some(until))?;
        // Whatever fails below, what runs already is stopped in the right order: the locals that hold
        // ends of channels go first, then this.
        let mut daemon = Self {
            table: Arc::clone(&table),
            drain_timeout: config.drain_timeout,
            hurry: None,
            keeper,
            movers: None,
            dispatch: None,
            pool: None,
            paces: bounded(0).0,
            publish: None,
            liveness: Arc::clone(&liveness),
            exposition,
            _metrics: metrics,
        };
        let (nudges, nudged) = bounded(NUDGES_MAX);
        let (changes, changed) = bounded(CHANGES_MAX);
        let (jobs, to_do) = jobs();
        // Room for as many as there can ever be: their number may change.
        let (dones, done) = bounded(2 * Config::WORKERS_MAX);
        let (paces, paced) = bounded(1);
        daemon.paces = paces;
        let (samples, sampled) = bounded(Outbox::CAPACITY);
        let line = Arc::clone(&connections.dispatch);
        let reporter = daemon.keeper.reporter();
        let dispatch = Dispatch::new(line, Arc::clone(&table), pace(config), jobs, config.workers)
            .reporting(&reporter);
        let (polling, when) = stop();
        let heard = Inbox { changes: changed, dones: done, paces: paced };
        let fail_stop = Arc::clone(daemon.keeper.fail_stop());
        let dispatching = run_dispatch(dispatch, heard, &liveness, when, &fail_stop)?;
        daemon.dispatch = Some((polling, dispatching));
        let line = Arc::clone(&connections.publish);
        let publisher = Publisher::new(line, Arc::clone(&table), sampled, nudges.clone());
        let (publishing, when) = stop();
        let publish = fail_stop.spawn("publish", move || publisher.run(&when))?;
        daemon.publish = Some((publishing, publish));
        let thread = PollWorker::new(poller, Arc::clone(&table), samples, dones, nudges.clone());
        daemon.pool = Some(PollerPool::new(thread, to_do, &fail_stop));
        let (moving, when, wire) = stop_with_wire()?;
        let movers = &mut daemon.movers.insert((moving, Vec::new())).1;
        let beat_now = daemon.keeper.beat_now();
        let watch = watching(&connections.rest, &table, nudges, beat_now).woken_by(wire);
        movers.push(run_watch(watch, when.clone(), &fail_stop)?);
        let line = Arc::clone(&connections.reconcile);
        let (tick, patience) = (config.reconcile_interval, config.drain_timeout);
        let reconcile = Reconcile::new(line, table, changes, tick, patience).reporting(&reporter);
        movers.push(run_reconcile(reconcile, nudged, liveness, when, &fail_stop)?);
        // Last: where there are few threads, pollers are what can be done without.
        daemon.employ(config)?;
        Ok(daemon)
    }

    /// Goes on with other settings: interval, timeout, light polling, workers and weight. The rest of
    /// `config` is as it was, or comes with the next start.
    pub fn reload(&mut self, config: &Config) -> io::Result<()> {
        let config = &config.clone().checked().map_err(io::Error::other)?;
        self.employ(config)?;
        self.keeper.set_weight(Weight(config.weight));
        Ok(())
    }

    /// Has as many pollers as `config` says, or as this host has threads for, and tells dispatch how many there are.
    fn employ(&mut self, config: &Config) -> io::Result<()> {
        let Some(pool) = &mut self.pool else { return Ok(()) };
        let pollers = pool.resize(config.workers)?;
        if pollers < config.workers {
            let reason = format!(
                "only {pollers} of --workers {} could be started: this host has no more threads for \
                 this process (TasksMax= in the unit, ulimit -u)",
                config.workers
            );
            Reporter::new(&self.table).say(&Event::SettingsOdd { reason: &reason });
        }
        // Waits while dispatch is still busy with the one before. Nobody there: this is the end.
        let _ = self.paces.send((pace(config), pollers));
        Ok(())
    }

    /// When this is over, a stop aborts the polls that still run instead of waiting for them.
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
    pub fn table(&self) -> &Arc<OwnershipTable> {
        &self.table
    }

    /// How its threads are.
    pub fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    /// What it has to show in numbers.
    pub fn exposition(&self) -> &Arc<Exposition> {
        &self.exposition
    }

    /// Stops it. Dropping does the same.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Daemon {
    /// R11: the order is the safety argument. No poll outlives the renewal of its lease, and nobody
    /// counts us any more when the leases become free.
    fn drop(&mut self) {
        if !self.table.is_of_this_process() {
            // A child that was forked: none of these threads is its own.
            let threads = (self.movers.take(), self.dispatch.take(), self.publish.take());
            std::mem::forget((threads, self.pool.take()));
            return;
        }
        drop(self.movers.take()); // reconcile and watch: nothing new is acquired
        for endpoint in self.table.endpoints() {
            self.table.drain(&endpoint); // queued jobs get no permit any more
        }
        drop(self.dispatch.take()); // takes the job queue with it: pollers end after the poll they run
        if let Some(mut pool) = self.pool.take() {
            if !pool.drain(self.drain_timeout, self.hurry.as_ref()) {
                self.table.abort_all();
            }
            pool.join_all();
        }
        drop(self.publish.take()); // the last results, while the leases are still ours
        self.keeper.end_heartbeat();
        self.keeper.release_all();
        let held = self.table.len();
        Reporter::new(&self.table).say(&Event::DaemonStopped { held });
    }
}

fn pace(config: &Config) -> PollIntervals {
    PollIntervals {
        interval: config.interval,
        timeout: config.timeout,
        light_after: config.light_after,
        light_interval: config.light_interval,
    }
}

/// What dispatch listens to.
struct Inbox {
    changes: Receiver<LeaseChange>,
    dones: Receiver<PollDone>,
    paces: Receiver<(PollIntervals, usize)>,
}

fn run_dispatch(
    mut dispatch: Dispatch,
    inbox: Inbox,
    liveness: &Arc<Liveness>,
    when: Stop,
    fail_stop: &Arc<FailStop>,
) -> io::Result<Thread> {
    let liveness = Arc::clone(liveness);
    fail_stop.spawn("dispatch", move || {
        let Inbox { mut changes, dones, mut paces } = inbox;
        loop {
            liveness.mark(Actor::Dispatch, dispatch.now());
            let due = after(dispatch.step());
            if when.within(dispatch.rest()) {
                return;
            }
            select! {
                recv(when.receiver()) -> _ => return,
                // Reconcile has ended: what is held is still polled until we are told to stop.
                recv(changes) -> change => match change {
                    Ok(change) => dispatch.change(change),
                    Err(_) => changes = crossbeam_channel::never(),
                },
                recv(paces) -> pace => match pace {
                    Ok((pace, workers)) => dispatch.set_pace(pace, workers),
                    Err(_) => paces = crossbeam_channel::never(),
                },
                recv(dones) -> done => done.iter().for_each(|it| dispatch.done(it)),
                recv(due) -> _ => (),
            }
            changes.try_iter().take(CHANGES_MAX).for_each(|it| dispatch.change(it));
            dones.try_iter().take(CHANGES_MAX).for_each(|it| dispatch.done(&it));
        }
    })
}

fn watching(
    line: &Arc<dyn Store>,
    table: &Arc<OwnershipTable>,
    nudges: Sender<Nudge>,
    beat_now: Sender<()>,
) -> Watch {
    let (me, timeout) = (table.instance().clone(), table.timings().store_timeout);
    let nudge = move |nudge: Nudge| {
        if let Nudge::Push(Push::Changed(Changes { drain: true, .. }) | Push::Everything) = &nudge {
            // Who is to hold nothing is said by the beat. One that waits already is enough.
            let _ = beat_now.try_send(());
        }
        // Waits while reconcile is busy: what was dropped here could be missed for minutes. The server
        // hangs up on an ear that does not listen, and then everything is looked at.
        let _ = nudges.send(nudge);
    };
    Watch::new(Arc::clone(line), me, timeout, nudge)
}

fn run_watch(mut watch: Watch, when: Stop, fail_stop: &Arc<FailStop>) -> io::Result<Thread> {
    fail_stop.steps("watch", when, move || watch.step())
}

fn run_reconcile(
    mut reconcile: Reconcile,
    nudges: Receiver<Nudge>,
    liveness: Arc<Liveness>,
    when: Stop,
    fail_stop: &Arc<FailStop>,
) -> io::Result<Thread> {
    fail_stop.spawn("reconcile", move || {
        let mut heard: Vec<Nudge> = Vec::new();
        loop {
            liveness.mark(Actor::Reconcile, reconcile.now());
            let due = after(reconcile.step(&heard));
            if reconcile.is_ready() {
                liveness.mark_ready();
            }
            heard.clear();
            select! {
                recv(when.receiver()) -> _ => return,
                recv(nudges) -> nudge => heard.extend(nudge),
                recv(due) -> _ => (),
            }
            heard.extend(nudges.try_iter().take(NUDGES_MAX));
        }
    })
}
