//! The poller threads: as many as there are to be, also when that changes.
//!
//! One that has to go finishes the poll it runs. Nobody waits for it before the end of the daemon.

use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};

use crate::daemon::jobs::JobReceiver;
use crate::daemon::poller::PollerThread;
use crate::daemon::thread::{Stop, StopSource, Thread, stop};

/// Threads that poll.
pub struct Crew {
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
    thread: PollerThread,
    jobs: JobReceiver,
    here: Sender<()>,
}

impl Crew {
    /// Nobody yet, who would do `jobs` as `thread` does.
    pub fn new(thread: PollerThread, jobs: JobReceiver) -> Self {
        let (here, gone) = bounded(0);
        let hiring = Some(Hiring { thread, jobs, here });
        Self { hiring, at_work: Vec::new(), leaving: Vec::new(), gone, next: 0 }
    }

    /// How many there are, without those that are about to go.
    pub fn len(&self) -> usize {
        self.at_work.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.at_work.is_empty()
    }

    /// Hires or lets go until there are `n`.
    pub fn resize(&mut self, n: usize) -> io::Result<()> {
        self.leaving.retain(|it| !it.is_finished());
        while self.at_work.len() > n {
            let Some((stop, thread)) = self.at_work.pop() else { break };
            drop(stop);
            self.leaving.push(thread);
        }
        while let Some(hiring) = self.hiring.as_ref().filter(|_| self.at_work.len() < n) {
            let (stop, when) = stop();
            let thread = hiring.hire(self.next, when)?;
            self.next += 1;
            self.at_work.push((stop, thread));
        }
        Ok(())
    }

    /// Waits, once the job queue is closed, until the last poll has ended. False when some outlast
    /// `patience`.
    pub fn drain(&mut self, patience: Duration) -> bool {
        self.hiring = None;
        self.gone.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }

    /// Waits for all of them.
    pub fn dismiss(&mut self) {
        self.hiring = None;
        self.at_work.clear();
        self.leaving.clear();
    }
}

impl Hiring {
    fn hire(&self, n: usize, when: Stop) -> io::Result<Thread> {
        let (thread, jobs, here) = (self.thread.clone(), self.jobs.clone(), self.here.clone());
        Thread::spawn(&format!("poller-{n:02}"), move || {
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
