//! How leases change hands: the heir asks, the owner lets the running poll end, releases, and says so (R8).

use std::collections::BTreeSet;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::reconcile::Reconcile;
use crate::model::spread;
use crate::model::{EndpointId, InstanceId, Weight};
use crate::store::{BATCH_MAX, PeerMessage};

/// What is not given is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// An owner that was asked remembers it for this long.
const ASK_REMEMBERED: Duration = Duration::from_secs(4);
/// Who asks is read this often while we think that nobody has a reason to.
const ASKS_READ_EVERY: Duration = Duration::from_secs(3);
/// An owner that is asked again and again looks no oftener than this what is wrong.
const DOUBT_INTERVAL: Duration = Duration::from_secs(3);
/// What was asked for is looked up after this: an instance without a subscription finds it all the same.
const LOOK_AFTER_ASKING: Duration = Duration::from_millis(200);
/// Where words are not heard, what was asked for is looked up again and again while it is asked for: this often, and
/// up to half as long again, each instance with a period of its own.
const LOOK_UNHEARD: Duration = Duration::from_millis(200);
/// How many at a time.
const LOOK_UNHEARD_AT_ONCE: usize = 4 * BATCH_MAX;
/// Where words are not heard, who asks is read this often, and up to half as long again.
const ASKS_READ_UNHEARD: Duration = Duration::from_millis(400);
/// An heir that has asked this often in vain, and twice as often, and so on, resyncs.
const IN_VAIN: u32 = 2;

/// What we have asked others for (R8).
#[derive(Debug, Default)]
pub(crate) struct Asking {
    asked: FnvHashMap<EndpointId, Moment>,
    last: Moment,
    in_vain: u32,
    /// When what was asked for was last looked up unheard, and how far in the plan that came.
    looked: (Moment, usize),
}

impl Asking {
    pub(crate) fn was_asked(&self, endpoint: &EndpointId) -> bool {
        self.asked.contains_key(endpoint)
    }

    pub(crate) fn got(&mut self, endpoint: &EndpointId) {
        if self.asked.remove(endpoint).is_some() {
            self.in_vain = 0;
        }
    }

    pub(crate) fn next(&self) -> Moment {
        self.last + ASK_AGAIN
    }
}

/// Why a lease is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Rebalance,
    Drain,
    Paused,
    Removed,
}

impl Leaving {
    /// To another owner, who is to poll it.
    fn is_move(self) -> bool {
        matches!(self, Self::Rebalance | Self::Drain)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Rebalance => "rebalance",
            Self::Drain => "drain",
            Self::Paused => "paused",
            Self::Removed => "removed",
        }
    }
}

impl Reconcile {
    /// R10: a move that has begun is called off, so that nothing is released into a void.
    pub(crate) fn keep_what_was_to_move(&mut self) {
        // What is free now is no heir's fault: its patience begins when it can act.
        self.patience.restart();
        self.informer.forgive_heirs();
        // An heir that asked before may hang by the time it could be given anything.
        self.asks.clear();
        self.unasked.stop();
        self.next_fallback = Moment::MIN;
        self.begin_again();
        self.call_off(|_, _| true);
    }

    /// R8: what the plan no longer gives away stays, unless its release was sent.
    pub(crate) fn keep_what_is_ours_again(&mut self) {
        let heirs = std::mem::take(&mut self.plan.heirs);
        self.call_off(|endpoint, heir| heirs.get(endpoint) != heir);
        self.plan.heirs = heirs;
    }

    /// What was to move to another and is `kept` after all may be polled again.
    fn call_off(&mut self, kept: impl Fn(&EndpointId, Option<&InstanceId>) -> bool) {
        self.leaving.retain(|endpoint, (leaving, heir)| {
            let kept = leaving.is_move() && kept(endpoint, heir.as_ref());
            if kept {
                self.table.undrain(endpoint);
            }
            !kept
        });
    }

    /// What became of leases that were released for an heir.
    pub(crate) fn note_hand_overs(&mut self) {
        let now = self.table.now();
        let (absent, takers) = self.informer.take_hand_overs();
        for it in &absent {
            self.absent.fail(it, now);
        }
        for it in &takers {
            self.patience.acts(it, now);
            self.absent.end(it);
        }
    }

