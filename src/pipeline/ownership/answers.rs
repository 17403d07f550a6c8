//! Every question to the store, framed, and every answer, applied to the tenure it was asked for.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::model::{EndpointId, Epoch, FenceToken, Tenure};
use crate::pipeline::lease::{Lease, LeaseState, Standing};
use crate::pipeline::ownership::agenda::Edit;
use crate::pipeline::ownership::{Applied, Gained, Loss, OwnershipTable, Question};
use crate::pipeline::placement::spread;
use crate::pipeline::witness::{Revelation, Witness};
use crate::store::{Acquire, Ask, Asked, BATCH_MAX, Beat, Renew, RenewItem, Reply, Stamp, Verify};

/// A call that is about nothing any more still needs a timeout.
const SHORTEST: Duration = Duration::from_millis(1);
/// A lease with less than this left is not renewed any more: no answer would come in time.
const LEFT_MIN: Duration = Duration::from_millis(10);
/// Into so many parts a burst of grants is spread.
const SPREAD: u32 = 64;

impl Question {
    /// R1: when it was framed, right before it is sent.
    pub fn asked_at(&self) -> Moment {
        self.asked_at
    }

    /// R4: a call's timeout never exceeds what is left of the leases it is about; the first of them ends then.
    fn limit(&mut self, first_end: Moment) {
        let left = first_end.since(self.asked_at).max(SHORTEST);
        self.ask.timeout = self.ask.timeout.min(left);
    }
}

impl OwnershipTable {
    /// R1: the clock is read before the question is sent. Redis starts a TTL later than that.
    pub fn question(&self) -> Question {
        self.framed(|witness, now, timeout| witness.ask(now, timeout))
    }

    /// R4: before the first question the server's clock is read by `ask`, which is given the time it may take: so the
    /// first question has a latest execution time, too. Does nothing once a time is known.
    pub fn learn_time(&self, ask: impl FnOnce(Duration) -> Asked<u64>) -> Asked<()> {
        if self.witness.lock().knows_time() {
            return Ok(());
        }
        let asked_at = self.now();
        let server_us = ask(self.rhythm.store_timeout)?;
        self.witness.lock().saw_time(asked_at, server_us);
        Ok(())
    }

    /// The same for the release of what was forgotten just before (R4), while nobody else acquires: then all that
    /// is held was heard of.
    pub fn farewell(&self) -> Question {
        self.framed(Witness::farewell)
    }

    fn framed(&self, frame: impl FnOnce(&mut Witness, Moment, Duration) -> Ask) -> Question {
        let asked_at = self.now();
        // R4: a reply that comes after the heartbeat has lapsed is worth nothing; once it has lapsed
        // nothing is at stake any more.
        let timeout = match self.pulse.valid_until().since(asked_at) {
            Duration::ZERO => self.rhythm.store_timeout,
            left => self.rhythm.store_timeout.min(left),
        };
        let ask = frame(&mut self.witness.lock(), asked_at, timeout);
        Question { ask, asked_at, generation: self.pulse.generation() }
    }

    /// The question whether these are ours in the store (FR-010); by name, if that proves it for all of them (R4).
    pub fn verification(&self, tenures: &[Tenure]) -> Question {
        let mut question = self.question();
        let (mut all_matched, mut first_end) = (true, Moment::FOREVER);
        let leases = self.leases.read();
        for tenure in tenures {
            let Some(lease) = leases.find(tenure) else {
                all_matched = false;
                continue;
            };
            let state = lease.state.lock();
            all_matched &= state.matched_in == question.ask.epoch;
            first_end = first_end.min(lease.deadline(&state));
        }
        drop(leases);
        question.ask.by_name = all_matched;
        question.limit(first_end);
        question
    }

