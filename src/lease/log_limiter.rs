//! Which lines of a flood are logged? The first of a kind by name, the others as a count.
//!
//! Events are of one kind if they have the same name and the same reason or error. A burst of a kind begins with its first
//! event. Up to `NAMED_MAX` (10) events within `BURST` (1 s) are logged by name. If there are more, the others go to
//! `debug`, and one line has their number: a second after the burst began, and after that at growing intervals of up to
//! `QUIET` (1 minute). A burst with more than `NAMED_MAX` events ends when no event of its kind came for `QUIET`.
//!
//! `poll.skipped` can come many times a second for hours, so only its first event is logged by name, and each minute has
//! one line.
//!
//! Limits only the log: history and metrics get each event. Reads no clock and writes no line: `Reporter` does.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::event::{Event, Repeated, Worst};
use crate::model::{EndpointId, Tenure};

/// This many events of a kind are logged by name.
const NAMED_MAX: usize = 10;
/// Time in which more events than `NAMED_MAX` are a flood.
const BURST: Duration = Duration::from_secs(1);
/// Longest interval between two lines with counts, and the silence that ends a flood.
const QUIET: Duration = Duration::from_secs(60);
/// A line with a count waits this long for further events of the same answer.
const SETTLE: Duration = Duration::from_secs(1);
/// Kinds that are told apart at one time. Beyond these, events are counted by their name alone.
const KINDS_MAX: usize = 64;
/// A line names this many of the worst endpoints.
const WORST_MAX: usize = 3;

/// How an event is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// At its own level.
    ByName,
    /// At `debug`; a later line has the count.
    Counted,
}

/// Renewals of a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RenewalCounts {
    /// Renewed or reclaimed.
    pub(crate) renewed: usize,
    /// Lost, for whatever reason.
    pub(crate) lost: usize,
    /// Became uncertain.
    pub(crate) uncertain: usize,
}

/// What was logged lately, by one instance.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    bursts: Mutex<BTreeMap<Kind, Burst>>,
    /// The renewals since the last `renewal.round`, and when the first of them was counted.
    renewals: Mutex<Option<(Moment, RenewalCounts)>>,
}

/// Events that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    name: &'static str,
    cause: Option<(&'static str, String)>,
}

/// The endpoint of an event that can come in floods, and what such events have in common.
struct Limited<'a> {
    endpoint: &'a EndpointId,
    cause: Option<(&'static str, String)>,
}

/// One mechanism for all of these: an event about a lease or an endpoint that is logged at `info` or above. Not limited
/// here are `poll.deferred`, `session.invalid` and `session.odd`, which their senders limit, and `poll.panicked`, which is
/// an error of the program.
fn limited<'a>(event: &Event<'a>) -> Option<Limited<'a>> {
    let (endpoint, cause) = match event {
        Event::LeaseAcquired { endpoint, reason, .. } => (*endpoint, Some(("reason", *reason))),
        Event::PollSkipped { endpoint, reason } => (*endpoint, Some(("reason", *reason))),
        Event::LeaseLost { tenure: Tenure { endpoint, .. }, reason, .. }
        | Event::LeaseReleased { tenure: Tenure { endpoint, .. }, reason, .. } => {
            (endpoint, Some(("reason", *reason)))
        }
        Event::LeaseFailed { endpoint, error }
        | Event::LeaseUncertain { endpoint, error }
        | Event::HookFailed { endpoint, error, .. }
        | Event::PollUnpublished { endpoint, error, .. } => {
            return Some(Limited { endpoint, cause: Some(("error", error.to_string())) });
        }
        Event::LeaseRefused { endpoint, .. }
        | Event::LeaseReclaimed { endpoint, .. }
        | Event::PollFenced { endpoint, .. }
        | Event::PollAborted { endpoint, .. }
        | Event::EndpointLight { endpoint, .. }
        | Event::EndpointNormal { endpoint }
        | Event::EndpointCertExpiring { endpoint, .. }
        | Event::EndpointCertRenewed { endpoint, .. } => (*endpoint, None),
        // Not by error: each address has an error of its own, and one outage is one flood.
        Event::EndpointFailing(it) | Event::EndpointRecovered(it) => (&it.tenure.endpoint, None),
        _ => return None,
    };
    let cause = cause.map(|(key, value)| (key, value.to_owned()));
    Some(Limited { endpoint, cause })
}

/// Events of one kind, since there was none of it.
#[derive(Debug)]
struct Burst {
    level: log::Level,
    named_max: usize,
    /// Ends here unless more than `named_max` events come before.
    flood_until: Moment,
    named: usize,
    /// More than `named_max` events came.
    is_flood: bool,
    last_at: Moment,
    /// Events since the last line with a count.
    untold: usize,
    /// When the next line with a count is due.
    tell_at: Moment,
    /// From one line with a count to the next.
    interval: Duration,
    /// Events since the last line with a count, by endpoint.
    by_endpoint: Option<BTreeMap<EndpointId, usize>>,
}

