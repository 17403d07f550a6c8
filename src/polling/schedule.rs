//! Which endpoint is due? Keeps each endpoint's rhythm, and never has two polls of one endpoint at a time. Pure.
//!
//! Polls that were missed are skipped, not queued up. Slow endpoints wait in a queue of their own and start only while the
//! slow lane has room (`slow_lane.rs`), so endpoints that answer never wait for them.

mod survey;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::model::spread;
use crate::model::{EndpointId, Session, Tenure, Thresholds};
pub use crate::polling::intervals::LastPoll;
use crate::polling::intervals::{PollIntervals, after};
use crate::polling::schedule::survey::Rhythm;
use crate::polling::slow_lane::{Network, SLOW_AFTER, SlowLane};

/// When a light endpoint of a network has recovered, the others of that network are polled soon; not more often than this.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// An endpoint whose time has come.
#[derive(Clone, Debug)]
pub struct Due {
    /// Under which grant.
    pub tenure: Tenure,
    /// What to poll.
    pub session: Arc<Session>,
    /// How long it may take.
    pub timeout: Duration,
    /// When it should have begun.
    pub due_at: Moment,
    /// From then to the next, if it does well.
    pub next_after_ok: Duration,
    /// And if it does not: it may become light.
    pub next_after_failure: Duration,
    /// How many results in a row change its verdict.
    pub thresholds: Thresholds,
    /// Why at least one poll of it was skipped before this one, if one was. Told once.
    pub skipped: Option<&'static str>,
}

/// Whether an endpoint has just become light or normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LightChange {
    /// Light polling begins, after this many failures.
    Became(u32),
    /// Light polling ends: back to its own interval.
    Ended,
}

/// When each held endpoint is polled next.
#[derive(Debug)]
pub struct PollSchedule {
    intervals: PollIntervals,
    entries: FnvHashMap<EndpointId, Entry>,
    /// A queue for each speed: no endpoint waits behind one that may not start.
    queues: [Queue; SPEEDS.len()],
    /// Slow endpoints that are due while their network has as many slow polls as it may have, in the order of their turns.
    parked: FnvHashMap<Network, VecDeque<Queued>>,
    /// Polls on the way to a poller or running; they outlive the entry when the lease is lost meanwhile.
    running: SlowLane,
    /// Networks of which a light endpoint has just recovered.
    recovered: FnvHashMap<Network, Moment>,
    /// The longest that a quick endpoint was due before it was polled, for [`Self::take_lag`].
    lag: Duration,
    tickets: u64,
}

/// Not before when, the ticket, and the endpoint.
type Queued = (Moment, u64, EndpointId);
type Queue = BinaryHeap<Reverse<Queued>>;

#[derive(Debug)]
struct Entry {
    tenure: Tenure,
    session: Arc<Session>,
    network: Network,
    speed: Speed,
    due_at: Moment,
    /// The queue entry that counts; all others of this endpoint are stale.
    ticket: u64,
    failures: u32,
    told_late: bool,
    rhythm: Rhythm,
}

/// How the last poll of an endpoint by this instance went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Speed {
    /// There was none.
    Untried,
    /// It ended within [`SLOW_AFTER`] and before its timeout.
    Quick,
    /// It timed out or took longer.
    Slow,
}

const SPEEDS: [Speed; 3] = [Speed::Untried, Speed::Quick, Speed::Slow];

impl PollSchedule {
    /// Nothing to poll yet, with at most `workers` polls at a time.
    pub fn new(intervals: PollIntervals, workers: usize) -> Self {
        Self {
            intervals,
            entries: FnvHashMap::default(),
            queues: Default::default(),
            parked: FnvHashMap::default(),
            running: SlowLane::new(workers),
            recovered: FnvHashMap::default(),
            lag: Duration::ZERO,
            tickets: 0,
        }
    }

    /// At most this many polls run at a time from now on.
    pub fn set_workers(&mut self, workers: usize) {
        self.running.resize(workers);
    }

    /// At most this many polls run at a time.
    pub(crate) fn workers(&self) -> usize {
        self.running.workers()
    }

    /// Other intervals from now on. What would be due later than its new interval allows is due within
    /// that, spread over it: a shorter interval must not make all endpoints due at one moment.
    pub fn set_intervals(&mut self, intervals: PollIntervals, now: Moment) {
        self.intervals = intervals;
        self.bring_forward(now, |it| Some(intervals.interval_of(&it.session, it.failures)));
    }

    /// What would be due later than the interval that `within` names is due within that, spread over it.
    fn bring_forward(&mut self, now: Moment, within: impl Fn(&Entry) -> Option<Duration>) {
        let mut sooner = Vec::new();
        for (endpoint, entry) in &mut self.entries {
            let Some(interval) = within(entry).filter(|it| entry.due_at > now + *it) else {
                continue;
            };
            let span = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            entry.due_at = now + Duration::from_millis(spread(endpoint.as_str(), span));
            sooner.push((endpoint.clone(), entry.due_at));
        }
        for (endpoint, due_at) in sooner {
            self.enqueue(&endpoint, due_at);
        }
    }

