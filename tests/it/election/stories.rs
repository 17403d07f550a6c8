//! Random stories: everything that can happen, mixed; `pass` checks at every step.

use std::time::Duration;

use leasehold::election::ElectionEvent::{self, LeadershipAcquired, LeadershipLost, StateChanged};
use leasehold::election::ElectionSettings;
use leasehold::election::State;
use leasehold::store::memory::Mishap;

use testkit::cluster::{for_each_seed, random};
use testkit::electorate::{Electorate, MARGIN, TTL, UNKNOWN_HOLD_OFF, settings};
use testkit::process::ms;

const ROLES: [&str; 2] = ["r", "s"];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// A hold-off that began with the last fault, a lease that was granted at its end, a rest, and slack.
const SETTLED_WITHIN: Duration = Duration::from_secs(12).saturating_add(UNKNOWN_HOLD_OFF);

fn join(all: &mut Electorate, name: &str, next: &mut impl FnMut(u64) -> u64) {
    let rate = 986 + next(28);
    for role in ROLES {
        let priority = next(3) as u32;
        let startup_jitter = ms(next(2) * 400);
        let ttl = if role == "r" { TTL } else { TTL * 3 / 2 };
        let it = ElectionSettings { priority, startup_jitter, ttl, ..settings(role) };
        all.join_with(name, it, rate, false);
    }
}

/// What one listener was told makes sense by itself: each change from where the last one led, every
/// leadership begun once and ended once, before the next.
fn assert_sound(events: &[ElectionEvent]) {
    let (mut state, mut term) = (State::Follower, None);
    for event in events {
        match event {
            StateChanged { from, to, .. } => {
                assert_eq!(*from, state, "{events:#?}");
                assert_ne!(from, to, "{events:#?}");
                state = *to;
            }
            LeadershipAcquired { term: new, .. } => {
                assert_eq!((state, term), (State::Leader, None), "{events:#?}");
                term = Some(*new);
            }
            LeadershipLost { term: old, .. } => {
                assert_ne!(state, State::Leader, "{events:#?}");
                assert_eq!(term.take(), Some(*old), "{events:#?}");
            }
            ElectionEvent::ElectionFailed { .. } => {
                assert_eq!((state, term), (State::Candidate, None), "{events:#?}");
            }
            other => panic!("{other:?}: what does it mean?"),
        }
    }
    assert_eq!(state == State::Leader, term.is_some(), "{events:#?}");
}

/// Everything, many times. `LEASEHOLD_SEEDS=1..500` tries more.
#[test]
fn no_two_leaders_through_many_random_faults() {
    for_each_seed(through_random_faults);
}

fn through_random_faults(seed: u64) {
    let mut next = random(seed);
    let mut all = Electorate::empty();
    // As for fleets: a server that forgets *and* goes back in time may repeat a term ("Fences" in docs/protocol.md).
    let clock_goes_back = next(2) == 0;
    NAMES.iter().for_each(|it| join(&mut all, it, &mut next));
    all.pass(UNKNOWN_HOLD_OFF + 2 * TTL);
    let mut snapshot = all.server.snapshot();
    for _ in 0..60 {
        let name = NAMES[next(3) as usize];
        let role = ROLES[next(2) as usize];
        let fault = next(15);
        println!("seed {seed}: fault {fault}, {name}, {role}");
        match fault {
            0 => all.freeze(name, true),
            1 => all.cut_off(name, true),
            2 => snapshot = all.server.snapshot(),
            3 if !clock_goes_back => all.server.fail_over(&snapshot),
            4 if clock_goes_back => all.server.step_clock(-(next(4_000) as i64)),
            5 => all.crash(name),
            6 | 7 => {
                for op in ["acquire", "renew", "release", "role_statuses", "wake", "next_push"] {
                    let mishap = match next(4) {
                        0 => Mishap::LoseReply,
                        1 => Mishap::LoseRequest,
                        2 => Mishap::Slow(ms(next(120))),
                        _ => Mishap::ExecuteLate(ms(next(4_000))),
                    };
                    all.member(name).store.plan(op, mishap);
                }
            }
            8 if !clock_goes_back => {
                let kept = all.server.snapshot();
                all.server.crash();
                all.pass(ms(next(3_000)));
                let empty = next(2) == 0;
                all.server.restart((!empty).then_some(&kept));
            }
            9 => all.lose_messages(name, true),
            10 => all.resign(name, role),
            11 => all.stop(name),
            12 => all.sleep(name, ms(next(5_000))),
            13 if !clock_goes_back => all.server.flush(),
            _ => (),
        }
        for name in NAMES {
            if all.members.contains_key(name) && next(3) == 0 && !all.member(name).stands.is_empty()
            {
                for role in ROLES {
                    if all.member(name).stands.contains_key(role) {
                        all.work(name, role, ms(next(3_000)));
                    }
                }
            }
        }
        all.pass(ms(100 + next(2_500)));
        for name in NAMES {
            if !all.members.contains_key(name) {
                join(&mut all, name, &mut next);
            }
            all.freeze(name, false);
            all.cut_off(name, false);
            all.lose_messages(name, false);
            if all.member(name).stands.len() < ROLES.len() {
                // One of its roles has been given back already; the other follows.
                all.stop(name);
            }
        }
    }
    // An instance that stops may have work to end first.
    all.pass(TTL);
    for name in NAMES {
        if all.members.get(name).is_none_or(|it| it.stands.len() < ROLES.len()) {
            all.pass_until(2 * TTL, |it| !it.members.contains_key(name));
            join(&mut all, name, &mut next);
        }
    }
    for role in ROLES {
        all.pass_until(SETTLED_WITHIN, |it| it.leaders(role).len() == 1);
    }
    all.pass(3 * TTL + MARGIN);
    for role in ROLES {
        let leader = all.leader(role).expect("a settled role is led");
        let is_known = |it: &str| all.role_state(it, role).leader() == Some(all.id(&leader));
        assert!(NAMES.iter().all(|it| is_known(it)), "not all know that {leader} leads {role}");
    }
    // What was planned for a call that has not come yet may still get in the way of a higher priority,
    // once for each; then everything stays where it is.
    let is_still = (0..6).any(|_| {
        let (_, grants) = all.server.acquires();
        all.pass(4 * TTL);
        all.server.acquires().1 == grants
    });
    assert!(is_still, "a settled role moves");
    for member in all.members.values() {
        member.stands.values().for_each(|it| assert_sound(&it.events.lock()));
    }
}
