//! The network between an instance and the store: implements `Store`, and loses, delays and refuses calls.

use std::fmt::Debug;
use std::time::Duration;

use leasehold::model::{EndpointId, InstanceId, InstanceInfo, Tenure, Weight};
use leasehold::store::memory::{MemoryStore, Mishap, no_answer};
use leasehold::store::{
    Acquire, Beat, Fault, HeartbeatReply, Lasting, Page, PeerMessage, Publication, Publish, Push,
    RawSession, Release, Renew, RenewItem, RequestContext, Revocation, RevocationReply,
    Revocations, RoleStatus, SignsOfLife, StampedResult, Store, StoreResult, Subscription, Verify,
};

use super::member::{LinkState, Member};
use super::world::{Happening, MS, World, nanos, world};

/// One process's way to a server.
pub struct SimulatedStore {
    /// Whose it is: the n-th process that was started.
    member: usize,
    inner: MemoryStore,
    of_roles: bool,
    delivery: Delivery,
}

/// What the server pushes to a process: peer messages, and changes of keys.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub messages: bool,
    pub changes: bool,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// It does not arrive, which the caller notices at once; `Lost`: at its timeout.
    Refused,
    Lost,
    /// Executed, but the answer is lost.
    Unanswered,
    /// Executed long after time was up.
    Late(u64),
}

impl SimulatedStore {
    pub fn new(member: usize, inner: MemoryStore, of_roles: bool, delivery: Delivery) -> Self {
        Self { member, inner, of_roles, delivery }
    }

    fn fate(world: &World, member: &Member) -> Fate {
        let dice = &world.dice;
        match member.link.state.get() {
            LinkState::Cut | LinkState::NoRequests => {
                // The kernel goes on sending what a closed socket owed: it arrives when the way is open again.
                let cut_for = member.link.mended_at.get().saturating_sub(world.now());
                if cut_for > 0 && dice.permille(200) {
                    return Fate::Late(cut_for + dice.skewed(cut_for / MS) * MS);
                }
                return if dice.permille(300) { Fate::Refused } else { Fate::Lost };
            }
            LinkState::NoReplies => return Fate::Unanswered,
            LinkState::Open => (),
        }
        let mishaps = world.faults.mishaps.get();
        if mishaps == 0 || !dice.permille(mishaps) {
            return Fate::Answered;
        }
        match dice.below(5) {
            0 => Fate::Refused,
            1 => Fate::Lost,
            2 => Fate::Unanswered,
            _ => Fate::Late(dice.skewed(2 * nanos(world.scene.hold_off()) / MS) * MS),
        }
    }

    fn call<T: Debug>(
        &self,
        op: &'static str,
        timeout: Duration,
        execute: impl FnOnce(&MemoryStore) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let world = &*world();
        let member = &*world.member(self.member);
        if member.gone.get() {
            return Err(no_answer(op));
        }
        world.steps.set(world.steps.get() + 1);
        world.calls.set(world.calls.get() + 1);
        member.wake_receivers(world);
        let is_lost = op == "publish" && world.now() < member.link.results_lost_until.get();
        let fate = if is_lost { Fate::Lost } else { Self::fate(world, member) };
        let gives_up_at = world.now() + nanos(timeout) * 1_000_000 / member.clock.rate;
        let usual = world.faults.latency_us.get();
        let way = || (50 + world.dice.skewed(usual)) * 1_000 + member.link.far_ms.get() * MS;
        let never = || false;
        let answer = match fate {
            Fate::Refused => Err(no_answer(op)),
            Fate::Lost => {
                world.wait(member, gives_up_at, &never);
                Err(no_answer(op))
            }
            Fate::Late(delay) => {
                self.inner.plan(op, Mishap::ExecuteLate(Duration::from_nanos(delay)));
                let answer = execute(&self.inner);
                world.after(delay, Happening::CatchUp);
                let faults = &world.faults;
                faults.late_until.set(faults.late_until.get().max(world.now() + delay));
                world.wait(member, gives_up_at, &never);
                answer
            }
            Fate::Answered | Fate::Unanswered => {
                world.wait(member, (world.now() + way()).min(gives_up_at), &never);
                let answer = execute(&self.inner);
                world.wake_subscribers();
                if op == "publish" {
                    world.judge.results(world);
                }
                let back = if fate == Fate::Answered { world.now() + way() } else { u64::MAX };
                world.wait(member, back.min(gives_up_at), &never);
                let in_time = fate == Fate::Answered && world.now() < gives_up_at;
                let in_time = in_time && !member.gone.get();
                answer.and_then(|it| if in_time { Ok(it) } else { Err(no_answer(op)) })
            }
        };
        member.observed.answered.set(member.observed.answered.get() | answer.is_ok());
        world.trace.say(world.now(), || {
            let text = match &answer {
                Ok(it) => format!("{it:?}"),
                Err(error) => format!("({fate:?}) {}", error.reason),
            };
            let text = text.replace("EndpointId", "").replace("InstanceId", "");
            format!("{} {op}: {}", member.name, text.chars().take(300).collect::<String>())
        });
        answer
    }

