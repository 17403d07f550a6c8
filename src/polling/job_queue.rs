//! The queue between dispatch and the pollers. Dispatch puts in many jobs at once and wakes one poller. A poller that takes a
//! job and leaves others wakes the next poller, or tells the pool that no poller is idle.
//!
//! With a channel each job would wake a poller at once. On a busy machine each woken poller takes the core away from
//! dispatch, and dispatch waits behind all of them before it can give out the next jobs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use parking_lot::Mutex;

use crate::polling::dispatch::PollJob;
use crate::thread::{Stop, StopSource, stop};

/// What dispatch, the pollers and their pool share.
#[derive(Debug)]
struct Shared {
    /// Jobs that wait; `None` once there is no sender.
    queue: Mutex<Option<VecDeque<PollJob>>>,
    /// Pollers that wait for a job.
    idle: AtomicUsize,
    /// Wakes one idle poller. One wake-up at a time is enough: the poller that gets it passes it on.
    bell: Sender<()>,
    /// Tells the pool that a job waits and no poller is idle.
    shortage: Sender<()>,
}

impl Shared {
    /// Wakes a poller, or says that there is none to wake. Called after a job was put in or left.
    fn ring(&self) {
        // Read first: the poller that the bell wakes is not idle any more.
        let is_short = self.idle.load(Ordering::SeqCst) == 0;
        let _ = self.bell.try_send(());
        if is_short {
            let _ = self.shortage.try_send(());
        }
    }
}

/// The sending end of the queue. When it is dropped, the queue is closed and waiting jobs are dropped.
#[derive(Debug)]
pub struct JobSender {
    shared: Arc<Shared>,
    _open: StopSource,
}

/// Where they come from, for each poller.
#[derive(Clone, Debug)]
pub struct JobReceiver {
    shared: Arc<Shared>,
    rings: Receiver<()>,
    shortages: Receiver<()>,
    closed: Stop,
}

/// Why a poller that waited for jobs waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There may be jobs.
    Jobs,
    /// It was idle for as long as it wanted to wait.
    Idle,
    /// No more jobs will come.
    Closed,
}

/// An empty queue. It has no bound of its own: dispatch gives out no more than it wants to wait.
pub fn jobs() -> (JobSender, JobReceiver) {
    let (bell, rings) = bounded(1);
    let (shortage, shortages) = bounded(1);
    let (open, closed) = stop();
    let queue = Mutex::new(Some(VecDeque::new()));
    let shared = Arc::new(Shared { queue, idle: AtomicUsize::new(0), bell, shortage });
    let sender = JobSender { shared: Arc::clone(&shared), _open: open };
    (sender, JobReceiver { shared, rings, shortages, closed })
}

impl JobSender {
    /// Puts all of these in before a poller is woken.
    pub fn put(&self, jobs: impl IntoIterator<Item = PollJob>) {
        let is_some = self.shared.queue.lock().as_mut().is_some_and(|queue| {
            queue.extend(jobs);
            !queue.is_empty()
        });
        if is_some {
            self.shared.ring();
        }
    }
}

impl Drop for JobSender {
    fn drop(&mut self) {
        *self.shared.queue.lock() = None;
    }
}

impl JobReceiver {
    /// The next job, if there is one. A poller that takes one and leaves some wakes another.
    pub fn take(&self) -> Option<PollJob> {
        let (job, is_last) = {
            let mut queue = self.shared.queue.lock();
            let queue = queue.as_mut()?;
            (queue.pop_front(), queue.is_empty())
        };
        if !is_last {
            self.shared.ring();
        }
        job
    }

    /// Waits for jobs, as an idle poller, for this long. A poller that has waited in vain looks into the queue once more
    /// before it ends: a job may have been put in while it still counted as idle.
    pub fn wait(&self, patience: Duration) -> Wake {
        self.shared.idle.fetch_add(1, Ordering::SeqCst);
        let wake = select! {
            recv(self.closed.receiver()) -> _ => Wake::Closed,
            recv(self.rings) -> _ => Wake::Jobs,
            default(patience) => Wake::Idle,
        };
        self.shared.idle.fetch_sub(1, Ordering::SeqCst);
        wake
    }

