//! One client of the in-memory server: every call goes through here, and so do the faults that a test plans.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::ManualClock;
use crate::model::Tenure;
use crate::store::memory::roles::OnLease;
use crate::store::memory::scripts::Now;
use crate::store::memory::server::{MemoryServer, ServerState};
use crate::store::{Fault, RequestContext, StampedResult, StoreError, StoreResult};

/// The calls of the in-memory store: each the name of its method of `Store`, and `next_push` of a subscription.
/// `acquire_roles`, `renew_roles`, `verify_roles` and `release_roles` count as `acquire`, `renew`, `verify` and `release` here;
/// `Hooked` reports their own names.
const OPS: [&str; 29] = [
    "acquire",
    "any_session",
    "asks",
    "beat",
    "expiring",
    "heartbeat",
    "heartbeats",
    "inspect",
    "instances",
    "last_polled",
    "leases",
    "listen",
    "next_push",
    "owners",
    "publish",
    "release",
    "renew",
    "retire",
    "revoke",
    "revoke_instance",
    "role_names",
    "role_statuses",
    "session_names",
    "sessions",
    "signs_of_life",
    "time",
    "verify",
    "wake",
    "withdraw",
];

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

/// One instance's client of a [`MemoryServer`].
pub struct MemoryStore {
    pub(crate) server: Arc<MemoryServer>,
    planned: Arc<Mutex<PlannedFaults>>,
}

/// What goes wrong between a client and the server.
#[derive(Default)]
struct PlannedFaults {
    cut_off: bool,
    /// Messages of these get lost.
    lost: Vec<&'static str>,
    mishaps: VecDeque<(&'static str, Mishap)>,
}

impl MemoryStore {
    /// The same client again: the two share the planned faults.
    pub fn share(&self) -> Self {
        Self { server: Arc::clone(&self.server), planned: Arc::clone(&self.planned) }
    }

    /// A client of `server` without planned faults.
    pub fn new(server: &Arc<MemoryServer>) -> Self {
        Self { server: Arc::clone(server), planned: Arc::default() }
    }

    /// Plans what happens to the next message of `op` (`acquire`, `renew`, …).
    pub fn plan(&self, op: &'static str, mishap: Mishap) {
        assert_op(op);
        self.planned.lock().mishaps.push_back((op, mishap));
    }

    /// Nothing gets through either way until it is mended.
    pub fn cut_off(&self, cut: bool) {
        self.planned.lock().cut_off = cut;
    }

    /// No message of `op` arrives until it is mended: large packets are dropped, for example.
    pub fn lose(&self, op: &'static str, lost: bool) {
        assert_op(op);
        let mut planned = self.planned.lock();
        planned.lost.retain(|it| *it != op);
        planned.lost.extend(lost.then_some(op));
    }

    pub(crate) fn call<T: Send>(
        &self,
        op: &'static str,
        execute: impl FnOnce(&mut ServerState, &ManualClock) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        debug_assert!(OPS.contains(&op), "{op} is missing in OPS");
        let mishap = {
            let mut planned = self.planned.lock();
            if planned.cut_off || planned.lost.contains(&op) {
                return Err(no_answer(op));
            }
            let at = planned.mishaps.iter().position(|it| it.0 == op);
            at.and_then(|at| planned.mishaps.remove(at)).map(|it| it.1)
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
    pub(crate) fn each<I: OnLease + Clone + Send + 'static, T: Send + 'static>(
        &self,
        op: &'static str,
        context: &RequestContext,
        items: Vec<&I>,
        verb: fn(&mut ServerState, &RequestContext, &I, Now) -> T,
    ) -> StampedResult<Vec<T>> {
        let (context, items): (RequestContext, Vec<I>) =
            (context.clone(), items.into_iter().cloned().collect());
        self.call(op, move |state, clock| {
            state.for_each(&context, clock, &items, |state, it, now| verb(state, &context, it, now))
        })
    }

    /// [`Self::each`] for verifications.
    pub(crate) fn each_verified<T: Send + 'static>(
        &self,
        context: &RequestContext,
        tenures: Vec<&Tenure>,
        verb: fn(&mut ServerState, &RequestContext, &Tenure, Now) -> T,
    ) -> StampedResult<Vec<T>> {
        let (context, tenures): (RequestContext, Vec<Tenure>) =
            (context.clone(), tenures.into_iter().cloned().collect());
        self.call("verify", move |state, clock| {
            let verb = |state: &mut ServerState, it: &Tenure, now| verb(state, &context, it, now);
            state.verify_each(&context, clock, &tenures, verb)
        })
    }
}

fn assert_op(op: &str) {
    assert!(OPS.contains(&op), "no Store call is named {op}");
}

/// The error of a call without an answer.
pub fn no_answer(op: &'static str) -> StoreError {
    let (target, reason) = ("the store".into(), "no answer in time".into());
    StoreError { op, target, fault: Fault::Unreachable, reason }
}