    fn stamped<T: Debug>(
        &self,
        op: &'static str,
        context: &RequestContext,
        execute: impl FnOnce(&MemoryStore) -> StampedResult<T>,
    ) -> StampedResult<T> {
        let answer = self.call(op, context.timeout, execute);
        // It sees by the server's time that it has slept.
        if !self.of_roles && answer.is_ok() {
            world().member(self.member).pause.unaware_of_sleep.set(false);
        }
        answer
    }
}

fn shortest(timeouts: impl Iterator<Item = Duration>) -> Duration {
    timeouts.min().unwrap_or_default()
}

/// An exchange about many: answered as a whole, or not at all.
fn together<T>(all: Vec<StampedResult<T>>) -> StoreResult<Vec<StampedResult<T>>> {
    match all.iter().find_map(|it| it.as_ref().err().cloned()) {
        Some(error) if error.fault == Fault::Unreachable => Err(error),
        _ => Ok(all),
    }
}

impl Revocations for SimulatedStore {
    fn beat(&self, me: &InstanceId, beats: u64, timeout: Duration) -> StoreResult<Beat> {
        self.call("beat", timeout, |it| it.beat(me, beats, timeout))
    }

    fn signs_of_life(
        &self,
        instances: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<SignsOfLife>> {
        self.call("signs_of_life", timeout, |it| it.signs_of_life(instances, timeout))
    }

    fn revoke_instance(
        &self,
        revocation: &Revocation,
        timeout: Duration,
    ) -> StoreResult<RevocationReply> {
        self.call("revoke_instance", timeout, |it| it.revoke_instance(revocation, timeout))
    }
}

impl Store for SimulatedStore {
    fn inspect(&self, timeout: Duration) -> StoreResult<()> {
        self.call("inspect", timeout, |it| it.inspect(timeout))
    }

    fn time(&self, timeout: Duration) -> StoreResult<u64> {
        self.call("time", timeout, |it| it.time(timeout))
    }

    fn heartbeat(
        &self,
        context: &RequestContext,
        ttl: Duration,
        weight: Weight,
        info: Option<&InstanceInfo>,
    ) -> StampedResult<HeartbeatReply> {
        self.stamped("heartbeat", context, |it| it.heartbeat(context, ttl, weight, info))
    }

    fn acquire(
        &self,
        context: &RequestContext,
        endpoints: &[EndpointId],
    ) -> StampedResult<Vec<Acquire>> {
        let answer = self.stamped("acquire", context, |it| it.acquire(context, endpoints));
        let answers = answer.as_ref().ok().and_then(|it| it.answer.as_ref());
        if let Some(answers) = answers.filter(|_| !self.of_roles) {
            let granted = endpoints.iter().zip(answers);
            let granted = granted.filter(|it| matches!(it.1, Acquire::Granted { .. }));
            granted.for_each(|it| world().judge.granted(self.member, it.0));
        }
        answer
    }

