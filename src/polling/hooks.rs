//! What runs when a verdict changes (`--on-change`)? A program for each change that a result of this instance caused.
//!
//! Best-effort and bounded: nothing that polls, publishes or keeps a lease waits for it. Changes of one endpoint run one after
//! another, on one of a few threads. A program runs only while this instance has the lease that the change was stored under: an
//! old owner must not tell of a change when the next owner may have told of a later one. The stream `poll:changes` has them all.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::CheckedConfig;
use crate::event::Event;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::model::{Change, LeaseDuration, spread};
use crate::net::shortage::{COMMAND_POLL, Descriptors};
use crate::net::wait::plain;
use crate::polling::program::{Ending, Program};
use crate::store::announcement;
use crate::thread::fail_stop::FailStop;
use crate::thread::{Stop, StopSource, Thread, stop};

/// Programs that run at a time.
const THREADS: usize = 4;
/// Changes that wait for one of the threads.
const WAITING_MAX: usize = 250;
/// The right to run is looked at so often.
const LOOK: Duration = Duration::from_millis(20);
/// The pause before the first further attempt. Each pause is twice as long as the one before, up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Programs that use select(2) fail above this soft limit of open files, and ours may have been raised.
const SOFT_FILES: u64 = 1_024;

/// The threads `hook-N`: each wakes on a change.
pub struct Hooks {
    queues: Vec<Sender<Change>>,
    dropped: Arc<AtomicU64>,
}

/// Threads, and what ends them.
pub type Running = (StopSource, Vec<Thread>);

/// Why a program is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// This instance no longer has the lease.
    Lost,
    Late,
    Stopped,
}

impl Hooks {
    /// Starts the threads, if there is a program to run.
    pub(crate) fn start(
        config: &CheckedConfig,
        table: &Arc<OwnershipTable>,
        fail_stop: &Arc<FailStop>,
    ) -> io::Result<Option<(Self, Running)>> {
        let Some(words) = &config.on_change.command else { return Ok(None) };
        let shortest = config.lease_ttl.min(config.heartbeat_ttl);
        let program = Arc::new(Program {
            words: words.clone(),
            supervisor: std::env::current_exe()?,
            body_max: 0,
            // TERM, then KILL, and all of it before another instance could be granted the lease.
            grace: LeaseDuration::new(shortest).margin() / 2,
            soft_files: Some(SOFT_FILES),
        });
        let (source, when) = stop();
        let (dropped, mut queues, mut threads) = (Arc::<AtomicU64>::default(), vec![], vec![]);
        for n in 0..THREADS {
            let (queue, changes) = bounded(WAITING_MAX);
            let runner = Runner {
                program: Arc::clone(&program),
                timeout: config.on_change.timeout,
                retries: config.on_change.retries,
                database: config.redis.database(),
                table: Arc::clone(table),
                reporter: Reporter::new(table),
                changes,
                dropped: Arc::clone(&dropped),
                stop: when.clone(),
            };
            queues.push(queue);
            threads.push(fail_stop.spawn(&format!("hook-{n}"), move || runner.run())?);
        }
        Ok(Some((Self { queues, dropped }, (source, threads))))
    }

