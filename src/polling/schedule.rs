//! 4 — Which endpoint is due? Keeps each endpoint's rhythm, never two polls of one at a time.
//!
//! Pure: fed with what was gained, lost and done, asked what is due. Rounds that were missed are
//! skipped, not queued up.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fnv::{FnvBuildHasher, FnvHashMap};

use crate::clock::Moment;
use crate::config::Config;
use crate::model::spread;
use crate::model::{EndpointId, Session, Tenure};

/// Intervals and what happens to an endpoint that keeps failing.
#[derive(Clone, Copy, Debug)]
pub struct PollIntervals {
    /// Between two polls, unless the session has its own.
    pub interval: Duration,
    /// For one poll, unless the session has its own.
    pub timeout: Duration,
    /// This many failures in a row make an endpoint light.
    pub light_after: u32,
    /// Between two polls of a light endpoint.
    pub light_interval: Duration,
}

impl PollIntervals {
    /// Those of `config`.
    pub fn of(config: &Config) -> Self {
        Self {
            interval: config.interval,
            timeout: config.timeout,
            light_after: config.light_after,
            light_interval: config.light_interval,
        }
    }

    /// From one poll of `session` to the next, after this many failures in a row.
    fn interval_of(&self, session: &Session, failures: u32) -> Duration {
        let own = session.interval.unwrap_or(self.interval);
        if failures >= self.light_after { own.max(self.light_interval) } else { own }
    }
}

/// When an endpoint was polled last, by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastPoll {
    /// This long ago.
    Ago(Duration),
    /// The stored time is yet to come: the server's clock was set back. How long ago it was is unknown.
    InFuture,
}

impl LastPoll {
    /// The server's clock is only known to so much.
    const TOLERANCE_MS: u64 = 2_000;

    /// Polled at `polled_ms`, when the server's clock shows `server_ms`.
    pub fn new(polled_ms: u64, server_ms: u64) -> Self {
        if polled_ms > server_ms.saturating_add(Self::TOLERANCE_MS) {
            return Self::InFuture;
        }
        Self::Ago(Duration::from_millis(server_ms.saturating_sub(polled_ms)))
    }
}

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
    /// Whole rounds went by before there was a poller for it: they are skipped. Told once.
    pub skipped: bool,
}

/// Whether an endpoint has just become light or normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffChange {
    /// Polled at the light interval from now on, after this many failures.
    Light(u32),
    /// Back to its own interval.
    Normal,
}

/// When each held endpoint is polled next.
#[derive(Debug)]
pub struct PollSchedule {
    pace: PollIntervals,
    entries: FnvHashMap<EndpointId, Entry>,
    queue: BinaryHeap<Reverse<(Moment, u64, EndpointId)>>,
    /// Being polled, or on the way to a poller; outlives the entry when the lease is lost meanwhile.
    in_flight: HashSet<EndpointId, FnvBuildHasher>,
    tickets: u64,
}

#[derive(Debug)]
struct Entry {
    tenure: Tenure,
    session: Arc<Session>,
    due_at: Moment,
    /// The queue entry that counts; all others of this endpoint are stale.
    ticket: u64,
    failures: u32,
    told_late: bool,
}

impl PollSchedule {
    /// Nothing to poll yet.
    pub fn new(pace: PollIntervals) -> Self {
        Self {
            pace,
            entries: FnvHashMap::default(),
            queue: BinaryHeap::new(),
            in_flight: HashSet::default(),
            tickets: 0,
        }
    }

    /// Another pace from now on. What would be due later than its new interval allows is due within
    /// that, spread over it: a shorter interval must not make all endpoints due at one moment.
    pub fn set_pace(&mut self, pace: PollIntervals, now: Moment) {
        self.pace = pace;
        let mut sooner = Vec::new();
        for (endpoint, entry) in &mut self.entries {
            let interval = pace.interval_of(&entry.session, entry.failures);
            if entry.due_at > now + interval {
                let span = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
                entry.due_at = now + Duration::from_millis(spread(endpoint.as_str(), span));
                sooner.push((endpoint.clone(), entry.due_at));
            }
        }
        for (endpoint, due_at) in sooner {
            self.enqueue(&endpoint, due_at);
        }
    }

