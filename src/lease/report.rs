//! What happened to the leases? Logs, counts and remembers each event once, in the words of `docs/contract.md`.

use crate::config::LogRenewals;
use crate::event::Event;
use crate::lease::history::History;
use crate::lease::table::{Applied, Loss, Lost, OwnershipTable};
use crate::metrics::Metrics;
use crate::model::InstanceId;
use std::sync::Arc;
use std::time::Duration;

/// Above this many held leases, `auto` sums a round up instead of naming each.
const EACH_MAX: usize = 100;

/// Hears what became of leases, from the threads that keep them.
pub trait LeaseEventSink: Send + Sync {
    /// Everything a round of answers did, but the renewals that went well.
    fn applied(&self, applied: &Applied);

    /// The renewals that went well, and how many leases are held.
    fn round(&self, applied: &Applied, held: usize);

    /// What ended against our will.
    fn lost(&self, lost: &[Lost]);
}

/// Speaks for one instance.
#[derive(Clone, Debug)]
pub struct Reporter {
    me: InstanceId,
    ttl: Duration,
    renewals: LogRenewals,
    history: Option<History>,
    metrics: Arc<Metrics>,
}

impl Reporter {
    /// Speaks for the owner of `table`.
    pub fn new(table: &OwnershipTable) -> Self {
        let (me, ttl) = (table.instance().clone(), table.timings().lease.ttl);
        let metrics = Arc::clone(table.metrics());
        Self { me, ttl, renewals: LogRenewals::Auto, history: None, metrics }
    }

    /// Names each renewal, or sums them up.
    pub fn renewals(self, renewals: LogRenewals) -> Self {
        Self { renewals, ..self }
    }

    /// What becomes of leases is remembered, too.
    pub fn remembering(self, history: &History) -> Self {
        Self { history: Some(history.clone()), ..self }
    }

    /// Counts it, and does not say it: for what was said before.
    pub fn count(&self, event: &Event<'_>) {
        self.metrics.count(event);
    }

    /// Says it, and counts it.
    pub fn say(&self, event: &Event<'_>) {
        self.metrics.count(event);
        if let Some(history) = &self.history {
            history.note(event);
        }
        event.log(&self.me);
    }
}

impl LeaseEventSink for Reporter {
    fn applied(&self, applied: &Applied) {
        for tenure in &applied.reclaimed {
            let (endpoint, fence) = (&tenure.endpoint, tenure.fence);
            self.say(&Event::LeaseReclaimed { endpoint, fence });
        }
        for (tenure, error) in &applied.doubted {
            self.say(&Event::LeaseUncertain { endpoint: &tenure.endpoint, error });
        }
        self.lost(&applied.lost);
        if let Some(ahead) = applied.anomaly.ran_ahead {
            self.say(&Event::StoreClock { ahead });
        }
    }

    fn lost(&self, lost: &[Lost]) {
        for Lost { tenure, loss } in lost {
            let (reason, owner) = match loss {
                Loss::Expired => ("expired", None),
                Loss::Taken(owner) => ("taken", Some(owner)),
                Loss::Gone => ("gone", None),
            };
            self.say(&Event::LeaseLost { tenure, reason, owner });
        }
    }

    /// By name, or as counts when there are many.
    fn round(&self, applied: &Applied, held: usize) {
        let each = match self.renewals {
            LogRenewals::Each => true,
            LogRenewals::Summary => false,
            LogRenewals::Auto => held <= EACH_MAX,
        };
        if each {
            for tenure in &applied.extended {
                self.say(&Event::LeaseRenewed { endpoint: &tenure.endpoint, ttl: self.ttl });
            }
        } else {
            self.say(&Event::RenewalRound {
                renewed: applied.extended.len() + applied.reclaimed.len(),
                lost: applied.lost.len(),
                uncertain: applied.doubted.len(),
            });
        }
    }
}
