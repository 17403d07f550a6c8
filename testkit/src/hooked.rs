//! A store that calls a hook before each question and after each answer: to delay one, or to panic in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::model::{EndpointId, InstanceId, InstanceInfo, Tenure, Weight};
use leasehold::store::{
    Acquire, Beat, Fault, HeartbeatReply, Lasting, Note, Page, PeerMessage, Publication, Publish,
    Push, RawSession, Release, Renew, RenewItem, RequestContext, Revocation, RevocationReply,
    Revocations, RoleStatus, SignsOfLife, StampedResult, Store, StoreError, StoreResult,
    Subscription, Verify,
};

/// Where a call is when the hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not sent yet.
    Asked,
    /// Executed by the store; the caller does not know the answer yet.
    Answered,
}

type Hook = Arc<dyn Fn(&'static str, Stage) + Send + Sync>;

/// What reaches an instance of the pushes of the store.
#[derive(Debug)]
pub struct Reception {
    /// Whether messages of other instances and changes of keys are received. The instance knows.
    pub messages: bool,
    pub changes: bool,
    /// Loses every message of the others, and the instance does not know it.
    pub loses_messages: AtomicBool,
    /// There is no subscription; the instance knows.
    pub is_broken: AtomicBool,
}

/// `inner`, with a hook around every call. The hook runs on the thread of the caller.
pub struct Hooked {
    inner: Arc<dyn Store>,
    hook: Hook,
    reception: Option<Arc<Reception>>,
}

impl Hooked {
    pub fn new(
        inner: Arc<dyn Store>,
        hook: impl Fn(&'static str, Stage) + Send + Sync + 'static,
    ) -> Self {
        Self { inner, hook: Arc::new(hook), reception: None }
    }

    /// No hook: only some pushes are received.
    pub fn receiving(inner: Arc<dyn Store>, reception: &Arc<Reception>) -> Self {
        Self { reception: Some(Arc::clone(reception)), ..Self::new(inner, |_, _| ()) }
    }

    fn call<T>(&self, verb: &'static str, call: impl FnOnce(&dyn Store) -> T) -> T {
        (self.hook)(verb, Stage::Asked);
        let answer = call(&*self.inner);
        (self.hook)(verb, Stage::Answered);
        answer
    }
}

impl Revocations for Hooked {
    fn beat(&self, me: &InstanceId, beats: u64, timeout: Duration) -> StoreResult<Beat> {
        self.call("beat", |inner| inner.beat(me, beats, timeout))
    }

    fn signs_of_life(
        &self,
        instances: &[InstanceId],
        timeout: Duration,
    ) -> StoreResult<Vec<SignsOfLife>> {
        self.call("signs_of_life", |inner| inner.signs_of_life(instances, timeout))
    }

    fn revoke_instance(
        &self,
        revocation: &Revocation,
        timeout: Duration,
    ) -> StoreResult<RevocationReply> {
        self.call("revoke_instance", |inner| inner.revoke_instance(revocation, timeout))
    }
}

macro_rules! hooked {
    ($(fn $verb:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Store for Hooked {
            $(fn $verb(&self, $($arg: $type),*) -> $answer {
                self.call(stringify!($verb), |inner| inner.$verb($($arg),*))
            })*

            fn listen(&self, me: &InstanceId, timeout: Duration) -> StoreResult<Box<dyn Subscription>> {
                let reception = self.reception.clone();
                reception.as_ref().map_or(Ok(()), |it| it.check())?;
                let subscription = self.call("listen", |inner| inner.listen(me, timeout))?;
                let hook = Arc::clone(&self.hook);
                Ok(Box::new(HookedSubscription { subscription, hook, reception }))
            }
        }
    };
}

hooked! {
    fn inspect(timeout: Duration) -> StoreResult<()>;
    fn time(timeout: Duration) -> StoreResult<u64>;
    fn heartbeat(context: &RequestContext, ttl: Duration, weight: Weight, info: Option<&InstanceInfo>) -> StampedResult<HeartbeatReply>;
    fn acquire(context: &RequestContext, endpoints: &[EndpointId]) -> StampedResult<Vec<Acquire>>;
    fn renew(context: &RequestContext, items: &[RenewItem]) -> StampedResult<Vec<Renew>>;
    fn verify(context: &RequestContext, tenures: &[Tenure]) -> StampedResult<Vec<Verify>>;
    fn publish(context: &RequestContext, publications: &[Publication]) -> StampedResult<Vec<Publish>>;
    fn last_polled(endpoints: &[EndpointId], timeout: Duration) -> StoreResult<Vec<Option<u64>>>;
    fn acquire_roles(asked: &[(RequestContext, EndpointId)]) -> Vec<StampedResult<Vec<Acquire>>>;
    fn renew_roles(asked: &[(RequestContext, Vec<RenewItem>)]) -> Vec<StampedResult<Vec<Renew>>>;
    fn verify_roles(asked: &[(RequestContext, Tenure)]) -> Vec<StampedResult<Vec<Verify>>>;
    fn release_roles(freed: &[(RequestContext, Tenure, PeerMessage)]) -> StoreResult<()>;
    fn release(context: &RequestContext, tenures: &[Tenure], wakes: &[PeerMessage]) -> StoreResult<Vec<Release>>;
    fn withdraw(context: &RequestContext) -> StoreResult<()>;
    fn wake(wakes: &[PeerMessage], timeout: Duration) -> StoreResult<()>;
    fn asks(me: &InstanceId, of: &[InstanceId], timeout: Duration) -> StoreResult<Vec<PeerMessage>>;
    fn session_names(cursor: u64, timeout: Duration) -> StoreResult<Page<String>>;
    fn sessions(endpoints: &[EndpointId], timeout: Duration) -> StoreResult<Vec<Option<RawSession>>>;
    fn any_session(endpoints: &[EndpointId], timeout: Duration) -> StoreResult<bool>;
    fn instances(cursor: u64, timeout: Duration) -> StoreResult<Page<InstanceId>>;
    fn heartbeats(instances: &[InstanceId], timeout: Duration) -> StoreResult<Vec<Option<Lasting<Weight>>>>;
    fn owners(endpoints: &[EndpointId], timeout: Duration) -> StoreResult<Vec<Option<InstanceId>>>;
    fn leases(endpoints: &[EndpointId], timeout: Duration) -> StoreResult<Vec<Option<Lasting<InstanceId>>>>;
    fn expiring(endpoints: &[EndpointId], soon: Duration, timeout: Duration) -> StoreResult<Vec<EndpointId>>;
    fn revoke(dead: &InstanceId, certain: bool, timeout: Duration) -> StoreResult<Option<usize>>;
    fn retire(endpoints: &[EndpointId], timeout: Duration) -> StoreResult<()>;
    fn role_statuses(roles: &[EndpointId], timeout: Duration) -> StoreResult<Vec<RoleStatus>>;
    fn role_names(timeout: Duration) -> StoreResult<Vec<EndpointId>>;
    fn remember(notes: &[Note], timeout: Duration) -> StoreResult<()>;
}

struct HookedSubscription {
    subscription: Box<dyn Subscription>,
    hook: Hook,
    reception: Option<Arc<Reception>>,
}

impl Reception {
    fn check(&self) -> StoreResult<()> {
        let (op, target, reason) = ("listen", "the store".into(), "the subscription broke".into());
        let error = StoreError { op, target, fault: Fault::Unreachable, reason };
        if self.is_broken.load(Ordering::SeqCst) { Err(error) } else { Ok(()) }
    }

    fn passes(&self, push: &Push) -> bool {
        match push {
            Push::Message(_) => self.messages && !self.loses_messages.load(Ordering::SeqCst),
            Push::Changed(_) | Push::Everything => self.changes,
        }
    }
}

impl Subscription for HookedSubscription {
    fn next(&mut self, wait: Duration) -> StoreResult<Option<Push>> {
        (self.hook)("next_push", Stage::Asked);
        let Some(reception) = &self.reception else { return self.subscription.next(wait) };
        reception.check()?;
        loop {
            match self.subscription.next(Duration::ZERO)? {
                Some(push) if !reception.passes(&push) => (),
                push => return Ok(push),
            }
        }
    }

    fn receives_changes(&self) -> bool {
        self.subscription.receives_changes() && self.reception.as_ref().is_none_or(|it| it.changes)
    }

    fn receives_messages(&self) -> bool {
        self.reception.as_ref().is_none_or(|it| it.messages)
    }
}
