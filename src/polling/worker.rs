//! What does a poller thread do with a job? Gets the permit, polls once, and passes on the result and how it ended.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::event::Event;
use crate::lease::permit::{Deferral, PollPermit};
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::lease::watch::Nudge;
use crate::model::{EndpointId, Sample};
use crate::polling::certificates::Certificates;
use crate::polling::dispatch::{PollDone, PollEnd, PollJob, VERIFIED_FOR};
use crate::polling::poller::Poller;
use crate::polling::schedule::Due;
use crate::store::{Judging, Publication};
use crate::thread::fail_stop::caught;

/// A result and the permit it was polled under.
pub type Polled = (Publication, PollPermit);

/// A reason for which no poll was deferred for this long is news again.
const REASON_KEPT: Duration = Duration::from_secs(60);
/// How many reasons are remembered. Ours are few; a user's poller may have any.
const REASONS_MAX: usize = 16;

/// Why polls were deferred lately, and when last: each reason is said once, because thousands of polls may share it.
#[derive(Debug, Default)]
struct Deferrals(Mutex<Vec<(String, Moment)>>);

impl Deferrals {
    /// Whether this reason has not been said yet, or not for long.
    fn is_news(&self, reason: &str, now: Moment) -> bool {
        let mut known = self.0.lock();
        known.retain(|it| now.since(it.1) < REASON_KEPT);
        if let Some(it) = known.iter_mut().find(|it| it.0 == reason) {
            it.1 = now;
            return false;
        }
        if known.len() < REASONS_MAX {
            known.push((reason.into(), now));
            return true;
        }
        false
    }
}

/// The threads `poller-NN`: wake on a job.
#[derive(Clone)]
pub struct PollWorker {
    poller: Arc<dyn Poller>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    deferrals: Arc<Deferrals>,
    certificates: Certificates,
    samples: Sender<Polled>,
    dones: Sender<PollDone>,
    nudges: Sender<Nudge>,
}

impl PollWorker {
    /// Polls with `poller`; results go to `samples`, word of the end to `dones`.
    pub fn new(
        poller: Arc<dyn Poller>,
        table: Arc<OwnershipTable>,
        samples: Sender<Polled>,
        dones: Sender<PollDone>,
        nudges: Sender<Nudge>,
    ) -> Self {
        let reporter = Reporter::new(&table);
        let (deferrals, certificates) = (Arc::default(), Certificates::default());
        Self { poller, table, reporter, deferrals, certificates, samples, dones, nudges }
    }

    /// Where the threads of the pool are counted.
    pub fn threads(&self) -> &Arc<AtomicUsize> {
        self.table.metrics().pollers()
    }

    /// Does one job.
    pub fn step(&self, job: PollJob) {
        let end = self.poll(&job);
        // The send fails only when dispatch has ended: then nobody needs the answer.
        let _ = self.dones.send(PollDone { due: job.due, end });
    }

    /// There is no thread for this job, for this reason.
    pub fn defer(&self, job: PollJob, reason: &str) {
        self.say_deferred(&job.due.tenure.endpoint, reason);
        let _ = self.dones.send(PollDone { due: job.due, end: PollEnd::NoRoom });
    }

    /// Says each reason once: thousands of polls may share it.
    fn say_deferred(&self, endpoint: &EndpointId, reason: &str) {
        let event = Event::PollDeferred { endpoint, reason };
        match self.deferrals.is_news(reason, self.table.now()) {
            true => self.reporter.report(&event),
            false => self.reporter.count(&event),
        }
    }