    /// The leases to renew now: at most a batch, those that end first. `None` when none is due.
    pub fn renewals(&self) -> Option<(Question, Vec<RenewItem>)> {
        let mut question = self.question();
        let now = question.asked_at;
        let slept_until = self.slept_until();
        // R3: past its deadline there is nothing to renew.
        // One with no time left for an answer would take that time from all others.
        if self.pulse.valid_until().since(now) < LEFT_MIN {
            return None;
        }
        let next = self.agenda.lock().due(now, now + LEFT_MIN, BATCH_MAX);
        let mut due: Vec<RenewItem> = Vec::with_capacity(next.len());
        let (mut due_since, mut first_end) = (now, Moment::FOREVER);
        let leases = self.leases.read();
        for lease in next.iter().filter_map(|it| leases.get(it)) {
            let state = lease.state.lock();
            if lease.stands(&state, now) {
                // R6: it stands at this moment, so nobody can have been granted it, unless we slept.
                let may_reclaim = state.renewed_at >= slept_until;
                // R4: within an epoch the fence is compared once, and then the owner's name proves it.
                let matched = state.matched_in == question.ask.epoch;
                let tenure = lease.tenure.clone();
                due_since = due_since.min(state.renew_at);
                first_end = first_end.min(lease.deadline(&state));
                due.push(RenewItem { tenure, may_reclaim, matched });
            }
        }
        drop(leases);
        if due.is_empty() {
            return None;
        }
        self.metrics.renewal_lag.observe(now.since(due_since));
        question.limit(first_end);
        Some((question, due))
    }

    /// R6: what was last confirmed before this may have been granted to another, and that be forgotten.
    fn slept_until(&self) -> Moment {
        let (until, life) = *self.slept.lock();
        if life == self.witness.lock().born() { Moment::NEVER } else { until }
    }

    /// When the next renewal is due, or since when it has been; `None` while nothing is held.
    pub fn next_renewal(&self) -> Option<Moment> {
        self.agenda.lock().next_renewal()
    }

