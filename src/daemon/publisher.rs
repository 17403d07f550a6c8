//! Batches fenced writes of results.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::daemon::poller::Polled;
use crate::daemon::reconcile::Nudge;
use crate::daemon::report::Reporter;
use crate::daemon::thread::Stop;
use crate::event::Event;
use crate::pipeline::ownership::OwnershipTable;
use crate::pipeline::publish::{Outbox, Sent};
use crate::store::Store;

/// Results that come within this after a call go with the next: a call costs the store as much as several of them.
const GATHER: Duration = Duration::from_millis(4);
/// Where so many come within that time, more are gathered: the next call comes as much later.
const MANY: usize = 50;
const GATHER_MANY: Duration = Duration::from_millis(10);

/// The thread `publish`: wakes on a result.
pub struct Publisher {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    samples: Receiver<Polled>,
    nudges: Sender<Nudge>,
    outbox: Outbox,
}

impl Publisher {
    /// Publishes what comes through `samples`.
    pub fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        samples: Receiver<Polled>,
        nudges: Sender<Nudge>,
    ) -> Self {
        let reporter = Reporter::new(&table);
        let outbox = Outbox::new(table.rhythm().lease.ttl);
        Self { store, table, reporter, samples, nudges, outbox }
    }

    /// Publishes until no poller is left and nothing waits. From `stop` on, when the last poller is gone, nothing
    /// more is waited for.
    pub fn run(mut self, stop: &Stop) {
        let mut wait = Duration::ZERO;
        while self.fill(wait, stop) {
            let rest = if self.outbox.len() < MANY { GATHER } else { GATHER_MANY };
            wait = self.step();
            if self.outbox.is_empty() {
                // Nobody is heard meanwhile, so that pollers wake nobody either.
                stop.within(rest);
            }
        }
        // What never fitted is told with the rest.
        let now = self.table.now();
        self.samples.try_iter().for_each(|it| self.outbox.put(it.0, it.1, now));
        let left = self.outbox.give_up("stopped before it could be stored");
        self.report(&left);
    }

    /// Waits for something to do; false when there will never be anything again.
    fn fill(&mut self, wait: Duration, stop: &Stop) -> bool {
        if self.outbox.is_empty() {
            let Ok(polled) = self.samples.recv() else { return false };
            self.outbox.put(polled.0, polled.1, self.table.now());
        } else if !wait.is_zero() {
            if self.outbox.room() == 0 {
                // Only time can help: leases end, and their results with them.
                return !stop.within(wait);
            }
            match self.samples.recv_timeout(wait) {
                Ok(polled) => self.outbox.put(polled.0, polled.1, self.table.now()),
                Err(RecvTimeoutError::Timeout) => (),
                // The pollers are gone and the store does not answer: a stop does not wait for it.
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        self.take_waiting();
        true
    }

    /// Publishes one batch; how long to wait before the next try.
    pub fn step(&mut self) -> Duration {
        let hopeless = self.outbox.drop_hopeless(|it| self.table.has(it), self.table.now());
        self.report(&hopeless);
        if self.outbox.is_empty() {
            return Duration::ZERO;
        }
        let batch = self.outbox.batch();
        let question = self.table.question();
        let Ok(reply) = self.store.publish(&question.ask, &batch) else {
            self.outbox.unanswered();
            return self.table.rhythm().retry_interval();
        };
        if let Some(ahead) = self.table.saw(&question, &reply).ran_ahead {
            self.reporter.say(&Event::StoreClock { ahead });
        }
        let Some(answers) = reply.answer else { return Duration::ZERO };
        let sent = self.outbox.settle(&answers);
        self.report(&sent);
        if sent.missing { self.table.rhythm().retry_interval() } else { Duration::ZERO }
    }

    fn report(&self, sent: &Sent) {
        for tenure in &sent.fenced {
            self.table.mistrust(tenure);
            let (endpoint, fence) = (&tenure.endpoint, tenure.fence);
            self.reporter.say(&Event::PollFenced { endpoint, fence });
        }
        for (tenure, error) in &sent.failed {
            let (endpoint, fence) = (&tenure.endpoint, tenure.fence);
            self.reporter.say(&Event::PollUnpublished { endpoint, fence, error });
        }
        if sent.awaited {
            let _ = self.nudges.try_send(Nudge::PollEnded);
        }
    }

    /// Takes in what waits, as far as there is room.
    pub fn take_waiting(&mut self) {
        let room = self.outbox.room();
        let now = self.table.now();
        self.samples.try_iter().take(room).for_each(|it| self.outbox.put(it.0, it.1, now));
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;
    use crate::daemon::testing::Holder;
    use crate::daemon::thread::stop;
    use crate::model::{Sample, Tenure};
    use crate::store::Publication;

    /// For what happens at once, or never.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn publication(tenure: &Tenure) -> Publication {
        let (tenure, sample) = (tenure.clone(), Sample::failed("no answer", PATIENCE));
        Publication { tenure, started_at_ms: 1, interval: PATIENCE, sample }
    }

    #[test]
    fn a_stop_does_not_wait_for_a_store_that_takes_no_results() {
        let Holder { store, table, held, .. } = Holder::of(Outbox::CAPACITY + 1);
        let (samples, sampled) = bounded(held.len());
        for tenure in &held {
            samples.send((publication(tenure), table.permit(tenure).unwrap())).unwrap();
        }
        store.cut_off(true);
        let publisher = Publisher::new(store, Arc::clone(&table), sampled, bounded(1).0);
        let (source, when) = stop();
        drop(source);
        std::thread::scope(|scope| {
            let (ended, end) = bounded(1);
            scope.spawn(move || {
                publisher.run(&when);
                ended.send(()).unwrap();
            });
            let end = end.recv_timeout(PATIENCE);
            // Whoever waits for the leases to end must not wait for ever.
            held.iter().for_each(|it| drop(table.let_go(&it.endpoint)));
            drop(samples);
            assert_eq!(end, Ok(()));
        });
    }
}
