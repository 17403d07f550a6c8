//! Tests of the turns of endpoints of different speed and of different networks.

use std::time::Duration;

use crate::clock::Moment;
use crate::model::EndpointId;
use crate::polling::intervals::PollIntervals;
use crate::polling::schedule::tests::{
    INTERVALS, QUICK, at, polled_once, session, tenure, with_hosts,
};
use crate::polling::schedule::{LightChange, PollSchedule};

/// Other networks may be as dead as before. And endpoints that fail again are not hurried by each neighbour that recovers:
/// the walk over all endpoints would come once for each of them.
#[test]
fn a_network_that_recovers_hurries_no_other_and_not_twice_within_a_second() {
    let hosts: Vec<String> = (0..8).map(|it| format!("10.1.{}.1", it % 2)).collect();
    let mut schedule = with_hosts(64, &hosts);
    let intervals = PollIntervals { light_interval: Duration::from_secs(100), ..INTERVALS };
    schedule.set_intervals(intervals, at(0));
    for round in 1..=intervals.light_after {
        polled_once(&mut schedule, |_| true, at(0) + INTERVALS.timeout * round);
    }
    let due_at = |schedule: &PollSchedule, n: usize| {
        schedule.entries[&EndpointId::parse(&format!("e{n:03}")).unwrap()].due_at
    };
    let before: Vec<Moment> = (0..8).map(|it| due_at(&schedule, it)).collect();
    let now = schedule.next_due().unwrap();
    let first = before.iter().position(|it| *it == now).unwrap();
    let recovered = schedule.take_due(now, 1).remove(0);
    schedule.done(&recovered, true, QUICK, now);
    let soon = now + intervals.interval;
    for (n, before) in before.iter().enumerate() {
        let (after, is_neighbour) = (due_at(&schedule, n), n % 2 == first % 2);
        assert!(if is_neighbour { after <= soon } else { after == *before }, "e{n:03}");
    }
    assert!((0..8).any(|it| it % 2 != first % 2 && before[it] > soon), "none could be hurried");
    // Within the same second one neighbour fails again, and another recovers.
    let mut next = || {
        let now = schedule.next_due().filter(|it| *it < soon).unwrap();
        (now, schedule.take_due(now, 1).remove(0))
    };
    let ((_, fails), (then, recovers)) = (next(), next());
    schedule.done(&fails, false, QUICK, then);
    assert_eq!(schedule.done(&recovers, true, QUICK, then), Some(LightChange::Ended));
    assert!(schedule.entries[&fails.tenure.endpoint].due_at > then + intervals.light_interval / 2);
}

/// Whatever the speed of each is: none of the three queues comes before another.
#[test]
fn the_longest_overdue_comes_first_also_among_endpoints_of_different_speed() {
    let hosts: Vec<String> = (0..2).map(|it| format!("h{it}")).collect();
    let mut schedule = with_hosts(16, &hosts);
    polled_once(&mut schedule, |id| id == "e000", at(100));
    let (slow, quick) = (at(1_000), at(1_001));
    schedule.gained(tenure("untried", 1), session("untried"), at(2_000));
    let due: Vec<Moment> = schedule.take_due(at(3_000), 9).iter().map(|it| it.due_at).collect();
    assert_eq!(due, [slow, quick, at(2_000)]);
}

/// One good poll is enough, and one slow poll is: a poll that times out within a second is slow, too.
#[test]
fn a_poll_in_time_brings_an_endpoint_back_to_the_fast_lane_and_a_timeout_out_of_it() {
    let mut schedule = with_hosts(2, &["h0".to_owned(), "h1".to_owned()]);
    let short = PollIntervals { timeout: Duration::from_millis(200), ..INTERVALS };
    schedule.set_intervals(short, at(100));
    polled_once(&mut schedule, |_| false, at(100));
    let mut now = at(2_000);
    for (took, at_once) in [(QUICK, 2), (short.timeout, 1), (QUICK, 2)] {
        while let Some(due) = schedule.take_due(now, 1).pop() {
            schedule.done(&due, true, took, now);
        }
        now = now + INTERVALS.interval;
        let running = schedule.take_due(now, 9);
        assert_eq!(running.len(), at_once, "after polls of {took:?}");
        running.iter().for_each(|it| schedule.put_back_first(&it.tenure.endpoint));
    }
}
