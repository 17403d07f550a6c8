//! The queue between dispatch and the pollers. Many jobs are put in at once, and then one poller is woken, who wakes
//! the next as long as there are more.
//!
//! With a channel each job wakes a poller, and on a machine that is busy each of these takes the core away from
//! dispatch, which then waits behind all of them to give out the next: the pollers went without jobs for that long.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use crate::polling::dispatch::PollJob;
use crate::thread::{Stop, StopSource, stop};

/// What waits; nothing will any more once there is no sender.
type Queue = Arc<Mutex<Option<VecDeque<PollJob>>>>;

/// Where jobs go. Dropping it is the word that no more will come; what is still waiting is forgotten.
#[derive(Debug)]
pub struct JobSender {
    queue: Queue,
    bell: Sender<()>,
    _open: StopSource,
}

/// Where they come from, for as many as there are to do them.
#[derive(Clone, Debug)]
pub struct JobReceiver {
    queue: Queue,
    bell: Sender<()>,
    rings: Receiver<()>,
    closed: Stop,
}

/// An empty queue. It has no bound of its own: dispatch gives out no more than it wants to wait.
pub fn jobs() -> (JobSender, JobReceiver) {
    let queue = Arc::new(Mutex::new(Some(VecDeque::new())));
    // One wake-up is enough: the poller that gets it passes it on.
    let (bell, rings) = bounded(1);
    let (open, closed) = stop();
    let sender = JobSender { queue: Arc::clone(&queue), bell: bell.clone(), _open: open };
    (sender, JobReceiver { queue, bell, rings, closed })
}

impl JobSender {
    /// Puts all of these in before anybody is woken.
    pub fn put(&self, jobs: impl IntoIterator<Item = PollJob>) {
        let is_some = self.queue.lock().as_mut().is_some_and(|queue| {
            queue.extend(jobs);
            !queue.is_empty()
        });
        if is_some {
            let _ = self.bell.try_send(());
        }
    }
}

impl Drop for JobSender {
    fn drop(&mut self) {
        *self.queue.lock() = None;
    }
}

impl JobReceiver {
    /// The next job, if there is one. A poller that takes one and leaves some wakes another.
    pub fn take(&self) -> Option<PollJob> {
        let (job, is_last) = {
            let mut queue = self.queue.lock();
            let queue = queue.as_mut()?;
            (queue.pop_front(), queue.is_empty())
        };
        if !is_last {
            // A ring that was not heard yet will be, and after this: its hearer sees what is left.
            let _ = self.bell.try_send(());
        }
        job
    }

    /// Whether nothing waits.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_empty(&self) -> bool {
        self.queue.lock().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// For a `select!`: rings when there may be jobs.
    pub fn rings(&self) -> &Receiver<()> {
        &self.rings
    }

    /// Says when no more will come.
    pub fn closed(&self) -> &Stop {
        &self.closed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Moment;
    use crate::model::{EndpointId, FenceToken, Session, Tenure};
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
                    while receiver.rings().recv_timeout(PATIENCE).is_ok() {
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
        assert!(receiver.rings().is_empty(), "nobody is woken for nothing");
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
}
