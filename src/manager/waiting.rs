//! When is a lease that another instance holds asked for again? At a release, at its expiry (R9), and now and then.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::manager::exchange::Exchange;
use crate::manager::outcome::{NotNow, Refusal};
use crate::manager::turns::Refused;
use crate::model::{EndpointId, InstanceId, spread};
use crate::store::StoreResult;

/// Where messages of other instances arrive, a lost message costs at most this much, and a third of a lease TTL.
const REPAIR_MAX: Duration = Duration::from_secs(10);
/// How often to ask where no messages arrive.
const UNHEARD: Duration = Duration::from_millis(500);
/// The remaining TTL of a key is told in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);
/// In jitter: parts of an interval.
const PARTS: u64 = 1_000;

impl Exchange {
    /// When a thread that waits until `until` is to ask again after this answer, unless something is heard before. May ask the
    /// store how long the lease lasts.
    pub(super) fn ask_again_at(
        self: &Arc<Self>,
        endpoint: &EndpointId,
        told: &Refused,
        until: Moment,
    ) -> Option<Moment> {
        let asked_at = self.table.now();
        if asked_at >= until {
            return None; // this thread does not wait for it
        }
        self.listening.ensure(self);
        let timings = self.table.timings();
        let after = match told {
            Ok(Refusal::HeldBy(owner)) => {
                let lasts = self.lasts(endpoint, owner).unwrap_or(REPAIR_MAX);
                lasts.min(self.jittered(endpoint, self.repair_interval()))
            }
            Ok(Refusal::HoldOff(left)) => *left + ROUNDING,
            Ok(Refusal::NotNow(NotNow::Uncertain | NotNow::NoHeartbeat | NotNow::Late))
            | Err(_) => self.jittered(endpoint, timings.retry_interval()),
        };
        Some(asked_at + after)
    }

    fn repair_interval(&self) -> Duration {
        let usual = REPAIR_MAX.min(self.table.timings().lease.ttl / 3);
        if self.listening.hears() { usual } else { usual.min(UNHEARD) }
    }

    /// How long another instance keeps the lease unless it renews: until the lease or its owner's heartbeat ends (R9, R13).
    fn lasts(&self, endpoint: &EndpointId, owner: &InstanceId) -> StoreResult<Duration> {
        let timings = self.table.timings();
        let lease = self.store.leases(std::slice::from_ref(endpoint), timings.store_timeout)?;
        let lease = lease.first().and_then(Option::as_ref);
        // Freed since, or another's: ask.
        let Some(lease) = lease.filter(|it| it.value == *owner) else { return Ok(ROUNDING) };
        let node = self.store.heartbeats(std::slice::from_ref(owner), timings.store_timeout)?;
        let node = match node.first().and_then(Option::as_ref) {
            Some(node) => node.left,
            // Its lease can be taken over, but not during a hold-off.
            None => self.table.hold_off().unwrap_or(timings.retry_interval()),
        };
        Ok(lease.left.min(node) + ROUNDING)
    }

    /// Between three and five quarters of `interval`, so that instances that began together do not ask together for ever.
    fn jittered(&self, endpoint: &EndpointId, interval: Duration) -> Duration {
        let (me, now) = (self.table.instance(), self.table.now().as_nanos());
        let part = spread(&format!("{me} {endpoint} {now}"), PARTS);
        let part = u32::try_from(part).unwrap_or_default();
        interval * 3 / 4 + interval / 2 * part / 1_000
    }
}
