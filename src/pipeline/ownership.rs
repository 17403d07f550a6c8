//! 3 — What this instance may poll, until when, and how every answer of the store changes that.
//!
//! The table is the truth inside the process; channels carry hints, and Redis has the last word. No
//! lock is held across I/O and no guard leaves this file. Every question is framed here (so that its
//! deadline is counted from before it is sent, R1) and every answer is applied here, to the tenure
//! it was asked for and to no other (R4).

use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHashMap;
use parking_lot::{Mutex, RwLock};

use crate::clock::{Clock, Moment};
use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, Tenure, Term};
use crate::pipeline::lease::{Lease, LeaseState, PollPermit, Pulse, SharedClock, Standing};
use crate::pipeline::witness::{Revelation, Witness};
use crate::store::{Acquire, Ask, BATCH_MAX, Beat, Grant, Renew, RenewItem, Reply, Stamp, Verify};

/// The times a table keeps.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Life of a lease.
    pub lease: Term,
    /// Life of a heartbeat.
    pub heartbeat: Term,
    /// How long after an answer a lease is renewed.
    pub renew_interval: Duration,
    /// Longest wait for any answer.
    pub store_timeout: Duration,
}

impl Rhythm {
    /// R3: an unanswered renewal is asked again this soon, not at the next tick.
    pub fn retry_interval(&self) -> Duration {
        let shortest = self.lease.ttl.min(self.heartbeat.ttl);
        Duration::from_secs(1).min(shortest / 12).max(Duration::from_millis(50))
    }
}

/// Written by the threads that ask, read by every poller.
pub struct OwnershipTable {
    me: InstanceId,
    rhythm: Rhythm,
    clock: SharedClock,
    pulse: Arc<Pulse>,
    leases: RwLock<FnvHashMap<EndpointId, Arc<Lease>>>,
    witness: Mutex<Witness>,
}

/// A question about to be sent, with the moment its answer counts from.
#[derive(Clone, Debug)]
pub struct Question {
    /// What to send along.
    pub ask: Ask,
    asked_at: Moment,
    generation: u64,
}

/// A grant that was taken into the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gained {
    /// Which grant.
    pub tenure: Tenure,
    /// Why it could be had.
    pub grant: Grant,
    /// When it was last polled, by the server's clock.
    pub polled_at_ms: Option<u64>,
}

/// Why a lease ended against our will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its deadline, or the heartbeat's, passed unconfirmed.
    Expired,
    /// Somebody else has it.
    Taken(InstanceId),
    /// It is gone and cannot be reclaimed.
    Gone,
}

/// A lease that ended against our will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which grant.
    pub tenure: Tenure,
    /// Why.
    pub loss: Loss,
}

/// What a round of answers did.
#[derive(Debug, Default)]
pub struct Applied {
    /// Still held.
    pub extended: Vec<Tenure>,
    /// Put back after the store had forgotten them.
    pub reclaimed: Vec<Tenure>,
    /// No longer known to be held, and why.
    pub doubted: Vec<(Tenure, String)>,
    /// Ended.
    pub lost: Vec<Lost>,
    /// What the stamp revealed.
    pub revelation: Revelation,
    /// The epoch changed under the question: ask again at once.
    pub ask_again: bool,
}

/// What is known about one held lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its token.
    pub fence: FenceToken,
    /// Confirmed or not.
    pub standing: Standing,
    /// When the grant was asked for.
    pub acquired_at: Moment,
    /// When its last confirmation was asked for.
    pub renewed_at: Moment,
    /// From when on it can only be lost.
    pub deadline: Moment,
    /// On its way out.
    pub draining: bool,
}

impl OwnershipTable {
    /// Holds nothing yet.
    pub fn new(me: InstanceId, rhythm: Rhythm, clock: Arc<dyn Clock>, new_fleet: bool) -> Self {
        let witness = Witness::new(me.clone(), rhythm.lease, new_fleet);
        Self {
            me,
            rhythm,
            clock: SharedClock(clock),
            pulse: Arc::default(),
            leases: RwLock::default(),
            witness: Mutex::new(witness),
        }
    }

