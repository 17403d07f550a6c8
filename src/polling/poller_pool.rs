//! The poller threads: as many as there are to be, also when that changes.
//!
//! One that has to go finishes the poll it runs. Nobody waits for it before the end of the daemon.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, after, bounded, never, select};

use crate::polling::job_queue::JobReceiver;
use crate::polling::worker::PollWorker;
use crate::thread::fail_stop::FailStop;
use crate::thread::{Stop, StopSource, Thread, stop};

/// Threads that poll.
pub struct PollerPool {
    hiring: Option<Hiring>,
    at_work: Vec<(StopSource, Thread)>,
    /// Told to go; each ends after the poll it runs.
    leaving: Vec<Thread>,
    /// Every poller holds the other end.
    gone: Receiver<()>,
    /// Of the next; names are not used twice.
    next: usize,
}

/// What a new poller needs. Gone when nobody is hired any more: it holds ends of channels.
struct Hiring {
    thread: PollWorker,
    jobs: JobReceiver,
    here: Sender<()>,
    fail_stop: Arc<FailStop>,
}

impl PollerPool {
    /// Nobody yet, who would do `jobs` as `thread` does.
    pub fn new(thread: PollWorker, jobs: JobReceiver, fail_stop: &Arc<FailStop>) -> Self {
        let (here, gone) = bounded(0);
        let hiring = Some(Hiring { thread, jobs, here, fail_stop: Arc::clone(fail_stop) });
        Self { hiring, at_work: Vec::new(), leaving: Vec::new(), gone, next: 0 }
    }

    /// How many there are, without those that are about to go.
    #[cfg(any(test, feature = "__internals"))]
    pub fn len(&self) -> usize {
        self.at_work.len()
    }

    /// Whether there is nobody.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_empty(&self) -> bool {
        self.at_work.is_empty()
    }

    /// Hires or lets go until there are `n`, or as many as this host has threads for: how many there are then. An
    /// error only when there is nobody.
    pub fn resize(&mut self, n: usize) -> io::Result<usize> {
        self.leaving.retain(|it| !it.is_finished());
        self.shrink(n);
        while let Some(hiring) = self.hiring.as_ref().filter(|_| self.at_work.len() < n) {
            let (stop, when) = stop();
            match hiring.spawn_worker(self.next, when) {
                Ok(thread) => self.at_work.push((stop, thread)),
                Err(error) if self.at_work.is_empty() => return Err(error),
                Err(_) => {
                    // Name lookups, and whatever else is started later, need threads, too.
                    self.shrink((self.at_work.len() * 3 / 4).max(1));
                    break;
                }
            }
            self.next += 1;
        }
        Ok(self.at_work.len())
    }

    /// Lets go of all but the first `n`.
    fn shrink(&mut self, n: usize) {
        while self.at_work.len() > n {
            let Some((stop, thread)) = self.at_work.pop() else { break };
            drop(stop);
            self.leaving.push(thread);
        }
    }

    /// Waits, once the job queue is closed, until the last poll has ended, and calls `release_idle` at every `progress`
    /// meanwhile. False when some polls outlast `patience`, or an operator is in a hurry.
    pub fn drain(
        &mut self,
        patience: Duration,
        hurry: Option<&Stop>,
        progress: &Receiver<()>,
        mut release_idle: impl FnMut(),
    ) -> bool {
        self.hiring = None;
        let (nobody, impatience) = (never(), after(patience));
        loop {
            // Nothing is ever sent to `gone`: it is over when the last poller has dropped its end.
            select! {
                recv(self.gone) -> _ => return true,
                recv(hurry.map_or(&nobody, Stop::receiver)) -> _ => break,
                recv(impatience) -> _ => break,
                recv(progress) -> _ => release_idle(),
            }
        }
        self.gone.try_recv() != Err(TryRecvError::Empty)
    }

    /// Waits for all of them.
    pub fn join_all(&mut self) {
        self.hiring = None;
        self.at_work.clear();
        self.leaving.clear();
    }
}

impl Hiring {
    fn spawn_worker(&self, n: usize, when: Stop) -> io::Result<Thread> {
        let (thread, jobs, here) = (self.thread.clone(), self.jobs.clone(), self.here.clone());
        self.fail_stop.spawn(&format!("poller-{n:02}"), move || {
            let _here = here;
            loop {
                select! {
                    recv(when.receiver()) -> _ => return,
                    recv(jobs.closed().receiver()) -> _ => return,
                    recv(jobs.rings()) -> _ => (),
                }
                while let Some(job) = jobs.take() {
                    thread.step(job);
                    if when.is_over() {
                        return;
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{BootClock, Clock};
    use crate::lease::permit::{PollPermit, Revoked};
    use crate::model::{Sample, Session};
    use crate::polling::holder::Holder;
    use crate::polling::job_queue::jobs;
    use crate::polling::poller::Poller;

    /// For what happens at once, or never.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Polls until it is aborted.
    struct Endless;

    impl Poller for Endless {
        fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
            let (source, aborted) = stop();
            permit.abort().arm(move || drop(source));
            let _ = aborted.receiver().recv();
            Err(Revoked)
        }
    }

    /// R11: a hurry aborts the polls that run; `Daemon` does the rest of the shutdown.
    #[test]
    fn a_hurry_ends_the_wait_for_polls_that_run_and_nothing_else_does() {
        let holder = Holder::of(1);
        let (sender, receiver) = jobs();
        let (dones, done) = bounded(1);
        let (table, samples) = (Arc::clone(&holder.table), bounded(1).0);
        let thread = PollWorker::new(Arc::new(Endless), table, samples, dones, bounded(1).0);
        let mut pool = PollerPool::new(thread, receiver.clone(), &FailStop::new());
        assert_eq!(pool.resize(2).unwrap(), 2);
        sender.put([holder.job(0)]);
        while !receiver.is_empty() {
            std::thread::yield_now();
        }
        drop(sender);
        let (source, hurry) = stop();
        let drain =
            |pool: &mut PollerPool, patience| pool.drain(patience, Some(&hurry), &never(), || ());
        let is_over = drain(&mut pool, Duration::from_millis(50));
        drop(source);
        let begun = BootClock.now();
        let is_over_in_a_hurry = drain(&mut pool, PATIENCE);
        let took = BootClock.now().since(begun);
        let was_running = done.is_empty();
        // Before anything is asserted: dropping the pool waits for its polls.
        holder.table.abort_all();
        assert!(done.recv_timeout(PATIENCE).is_ok());
        assert!(!is_over && !is_over_in_a_hurry && was_running, "it runs until it is aborted");
        assert!(took < PATIENCE, "nobody waits for it: {took:?}");
        pool.join_all();
        assert!(drain(&mut pool, Duration::ZERO), "there is nobody left");
    }
}
