//! Tests of who is behind: several rounds at one and a half intervals, and nothing less.

use std::time::Duration;

use crate::clock::Moment;
use crate::polling::schedule::tests::{INTERVALS, QUICK, at, session, tenure};
use crate::polling::schedule::{LastPoll, PollSchedule};
use crate::polling::slow_lane::SLOW_AFTER;

/// One endpoint whose polls begin at these milliseconds and take this long.
fn polled_at(begun_ms: &[u64], took: Duration) -> PollSchedule {
    let mut schedule = PollSchedule::new(INTERVALS, 64);
    schedule.gained(tenure("a", 1), session("a"), at(begun_ms[0]));
    for begun in begun_ms {
        let due = schedule.take_due(at(*begun), 1).remove(0);
        schedule.done(&due, true, took, at(*begun) + took);
    }
    schedule
}

/// Whether it is behind right after the last of these polls.
fn is_behind(periods_ms: &[u64]) -> bool {
    let mut begun = vec![1_000];
    begun.extend(periods_ms.iter().scan(1_000, |sum, it| {
        *sum += it;
        Some(*sum)
    }));
    let end = at(*begun.last().unwrap()) + QUICK;
    polled_at(&begun, QUICK).survey(end).behind.is_some()
}

/// Issue 19: late means late.
#[test]
fn an_endpoint_at_one_and_a_half_times_its_interval_for_several_rounds_is_behind() {
    assert!(!is_behind(&[1_500; 3]), "several rounds");
    assert!(is_behind(&[1_500; 4]));
    assert!(is_behind(&[1_000, 2_000, 1_000, 2_000, 1_000, 2_000]), "on average");
    assert!(is_behind(&[3_000, 3_000]));
    let behind = polled_at(&[1, 3_000, 6_000, 9_000, 12_000, 15_000], QUICK);
    let behind = behind.survey(at(15_050)).behind.unwrap();
    assert_eq!((behind.endpoints, behind.interval), (1, INTERVALS.interval));
    let period = behind.period.as_millis();
    assert!((2_500..=3_000).contains(&period), "{period}");
    assert_eq!(behind.worst.unwrap().as_str(), "a");
}

#[test]
fn one_missed_round_or_a_little_lag_is_not_behind() {
    assert!(!is_behind(&[1_000, 1_000, 2_000, 1_000]), "a missed round");
    assert!(!is_behind(&[60_000, 1_000]), "one long pause is one missed round");
    assert!(!is_behind(&[1_240; 20]), "lag");
    assert!(!is_behind(&[3_000, 3_000, 1_000, 1_000, 1_000, 1_000]), "over");
}

/// Rounds that fall into a poll are not missed: the next poll begins with the first round that is not past.
#[test]
fn an_endpoint_whose_polls_take_longer_than_its_interval_is_measured_by_them() {
    let took = Duration::from_millis(950);
    let schedule = polled_at(&[1, 1_001, 2_001, 3_001], took);
    assert!(schedule.survey(at(3_951)).behind.is_none());
    let took = SLOW_AFTER + Duration::from_millis(700);
    let schedule = polled_at(&[1, 2_001, 4_001, 6_001, 8_001], took);
    let survey = schedule.survey(at(9_701));
    assert_eq!((survey.behind, survey.slow_behind), (None, 0));
}

/// Nothing ends, so nothing can be measured but the wait.
#[test]
fn an_endpoint_that_waits_for_two_and_a_half_intervals_is_behind() {
    let schedule = polled_at(&[1, 1_001], QUICK);
    assert!(schedule.survey(at(3_401)).behind.is_none());
    let survey = schedule.survey(at(3_601));
    assert_eq!(survey.behind.unwrap().period, Duration::from_millis(2_600));
    assert_eq!(survey.lag, Duration::from_millis(1_600));
    // While its poll runs it does not wait.
    let mut schedule = polled_at(&[1, 1_001], QUICK);
    schedule.take_due(at(2_001), 1);
    assert!(schedule.survey(at(9_000)).behind.is_none());
}

#[test]
fn an_endpoint_that_was_never_polled_is_behind_an_interval_and_a_half_after_it_was_due() {
    let mut schedule = PollSchedule::new(INTERVALS, 64);
    let due_at = schedule.first_due(&session("a"), None::<LastPoll>, QUICK, at(0));
    schedule.gained(tenure("a", 1), session("a"), due_at);
    let after = |ms: u64| due_at + Duration::from_millis(ms);
    assert!(schedule.survey(after(1_400)).behind.is_none());
    assert!(schedule.survey(after(1_500)).behind.is_some());
    assert_eq!(schedule.survey(Moment::MIN).lag, Duration::ZERO);
}

/// They share a part of the workers on purpose. That is no shortage.
#[test]
fn slow_endpoints_are_counted_apart_and_their_wait_is_no_lag() {
    let took = SLOW_AFTER + Duration::from_millis(100);
    let mut schedule = polled_at(&[1, 10_000, 20_000, 30_000, 40_000], took);
    let survey = schedule.survey(at(41_100));
    assert_eq!((survey.behind, survey.slow_behind), (None, 1));
    assert!(schedule.survey(at(90_000)).lag.is_zero() && schedule.take_lag().is_zero());
    // It is quick again: what was measured while it was slow does not count.
    let due = schedule.take_due(at(50_000), 1).remove(0);
    schedule.done(&due, true, QUICK, at(50_050));
    let survey = schedule.survey(at(50_100));
    assert_eq!((survey.behind, survey.slow_behind), (None, 0));
}

#[test]
fn the_lag_is_that_of_the_latest_poll_since_it_was_asked_for() {
    let mut schedule = polled_at(&[1, 1_301, 2_101], QUICK);
    assert_eq!(schedule.take_lag(), Duration::from_millis(300));
    assert_eq!(schedule.take_lag(), Duration::ZERO);
}
