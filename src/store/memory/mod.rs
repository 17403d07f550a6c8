//! The store without Redis: the same contract on a manual clock, with the faults a test plans.
//!
//! [`MemoryServer`] is the server that all instances share; a [`MemoryStore`] is one instance's way to
//! it, and what can go wrong on that way. Nothing here waits: a lost message is an error at once.

mod ear;
mod endings;
mod operator;
mod roles;
mod scripts;
mod server;
mod spoilt;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use crate::store::memory::server::{Announced, MemoryServer, Snapshot};

use crate::clock::ManualClock;
use crate::model::{EndpointId, InstanceId, Tenure, Weight};
use crate::store::memory::ear::MemoryEar;
use crate::store::memory::roles::About;
use crate::store::memory::scripts::{Now, micros};
use crate::store::memory::server::State;
use crate::store::memory::spoilt::is_ttl;
use crate::store::ways;
use crate::store::{
    ASK_LASTS, Acquire, Ask, Asked, Beat, Ear, Fault, Lasting, Page, Publication, Publish,
    RawSession, Release, Renew, RenewItem, Seat, Stamped, Store, StoreError, Verify, Wake,
};

/// What happens to a call on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It never arrives.
    LoseRequest,
    /// It is executed, but the answer never arrives.
    LoseReply,
    /// It times out, and is executed this much later, when nobody waits for it any more.
    ExecuteLate(Duration),
    /// It takes this long to arrive, and its answer as long again; the shared clock moves on.
    Slow(Duration),
}

/// One instance's way to a [`MemoryServer`].
pub struct MemoryStore {
    server: Arc<MemoryServer>,
    way: Arc<Mutex<Way>>,
}

#[derive(Default)]
struct Way {
    cut_off: bool,
    /// Messages of these get lost.
    lost: Vec<&'static str>,
    mishaps: VecDeque<(&'static str, Mishap)>,
}

impl MemoryStore {
    /// A way to `server` on which nothing goes wrong yet.
    pub fn new(server: &Arc<MemoryServer>) -> Self {
        Self { server: Arc::clone(server), way: Arc::default() }
    }

    /// Plans what happens to the next message of `op` (`acquire`, `renew`, …).
    pub fn plan(&self, op: &'static str, mishap: Mishap) {
        self.way.lock().mishaps.push_back((op, mishap));
    }

    /// Nothing gets through either way until it is mended.
    pub fn cut_off(&self, cut: bool) {
        self.way.lock().cut_off = cut;
    }

    /// No message of `op` arrives until it is mended: large packets are dropped, for example.
    pub fn lose(&self, op: &'static str, lost: bool) {
        let mut way = self.way.lock();
        way.lost.retain(|it| *it != op);
        way.lost.extend(lost.then_some(op));
    }

    pub(crate) fn call<T: Send>(
        &self,
        op: &'static str,
        execute: impl FnOnce(&mut State, &ManualClock) -> Asked<T> + Send + 'static,
    ) -> Asked<T> {
        let mishap = {
            let mut way = self.way.lock();
            if way.cut_off || way.lost.contains(&op) {
                return Err(no_answer(op));
            }
            let at = way.mishaps.iter().position(|it| it.0 == op);
            at.and_then(|at| way.mishaps.remove(at)).map(|it| it.1)
        };
        match mishap {
            None => self.server.execute(op, execute),
            Some(Mishap::LoseRequest) => Err(no_answer(op)),
            Some(Mishap::LoseReply) => {
                let _ = self.server.execute(op, execute);
                Err(no_answer(op))
            }
            Some(Mishap::ExecuteLate(delay)) => {
                self.server.execute_later(delay, move |state, clock| {
                    let _ = execute(state, clock);
                });
                Err(no_answer(op))
            }
            Some(Mishap::Slow(each_way)) => {
                self.server.clock().pass(each_way);
                let answer = self.server.execute(op, execute);
                self.server.clock().pass(each_way);
                answer
            }
        }
    }

