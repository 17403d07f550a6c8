//! How much does an instance log? In an outage a few lines with counts, and at `debug` every lease by name.

use std::collections::BTreeSet;
use std::time::Instant;

use testkit::process::{Instance, SOON, Scene, TTL, eventually, field, ms};
use testkit::target::Answer;

/// Lines of an instance about one kind of event, since a moment.
struct Said {
    /// By name, at the level of the event.
    named: Vec<String>,
    /// By name, at `debug`.
    debug: Vec<String>,
    /// The sum of all counts.
    counted: usize,
    /// Lines with a count.
    counts: usize,
}

impl Said {
    fn since(instance: &Instance, since: Instant, event: &str) -> Self {
        let lines = instance.timed_lines(&[&format!("event={event} ")]);
        let lines = lines.into_iter().filter(|it| it.0 >= since).map(|it| it.1);
        let mut said = Self { named: vec![], debug: vec![], counted: 0, counts: 0 };
        for line in lines {
            match (field(&line, "endpoint"), field(&line, "others").or(field(&line, "count"))) {
                (Some(endpoint), None) if line.contains(" DEBUG ") => said.debug.push(endpoint),
                (Some(endpoint), None) => said.named.push(endpoint),
                (None, Some(count)) => {
                    said.counted += count.parse::<usize>().unwrap();
                    said.counts += 1;
                }
                other => panic!("neither by name nor a count, but {other:?}: {line}"),
            }
        }
        said
    }

    /// How many events there were, as the log tells above `debug`.
    fn total(&self) -> usize {
        self.named.len() + self.counted
    }
}

/// It was one line for each lease and change, 2,000 with 667 leases.
#[test]
fn an_outage_with_hundreds_of_leases_is_a_few_lines_and_at_debug_each_lease_is_named() {
    let scene = Scene::new(600);
    let began = Instant::now();
    let slow = ["--interval=5s", "--workers=8"];
    let quiet = scene.first(&slow);
    let talkative = scene.join(&[&slow[..], &["--log-level=debug"]].concat());
    let fleet = [&quiet, &talkative];
    scene.wait_for_balance(&fleet, SOON);
    let acquired = || Said::since(&quiet, began, "lease.acquired");
    let told = || format!("{} acquired", acquired().total());
    eventually(SOON, "the counts of the start", told, || acquired().total() >= 600);
    assert_eq!(acquired().named.len(), 10);
    let paused_at = Instant::now();
    scene.redis.pause();
    scene.target.observe(TTL + ms(2_000));
    scene.redis.resume();
    for it in fleet {
        it.wait_for_since(paused_at, "event=store.reachable");
    }
    scene.wait_for_balance(&fleet, 2 * SOON);
    scene.target.observe(ms(1_500));
    for (instance, is_debug) in [(&quiet, false), (&talkative, true)] {
        for event in ["lease.uncertain", "lease.lost"] {
            let said = Said::since(instance, paused_at, event);
            assert_eq!(said.named.len(), 10, "{event}");
            assert_eq!(said.total(), 300, "{event}: {} counts", said.counts);
            assert!(said.counts <= 4, "{event}: {} counts", said.counts);
            let names: BTreeSet<&String> = said.named.iter().chain(&said.debug).collect();
            assert_eq!(names.len(), if is_debug { 300 } else { 10 }, "{event}");
        }
    }
    let lines = quiet.timed_lines(&[]).iter().filter(|it| it.0 >= paused_at).count();
    println!("measured: outage with 300 leases, {lines} lines at info");
    assert!(lines <= 80, "{lines} lines\n{}", quiet.log().join("\n"));
}

/// `poll.skipped` is one line a minute, a renewal that succeeds is `debug`, and no count is lost at a stop.
#[test]
fn skipped_polls_and_renewals_are_counted_and_the_counts_are_logged_at_a_stop() {
    let scene = Scene::new(4);
    for endpoint in &scene.endpoints {
        scene.target.answer(endpoint, Answer { delay: ms(300), ..Answer::default() });
    }
    let began = Instant::now();
    let mut one = scene.first(&["--log-level=debug", "--workers=1"]);
    let said = |one: &Instance| Said::since(one, began, "poll.skipped");
    let n = || format!("{} skipped", said(&one).debug.len());
    eventually(SOON, "skipped polls", n, || said(&one).debug.len() >= 10);
    one.wait_for("event=lease.renewed");
    let before = said(&one);
    assert_eq!((before.named.len(), before.counts), (1, 0), "one line a minute");
    assert!(one.term().success());
    let after = said(&one);
    assert_eq!((after.named.len(), after.counts), (1, 1));
    assert_eq!(after.counted, after.debug.len());
    let line = one.lines(&["event=poll.skipped", " count="]).remove(0);
    assert!(line.contains(" WARN ") && line.contains(" reason=backlog "), "{line}");
    assert!(field(&line, "worst").is_some_and(|it| it.contains(':')), "{line}");
    let renewed = one.lines(&[" DEBUG ", "event=lease.renewed "]).len();
    assert_eq!(one.lines(&["event=lease.renewed "]).len(), renewed);
    let round = one.lines(&[" INFO ", "event=renewal.round "]);
    assert_eq!(round.len(), 1, "{round:?}");
    assert_eq!(field(&round[0], "renewed"), Some(renewed.to_string()), "{round:?}");
}

/// A peer that died is something to look at, a peer that stopped is not.
#[test]
fn a_peer_that_died_is_a_warning_and_a_peer_that_stopped_is_not() {
    let scene = Scene::new(3);
    let mut fleet = scene.fleet(3);
    let mut left = |how: fn(&mut Instance)| {
        let mut peer = fleet.pop().unwrap();
        let id = peer.id();
        how(&mut peer);
        let is_it = |it: &str| it.contains("event=instance.left") && it.contains(&id);
        fleet[0].wait_for_line(SOON, "the end of a peer", is_it)
    };
    let stopped = left(|it| assert!(it.term().success()));
    assert!(stopped.contains(" INFO ") && stopped.ends_with(" reason=withdrawn"), "{stopped}");
    let died = left(Instance::kill9);
    assert!(died.contains(" WARN ") && died.ends_with(" reason=expired"), "{died}");
}