    /// The interval of `session` as long as it does well.
    pub fn interval(&self, session: &Session) -> Duration {
        session.interval.unwrap_or(self.intervals.interval)
    }

    /// When to poll an endpoint first: one interval after its last poll, and at once if that is past. If there was no
    /// poll, or one long ago, spread over the interval.
    pub fn first_due(
        &self,
        session: &Session,
        last_poll: Option<LastPoll>,
        rhythm_kept: Duration,
        now: Moment,
    ) -> Moment {
        let interval = self.interval(session);
        let spread_over = |span: Duration| {
            let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            now + Duration::from_millis(spread(session.endpoint.as_str(), span))
        };
        match last_poll {
            Some(LastPoll::Ago(age)) if age <= interval + rhythm_kept => {
                now + interval.saturating_sub(age)
            }
            // Soon: each time such an endpoint changes hands, it waits this long again.
            Some(LastPoll::InFuture) => spread_over(interval / 10),
            Some(LastPoll::Ago(_)) | None => spread_over(interval),
        }
    }

    /// A lease was gained: poll under it from `due_at` on.
    pub fn gained(&mut self, tenure: Tenure, session: Arc<Session>, due_at: Moment) {
        let endpoint = tenure.endpoint.clone();
        let before = self.entries.get(&endpoint);
        let entry = Entry {
            tenure,
            network: Network::of(&session.address),
            speed: before.map_or(Speed::Untried, |it| it.speed),
            failures: before.map_or(0, |it| it.failures),
            session,
            due_at,
            ticket: 0,
            told_late: false,
            rhythm: Rhythm::default(),
        };
        self.entries.insert(endpoint.clone(), entry);
        self.enqueue(&endpoint, due_at);
    }

    /// A tenure ended: no more polls under it.
    pub fn ended(&mut self, tenure: &Tenure) {
        if self.entries.get(&tenure.endpoint).is_some_and(|it| it.tenure == *tenure) {
            self.entries.remove(&tenure.endpoint);
        }
    }

    /// A session's record changed. A new interval counts from the last poll.
    pub fn changed(&mut self, session: &Arc<Session>, now: Moment) {
        let intervals = self.intervals;
        let Some(entry) = self.entries.get_mut(&session.endpoint) else { return };
        let before = entry.session.interval.unwrap_or(intervals.interval);
        let after = session.interval.unwrap_or(intervals.interval);
        let moved = entry.session.address != session.address;
        entry.session = Arc::clone(session);
        if moved {
            entry.failures = 0;
            entry.speed = Speed::Untried;
            entry.rhythm = Rhythm::default();
            entry.network = Network::of(&session.address);
        }
        if before != after || moved {
            entry.due_at = (entry.due_at.min(now + after)).max(now);
            let (endpoint, due_at) = (session.endpoint.clone(), entry.due_at);
            self.enqueue(&endpoint, due_at);
        }
    }

    /// Not before `at`, which may be later than it is due.
    fn enqueue(&mut self, endpoint: &EndpointId, at: Moment) {
        self.tickets += 1;
        let Some(entry) = self.entries.get_mut(endpoint) else { return };
        entry.ticket = self.tickets;
        if !self.running.is_running(endpoint) {
            let queue = &mut self.queues[entry.speed as usize];
            queue.push(Reverse((at, self.tickets, endpoint.clone())));
        }
    }

    /// When the next endpoint is due that may start.
    pub fn next_due(&mut self) -> Option<Moment> {
        self.next().map(|it| it.0)
    }

    /// When the longest overdue endpoint that may start is due, and its speed.
    fn next(&mut self) -> Option<(Moment, Speed)> {
        let Self { queues, entries, running, .. } = self;
        let may_start = |it: &Speed| match it {
            Speed::Untried => running.has_room_for_untried(),
            Speed::Quick => true,
            Speed::Slow => running.has_room(),
        };
        let next = |it: Speed| Some((next_in(&mut queues[it as usize], entries)?, it));
        SPEEDS.into_iter().filter(may_start).filter_map(next).min()
    }

