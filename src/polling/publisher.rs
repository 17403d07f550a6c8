//! How do results reach the store? The thread `publish` sends them in batches, each result under its fence.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::clock::Moment;
use crate::event::Event;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::lease::watch::Nudge;
use crate::model::{Change, Tenure, Verdict, VerdictState};
use crate::polling::outbox::{Outbox, Sent};
use crate::polling::reach::Reach;
use crate::polling::verdicts::Verdicts;
use crate::polling::worker::Polled;
use crate::store::{Fault, Publication, Publish, Store};
use crate::thread::Stop;

/// Results that come within this after a call go with the next: a call costs the store as much as several of them.
const GATHER: Duration = Duration::from_millis(4);
/// Where this many results come within that time, more are gathered, and the next call comes that much later.
const MANY: usize = 50;
const GATHER_MANY: Duration = Duration::from_millis(10);

type Listener = Box<dyn Fn(Change) + Send>;

/// The thread `publish`: wakes on a result.
pub struct Publisher {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    samples: Receiver<Polled>,
    nudges: Sender<Nudge>,
    outbox: Outbox,
    verdicts: Arc<Verdicts>,
    on_change: Option<Listener>,
    reach: Reach,
    /// When a probe was last sent, while results are stuck.
    probed_at: Moment,
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
        let ttl = table.timings().lease.ttl;
        let (outbox, reach, probed_at) = (Outbox::new(ttl), Reach::new(ttl), Moment::MIN);
        let (verdicts, on_change) = (Arc::default(), None);
        Self {
            store,
            table,
            reporter,
            samples,
            nudges,
            outbox,
            verdicts,
            on_change,
            reach,
            probed_at,
        }
    }

    /// Also passes each change of a verdict to `tell`, which must not wait.
    pub fn telling(self, tell: impl Fn(Change) + Send + 'static) -> Self {
        Self { on_change: Some(Box::new(tell)), ..self }
    }

    /// The verdicts that were stored.
    pub fn verdicts(&self) -> &Arc<Verdicts> {
        &self.verdicts
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
        if self.outbox.is_empty() && !self.reach.is_stuck() {
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

    /// Whether there are results that it has not taken in.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_told(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Publishes one batch; how long to wait before the next try.
    pub fn step(&mut self) -> Duration {
        let (now, keeps_trying) = (self.table.now(), !self.reach.is_stuck());
        let expired = self.outbox.drop_expired(|it| self.table.has(it), keeps_trying, now);
        self.report(&expired);
        self.count_given_up(&expired, now);
        let probe_at = self.probed_at + self.table.timings().renew_interval;
        if self.reach.is_stuck() && now >= probe_at {
            self.probed_at = now;
            let mut probe = self.reach.probe().to_vec();
            let answered = self.ask(&mut probe).is_ok();
            return if answered { Duration::ZERO } else { self.table.timings().retry_interval() };
        }
        if self.outbox.is_empty() {
            return if self.reach.is_stuck() { probe_at.since(now) } else { Duration::ZERO };
        }
        let mut batch = self.outbox.batch();
        let answers = match self.ask(&mut batch) {
            Ok(Some(answers)) => answers,
            Ok(None) => return Duration::ZERO, // of another epoch: to be asked again under the new one
            Err(fault) => {
                self.outbox.retry(batch.len(), fault != Fault::Unreachable);
                return self.table.timings().retry_interval();
            }
        };
        let sent = self.outbox.settle(&answers);
        self.report(&sent);
        if sent.missing { self.table.timings().retry_interval() } else { Duration::ZERO }
    }

    /// One call about these results; whether it got an answer is noted, and so are the verdicts.
    fn ask(&mut self, batch: &mut [Publication]) -> Result<Option<Vec<Publish>>, Fault> {
        self.verdicts.fill_in(batch);
        let request = self.table.request();
        let asked = self.store.publish(&request.context, batch).map_err(|it| it.fault);
        // A refusal is an answer, too: with another instance it would be the same.
        if asked.as_ref().is_err_and(|it| *it == Fault::Unreachable) {
            self.reach.unanswered(batch);
        } else if self.reach.answered(batch, self.table.now()) {
            self.table.set_publishing(true);
            self.reporter.report(&Event::PublishResumed);
        }
        let reply = asked?;
        if let Some(ahead) = self.table.observe_stamp(&request, &reply).ran_ahead {
            self.reporter.report(&Event::StoreClock { ahead });
        }
        self.note_verdicts(batch, reply.answer.as_deref().unwrap_or_default());
        Ok(reply.answer)
    }

    fn note_verdicts(&self, batch: &[Publication], answers: &[Publish]) {
        for (publication, answer) in batch.iter().zip(answers) {
            if let Publish::Stored(state) = answer {
                let changed = self.verdicts.note_stored(publication, *state);
                if let Some(state) = changed {
                    self.tell(publication, state);
                }
            }
        }
        self.verdicts.forget(self.table.len(), |it| self.table.holds(it));
    }

    fn tell(&self, publication: &Publication, state: VerdictState) {
        let Publication { tenure, sample, judging, .. } = publication;
        let address = judging.session.as_ref().map(|it| it.address.shown().into_owned());
        let change = Change {
            tenure: tenure.clone(),
            instance: self.table.instance().clone(),
            address: address.unwrap_or_default(),
            state,
            status: sample.status,
            error: sample.error.clone(),
        };
        self.reporter.report(&match state.verdict {
            Some(Verdict::Failing) => Event::EndpointFailing(&change),
            _ => Event::EndpointRecovered(&change),
        });
        if let Some(tell) = &self.on_change {
            tell(change);
        }
    }

    /// An instance whose results get no answer, although its leases are renewed, wants no share of the fleet (weight
    /// 0): others ask for its leases. Where all are so, nobody asks, and each goes on as well as it can.
    fn count_given_up(&mut self, dropped: &Sent, now: Moment) {
        let is_renewed = |(tenure, since): &&(Tenure, Moment)| {
            let holding = self.table.holding(&tenure.endpoint);
            holding.is_some_and(|it| it.fence == tenure.fence && it.renewed_at > *since)
        };
        let results = dropped.unanswered.iter().filter(is_renewed).count();
        if results > 0 && self.reach.gave_up(results, now) {
            self.table.set_publishing(false);
            self.probed_at = now;
            let error = "no answer to results, while leases are renewed";
            self.reporter.report(&Event::PublishFailed { error: &error });
        }
    }

    fn report(&self, sent: &Sent) {
        for tenure in &sent.fenced {
            self.table.require_fence_check(tenure);
            let (endpoint, fence) = (&tenure.endpoint, tenure.fence);
            self.reporter.report(&Event::PollFenced { endpoint, fence });
        }
        for (tenure, error) in &sent.failed {
            let (endpoint, fence) = (&tenure.endpoint, tenure.fence);
            self.reporter.report(&Event::PollUnpublished { endpoint, fence, error });
        }
        if sent.awaited {
            let _ = self.nudges.try_send(Nudge::PollEnded);
            self.table.note_shutdown_progress();
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
    use crate::lease::testing::Holder;
    use crate::model::Sample;
    use crate::store::Judging;
    use crate::store::memory::Mishap;
    use crate::thread::stop;

    /// For what happens at once, or never.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn publication(tenure: &Tenure) -> Publication {
        let (tenure, sample) = (tenure.clone(), Sample::failed("no answer", PATIENCE));
        let judging = Judging::default();
        Publication {
            tenure,
            started_at_ms: 1,
            interval: PATIENCE,
            sample,
            judging,
            certificate: None,
        }
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
            // The thread that waits for the leases to end must not wait for ever.
            held.iter().for_each(|it| drop(table.forget_for_release(&it.endpoint)));
            drop(samples);
            assert_eq!(end, Ok(()));
        });
    }

    /// R11: a lease whose poll has ended is released when the result is stored, not at the next heartbeat.
    #[test]
    fn a_stored_result_of_a_draining_lease_wakes_the_shutdown() {
        let Holder { store, table, held, .. } = Holder::of(1);
        let (samples, sampled) = bounded(1);
        samples.send((publication(&held[0]), table.permit(&held[0]).unwrap())).unwrap();
        table.drain_all();
        table.shutdown_progress().try_iter().for_each(drop);
        let mut publisher = Publisher::new(store, Arc::clone(&table), sampled, bounded(1).0);
        publisher.take_waiting();
        assert!(table.take_drained(Duration::MAX).is_empty(), "its result is not stored yet");
        publisher.step();
        assert!(table.shutdown_progress().try_recv().is_ok());
        assert_eq!(table.take_drained(Duration::MAX), held);
    }

    /// One result that never gets an answer, for its size or whatever is in it.
    #[test]
    fn a_result_that_gets_no_answer_does_not_hold_up_the_others() {
        let Holder { table, held, .. } = Holder::of(100);
        let mut outbox = Outbox::new(PATIENCE);
        let put = |outbox: &mut Outbox, tenure: &Tenure| {
            outbox.put(publication(tenure), table.permit(tenure).unwrap(), table.now());
        };
        held.iter().for_each(|it| put(&mut outbox, it));
        let (bad, mut lost) = (held[7].clone(), 0);
        let mut step = |outbox: &mut Outbox| {
            let batch = outbox.batch();
            if batch.iter().any(|it| it.tenure == bad) {
                lost += 1;
                outbox.retry(batch.len(), false);
            } else {
                outbox.settle(&vec![Publish::Stored(None); batch.len()]);
            }
            lost
        };
        while outbox.len() > 1 {
            assert!(step(&mut outbox) <= 7, "{} still wait", outbox.len());
        }
        // From then on it is tried alone, and the others go all together.
        held.iter().filter(|it| **it != bad).for_each(|it| put(&mut outbox, it));
        step(&mut outbox);
        step(&mut outbox);
        assert_eq!(outbox.len(), 1);
    }

    /// A reply that is lost takes the word of the change along: it comes with the next one.
    #[test]
    fn a_change_is_told_once_whether_its_reply_was_lost_or_not() {
        for lost in [false, true] {
            let Holder { store, table, held, .. } = Holder::of(1);
            let (samples, sampled) = bounded(2);
            let put = |started_at_ms| {
                let it = Publication { started_at_ms, ..publication(&held[0]) };
                samples.send((it, table.permit(&held[0]).unwrap())).unwrap();
            };
            put(1);
            if lost {
                store.plan("publish", Mishap::LoseReply);
            }
            let (tell, told) = bounded(9);
            let mut publisher = Publisher::new(store, Arc::clone(&table), sampled, bounded(1).0)
                .telling(move |it| drop(tell.send(it)));
            publisher.take_waiting();
            publisher.step();
            publisher.step();
            assert!(publisher.outbox.is_empty());
            put(2);
            publisher.take_waiting();
            publisher.step();
            let told: Vec<Change> = told.try_iter().collect();
            assert_eq!(told.len(), 1, "lost: {lost}, {told:?}");
            assert_eq!((told[0].state.failures, told[0].state.since_ms), (1, 1));
        }
    }

    /// Only that leases were renewed meanwhile shows that the store was there: a machine that slept knows nothing of it.
    #[test]
    fn results_of_a_store_that_is_away_are_not_stuck() {
        let Holder { clock, store, table, held, .. } = Holder::of(1);
        let (samples, sampled) = bounded(1);
        samples.send((publication(&held[0]), table.permit(&held[0]).unwrap())).unwrap();
        store.cut_off(true);
        let mut publisher = Publisher::new(store, Arc::clone(&table), sampled, bounded(1).0);
        publisher.take_waiting();
        publisher.step();
        clock.pass(table.timings().lease.ttl);
        assert!(table.has(&held[0]), "nobody has looked at its deadline yet");
        publisher.step();
        assert!(publisher.outbox.is_empty() && table.is_publishing());
    }

    #[test]
    fn a_refusal_is_an_answer_and_silence_is_none() {
        for refused in [true, false] {
            let Holder { clock, server, store, table, held } = Holder::of(1);
            let (samples, sampled) = bounded(1);
            samples.send((publication(&held[0]), table.permit(&held[0]).unwrap())).unwrap();
            if refused {
                server.demote();
            } else {
                store.lose("publish", true);
            }
            let mut publisher = Publisher::new(store, Arc::clone(&table), sampled, bounded(1).0);
            publisher.take_waiting();
            publisher.step();
            clock.pass(table.timings().lease.ttl);
            let dropped = publisher.outbox.drop_expired(|_| true, true, table.now());
            assert_eq!(dropped.failed.len(), 1);
            assert_eq!(dropped.unanswered.is_empty(), refused);
            assert_eq!(publisher.reach.probe().is_empty(), refused);
        }
    }
}
