//! One instance and its leases, through the production store: each verb over a range of them, in batches.

use std::io;
use std::ops::Range;
use std::time::Duration;

use leasehold::model::{
    EndpointId, Epoch, FenceToken, InstanceId, LeaseDuration, Sample, Tenure, Weight,
};
use leasehold::store::redis::RedisStore;
use leasehold::store::{
    Acquire, BATCH_MAX, Judging, Publication, Publish, Release, Renew, RenewItem, Reply,
    RequestContext, Store, StoreError, Verify,
};

/// Holds leases; `store` is a line of its own.
pub struct Holder {
    pub store: RedisStore,
    pub context: RequestContext,
    pub endpoints: Vec<EndpointId>,
    /// By endpoint; what was never granted has fence 0.
    tenures: Vec<Tenure>,
    /// As an owner asks in every round of an epoch but the first.
    fence_checked: Vec<RenewItem>,
    fence_unchecked: Vec<RenewItem>,
}

impl Holder {
    /// An instance that lives, and has nothing yet.
    pub fn new(store: RedisStore, ttl: Duration, endpoints: Vec<EndpointId>) -> io::Result<Self> {
        let mut context = RequestContext {
            instance: InstanceId::generate_now("bench"),
            duration: LeaseDuration::new(ttl),
            epoch: Epoch(0),
            suspect: false,
            floor_us: 0,
            highest_fence: FenceToken::new(0),
            owner_only: true,
            not_after_us: 0,
            new_fleet: true,
            revocable: true,
            obeyed_ms: 0,
            timeout: Duration::from_secs(10),
        };
        let lasts = Duration::from_secs(86_400);
        let beat = store.heartbeat(&context, lasts, Weight(1), None).map_err(io::Error::other)?;
        context.epoch = beat.stamp.epoch;
        let tenure = |it: &EndpointId| Tenure::new(it.clone(), FenceToken::new(0));
        let tenures: Vec<Tenure> = endpoints.iter().map(tenure).collect();
        let fence_unchecked: Vec<RenewItem> = tenures.iter().cloned().map(RenewItem::new).collect();
        let fence_checked =
            fence_unchecked.iter().map(|it| RenewItem { fence_checked: true, ..it.clone() });
        Ok(Self {
            store,
            context,
            endpoints,
            tenures,
            fence_checked: fence_checked.collect(),
            fence_unchecked,
        })
    }

    /// Takes these, which are free. The new fences count from [`Self::granted`] on.
    pub fn acquire(&self, these: Range<usize>) -> io::Result<Vec<Acquire>> {
        let mut granted = Vec::with_capacity(these.len());
        for batch in self.endpoints[these.clone()].chunks(BATCH_MAX) {
            granted.extend(answers(self.store.acquire(&self.context, batch))?);
        }
        let is_granted = |it: &&Acquire| matches!(it, Acquire::Granted { .. });
        all("granted", these.len(), granted.iter().filter(is_granted).count())?;
        Ok(granted)
    }

    /// What [`Self::acquire`] brought.
    pub fn granted(&mut self, these: Range<usize>, answers: &[Acquire]) {
        for (at, answer) in these.zip(answers) {
            let Acquire::Granted { fence, .. } = answer else { continue };
            self.context.highest_fence = self.context.highest_fence.max(*fence);
            self.context.floor_us = self.context.floor_us.max(fence.get());
            for tenure in [
                &mut self.tenures[at],
                &mut self.fence_checked[at].tenure,
                &mut self.fence_unchecked[at].tenure,
            ] {
                tenure.fence = *fence;
            }
        }
    }

    /// Renews these; `fence_checked` is the usual way, its opposite that of the first round of an epoch.
    pub fn renew(&self, these: Range<usize>, fence_checked: bool) -> io::Result<()> {
        let items = if fence_checked { &self.fence_checked } else { &self.fence_unchecked };
        let mut renewed = 0;
        for batch in items[these.clone()].chunks(BATCH_MAX) {
            let answers = answers(self.store.renew(&self.context, batch))?;
            renewed += answers.iter().filter(|it| **it == Renew::Extended).count();
        }
        all("renewed", these.len(), renewed)
    }

    pub fn verify(&self, these: Range<usize>) -> io::Result<()> {
        let mut held = 0;
        for batch in self.tenures[these.clone()].chunks(BATCH_MAX) {
            let answers = answers(self.store.verify(&self.context, batch))?;
            held += answers.iter().filter(|it| **it == Verify::Held).count();
        }
        all("held", these.len(), held)
    }

    /// Stores a result of these, of a poll that began at `started_at_ms` and brought `body`.
    pub fn publish(&self, these: Range<usize>, started_at_ms: u64, body: &[u8]) -> io::Result<()> {
        let publication = |tenure: &Tenure| {
            let (ok, status, error, body) = (true, Some(200), None, body.to_vec());
            let duration = Duration::from_millis(20);
            let sample = Sample { ok, status, error, body, duration };
            let interval = Duration::from_secs(60);
            let judging = Judging::default();
            Publication {
                tenure: tenure.clone(),
                started_at_ms,
                interval,
                sample,
                judging,
                certificate: None,
            }
        };
        let mut stored = 0;
        for batch in self.tenures[these.clone()].chunks(BATCH_MAX) {
            let batch: Vec<Publication> = batch.iter().map(publication).collect();
            let answers = answers(self.store.publish(&self.context, &batch))?;
            stored += answers.iter().filter(|it| matches!(it, Publish::Stored(_))).count();
        }
        all("published", these.len(), stored)
    }

    pub fn release(&self, these: Range<usize>) -> io::Result<()> {
        let mut released = 0;
        for batch in self.tenures[these.clone()].chunks(BATCH_MAX) {
            let answers =
                self.store.release(&self.context, batch, &[]).map_err(io::Error::other)?;
            released += answers.iter().filter(|it| **it == Release::Released).count();
        }
        all("released", these.len(), released)
    }
}

fn answers<T>(reply: Result<Reply<Vec<T>>, StoreError>) -> io::Result<Vec<T>> {
    let answer = reply.map_err(io::Error::other)?.answer;
    answer.ok_or_else(|| io::Error::other("the epoch has changed"))
}

/// Work that was not done is not measured.
pub fn all(what: &str, n: usize, done: usize) -> io::Result<()> {
    if done == n {
        return Ok(());
    }
    Err(io::Error::other(format!("only {done} of {n} leases were {what}")))
}

/// Names as long as a UUID.
pub fn endpoints(numbers: Range<u32>) -> io::Result<Vec<EndpointId>> {
    let id = |n| EndpointId::parse(&format!("2f1c8a4e-0000-4000-8000-{n:012}"));
    numbers.map(|n| id(n).map_err(io::Error::other)).collect()
}
