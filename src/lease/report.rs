//! What happened to the leases? Logs and counts each event, and notes it in the history. `docs/contract.md` lists the events.

use crate::config::LogRenewals;
use crate::event::Event;
use crate::lease::history::History;
use crate::lease::log_limiter::{Admission, LogLimiter, RenewalCounts};
use crate::lease::permit::SharedClock;
use crate::lease::table::{Applied, Loss, Lost, OwnershipTable};
use crate::lease::trouble::Change;
use crate::metrics::Metrics;
use crate::model::InstanceId;
use log::Level;
use std::sync::Arc;
use std::time::Duration;

/// Receives what happened to leases from the threads that keep them.
pub trait LeaseEventSink: Send + Sync {
    /// All effects of a reply except successful renewals.
    fn applied(&self, applied: &Applied);

    /// The successful renewals of a reply.
    fn round(&self, applied: &Applied);

    /// Leases that ended without a release.
    fn lost(&self, lost: &[Lost]);

    /// Called several times a second: logs the counts that are due.
    fn tick(&self) {}
}

/// Reports the events of one instance.
#[derive(Clone, Debug)]
pub struct Reporter {
    me: InstanceId,
    ttl: Duration,
    renewals: LogRenewals,
    history: Option<History>,
    metrics: Arc<Metrics>,
    limiter: Arc<LogLimiter>,
    clock: SharedClock,
}

impl Reporter {
    /// A reporter for the instance of `table`.
    pub fn new(table: &OwnershipTable) -> Self {
        let (me, ttl) = (table.instance().clone(), table.timings().lease.ttl);
        let (metrics, limiter) = (Arc::clone(table.metrics()), Arc::clone(table.log_limiter()));
        let clock = table.clock().clone();
        Self { me, ttl, renewals: LogRenewals::Auto, history: None, metrics, limiter, clock }
    }

    /// Sets whether renewals are logged one by one or as a count.
    pub fn renewals(self, renewals: LogRenewals) -> Self {
        Self { renewals, ..self }
    }

    /// Also notes the events of leases in `history`.
    pub fn with_history(self, history: &History) -> Self {
        Self { history: Some(history.clone()), ..self }
    }

    /// Counts an event without logging it, because it was logged before.
    pub fn count(&self, event: &Event<'_>) {
        self.metrics.count(event);
    }

    /// Counts an event, notes it in the history, and logs it. In a flood of its kind it is logged at `debug`, and the
    /// log has a count.
    pub fn report(&self, event: &Event<'_>) {
        self.metrics.count(event);
        if let Some(history) = &self.history {
            history.note(event);
        }
        match self.limiter.admit(event, self.clock.0.now()) {
            Admission::ByName => event.log(&self.me),
            Admission::Counted => event.log_at(Level::Debug, &self.me),
        }
    }

    /// Reports that an operation began to fail, fails for another reason, or works again.
    pub(crate) fn report_change(
        &self,
        change: Option<Change>,
        failed: impl FnOnce(&String) -> Event<'_>,
        resumed: Event<'_>,
    ) {
        match change {
            Some(Change::Failed(error)) => self.report(&failed(&error)),
            Some(Change::Resumed) => self.report(&resumed),
            None => (),
        }
    }

    /// Logs the counts that are not logged yet. For the end of the instance: nothing ticks any more.
    pub fn report_rest(&self) {
        self.limiter.rest(self.clock.0.now()).iter().for_each(|it| it.log(&self.me));
        self.report_renewals(self.limiter.renewals_rest());
    }

    fn report_renewals(&self, counts: Option<RenewalCounts>) {
        if let Some(RenewalCounts { renewed, lost, uncertain }) = counts {
            self.report(&Event::RenewalRound { renewed, lost, uncertain });
        }
    }
}

impl LeaseEventSink for Reporter {
    fn applied(&self, applied: &Applied) {
        for tenure in &applied.reclaimed {
            let (endpoint, fence) = (&tenure.endpoint, tenure.fence);
            self.report(&Event::LeaseReclaimed { endpoint, fence });
        }
        for (tenure, error) in &applied.doubted {
            self.report(&Event::LeaseUncertain { endpoint: &tenure.endpoint, error });
        }
        self.lost(&applied.lost);
        if let Some(ahead) = applied.anomaly.ran_ahead {
            self.report(&Event::StoreClock { ahead });
        }
    }

    fn lost(&self, lost: &[Lost]) {
        self.limiter.count_lost(lost.len());
        for Lost { tenure, loss } in lost {
            let (reason, owner) = match loss {
                Loss::Expired => ("expired", None),
                Loss::Revoked => ("revoked", None),
                Loss::Taken(owner) => ("taken", Some(owner)),
                Loss::Gone => ("gone", None),
            };
            self.report(&Event::LeaseLost { tenure, reason, owner });
        }
    }

    /// `auto`: each at `debug`, and a count a minute. `each`: each at `info`. `summary`: a count a minute.
    fn round(&self, applied: &Applied) {
        let ttl = self.ttl;
        let renewed =
            applied.extended.iter().map(|it| Event::LeaseRenewed { endpoint: &it.endpoint, ttl });
        match self.renewals {
            LogRenewals::Each => renewed.for_each(|it| it.log_at(Level::Info, &self.me)),
            LogRenewals::Auto => renewed.for_each(|it| it.log(&self.me)),
            LogRenewals::Summary => (),
        }
        if self.renewals != LogRenewals::Each {
            let renewed = applied.extended.len() + applied.reclaimed.len();
            self.limiter.count_renewals(renewed, applied.doubted.len(), self.clock.0.now());
        }
    }

    fn tick(&self) {
        let now = self.clock.0.now();
        self.limiter.due(now).iter().for_each(|it| it.log(&self.me));
        self.report_renewals(self.limiter.renewals_due(now));
    }
}