    fn observe(&self, question: &Question, stamp: &Stamp) -> Revelation {
        let now = self.now();
        let (before, revelation, after) = {
            let mut witness = self.witness.lock();
            let before = witness.epoch();
            let revelation = witness.observe(question.asked_at, now, stamp);
            (before, revelation, witness.epoch())
        };
        if before != after && before != Epoch::default() {
            self.metrics.epoch_changed();
        }
        if let Some(life) = revelation.slept_in {
            *self.slept.lock() = (now, life);
        }
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

    /// Takes grants into the table. R13: not those asked for before a lapse of the heartbeat. R4: nor those that
    /// are not later than the last one let go of the same name; the store has ended them.
    pub fn granted(
        &self,
        question: &Question,
        endpoints: &[EndpointId],
        reply: &Reply<Vec<Acquire>>,
    ) -> (Vec<Gained>, Revelation) {
        let revelation = self.observe(question, &reply.stamp);
        let now = self.now();
        let (mut gained, mut newest) = (Vec::new(), FenceToken(0));
        for (endpoint, answer) in endpoints.iter().zip(reply.answer.iter().flatten()) {
            let Acquire::Granted { fence, grant } = answer else { continue };
            newest = newest.max(*fence);
            let tenure = Tenure::new(endpoint.clone(), *fence);
            if self.gain(question, tenure.clone(), now) {
                gained.push(Gained { tenure, grant: *grant });
            }
        }
        self.witness.lock().saw_fence(newest);
        (gained, revelation)
    }

    fn gain(&self, question: &Question, tenure: Tenure, now: Moment) -> bool {
        let valid_until = question.asked_at + self.rhythm.lease.usable();
        let mut leases = self.leases.write();
        let renew_at = question.asked_at + self.first_interval(&tenure.endpoint, leases.len());
        let fresh = self.pulse.admits(question.generation, now) && now < valid_until;
        if !fresh || !leases.is_newer(&tenure) {
            return false;
        }
        let older = leases.remove(&tenure.endpoint, now, self.rhythm.lease.usable());
        if let Some(older) = &older {
            self.edit(older).ended = true;
        }
        let pulse = (&self.pulse, question.generation);
        let lease = Lease::new(tenure, pulse, question.asked_at, valid_until, renew_at);
        let doubted_at = *self.doubted_at.lock();
        let mut state = Edit::first(&lease, &self.agenda);
        state.matched_in = question.ask.epoch;
        // R5: asked before the server's clock was seen to run ahead, so not to be relied on yet.
        if question.asked_at < doubted_at {
            self.mark_uncertain(&mut state, doubted_at);
        }
        drop(state);
        leases.put(Arc::new(lease));
        drop(leases);
        // A later grant has ended the earlier one in the store.
        older.iter().for_each(|it| it.stop_poll());
        true
    }

    /// How long after its grant a lease is renewed first. What is granted together would be renewed together
    /// for ever: where that is more than a batch, it is spread over half the interval from the start.
    fn first_interval(&self, endpoint: &EndpointId, held: usize) -> Duration {
        let interval = self.rhythm.renew_interval;
        if held < BATCH_MAX {
            return interval;
        }
        let step = u32::try_from(spread(endpoint.as_str(), SPREAD.into())).unwrap_or_default();
        interval - interval / 2 * step / SPREAD
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
                // R6: who slept cannot know whether it was taken over (R13) in what the store forgot. The
                // key that it kept proves nothing.
                Renew::Extended if !item.may_reclaim => {
                    self.lose(tenure, Loss::Gone, &mut applied.lost);
                }
                Renew::Extended => self.extend(question, item, &mut applied, false),
                Renew::Reclaimed => self.extend(question, item, &mut applied, true),
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

    fn extend(
        &self,
        question: &Question,
        item: &RenewItem,
        applied: &mut Applied,
        reclaimed: bool,
    ) {
        let (now, tenure) = (self.now(), item.tenure.clone());
        let Some(lease) = self.find(&tenure) else { return };
        let mut state = self.edit(&lease);
        if !lease.stands(&state, now) {
            // R3: lost at its deadline, whatever was on its way.
            drop(state);
            return self.lose(tenure, Loss::Expired, &mut applied.lost);
        }
        let asked_at = question.asked_at;
        state.valid_until = state.valid_until.max(asked_at + self.rhythm.lease.usable());
        state.renewed_at = state.renewed_at.max(asked_at);
        // R4: one that went by the name compared nothing, and one from before the mistrust may have come before what
        // that is about.
        if !item.matched && asked_at >= state.mistrusted_at {
            state.matched_in = question.ask.epoch;
        }
        let is_matched = state.matched_in == question.ask.epoch;
        if asked_at >= state.doubted_at {
            state.standing = Standing::Held;
            if is_matched {
                state.renew_at = asked_at + self.rhythm.renew_interval;
            }
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
        let mut state = self.edit(&lease);
        let news = state.standing == Standing::Held;
        self.mark_uncertain(&mut state, now);
        state.renew_at = now + self.rhythm.retry_interval();
        drop(state);
        if news {
            applied.doubted.push((tenure, why.into()));
        }
    }

    fn doubt_all(&self, now: Moment) {
        *self.doubted_at.lock() = now;
        // Whoever comes later is doubted when it comes. So the shelf is not kept from others for all of this.
        let all: Vec<Arc<Lease>> = self.leases.read().all().cloned().collect();
        for lease in all {
            self.mark_uncertain(&mut self.edit(&lease), now);
        }
    }

    fn mark_uncertain(&self, state: &mut LeaseState, now: Moment) {
        state.standing = Standing::Uncertain;
        state.doubted_at = now;
        state.renew_at = now;
    }

    /// The store has another fence than ours for it, or none: the next renewal compares, and comes at once. One that
    /// is on its way does not count as that.
    pub fn mistrust(&self, tenure: &Tenure) {
        if let Some(lease) = self.find(tenure) {
            let mut state = self.edit(&lease);
            state.matched_in = Epoch::default();
            state.mistrusted_at = self.now();
            state.renew_at = state.mistrusted_at;
        }
    }

    fn retry_soon(&self, items: &[RenewItem], after: Duration) {
        let at = self.now() + after;
        for item in items {
            if let Some(lease) = self.find(&item.tenure) {
                self.edit(&lease).renew_at = at;
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
                    self.retry_soon(&[RenewItem::new(tenure)], Duration::ZERO);
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
}