    /// The interval of `session` as long as it does well.
    pub fn interval(&self, session: &Session) -> Duration {
        session.interval.unwrap_or(self.pace.interval)
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
        let failures = self.entries.get(&endpoint).map_or(0, |it| it.failures);
        let entry = Entry { tenure, session, due_at, ticket: 0, failures, told_late: false };
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
        let pace = self.pace;
        let Some(entry) = self.entries.get_mut(&session.endpoint) else { return };
        let before = entry.session.interval.unwrap_or(pace.interval);
        let after = session.interval.unwrap_or(pace.interval);
        let moved = entry.session.address != session.address;
        entry.session = Arc::clone(session);
        if moved {
            entry.failures = 0;
        }
        if before != after || moved {
            entry.due_at = (entry.due_at.min(now + after)).max(now);
            let (endpoint, due_at) = (session.endpoint.clone(), entry.due_at);
            self.enqueue(&endpoint, due_at);
        }
    }

    /// Not before `at`; when it is due is another matter.
    fn enqueue(&mut self, endpoint: &EndpointId, at: Moment) {
        self.tickets += 1;
        let Some(entry) = self.entries.get_mut(endpoint) else { return };
        entry.ticket = self.tickets;
        if !self.in_flight.contains(endpoint) {
            self.queue.push(Reverse((at, self.tickets, endpoint.clone())));
        }
    }

    /// When the next endpoint is due.
    pub fn next_due(&mut self) -> Option<Moment> {
        while let Some(Reverse((due_at, ticket, endpoint))) = self.queue.peek() {
            if self.entries.get(endpoint).is_some_and(|it| it.ticket == *ticket) {
                return Some(*due_at);
            }
            self.queue.pop();
        }
        None
    }

    /// Takes up to `n_max` endpoints that are due, longest overdue first. Each stays in flight until
    /// [`Self::put_back`] or [`Self::done`].
    pub fn take_due(&mut self, now: Moment, n_max: usize) -> Vec<Due> {
        let mut due = Vec::new();
        while due.len() < n_max && self.next_due().is_some_and(|at| at <= now) {
            let Some(Reverse((_, _, endpoint))) = self.queue.pop() else { break };
            let Some(entry) = self.entries.get_mut(&endpoint) else { continue };
            let interval = entry.session.interval.unwrap_or(self.pace.interval);
            let late = now.since(entry.due_at) >= interval;
            let skipped = late && !std::mem::replace(&mut entry.told_late, late);
            let timeout = entry.session.timeout.unwrap_or(self.pace.timeout);
            let (tenure, session) = (entry.tenure.clone(), Arc::clone(&entry.session));
            due.push(Due {
                next_after_ok: self.pace.interval_of(&session, 0),
                next_after_failure: (self.pace)
                    .interval_of(&session, entry.failures.saturating_add(1)),
                tenure,
                session,
                timeout,
                due_at: entry.due_at,
                skipped,
            });
            self.in_flight.insert(endpoint);
        }
        due
    }

    /// It could not begin: not before `at`, but as long overdue as it is, and in its own rhythm.
    pub fn put_back(&mut self, endpoint: &EndpointId, at: Moment) {
        self.in_flight.remove(endpoint);
        if let Some(due_at) = self.entries.get(endpoint).map(|it| it.due_at) {
            self.enqueue(endpoint, due_at.max(at));
        }
    }

    /// It could not begin through no fault of its own: in front of all that is due later.
    pub fn put_back_first(&mut self, endpoint: &EndpointId) {
        self.put_back(endpoint, Moment::MIN);
    }

    /// A poll has ended. The next is due an interval after this one was, or at the first such moment
    /// that is not past.
    pub fn done(&mut self, due: &Due, ok: bool, now: Moment) -> Option<BackoffChange> {
        let endpoint = &due.tenure.endpoint;
        self.in_flight.remove(endpoint);
        let pace = self.pace;
        let entry = self.entries.get_mut(endpoint)?;
        let was_light = entry.failures >= pace.light_after;
        entry.failures = if ok { 0 } else { entry.failures.saturating_add(1) };
        let is_light = entry.failures >= pace.light_after;
        let interval = pace.interval_of(&entry.session, entry.failures);
        let failures = entry.failures;
        entry.told_late = false;
        // A tenure gained while the old poll still ran has its own due time.
        if entry.tenure == due.tenure {
            entry.due_at = after(due.due_at, interval, now);
        }
        let at = entry.due_at;
        self.enqueue(endpoint, at);
        match (was_light, is_light) {
            (false, true) => Some(BackoffChange::Light(failures)),
            (true, false) => Some(BackoffChange::Normal),
            _ => None,
        }
    }
}

