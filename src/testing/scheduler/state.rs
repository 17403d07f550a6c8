//! What does the scheduler of a test know of steps, threads that wait and listeners, and whose turn is it? Pure.

use std::collections::BTreeMap;
use std::thread::ThreadId;

use crate::clock::Moment;
use crate::clock::scheduler::Steps;

/// What a thread is to the scheduler that it is inside of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A thread of the test.
    Stranger,
    /// It is in a call of the library that may wait.
    Inside,
    /// It calls a listener of the user.
    Listener(u64),
}

#[derive(Default)]
pub(super) struct State {
    pub(super) steps: BTreeMap<u64, Scheduled>,
    pub(super) waits: BTreeMap<u64, Waiting>,
    pub(super) listeners: BTreeMap<u64, Listener>,
    /// The last number given to any of these.
    pub(super) last: u64,
    /// The steps that were called last.
    pub(super) last_called: u64,
    pub(super) driver: Option<ThreadId>,
    /// How many threads are in a call, and do not wait.
    pub(super) inside: usize,
    /// Changes with every push.
    pub(super) pushes: u64,
    /// Changes with everything that happens.
    pub(super) progress: u64,
    /// The step that is under way has asked a subscription in vain.
    pub(super) waits_for_push: bool,
}

pub(super) struct Scheduled {
    /// `None` while a step is under way.
    pub(super) steps: Option<Box<dyn Steps>>,
    pub(super) due: Due,
    pub(super) is_finished: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Due {
    At(Moment),
    /// When the number of pushes is another one.
    AfterPush(u64),
}

pub(super) struct Waiting {
    pub(super) until: Moment,
    /// The progress it has seen, if it waits for any change.
    pub(super) seen: Option<u64>,
    pub(super) is_notified: bool,
    pub(super) has_turn: bool,
    pub(super) part: Part,
}

#[derive(Default)]
pub(super) struct Listener {
    pub(super) unheard: usize,
    /// It waits inside the library.
    pub(super) is_parked: bool,
}

impl Scheduled {
    pub(super) fn is_due(&self, now: Moment, pushes: u64) -> bool {
        let Some(steps) = self.steps.as_ref().filter(|it| !it.is_over()) else { return false };
        let is_time = match self.due {
            Due::At(due) => due <= now,
            Due::AfterPush(seen) => seen != pushes,
        };
        is_time || steps.is_nudged()
    }
}

impl State {
    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Everybody has heard everything, and waits or is outside of the library.
    pub(super) fn is_quiet(&self) -> bool {
        self.inside == 0 && self.listeners.values().all(|it| it.unheard == 0 || it.is_parked)
    }

    pub(super) fn due_steps(&self, now: Moment) -> Option<u64> {
        let mut due = self.steps.iter().filter(|it| it.1.is_due(now, self.pushes)).map(|it| *it.0);
        let first = due.next()?;
        // In turns, so that steps that are due again at once do not keep the others from theirs.
        let after = self.last_called;
        Some(if first > after { first } else { due.find(|it| *it > after).unwrap_or(first) })
    }

    pub(super) fn due_wait(&self, now: Moment) -> Option<u64> {
        let is_due = |it: &Waiting| {
            it.is_notified || it.until <= now || it.seen.is_some_and(|it| it != self.progress)
        };
        self.waits.iter().find(|(_, it)| !it.has_turn && is_due(it)).map(|it| *it.0)
    }

    /// How many threads wait.
    pub(super) fn waiting(&self) -> usize {
        self.waits.values().filter(|it| !it.has_turn).count()
    }

    /// Nothing happens at this moment any more.
    pub(super) fn is_at_rest(&self, now: Moment) -> bool {
        let is_due = || self.due_steps(now).is_some() || self.due_wait(now).is_some();
        self.driver.is_none() && self.is_quiet() && !is_due()
    }

    /// The next moment at which something is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let is_over = |it: &Scheduled| it.steps.as_ref().is_none_or(|it| it.is_over());
        let steps = self.steps.values().filter(|it| !is_over(it)).filter_map(|it| match it.due {
            Due::At(due) => Some(due),
            Due::AfterPush(_) => None,
        });
        let waits = self.waits.values().filter(|it| !it.has_turn).map(|it| it.until);
        steps.chain(waits).min()
    }

    pub(super) fn give_turn(&mut self, wait: u64) {
        let Some(waiting) = self.waits.get_mut(&wait) else { return };
        waiting.has_turn = true;
        let part = waiting.part;
        self.set_waiting(part, false);
    }

    /// A thread that is in a call of the library begins to wait, or goes on.
    pub(super) fn set_waiting(&mut self, part: Part, waits: bool) {
        match part {
            Part::Listener(number) => self.set_parked(number, waits),
            Part::Stranger | Part::Inside if waits => self.inside -= 1,
            Part::Stranger | Part::Inside => self.inside += 1,
        }
    }

    pub(super) fn set_parked(&mut self, listener: u64, is_parked: bool) {
        self.listeners.entry(listener).or_default().is_parked = is_parked;
    }
}