    /// Whose table this is.
    pub fn instance(&self) -> &InstanceId {
        &self.me
    }

    /// The times it keeps.
    pub fn rhythm(&self) -> &Rhythm {
        &self.rhythm
    }

    /// The moment it is.
    pub fn now(&self) -> Moment {
        self.clock.0.now()
    }

    // ---- questions -----------------------------------------------------------------------------

    /// R1: the clock is read before the question is sent. Redis starts a TTL later than that.
    pub fn question(&self) -> Question {
        let asked_at = self.now();
        // R4: a reply that comes after the heartbeat has lapsed is worth nothing; once it has lapsed
        // nothing is at stake any more.
        let timeout = match self.pulse.valid_until().since(asked_at) {
            Duration::ZERO => self.rhythm.store_timeout,
            left => self.rhythm.store_timeout.min(left),
        };
        let ask = self.witness.lock().ask(asked_at, timeout);
        Question { ask, asked_at, generation: self.pulse.generation() }
    }

    /// The leases to renew now: at most a batch, those due first. `None` when none is due.
    pub fn renewals(&self) -> Option<(Question, Vec<RenewItem>)> {
        let mut question = self.question();
        let now = question.asked_at;
        let mut due: Vec<(Moment, Moment, Tenure)> = Vec::new();
        for lease in self.leases.read().values() {
            let state = lease.state.lock();
            // R3: past its deadline there is nothing to renew.
            if state.renew_at <= now && lease.stands(&state, now) {
                due.push((state.renew_at, lease.deadline(&state), lease.tenure.clone()));
            }
        }
        due.sort_unstable_by_key(|it| it.0);
        due.truncate(BATCH_MAX);
        // R4: a call's timeout never exceeds what is left of the leases it is about.
        let left = due.iter().map(|it| it.1.since(now)).min()?;
        question.ask.timeout = question.ask.timeout.min(left.max(Duration::from_millis(1)));
        // R6: each of them stands at this moment, so each may be reclaimed if Redis forgot it.
        let items = due.into_iter().map(|it| RenewItem { tenure: it.2, may_reclaim: true });
        Some((question, items.collect()))
    }

    /// When the next renewal is due; `None` while nothing is held.
    pub fn next_renewal(&self) -> Option<Moment> {
        self.leases.read().values().map(|it| it.state.lock().renew_at).min()
    }

    // ---- answers -------------------------------------------------------------------------------

    fn observe(&self, question: &Question, stamp: &Stamp) -> Revelation {
        let now = self.now();
        let revelation = self.witness.lock().observe(question.asked_at, now, stamp);
        if revelation.ran_ahead.is_some() {
            // R5: the server may have ended leases early, or we slept: ask about every one again.
            self.doubt_all(now);
        }
        revelation
    }

    /// R13: a heartbeat was answered. What was held before a lapse is lost for good.
    pub fn beaten(&self, question: &Question, reply: &Reply<Beat>) -> Applied {
        let mut applied =
            Applied { revelation: self.observe(question, &reply.stamp), ..Applied::default() };
        let Some(beat) = reply.answer else { return Applied { ask_again: true, ..applied } };
        let seen = (beat.unbroken, reply.stamp.epoch);
        self.pulse.confirm(question.asked_at, self.now(), self.rhythm.heartbeat, seen);
        applied.lost = self.expire();
        applied
    }

