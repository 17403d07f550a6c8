//! Does one blocking poll at a time, under a permit.

use std::sync::Arc;

use crossbeam_channel::Sender;

use crate::daemon::dispatch::{PollDone, PollEnd, PollJob, VERIFIED_FOR};
use crate::daemon::reconcile::Nudge;
use crate::daemon::report::Reporter;
use crate::event::Event;
use crate::model::Sample;
use crate::pipeline::lease::PollPermit;
use crate::pipeline::ownership::OwnershipTable;
use crate::pipeline::poll::Poller;
use crate::pipeline::schedule::Due;
use crate::store::Publication;

/// A result and the permit it was polled under.
pub type Polled = (Publication, PollPermit);

/// The threads `poller-NN`: wake on a job.
#[derive(Clone)]
pub struct PollerThread {
    poller: Arc<dyn Poller>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    samples: Sender<Polled>,
    dones: Sender<PollDone>,
    nudges: Sender<Nudge>,
}

impl PollerThread {
    /// Polls with `poller`; results go to `samples`, word of the end to `dones`.
    pub fn new(
        poller: Arc<dyn Poller>,
        table: Arc<OwnershipTable>,
        samples: Sender<Polled>,
        dones: Sender<PollDone>,
        nudges: Sender<Nudge>,
    ) -> Self {
        let reporter = Reporter::new(&table);
        Self { poller, table, reporter, samples, dones, nudges }
    }

    /// Does one job.
    pub fn step(&self, job: PollJob) {
        let end = self.poll(&job);
        // Nobody there: this is the end.
        let _ = self.dones.send(PollDone { due: job.due, end });
    }

    fn poll(&self, job: &PollJob) -> PollEnd {
        if self.table.now().since(job.verified_at) > VERIFIED_FOR {
            return PollEnd::Stale; // R2: back to dispatch, to be verified again
        }
        let tenure = &job.due.tenure;
        let Some(permit) = self.table.permit(tenure) else { return PollEnd::Refused };
        let Some(server_ms) = self.table.server_ms() else { return PollEnd::Refused };
        let started_at_ms = permit.start(server_ms);
        let metrics = self.table.metrics();
        metrics.lag.observe(self.table.now().since(job.due.due_at));
        let poll = || self.poller.poll(&job.due.session, &permit, job.due.timeout);
        match metrics.while_polling(poll) {
            Ok(sample) => {
                self.say(job, &sample);
                let ok = sample.ok;
                let Due { next_after_ok, next_after_failure, .. } = job.due;
                let interval = if ok { next_after_ok } else { next_after_failure };
                let tenure = tenure.clone();
                let publication = Publication { tenure, started_at_ms, interval, sample };
                let _ = self.samples.send((publication, permit));
                PollEnd::Polled { ok }
            }
            Err(_) => {
                let (endpoint, fence) = (&tenure.endpoint, tenure.fence);
                self.reporter.say(&Event::PollAborted { endpoint, fence });
                let awaited = permit.is_awaited();
                drop(permit);
                if awaited {
                    let _ = self.nudges.try_send(Nudge::PollEnded);
                }
                PollEnd::Refused
            }
        }
    }

    fn say(&self, job: &PollJob, sample: &Sample) {
        let (endpoint, fence) = (&job.due.tenure.endpoint, job.due.tenure.fence);
        let (status, took) = (sample.status, sample.duration);
        let event = match sample.error.as_deref() {
            _ if sample.ok => Event::PollOk { endpoint, fence, status, took },
            error => Event::PollFailed { endpoint, fence, error: error.unwrap_or("not ok"), took },
        };
        self.reporter.say(&event);
    }
}
