//! A client of a store, as an instance would be.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::lease::epoch_tracker::EpochTracker;
use leasehold::model::{EndpointId, FenceToken, InstanceId, LeaseDuration, Sample, Tenure, Weight};
use leasehold::store::{
    Acquire, HeartbeatReply, Judging, Publication, Publish, Release, Renew, RenewItem,
    RequestContext, Stamp, StampedResult, Store, Verify,
};

use crate::store::contract::world::{DURATION, TIMEOUT, TTL, World, store_at};

/// An instance that asks as the daemon does: under the epoch it has seen, and again if that changed.
pub struct Asker {
    pub me: InstanceId,
    pub store: Arc<dyn Store>,
    /// Of the last reply.
    pub stamp: Option<Stamp>,
    epoch_tracker: EpochTracker,
    clock: Arc<dyn Clock>,
    of_roles: bool,
}

impl Asker {
    pub fn new(world: &dyn World, name: &str, new_fleet: bool) -> Self {
        Self::with_duration(world, name, new_fleet, DURATION)
    }

    pub fn with_duration(
        world: &dyn World,
        name: &str,
        new_fleet: bool,
        term: LeaseDuration,
    ) -> Self {
        Self::on(world.store(), world.clock(), name, new_fleet, term).of_roles(world.of_roles())
    }

    /// Asks about roles: one at a time, and its heartbeat is part of its grants and renewals.
    pub fn of_roles(self, of_roles: bool) -> Self {
        Self { of_roles, ..self }
    }

    pub fn on(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        name: &str,
        new_fleet: bool,
        term: LeaseDuration,
    ) -> Self {
        let me = InstanceId::new(name);
        let epoch_tracker = EpochTracker::new(me.clone(), term, new_fleet);
        Self { me, store, stamp: None, epoch_tracker, clock, of_roles: false }
    }

    /// On the server at `url`, which nobody used before.
    pub fn at(url: &str, name: &str) -> Self {
        Self::on(Arc::new(store_at(url)), Arc::new(BootClock), name, true, DURATION)
    }

    /// Alive on a store without hold-off, unless another instance was there before.
    pub fn alive(world: &dyn World, name: &str) -> Self {
        let mut asker = Self::new(world, name, true);
        asker.beat();
        asker
    }

    pub fn context(&self) -> RequestContext {
        self.epoch_tracker.context(self.clock.now(), TIMEOUT)
    }

    /// A question that is out of date wherever it arrives.
    pub fn late_ask(&self) -> RequestContext {
        RequestContext { not_after_us: 1, ..self.context() }
    }

    /// Before the first question, as the daemon does.
    fn learn_time(&mut self) {
        if !self.epoch_tracker.knows_time() {
            let asked_at = self.clock.now();
            self.epoch_tracker.observe_time(asked_at, self.store.time(TIMEOUT).unwrap());
        }
    }

    pub fn observe_fence(&mut self, fence: u64) {
        self.epoch_tracker.observe_fence(FenceToken::new(fence));
    }

    /// Asks until the answer was decided under the epoch the server is in.
    pub fn answered<T>(
        &mut self,
        request: impl Fn(&dyn Store, &RequestContext) -> StampedResult<T>,
    ) -> T {
        for _ in 0..3 {
            self.learn_time();
            let asked_at = self.clock.now();
            let context = self.context();
            let reply = request(&*self.store, &context).unwrap();
            self.epoch_tracker.observe(asked_at, self.clock.now(), &reply.stamp);
            self.stamp = Some(reply.stamp);
            if let Some(answer) = reply.answer {
                return answer;
            }
        }
        panic!("{} was told three times that the epoch has changed: {:?}", self.me, self.stamp);
    }

    pub fn beat(&mut self) -> HeartbeatReply {
        if self.of_roles {
            self.holds_off();
            return HeartbeatReply { unbroken: true, weight: Weight(1) };
        }
        self.answered(|store, context| store.heartbeat(context, TTL, Weight(1), None))
    }

    /// What to verify if nothing in particular: a role has to be named, for its timing.
    fn nothing(&self) -> Vec<Tenure> {
        let role = || Tenure::new(endpoint("e"), FenceToken::new(0));
        self.of_roles.then(role).into_iter().collect()
    }

    pub fn acquire(&mut self, endpoint: &EndpointId) -> Acquire {
        let endpoints = [endpoint.clone()];
        let answer = only(self.answered(|store, context| store.acquire(context, &endpoints)));
        if let Acquire::Granted { fence, .. } = answer {
            self.epoch_tracker.observe_fence(fence);
        }
        answer
    }

    /// An acquire that must succeed.
    pub fn grant(&mut self, endpoint: &EndpointId) -> Tenure {
        match self.acquire(endpoint) {
            Acquire::Granted { fence, .. } => Tenure::new(endpoint.clone(), fence),
            other => panic!("{} was not granted {endpoint}: {other:?}", self.me),
        }
    }