    /// One message about all of these.
    fn each<I: About + Clone + Send + 'static, T: Send + 'static>(
        &self,
        op: &'static str,
        ask: &Ask,
        items: Vec<&I>,
        verb: fn(&mut State, &Ask, &I, Now) -> T,
    ) -> Stamped<Vec<T>> {
        let (ask, items): (Ask, Vec<I>) = (ask.clone(), items.into_iter().cloned().collect());
        self.call(op, move |state, clock| {
            state.for_each(&ask, clock, &items, |state, it, now| verb(state, &ask, it, now))
        })
    }
}

fn no_answer(op: &'static str) -> StoreError {
    let (target, reason) = ("the store".into(), "no answer in time".into());
    StoreError { op, target, fault: Fault::Unreachable, reason }
}

impl Store for MemoryStore {
    fn inspect(&self, _: Duration) -> Asked<()> {
        self.call("inspect", |_, _| Ok(()))
    }

    fn time(&self, _: Duration) -> Asked<u64> {
        self.call("time", |state, clock| Ok(state.now_us(clock)))
    }

    fn beat(&self, ask: &Ask, ttl: Duration, weight: Weight) -> Stamped<Beat> {
        let ask = ask.clone();
        self.call("beat", move |state, clock| state.beat(&ask, ttl, weight, clock))
    }

    fn acquire(&self, ask: &Ask, endpoints: &[EndpointId]) -> Stamped<Vec<Acquire>> {
        let (ask, endpoints) = (ask.clone(), endpoints.to_vec());
        self.call("acquire", move |state, clock| {
            let verb = |state: &mut State, it: &EndpointId, now| state.acquire(&ask, it, now);
            let reply = state.for_each(&ask, clock, &endpoints, verb)?;
            state.tell_grants(&ask.instance, &endpoints, &reply);
            Ok(reply)
        })
    }

    fn renew(&self, ask: &Ask, items: &[RenewItem]) -> Stamped<Vec<Renew>> {
        let has_names = !self.server.leases_roles();
        let is_proof = |it: &RenewItem| has_names && it.matched;
        let by_name = |items| self.each("renew", ask, items, State::keep);
        ways::by_name_or_fence(items, is_proof, &Renew::Extended, by_name, |items| {
            self.each("renew", ask, items, State::renew)
        })
    }

    fn verify(&self, ask: &Ask, tenures: &[Tenure]) -> Stamped<Vec<Verify>> {
        let has_names = ask.by_name && !self.server.leases_roles();
        let by_name = |tenures| self.each("verify", ask, tenures, State::is_held);
        ways::by_name_or_fence(
            tenures,
            |_| has_names,
            &Verify::Held,
            by_name,
            |tenures| self.each("verify", ask, tenures, State::verify),
        )
    }

    fn publish(&self, ask: &Ask, publications: &[Publication]) -> Stamped<Vec<Publish>> {
        let (ask, publications) = (ask.clone(), publications.to_vec());
        self.call("publish", move |state, clock| {
            let verb = |state: &mut State, it: &Publication, _| state.publish(&ask, it);
            state.for_each(&ask, clock, &publications, verb)
        })
    }