    /// Takes up to `n_max` endpoints that are due, longest overdue first. Each counts as running until
    /// [`Self::put_back`] or [`Self::done`].
    pub fn take_due(&mut self, now: Moment, n_max: usize) -> Vec<Due> {
        self.running.note_time(now);
        let mut due = Vec::new();
        while due.len() < n_max
            && let Some((_, speed)) = self.next().filter(|it| it.0 <= now)
        {
            let Some(Reverse(queued)) = self.queues[speed as usize].pop() else { break };
            let Some(entry) = self.entries.get_mut(&queued.2) else { continue };
            let is_slow = speed == Speed::Slow;
            if is_slow && !self.running.has_room_for(entry.network) {
                self.parked.entry(entry.network).or_default().push_back(queued);
                continue;
            }
            let endpoint = queued.2;
            let interval = entry.session.interval.unwrap_or(self.intervals.interval);
            let late = now.since(entry.due_at) >= interval;
            let skipped = late && !std::mem::replace(&mut entry.told_late, late);
            let timeout = entry.session.timeout.unwrap_or(self.intervals.timeout);
            let (tenure, session) = (entry.tenure.clone(), Arc::clone(&entry.session));
            due.push(Due {
                next_after_ok: self.intervals.interval_of(&session, 0),
                next_after_failure: (self.intervals)
                    .interval_of(&session, entry.failures.saturating_add(1)),
                thresholds: self.intervals.thresholds_of(&session),
                tenure,
                session,
                timeout,
                due_at: entry.due_at,
                skipped: skipped.then_some(if is_slow { "slow" } else { "backlog" }),
            });
            self.running.begin(&endpoint, entry.network, is_slow, now);
        }
        due
    }

    /// The poll of this endpoint does not run any more. If it was slow, the next one of its network has its turn.
    fn end_running(&mut self, endpoint: &EndpointId) {
        let Some((network, left)) = self.running.end(endpoint) else { return };
        let Some(parked) = self.parked.get_mut(&network) else { return };
        // One may be stale. Where no poll of the network is left to give the next one its turn, all have it.
        let count = if left == 0 { parked.len() } else { 1 };
        let next = parked.drain(..count.min(parked.len())).map(Reverse);
        self.queues[Speed::Slow as usize].extend(next);
        if parked.is_empty() {
            self.parked.remove(&network);
        }
    }

    /// The poll could not begin. It comes not before `at`, but is as long overdue as it was, and keeps its rhythm.
    pub fn put_back(&mut self, endpoint: &EndpointId, at: Moment) {
        self.end_running(endpoint);
        if let Some(due_at) = self.entries.get(endpoint).map(|it| it.due_at) {
            self.enqueue(endpoint, due_at.max(at));
        }
    }

    /// [`Self::put_back`] without a wait: the endpoint is queued at its own due time, so before everything that became due
    /// later.
    pub fn put_back_first(&mut self, endpoint: &EndpointId) {
        self.put_back(endpoint, Moment::MIN);
    }

    /// A poll has ended, and took this long. The next is due an interval after this one was, or at the first such moment
    /// that is not past.
    pub fn done(
        &mut self,
        due: &Due,
        ok: bool,
        took: Duration,
        now: Moment,
    ) -> Option<LightChange> {
        let endpoint = &due.tenure.endpoint;
        self.end_running(endpoint);
        let intervals = self.intervals;
        let entry = self.entries.get_mut(endpoint)?;
        let began_at = now - took;
        if entry.speed == Speed::Quick {
            self.lag = self.lag.max(began_at.since(due.due_at));
        }
        let is_slow = took > SLOW_AFTER || took >= due.timeout;
        let was_slow = entry.speed == Speed::Slow;
        entry.speed = if is_slow { Speed::Slow } else { Speed::Quick };
        if was_slow != is_slow {
            entry.rhythm.forget_rounds();
        }
        let network = entry.network;
        let was_light = entry.failures >= intervals.light_after;
        entry.failures = if ok { 0 } else { entry.failures.saturating_add(1) };
        let is_light = entry.failures >= intervals.light_after;
        let interval = intervals.interval_of(&entry.session, entry.failures);
        let failures = entry.failures;
        entry.rhythm.polled(began_at, interval, took);
        entry.told_late = false;
        // A tenure gained while the old poll still ran has its own due time.
        if entry.tenure == due.tenure {
            entry.due_at = after(due.due_at, interval, now);
        }
        let at = entry.due_at;
        self.enqueue(endpoint, at);
        match (was_light, is_light) {
            (false, true) => Some(LightChange::Became(failures)),
            (true, false) => {
                self.network_recovered(network, now);
                Some(LightChange::Ended)
            }
            _ => None,
        }
    }

    /// A light endpoint of this network answers again, so the others may, too: each is polled within its own interval.
    fn network_recovered(&mut self, network: Network, now: Moment) {
        self.recovered.retain(|_, at| now.since(*at) < RECOVERY_INTERVAL);
        if self.recovered.contains_key(&network) {
            return;
        }
        self.recovered.insert(network, now);
        let own = self.intervals.interval;
        let interval = |it: &Entry| it.session.interval.unwrap_or(own);
        self.bring_forward(now, |it| (it.network == network).then(|| interval(it)));
    }
}

/// When the first endpoint of this queue is due. Stale entries in front of it are removed.
fn next_in(queue: &mut Queue, entries: &FnvHashMap<EndpointId, Entry>) -> Option<Moment> {
    while let Some(Reverse((at, ticket, endpoint))) = queue.peek() {
        if entries.get(endpoint).is_some_and(|it| it.ticket == *ticket) {
            return Some(*at);
        }
        queue.pop();
    }
    None
}

#[cfg(test)]
mod tests;
