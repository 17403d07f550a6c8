//! What there is to poll. A session is read by whoever polls it or is about to; one that nobody polls,
//! by everybody, once.

use std::collections::VecDeque;
use std::time::Duration;

use fnv::FnvHashSet;

use crate::clock::Moment;
use crate::daemon::look::Looker;
use crate::event::Event;
use crate::model::EndpointId;
use crate::store::StoreError;

/// How many sessions are read in one exchange: each may be large.
const SESSIONS_AT_ONCE: usize = 200;
/// How many are read again at each glance where changes are not heard of.
const AGAIN_MAX: usize = 1_000;
/// A session that nobody has taken for this long may be one that nobody is to poll: everybody reads it.
const UNREAD_MAX: Duration = Duration::from_millis(500);

/// What is to be read in a while, each once: a session may be written often before anybody comes to read it.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// In the order of their times: each was put in as long before.
    queue: VecDeque<(Moment, EndpointId)>,
    waiting: FnvHashSet<EndpointId>,
}

impl Unread {
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

impl Looker {
    /// These were written or removed.
    pub(super) fn hear_sessions(&mut self, names: &[String]) {
        for name in names {
            if let Some(endpoint) = self.catalogue.named(name, &mut self.news) {
                let news = !self.table.holds(&endpoint) && self.view.add(&endpoint);
                self.stale |= news;
                if let Some(sweep) = &mut self.sweep {
                    sweep.has_seen(self.view.place(&endpoint));
                }
                if self.table.holds(&endpoint) {
                    self.to_read.insert(endpoint);
                } else {
                    // Whoever is to take it reads it first. Its owner, if it has one, reads it now.
                    self.catalogue.doubt(&endpoint);
                    self.read_if_free(&endpoint);
                }
            }
        }
        self.tell_invalid();
    }

    pub(super) fn read_sessions(&mut self, exchanges: &mut usize) -> Result<(), StoreError> {
        if let Some(left) = self.table.hold_off() {
            self.excused_at = self.table.now() + left;
        } else if !self.settled {
            self.excuse(); // others may be about to settle, too
        } else {
            self.to_read.extend(std::mem::take(&mut self.missed));
            self.read_unread();
        }
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

    /// Reads it in a while, if it is free then: whoever is to take it reads it sooner.
    pub(super) fn read_if_free(&mut self, endpoint: &EndpointId) {
        if !self.catalogue.knows(endpoint) {
            self.unread.put(self.table.now() + UNREAD_MAX, endpoint);
        }
    }

    pub(super) fn next_unread(&self) -> Option<Moment> {
        Some(self.unread.next()?.max(self.excused_at + UNREAD_MAX))
    }

    /// Somebody is at work, we or another, or about to be: it is no wonder that there is more to be taken.
    pub(crate) fn excuse(&mut self) {
        self.excused_at = self.excused_at.max(self.table.now());
    }

    fn read_unread(&mut self) {
        let now = self.table.now();
        if now < self.excused_at + UNREAD_MAX {
            return;
        }
        while let Some(endpoint) = self.unread.take_due(now) {
            let is_there = self.view.contains(&endpoint);
            if is_there && self.is_free(&endpoint) && !self.catalogue.knows(&endpoint) {
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
        let found = self.store.sessions(endpoints, self.table.rhythm().store_timeout)?;
        let mut missing = Vec::new();
        for (endpoint, raw) in endpoints.iter().zip(found) {
            let Some(raw) = raw else {
                missing.push(endpoint.clone());
                continue;
            };
            self.stale |= if self.catalogue.take_in(endpoint, &raw, &mut self.news) {
                self.view.add(endpoint)
            } else {
                self.view.remove(endpoint)
            };
        }
        self.tell_invalid();
        self.miss(missing)
    }

    /// R6: a store that has lost its memory has lost the sessions too. Until its hold-off is over that
    /// is no reason to stop: whoever keeps them may put them back. So before anything is believed to
    /// be gone, the store is asked which life it is in.
    fn miss(&mut self, missing: Vec<EndpointId>) -> Result<(), StoreError> {
        if missing.is_empty() {
            return Ok(());
        }
        let question = self.table.question();
        let reply = self.store.verify(&question.ask, &[])?;
        self.table.saw(&question, &reply);
        if self.table.hold_off().is_some() {
            self.missed.extend(missing);
            return Ok(());
        }
        for endpoint in missing {
            self.catalogue.forget(&endpoint);
            self.stale |= self.view.remove(&endpoint);
            self.news.gone.push(endpoint);
        }
        Ok(())
    }

    pub(super) fn tell_invalid(&mut self) {
        for (endpoint, error) in std::mem::take(&mut self.news.invalid) {
            self.reporter.say(&Event::SessionInvalid { endpoint: &endpoint, error: &error });
        }
    }

    /// Whether its session was read and says so.
    pub(crate) fn is_to_be_polled(&self, endpoint: &EndpointId) -> bool {
        self.catalogue.knows(endpoint) && !self.catalogue.is_idle(endpoint)
    }

    /// It is not polled here any more: whoever takes it next, maybe we, reads it anew.
    pub(super) fn forget_session(&mut self, endpoint: &EndpointId) {
        if !self.catalogue.is_idle(endpoint) {
            self.catalogue.forget(endpoint);
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
        self.table.endpoints().into_iter().chain(self.catalogue.idle().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// While nothing is read, as in a hold-off, what is written again and again must not pile up.
    #[test]
    fn a_session_that_is_written_often_waits_once_and_from_the_first_time() {
        let [a, b] = ["a", "b"].map(|it| EndpointId::parse(it).unwrap());
        let mut unread = Unread::default();
        (0..1_000).for_each(|it| unread.put(at(it), &a));
        unread.put(at(1_000), &b);
        assert_eq!((unread.queue.len(), unread.waiting.len(), unread.next()), (2, 2, Some(at(0))));
        assert_eq!([(); 2].map(|()| unread.take_due(at(999))), [Some(a.clone()), None]);
        unread.put(at(2_000), &a);
        assert_eq!([(); 3].map(|()| unread.take_due(at(2_000))), [Some(b), Some(a), None]);
        assert!(unread.waiting.is_empty());
    }
}
