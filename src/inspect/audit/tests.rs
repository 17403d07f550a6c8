//! Planted contradictions are found, and a fleet that keeps its promises causes none, whatever is lost and delayed.

use crate::inspect::audit::judge::ENDPOINTS_MAX;
use crate::inspect::audit::record::{decode, encode};
use crate::inspect::audit::*;

const NOW_MS: u64 = 1_700_000_000_000;
const TTL_MS: u64 = 30_000;

fn id(name: &str) -> EndpointId {
    EndpointId::parse(name).unwrap()
}

/// An instance under the fence of a grant at this time.
fn of(instance: &str, granted_at_ms: u64) -> Holder {
    Holder { fence: FenceToken(granted_at_ms * 1_000), instance: InstanceId::new(instance) }
}

fn result(holder: &Holder, started_at_ms: u64, duration_ms: u64) -> Observation {
    let poll = Poll { holder: holder.clone(), started_at_ms, duration_ms };
    Observation::Result { endpoint: id("e"), poll, read: Read::Announced }
}

fn lease(event: &str, holder: &Holder, at_ms: u64) -> Observation {
    let (endpoint, holder, event) = (id("e"), holder.clone(), event.to_owned());
    Observation::Lease { endpoint, holder, at_ms, event }
}

fn look(at_ms: u64, epoch_since_ms: u64) -> Observation {
    let epoch =
        EpochRecord { epoch: 1, since_ms: epoch_since_ms, lease_ttl_ms: TTL_MS, margin_ms: 1_000 };
    Observation::Look(Look { server_ms: at_ms, epoch: Some(epoch), wanted: 1 })
}

fn unowned(polled_at_ms: Option<u64>) -> Observation {
    let (endpoint, state) = (id("e"), "unowned".into());
    let (owner, granted, since_ms) = (None, None, None);
    let it = Unattended { endpoint, state, owner, polled_at_ms, granted, since_ms };
    Observation::Unattended(it)
}

/// The kinds of the findings, judged as observed and as written down and read again.
fn kinds(observed: &[Observation]) -> Vec<Kind> {
    let (mut judge, mut again) = (Judge::default(), Judge::default());
    let found: Vec<Finding> = observed.iter().flat_map(|it| judge.observe(it.clone())).collect();
    let replayed: Vec<Finding> = observed
        .iter()
        .filter_map(|it| decode(encode(it).as_bytes()))
        .flat_map(|it| again.observe(it))
        .collect();
    assert_eq!(found, replayed);
    assert_eq!(judge.counts(), again.counts());
    assert_eq!(judge.counts().n_findings(), found.len() as u64);
    for it in &found {
        let told = words::line(it);
        assert!(told.contains(" e ") && told.contains("leasehold ") || told.contains("find the"));
    }
    found.iter().map(|it| it.kind).collect()
}

#[test]
fn two_polls_that_ran_at_a_time_are_found_and_two_after_one_another_are_not() {
    let (a, b) = (of("a", NOW_MS), of("b", NOW_MS + 9_000));
    let polls = |b_starts_at_ms| {
        let (first, second) =
            (result(&a, NOW_MS + 6_000, 4_000), result(&b, b_starts_at_ms, 3_000));
        [kinds(&[first.clone(), second.clone()]), kinds(&[second, first])]
    };
    // B begins 2 s before A ends; 1 s is within what their clocks may be wrong by.
    assert_eq!(polls(NOW_MS + 8_000)[0], [Kind::Overlap]);
    assert_eq!(polls(NOW_MS + 8_000)[1], [Kind::Overlap]);
    assert_eq!(polls(NOW_MS + 9_000)[0], []);
    assert_eq!(polls(NOW_MS + 10_000)[0], []);
    assert_eq!(polls(NOW_MS + 10_000)[1], [Kind::FenceBack], "announced after a newer one");
}

/// Also where the polls are too short to meet.
#[test]
fn a_poll_long_after_a_higher_grant_is_found() {
    let (a, b) = (of("a", NOW_MS), of("b", NOW_MS + 10_000));
    let at = |ms| result(&a, NOW_MS + ms, 5);
    let granted = lease("acquired", &b, NOW_MS + 10_000);
    assert_eq!(kinds(&[granted.clone(), at(11_000)]), [], "within the tolerance");
    assert_eq!(kinds(&[granted.clone(), at(12_000), at(13_000)]), [Kind::Superseded], "told once");
    assert_eq!(kinds(&[at(12_000), granted.clone()]), [Kind::Superseded], "known later");
    assert_eq!(kinds(&[at(9_000), granted]), []);
}

