//! Keeps the schedule, verifies what is due in the store (FR-010), and feeds the pollers.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, after, never, select};

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::lease_change::LeaseChange;
use crate::lease::report::{LeaseEventSink, Reporter};
use crate::lease::table::{OwnershipTable, Readiness};
use crate::model::Tenure;
use crate::polling::intervals::PollIntervals;
use crate::polling::job_queue::JobSender;
use crate::polling::schedule::{Due, LastPoll, LightChange, PollSchedule};
use crate::polling::throughput::Throughput;
use crate::polling::window::{DispatchWindow, RoundStats};
use crate::store::{BATCH_MAX, Store};
use crate::thread::Stop;

/// R2: a verification counts for this long.
pub const VERIFIED_FOR: Duration = Duration::from_secs(1);
/// A lease that may not be polled under now is looked at again after this.
const RECHECK: Duration = Duration::from_millis(250);
/// One whose last result is still on its way to the store, after this: that takes publish a few milliseconds.
const RECHECK_BUSY: Duration = Duration::from_millis(4);
/// A poll that this process lacked something for is tried again after this: time for others to end, and to give back
/// what they have. Each try costs Redis a verification.
const DEFERRED_FOR: Duration = Duration::from_millis(500);
/// A wait without anything due; the watchdog wants to see that we can still wake.
const IDLE: Duration = Duration::from_secs(2);

/// One poll for a poller to do.
#[derive(Clone, Debug)]
pub struct PollJob {
    /// What, and under which grant.
    pub due: Due,
    /// When the store confirmed the lease.
    pub verified_at: Moment,
}

/// What became of a job.
#[derive(Clone, Debug)]
pub struct PollDone {
    /// The job.
    pub due: Due,
    /// How it ended.
    pub end: PollEnd,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEnd {
    /// The endpoint was asked, and did well or not.
    Polled {
        /// It did well.
        ok: bool,
        /// From the permit to the end.
        took: Duration,
    },
    /// It waited too long for a poller: to be verified again, at once.
    Stale,
    /// The lease gave no permit, or was lost: nothing is known about the endpoint.
    Refused,
    /// This process lacked something for it, such as memory: nothing is known about the endpoint.
    Deferred,
    /// There was no room for another poll at all: nothing is known about the endpoint.
    NoRoom,
}

/// How many messages are taken in before the next step.
const TAKEN_MAX: usize = 1_024;

/// What dispatch is told.
pub struct Inbox {
    /// By reconcile: changes of ownership.
    pub lease_changes: Receiver<LeaseChange>,
    /// By pollers: polls that have ended.
    pub dones: Receiver<PollDone>,
    /// At a reload: other intervals, and how many pollers there are.
    pub intervals: Receiver<(PollIntervals, usize)>,
}

impl Inbox {
    /// Nothing is ever told.
    fn silent() -> Self {
        Self { lease_changes: never(), dones: never(), intervals: never() }
    }
}

/// The thread `dispatch`: wakes on changes, on polls done, and when the next endpoint is due.
pub struct Dispatch {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    schedule: PollSchedule,
    jobs: JobSender,
    /// Where it stands since the last step.
    round: RoundStats,
    window: DispatchWindow,
    full: Option<Full>,
    throughput: Throughput,
    inbox: Inbox,
}

/// This process lacks room for another poll. Dispatch then gives out no more jobs than there is room for, the longest
/// overdue first. Otherwise every due endpoint would be tried again and again, and chance would decide which one is polled.
#[derive(Clone, Copy, Debug)]
struct Full {
    /// Jobs that may be out.
    out_max: usize,
    /// Nothing is given out before, unless a poll ends.
    retry_at: Moment,
}

impl Dispatch {
    /// Feeds more jobs than there are `workers`, so that none of them waits for this thread.
    pub fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        intervals: PollIntervals,
        jobs: JobSender,
        workers: usize,
    ) -> Self {
        let reporter = Reporter::new(&table);
        let schedule = PollSchedule::new(intervals, workers);
        let window = DispatchWindow::new(workers);
        let round = RoundStats::default();
        Self {
            store,
            table,
            reporter,
            schedule,
            jobs,
            round,
            window,
            full: None,
            throughput: Throughput::default(),
            inbox: Inbox::silent(),
        }
    }