    /// Takes grants into the table. R13: not those asked for before a lapse of the heartbeat.
    pub fn granted(
        &self,
        question: &Question,
        endpoints: &[EndpointId],
        reply: &Reply<Vec<Acquire>>,
    ) -> (Vec<Gained>, Revelation) {
        let revelation = self.observe(question, &reply.stamp);
        let now = self.now();
        let mut gained = Vec::new();
        for (endpoint, answer) in endpoints.iter().zip(reply.answer.iter().flatten()) {
            let Acquire::Granted { fence, grant, polled_at_ms } = answer else { continue };
            self.witness.lock().saw_fence(*fence);
            let tenure = Tenure::new(endpoint.clone(), *fence);
            if self.gain(question, tenure.clone(), now) {
                gained.push(Gained { tenure, grant: *grant, polled_at_ms: *polled_at_ms });
            }
        }
        (gained, revelation)
    }

    fn gain(&self, question: &Question, tenure: Tenure, now: Moment) -> bool {
        let valid_until = question.asked_at + self.rhythm.lease.usable();
        let renew_at = question.asked_at + self.rhythm.renew_interval;
        let mut leases = self.leases.write();
        let fresh = self.pulse.carries(question.generation, now) && now < valid_until;
        if !fresh || leases.contains_key(&tenure.endpoint) {
            return false;
        }
        let pulse = (&self.pulse, question.generation);
        let lease = Lease::new(tenure.clone(), pulse, question.asked_at, valid_until, renew_at);
        leases.insert(tenure.endpoint, Arc::new(lease));
        true
    }

    /// R3: extends what the store confirmed, loses what it denied, doubts what it could not decide.
    pub fn renewed(
        &self,
        question: &Question,
        items: &[RenewItem],
        reply: &Reply<Vec<Renew>>,
    ) -> Applied {
        let revelation = self.observe(question, &reply.stamp);
        let mut applied = Applied { revelation, ..Applied::default() };
        let Some(answers) = &reply.answer else {
            self.retry_soon(items, Duration::ZERO);
            return Applied { ask_again: true, ..applied };
        };
        for (item, answer) in items.iter().zip(answers) {
            let tenure = item.tenure.clone();
            match answer {
                Renew::Extended => self.extend(question, tenure, &mut applied, false),
                Renew::Reclaimed => self.extend(question, tenure, &mut applied, true),
                Renew::NotOwner(owner) => {
                    let loss = owner.clone().map_or(Loss::Gone, Loss::Taken);
                    self.lose(tenure, loss, &mut applied.lost);
                }
                Renew::Late => self.doubt(tenure, "the renewal arrived late", &mut applied),
                Renew::Failed(why) => self.doubt(tenure, why, &mut applied),
            }
        }
        applied
    }

    fn extend(&self, question: &Question, tenure: Tenure, applied: &mut Applied, reclaimed: bool) {
        let now = self.now();
        let Some(lease) = self.find(&tenure) else { return };
        let mut state = lease.state.lock();
        if !lease.stands(&state, now) {
            // R3: lost at its deadline, whatever was on its way.
            drop(state);
            return self.lose(tenure, Loss::Expired, &mut applied.lost);
        }
        let asked_at = question.asked_at;
        state.valid_until = state.valid_until.max(asked_at + self.rhythm.lease.usable());
        state.renewed_at = state.renewed_at.max(asked_at);
        if asked_at >= state.doubted_at {
            state.standing = Standing::Held;
            state.renew_at = asked_at + self.rhythm.renew_interval;
        }
        drop(state);
        if reclaimed { applied.reclaimed.push(tenure) } else { applied.extended.push(tenure) }
    }

    /// R3: no answer. The leases it was about are uncertain, and asked for again soon.
    pub fn unanswered(&self, items: &[RenewItem], error: &str) -> Applied {
        let mut applied = Applied::default();
        for item in items {
            self.doubt(item.tenure.clone(), error, &mut applied);
        }
        applied
    }

    fn doubt(&self, tenure: Tenure, why: &str, applied: &mut Applied) {
        let now = self.now();
        let Some(lease) = self.find(&tenure) else { return };
        let mut state = lease.state.lock();
        let news = state.standing == Standing::Held;
        self.mark_uncertain(&mut state, now);
        state.renew_at = now + self.rhythm.retry_interval();
        drop(state);
        if news {
            applied.doubted.push((tenure, why.into()));
        }
    }