    pub(crate) fn note_asks(&mut self, word: &PeerMessage) {
        let now = self.table.now();
        let mut asked_before = false;
        for endpoint in word.wants.iter().filter(|it| self.table.holds(it)) {
            let ask = (word.from.clone(), now);
            let before = self.asks.insert(endpoint.clone(), ask);
            asked_before |= before.is_some_and(|it| it.0 == word.from);
        }
        // One that did not take what it was given asks in vain, and we know why.
        if asked_before && !self.absent.is_paused(&word.from, now) {
            self.doubt(&word.from);
        }
    }

    /// It goes on asking for what the plan does not give it, so one of the two sees something wrong: we look
    /// at what we think it has, and if that was not it, at everything, ever less often.
    fn doubt(&mut self, asker: &InstanceId) {
        let now = self.table.now();
        let (last, times) = self.doubts;
        if now.since(last) < DOUBT_INTERVAL {
            return;
        }
        let times = if now.since(last) < 3 * DOUBT_INTERVAL { times + 1 } else { 1 };
        self.doubts = (now, times);
        self.informer.doubt(asker);
        if times > 1 && times.is_power_of_two() {
            self.informer.sweep_soon();
        }
    }

    /// An heir may have asked for something of ours in a message that was lost; now and then, so may
    /// somebody of whom we do not think so.
    pub(crate) fn read_asks(&mut self) {
        let now = self.table.now();
        let heirs: BTreeSet<&InstanceId> = self.plan.heirs.values().collect();
        let (at, askers): (_, Vec<InstanceId>) = if heirs.is_empty() {
            let others = self.informer.view().instances().map(|it| it.0);
            (
                self.asks_read_at + ASKS_READ_EVERY,
                others.filter(|it| **it != self.me).cloned().collect(),
            )
        } else {
            let every = self.asks_read_every();
            (self.asks_read_at + every, heirs.into_iter().cloned().collect())
        };
        if now < at {
            return;
        }
        self.asks_read_at = now;
        match self.store.asks(&self.me, &askers, self.table.timings().store_timeout) {
            Ok(words) => words.iter().for_each(|it| self.note_asks(it)),
            Err(error) => self.informer.trouble(&error),
        }
    }

    /// How often an owner that has something to give reads who asks. Not in step with sweeps and other instances where
    /// nothing else is heard: equal periods would make the same hand-over fail again and again.
    pub(crate) fn asks_read_every(&self) -> Duration {
        if self.informer.receives_messages() {
            ASK_AGAIN
        } else {
            self.own_period(ASKS_READ_UNHEARD)
        }
    }

    /// This, and up to half as long again, by the instance.
    fn own_period(&self, least: Duration) -> Duration {
        let half = u64::try_from(least.as_micros() / 2).unwrap_or(u64::MAX);
        least + Duration::from_micros(spread(self.me.as_str(), half))
    }

    /// Where words are not heard, the next look at what was asked for.
    pub(crate) fn next_look_at_asked(&self) -> Moment {
        if self.informer.receives_messages() {
            return Moment::MAX;
        }
        self.asking.looked.0 + self.own_period(LOOK_UNHEARD)
    }

    /// Nobody says when it is given, so it is looked up as long as it is asked for; some at a time, in turn.
    fn look_at_asked(&mut self) {
        let now = self.table.now();
        if now < self.next_look_at_asked() {
            return;
        }
        let (asked, from) = (&self.plan.ask, self.asking.looked.1);
        let from = if from < asked.len() { from } else { 0 };
        let upto = asked.len().min(from + LOOK_UNHEARD_AT_ONCE);
        for (_, endpoint) in &asked[from..upto] {
            if self.asking.was_asked(endpoint) {
                self.informer.check_at(now, endpoint);
            }
        }
        self.asking.looked = (now, upto);
    }

    /// An audit or a resync has found something different: other instances may have missed it, too.
    pub(crate) fn tell_surprises(&mut self) {
        let mut discrepancies = self.informer.take_surprises();
        if !self.informer.receives_messages() {
            discrepancies.clear(); // nobody would hear it
        }
        let word = |it: &[EndpointId]| PeerMessage {
            discrepancies: it.to_vec(),
            ..PeerMessage::new(&self.me, None)
        };
        let wakes: Vec<PeerMessage> = discrepancies.chunks(BATCH_MAX).map(word).collect();
        if !wakes.is_empty() {
            let _ = self.store.wake(&wakes, self.table.timings().store_timeout);
        }
    }

