//! Tests of the schedule: rhythm, light polling, and the queues of slow endpoints.

mod lanes;
mod rhythm;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::model::{EndpointId, FenceToken, Session, Tenure, Thresholds};
use crate::polling::intervals::PollIntervals;
use crate::polling::schedule::{Due, LastPoll, LightChange, PollSchedule};
use crate::polling::slow_lane::SLOW_AFTER;

const INTERVALS: PollIntervals = PollIntervals {
    interval: Duration::from_millis(1_000),
    timeout: Duration::from_secs(10),
    light_after: 3,
    light_interval: Duration::from_millis(5_000),
    thresholds: Thresholds { fail_after: 1, ok_after: 1 },
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
    let mut schedule = PollSchedule::new(INTERVALS, 64);
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
        assert_eq!(change, (n == 3).then_some(LightChange::Became(3)), "failure {n}");
        let next = schedule.next_due().unwrap();
        let pause = if n < 3 { 1_000..=1_000 } else { 5_000..=5_500 };
        assert!(pause.contains(&next.since(now).as_millis()), "failure {n}: {next:?}");
        now = next;
    }
    let due = schedule.take_due(now, 9).remove(0);
    assert_eq!(schedule.done(&due, true, QUICK, now), Some(LightChange::Ended));
    assert_eq!(schedule.next_due(), Some(now + INTERVALS.interval));
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
        let pause = |failures| INTERVALS.interval_of(&session, failures).as_millis();
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
    let mut schedule = PollSchedule::new(INTERVALS, workers);
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
        let took = if hangs { INTERVALS.timeout } else { QUICK };
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
            let due = schedule.take_due(now + INTERVALS.interval * round, 100);
            assert!(round > 1 || due.is_empty(), "{:?}", ids(&due));
            quick.iter().filter(|_| round == 1).for_each(|it| {
                schedule.done(it, true, QUICK, now);
            });
            due.iter().for_each(|it| {
                assert!(!hangs(it.tenure.endpoint.as_str()));
                schedule.done(it, true, QUICK, now + INTERVALS.interval * round);
            });
        }
        now = now + INTERVALS.timeout + INTERVALS.interval;
        slow.iter().for_each(|it| {
            schedule.done(it, false, INTERVALS.timeout, now);
        });
    }
    let first: std::collections::BTreeSet<&String> = turns.iter().take(30).collect();
    assert_eq!(first.len(), 30, "each has its turn: {turns:?}");
}

/// Issue 19: one dead network cannot fill the share of the slow endpoints.
#[test]
fn slow_endpoints_of_one_network_have_a_quarter_of_the_share_and_come_in_their_turn() {
    let hosts: Vec<String> =
        (0..20).map(|it| if it < 12 { format!("10.1.1.{it}") } else { format!("h{it}") }).collect();
    let mut schedule = with_hosts(32, &hosts);
    polled_once(&mut schedule, |_| true, at(100));
    let now = at(2_000);
    let due = schedule.take_due(now, 100);
    let mut expected: Vec<String> = (0..4).chain(12..20).map(|it| format!("e{it:03}")).collect();
    let mut taken = ids(&due);
    taken.sort();
    assert_eq!(taken, expected, "4 of 16 for the network, and all others");
    for n in 4..12 {
        schedule.done(&due[n - 4], false, INTERVALS.timeout, now);
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
    let running = schedule.take_due(now, 100);
    assert_eq!(ids(&running), ["e000", "e001"], "two of four for this network");
    for n in 2..8 {
        schedule.ended(&tenure(&format!("e{n:03}"), 1));
    }
    for due in &running {
        schedule.done(due, false, INTERVALS.timeout, now);
    }
    assert_eq!(ids(&schedule.take_due(now, 100))[0], "e008");
}

#[test]
fn endpoints_that_were_not_polled_yet_leave_the_last_quarter_to_endpoints_that_answer() {
    let hosts: Vec<String> = (0..9).map(|it| format!("h{it}")).collect();
    let mut schedule = with_hosts(8, &hosts);
    let answers = schedule.take_due(at(0), 1).remove(0);
    schedule.done(&answers, true, QUICK, at(50));
    let hung = schedule.take_due(at(100), 6);
    assert_eq!(hung.len(), 6);
    let later = at(100) + SLOW_AFTER + QUICK;
    assert_eq!(ids(&schedule.take_due(later, 9)), ["e000"], "the others may hang, too");
    schedule.done(&hung[0], false, INTERVALS.timeout, later);
    assert_eq!(ids(&schedule.take_due(later, 9)), ["e007", "e008"]);
}

/// Issue 19: endpoints that recover are back in the fast lane after one good poll.
#[test]
fn a_network_that_recovers_is_polled_within_its_interval_and_not_at_the_light_one() {
    let hosts: Vec<String> =
        (0..6).map(|it| if it < 5 { "10.1.1.1" } else { "10.9.9.9" }.to_owned()).collect();
    let mut schedule = with_hosts(64, &hosts);
    let mut now = at(0);
    for _ in 0..INTERVALS.light_after {
        now = now + INTERVALS.timeout;
        polled_once(&mut schedule, |_| true, now);
    }
    now = schedule.next_due().unwrap();
    let first = schedule.take_due(now, 1).remove(0);
    let change = schedule.done(&first, true, QUICK, now);
    assert_eq!(change, Some(LightChange::Ended));
    let soon = ids(&schedule.take_due(now + INTERVALS.interval, 100));
    assert!((4..=6).contains(&soon.len()), "{soon:?}");
    assert!((0..5).all(|it| soon.contains(&format!("e{it:03}"))), "{soon:?}");
}

/// CONTRACT: an endpoint taken over keeps its rhythm; first polls are spread over the interval.
#[test]
fn a_first_poll_keeps_the_rhythm_of_the_last_owner_or_is_spread() {
    let (schedule, kept) = (PollSchedule::new(INTERVALS, 64), Duration::from_secs(90));
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
    let (schedule, kept) = (PollSchedule::new(INTERVALS, 64), Duration::from_secs(90));
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
    let again = schedule.take_due(at(2_350), 9).into_iter().find(|it| it.tenure == tenure("a", 1));
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
    let order: Vec<String> =
        schedule.take_due(at(1_000), 2).iter().map(|it| it.tenure.endpoint.to_string()).collect();
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
    let mut schedule = PollSchedule::new(INTERVALS, 64);
    for n in 0..50 {
        let id = format!("e{n}");
        schedule.gained(tenure(&id, 1), session(&id), now + INTERVALS.interval);
    }
    let short = Duration::from_millis(500);
    schedule.set_intervals(PollIntervals { interval: short, ..INTERVALS }, now);
    let first_half = schedule.take_due(now + short / 2, 100).len();
    assert!((10..=40).contains(&first_half), "{first_half} of 50 in the first half");
    schedule
        .set_intervals(PollIntervals { interval: Duration::from_secs(3_600), ..INTERVALS }, now);
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