    /// Queues a change. Never waits: one that does not fit is counted.
    pub(crate) fn put(&self, change: Change) {
        let at = spread(change.tenure.endpoint.as_str(), self.queues.len() as u64);
        let queue = &self.queues[usize::try_from(at).unwrap_or(0)];
        if let Err(TrySendError::Full(_)) = queue.try_send(change) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One of the threads.
struct Runner {
    program: Arc<Program>,
    timeout: Duration,
    retries: u32,
    database: u32,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    changes: Receiver<Change>,
    dropped: Arc<AtomicU64>,
    stop: Stop,
}

impl Runner {
    fn run(self) {
        loop {
            select! {
                recv(self.stop.receiver()) -> _ => break,
                recv(self.changes) -> change => match change {
                    Ok(change) => self.handle(&change),
                    Err(_) => break,
                },
            }
            if self.changes.is_empty() {
                self.tell_dropped();
            }
        }
        let left = self.changes.try_iter().count();
        self.dropped.fetch_add(left as u64, Ordering::Relaxed);
        self.tell_dropped();
    }

    fn tell_dropped(&self) {
        let changes = self.dropped.swap(0, Ordering::Relaxed);
        if changes > 0 {
            self.reporter.report(&Event::HookDropped { changes });
        }
    }

    /// Runs the program until it succeeds, as often as it may be run.
    fn handle(&self, change: &Change) {
        let document = announcement::encode_change(change, self.database);
        let (mut pause, mut attempts) = (PAUSE, 0);
        let error = loop {
            attempts += 1;
            let (error, is_over) = match self.attempt(change, &document) {
                Ok(()) => return,
                Err(failed) => failed,
            };
            if is_over || attempts > self.retries || !self.rests(change, pause) {
                break error;
            }
            pause = (2 * pause).min(PAUSE_MAX);
        };
        let endpoint = &change.tenure.endpoint;
        self.reporter.report(&Event::HookFailed { endpoint, error: &error, attempts });
    }

    /// Whether there is a reason to run it again after a pause.
    fn rests(&self, change: &Change, pause: Duration) -> bool {
        let until = BootClock.now() + pause;
        while BootClock.now() < until {
            if self.cause(change, Moment::MAX, BootClock.now()).is_some() || self.stop.within(LOOK)
            {
                return false;
            }
        }
        true
    }

    fn cause(&self, change: &Change, deadline: Moment, now: Moment) -> Option<Cause> {
        if self.stop.is_over() {
            return Some(Cause::Stopped);
        }
        // After a suspend the lease has ended, and its tenure may still be in the table.
        if self.table.time_left(&change.tenure).is_none() {
            return Some(Cause::Lost);
        }
        (now >= deadline).then_some(Cause::Late)
    }

    /// Once. An error, and whether that is the end of it.
    fn attempt(&self, change: &Change, document: &str) -> Result<(), (String, bool)> {
        let deadline = BootClock.now() + self.timeout;
        let _descriptors = Descriptors::take(COMMAND_POLL).map_err(|why| (why, false))?;
        let failed = |error: &io::Error| {
            let name = self.program.supervisor.display();
            (format!("cannot run the poll supervisor {name}: {}", plain(error)), false)
        };
        let ended = |cause| match cause {
            Cause::Lost => ("the lease was lost or handed over".into(), true),
            Cause::Stopped => ("stopped before it ended".into(), true),
            Cause::Late => (format!("no end within {:?}", self.timeout), false),
        };
        let cause = |now| self.cause(change, deadline, now);
        let (tenure, instance) = (&change.tenure, &change.instance);
        let mut run = self.program.start(tenure, instance).map_err(|it| failed(&it))?;
        while !run.has_begun() {
            if let Some(cause) = cause(BootClock.now()) {
                return Err(ended(cause));
            }
            run.step(None, LOOK).map_err(|it| failed(&it))?;
        }
        // Between a right that was lost and this moment there is no more than between that and the next look.
        if let Some(cause) = cause(BootClock.now()) {
            return Err(ended(cause));
        }
        run.feed(document);
        if let Some(cause) = run.finish(None, |now| now + LOOK, cause) {
            return Err(ended(cause));
        }
        match run.ending() {
            Ending::Ended(_, None) => Ok(()),
            // What it wrote on stderr is as private as a body.
            Ending::Ended(_, Some(error)) | Ending::Short(error) => Err((error, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::testing::Holder;
    use crate::model::VerdictState;

    #[test]
    fn a_lease_past_its_deadline_gives_no_right_to_run_and_a_draining_one_does() {
        let Holder { clock, table, held, .. } = Holder::of(1);
        let (supervisor, grace) = ("nothing".into(), Duration::ZERO);
        let program = Program { words: vec![], supervisor, body_max: 0, grace, soft_files: None };
        let (_source, stop) = stop();
        let runner = Runner {
            program: Arc::new(program),
            timeout: Duration::MAX,
            retries: 0,
            database: 0,
            table: Arc::clone(&table),
            reporter: Reporter::new(&table),
            changes: bounded(0).1,
            dropped: Arc::default(),
            stop,
        };
        let change = Change {
            tenure: held[0].clone(),
            instance: table.instance().clone(),
            address: String::new(),
            state: VerdictState::default(),
            status: None,
            error: None,
        };
        let cause = || runner.cause(&change, Moment::MAX, table.now());
        assert!(table.drain(&held[0].endpoint));
        assert_eq!(cause(), None);
        clock.pass(table.timings().lease.ttl);
        assert!(table.has(&held[0]), "nobody has looked at its deadline yet");
        assert_eq!(cause(), Some(Cause::Lost));
    }
}