impl Burst {
    fn new(event: &Event<'_>, now: Moment) -> Self {
        let is_skip = matches!(event, Event::PollSkipped { .. });
        let (named_max, interval) = if is_skip { (1, QUIET) } else { (NAMED_MAX, BURST) };
        Self {
            level: event.level(),
            named_max,
            flood_until: now + interval,
            named: 0,
            is_flood: false,
            last_at: now,
            untold: 0,
            tell_at: now + interval,
            interval,
            by_endpoint: is_skip.then(BTreeMap::new),
        }
    }

    fn is_over(&self, now: Moment) -> bool {
        let ends_at = if self.is_flood { self.last_at + QUIET } else { self.flood_until };
        self.untold == 0 && ends_at <= now
    }

    fn admit(&mut self, endpoint: &EndpointId, now: Moment) -> Admission {
        self.last_at = now;
        if !self.is_flood && self.named < self.named_max {
            self.named += 1;
            return Admission::ByName;
        }
        if self.is_flood && self.untold == 0 {
            self.tell_at = self.tell_at.max(now + SETTLE);
        }
        self.is_flood = true;
        self.untold += 1;
        if let Some(counts) = &mut self.by_endpoint {
            *counts.entry(endpoint.clone()).or_default() += 1;
        }
        Admission::Counted
    }

    /// The line for what was not told yet; the next one comes after twice the interval.
    fn tell(&mut self, kind: &Kind, now: Moment) -> Repeated {
        let worst = self.by_endpoint.as_mut().map(|it| worst(std::mem::take(it)));
        let count = std::mem::take(&mut self.untold);
        self.interval = (2 * self.interval).min(QUIET);
        self.tell_at = now + self.interval;
        let Kind { name, cause } = kind.clone();
        Repeated { name, level: self.level, cause, count, worst }
    }
}

fn worst(counts: BTreeMap<EndpointId, usize>) -> Worst {
    let endpoints = counts.len();
    let mut first: Vec<(EndpointId, usize)> = counts.into_iter().collect();
    // Stable: endpoints with the same count stay in the order of their names.
    first.sort_by_key(|it| std::cmp::Reverse(it.1));
    first.truncate(WORST_MAX);
    Worst { endpoints, first }
}

impl LogLimiter {
    /// How to log `event`.
    pub(crate) fn admit(&self, event: &Event<'_>, now: Moment) -> Admission {
        let Some(Limited { endpoint, cause }) = limited(event) else { return Admission::ByName };
        let mut bursts = self.bursts.lock();
        let mut kind = Kind { name: event.name(), cause };
        if bursts.len() >= KINDS_MAX && !bursts.contains_key(&kind) {
            kind.cause = None;
        }
        let burst = bursts.entry(kind).or_insert_with(|| Burst::new(event, now));
        if burst.is_over(now) {
            *burst = Burst::new(event, now);
        }
        burst.admit(endpoint, now)
    }

    /// The lines with counts that are due at `now`. Forgets bursts that are over.
    pub(crate) fn due(&self, now: Moment) -> Vec<Repeated> {
        let mut bursts = self.bursts.lock();
        let due = bursts.iter_mut().filter(|it| it.1.untold > 0 && it.1.tell_at <= now);
        let lines = due.map(|(kind, burst)| burst.tell(kind, now)).collect();
        bursts.retain(|_, burst| !burst.is_over(now));
        lines
    }

    /// The lines with counts that are not told yet, due or not: for the end of the instance.
    pub(crate) fn rest(&self, now: Moment) -> Vec<Repeated> {
        let mut bursts = self.bursts.lock();
        let untold = bursts.iter_mut().filter(|it| it.1.untold > 0);
        untold.map(|(kind, burst)| burst.tell(kind, now)).collect()
    }

    /// Counts a round of renewals for the next `renewal.round`.
    pub(crate) fn count_renewals(&self, renewed: usize, uncertain: usize, now: Moment) {
        if renewed + uncertain > 0 {
            let mut renewals = self.renewals.lock();
            let counts = &mut renewals.get_or_insert((now, RenewalCounts::default())).1;
            counts.renewed += renewed;
            counts.uncertain += uncertain;
        }
    }

    /// Counts leases that were lost, if renewals are counted at all.
    pub(crate) fn count_lost(&self, lost: usize) {
        if let Some((_, counts)) = &mut *self.renewals.lock() {
            counts.lost += lost;
        }
    }

