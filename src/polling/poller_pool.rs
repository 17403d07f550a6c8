//! The poller threads: an elastic pool. A thread is spawned when a job waits and no poller is idle, up to `--workers`, and
//! ends after [`IDLE_FOR`] without a job.
//!
//! A poller that is to end finishes the poll it runs. Nothing waits for it before the end of the daemon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, after, bounded, never, select};
use parking_lot::Mutex;

use crate::clock::{BootClock, Clock, Moment};
use crate::net::shortage;
use crate::polling::job_queue::{JobReceiver, Wake};
use crate::polling::worker::PollWorker;
use crate::thread::fail_stop::FailStop;
use crate::thread::{Stop, StopSource, Thread, stop};

/// Pollers that stay although they are idle.
const POLLERS_MIN: usize = 2;
/// A poller without a job for this long ends.
const IDLE_FOR: Duration = Duration::from_secs(10);
/// A job that a running poll leaves behind within this time needs no new thread. Growth doubles the pool this often.
const GROW_AFTER: Duration = Duration::from_millis(1);
/// After a thread could not be spawned the pool does not grow for this long.
const SPAWN_PAUSE: Duration = Duration::from_secs(30);
/// Stack of a poller. The kernel provides the pages that are touched: a waiting HTTP poll touches about 20 KB.
const STACK_SIZE: usize = 512 * 1024;

/// Threads that poll.
pub struct PollerPool {
    size: Arc<PoolSize>,
    threads: Arc<Mutex<Vec<Thread>>>,
    jobs: JobReceiver,
    /// The thread `pool`, which spawns pollers. Gone when no more are spawned.
    grower: Option<(StopSource, Thread)>,
    /// Every poller holds the other end, and so does the grower.
    gone: Receiver<()>,
}

/// How many pollers there are, and how many there may be.
#[derive(Debug)]
struct PoolSize {
    /// Shared with the metrics.
    alive: Arc<AtomicUsize>,
    max: AtomicUsize,
    /// The same while this host has no more threads: then it is less.
    max_now: AtomicUsize,
}

impl PoolSize {
    /// Whether a poller may end that is one of more than `least`. Then it does not count any more.
    fn may_leave(&self, least: usize) -> bool {
        let leave = |alive: usize| (alive > least).then(|| alive - 1);
        self.alive.fetch_update(Ordering::SeqCst, Ordering::SeqCst, leave).is_ok()
    }

    fn is_excess(&self) -> bool {
        self.may_leave(self.max_now.load(Ordering::SeqCst))
    }

    /// How many pollers to spawn for this many jobs that no poller is free for: at most as many as there are already.
    fn to_spawn(&self, unserved: usize) -> usize {
        let alive = self.alive.load(Ordering::SeqCst);
        let room = self.max_now.load(Ordering::SeqCst).saturating_sub(alive);
        unserved.min(room).min(alive.max(POLLERS_MIN))
    }
}

/// What a new poller needs.
#[derive(Clone)]
struct Spawner {
    worker: PollWorker,
    jobs: JobReceiver,
    here: Sender<()>,
    fail_stop: Arc<FailStop>,
    size: Arc<PoolSize>,
    threads: Arc<Mutex<Vec<Thread>>>,
    idle_for: Duration,
}

impl PollerPool {
    /// A few pollers that do `jobs` as `worker` does, and up to `max` when there is more to do. An error only when not even
    /// one poller can be spawned.
    pub fn start(
        worker: PollWorker,
        jobs: JobReceiver,
        fail_stop: &Arc<FailStop>,
        max: usize,
    ) -> io::Result<Self> {
        Self::start_with(worker, jobs, fail_stop, max, IDLE_FOR)
    }