    /// Is told things through `inbox`.
    pub fn fed_by(self, inbox: Inbox) -> Self {
        Self { inbox, ..self }
    }

    /// The loop of the thread, until `stop`. `mark` tells the watchdog that it moves.
    pub fn run(mut self, stop: &Stop, mark: impl Fn(Moment)) {
        loop {
            mark(self.table.now());
            let due = after(self.step());
            if stop.within(self.rest()) {
                return;
            }
            select! {
                recv(stop.receiver()) -> _ => return,
                // Reconcile has ended: what is held is still polled until a stop.
                recv(self.inbox.lease_changes) -> change => match change {
                    Ok(change) => self.change(change),
                    Err(_) => self.inbox.lease_changes = never(),
                },
                recv(self.inbox.intervals) -> told => match told {
                    Ok((intervals, workers)) => self.set_intervals(intervals, workers),
                    Err(_) => self.inbox.intervals = never(),
                },
                recv(self.inbox.dones) -> done => done.iter().for_each(|it| self.done(it)),
                recv(due) -> _ => (),
            }
            self.take_waiting();
        }
    }

    /// Takes in what it was told since the last step.
    pub fn take_waiting(&mut self) {
        let changes: Vec<LeaseChange> =
            self.inbox.lease_changes.try_iter().take(TAKEN_MAX).collect();
        changes.into_iter().for_each(|it| self.change(it));
        let dones: Vec<PollDone> = self.inbox.dones.try_iter().take(TAKEN_MAX).collect();
        dones.iter().for_each(|it| self.done(it));
    }

