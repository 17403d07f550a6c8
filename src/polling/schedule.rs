//! Which endpoint is due? Keeps each endpoint's rhythm, and never has two polls of one endpoint at a time. Pure.
//!
//! Polls that were missed are skipped, not queued up. Slow endpoints wait in a queue of their own and start only while the
//! slow lane has room (`slow_lane.rs`), so endpoints that answer never wait for them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::config::Config;
use crate::model::spread;
use crate::model::{EndpointId, Session, Tenure};
use crate::polling::slow_lane::{Network, SLOW_AFTER, SlowLane};

/// A light endpoint is polled at least this many times more seldom than its own interval says, whatever that is …
const LIGHT_FIRST: u32 = 2;
/// … and this many times from its second light poll on.
const LIGHT_LATER: u32 = 4;
/// Jitter of light polls: up to one in this many of the interval, so that endpoints that failed together spread.
const LIGHT_JITTER: u32 = 10;
/// When a light endpoint of a network has recovered, the others of that network are polled soon; not more often than this.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// Intervals and what happens to an endpoint that keeps failing.
#[derive(Clone, Copy, Debug)]
pub struct PollIntervals {
    /// Between two polls, unless the session has its own.
    pub interval: Duration,
    /// For one poll, unless the session has its own.
    pub timeout: Duration,
    /// This many failures in a row make an endpoint light.
    pub light_after: u32,
    /// Between two polls of a light endpoint, at least.
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

    /// From one poll of `session` to the next, after this many failures in a row. A light endpoint is polled at the light
    /// interval or at a multiple of its own, whichever is longer, and up to a tenth later.
    fn interval_of(&self, session: &Session, failures: u32) -> Duration {
        let own = session.interval.unwrap_or(self.interval);
        let Some(light_polls) = failures.checked_sub(self.light_after) else { return own };
        let multiple = if light_polls == 0 { LIGHT_FIRST } else { LIGHT_LATER };
        let light = self.light_interval.max(own.saturating_mul(multiple));
        let jitter = u64::try_from((light / LIGHT_JITTER).as_millis()).unwrap_or(u64::MAX);
        let seed = format!("{} {failures}", session.endpoint);
        light + Duration::from_millis(spread(&seed, jitter.max(1)))
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
    /// Why at least one poll of it was skipped before this one, if one was. Told once.
    pub skipped: Option<&'static str>,
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
    /// Endpoints that answer, and those that were not polled yet.
    quick: Queue,
    /// Slow endpoints; and, while the slow lane is full, endpoints that were not polled yet.
    slow: Queue,
    /// Slow endpoints that are due while their network has as many slow polls as it may have, in the order of their turns.
    parked: FnvHashMap<Network, VecDeque<Queued>>,
    /// Polls on the way to a poller or running; they outlive the entry when the lease is lost meanwhile.
    running: SlowLane,
    /// Networks of which a light endpoint has just recovered.
    recovered: FnvHashMap<Network, Moment>,
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
}

/// How the last poll of an endpoint by this instance went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speed {
    /// There was none.
    Untried,
    /// It ended within [`SLOW_AFTER`] and before its timeout.
    Quick,
    /// It timed out or took longer.
    Slow,
}

impl PollSchedule {
    /// Nothing to poll yet, with at most `workers` polls at a time.
    pub fn new(pace: PollIntervals, workers: usize) -> Self {
        Self {
            pace,
            entries: FnvHashMap::default(),
            quick: BinaryHeap::new(),
            slow: BinaryHeap::new(),
            parked: FnvHashMap::default(),
            running: SlowLane::new(workers),
            recovered: FnvHashMap::default(),
            tickets: 0,
        }
    }

    /// At most this many polls run at a time from now on.
    pub fn set_workers(&mut self, workers: usize) {
        self.running.resize(workers);
    }