    /// The counts of a minute that is over.
    pub(crate) fn renewals_due(&self, now: Moment) -> Option<RenewalCounts> {
        let is_due = |it: &mut (Moment, RenewalCounts)| now.since(it.0) >= QUIET;
        self.renewals.lock().take_if(is_due).map(|it| it.1)
    }

    /// The counts of the minute that has begun: for the end of the instance.
    pub(crate) fn renewals_rest(&self) -> Option<RenewalCounts> {
        self.renewals.lock().take().map(|it| it.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::model::{Change, FenceToken, InstanceId, VerdictState};

    const SECOND: Duration = Duration::from_secs(1);

    struct Bench {
        limiter: LogLimiter,
        clock: ManualClock,
    }

    impl Bench {
        fn new() -> Self {
            Self { limiter: LogLimiter::default(), clock: ManualClock::at(1_000_000_000_000) }
        }

        fn lost(&self, n: usize, reason: &'static str) -> Admission {
            let endpoint = EndpointId::parse(&format!("e{n}")).unwrap();
            let tenure = &Tenure { endpoint, fence: FenceToken(1) };
            let event = Event::LeaseLost { tenure, reason, owner: None };
            self.limiter.admit(&event, self.clock.now())
        }

        fn uncertain(&self, error: &str) -> Admission {
            let endpoint = &EndpointId::parse("e").unwrap();
            let event = Event::LeaseUncertain { endpoint, error: &error };
            self.limiter.admit(&event, self.clock.now())
        }

        fn skipped(&self, endpoint: &str) -> Admission {
            let endpoint = &EndpointId::parse(endpoint).unwrap();
            let event = Event::PollSkipped { endpoint, reason: "backlog" };
            self.limiter.admit(&event, self.clock.now())
        }

        /// How many of `n` losses are logged by name.
        fn named(&self, n: usize) -> usize {
            (0..n).filter(|it| self.lost(*it, "expired") == Admission::ByName).count()
        }

        /// Lines after `duration`, in steps of the thread that asks for them.
        fn pass(&self, duration: Duration) -> Vec<String> {
            let until = self.clock.now() + duration;
            let mut lines = Vec::new();
            while self.clock.now() < until {
                self.clock.pass(Duration::from_millis(250));
                let due = self.limiter.due(self.clock.now());
                lines.extend(due.iter().map(|it| format!("{} {}{it}", it.level, it.name)));
            }
            lines
        }
    }

    #[test]
    fn of_a_flood_ten_are_named_and_the_others_are_one_line_a_second_later() {
        let bench = Bench::new();
        assert_eq!(bench.named(667), 10);
        assert_eq!(bench.pass(SECOND), ["WARN lease.lost reason=expired others=657"]);
        assert_eq!(bench.pass(10 * QUIET), [""; 0]);
        assert_eq!(bench.named(11), 10, "another flood, much later");
    }

    #[test]
    fn ten_a_second_are_never_a_flood() {
        let bench = Bench::new();
        for _ in 0..100 {
            assert_eq!(bench.named(10), 10);
            assert_eq!(bench.pass(SECOND), [""; 0]);
        }
    }

    #[test]
    fn kinds_and_reasons_are_counted_apart() {
        let bench = Bench::new();
        bench.named(12);
        assert_eq!(bench.lost(1, "taken"), Admission::ByName);
        for _ in 0..13 {
            bench.uncertain("no answer within 2 s");
        }
        let told = [
            "WARN lease.lost reason=expired others=2",
            "WARN lease.uncertain error=\"no answer within 2 s\" others=3",
        ];
        assert_eq!(bench.pass(SECOND), told);
    }

    #[test]
    fn a_flood_that_goes_on_is_told_less_and_less_often_and_every_event_is_counted() {
        let bench = Bench::new();
        let (mut named, mut lines) = (0, Vec::new());
        for _ in 0..600 {
            named += bench.named(20);
            lines.extend(bench.pass(SECOND));
        }
        lines.extend(bench.pass(QUIET));
        assert_eq!(named, 10);
        assert!(lines.len() <= 6 + 600 / 60 + 1, "{lines:#?}");
        let count = |it: &String| it.rsplit_once("others=").unwrap().1.parse::<usize>().unwrap();
        assert_eq!(lines.iter().map(count).sum::<usize>(), 600 * 20 - 10);
    }

    #[test]
    fn in_a_flood_the_leases_of_one_answer_are_in_one_line() {
        let bench = Bench::new();
        bench.named(20);
        assert_eq!(bench.pass(30 * SECOND).len(), 1);
        assert_eq!(bench.lost(1, "expired"), Admission::Counted);
        assert_eq!(bench.limiter.due(bench.clock.now()), [], "it waits for the rest of the answer");
        bench.named(4);
        assert_eq!(bench.pass(SECOND), ["WARN lease.lost reason=expired others=5"]);
    }

    #[test]
    fn a_skipped_poll_is_said_at_once_after_a_quiet_minute_and_then_one_line_a_minute() {
        let bench = Bench::new();
        for round in 0..2 {
            assert_eq!(bench.skipped("a"), Admission::ByName, "round {round}");
            let mut lines = Vec::new();
            for second in 0..180 {
                bench.skipped("c");
                bench.skipped("b");
                if second % 2 == 0 {
                    bench.skipped("d");
                    bench.skipped("a");
                }
                lines.extend(bench.pass(SECOND));
            }
            let line =
                "WARN poll.skipped reason=backlog count=180 endpoints=4 worst=b:60,c:60,a:30";
            assert_eq!(lines, [line; 3]);
            assert_eq!(bench.pass(2 * QUIET), [""; 0]);
        }
    }

    #[test]
    fn what_is_not_told_at_the_end_is_told_then() {
        let bench = Bench::new();
        bench.named(15);
        let rest = bench.limiter.rest(bench.clock.now());
        assert_eq!(rest.iter().map(|it| it.count).collect::<Vec<_>>(), [5]);
        assert_eq!(bench.limiter.rest(bench.clock.now()), []);
        bench.limiter.count_renewals(3, 0, bench.clock.now());
        assert_eq!(bench.limiter.renewals_rest().map(|it| it.renewed), Some(3));
        assert_eq!(bench.limiter.renewals_rest(), None);
    }

    #[test]
    fn a_burst_whose_count_was_not_told_in_time_is_told_with_the_next() {
        let bench = Bench::new();
        bench.named(15);
        bench.clock.pass(2 * QUIET);
        assert_eq!(bench.lost(1, "expired"), Admission::Counted);
        assert_eq!(
            bench.limiter.rest(bench.clock.now()).iter().map(|it| it.count).sum::<usize>(),
            6
        );
    }

    #[test]
    fn a_different_error_for_each_lease_is_a_flood_all_the_same() {
        let bench = Bench::new();
        let named =
            (0..1_000).filter(|it| bench.uncertain(&format!("error {it}")) == Admission::ByName);
        assert_eq!(named.count(), KINDS_MAX + NAMED_MAX);
        assert_eq!(bench.pass(SECOND), ["WARN lease.uncertain others=926"]);
        bench.pass(10 * QUIET);
        assert!(bench.limiter.bursts.lock().is_empty());
    }

    /// Each address has an error of its own.
    #[test]
    fn endpoints_that_fail_together_are_one_flood_whatever_their_errors_are() {
        let bench = Bench::new();
        let failing = |n: usize| {
            let endpoint = EndpointId::parse(&format!("e{n}")).unwrap();
            let change = Change {
                tenure: Tenure { endpoint, fence: FenceToken(1) },
                instance: InstanceId::new("a"),
                address: format!("http://10.0.0.{n}/"),
                state: VerdictState::default(),
                status: None,
                error: Some(format!("cannot connect to 10.0.0.{n}")),
            };
            bench.limiter.admit(&Event::EndpointFailing(&change), bench.clock.now())
        };
        assert_eq!((0..2_000).filter(|it| failing(*it) == Admission::ByName).count(), NAMED_MAX);
        assert_eq!(bench.pass(SECOND), ["WARN endpoint.failing others=1990"]);
    }

    #[test]
    fn renewals_are_counted_for_a_minute_that_begins_with_the_first() {
        let bench = Bench::new();
        let limiter = &bench.limiter;
        limiter.count_lost(9); // nothing was renewed yet
        limiter.count_renewals(0, 0, bench.clock.now());
        bench.clock.pass(QUIET);
        assert_eq!(limiter.renewals_due(bench.clock.now()), None);
        for _ in 0..6 {
            limiter.count_renewals(500, 2, bench.clock.now());
            limiter.count_lost(1);
            assert_eq!(limiter.renewals_due(bench.clock.now()), None);
            bench.clock.pass(10 * SECOND);
        }
        let counts = RenewalCounts { renewed: 3_000, lost: 6, uncertain: 12 };
        assert_eq!(limiter.renewals_due(bench.clock.now()), Some(counts));
        assert_eq!(limiter.renewals_due(bench.clock.now()), None);
    }

    #[test]
    fn what_is_not_about_a_lease_or_an_endpoint_is_always_logged() {
        let bench = Bench::new();
        let now = bench.clock.now();
        let all = (0..50)
            .all(|_| bench.limiter.admit(&Event::HeartbeatResumed, now) == Admission::ByName);
        assert!(all);
    }
}