    /// Whether it was told something that it has not taken in.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_told(&self) -> bool {
        !self.inbox.lease_changes.is_empty() || !self.inbox.dones.is_empty()
    }

    /// Other intervals, and another number of pollers, from now on.
    pub fn set_intervals(&mut self, intervals: PollIntervals, workers: usize) {
        self.window = DispatchWindow::new(workers);
        self.schedule.set_workers(workers);
        self.schedule.set_intervals(intervals, self.table.now());
    }

    /// Speaks through `reporter` instead of one of its own.
    pub fn reporting(self, reporter: &Reporter) -> Self {
        Self { reporter: reporter.clone(), ..self }
    }

    /// Takes in a change of ownership.
    pub fn change(&mut self, change: LeaseChange) {
        let now = self.table.now();
        match change {
            LeaseChange::Session(session) => self.schedule.changed(&session, now),
            LeaseChange::Gained { tenure, session, polled_at_ms } => {
                let last_poll = polled_at_ms
                    .zip(self.table.server_ms())
                    .map(|(polled_ms, server_ms)| LastPoll::new(polled_ms, server_ms));
                let timings = self.table.timings();
                // As long as a failover can take, with a hold-off in between.
                let kept = timings.lease.hold_off() * 2 + timings.heartbeat.ttl;
                let due_at = self.schedule.first_due(&session, last_poll, kept, now);
                self.schedule.gained(tenure, session, due_at);
            }
        }
    }

    /// Takes in the end of a poll.
    pub fn done(&mut self, done: &PollDone) {
        self.round.out = self.round.out.saturating_sub(1);
        let now = self.table.now();
        let endpoint = &done.due.tenure.endpoint;
        let (ok, took) = match done.end {
            PollEnd::Polled { ok, took } => (ok, took),
            PollEnd::Stale => return self.schedule.put_back_first(endpoint),
            PollEnd::Refused => return self.schedule.put_back(endpoint, now + RECHECK),
            PollEnd::Deferred => return self.schedule.put_back(endpoint, now + DEFERRED_FOR),
            PollEnd::NoRoom => {
                // There is room for those that are out now, or they will say that there is not.
                let out_max = self.round.out.max(1);
                self.full = Some(Full { out_max, retry_at: now + DEFERRED_FOR });
                return self.schedule.put_back_first(endpoint);
            }
        };
        self.window.completed();
        // One more for each that ends: soon as many as before, if there is room again.
        let more = |it: Full| Full { out_max: it.out_max + 1, retry_at: now };
        self.full = self.full.map(more).filter(|it| it.out_max < self.window.out_max());
        match self.schedule.done(&done.due, ok, took, now) {
            Some(LightChange::Became(failures)) => {
                self.reporter.report(&Event::EndpointLight { endpoint, failures });
            }
            Some(LightChange::Ended) => self.reporter.report(&Event::EndpointNormal { endpoint }),
            None => (),
        }
    }

    /// Gives out what is due; how long to wait if nothing else happens.
    pub fn step(&mut self) -> Duration {
        let table = &self.table;
        self.throughput.step(&mut self.schedule, table.metrics(), || table.now());
        let now = self.table.now();
        if let Some(full) = self.full.filter(|it| now < it.retry_at) {
            (self.round.is_behind, self.round.took) = (false, Duration::ZERO);
            return full.retry_at.since(now);
        }
        let room = self.out_max().saturating_sub(self.round.out).min(BATCH_MAX);
        let due = self.schedule.take_due(now, room);
        let taken = due.len();
        let ready: Vec<Due> = due.into_iter().filter(|it| self.is_ready(it, now)).collect();
        let given = if ready.is_empty() { 0 } else { self.verify_and_give(ready) };
        // What cannot be given out is no reason to hurry.
        self.round.is_behind = taken == room && 2 * given >= room;
        self.round.took = self.table.now().since(now);
        self.wait()
    }

    /// Jobs that may be given out and not done.
    fn out_max(&self) -> usize {
        self.full.map_or(usize::MAX, |it| it.out_max).min(self.window.out_max())
    }

    /// Whether a poll could start; what could not is put back, or ended with its lease.
    fn is_ready(&mut self, due: &Due, now: Moment) -> bool {
        let endpoint = &due.tenure.endpoint;
        let readiness = self.table.readiness(&due.tenure);
        let reason = match readiness {
            Readiness::Ready => due.skipped,
            Readiness::Busy => due.skipped.map(|_| "unpublished"),
            Readiness::NotNow | Readiness::Over => None,
        };
        if let Some(reason) = reason {
            self.reporter.report(&Event::PollSkipped { endpoint, reason });
        }
        match readiness {
            Readiness::Ready => return true,
            Readiness::Over => {
                self.schedule.ended(&due.tenure);
                self.schedule.put_back(endpoint, now);
            }
            Readiness::NotNow => self.schedule.put_back(endpoint, now + RECHECK),
            Readiness::Busy => {
                // The longer it has waited, the less often it is asked: a store may not answer for long.
                let wait = (now.since(due.due_at) / 8).clamp(RECHECK_BUSY, RECHECK);
                self.schedule.put_back(endpoint, now + wait);
            }
        }
        false
    }

    /// How many could be given out.
    fn verify_and_give(&mut self, due: Vec<Due>) -> usize {
        let tenures: Vec<Tenure> = due.iter().map(|it| it.tenure.clone()).collect();
        let request = self.table.verification(&tenures);
        let verified_at = self.table.now();
        let held = match self.store.verify(&request.context, &tenures) {
            Ok(reply) => {
                let (held, applied) = self.table.verified(&request, &tenures, &reply);
                self.reporter.applied(&applied);
                held
            }
            // Nothing is known, so nothing is polled; whether it is still ours, renewal finds out.
            Err(_) => Vec::new(),
        };
        let now = self.table.now();
        let mut held = held.into_iter().peekable();
        let mut jobs = Vec::with_capacity(due.len());
        for due in due {
            if held.peek() != Some(&due.tenure) {
                self.schedule.put_back(&due.tenure.endpoint, now + RECHECK);
                continue;
            }
            held.next();
            jobs.push(PollJob { due, verified_at });
        }
        let given = jobs.len();
        self.round.out += given;
        self.jobs.put(jobs);
        given
    }

    /// How long dispatch reads no message after a step, so that the next step is about more. A poll starts later by no more
    /// than this.
    pub fn rest(&mut self) -> Duration {
        self.window.rest(&self.round, self.table.now())
    }

    fn wait(&mut self) -> Duration {
        if self.round.out >= self.out_max() {
            return IDLE; // until a poll is done
        }
        let now = self.table.now();
        self.schedule.next_due().map_or(IDLE, |at| at.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::testing::Holder;
    use crate::model::{Session, Thresholds};
    use crate::polling::job_queue::{JobReceiver, jobs};
    use crate::store::memory::{MemoryStore, Mishap};

    const INTERVAL: Duration = Duration::from_millis(100);
    const INTERVALS: PollIntervals = PollIntervals {
        interval: INTERVAL,
        timeout: INTERVAL,
        light_after: 9,
        light_interval: INTERVAL,
        thresholds: Thresholds { fail_after: 1, ok_after: 1 },
    };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Dispatch for one poller, with this many endpoints that are due now.
    fn with(n: usize) -> (Dispatch, JobReceiver, Holder) {
        let holder = Holder::of(n);
        let (sender, receiver) = jobs();
        let (store, table) = (Arc::<MemoryStore>::clone(&holder.store), Arc::clone(&holder.table));
        let mut dispatch = Dispatch::new(store, table, INTERVALS, sender, 1);
        for tenure in &holder.held {
            let id = tenure.endpoint.as_str();
            let json = format!(r#"{{"id":"{id}","address":"h:1"}}"#);
            let session = Session::parse(id, json.as_bytes()).unwrap();
            dispatch.schedule.gained(tenure.clone(), Arc::new(session), holder.table.now());
        }
        (dispatch, receiver, holder)
    }

    fn ends_well(dispatch: &mut Dispatch, job: PollJob) {
        dispatch.done(&PollDone { due: job.due, end: PollEnd::Polled { ok: true, took: ms(1) } });
    }

    /// Issue 19: what the heartbeat tells is found out here.
    #[test]
    fn what_the_polling_achieves_is_left_with_the_metrics() {
        let (mut dispatch, _jobs, holder) = with(2);
        let told = || holder.table.metrics().polling_info();
        assert_eq!(told(), None);
        dispatch.step();
        assert_eq!(told().map(|it| (it.workers, it.behind)), Some((1, None)));
        dispatch.set_intervals(INTERVALS, 7);
        dispatch.step();
        assert_eq!(told().map(|it| it.workers), Some(1), "it is too early to look again");
        holder.clock.pass(INTERVAL * 30);
        dispatch.step();
        assert_eq!(told().map(|it| it.workers), Some(7));
    }

    /// A poll that ends right before its next round must not lose that round to the time its result takes.
    #[test]
    fn a_round_waits_for_the_result_of_the_one_before_and_not_much_longer() {
        let (mut dispatch, jobs, Holder { table, clock, .. }) = with(1);
        dispatch.step();
        let job = jobs.take().expect("it is due");
        let permit = table.permit(&job.due.tenure).unwrap();
        let due_at = job.due.due_at + INTERVAL;
        clock.pass(INTERVAL - ms(1));
        ends_well(&mut dispatch, job);
        clock.pass(ms(1));
        assert_eq!(dispatch.step(), RECHECK_BUSY);
        assert!(jobs.is_empty(), "its permit travels with the result");
        drop(permit); // stored
        clock.pass(RECHECK_BUSY);
        dispatch.step();
        let job = jobs.take().expect("the result is stored");
        assert_eq!(job.due.due_at, due_at, "in its rhythm");
        assert!(table.permit(&job.due.tenure).is_some());
    }

    /// While more is due than one poller can do, rounds are made larger; but not because nothing could be given out.
    #[test]
    fn who_gave_out_all_it_may_rests_for_what_waits_and_who_could_not_as_usual() {
        let (mut dispatch, jobs, Holder { store, clock, .. }) = with(6);
        dispatch.step();
        let usual = dispatch.rest();
        let mut next = || {
            let job = jobs.take().expect("two were given out");
            clock.pass(ms(100));
            ends_well(&mut dispatch, job);
            dispatch.step();
            dispatch.rest()
        };
        assert!(next() > usual, "there is one more, for 100 ms");
        // There and back: it was away for longer than what waits may be left alone.
        store.plan("verify", Mishap::Slow(ms(60)));
        assert_eq!(next(), ms(0));
        store.cut_off(true);
        assert_eq!(next(), usual);
    }

    /// It is no failure, and comes again in its own rhythm.
    #[test]
    fn a_poll_that_was_deferred_comes_again_soon_and_counts_as_nothing() {
        let (mut dispatch, jobs, Holder { clock, .. }) = with(1);
        for _ in 0..20 {
            dispatch.step();
            let job = jobs.take().expect("it is due");
            let due_at = job.due.due_at;
            dispatch.done(&PollDone { due: job.due, end: PollEnd::Deferred });
            assert_eq!(dispatch.step(), DEFERRED_FOR);
            assert!(jobs.is_empty());
            clock.pass(DEFERRED_FOR);
            dispatch.step();
            let job = jobs.take().expect("it is tried again");
            assert_eq!(job.due.due_at, due_at, "as long overdue as it is");
            assert_eq!(job.due.next_after_failure, INTERVAL, "light polling is after 9 failures");
            dispatch.done(&PollDone { due: job.due, end: PollEnd::Deferred });
            clock.pass(DEFERRED_FOR);
        }
    }

    /// Where there is enough for one poll only, each endpoint has its turn.
    #[test]
    fn in_a_shortage_no_more_is_given_out_than_can_be_polled_and_nobody_starves() {
        let (mut dispatch, jobs, Holder { clock, .. }) = with(6);
        let mut polled = Vec::new();
        let mut running = None;
        for _ in 0..60 {
            dispatch.step();
            let mut is_full = false;
            while let Some(job) = jobs.take() {
                if running.is_none() {
                    running = Some(job);
                } else {
                    dispatch.done(&PollDone { due: job.due, end: PollEnd::NoRoom });
                    is_full = true;
                }
            }
            if is_full {
                assert_eq!(dispatch.out_max(), 1, "one runs, so no more is tried");
                assert_eq!(dispatch.step(), DEFERRED_FOR, "until it ends");
            }
            clock.pass(DEFERRED_FOR / 2);
            let job = running.take().expect("there is always one to poll");
            polled.push(job.due.tenure.endpoint.clone());
            ends_well(&mut dispatch, job);
        }
        for tenure in polled.iter().take(6) {
            let turns = polled.iter().filter(|it| *it == tenure).count();
            assert!(
                (8..=12).contains(&turns),
                "{tenure} was polled {turns} of 60 times: {polled:?}"
            );
        }
        // When it is over, it is as before.
        while dispatch.full.is_some() {
            dispatch.step();
            let job = jobs.take().expect("there is always one to poll");
            clock.pass(ms(1));
            ends_well(&mut dispatch, job);
            clock.pass(INTERVAL);
        }
    }

    #[test]
    fn while_results_cannot_be_stored_rounds_are_asked_for_less_and_less_often() {
        let (mut dispatch, jobs, Holder { table, clock, .. }) = with(1);
        dispatch.step();
        let job = jobs.take().expect("it is due");
        let _permit = table.permit(&job.due.tenure).unwrap();
        ends_well(&mut dispatch, job);
        clock.pass(INTERVAL);
        let from = table.now();
        let mut waits = Vec::new();
        while table.now().since(from) < Duration::from_secs(5) {
            let wait = dispatch.step();
            clock.pass(wait);
            waits.push(wait);
        }
        assert!(jobs.is_empty());
        assert!(waits.is_sorted(), "{waits:?}");
    }
}