/// The first moment of the rhythm `due_at + n × interval` that is not past.
fn after(due_at: Moment, interval: Duration, now: Moment) -> Moment {
    let next = due_at + interval;
    let late = now.since(next).as_nanos();
    if late == 0 {
        return next;
    }
    let missed = u32::try_from(late.div_ceil(interval.as_nanos().max(1))).unwrap_or(u32::MAX);
    next + interval.saturating_mul(missed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FenceToken;

    const PACE: PollIntervals = PollIntervals {
        interval: Duration::from_millis(1_000),
        timeout: Duration::from_secs(10),
        light_after: 3,
        light_interval: Duration::from_millis(5_000),
    };

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn session(id: &str) -> Arc<Session> {
        let json = format!(r#"{{"id":"{id}","address":"h:1"}}"#);
        Arc::new(Session::parse(id, json.as_bytes()).unwrap())
    }

    fn tenure(id: &str, fence: u64) -> Tenure {
        Tenure::new(EndpointId::parse(id).unwrap(), FenceToken(fence))
    }

    fn with_one(due_ms: u64) -> PollSchedule {
        let mut schedule = PollSchedule::new(PACE);
        schedule.gained(tenure("a", 1), session("a"), at(due_ms));
        schedule
    }

    #[test]
    fn an_endpoint_is_due_once_and_then_an_interval_later() {
        let mut schedule = with_one(100);
        assert!(schedule.take_due(at(99), 9).is_empty());
        let due = schedule.take_due(at(100), 9).remove(0);
        assert!(schedule.take_due(at(5_000), 9).is_empty(), "two polls of one endpoint");
        schedule.done(&due, true, at(150));
        assert_eq!(schedule.next_due(), Some(at(1_100)));
    }

    /// CONTRACT: missed rounds are skipped, not queued up.
    #[test]
    fn a_poll_that_takes_three_rounds_is_followed_by_the_next_round_not_by_the_missed_ones() {
        let mut schedule = with_one(100);
        let due = schedule.take_due(at(100), 9).remove(0);
        schedule.done(&due, true, at(3_250));
        assert_eq!(schedule.next_due(), Some(at(4_100)));
    }

    #[test]
    fn a_lease_lost_and_regained_during_a_poll_is_not_polled_twice_at_once() {
        let mut schedule = with_one(100);
        let due = schedule.take_due(at(100), 9).remove(0);
        schedule.ended(&tenure("a", 1));
        schedule.gained(tenure("a", 2), session("a"), at(200));
        assert!(schedule.take_due(at(300), 9).is_empty());
        schedule.done(&due, false, at(400));
        assert_eq!(schedule.take_due(at(400), 9)[0].tenure, tenure("a", 2));
    }

    #[test]
    fn a_late_word_about_an_old_tenure_does_not_end_the_new_one() {
        let mut schedule = with_one(100);
        schedule.gained(tenure("a", 2), session("a"), at(100));
        schedule.ended(&tenure("a", 1));
        assert_eq!(schedule.take_due(at(100), 9).len(), 1);
    }

    #[test]
    fn repeated_failures_make_an_endpoint_light_and_one_success_normal() {
        let mut schedule = with_one(0);
        let mut now = 0;
        for n in 1..=4 {
            let due = schedule.take_due(at(now), 9).remove(0);
            let tempo = schedule.done(&due, false, at(now));
            assert_eq!(tempo, (n == 3).then_some(BackoffChange::Light(3)), "failure {n}");
            now += if n < 3 { 1_000 } else { 5_000 };
            assert_eq!(schedule.next_due(), Some(at(now)));
        }
        let due = schedule.take_due(at(now), 9).remove(0);
        assert_eq!(schedule.done(&due, true, at(now)), Some(BackoffChange::Normal));
        assert_eq!(schedule.next_due(), Some(at(now + 1_000)));
    }

    /// CONTRACT: an endpoint taken over keeps its rhythm; first polls are spread over the interval.
    #[test]
    fn a_first_poll_keeps_the_rhythm_of_the_last_owner_or_is_spread() {
        let (schedule, kept) = (PollSchedule::new(PACE), Duration::from_secs(90));
        let due = |age: Option<u64>| {
            let last = age.map(|it| LastPoll::new(1_000_000 - it, 1_000_000));
            schedule.first_due(&session("a"), last, kept, at(10_000))
        };
        assert_eq!(due(Some(300)), at(10_700));
        assert_eq!(due(Some(40_000)), at(10_000));
        let spread: Vec<Moment> = (0..50)
            .map(|it| schedule.first_due(&session(&format!("s{it}")), None, kept, at(10_000)))
            .collect();
        assert!(spread.iter().all(|it| (at(10_000)..at(11_000)).contains(it)));
        assert!(spread.iter().filter(|it| **it < at(10_500)).count() > 10);
        assert!(spread.iter().filter(|it| **it >= at(10_500)).count() > 10);
        assert_eq!(due(Some(200_000)), due(None), "a forgotten rhythm is spread too");
    }

    /// The server's clock was set back: what was stored before is from the future.
    #[test]
    fn an_endpoint_with_a_result_from_the_future_is_polled_soon() {
        let (schedule, kept) = (PollSchedule::new(PACE), Duration::from_secs(90));
        let due = |polled_ms| {
            let last = Some(LastPoll::new(polled_ms, 1_000_000));
            schedule.first_due(&session("a"), last, kept, at(10_000))
        };
        assert!((at(10_000)..at(10_100)).contains(&due(4_600_000)));
        assert_eq!(due(1_000_900), at(11_000), "a clock that is known to some tenths of a second");
    }

    /// CONTRACT: missed rounds are skipped, not queued up; and one that waits for a poller keeps its turn.
    #[test]
    fn an_endpoint_that_was_put_back_keeps_its_rhythm_and_its_turn() {
        let mut schedule = with_one(100);
        schedule.gained(tenure("b", 1), session("b"), at(150));
        let due = schedule.take_due(at(100), 1).remove(0);
        schedule.put_back_first(&due.tenure.endpoint);
        let first = schedule.take_due(at(1_050), 1).remove(0);
        assert_eq!(
            (first.tenure.clone(), first.due_at, first.skipped),
            (tenure("a", 1), at(100), false)
        );
        schedule.put_back(&first.tenure.endpoint, at(2_350));
        let again =
            schedule.take_due(at(2_350), 9).into_iter().find(|it| it.tenure == tenure("a", 1));
        let again = again.unwrap();
        assert_eq!((again.due_at, again.skipped), (at(100), true));
        schedule.put_back_first(&again.tenure.endpoint);
        let again = schedule.take_due(at(2_350), 1).remove(0);
        assert_eq!((again.tenure.clone(), again.skipped), (tenure("a", 1), false), "told once");
        schedule.done(&again, true, at(2_400));
        assert_eq!(schedule.next_due(), Some(at(3_100)));
    }

    #[test]
    fn the_longest_overdue_comes_first() {
        let mut schedule = with_one(300);
        schedule.gained(tenure("b", 1), session("b"), at(100));
        schedule.gained(tenure("c", 1), session("c"), at(200));
        let order: Vec<String> = schedule
            .take_due(at(1_000), 2)
            .iter()
            .map(|it| it.tenure.endpoint.to_string())
            .collect();
        assert_eq!(order, ["b", "c"]);
    }

    #[test]
    fn a_shorter_interval_takes_effect_without_waiting_for_the_old_one() {
        let mut schedule = with_one(60_000);
        let json = br#"{"id":"a","address":"h:1","intervalMs":200}"#;
        schedule.changed(&Arc::new(Session::parse("a", json).unwrap()), at(1_000));
        assert_eq!(schedule.next_due(), Some(at(1_200)));
    }

    #[test]
    fn a_shorter_pace_holds_at_once_and_is_spread_and_a_longer_one_from_the_next_poll_on() {
        let now = at(100);
        let mut schedule = PollSchedule::new(PACE);
        for n in 0..50 {
            let id = format!("e{n}");
            schedule.gained(tenure(&id, 1), session(&id), now + PACE.interval);
        }
        let short = Duration::from_millis(500);
        schedule.set_pace(PollIntervals { interval: short, ..PACE }, now);
        let first_half = schedule.take_due(now + short / 2, 100).len();
        assert!((10..=40).contains(&first_half), "{first_half} of 50 in the first half");
        schedule.set_pace(PollIntervals { interval: Duration::from_secs(3_600), ..PACE }, now);
        assert_eq!(schedule.take_due(now + short, 100).len(), 50 - first_half);
    }

    /// What is told with a result (`interval_ms`) is when the next poll is due, also when it becomes light.
    #[test]
    fn the_next_poll_is_due_when_it_was_told() {
        let mut schedule = with_one(0);
        let mut now = at(0);
        for (ok, interval) in [
            (true, 1_000),
            (false, 1_000),
            (false, 1_000),
            (false, 5_000),
            (false, 5_000),
            (true, 1_000),
        ] {
            let due = schedule.take_due(now, 1).remove(0);
            let told = if ok { due.next_after_ok } else { due.next_after_failure };
            assert_eq!(told, Duration::from_millis(interval));
            schedule.done(&due, ok, now);
            assert_eq!(schedule.next_due(), Some(now + told));
            now = now + told;
        }
    }
}
