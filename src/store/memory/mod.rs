//! The store without Redis: the same contract on a manual clock, with the faults a test plans.
//!
//! [`MemoryServer`] is the server that all instances share; a [`MemoryStore`] is one instance's way to
//! it, and what can go wrong on that way. Nothing here waits: a lost message is an error at once.

mod client;
mod endings;
mod kinds;
mod malformed;
mod operator;
mod revocations;
mod roles;
mod scripts;
mod server;
mod subscription;
mod verification;

use std::time::Duration;

pub use crate::store::memory::client::{MemoryStore, Mishap, no_answer};
pub use crate::store::memory::server::{Announced, MemoryServer, Snapshot};
#[cfg(feature = "testing")]
pub(crate) use crate::store::memory::subscription::PushObserver;

use crate::model::{EndpointId, InstanceId, InstanceInfo, Tenure, Weight};
use crate::store::fast_path;
use crate::store::memory::malformed::is_ttl;
use crate::store::memory::scripts::micros;
use crate::store::memory::server::ServerState;
use crate::store::memory::subscription::MemorySubscription;
use crate::store::{
    ASK_LASTS, Acquire, HeartbeatReply, Lasting, Page, PeerMessage, Publication, Publish,
    RawSession, Release, Renew, RenewItem, RequestContext, RoleStatus, StampedResult, Store,
    StoreResult, Subscription, Verify,
};

impl Store for MemoryStore {
    fn inspect(&self, _: Duration) -> StoreResult<()> {
        self.call("inspect", |_, _| Ok(()))
    }

    fn time(&self, _: Duration) -> StoreResult<u64> {
        self.call("time", |state, clock| Ok(state.now_us(clock)))
    }

    fn heartbeat(
        &self,
        context: &RequestContext,
        ttl: Duration,
        weight: Weight,
        info: Option<&InstanceInfo>,
    ) -> StampedResult<HeartbeatReply> {
        let (context, info) = (context.clone(), info.cloned());
        self.call("heartbeat", move |state, clock| {
            let reply = state.heartbeat(&context, ttl, weight, clock)?;
            let until = state.now_us(clock) + micros(ttl);
            let told = info.clone().filter(|_| reply.answer.is_some());
            state.data.infos.extend(told.map(|it| (context.instance.clone(), (it, until))));
            Ok(reply)
        })
    }

    fn acquire(
        &self,
        context: &RequestContext,
        endpoints: &[EndpointId],
    ) -> StampedResult<Vec<Acquire>> {
        let (context, endpoints) = (context.clone(), endpoints.to_vec());
        self.call("acquire", move |state, clock| {
            let verb =
                |state: &mut ServerState, it: &EndpointId, now| state.acquire(&context, it, now);
            let reply = state.for_each(&context, clock, &endpoints, verb)?;
            state.tell_grants(&context.instance, &endpoints, &reply);
            Ok(reply)
        })
    }

    fn renew(&self, context: &RequestContext, items: &[RenewItem]) -> StampedResult<Vec<Renew>> {
        let has_fast_path = self.server.kind().has_owner_fast_path();
        let is_proof = |it: &RenewItem| has_fast_path && it.fence_checked;
        let by_owner = |items| self.each("renew", context, items, ServerState::renew_by_owner);
        fast_path::by_owner_or_fence(items, is_proof, &Renew::Extended, by_owner, |items| {
            self.each("renew", context, items, ServerState::renew)
        })
    }

    fn verify(&self, context: &RequestContext, tenures: &[Tenure]) -> StampedResult<Vec<Verify>> {
        let has_fast_path = context.owner_only && self.server.kind().has_owner_fast_path();
        let by_owner = |tenures| self.each_verified(context, tenures, ServerState::verify_by_owner);
        fast_path::by_owner_or_fence(
            tenures,
            |_| has_fast_path,
            &Verify::Held,
            by_owner,
            |tenures| self.each_verified(context, tenures, ServerState::verify),
        )
    }

