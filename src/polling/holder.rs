//! A table that holds some leases of a store in memory, for tests of what stands on one.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::ManualClock;
use crate::lease::table::{LeaseTimings, OwnershipTable};
use crate::model::{EndpointId, InstanceId, LeaseDuration, Session, Tenure, Weight};
use crate::polling::dispatch::PollJob;
use crate::polling::schedule::Due;
use crate::store::Store;
use crate::store::memory::{MemoryServer, MemoryStore};

const DURATION: LeaseDuration = LeaseDuration::new(Duration::from_secs(30));

/// All on one clock, which stands still.
pub(crate) struct Holder {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) server: Arc<MemoryServer>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) table: Arc<OwnershipTable>,
    pub(crate) held: Vec<Tenure>,
}

impl Holder {
    /// A job that was verified just now: a poll under the lease with this number.
    pub(crate) fn job(&self, n: usize) -> PollJob {
        let tenure = self.held[n].clone();
        let id = tenure.endpoint.as_str();
        let json = format!(r#"{{"id":"{id}","address":"h:1"}}"#);
        let session = Arc::new(Session::parse(id, json.as_bytes()).unwrap());
        let (timeout, due_at) = (DURATION.ttl, self.table.now());
        let (next_after_ok, next_after_failure) = (timeout, timeout);
        let skipped = None;
        let due =
            Due { tenure, session, timeout, due_at, next_after_ok, next_after_failure, skipped };
        PollJob { due, verified_at: due_at }
    }

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
            &store.heartbeat(&request.context, DURATION.ttl, Weight(1)).unwrap(),
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