    /// Two messages, where the first does not prove enough.
    fn release(&self, ask: &Ask, tenures: &[Tenure], wakes: &[Wake]) -> Asked<Vec<Release>> {
        let has_names = ask.by_name && !self.server.leases_roles();
        for by_name in [true, false].into_iter().filter(|it| has_names || !it) {
            let (ask, tenures, wakes) = (ask.clone(), tenures.to_vec(), wakes.to_vec());
            let released = self.call("release", move |state, clock| {
                state.forget_expired(clock);
                let release = |it| state.release(&ask.instance, it);
                let released = match by_name {
                    true => state.free(&ask, &tenures),
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

    fn acquire_roles(&self, asked: &[(Ask, EndpointId)]) -> Vec<Stamped<Vec<Acquire>>> {
        self.acquire_each(asked)
    }

    fn renew_roles(&self, asked: &[(Ask, Vec<RenewItem>)]) -> Vec<Stamped<Vec<Renew>>> {
        self.renew_each(asked)
    }

    fn release_roles(&self, freed: &[(Ask, Tenure, Wake)]) -> Asked<()> {
        self.release_each(freed)
    }

    fn resume(&self, endpoints: &[EndpointId], _: Duration) -> Asked<Vec<Option<u64>>> {
        let endpoints = endpoints.to_vec();
        self.call("resume", move |state, _| {
            Ok(endpoints.iter().map(|it| state.resume(it)).collect())
        })
    }

    fn retire(&self, endpoints: &[EndpointId], _: Duration) -> Asked<()> {
        let endpoints = endpoints.to_vec();
        self.call("retire", move |state, clock| {
            state.forget_expired(clock);
            if !state.of_roles {
                state.retire(&endpoints, state.now_us(clock));
            }
            Ok(())
        })
    }

    fn withdraw(&self, ask: &Ask) -> Asked<()> {
        let me = ask.instance.clone();
        self.call("withdraw", move |state, _| {
            state.withdraw(&me);
            Ok(())
        })
    }

    fn wake(&self, wakes: &[Wake], _: Duration) -> Asked<()> {
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

    fn asks(&self, me: &InstanceId, of: &[InstanceId], _: Duration) -> Asked<Vec<Wake>> {
        let (me, of) = (me.clone(), of.to_vec());
        self.call("asks", move |state, clock| {
            state.forget_expired(clock);
            let ask = |it: &InstanceId| state.data.asks.get(&(me.clone(), it.clone()));
            Ok(of.iter().filter_map(ask).map(|it| it.0.clone()).collect())
        })
    }

    fn session_names(&self, _: u64, _: Duration) -> Asked<Page<String>> {
        self.call("session_names", |state, _| Ok(Page { found: state.session_names(), cursor: 0 }))
    }

    fn sessions(&self, endpoints: &[EndpointId], _: Duration) -> Asked<Vec<Option<RawSession>>> {
        let endpoints = endpoints.to_vec();
        self.call("sessions", move |state, _| {
            Ok(endpoints.iter().map(|it| state.session(it)).collect())
        })
    }

    fn any_session(&self, endpoints: &[EndpointId], _: Duration) -> Asked<bool> {
        let endpoints = endpoints.to_vec();
        self.call("any_session", move |state, _| {
            Ok(endpoints.iter().any(|it| state.session(it).is_some()))
        })
    }

    fn instances(&self, _: u64, _: Duration) -> Asked<Page<InstanceId>> {
        self.call("instances", |state, clock| {
            state.forget_expired(clock);
            Ok(Page { found: state.data.nodes.keys().cloned().collect(), cursor: 0 })
        })
    }

    fn nodes(&self, instances: &[InstanceId], _: Duration) -> Asked<Vec<Option<Lasting<Weight>>>> {
        let instances = instances.to_vec();
        self.call("nodes", move |state, clock| {
            state.clip(clock);
            let node = |it| state.data.nodes.get(it).map(|it| state.lasting(it, clock));
            Ok(instances.iter().map(node).collect())
        })
    }

    fn owners(&self, endpoints: &[EndpointId], _: Duration) -> Asked<Vec<Option<InstanceId>>> {
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
    ) -> Asked<Vec<Option<Lasting<InstanceId>>>> {
        let endpoints = endpoints.to_vec();
        self.call("leases", move |state, clock| {
            state.clip(clock);
            let owner = |it| state.data.leases.get(it).map(|it| state.lasting(it, clock));
            Ok(endpoints.iter().map(owner).collect())
        })
    }

    fn waning(
        &self,
        endpoints: &[EndpointId],
        soon: Duration,
        _: Duration,
    ) -> Asked<Vec<EndpointId>> {
        let endpoints = endpoints.to_vec();
        self.call("waning", move |state, clock| {
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

    fn bury(&self, dead: &InstanceId, certain: bool, _: Duration) -> Asked<Option<usize>> {
        let dead = dead.clone();
        self.call("bury", move |state, clock| {
            state.forget_expired(clock);
            Ok(state.bury(&dead, certain))
        })
    }

    fn seats(&self, roles: &[EndpointId], _: Duration) -> Asked<Vec<Seat>> {
        let roles = roles.to_vec();
        self.call("seats", move |state, clock| {
            state.check_hash()?;
            Ok(roles.iter().map(|it| state.seat(it, clock)).collect())
        })
    }

    fn role_names(&self, _: Duration) -> Asked<Vec<EndpointId>> {
        self.call("role_names", |state, _| Ok(state.data.results.keys().cloned().collect()))
    }

    fn listen(&self, me: &InstanceId, _: Duration) -> Asked<Box<dyn Ear>> {
        let (me, store) = (me.clone(), self.same_way());
        self.call("listen", move |state, _| {
            state.subscribe(&me);
            Ok(Box::new(MemoryEar { me, store }) as Box<dyn Ear>)
        })
    }
}

impl MemoryStore {
    /// The same way again: what happens to one happens to both.
    pub fn same_way(&self) -> Self {
        Self { server: Arc::clone(&self.server), way: Arc::clone(&self.way) }
    }
}