    fn doubt_all(&self, now: Moment) {
        for lease in self.leases.read().values() {
            self.mark_uncertain(&mut lease.state.lock(), now);
        }
    }

    fn mark_uncertain(&self, state: &mut LeaseState, now: Moment) {
        state.standing = Standing::Uncertain;
        state.doubted_at = now;
        state.renew_at = now;
    }

    fn retry_soon(&self, items: &[RenewItem], after: Duration) {
        let at = self.now() + after;
        for item in items {
            if let Some(lease) = self.find(&item.tenure) {
                lease.state.lock().renew_at = at;
            }
        }
    }

    /// FR-010: applies a look into the store; what remains may be dispatched.
    pub fn verified(
        &self,
        question: &Question,
        tenures: &[Tenure],
        reply: &Reply<Vec<Verify>>,
    ) -> (Vec<Tenure>, Applied) {
        let revelation = self.observe(question, &reply.stamp);
        let mut applied = Applied { revelation, ..Applied::default() };
        let mut held = Vec::new();
        let Some(answers) = &reply.answer else {
            return (held, Applied { ask_again: true, ..applied });
        };
        for (tenure, answer) in tenures.iter().zip(answers) {
            let tenure = tenure.clone();
            match answer {
                Verify::Held => held.push(tenure),
                Verify::Missing => {
                    self.doubt(tenure.clone(), "the lease is missing in the store", &mut applied);
                    self.retry_soon(&[RenewItem { tenure, may_reclaim: true }], Duration::ZERO);
                }
                Verify::NotOwner(owner) => {
                    let loss = owner.clone().map_or(Loss::Gone, Loss::Taken);
                    self.lose(tenure, loss, &mut applied.lost);
                }
                Verify::Failed(why) => self.doubt(tenure, why, &mut applied),
            }
        }
        (held, applied)
    }

    /// A reply whose items are somebody else's business.
    pub fn saw<T>(&self, question: &Question, reply: &Reply<T>) -> Revelation {
        self.observe(question, &reply.stamp)
    }

    // ---- endings -------------------------------------------------------------------------------

    fn lose(&self, tenure: Tenure, loss: Loss, lost: &mut Vec<Lost>) {
        if let Some(lease) = self.forget(&tenure) {
            lease.end();
            lost.push(Lost { tenure, loss });
        }
    }

    fn forget(&self, tenure: &Tenure) -> Option<Arc<Lease>> {
        let mut leases = self.leases.write();
        if leases.get(&tenure.endpoint).is_some_and(|it| it.tenure.fence == tenure.fence) {
            leases.remove(&tenure.endpoint)
        } else {
            None
        }
    }

    /// R3, R13: everything past its deadline is lost, and its running poll aborted.
    pub fn expire(&self) -> Vec<Lost> {
        let now = self.now();
        let past: Vec<Tenure> = self
            .leases
            .read()
            .values()
            .filter(|it| !it.stands(&it.state.lock(), now))
            .map(|it| it.tenure.clone())
            .collect();
        let mut lost = Vec::new();
        for tenure in past {
            self.lose(tenure, Loss::Expired, &mut lost);
        }
        lost
    }