#[test]
fn a_fence_that_goes_back_is_found_in_each_source_by_itself() {
    let (a, b) = (of("a", NOW_MS), of("b", NOW_MS + 1_000));
    let change = |holder: &Holder| {
        let (endpoint, holder) = (id("e"), holder.clone());
        Observation::Change { endpoint, holder, at_ms: NOW_MS + 2_000 }
    };
    let (of_a, of_b) = (result(&a, NOW_MS + 500, 5), result(&b, NOW_MS + 1_001, 5));
    assert_eq!(kinds(&[of_a.clone(), of_b.clone(), of_a.clone()]), [Kind::FenceBack]);
    assert_eq!(kinds(&[change(&b), change(&a), change(&a)]), [Kind::FenceBack]);
    // Two sources are read on two connections.
    assert_eq!(kinds(&[change(&b), of_a.clone(), of_b.clone(), change(&b)]), []);
    let grants = |late_ms| {
        let late = lease("reclaimed", &a, NOW_MS + 1_000 + late_ms);
        kinds(&[lease("acquired", &b, NOW_MS + 1_000), late])
    };
    assert_eq!(grants(4_000), [], "written late");
    assert_eq!(grants(6_000), [Kind::FenceBack]);
    // Within one tenure.
    let at = |ms| result(&a, NOW_MS + ms, 5);
    assert_eq!(kinds(&[at(10), at(20), at(20), at(15)]), [Kind::StartBack]);
}

#[test]
fn one_fence_of_two_instances_is_found_whatever_tells_it() {
    let (a, b) = (of("a", NOW_MS), of("b", NOW_MS));
    let of_a = result(&a, NOW_MS + 10, 5);
    for other in [
        result(&b, NOW_MS + 20, 5),
        lease("acquired", &b, NOW_MS),
        lease("lost", &b, NOW_MS + 9_000),
        Observation::Change { endpoint: id("e"), holder: b.clone(), at_ms: NOW_MS },
    ] {
        assert_eq!(kinds(&[of_a.clone(), other.clone(), other.clone()]), [Kind::SharedFence]);
        assert_eq!(kinds(&[other, of_a.clone()]), [Kind::SharedFence]);
    }
}

#[test]
fn an_endpoint_that_stays_without_an_owner_is_found_after_the_life_of_a_lease() {
    let looks = |n: u64, seen: &dyn Fn(u64) -> Option<Observation>, epoch_since_ms: u64| {
        let each = |n: u64| {
            let seen = seen(n).into_iter();
            seen.chain([look(NOW_MS + n * 5_000, epoch_since_ms)]).collect::<Vec<_>>()
        };
        kinds(&(0..n).flat_map(each).collect::<Vec<_>>())
    };
    let always = |_| Some(unowned(None));
    assert_eq!(looks(7, &always, 1), [], "30 s");
    assert_eq!(looks(20, &always, 1), [Kind::Unpolled], "35 s, and told once");
    // A new epoch began with the first look: a hold-off, and then the life of a lease.
    assert_eq!(looks(13, &always, NOW_MS), []);
    assert_eq!(looks(14, &always, NOW_MS), [Kind::Unpolled]);
    // In between an instance had it, or polled it.
    assert_eq!(looks(20, &|n| (n % 6 > 0).then(|| unowned(None)), 1), []);
    assert_eq!(looks(20, &|n| Some(unowned(Some(NOW_MS + n / 6))), 1), []);
    // An heir died before it had polled.
    let granted = |n: u64| {
        let Observation::Unattended(it) = unowned(None) else { unreachable!() };
        let granted = Some(FenceToken(1 + n / 6));
        Some(Observation::Unattended(Unattended { granted, ..it }))
    };
    assert_eq!(looks(20, &granted, 1), []);
    // Late by what is stored, seen by two looks.
    let late = |since_ms| {
        let Observation::Unattended(it) = unowned(Some(1)) else { unreachable!() };
        let it = Observation::Unattended(Unattended { since_ms: Some(since_ms), ..it });
        let second = [it.clone(), look(NOW_MS + 5_000, 1)];
        let once = kinds(&[it.clone(), look(NOW_MS, 1)]);
        (once, kinds(&[&[it, look(NOW_MS, 1)][..], &second].concat()))
    };
    assert_eq!(late(NOW_MS - 60_000), (vec![], vec![Kind::Unpolled]));
    assert_eq!(late(NOW_MS - 20_000), (vec![], vec![]));
}