    /// The same with pollers that end after `idle_for` without a job.
    fn start_with(
        worker: PollWorker,
        jobs: JobReceiver,
        fail_stop: &Arc<FailStop>,
        max: usize,
        idle_for: Duration,
    ) -> io::Result<Self> {
        let (here, gone) = bounded(0);
        let (alive, max_now) = (Arc::clone(worker.threads()), AtomicUsize::new(max));
        let size = Arc::new(PoolSize { alive, max: AtomicUsize::new(max), max_now });
        let threads = Arc::default();
        let spawner = Spawner {
            worker,
            jobs: jobs.clone(),
            here,
            fail_stop: Arc::clone(fail_stop),
            size: Arc::clone(&size),
            threads: Arc::clone(&threads),
            idle_for,
        };
        let mut number = 0;
        while number < POLLERS_MIN.min(max) {
            match spawner.spawn(number) {
                Err(error) if number == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => number += 1,
            }
        }
        let (source, when) = stop();
        let grower = fail_stop.spawn("pool", move || spawner.run(&when, number))?;
        Ok(Self { size, threads, jobs, grower: Some((source, grower)), gone })
    }

    /// How many pollers there are.
    #[cfg(any(test, feature = "__internals"))]
    pub fn len(&self) -> usize {
        self.size.alive.load(Ordering::SeqCst)
    }

    /// Whether there is no poller.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At most `max` pollers from now on.
    pub fn resize(&self, max: usize) {
        self.size.max.store(max, Ordering::SeqCst);
        self.size.max_now.store(max, Ordering::SeqCst);
        self.jobs.ring();
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
        self.grower = None;
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
        self.grower = None;
        let threads = std::mem::take(&mut *self.threads.lock());
        drop(threads);
    }
}

impl Drop for PollerPool {
    fn drop(&mut self) {
        self.join_all();
    }
}

impl Spawner {
    /// The thread `pool`: wakes when a job waits and no poller is idle, and now and then to free what ended pollers
    /// leave behind.
    fn run(self, stop: &Stop, mut number: usize) {
        let mut no_growth_until = Moment::MIN;
        loop {
            select! {
                recv(stop.receiver()) -> _ => return,
                recv(self.jobs.closed().receiver()) -> _ => {
                    let _ = stop.receiver().recv();
                    return;
                }
                recv(self.jobs.shortages()) -> _ => (),
                default(IDLE_FOR) => (),
            }
            self.threads.lock().retain(|it| !it.is_finished());
            let now = BootClock.now();
            if now >= no_growth_until {
                let max = self.size.max.load(Ordering::SeqCst);
                self.size.max_now.store(max, Ordering::SeqCst);
            }
            loop {
                if stop.within(GROW_AFTER) {
                    return;
                }
                let wanted = self.size.to_spawn(self.jobs.unserved());
                let spawned = (0..wanted).try_for_each(|_| {
                    self.spawn(number)?;
                    number += 1;
                    Ok(())
                });
                if let Err(error) = spawned {
                    no_growth_until = BootClock.now() + SPAWN_PAUSE;
                    self.spawn_failed(&error);
                    break;
                }
                if wanted == 0 {
                    break;
                }
            }
        }
    }

    /// Name lookups need threads, too, so the pool gives some back. The job that waited for a thread is deferred: dispatch
    /// then gives out no more than there is room for.
    fn spawn_failed(&self, error: &io::Error) {
        let alive = self.size.alive.load(Ordering::SeqCst);
        self.size.max_now.store((alive * 3 / 4).max(1), Ordering::SeqCst);
        let reason = shortage::of_spawn(error).unwrap_or_else(|| error.to_string());
        if let Some(job) = self.jobs.take() {
            self.worker.defer(job, &reason);
        }
    }