    /// When the next lease will be lost if nothing confirms it; `None` while nothing is held.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.leases.read().values().map(|it| it.deadline(&it.state.lock())).min()
    }

    /// R8: no new poll of this endpoint; it will be released when the running one has ended. False
    /// when it is not held or on its way already.
    pub fn drain(&self, endpoint: &EndpointId) -> bool {
        let leases = self.leases.read();
        let Some(lease) = leases.get(endpoint) else { return false };
        let mut state = lease.state.lock();
        let news = state.draining_since.is_none();
        state.draining_since.get_or_insert(self.now());
        news
    }

    /// R4: forgets, at the moment their release is sent, the draining leases whose last poll has
    /// ended; nothing can bring such a tenure back. Polls that outlast `patience` are aborted.
    pub fn drained(&self, patience: Duration) -> Vec<Tenure> {
        let now = self.now();
        let mut ready = Vec::new();
        let mut late = Vec::new();
        for lease in self.leases.read().values() {
            let state = lease.state.lock();
            match (&state.draining_since, &state.running) {
                (Some(_), None) => ready.push(lease.tenure.clone()),
                (Some(since), Some(abort)) if now.since(*since) >= patience => {
                    late.push(Arc::clone(abort));
                }
                _ => (),
            }
        }
        for abort in late {
            abort.fire();
        }
        ready.retain(|it| self.forget(it).map(|lease| lease.end()).is_some());
        ready
    }

    /// Aborts every running poll; the leases stay until they are released.
    pub fn abort_all(&self) {
        let running = |it: &Arc<Lease>| it.state.lock().running.clone();
        let aborts: Vec<_> = self.leases.read().values().filter_map(running).collect();
        aborts.iter().for_each(|it| it.fire());
    }

    /// When the next running poll of a draining lease has outlasted `patience`.
    pub fn next_impatience(&self, patience: Duration) -> Option<Moment> {
        let leases = self.leases.read();
        let since = leases.values().filter_map(|it| it.state.lock().draining_since).min()?;
        Some(since + patience)
    }

    // ---- reading -------------------------------------------------------------------------------

    fn find(&self, tenure: &Tenure) -> Option<Arc<Lease>> {
        let leases = self.leases.read();
        leases.get(&tenure.endpoint).filter(|it| it.tenure.fence == tenure.fence).cloned()
    }

    /// R2: the only way to a poll.
    pub fn permit(&self, tenure: &Tenure) -> Option<PollPermit> {
        PollPermit::issue(&self.find(tenure)?, &self.me, &self.clock)
    }

    /// The tenure under which `endpoint` is held, in whatever standing.
    pub fn tenure(&self, endpoint: &EndpointId) -> Option<Tenure> {
        self.leases.read().get(endpoint).map(|it| it.tenure.clone())
    }

    /// Whether this tenure is still in the table.
    pub fn has(&self, tenure: &Tenure) -> bool {
        self.find(tenure).is_some()
    }

    /// Whether a poll of `endpoint` could start now.
    pub fn may_poll(&self, endpoint: &EndpointId) -> bool {
        let leases = self.leases.read();
        leases.get(endpoint).is_some_and(|it| it.may_poll(&it.state.lock(), self.now()))
    }

    /// What is known about `endpoint`, if it is held.
    pub fn holding(&self, endpoint: &EndpointId) -> Option<Holding> {
        let leases = self.leases.read();
        let lease = leases.get(endpoint)?;
        let state = lease.state.lock();
        Some(Holding {
            fence: lease.tenure.fence,
            standing: state.standing,
            acquired_at: lease.acquired_at,
            renewed_at: state.renewed_at,
            deadline: lease.deadline(&state),
            draining: state.draining_since.is_some(),
        })
    }

    /// Everything in the table.
    pub fn endpoints(&self) -> Vec<EndpointId> {
        self.leases.read().keys().cloned().collect()
    }

    /// How many leases are in the table.
    pub fn len(&self) -> usize {
        self.leases.read().len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The epoch last heard of.
    pub fn epoch(&self) -> Epoch {
        self.witness.lock().epoch()
    }

    /// R5: how long the store still grants nothing.
    pub fn hold_off(&self) -> Option<Duration> {
        self.witness.lock().hold_off(self.now())
    }

    /// R13: whether the heartbeat has been confirmed in time.
    pub fn is_beating(&self) -> bool {
        self.now() < self.pulse.valid_until()
    }

    /// The server's clock about now.
    pub fn server_ms(&self) -> Option<u64> {
        self.witness.lock().server_ms(self.now())
    }
}