    /// R8: an heir that asks gets what the plan gives it, once the running poll has ended.
    pub(crate) fn hand_over(&mut self) {
        if self.asks.is_empty() {
            return;
        }
        let now = self.table.now();
        let draining = self.informer.my_weight() == Some(Weight(0));
        let reason = if draining { Leaving::Drain } else { Leaving::Rebalance };
        self.asks.retain(|endpoint, (heir, asked_at)| {
            if now.since(*asked_at) >= ASK_REMEMBERED {
                return false;
            }
            if self.absent.is_paused(heir, now) {
                return false;
            }
            if self.plan.heirs.get(endpoint) != Some(heir) {
                return true; // the plan may be older than the one who asks
            }
            if self.table.drain(endpoint) {
                self.leaving.insert(endpoint.clone(), (reason, Some(heir.clone())));
            }
            false
        });
    }

    /// Asks owners for what is ours by plan; repeated until it is given.
    pub(crate) fn ask(&mut self) {
        let now = self.table.now();
        let again = now >= self.asking.next();
        // What was freed for us is no longer in the plan; it is remembered for a while.
        self.asking.asked.retain(|_, at| now.since(*at) < 3 * ASK_AGAIN);
        if self.plan.ask.is_empty() {
            self.asking.in_vain = 0;
            return;
        }
        let mut by_owner: FnvHashMap<&InstanceId, Vec<EndpointId>> = FnvHashMap::default();
        for (owner, endpoint) in &self.plan.ask {
            let is_due = again || !self.asking.was_asked(endpoint);
            if is_due && !self.unable.is_paused(endpoint, now) {
                by_owner.entry(owner).or_default().push(endpoint.clone());
            }
        }
        if again {
            self.asking.last = now;
            self.asking.in_vain += u32::from(!by_owner.is_empty());
        }
        // In pieces, because nobody listens to a word without end.
        let mut wakes = Vec::new();
        for (owner, wants) in by_owner {
            for wants in wants.chunks(BATCH_MAX) {
                for endpoint in wants {
                    self.asking.asked.insert(endpoint.clone(), now);
                    self.informer.check_at(now + LOOK_AFTER_ASKING, endpoint);
                }
                let word = PeerMessage::new(&self.me, Some(owner.clone()));
                wakes.push(PeerMessage { wants: wants.to_vec(), ..word });
            }
        }
        if !wakes.is_empty() {
            let _ = self.store.wake(&wakes, self.table.timings().store_timeout);
        }
        self.look_at_asked();
        let in_vain = self.asking.in_vain;
        if again && in_vain >= IN_VAIN && in_vain.is_power_of_two() {
            // Our idea of who owns what may be wrong.
            self.informer.sweep_soon();
        }
    }

    /// Gives back what no poll runs under any more, and says so to all.
    pub(crate) fn release_drained(&mut self) {
        let tenures = self.table.drained(self.drain_timeout);
        let mut failure = None;
        for batch in tenures.chunks(BATCH_MAX) {
            let mut by_heir: FnvHashMap<Option<InstanceId>, PeerMessage> = FnvHashMap::default();
            let mut reasons = Vec::new();
            for tenure in batch {
                let endpoint = &tenure.endpoint;
                let (leaving, heir) =
                    self.leaving.remove(endpoint).unwrap_or((Leaving::Rebalance, None));
                self.informer.gave(endpoint, heir.as_ref());
                let word =
                    || PeerMessage { heir: heir.clone(), ..PeerMessage::new(&self.me, None) };
                let word = by_heir.entry(heir.clone()).or_insert_with(word);
                let list = if leaving.is_move() { &mut word.freed } else { &mut word.dropped };
                list.push(endpoint.clone());
                reasons.push((tenure, leaving, heir));
            }
            let wakes: Vec<PeerMessage> = by_heir.into_values().collect();
            // A store that did not answer is not waited for once more per batch.
            failure = failure.or_else(|| {
                self.store.release(&self.table.farewell().context, batch, &wakes).err()
            });
            let gone = reasons.iter().filter(|it| it.1 == Leaving::Removed);
            let gone: Vec<EndpointId> = gone.map(|it| it.0.endpoint.clone()).collect();
            if failure.is_none() && !gone.is_empty() {
                // Only tidiness: what stays behind is a result that nobody reads.
                let _ = self.store.retire(&gone, self.table.timings().store_timeout);
            }
            for (tenure, leaving, heir) in reasons {
                let (reason, heir) = (leaving.word(), heir.as_ref());
                self.reporter.say(&Event::LeaseReleased { tenure, reason, heir });
                if let Some(error) = &failure {
                    self.reporter.say(&Event::LeaseFailed { endpoint: &tenure.endpoint, error });
                }
            }
        }
    }
}
