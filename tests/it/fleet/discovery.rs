//! What counts as an endpoint, and how soon it is found: names that nobody is to poll, keys of another database,
//! stalls and latency where nothing is pushed. In memory.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::memory::Mishap;

use testkit::cluster::{Cluster, TTL, endpoint};
use testkit::process::ms;

/// docs/sessions.md: a change takes effect within this where nothing is pushed.
const FOUND_WITHIN: Duration = Duration::from_secs(2);
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A settled fleet of this size on a server that pushes nothing.
fn fleet_without_pushes(instances: usize, sessions: usize) -> Cluster {
    let mut cluster = Cluster::empty(sessions);
    cluster.deliver_nothing();
    NAMES[..instances].iter().for_each(|it| cluster.join(it));
    cluster.pass_until(6 * TTL, |it| it.is_balanced(sessions));
    cluster.pass(TTL);
    cluster
}

/// A stall of the server is not the server's work: the next resync comes as soon as without it.
#[test]
fn a_stall_during_a_resync_does_not_delay_the_next_new_session() {
    for (instances, stalls, stall_ms) in [(1, 1, 400), (3, 1, 400), (1, 2, 800)] {
        let mut cluster = fleet_without_pushes(instances, 9);
        for _ in 0..stalls {
            for name in &NAMES[..instances] {
                let each_way = ms(stall_ms / 2);
                cluster.member(name).store.plan("session_names", Mishap::Slow(each_way));
            }
            cluster.pass(ms(1_500));
        }
        cluster.add_session("new");
        let took =
            cluster.pass_until(Duration::from_secs(60), |it| it.holder(&endpoint("new")).is_some());
        assert!(
            took <= FOUND_WITHIN,
            "{instances} instances, {stalls} stalls of {stall_ms} ms: after {took:?}"
        );
    }
}

/// Latency is not the server's work either: 20 ms away, eight instances.
#[test]
fn a_server_that_is_far_away_is_swept_as_often() {
    let mut cluster = fleet_without_pushes(NAMES.len(), 16);
    for name in NAMES {
        for op in ["session_names", "owners", "instances"] {
            (0..60).for_each(|_| cluster.member(name).store.plan(op, Mishap::Slow(ms(10))));
        }
    }
    for n in 0..5 {
        cluster.pass(ms(1_500 + 310 * n));
        let name = format!("new{n}");
        cluster.add_session(&name);
        let took =
            cluster.pass_until(Duration::from_secs(60), |it| it.holder(&endpoint(&name)).is_some());
        assert!(took <= FOUND_WITHIN, "{name} after {took:?}");
    }
}

/// How long a newcomer to two instances waits for its share while `disturb` happens every 40 ms.
fn joins(mut cluster: Cluster, disturb: impl Fn(&mut Cluster, usize)) -> (Duration, Cluster) {
    (0..20).for_each(|it| cluster.pause_session(&format!("paused{it}")));
    cluster.pass(2 * TTL);
    assert!(cluster.is_balanced(30), "{:?}", cluster.counts());
    (0..100).for_each(|it| {
        disturb(&mut cluster, it);
        cluster.pass(ms(40));
    });
    let grants = cluster.server.acquires().1;
    let from = cluster.clock.now();
    cluster.join("c");
    for n in 100..600 {
        if cluster.is_balanced(30) {
            assert_eq!(cluster.server.acquires().1, grants + 10, "a third, each once");
            return (cluster.clock.now().since(from), cluster);
        }
        disturb(&mut cluster, n);
        cluster.pass(ms(40));
    }
    panic!("no share within 20 s: {:?}", cluster.counts());
}

fn pair() -> Cluster {
    Cluster::new(&["a", "b"], 30)
}

/// A session that nobody polls is no endpoint, however often it is written.
#[test]
fn sessions_that_nobody_polls_delay_no_newcomer_by_being_written() {
    let (quiet, _) = joins(pair(), |_, _| ());
    let (busy, mut cluster) = joins(pair(), |it, n| it.pause_session(&format!("paused{}", n % 20)));
    assert!(busy <= quiet + ms(200), "{busy:?} instead of {quiet:?}");
    // Nor does writing hide that one of them is to be polled again.
    for n in 0..10 {
        cluster.pause_session(&format!("paused{n}"));
        cluster.pass(ms(20));
    }
    cluster.restore_session("paused3");
    cluster.pass_until(FOUND_WITHIN, |it| it.holder(&endpoint("paused3")).is_some());
}

/// Invalidations name keys of all databases. One that is not in ours changes nothing.
#[test]
fn sessions_of_another_database_delay_no_newcomer_and_move_nothing() {
    let (quiet, _) = joins(pair(), |_, _| ());
    for (names, what) in [(7, "the same names"), (100_000, "new names")] {
        let (busy, _) = joins(pair(), |it, n| {
            (0..10).for_each(|k| it.server.touch_elsewhere(&format!("f{}", (10 * n + k) % names)));
        });
        assert!(busy <= quiet + ms(200), "{what}: {busy:?} instead of {quiet:?}");
    }
}

/// An application keeps keys of its own under our prefix: new ones all the time, none of them a session.
#[test]
fn keys_that_are_no_sessions_delay_no_newcomer() {
    let web = |it: &mut Cluster, n: usize| {
        (0..5).for_each(|k| it.server.put_session(&format!("web{n}-{k}"), b"{\"user\":7}"));
    };
    let (quiet, _) = joins(pair(), |_, _| ());
    let (busy, _) = joins(pair(), web);
    assert!(busy <= quiet + ms(200), "{busy:?} instead of {quiet:?}");
    let (quiet, _) = joins(fleet_without_pushes(2, 30), |_, _| ());
    let (busy, _) = joins(fleet_without_pushes(2, 30), web);
    assert!(busy <= quiet + ms(1_000), "where nothing is pushed: {busy:?} instead of {quiet:?}");
}

/// One question each half second and instance, whatever the number of names; nothing is read.
#[test]
fn sessions_of_another_database_cost_few_questions() {
    let mut cluster = Cluster::new(&["a", "b", "c"], 30);
    let asked = |cluster: &mut Cluster, noise: bool| {
        let from = cluster.server.journal().len();
        for n in 0..250 {
            if noise {
                (0..20).for_each(|k| cluster.server.touch_elsewhere(&format!("f{n}-{k}")));
            }
            cluster.pass(ms(40));
        }
        // Each look at what was pushed is one, too, in memory.
        let journal = cluster.server.journal();
        let asked = |op: &str| journal[from..].iter().filter(|it| **it == op).count();
        (journal.len() - from - asked("next_push"), asked("sessions"))
    };
    let quiet = asked(&mut cluster, false);
    let grants = cluster.server.acquires();
    let busy = asked(&mut cluster, true);
    assert_eq!(cluster.server.acquires(), grants, "something was asked for");
    // Ten seconds of three instances.
    assert!(busy.0 <= quiet.0 + 10 * 3 * 3, "{busy:?} questions instead of {quiet:?}");
    assert_eq!(busy.1, 0, "something was read");
    // A session of our own is found beside them.
    cluster.add_session("new");
    let from = cluster.clock.now();
    while cluster.holder(&endpoint("new")).is_none() {
        cluster.server.touch_elsewhere("noise");
        cluster.pass(ms(20));
        assert!(cluster.clock.now().since(from) <= ms(800), "not found beside the noise");
    }
}