    /// Jobs that wait although every idle poller has one to take.
    pub fn unserved(&self) -> usize {
        let waiting = self.shared.queue.lock().as_ref().map_or(0, VecDeque::len);
        waiting.saturating_sub(self.shared.idle.load(Ordering::SeqCst))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.shared.queue.lock().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Wakes a poller, or tells the pool that none is idle.
    pub fn ring(&self) {
        self.shared.ring();
    }

    /// For a `select!`: a message comes when a job waits and no poller is idle.
    pub fn shortages(&self) -> &Receiver<()> {
        &self.shortages
    }

    /// Says when no more will come.
    pub fn closed(&self) -> &Stop {
        &self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::model::{EndpointId, FenceToken, Session, Tenure, Thresholds};
    use crate::polling::schedule::Due;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn job(n: u64) -> PollJob {
        let session = Session::parse("a", br#"{"id":"a","address":"h:1"}"#).unwrap();
        let second = Duration::from_secs(1);
        let due = Due {
            tenure: Tenure::new(EndpointId::parse("a").unwrap(), FenceToken(n)),
            session: Arc::new(session),
            timeout: second,
            due_at: Moment::MIN,
            next_after_ok: second,
            next_after_failure: second,
            thresholds: Thresholds::default(),
            skipped: None,
        };
        PollJob { due, verified_at: Moment::MIN }
    }

    /// Each poller does one job and none ends before all have one: so every one of them was woken.
    #[test]
    fn as_many_pollers_are_woken_as_there_are_jobs() {
        const POLLERS: u64 = 20;
        let (sender, receiver) = jobs();
        let (took, taken) = bounded(0);
        std::thread::scope(|scope| {
            for _ in 0..POLLERS {
                let (receiver, took) = (receiver.clone(), took.clone());
                scope.spawn(move || {
                    while receiver.wait(PATIENCE) == Wake::Jobs {
                        let Some(job) = receiver.take() else { continue };
                        return took.send(job.due.tenure.fence.0).unwrap();
                    }
                });
            }
            sender.put((0..POLLERS).map(job));
            let mut fences: Vec<u64> =
                (0..POLLERS).map(|_| taken.recv_timeout(PATIENCE).unwrap()).collect();
            fences.sort_unstable();
            assert_eq!(fences, (0..POLLERS).collect::<Vec<_>>());
        });
        assert!(receiver.is_empty());
    }

    #[test]
    fn jobs_come_in_the_order_of_their_turns_and_no_more_once_it_is_closed() {
        let (sender, receiver) = jobs();
        sender.put([]);
        assert!(receiver.rings.is_empty(), "nobody is woken for nothing");
        sender.put([job(1), job(2)]);
        sender.put([job(3)]);
        let taken: Vec<u64> =
            std::iter::from_fn(|| receiver.take()).map(|it| it.due.tenure.fence.0).collect();
        assert_eq!(taken, [1, 2, 3]);
        assert!(!receiver.closed().is_over());
        sender.put([job(4)]);
        drop(sender);
        assert!(receiver.closed().is_over());
        assert!(receiver.take().is_none(), "what was still waiting is forgotten");
    }

    #[test]
    fn the_pool_is_told_when_a_job_waits_and_no_poller_is_idle() {
        let (sender, receiver) = jobs();
        sender.put([job(1), job(2)]);
        assert!(receiver.shortages().try_recv().is_ok(), "nobody is there");
        assert_eq!((receiver.unserved(), receiver.is_empty()), (2, false));
        receiver.shared.idle.store(1, Ordering::SeqCst);
        assert_eq!(receiver.unserved(), 1, "an idle poller takes the other");
        receiver.shared.idle.store(0, Ordering::SeqCst);
        receiver.take().unwrap();
        assert!(receiver.shortages().try_recv().is_ok(), "one is left");
        receiver.take().unwrap();
        assert!(receiver.shortages().is_empty() && receiver.is_empty());
        assert_eq!(receiver.wait(Duration::ZERO), Wake::Jobs, "the ring of before is heard first");
        assert_eq!(receiver.wait(Duration::ZERO), Wake::Idle);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| receiver.wait(PATIENCE));
            while receiver.shared.idle.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            sender.put([job(3)]);
            assert_eq!(waiting.join().unwrap(), Wake::Jobs);
        });
        assert!(receiver.shortages().is_empty(), "an idle poller was woken");
    }
}
