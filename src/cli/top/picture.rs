//! The last reading of the fleet, and the latencies seen since `top` began.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::inspect::status::{EndpointStatus, Status};
use crate::store::StoreResult;
use crate::store::history::{Entry, Stream, in_order};
use crate::store::redis::RedisStore;
use fnv::FnvHashMap;

/// How many latencies are shown.
pub(crate) const SAMPLES: usize = 12;
/// How many events are read: more than a screen has room for.
const RECENT: usize = 20;

/// Everything that was read at one time.
pub(crate) struct Picture {
    pub(crate) status: Status,
    /// The newest last; none where they may not be read.
    pub(crate) recent: Vec<Entry>,
    pub(crate) read_at: Moment,
    pub(crate) took: Duration,
}

impl Picture {
    pub(crate) fn read(store: &RedisStore, config: &Config, stale: Duration) -> StoreResult<Self> {
        let began = BootClock.now();
        let overview = store.overview(config.store_timeout)?;
        let recent =
            store.history(Stream::Leases, None, RECENT, config.store_timeout).unwrap_or_default();
        let recent = in_order(recent);
        let took = BootClock.now().since(began);
        let status = Status::of(overview, stale);
        Ok(Self { status, recent, read_at: BootClock.now(), took })
    }
}

/// The last latencies of an endpoint; `None` for a poll that failed.
#[derive(Default)]
pub(crate) struct Samples {
    pub(crate) last: VecDeque<Option<u64>>,
    started_at_ms: Option<u64>,
}

/// Of every endpoint.
#[derive(Default)]
pub(crate) struct Latencies(FnvHashMap<String, Samples>);

impl Latencies {
    /// Adds the results that arrived since the last reading.
    pub(crate) fn see(&mut self, endpoints: &[EndpointStatus]) {
        let mut before = std::mem::take(&mut self.0);
        for it in endpoints {
            let Some(result) = &it.result else { continue };
            let mut samples = before.remove(&it.name).unwrap_or_default();
            if samples.started_at_ms != result.started_at_ms || samples.last.is_empty() {
                samples.started_at_ms = result.started_at_ms;
                samples.last.push_back(result.duration_ms.filter(|_| result.ok));
                if samples.last.len() > SAMPLES {
                    samples.last.pop_front();
                }
            }
            self.0.insert(it.name.clone(), samples);
        }
    }

    pub(crate) fn of(&self, name: &str) -> Option<&Samples> {
        self.0.get(name)
    }
}