    fn poll(&self, job: &PollJob) -> PollEnd {
        // R15: a poll begins with at least half of its verification left, so that the next one can come in time.
        let verified_for =
            self.table.verified_for().map_or(VERIFIED_FOR, |it| VERIFIED_FOR.min(it / 2));
        if self.table.now().since(job.verified_at) > verified_for {
            return PollEnd::Stale; // R2: back to dispatch, to be verified again
        }
        let tenure = &job.due.tenure;
        let Some(permit) = self.table.permit(tenure) else { return PollEnd::Refused };
        let Some(server_ms) = self.table.server_ms() else { return PollEnd::Refused };
        let started_at_ms = permit.start(server_ms);
        let metrics = self.table.metrics();
        metrics.lag.observe(self.table.now().since(job.due.due_at));
        let began = self.table.now();
        let poll = || caught(|| self.poller.poll(&job.due.session, &permit, job.due.timeout));
        let polled = metrics.while_polling(poll).unwrap_or_else(|message| {
            // R12: what the `Poller` does wrong is a result, and the thread goes on.
            permit.abort().disarm();
            let error = format!("the poller panicked: {message}");
            self.say_panicked(job, &error);
            Ok(Sample::failed(error, self.table.now().since(began)))
        });
        if permit.abort().has_panicked() {
            self.say_panicked(job, &"what was armed to abort the poll panicked");
        }
        match polled {
            Ok(sample) => {
                self.say(job, &sample);
                let certificate = permit.certificate();
                if let Some(left) = certificate {
                    let news = self.certificates.news(tenure, left, |it| self.table.has(it));
                    news.iter().for_each(|it| self.reporter.report(it));
                }
                let ok = sample.ok;
                let Due { next_after_ok, next_after_failure, thresholds, .. } = job.due;
                let interval = if ok { next_after_ok } else { next_after_failure };
                let tenure = tenure.clone();
                let session = Arc::clone(&job.due.session);
                let judging = Judging { session: Some(session), thresholds, known: None };
                let publication =
                    Publication { tenure, started_at_ms, interval, sample, judging, certificate };
                let took = self.table.now().since(began);
                let _ = self.samples.send((publication, permit));
                PollEnd::Polled { ok, took }
            }
            Err(_) => self.unpolled(permit),
        }
    }

    /// There is no result: the lease was lost, or this process lacked something.
    fn unpolled(&self, permit: PollPermit) -> PollEnd {
        let (endpoint, fence) = (&permit.tenure().endpoint, permit.tenure().fence);
        let deferral = permit.deferred().filter(|_| !permit.abort().is_fired());
        let end = match deferral {
            Some(Deferral { reason, is_full }) => {
                self.say_deferred(endpoint, reason);
                if *is_full { PollEnd::NoRoom } else { PollEnd::Deferred }
            }
            None => {
                self.reporter.report(&Event::PollAborted { endpoint, fence });
                PollEnd::Refused
            }
        };
        let awaited = permit.is_awaited();
        drop(permit);
        if awaited {
            let _ = self.nudges.try_send(Nudge::PollEnded);
            self.table.note_shutdown_progress();
        }
        end
    }

    fn say_panicked(&self, job: &PollJob, error: &dyn std::fmt::Display) {
        let (endpoint, fence) = (&job.due.tenure.endpoint, job.due.tenure.fence);
        self.reporter.report(&Event::PollPanicked { endpoint, fence, error });
    }

    fn say(&self, job: &PollJob, sample: &Sample) {
        let (endpoint, fence) = (&job.due.tenure.endpoint, job.due.tenure.fence);
        let (status, took) = (sample.status, sample.duration);
        let event = match sample.reason() {
            _ if sample.ok => Event::PollOk { endpoint, fence, status, took },
            error => Event::PollFailed { endpoint, fence, error: error.unwrap_or("not ok"), took },
        };
        self.reporter.report(&event);
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;
    use crate::lease::permit::Revoked;
    use crate::lease::testing::Holder;
    use crate::model::Session;

    /// Lacks something, and says what.
    struct Lacking(&'static str);

    impl Poller for Lacking {
        fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
            Err(permit.defer(self.0))
        }
    }

    #[test]
    fn a_poll_that_this_process_lacked_something_for_has_no_result() {
        let holder = Holder::of(1);
        let (samples, sampled) = bounded(1);
        let (dones, done) = bounded(1);
        let (poller, table) = (Arc::new(Lacking("a descriptor")), Arc::clone(&holder.table));
        let thread = PollWorker::new(poller, table, samples, dones, bounded(1).0);
        thread.step(holder.job(0));
        assert_eq!(done.try_recv().unwrap().end, PollEnd::Deferred);
        assert!(sampled.is_empty(), "nothing is published");
        assert!(holder.table.permit(&holder.held[0]).is_some(), "and it may be polled again");
    }

    #[test]
    fn a_reason_is_news_once_until_it_is_forgotten() {
        let (deferrals, from) = (Deferrals::default(), Moment::from_nanos(1));
        let news = |reason: &str, s: u64| deferrals.is_news(reason, from + Duration::from_secs(s));
        let told = [("a", 0), ("a", 1), ("b", 2), ("a", 59), ("b", 61), ("a", 118), ("a", 180)];
        let told = told.map(|(reason, s)| news(reason, s));
        assert_eq!(told, [true, false, true, false, false, false, true]);
        let many = (0..100).filter(|it| news(&it.to_string(), 200)).count();
        assert!(many < 20, "others may invent reasons: {many}");
    }
}
