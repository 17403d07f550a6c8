//! A store that calls a hook before each question and after each answer: to delay one, or to panic in it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::model::{EndpointId, InstanceId, Tenure, Weight};
use leasehold::store::{
    Acquire, Ask, Asked, Beat, Ear, Heard, Lasting, Note, Page, Publication, Publish, RawSession,
    Release, Renew, RenewItem, Seat, Stamped, Store, Verify, Wake,
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

/// `inner`, with a hook around every call. The hook runs on the thread of the caller.
pub struct Hooked {
    inner: Arc<dyn Store>,
    hook: Hook,
}

impl Hooked {
    pub fn new(
        inner: Arc<dyn Store>,
        hook: impl Fn(&'static str, Stage) + Send + Sync + 'static,
    ) -> Self {
        Self { inner, hook: Arc::new(hook) }
    }

    fn call<T>(&self, verb: &'static str, call: impl FnOnce(&dyn Store) -> T) -> T {
        (self.hook)(verb, Stage::Asked);
        let answer = call(&*self.inner);
        (self.hook)(verb, Stage::Answered);
        answer
    }
}

macro_rules! hooked {
    ($(fn $verb:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Store for Hooked {
            $(fn $verb(&self, $($arg: $type),*) -> $answer {
                self.call(stringify!($verb), |inner| inner.$verb($($arg),*))
            })*

            fn listen(&self, me: &InstanceId, timeout: Duration) -> Asked<Box<dyn Ear>> {
                let ear = self.call("listen", |inner| inner.listen(me, timeout))?;
                Ok(Box::new(HookedEar { ear, hook: Arc::clone(&self.hook) }))
            }
        }
    };
}

hooked! {
    fn inspect(timeout: Duration) -> Asked<()>;
    fn time(timeout: Duration) -> Asked<u64>;
    fn beat(ask: &Ask, ttl: Duration, weight: Weight) -> Stamped<Beat>;
    fn acquire(ask: &Ask, endpoints: &[EndpointId]) -> Stamped<Vec<Acquire>>;
    fn renew(ask: &Ask, items: &[RenewItem]) -> Stamped<Vec<Renew>>;
    fn verify(ask: &Ask, tenures: &[Tenure]) -> Stamped<Vec<Verify>>;
    fn publish(ask: &Ask, publications: &[Publication]) -> Stamped<Vec<Publish>>;
    fn resume(endpoints: &[EndpointId], timeout: Duration) -> Asked<Vec<Option<u64>>>;
    fn acquire_roles(asked: &[(Ask, EndpointId)]) -> Vec<Stamped<Vec<Acquire>>>;
    fn renew_roles(asked: &[(Ask, Vec<RenewItem>)]) -> Vec<Stamped<Vec<Renew>>>;
    fn release_roles(freed: &[(Ask, Tenure, Wake)]) -> Asked<()>;
    fn release(ask: &Ask, tenures: &[Tenure], wakes: &[Wake]) -> Asked<Vec<Release>>;
    fn withdraw(ask: &Ask) -> Asked<()>;
    fn wake(wakes: &[Wake], timeout: Duration) -> Asked<()>;
    fn asks(me: &InstanceId, of: &[InstanceId], timeout: Duration) -> Asked<Vec<Wake>>;
    fn session_names(cursor: u64, timeout: Duration) -> Asked<Page<String>>;
    fn sessions(endpoints: &[EndpointId], timeout: Duration) -> Asked<Vec<Option<RawSession>>>;
    fn any_session(endpoints: &[EndpointId], timeout: Duration) -> Asked<bool>;
    fn instances(cursor: u64, timeout: Duration) -> Asked<Page<InstanceId>>;
    fn nodes(instances: &[InstanceId], timeout: Duration) -> Asked<Vec<Option<Lasting<Weight>>>>;
    fn owners(endpoints: &[EndpointId], timeout: Duration) -> Asked<Vec<Option<InstanceId>>>;
    fn leases(endpoints: &[EndpointId], timeout: Duration) -> Asked<Vec<Option<Lasting<InstanceId>>>>;
    fn waning(endpoints: &[EndpointId], soon: Duration, timeout: Duration) -> Asked<Vec<EndpointId>>;
    fn bury(dead: &InstanceId, certain: bool, timeout: Duration) -> Asked<Option<usize>>;
    fn retire(endpoints: &[EndpointId], timeout: Duration) -> Asked<()>;
    fn seats(roles: &[EndpointId], timeout: Duration) -> Asked<Vec<Seat>>;
    fn role_names(timeout: Duration) -> Asked<Vec<EndpointId>>;
    fn remember(notes: &[Note], timeout: Duration) -> Asked<()>;
}

struct HookedEar {
    ear: Box<dyn Ear>,
    hook: Hook,
}

impl Ear for HookedEar {
    fn next(&mut self, wait: Duration) -> Asked<Option<Heard>> {
        (self.hook)("next", Stage::Asked);
        self.ear.next(wait)
    }

    fn hears_changes(&self) -> bool {
        self.ear.hears_changes()
    }
}