    /// As the daemon renews a lease that stands.
    pub fn renew(&mut self, tenure: &Tenure) -> Renew {
        let items = [RenewItem::new(tenure.clone())];
        only(self.answered(|store, context| store.renew(context, &items)))
    }

    pub fn verify(&mut self, tenure: &Tenure) -> Verify {
        let tenures = [tenure.clone()];
        only(self.answered(|store, context| store.verify(context, &tenures)))
    }

    /// As the daemon looks at a lease whose fence was compared in this epoch.
    pub fn verify_by_name(&mut self, tenure: &Tenure) -> Verify {
        let tenures = [tenure.clone()];
        let owner_only =
            |context: &RequestContext| RequestContext { owner_only: true, ..context.clone() };
        only(self.answered(|store, context| store.verify(&owner_only(context), &tenures)))
    }

    /// Nothing is published under a role; a verification says as much.
    pub fn publish(&mut self, tenure: &Tenure, started_at_ms: u64) -> Publish {
        if self.of_roles {
            return match self.verify(tenure) {
                Verify::Held => Publish::Stored(None),
                Verify::Missing => Publish::Missing,
                Verify::NotOwner(_) => Publish::Fenced,
                Verify::Failed(why) => Publish::Failed(why),
            };
        }
        only(self.publish_all(&[publication(tenure, started_at_ms)]))
    }

    /// What became of each, without the verdict.
    pub fn publish_all(&mut self, results: &[Publication]) -> Vec<Publish> {
        let answers = self.answered(|store, context| store.publish(context, results));
        answers.into_iter().map(without_verdict).collect()
    }

    pub fn release(&mut self, tenure: &Tenure) -> Release {
        let answers =
            self.store.release(&self.context(), std::slice::from_ref(tenure), &[]).unwrap();
        only(answers)
    }

    /// As the daemon gives back what it has just forgotten, by its name where that proves enough.
    pub fn free(&mut self, tenure: &Tenure) -> Release {
        let context = self.release_request();
        only(self.store.release(&context, std::slice::from_ref(tenure), &[]).unwrap())
    }

    pub fn release_request(&mut self) -> RequestContext {
        self.epoch_tracker.release_request(self.clock.now(), TIMEOUT)
    }

    /// When this endpoint was last polled.
    pub fn last_polled(&self, endpoint: &EndpointId) -> Option<u64> {
        only(self.store.last_polled(std::slice::from_ref(endpoint), TIMEOUT).unwrap())
    }

    pub fn withdraw(&self) {
        self.store.withdraw(&self.context()).unwrap();
    }

    /// The owner in the store.
    pub fn owner(&self, endpoint: &EndpointId) -> Option<String> {
        let owners = self.store.owners(std::slice::from_ref(endpoint), TIMEOUT).unwrap();
        only(owners).map(|it| it.to_string())
    }

    /// Who has a heartbeat, with its weight, sorted.
    pub fn live(&self) -> Vec<(InstanceId, Weight)> {
        let (mut names, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let page = self.store.instances(cursor, TIMEOUT).unwrap();
            names.extend(page.found);
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        let names: Vec<InstanceId> = names.into_iter().collect();
        let weights = self.store.heartbeats(&names, TIMEOUT).unwrap();
        names.into_iter().zip(weights).filter_map(|(id, it)| Some((id, it?.value))).collect()
    }

    /// Has a new epoch begin, as after a step of the server's clock.
    pub fn suspect(&mut self) {
        let context = RequestContext { suspect: true, ..self.context() };
        assert_eq!(self.store.verify(&context, &self.nothing()).unwrap().answer, None);
    }

    pub fn holds_off(&mut self) -> bool {
        let nothing = self.nothing();
        let answers: Vec<Verify> = self.answered(|store, context| store.verify(context, &nothing));
        assert_eq!(answers.len(), nothing.len());
        self.stamp.is_some_and(|it| it.hold_off > Duration::ZERO)
    }
}

pub fn only<T>(mut items: Vec<T>) -> T {
    assert_eq!(items.len(), 1, "one answer per item");
    items.remove(0)
}

pub fn endpoint(name: &str) -> EndpointId {
    EndpointId::parse(name).unwrap()
}

/// For cases about whether a result is stored.
pub fn without_verdict(answer: Publish) -> Publish {
    if matches!(answer, Publish::Stored(_)) { Publish::Stored(None) } else { answer }
}

pub fn publication(tenure: &Tenure, started_at_ms: u64) -> Publication {
    let sample = Sample {
        ok: true,
        status: Some(200),
        error: None,
        body: b"hello".to_vec(),
        duration: Duration::from_millis(7),
    };
    let interval = Duration::from_millis(500);
    let judging = Judging::default();
    Publication {
        tenure: tenure.clone(),
        started_at_ms,
        interval,
        sample,
        judging,
        certificate: None,
    }
}

/// As the daemon renews leases that stand.
pub fn items(tenures: &[Tenure]) -> Vec<RenewItem> {
    let item = |it: &Tenure| RenewItem::new(it.clone());
    tenures.iter().map(item).collect()
}