#[test]
fn what_could_not_be_observed_is_counted_and_is_no_finding() {
    let missed = |source| Observation::Unobserved { source, for_ms: 60_000 };
    let mut observed = vec![unowned(None), look(NOW_MS, 1), missed(Source::Looks)];
    observed.extend([unowned(None), look(NOW_MS + 60_000, 1), missed(Source::Results)]);
    assert_eq!(kinds(&observed), []);
    let mut judge = Judge::default();
    observed.into_iter().for_each(|it| drop(judge.observe(it)));
    let told = words::summary(judge.counts(), judge.n_endpoints());
    assert!(told.contains("results not observed for 60s"), "{told}");
    assert!(told.contains("sessions and owners not observed for 60s"), "{told}");
    // Observed again, it is one.
    let again = [unowned(None), look(NOW_MS + 95_000, 1)];
    assert_eq!(again.into_iter().flat_map(|it| judge.observe(it)).count(), 1);
}

#[test]
fn strangers_cause_no_finding_and_fill_no_memory() {
    for line in [
        "",
        "{",
        "[]",
        "{}",
        "null",
        r#"{"type":"result"}"#,
        r#"{"type":"result","endpoint":"e","instance":"a","startedAtMs":1,"fence":-1}"#,
        r#"{"type":"result","endpoint":"e","instance":"a","startedAtMs":1,"fence":9000000000000000}"#,
        r#"{"type":"result","endpoint":"e","instance":"","startedAtMs":1,"fence":1}"#,
        r#"{"type":"result","endpoint":"a b","instance":"a","startedAtMs":1,"fence":1}"#,
        r#"{"type":"look","serverTimeMs":"1"}"#,
        r#"{"type":"unobserved","source":"x","forMs":1}"#,
    ] {
        assert_eq!(decode(line.as_bytes()), Some(Observation::Foreign), "{line}");
    }
    let long = format!(r#"{{"type":"look","x":"{}"}}"#, "x".repeat(record::LINE_MAX_BYTES));
    assert_eq!(decode(long.as_bytes()), Some(Observation::Foreign));
    let started = br#"{"type":"lease","event":"started","endpoint":"","instance":"a"}"#;
    assert_eq!(decode(started), None);
    let mut judge = Judge::default();
    let extreme = Holder { fence: FenceToken(FENCE_END - 1), instance: InstanceId::new("a") };
    for n in 0..ENDPOINTS_MAX as u64 + 10 {
        let poll =
            Poll { holder: extreme.clone(), started_at_ms: u64::MAX - n, duration_ms: u64::MAX };
        let (endpoint, read) = (id(&format!("e{n}")), Read::Announced);
        assert_eq!(judge.observe(Observation::Result { endpoint, poll, read }), []);
    }
    assert!(judge.n_endpoints() <= ENDPOINTS_MAX && judge.counts().forgotten > 0);
}

/// Random fleets that keep their promises: owners follow one another, each estimates the server's clock with its own error, results
/// and entries are lost, and entries are written late and in any order.
#[test]
fn a_fleet_that_keeps_its_promises_causes_no_finding() {
    let mut state = 42_u64;
    let mut random = |n: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for _ in 0..200 {
        let (mut observed, mut entries) = (vec![], vec![]);
        let mut now = NOW_MS;
        for tenure in 0..20 {
            let owner = of(&format!("i{}", tenure % 3), now);
            entries.push((random(3_000), lease("acquired", &owner, now)));
            // The request that its estimate rests on took this long.
            let ahead = random(1_000);
            let mut last = 0;
            for _ in 0..random(5) {
                now += random(3_000);
                let took = random(12_000);
                // The estimate may also be a little behind, and durations are 3 % wrong.
                let start = (now + ahead - random(30)).max(last + 1);
                last = start;
                now += took;
                let told = took + took * random(4) / 100;
                if random(10) > 0 {
                    observed.push(result(&owner, start, told));
                }
            }
            // An owner that was frozen notes its loss long after the next grant.
            entries.push((random(100_000), lease("lost", &owner, now + random(90_000))));
            // The next grant may follow at once.
            now += 1 + random(2) * random(40_000);
        }
        entries.sort_by_key(|it| it.0);
        entries.retain(|_| random(10) > 0);
        let entries = entries.into_iter().map(|it| it.1);
        // The streams are read on connections of their own.
        let mut mixed = vec![];
        let (mut results, mut entries) = (observed.into_iter().peekable(), entries.peekable());
        while results.peek().is_some() || entries.peek().is_some() {
            mixed.extend(if random(2) == 0 { results.next() } else { entries.next() });
        }
        assert_eq!(kinds(&mixed), []);
    }
}