    fn publish(
        &self,
        context: &RequestContext,
        publications: &[Publication],
    ) -> StampedResult<Vec<Publish>> {
        let (context, publications) = (context.clone(), publications.to_vec());
        self.call("publish", move |state, clock| {
            let verb = |state: &mut ServerState, it: &Publication, _| state.publish(&context, it);
            state.for_each(&context, clock, &publications, verb)
        })
    }

    /// Two messages, where the first does not prove enough.
    fn release(
        &self,
        context: &RequestContext,
        tenures: &[Tenure],
        wakes: &[PeerMessage],
    ) -> StoreResult<Vec<Release>> {
        let has_fast_path = context.owner_only && self.server.kind().has_owner_fast_path();
        for owner_only in [true, false].into_iter().filter(|it| has_fast_path || !it) {
            let (context, tenures, wakes) = (context.clone(), tenures.to_vec(), wakes.to_vec());
            let released = self.call("release", move |state, clock| {
                state.forget_expired(clock);
                let release = |it| state.release(&context.instance, it);
                let released = match owner_only {
                    true => state.release_by_owner(&context, &tenures),
                    false => Some(tenures.iter().map(release).collect()),
                };
                Ok(released.inspect(|_| state.say(&wakes)))
            })?;
            if let Some(answers) = released {
                return Ok(answers);
            }
        }
        Ok(Vec::new())
    }

    fn acquire_roles(
        &self,
        asked: &[(RequestContext, EndpointId)],
    ) -> Vec<StampedResult<Vec<Acquire>>> {
        self.acquire_each(asked)
    }

    fn renew_roles(
        &self,
        asked: &[(RequestContext, Vec<RenewItem>)],
    ) -> Vec<StampedResult<Vec<Renew>>> {
        self.renew_each(asked)
    }

    fn verify_roles(&self, asked: &[(RequestContext, Tenure)]) -> Vec<StampedResult<Vec<Verify>>> {
        self.verify_each(asked)
    }

    fn release_roles(&self, freed: &[(RequestContext, Tenure, PeerMessage)]) -> StoreResult<()> {
        self.release_each(freed)
    }

    fn last_polled(&self, endpoints: &[EndpointId], _: Duration) -> StoreResult<Vec<Option<u64>>> {
        let endpoints = endpoints.to_vec();
        self.call("last_polled", move |state, _| {
            Ok(endpoints.iter().map(|it| state.last_polled(it)).collect())
        })
    }

    fn retire(&self, endpoints: &[EndpointId], _: Duration) -> StoreResult<()> {
        if !self.server.kind().records_end() {
            return Ok(());
        }
        let endpoints = endpoints.to_vec();
        self.call("retire", move |state, clock| {
            state.forget_expired(clock);
            state.retire(&endpoints, state.now_us(clock));
            Ok(())
        })
    }

    fn withdraw(&self, context: &RequestContext) -> StoreResult<()> {
        let me = context.instance.clone();
        self.call("withdraw", move |state, _| {
            state.withdraw(&me);
            Ok(())
        })
    }

    fn wake(&self, wakes: &[PeerMessage], _: Duration) -> StoreResult<()> {
        let wakes = wakes.to_vec();
        self.call("wake", move |state, clock| {
            let until = state.now_us(clock) + micros(ASK_LASTS);
            for wake in wakes.iter().filter(|it| !it.wants.is_empty()) {
                let asks =
                    wake.to.clone().map(|to| ((to, wake.from.clone()), (wake.clone(), until)));
                state.data.asks.extend(asks);
            }
            state.say(&wakes);
            Ok(())
        })
    }

    fn asks(
        &self,
        me: &InstanceId,
        of: &[InstanceId],
        _: Duration,
    ) -> StoreResult<Vec<PeerMessage>> {
        let (me, of) = (me.clone(), of.to_vec());
        self.call("asks", move |state, clock| {
            state.forget_expired(clock);
            let request = |it: &InstanceId| state.data.asks.get(&(me.clone(), it.clone()));
            Ok(of.iter().filter_map(request).map(|it| it.0.clone()).collect())
        })
    }

    fn session_names(&self, _: u64, _: Duration) -> StoreResult<Page<String>> {
        self.call("session_names", |state, _| Ok(Page { found: state.session_names(), cursor: 0 }))
    }

