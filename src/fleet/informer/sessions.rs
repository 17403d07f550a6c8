//! What there is to poll.
//!
//! The first sweep takes all names unread: an owner reads its sessions, every instance reads the sessions that stay
//! unowned, because each may be paused or invalid. Later a name enters the view only after this instance has read its
//! session and found that it is to be polled. A written key may be anything: a new session, a session that nobody polls,
//! a key of another application, or (invalidations name keys of all databases) a key of another database.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use fnv::FnvHashSet;

use crate::clock::Moment;
use crate::fleet::informer::Informer;
use crate::model::EndpointId;
use crate::store::{BATCH_MAX, StoreError};

/// How many sessions are read in one exchange: each may be large.
const SESSIONS_AT_ONCE: usize = 200;
/// How many are read again at each glance where changes are not heard of.
const AGAIN_MAX: usize = 1_000;
/// A session that nobody has taken for this long may be one that nobody is to poll: everybody reads it.
const UNREAD_MAX: Duration = Duration::from_millis(500);

/// From one reading of strangers to the next, where the last one found something to poll …
const STRANGERS_PAUSE_MIN: Duration = Duration::from_millis(50);
/// … and at most, where one after the other found nothing. A new session among them waits no longer than this.
const STRANGERS_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Written names that are not in the view, each once, until they are read. The first is read at once, the others in
/// batches, and the more seldom the longer nothing to poll was among them.
#[derive(Debug)]
pub(super) struct Strangers {
    waiting: BTreeSet<EndpointId>,
    next: Moment,
    pause: Duration,
}

impl Default for Strangers {
    fn default() -> Self {
        let (waiting, pause) = (BTreeSet::new(), STRANGERS_PAUSE_MIN);
        Self { waiting, next: Moment::MIN, pause }
    }
}

impl Strangers {
    fn next(&self) -> Option<Moment> {
        (!self.waiting.is_empty()).then_some(self.next)
    }

    /// A batch of those that may be read at `now`.
    fn due(&self, now: Moment) -> Vec<EndpointId> {
        let is_due = self.next().is_some_and(|it| it <= now);
        self.waiting.iter().take(if is_due { BATCH_MAX } else { 0 }).cloned().collect()
    }

    /// These were looked for. The next reading waits once all have been.
    fn looked_for(&mut self, batch: &[EndpointId], now: Moment) {
        for it in batch {
            self.waiting.remove(it);
        }
        if self.waiting.is_empty() {
            if now >= self.next + STRANGERS_PAUSE_MAX {
                self.pause = STRANGERS_PAUSE_MIN; // it was quiet for a while
            }
            self.next = now + self.pause;
            self.pause = (2 * self.pause).min(STRANGERS_PAUSE_MAX);
        }
    }

    /// There was something to poll among them: more may come.
    fn found(&mut self, now: Moment) {
        self.pause = STRANGERS_PAUSE_MIN;
        self.next = self.next.min(now + STRANGERS_PAUSE_MIN);
    }
}

/// What is to be read in a while, each once: a session may be written often before anybody comes to read it.
#[derive(Debug, Default)]
pub(super) struct DeferredReads {
    /// In the order of their times: each was put in as long before.
    queue: VecDeque<(Moment, EndpointId)>,
    waiting: FnvHashSet<EndpointId>,
}

impl DeferredReads {
    /// From `at` on, which is no earlier than any before it; one that waits already keeps its time.
    fn put(&mut self, at: Moment, endpoint: &EndpointId) {
        if self.waiting.insert(endpoint.clone()) {
            self.queue.push_back((at, endpoint.clone()));
        }
    }

    fn next(&self) -> Option<Moment> {
        self.queue.front().map(|it| it.0)
    }

    fn take_due(&mut self, now: Moment) -> Option<EndpointId> {
        let _due = self.next().filter(|it| *it <= now)?;
        let (_, endpoint) = self.queue.pop_front()?;
        self.waiting.remove(&endpoint);
        Some(endpoint)
    }
}

impl Informer {
    /// These were written or removed.
    pub(super) fn hear_sessions(&mut self, names: &[String]) {
        for name in names {
            if let Some(endpoint) = self.session_cache.named(name, &mut self.news) {
                if let Some(sweep) = &mut self.sweep {
                    sweep.has_seen(self.view.place(&endpoint));
                }
                if self.table.holds(&endpoint) {
                    self.to_read.insert(endpoint);
                } else if self.view.contains(&endpoint) {
                    // The instance that is to take it reads it first. Its owner, if it has one, reads it now.
                    self.session_cache.forget(&endpoint);
                    self.read_if_free(&endpoint);
                } else {
                    self.strangers.waiting.insert(endpoint);
                }
            }
        }
        self.tell_invalid();
    }

