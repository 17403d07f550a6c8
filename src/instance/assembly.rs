//! Wires one instance: every stage, queue and channel, without a thread. There is no other wiring.
//!
//! [`Daemon`](crate::Daemon) puts a thread around each part. The in-memory cluster of the tests and the simulator drive
//! the same parts, one step at a time, on a clock of their own.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::clock::Clock;
use crate::config::{CheckedConfig, Config};
use crate::fleet::failure_detector::FailureDetector;
use crate::fleet::reconcile::Reconcile;
use crate::lease::keeper::{self, Connections};
use crate::lease::parts::LeaseParts;
use crate::lease::watch::{Nudge, Watch};
use crate::model::InstanceId;
use crate::polling::dispatch::{Dispatch, Inbox};
use crate::polling::intervals::PollIntervals;
use crate::polling::job_queue::{JobReceiver, jobs};
use crate::polling::outbox::Outbox;
use crate::polling::poller::Poller;
use crate::polling::publisher::Publisher;
use crate::polling::reverify::Reverifier;
use crate::polling::worker::PollWorker;
use crate::store::{Changes, Push};

const CHANGES_MAX: usize = 1_024;
const NUDGES_MAX: usize = 256;

/// Whether a full queue blocks its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// Backpressure: each part has a thread of its own, which waits.
    Bounded,
    /// For a single thread that drives all parts: it cannot wait for itself.
    #[cfg(any(test, feature = "__internals"))]
    Unbounded,
}

impl Queues {
    fn channel<T>(self, capacity: usize) -> (Sender<T>, Receiver<T>) {
        match self {
            Self::Bounded => bounded(capacity),
            #[cfg(any(test, feature = "__internals"))]
            Self::Unbounded => crossbeam_channel::unbounded(),
        }
    }
}

/// Every part of an instance, in the order data flows.
pub struct Parts {
    /// Keeps leases.
    pub lease: LeaseParts,
    /// Receives what the store and other instances push.
    pub watch: Watch,
    /// Decides ownership.
    pub reconcile: Reconcile,
    /// Revokes instances that look dead.
    pub detector: FailureDetector,
    /// Gives out polls that are due.
    pub dispatch: Dispatch,
    /// Verifies the leases of polls that run.
    pub reverifier: Reverifier,
    /// Polls; one clone for each thread.
    pub worker: PollWorker,
    /// The polls that were given out.
    pub jobs: JobReceiver,
    /// Stores results.
    pub publisher: Publisher,
    /// Tells dispatch of other intervals and another number of pollers.
    pub intervals: Sender<(PollIntervals, usize)>,
}

/// Wires an instance with these settings, on these connections and this clock.
pub fn assemble(
    config: &CheckedConfig,
    me: InstanceId,
    clock: Arc<dyn Clock>,
    connections: &Connections,
    poller: Arc<dyn Poller>,
    queues: Queues,
) -> Parts {
    let table = keeper::polling_table(config, me, clock);
    let share = || Arc::clone(&table);
    let (nudges, nudged) = queues.channel(NUDGES_MAX);
    let (to_dispatch, lease_changes) = queues.channel(CHANGES_MAX);
    let (jobs, to_do) = jobs();
    // Room for as many as there can ever be: their number may change.
    let (dones, done) = queues.channel(2 * Config::WORKERS_MAX);
    let (intervals, intervals_rx) = queues.channel(1);
    let (samples, sampled) = queues.channel(Outbox::CAPACITY);
    let lease = LeaseParts::assemble(config, &table, connections);
    let inbox = Inbox { lease_changes, dones: done, intervals: intervals_rx };
    let (quick_check_interval, drain_timeout) = (config.reconcile_interval, config.drain_timeout);
    let store = Arc::clone(&connections.dispatch);
    let dispatch = Dispatch::new(store, share(), PollIntervals::of(config), jobs, config.workers)
        .reporting(&lease.reporter)
        .fed_by(inbox);
    let store = Arc::clone(&connections.publish);
    let publisher = Publisher::new(store, share(), sampled, nudges.clone());
    let worker = PollWorker::new(poller, share(), samples, dones, nudges.clone());
    let store = Arc::clone(&connections.reconcile);
    let reconcile =
        Reconcile::new(store, share(), to_dispatch, quick_check_interval, drain_timeout)
            .reporting(&lease.reporter)
            .nudged_by(nudged);
    let store = Arc::clone(&connections.detect);
    let (live, suspect_after) = (reconcile.live_instances(), config.suspect_after);
    let detector = FailureDetector::new(store, share(), &lease.reporter, live, suspect_after);
    let reverifier = Reverifier::new(Arc::clone(&connections.verify), share(), &lease.reporter);
    let watch = watch(connections, &lease, nudges);
    let jobs = to_do;
    Parts {
        lease,
        watch,
        reconcile,
        detector,
        dispatch,
        reverifier,
        worker,
        jobs,
        publisher,
        intervals,
    }
}

fn watch(connections: &Connections, lease: &LeaseParts, nudges: Sender<Nudge>) -> Watch {
    let heartbeat_now = lease.heartbeat_now.clone();
    let (me, timeout) = (lease.table.instance().clone(), lease.table.timings().store_timeout);
    let nudge = move |nudge: Nudge| {
        if let Nudge::Push(Push::Changed(Changes { drain: true, .. }) | Push::Everything) = &nudge {
            // A drained instance says so with its next heartbeat. One request that waits is enough.
            let _ = heartbeat_now.try_send(());
        }
        // Blocks while reconcile is busy: a dropped nudge could be missed for minutes. The server closes a subscription
        // that is not read, and then everything is read again.
        let _ = nudges.send(nudge);
    };
    Watch::new(Arc::clone(&connections.rest), me, timeout, nudge)
}