    fn sessions(
        &self,
        endpoints: &[EndpointId],
        _: Duration,
    ) -> StoreResult<Vec<Option<RawSession>>> {
        let endpoints = endpoints.to_vec();
        self.call("sessions", move |state, _| {
            Ok(endpoints.iter().map(|it| state.session(it)).collect())
        })
    }

    fn any_session(&self, endpoints: &[EndpointId], _: Duration) -> StoreResult<bool> {
        let endpoints = endpoints.to_vec();
        self.call("any_session", move |state, _| {
            Ok(endpoints.iter().any(|it| state.session(it).is_some()))
        })
    }

    fn instances(&self, _: u64, _: Duration) -> StoreResult<Page<InstanceId>> {
        self.call("instances", |state, clock| {
            state.forget_expired(clock);
            Ok(Page { found: state.data.nodes.keys().cloned().collect(), cursor: 0 })
        })
    }

    fn heartbeats(
        &self,
        instances: &[InstanceId],
        _: Duration,
    ) -> StoreResult<Vec<Option<Lasting<Weight>>>> {
        let instances = instances.to_vec();
        self.call("heartbeats", move |state, clock| {
            state.cap_ttls(clock);
            let node = |it| state.lasting_node(it, clock);
            Ok(instances.iter().map(node).collect())
        })
    }

    fn owners(
        &self,
        endpoints: &[EndpointId],
        _: Duration,
    ) -> StoreResult<Vec<Option<InstanceId>>> {
        let endpoints = endpoints.to_vec();
        self.call("owners", move |state, clock| {
            state.forget_expired(clock);
            Ok(endpoints.iter().map(|it| state.owner(it)).collect())
        })
    }

    fn leases(
        &self,
        endpoints: &[EndpointId],
        _: Duration,
    ) -> StoreResult<Vec<Option<Lasting<InstanceId>>>> {
        let endpoints = endpoints.to_vec();
        self.call("leases", move |state, clock| {
            state.cap_ttls(clock);
            let owner = |it| state.data.leases.get(it).map(|it| state.lasting(it, clock));
            Ok(endpoints.iter().map(owner).collect())
        })
    }

    fn expiring(
        &self,
        endpoints: &[EndpointId],
        soon: Duration,
        _: Duration,
    ) -> StoreResult<Vec<EndpointId>> {
        let endpoints = endpoints.to_vec();
        self.call("expiring", move |state, clock| {
            state.forget_expired(clock);
            let epoch = state.data.epoch.filter(|it| is_ttl(it.lease_ttl));
            let longest = epoch.map_or(Duration::MAX, |it| it.lease_ttl);
            let lasts = |it: &EndpointId| {
                let left = state.data.leases.get(it).map(|it| state.lasting(it, clock).left);
                left.is_some_and(|it| it >= soon && it <= longest)
            };
            Ok(endpoints.into_iter().filter(|it| !lasts(it)).collect())
        })
    }

    fn revoke(&self, dead: &InstanceId, certain: bool, _: Duration) -> StoreResult<Option<usize>> {
        let dead = dead.clone();
        self.call("revoke", move |state, clock| {
            state.forget_expired(clock);
            Ok(state.revoke(&dead, certain))
        })
    }

    fn role_statuses(&self, roles: &[EndpointId], _: Duration) -> StoreResult<Vec<RoleStatus>> {
        let roles = roles.to_vec();
        self.call("role_statuses", move |state, clock| {
            state.check_hash()?;
            Ok(roles.iter().map(|it| state.role_status(it, clock)).collect())
        })
    }

    fn role_names(&self, _: Duration) -> StoreResult<Vec<EndpointId>> {
        self.call("role_names", |state, _| Ok(state.data.results.keys().cloned().collect()))
    }

    fn listen(&self, me: &InstanceId, _: Duration) -> StoreResult<Box<dyn Subscription>> {
        let (me, store) = (me.clone(), self.share());
        self.call("listen", move |state, _| {
            state.subscribe(&me);
            Ok(Box::new(MemorySubscription { me, store }) as Box<dyn Subscription>)
        })
    }
}