    pub(super) fn read_sessions(&mut self, exchanges: &mut usize) -> Result<(), StoreError> {
        if let Some(left) = self.table.hold_off() {
            self.excused_at = self.table.now() + left;
        } else if !self.settled {
            self.note_activity(); // others may be about to settle, too
        } else {
            self.to_read.extend(std::mem::take(&mut self.missed));
            self.read_unread();
        }
        self.look_for_strangers(exchanges)?;
        while *exchanges > 0 && !self.to_read.is_empty() {
            *exchanges -= 1;
            let batch: Vec<EndpointId> =
                self.to_read.iter().take(SESSIONS_AT_ONCE).cloned().collect();
            self.read(&batch)?;
            for endpoint in &batch {
                self.to_read.remove(endpoint);
            }
        }
        Ok(())
    }

    /// Of names that are not in the view, reads those that are stored at all.
    fn look_for_strangers(&mut self, exchanges: &mut usize) -> Result<(), StoreError> {
        let (now, timeout) = (self.table.now(), self.table.timings().store_timeout);
        while *exchanges > 0 {
            let batch = self.strangers.due(now);
            if batch.is_empty() {
                break;
            }
            *exchanges -= 1;
            // Those that were stored when they were last read are read; of the others maybe none is stored.
            let (known, unknown): (Vec<EndpointId>, Vec<EndpointId>) =
                batch.iter().cloned().partition(|it| self.session_cache.knows(it));
            if !unknown.is_empty() && self.store.any_session(&unknown, timeout)? {
                self.to_read.extend(unknown);
            }
            self.to_read.extend(known);
            self.strangers.looked_for(&batch, now);
        }
        Ok(())
    }

    /// Reads it in a while, if it is free then: the instance that is to take it reads it sooner.
    pub(super) fn read_if_free(&mut self, endpoint: &EndpointId) {
        if !self.session_cache.knows(endpoint) {
            self.unread.put(self.table.now() + UNREAD_MAX, endpoint);
        }
    }

    /// When the next sessions are to be read that need not be read at once.
    pub(super) fn next_unread(&self) -> Option<Moment> {
        let unread = self.unread.next().map(|it| it.max(self.excused_at + UNREAD_MAX));
        unread.into_iter().chain(self.strangers.next()).min()
    }

    /// Somebody is at work, we or another, or about to be: it is no wonder that there is more to be taken.
    pub(crate) fn note_activity(&mut self) {
        self.excused_at = self.excused_at.max(self.table.now());
    }

    fn read_unread(&mut self) {
        let now = self.table.now();
        if now < self.excused_at + UNREAD_MAX {
            return;
        }
        while let Some(endpoint) = self.unread.take_due(now) {
            let is_there = self.view.contains(&endpoint);
            if is_there && self.is_free(&endpoint) && !self.session_cache.knows(&endpoint) {
                self.to_read.insert(endpoint);
            }
        }
    }

    /// Reads these sessions now; false when the store could not be asked.
    pub(crate) fn learn(&mut self, endpoints: &[EndpointId]) -> bool {
        for batch in endpoints.chunks(SESSIONS_AT_ONCE) {
            if let Err(error) = self.read(batch) {
                self.trouble(&error);
                return false;
            }
        }
        true
    }

    fn read(&mut self, endpoints: &[EndpointId]) -> Result<(), StoreError> {
        let found = self.store.sessions(endpoints, self.table.timings().store_timeout)?;
        let mut missing = Vec::new();
        for (endpoint, raw) in endpoints.iter().zip(found) {
            let Some(raw) = raw else {
                missing.push(endpoint.clone());
                continue;
            };
            if self.session_cache.take_in(endpoint, &raw, &mut self.news) {
                self.enter(endpoint);
            } else {
                self.stale |= self.view.remove(endpoint);
            }
        }
        self.tell_invalid();
        self.miss(missing)
    }

    /// Its session was read and is to be polled. An owner may have said so before this instance knew of it, so who
    /// has it is read, too.
    fn enter(&mut self, endpoint: &EndpointId) {
        if !self.view.add(endpoint) {
            return;
        }
        self.stale = true;
        if let Some(sweep) = &mut self.sweep {
            sweep.has_seen(self.view.place(endpoint));
        }
        let now = self.table.now();
        self.strangers.found(now);
        self.check_at(now, endpoint);
    }