    fn renew(&self, context: &RequestContext, items: &[RenewItem]) -> StampedResult<Vec<Renew>> {
        let answer = self.stamped("renew", context, |it| it.renew(context, items));
        let world = world();
        world.judge.renewed(&world.member(self.member), items, answer.is_ok());
        answer
    }

    fn verify(&self, context: &RequestContext, tenures: &[Tenure]) -> StampedResult<Vec<Verify>> {
        self.stamped("verify", context, |it| it.verify(context, tenures))
    }

    fn publish(
        &self,
        context: &RequestContext,
        publications: &[Publication],
    ) -> StampedResult<Vec<Publish>> {
        self.stamped("publish", context, |it| it.publish(context, publications))
    }

    fn last_polled(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<u64>>> {
        self.call("last_polled", timeout, |it| it.last_polled(endpoints, timeout))
    }

    fn release(
        &self,
        context: &RequestContext,
        tenures: &[Tenure],
        wakes: &[PeerMessage],
    ) -> StoreResult<Vec<Release>> {
        for message in wakes.iter().filter(|it| it.heir.is_some() && !self.of_roles) {
            message.freed.iter().for_each(|it| world().judge.given_away(self.member, it));
        }
        self.call("release", context.timeout, |it| it.release(context, tenures, wakes))
    }

    fn acquire_roles(
        &self,
        asked: &[(RequestContext, EndpointId)],
    ) -> Vec<StampedResult<Vec<Acquire>>> {
        let timeout = shortest(asked.iter().map(|it| it.0.timeout));
        let all = self.call("acquire", timeout, |it| together(it.acquire_roles(asked)));
        all.unwrap_or_else(|error| vec![Err(error); asked.len()])
    }

    fn renew_roles(
        &self,
        asked: &[(RequestContext, Vec<RenewItem>)],
    ) -> Vec<StampedResult<Vec<Renew>>> {
        let timeout = shortest(asked.iter().map(|it| it.0.timeout));
        let all = self.call("renew", timeout, |it| together(it.renew_roles(asked)));
        let world = world();
        for (_, items) in asked {
            world.judge.renewed(&world.member(self.member), items, all.is_ok());
        }
        all.unwrap_or_else(|error| vec![Err(error); asked.len()])
    }

    fn verify_roles(&self, asked: &[(RequestContext, Tenure)]) -> Vec<StampedResult<Vec<Verify>>> {
        let timeout = shortest(asked.iter().map(|it| it.0.timeout));
        let all = self.call("verify", timeout, |it| together(it.verify_roles(asked)));
        all.unwrap_or_else(|error| vec![Err(error); asked.len()])
    }

    fn release_roles(&self, freed: &[(RequestContext, Tenure, PeerMessage)]) -> StoreResult<()> {
        let timeout = shortest(freed.iter().map(|it| it.0.timeout));
        self.call("release", timeout, |it| it.release_roles(freed))
    }

    fn withdraw(&self, context: &RequestContext) -> StoreResult<()> {
        self.call("withdraw", context.timeout, |it| it.withdraw(context))
    }

    fn wake(&self, wakes: &[PeerMessage], timeout: Duration) -> StoreResult<()> {
        self.call("wake", timeout, |it| it.wake(wakes, timeout))
    }

    fn asks(
        &self,
        me: &InstanceId,
        of: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<PeerMessage>> {
        self.call("asks", timeout, |it| it.asks(me, of, timeout))
    }

    fn session_names(&self, cursor: u64, timeout: Duration) -> StoreResult<Page<String>> {
        self.call("session_names", timeout, |it| it.session_names(cursor, timeout))
    }

    fn sessions(
        &self,
        endpoints: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<RawSession>>> {
        self.call("sessions", timeout, |it| it.sessions(endpoints, timeout))
    }

    fn any_session(&self, endpoints: &[EndpointId], timeout: Duration) -> StoreResult<bool> {
        self.call("any_session", timeout, |it| it.any_session(endpoints, timeout))
    }

    fn instances(&self, cursor: u64, timeout: Duration) -> StoreResult<Page<InstanceId>> {
        self.call("instances", timeout, |it| it.instances(cursor, timeout))
    }

    fn heartbeats(
        &self,
        of: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<Lasting<Weight>>>> {
        self.call("heartbeats", timeout, |it| it.heartbeats(of, timeout))
    }

    fn owners(&self, of: &[EndpointId], timeout: Duration) -> StoreResult<Vec<Option<InstanceId>>> {
        self.call("owners", timeout, |it| it.owners(of, timeout))
    }

    fn leases(
        &self,
        of: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<Option<Lasting<InstanceId>>>> {
        self.call("leases", timeout, |it| it.leases(of, timeout))
    }

    fn expiring(
        &self,
        of: &[EndpointId],
        soon: Duration,
        timeout: Duration,
    ) -> StoreResult<Vec<EndpointId>> {
        self.call("expiring", timeout, |it| it.expiring(of, soon, timeout))
    }

    fn revoke(
        &self,
        dead: &InstanceId,
        certain: bool,
        timeout: Duration,
    ) -> StoreResult<Option<usize>> {
        self.call("revoke", timeout, |it| it.revoke(dead, certain, timeout))
    }

    fn role_statuses(
        &self,
        roles: &[EndpointId],
        timeout: Duration,
    ) -> StoreResult<Vec<RoleStatus>> {
        self.call("role_statuses", timeout, |it| it.role_statuses(roles, timeout))
    }

    fn role_names(&self, timeout: Duration) -> StoreResult<Vec<EndpointId>> {
        self.call("role_names", timeout, |it| it.role_names(timeout))
    }

    fn listen(&self, me: &InstanceId, timeout: Duration) -> StoreResult<Box<dyn Subscription>> {
        let opened = self.call("listen", timeout, |it| it.listen(me, timeout).map(NotShown))?;
        Ok(Box::new(SimSubscription {
            member: self.member,
            inner: opened.0,
            delivery: self.delivery,
            lost: 0,
        }))
    }
}

struct NotShown(Box<dyn Subscription>);

impl Debug for NotShown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a subscription")
    }
}

/// A subscription of one process. It never waits: the world wakes a member for which there is a push.
struct SimSubscription {
    member: usize,
    inner: Box<dyn Subscription>,
    delivery: Delivery,
    /// How often this process's line had been broken when it was opened.
    lost: u32,
}

impl Subscription for SimSubscription {
    fn next(&mut self, wait: Duration) -> StoreResult<Option<Push>> {
        let world = world();
        let member = world.member(self.member);
        let breaks = member.link.breaks.get();
        if self.lost == 0 {
            self.lost = breaks;
        }
        // A line that is cut is noticed when it is asked whether it still stands.
        if self.lost != breaks || member.link.state.get() != LinkState::Open {
            return Err(no_answer("listen on"));
        }
        loop {
            let heard = self.inner.next(wait)?;
            let changed = matches!(heard, Some(Push::Changed(_) | Push::Everything));
            let is_message = matches!(heard, Some(Push::Message(_)));
            let unheard =
                (changed && !self.delivery.changes) || (is_message && !self.delivery.messages);
            if unheard || (is_message && world.faults.loses_message(&world)) {
                continue;
            }
            return Ok(heard);
        }
    }

    fn receives_changes(&self) -> bool {
        self.delivery.changes
    }

    fn receives_messages(&self) -> bool {
        self.delivery.messages
    }
}