    /// Another pace from now on. What would be due later than its new interval allows is due within
    /// that, spread over it: a shorter interval must not make all endpoints due at one moment.
    pub fn set_pace(&mut self, pace: PollIntervals, now: Moment) {
        self.pace = pace;
        self.bring_forward(now, |it| Some(pace.interval_of(&it.session, it.failures)));
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
        let pace = self.pace;
        let Some(entry) = self.entries.get_mut(&session.endpoint) else { return };
        let before = entry.session.interval.unwrap_or(pace.interval);
        let after = session.interval.unwrap_or(pace.interval);
        let moved = entry.session.address != session.address;
        entry.session = Arc::clone(session);
        if moved {
            entry.failures = 0;
            entry.speed = Speed::Untried;
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
            let queue = if entry.speed == Speed::Slow { &mut self.slow } else { &mut self.quick };
            queue.push(Reverse((at, self.tickets, endpoint.clone())));
        }
    }

    /// When the next endpoint is due that may start.
    pub fn next_due(&mut self) -> Option<Moment> {
        let quick = next_in(&mut self.quick, &self.entries);
        if !self.running.has_room() {
            return quick;
        }
        let slow = next_in(&mut self.slow, &self.entries);
        quick.into_iter().chain(slow).min()
    }

    /// Takes up to `n_max` endpoints that are due, longest overdue first. Each counts as running until
    /// [`Self::put_back`] or [`Self::done`].
    pub fn take_due(&mut self, now: Moment, n_max: usize) -> Vec<Due> {
        self.running.note_time(now);
        let mut due = Vec::new();
        while due.len() < n_max
            && let Some((queued, is_slow)) = self.pop_due(now)
        {
            let Some(entry) = self.entries.get_mut(&queued.2) else { continue };
            let is_parked = is_slow && !self.running.has_room_for(entry.network);
            if is_parked {
                self.parked.entry(entry.network).or_default().push_back(queued);
                continue;
            }
            if !is_slow && entry.speed == Speed::Untried && !self.running.has_room() {
                // It may be one more that hangs.
                self.slow.push(Reverse(queued));
                continue;
            }
            let endpoint = queued.2;
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
                skipped: skipped.then_some(if is_slow { "slow" } else { "backlog" }),
            });
            self.running.begin(&endpoint, entry.network, is_slow, now);
        }
        due
    }

    /// The longest overdue endpoint that may start, and whether it comes from the queue of slow endpoints.
    fn pop_due(&mut self, now: Moment) -> Option<(Queued, bool)> {
        let quick = next_in(&mut self.quick, &self.entries).filter(|at| *at <= now);
        let slow = next_in(&mut self.slow, &self.entries).filter(|at| *at <= now);
        let slow = slow.filter(|_| self.running.has_room());
        let is_slow = match (quick, slow) {
            (None, None) => return None,
            (Some(quick), Some(slow)) => slow < quick,
            (quick, _) => quick.is_none(),
        };
        let queue = if is_slow { &mut self.slow } else { &mut self.quick };
        queue.pop().map(|it| (it.0, is_slow))
    }

    /// The poll of this endpoint does not run any more. If it was slow, the next one of its network has its turn.
    fn end_running(&mut self, endpoint: &EndpointId) {
        let Some((network, left)) = self.running.end(endpoint) else { return };
        let Some(parked) = self.parked.get_mut(&network) else { return };
        // One may be stale. Where no poll of the network is left to give the next one its turn, all have it.
        let count = if left == 0 { parked.len() } else { 1 };
        self.slow.extend(parked.drain(..count.min(parked.len())).map(Reverse));
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

    /// It could not begin through no fault of its own: in front of all that is due later.
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
    ) -> Option<BackoffChange> {
        let endpoint = &due.tenure.endpoint;
        self.end_running(endpoint);
        let pace = self.pace;
        let entry = self.entries.get_mut(endpoint)?;
        let is_slow = took > SLOW_AFTER || took >= due.timeout;
        entry.speed = if is_slow { Speed::Slow } else { Speed::Quick };
        let network = entry.network;
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
            (true, false) => {
                self.network_recovered(network, now);
                Some(BackoffChange::Normal)
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
        let own = self.pace.interval;
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

    const QUICK: Duration = Duration::from_millis(50);

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
        let mut schedule = PollSchedule::new(PACE, 64);
        schedule.gained(tenure("a", 1), session("a"), at(due_ms));
        schedule
    }

    #[test]
    fn an_endpoint_is_due_once_and_then_an_interval_later() {
        let mut schedule = with_one(100);
        assert!(schedule.take_due(at(99), 9).is_empty());
        let due = schedule.take_due(at(100), 9).remove(0);
        assert!(schedule.take_due(at(5_000), 9).is_empty(), "two polls of one endpoint");
        schedule.done(&due, true, QUICK, at(150));
        assert_eq!(schedule.next_due(), Some(at(1_100)));
    }

    /// CONTRACT: missed rounds are skipped, not queued up.
    #[test]
    fn a_poll_that_takes_three_rounds_is_followed_by_the_next_round_not_by_the_missed_ones() {
        let mut schedule = with_one(100);
        let due = schedule.take_due(at(100), 9).remove(0);
        schedule.done(&due, true, QUICK, at(3_250));
        assert_eq!(schedule.next_due(), Some(at(4_100)));
    }

    #[test]
    fn a_lease_lost_and_regained_during_a_poll_is_not_polled_twice_at_once() {
        let mut schedule = with_one(100);
        let due = schedule.take_due(at(100), 9).remove(0);
        schedule.ended(&tenure("a", 1));
        schedule.gained(tenure("a", 2), session("a"), at(200));
        assert!(schedule.take_due(at(300), 9).is_empty());
        schedule.done(&due, false, QUICK, at(400));
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
        let mut now = at(0);
        for n in 1..=4 {
            let due = schedule.take_due(now, 9).remove(0);
            let change = schedule.done(&due, false, QUICK, now);
            assert_eq!(change, (n == 3).then_some(BackoffChange::Light(3)), "failure {n}");
            let next = schedule.next_due().unwrap();
            let pause = if n < 3 { 1_000..=1_000 } else { 5_000..=5_500 };
            assert!(pause.contains(&next.since(now).as_millis()), "failure {n}: {next:?}");
            now = next;
        }
        let due = schedule.take_due(now, 9).remove(0);
        assert_eq!(schedule.done(&due, true, QUICK, now), Some(BackoffChange::Normal));
        assert_eq!(schedule.next_due(), Some(now + PACE.interval));
    }

    /// Issue 19: light polling helps also where the own interval is longer than the light one, and endpoints that failed
    /// together do not stay together.
    #[test]
    fn a_light_endpoint_is_polled_more_seldom_whatever_its_interval_is() {
        let mut pauses = Vec::new();
        for n in 0..20 {
            let id = format!("e{n}");
            let json = format!(r#"{{"id":"{id}","address":"h:1","intervalMs":60000}}"#);
            let session = Session::parse(&id, json.as_bytes()).unwrap();
            let pause = |failures| PACE.interval_of(&session, failures).as_millis();
            assert_eq!((pause(0), pause(2)), (60_000, 60_000));
            assert!((120_000..=132_000).contains(&pause(3)), "{}", pause(3));
            assert!((240_000..=264_000).contains(&pause(4)), "{}", pause(4));
            assert!((240_000..=264_000).contains(&pause(4_000)));
            pauses.push(pause(4));
        }
        pauses.sort_unstable();
        assert!(pauses[19] - pauses[0] > 10_000, "{pauses:?}");
    }

    /// Endpoints that are due now, each with this host.
    fn with_hosts(workers: usize, hosts: &[String]) -> PollSchedule {
        let mut schedule = PollSchedule::new(PACE, workers);
        for (n, host) in hosts.iter().enumerate() {
            let id = format!("e{n:03}");
            let json = format!(r#"{{"id":"{id}","address":"{host}:80"}}"#);
            let session = Arc::new(Session::parse(&id, json.as_bytes()).unwrap());
            schedule.gained(tenure(&id, 1), session, at(n as u64));
        }
        schedule
    }

    fn ids(due: &[Due]) -> Vec<String> {
        due.iter().map(|it| it.tenure.endpoint.to_string()).collect()
    }

    /// Every endpoint is polled once; those of `hanging` time out.
    fn polled_once(schedule: &mut PollSchedule, hanging: impl Fn(&str) -> bool, now: Moment) {
        while let Some(due) = schedule.take_due(now, 1).pop() {
            let hangs = hanging(due.tenure.endpoint.as_str());
            let took = if hangs { PACE.timeout } else { QUICK };
            schedule.done(&due, !hangs, took, now);
        }
    }

    /// Issue 19: the rest of the pool is for endpoints that answer.
    #[test]
    fn slow_endpoints_have_half_of_the_pool_and_come_in_their_turn() {
        let hosts: Vec<String> = (0..40).map(|it| format!("h{it}")).collect();
        let mut schedule = with_hosts(16, &hosts);
        let hangs = |id: &str| id < "e030";
        polled_once(&mut schedule, hangs, at(100));
        let mut now = at(2_000);
        let mut turns: Vec<String> = Vec::new();
        for _ in 0..6 {
            let due = schedule.take_due(now, 100);
            let (slow, quick): (Vec<Due>, Vec<Due>) =
                due.into_iter().partition(|it| hangs(it.tenure.endpoint.as_str()));
            assert_eq!((slow.len(), quick.len()), (8, 10), "at {now:?}");
            turns.extend(ids(&slow));
            // No slow one more until one ends; those that answer go on.
            for round in 1..=10 {
                let due = schedule.take_due(now + PACE.interval * round, 100);
                assert!(round > 1 || due.is_empty(), "{:?}", ids(&due));
                quick.iter().filter(|_| round == 1).for_each(|it| {
                    schedule.done(it, true, QUICK, now);
                });
                due.iter().for_each(|it| {
                    assert!(!hangs(it.tenure.endpoint.as_str()));
                    schedule.done(it, true, QUICK, now + PACE.interval * round);
                });
            }
            now = now + PACE.timeout + PACE.interval;
            slow.iter().for_each(|it| {
                schedule.done(it, false, PACE.timeout, now);
            });
        }
        let first: std::collections::BTreeSet<&String> = turns.iter().take(30).collect();
        assert_eq!(first.len(), 30, "each has its turn: {turns:?}");
    }

    /// Issue 19: one dead network cannot fill the share of the slow endpoints.
    #[test]
    fn slow_endpoints_of_one_network_have_a_quarter_of_the_share_and_come_in_their_turn() {
        let hosts: Vec<String> = (0..20)
            .map(|it| if it < 12 { format!("10.1.1.{it}") } else { format!("h{it}") })
            .collect();
        let mut schedule = with_hosts(32, &hosts);
        polled_once(&mut schedule, |_| true, at(100));
        let now = at(2_000);
        let due = schedule.take_due(now, 100);
        let mut expected: Vec<String> =
            (0..4).chain(12..20).map(|it| format!("e{it:03}")).collect();
        let mut taken = ids(&due);
        taken.sort();
        assert_eq!(taken, expected, "4 of 16 for the network, and all others");
        for n in 4..12 {
            schedule.done(&due[n - 4], false, PACE.timeout, now);
            if n - 4 < 4 {
                let next = schedule.take_due(now, 100);
                expected = vec![format!("e{n:03}")];
                assert_eq!(ids(&next), expected, "the one that waited longest");
                assert_eq!(next[0].skipped, None);
            }
        }
    }

    /// The endpoint on whose poll the others of its network wait may be lost meanwhile.
    #[test]
    fn a_network_whose_last_poll_has_ended_keeps_nobody_waiting() {
        let hosts = vec!["10.1.1.1".to_owned(); 9];
        let mut schedule = with_hosts(8, &hosts);
        polled_once(&mut schedule, |_| true, at(100));
        let now = at(2_000);
        let running = schedule.take_due(now, 100).remove(0);
        assert!(schedule.take_due(now, 100).is_empty(), "one of four for this network");
        for n in 1..9 {
            if n < 8 {
                schedule.ended(&tenure(&format!("e{n:03}"), 1));
            }
        }
        schedule.done(&running, false, PACE.timeout, now);
        assert_eq!(ids(&schedule.take_due(now, 100)), ["e008"]);
    }

    #[test]
    fn an_endpoint_that_was_not_polled_yet_waits_while_slow_polls_fill_their_share() {
        let hosts: Vec<String> = (0..4).map(|it| format!("h{it}")).collect();
        let mut schedule = with_hosts(2, &hosts[..1]);
        let hung = schedule.take_due(at(0), 9).remove(0);
        let json = br#"{"id":"new","address":"other:80"}"#;
        let session = Arc::new(Session::parse("new", json).unwrap());
        schedule.gained(tenure("new", 1), session, at(1_000));
        let later = at(0) + SLOW_AFTER + QUICK;
        assert!(schedule.take_due(later, 9).is_empty(), "it may hang, too");
        schedule.done(&hung, false, PACE.timeout, later);
        assert_eq!(ids(&schedule.take_due(later, 9)), ["new"]);
    }

    /// Issue 19: endpoints that recover are back in the fast lane after one good poll.
    #[test]
    fn a_network_that_recovers_is_polled_within_its_interval_and_not_at_the_light_one() {
        let hosts: Vec<String> =
            (0..6).map(|it| if it < 5 { "10.1.1.1" } else { "10.9.9.9" }.to_owned()).collect();
        let mut schedule = with_hosts(64, &hosts);
        let mut now = at(0);
        for _ in 0..PACE.light_after {
            now = now + PACE.timeout;
            polled_once(&mut schedule, |_| true, now);
        }
        now = schedule.next_due().unwrap();
        let first = schedule.take_due(now, 1).remove(0);
        let change = schedule.done(&first, true, QUICK, now);
        assert_eq!(change, Some(BackoffChange::Normal));
        let soon = ids(&schedule.take_due(now + PACE.interval, 100));
        assert!((4..=6).contains(&soon.len()), "{soon:?}");
        assert!((0..5).all(|it| soon.contains(&format!("e{it:03}"))), "{soon:?}");
    }

    /// CONTRACT: an endpoint taken over keeps its rhythm; first polls are spread over the interval.
    #[test]
    fn a_first_poll_keeps_the_rhythm_of_the_last_owner_or_is_spread() {
        let (schedule, kept) = (PollSchedule::new(PACE, 64), Duration::from_secs(90));
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
        let (schedule, kept) = (PollSchedule::new(PACE, 64), Duration::from_secs(90));
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
            (tenure("a", 1), at(100), None)
        );
        schedule.put_back(&first.tenure.endpoint, at(2_350));
        let again =
            schedule.take_due(at(2_350), 9).into_iter().find(|it| it.tenure == tenure("a", 1));
        let again = again.unwrap();
        assert_eq!((again.due_at, again.skipped), (at(100), Some("backlog")));
        schedule.put_back_first(&again.tenure.endpoint);
        let again = schedule.take_due(at(2_350), 1).remove(0);
        assert_eq!((again.tenure.clone(), again.skipped), (tenure("a", 1), None), "told once");
        schedule.done(&again, true, QUICK, at(2_400));
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
        let mut schedule = PollSchedule::new(PACE, 64);
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
            let jitter = if interval == 5_000 { 500 } else { 0 };
            assert!((interval..=interval + jitter).contains(&told.as_millis()), "{told:?}");
            schedule.done(&due, ok, QUICK, now);
            assert_eq!(schedule.next_due(), Some(now + told));
            now = now + told;
        }
    }
}
