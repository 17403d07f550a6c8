//! Permits, and a table that holds leases of a store in memory, for tests.

use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
use crate::clock::ManualClock;
use crate::clock::{BootClock, Clock};
use crate::lease::heartbeat_deadline::HeartbeatDeadline;
use crate::lease::permit::{Lease, PollPermit, SharedClock};
#[cfg(test)]
use crate::lease::table::{LeaseTimings, OwnershipTable};
#[cfg(test)]
use crate::model::Weight;
use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, LeaseDuration, Tenure};
#[cfg(test)]
use crate::store::Store;
#[cfg(test)]
use crate::store::memory::{MemoryServer, MemoryStore};

/// A permit that holds for an hour, and what ends it the way a lost lease does.
pub fn permit_for_tests(
    endpoint: &str,
    instance: &str,
    fence: u64,
) -> (PollPermit, impl FnOnce() + Send + 'static) {
    let (permit, lease) = permit_and_lease(endpoint, instance, fence);
    let revoke = move || {
        lease.state.lock().ended = true;
        lease.stop_poll();
    };
    (permit, revoke)
}

pub(crate) fn permit_and_lease(
    endpoint: &str,
    instance: &str,
    fence: u64,
) -> (PollPermit, Arc<Lease>) {
    let hour = Duration::from_secs(3_600);
    let now = BootClock.now();
    let heartbeat_deadline = Arc::new(HeartbeatDeadline::default());
    heartbeat_deadline.confirm(now, now, LeaseDuration::new(hour), (true, Epoch(1)));
    let endpoint = EndpointId::parse(endpoint).expect("a valid endpoint id");
    let tenure = Tenure::new(endpoint, FenceToken(fence));
    let lease = Arc::new(Lease::new(
        tenure,
        (&heartbeat_deadline, heartbeat_deadline.generation()),
        now,
        now + hour,
        now + hour,
    ));
    let clock = SharedClock(Arc::new(BootClock));
    let permit = PollPermit::issue(&lease, &InstanceId::new(instance), &clock, &Arc::default())
        .expect("a lease granted just now may be polled");
    (permit, lease)
}

#[cfg(test)]
const DURATION: LeaseDuration = LeaseDuration::new(Duration::from_secs(30));

/// A table that holds leases of a store in memory. All on one clock, which stands still.
#[cfg(test)]
pub(crate) struct Holder {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) server: Arc<MemoryServer>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) table: Arc<OwnershipTable>,
    pub(crate) held: Vec<Tenure>,
}

#[cfg(test)]
impl Holder {
    /// Holds `e0`, `e1`, … of these there are `n`.
    pub(crate) fn of(n: usize) -> Self {
        let clock = Arc::new(ManualClock::at(10_000_000_000_000));
        let timings = LeaseTimings {
            lease: DURATION,
            heartbeat: DURATION,
            renew_interval: Duration::from_secs(10),
            store_timeout: Duration::from_secs(2),
        };
        let (me, own) = (InstanceId::new("me"), Arc::<ManualClock>::clone(&clock));
        let table = Arc::new(OwnershipTable::new(me, timings, own, true));
        let server = MemoryServer::new(&clock);
        let store = Arc::new(MemoryStore::new(&server));
        table.ensure_time_known(|timeout| store.time(timeout)).unwrap();
        let request = table.request();
        table.heartbeat_answered(
            &request,
            &store.heartbeat(&request.context, DURATION.ttl, Weight(1), None).unwrap(),
        );
        let endpoints: Vec<EndpointId> =
            (0..n).map(|it| EndpointId::parse(&format!("e{it}")).unwrap()).collect();
        let request = table.request();
        let reply = store.acquire(&request.context, &endpoints).unwrap();
        let gained = table.granted(&request, &endpoints, &reply).0;
        let held = gained.into_iter().map(|it| it.tenure).collect();
        Self { clock, server, store, table, held }
    }
}
