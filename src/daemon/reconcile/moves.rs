//! How leases change hands: the heir asks, the owner lets the running poll end, releases, and says so (R8).

use std::collections::BTreeSet;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::daemon::reconcile::Reconcile;
use crate::event::Event;
use crate::model::{EndpointId, InstanceId, Weight};
use crate::store::{BATCH_MAX, Wake};

/// What is not given is asked for again after this.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Whoever was asked remembers it for this long.
const ASK_REMEMBERED: Duration = Duration::from_secs(4);
/// Who asks is read this often while we think that nobody has a reason to.
const ASKS_READ_EVERY: Duration = Duration::from_secs(3);
/// Whoever is asked again and again looks no oftener than this what is wrong.
const DOUBT_INTERVAL: Duration = Duration::from_secs(3);
/// What was asked for is looked up after this: whoever cannot hear finds it all the same.
const LOOK_AFTER_ASKING: Duration = Duration::from_millis(200);
/// Whoever has asked so often in vain, and twice as often, and so on, looks at everything again.
const IN_VAIN: u32 = 2;

/// What we have asked others for (R8).
#[derive(Debug, Default)]
pub(crate) struct Asking {
    asked: FnvHashMap<EndpointId, Moment>,
    last: Moment,
    in_vain: u32,
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
        // Whoever asked before may hang by the time it could be given anything.
        self.asks.clear();
        self.unasked.stop();
        self.next_fallback = Moment::NEVER;
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

    pub(crate) fn note_asks(&mut self, word: &Wake) {
        let now = self.table.now();
        let mut asked_before = false;
        for endpoint in word.wants.iter().filter(|it| self.table.tenure(it).is_some()) {
            let ask = (word.from.clone(), now);
            let before = self.asks.insert(endpoint.clone(), ask);
            asked_before |= before.is_some_and(|it| it.0 == word.from);
        }
        if asked_before {
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
        self.looker.doubt(asker);
        if times > 1 && times.is_power_of_two() {
            self.looker.sweep_soon();
        }
    }

    /// Whoever should have something of ours may have asked for it in a word that was lost; now and then, so may
    /// somebody of whom we do not think so.
    pub(crate) fn read_asks(&mut self) {
        let now = self.table.now();
        let heirs: BTreeSet<&InstanceId> = self.plan.heirs.values().collect();
        let (at, askers): (_, Vec<InstanceId>) = if heirs.is_empty() {
            let others = self.looker.view().instances().map(|it| it.0);
            (
                self.asks_read_at + ASKS_READ_EVERY,
                others.filter(|it| **it != self.me).cloned().collect(),
            )
        } else {
            (self.asks_read_at + ASK_AGAIN, heirs.into_iter().cloned().collect())
        };
        if now < at {
            return;
        }
        self.asks_read_at = now;
        match self.store.asks(&self.me, &askers, self.table.rhythm().store_timeout) {
            Ok(words) => words.iter().for_each(|it| self.note_asks(it)),
            Err(error) => self.looker.trouble(&error),
        }
    }

    /// A round or a sweep has found something different: whoever missed it may not be alone.
    pub(crate) fn tell_surprises(&mut self) {
        let surprises = self.looker.take_surprises();
        let word = |it: &[EndpointId]| Wake { surprises: it.to_vec(), ..Wake::new(&self.me, None) };
        let wakes: Vec<Wake> = surprises.chunks(BATCH_MAX).map(word).collect();
        if !wakes.is_empty() {
            let _ = self.store.wake(&wakes, self.table.rhythm().store_timeout);
        }
    }

    /// R8: whoever asks gets what the plan gives it, once the running poll has ended.
    pub(crate) fn hand_over(&mut self) {
        if self.asks.is_empty() {
            return;
        }
        let now = self.table.now();
        let draining = self.looker.my_weight() == Some(Weight(0));
        let reason = if draining { Leaving::Drain } else { Leaving::Rebalance };
        self.asks.retain(|endpoint, (heir, asked_at)| {
            if now.since(*asked_at) >= ASK_REMEMBERED {
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
            if again || !self.asking.was_asked(endpoint) {
                by_owner.entry(owner).or_default().push(endpoint.clone());
            }
        }
        if again {
            self.asking.last = now;
            self.asking.in_vain += 1;
        }
        // In pieces, because nobody listens to a word without end.
        let mut wakes = Vec::new();
        for (owner, wants) in by_owner {
            for wants in wants.chunks(BATCH_MAX) {
                for endpoint in wants {
                    self.asking.asked.insert(endpoint.clone(), now);
                    self.looker.check_at(now + LOOK_AFTER_ASKING, endpoint);
                }
                let word = Wake::new(&self.me, Some(owner.clone()));
                wakes.push(Wake { wants: wants.to_vec(), ..word });
            }
        }
        if !wakes.is_empty() {
            let _ = self.store.wake(&wakes, self.table.rhythm().store_timeout);
        }
        let in_vain = self.asking.in_vain;
        if again && in_vain >= IN_VAIN && in_vain.is_power_of_two() {
            // Our idea of who owns what may be wrong.
            self.looker.sweep_soon();
        }
    }

    /// Gives back what no poll runs under any more, and says so to all.
    pub(crate) fn release_drained(&mut self) {
        let tenures = self.table.drained(self.drain_timeout);
        let mut failure = None;
        for batch in tenures.chunks(BATCH_MAX) {
            let mut by_heir: FnvHashMap<Option<InstanceId>, Wake> = FnvHashMap::default();
            let mut reasons = Vec::new();
            for tenure in batch {
                let endpoint = &tenure.endpoint;
                let (leaving, heir) =
                    self.leaving.remove(endpoint).unwrap_or((Leaving::Rebalance, None));
                self.looker.gave(endpoint, heir.as_ref());
                let word = || Wake { heir: heir.clone(), ..Wake::new(&self.me, None) };
                let word = by_heir.entry(heir.clone()).or_insert_with(word);
                let list = if leaving.is_move() { &mut word.freed } else { &mut word.dropped };
                list.push(endpoint.clone());
                reasons.push((tenure, leaving, heir));
            }
            let wakes: Vec<Wake> = by_heir.into_values().collect();
            // A store that did not answer is not waited for once more per batch.
            failure = failure
                .or_else(|| self.store.release(&self.table.farewell().ask, batch, &wakes).err());
            let gone = reasons.iter().filter(|it| it.1 == Leaving::Removed);
            let gone: Vec<EndpointId> = gone.map(|it| it.0.endpoint.clone()).collect();
            if failure.is_none() && !gone.is_empty() {
                // Only tidiness: what stays behind is a result that nobody reads.
                let _ = self.store.retire(&gone, self.table.rhythm().store_timeout);
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