    /// R6: a store that has lost its memory has lost the sessions too. Until its hold-off is over that
    /// is no reason to stop: their application may put them back. So before anything is believed to
    /// be gone, the store is asked which life it is in.
    fn miss(&mut self, missing: Vec<EndpointId>) -> Result<(), StoreError> {
        // What this instance neither holds nor counts is not believed to be anything.
        let (missing, unknown): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|it| self.view.contains(it) || self.table.holds(it));
        unknown.iter().for_each(|it| self.session_cache.forget(it));
        if missing.is_empty() {
            return Ok(());
        }
        let request = self.table.request();
        let reply = self.store.verify(&request.context, &[])?;
        self.table.saw(&request, &reply);
        if self.table.hold_off().is_some() {
            self.missed.extend(missing);
            return Ok(());
        }
        for endpoint in missing {
            self.session_cache.forget(&endpoint);
            self.stale |= self.view.remove(&endpoint);
            self.news.gone.push(endpoint);
        }
        Ok(())
    }

    /// Whether its session was read and says so.
    pub(crate) fn is_to_be_polled(&self, endpoint: &EndpointId) -> bool {
        self.session_cache.knows(endpoint) && !self.session_cache.is_idle(endpoint)
    }

    /// It is not polled here any more: the next owner, maybe this instance, reads it anew.
    pub(super) fn forget_session(&mut self, endpoint: &EndpointId) {
        if !self.session_cache.is_idle(endpoint) {
            self.session_cache.forget(endpoint);
        }
    }

    /// What this instance polls, and what nobody does: read again, in case a change was missed.
    pub(super) fn read_again(&mut self) {
        self.to_read.extend(self.ours_and_idle());
    }

    /// The same, some at each glance, where changes are not heard of.
    pub(super) fn read_some_again(&mut self) {
        if self.turn.is_empty() {
            self.turn = self.ours_and_idle();
        }
        let rest = self.turn.len().saturating_sub(AGAIN_MAX);
        self.to_read.extend(self.turn.split_off(rest));
    }

    fn ours_and_idle(&self) -> Vec<EndpointId> {
        self.table.endpoints().into_iter().chain(self.session_cache.idle().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// A key of another database that is written all the time costs two questions a second.
    #[test]
    fn strangers_are_read_more_and_more_seldom_until_one_is_to_be_polled() {
        let [a, b] = ["a", "b"].map(|it| EndpointId::parse(it).unwrap());
        let mut strangers = Strangers::default();
        let read_at = |strangers: &mut Strangers, from: u64, until: u64| {
            let mut times = Vec::new();
            for ms in from..until {
                strangers.waiting.extend([a.clone(), b.clone()]);
                let due = strangers.due(at(ms));
                if !due.is_empty() {
                    assert_eq!(due.len(), 2, "both at once");
                    strangers.looked_for(&due, at(ms));
                    times.push(ms);
                }
            }
            times
        };
        let times = read_at(&mut strangers, 10_000, 12_500);
        assert_eq!(times, [10_000, 10_050, 10_150, 10_350, 10_750, 11_250, 11_750, 12_250]);
        strangers.found(at(12_500));
        assert_eq!(read_at(&mut strangers, 12_500, 12_800), [12_550, 12_600, 12_700]);
        strangers.waiting.clear();
        assert_eq!(strangers.next(), None);
        assert_eq!(read_at(&mut strangers, 20_000, 20_100), [20_000, 20_050], "after a rest");
    }

    /// While nothing is read, as in a hold-off, what is written again and again must not pile up.
    #[test]
    fn a_session_that_is_written_often_waits_once_and_from_the_first_time() {
        let [a, b] = ["a", "b"].map(|it| EndpointId::parse(it).unwrap());
        let mut unread = DeferredReads::default();
        (0..1_000).for_each(|it| unread.put(at(it), &a));
        unread.put(at(1_000), &b);
        assert_eq!((unread.queue.len(), unread.waiting.len(), unread.next()), (2, 2, Some(at(0))));
        assert_eq!([(); 2].map(|()| unread.take_due(at(999))), [Some(a.clone()), None]);
        unread.put(at(2_000), &a);
        assert_eq!([(); 3].map(|()| unread.take_due(at(2_000))), [Some(b), Some(a), None]);
        assert!(unread.waiting.is_empty());
    }
}