    fn spawn(&self, number: usize) -> io::Result<()> {
        let (worker, jobs, here) = (self.worker.clone(), self.jobs.clone(), self.here.clone());
        let (size, idle_for) = (Arc::clone(&self.size), self.idle_for);
        size.alive.fetch_add(1, Ordering::SeqCst);
        let body = move || {
            let _here = here;
            loop {
                while let Some(job) = jobs.take() {
                    worker.step(job);
                    if size.is_excess() {
                        return;
                    }
                }
                let wake = jobs.wait(idle_for);
                if wake == Wake::Closed {
                    return;
                }
                let is_unused = wake == Wake::Idle && jobs.is_empty();
                if size.is_excess() || (is_unused && size.may_leave(POLLERS_MIN)) {
                    // The wake-up was for a poller that takes the job. Without a job nobody is woken: an idle poller
                    // that is woken begins to wait anew.
                    if !jobs.is_empty() {
                        jobs.ring();
                    }
                    return;
                }
            }
        };
        let name = format!("poller-{number:02}");
        match self.fail_stop.spawn_with_stack(&name, STACK_SIZE, body) {
            Ok(thread) => self.threads.lock().push(thread),
            Err(error) => {
                self.size.alive.fetch_sub(1, Ordering::SeqCst);
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{BootClock, Clock};
    use crate::lease::permit::{PollPermit, Revoked};
    use crate::lease::testing::Holder;
    use crate::model::{Sample, Session};
    use crate::polling::dispatch::PollEnd;
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
        let mut pool = PollerPool::start(thread, receiver.clone(), &FailStop::new(), 2).unwrap();
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

    /// Polls that each wait until the test lets them end.
    struct Gated(crossbeam_channel::Receiver<()>);

    impl Poller for Gated {
        fn poll(&self, _: &Session, _: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
            let _ = self.0.recv();
            Ok(Sample::failed("ended", Duration::ZERO))
        }
    }

    /// Issue 19: threads are spawned when a job waits and none is idle, and no more than there may be.
    #[test]
    fn a_pool_grows_while_jobs_wait_and_not_beyond_its_size() {
        const JOBS: usize = 40;
        let holder = Holder::of(JOBS);
        let (sender, receiver) = jobs();
        let (gate, gated) = bounded(0);
        let (dones, done) = bounded(JOBS);
        let (table, samples) = (Arc::clone(&holder.table), bounded(JOBS).0);
        let worker = PollWorker::new(Arc::new(Gated(gated)), table, samples, dones, bounded(1).0);
        let pool = PollerPool::start(worker, receiver.clone(), &FailStop::new(), 24).unwrap();
        let (sender, gate) = (sender, gate); // dropped before the pool, which waits for its polls
        assert_eq!(pool.len(), POLLERS_MIN, "an idle pool is small");
        let begun = BootClock.now();
        let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(BootClock.now().since(begun) < PATIENCE, "{what}: {} pollers", pool.len());
                std::thread::yield_now();
            }
        };
        sender.put((0..JOBS).map(|it| holder.job(it)));
        wait_for("grows", &|| pool.len() == 24 && receiver.unserved() == JOBS - 24);
        pool.resize(32);
        wait_for("grows further", &|| pool.len() == 32 && receiver.unserved() == JOBS - 32);
        pool.resize(4);
        drop(gate);
        wait_for("ends", &|| done.len() == JOBS);
        wait_for("shrinks", &|| pool.len() == 4);
        drop(sender);
    }

    fn size(alive: usize, max_now: usize) -> PoolSize {
        let [alive, max, max_now] = [alive, max_now, max_now].map(AtomicUsize::new);
        PoolSize { alive: Arc::new(alive), max, max_now }
    }

    #[test]
    fn a_pool_doubles_at_most_and_never_exceeds_its_size() {
        for (alive, max, unserved, spawned) in [
            (0, 24, 40, 2),
            (2, 24, 1, 1),
            (2, 24, 40, 2),
            (16, 24, 40, 8),
            (24, 24, 40, 0),
            (30, 24, 40, 0),
            (16, 24, 0, 0),
        ] {
            assert_eq!(size(alive, max).to_spawn(unserved), spawned, "{alive} {max} {unserved}");
        }
    }

    #[test]
    fn pollers_end_after_a_while_without_a_job() {
        const JOBS: usize = 8;
        let holder = Holder::of(JOBS);
        let (sender, receiver) = jobs();
        let (gate, gated) = bounded(0);
        let (dones, done) = bounded(JOBS);
        let (table, samples) = (Arc::clone(&holder.table), bounded(JOBS).0);
        let worker = PollWorker::new(Arc::new(Gated(gated)), table, samples, dones, bounded(1).0);
        let idle_for = Duration::from_millis(20);
        let pool =
            PollerPool::start_with(worker, receiver, &FailStop::new(), JOBS, idle_for).unwrap();
        let (sender, gate) = (sender, gate); // dropped before the pool, which waits for its polls
        let begun = BootClock.now();
        let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(BootClock.now().since(begun) < PATIENCE, "{what}: {} pollers", pool.len());
                std::thread::yield_now();
            }
        };
        sender.put((0..JOBS).map(|it| holder.job(it)));
        wait_for("grows", &|| pool.len() == JOBS);
        drop(gate);
        wait_for("ends", &|| done.len() == JOBS);
        wait_for("shrinks", &|| pool.len() == POLLERS_MIN);
        drop(sender);
    }

    /// Issue 19: a pool of thousands is small again after one idle time. A poller that ends wakes no other one, which would
    /// begin to wait anew.
    #[test]
    fn idle_pollers_end_together() {
        const JOBS: usize = 200;
        const IDLE: Duration = Duration::from_secs(1);
        let holder = Holder::of(JOBS);
        let (sender, receiver) = jobs();
        let (gate, gated) = bounded(0);
        let (dones, done) = bounded(JOBS);
        let (table, samples) = (Arc::clone(&holder.table), bounded(JOBS).0);
        let worker = PollWorker::new(Arc::new(Gated(gated)), table, samples, dones, bounded(1).0);
        let pool = PollerPool::start_with(worker, receiver, &FailStop::new(), JOBS, IDLE).unwrap();
        let (sender, gate) = (sender, gate); // dropped before the pool, which waits for its polls
        let wait_for = |what: &str, limit: Duration, is_so: &dyn Fn() -> bool| {
            let begun = BootClock.now();
            while !is_so() {
                assert!(BootClock.now().since(begun) < limit, "{what}: {} pollers", pool.len());
                std::thread::yield_now();
            }
        };
        sender.put((0..JOBS).map(|it| holder.job(it)));
        wait_for("grows", PATIENCE, &|| pool.len() == JOBS);
        drop(gate);
        wait_for("ends", PATIENCE, &|| done.len() == JOBS);
        wait_for("shrinks within two idle times", IDLE * 2, &|| pool.len() == POLLERS_MIN);
        drop(sender);
    }

    /// Issue 19: a host without threads makes no result of its own. Dispatch gives the job out again.
    #[test]
    fn a_job_without_a_thread_is_deferred_and_the_pool_gives_threads_back() {
        let holder = Holder::of(2);
        let (sender, jobs) = jobs();
        let (dones, done) = bounded(2);
        let (samples, sampled) = bounded(2);
        let (table, fail_stop) = (Arc::clone(&holder.table), FailStop::new());
        let poller = Arc::new(Gated(bounded(0).1));
        let worker = PollWorker::new(poller, table, samples, dones, bounded(1).0);
        let (size, threads) = (Arc::new(size(8, 24)), Arc::default());
        let here = bounded(0).0;
        let idle_for = IDLE_FOR;
        let spawner =
            Spawner { worker, jobs: jobs.clone(), here, fail_stop, size, threads, idle_for };
        sender.put([holder.job(0), holder.job(1)]);
        spawner.spawn_failed(&io::Error::from_raw_os_error(11));
        let ended = done.try_recv().expect("the job that waited for the thread");
        assert!(matches!(ended.end, PollEnd::NoRoom), "{:?}", ended.end);
        assert!(done.is_empty() && sampled.is_empty() && !jobs.is_empty(), "nothing else");
        assert_eq!(spawner.size.max_now.load(Ordering::SeqCst), 6, "three quarters of 8");
        assert_eq!(spawner.size.max.load(Ordering::SeqCst), 24);
    }
}
