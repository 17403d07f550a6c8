//! A short run of the simulator, and of the explorer of the small case; `make sim` is the long one.

use std::ops::Range;

use testkit::simulation::explorer::{Budget, Case, Weakness, explore};
use testkit::simulation::play;

/// In a debug build some seconds; a release build plays more than a hundred times as many in that time.
const SEEDS: Range<u64> = 0..12;
const FAULTS: u64 = 20;

/// Seeds that once ended badly, with the number of faults they were played with. What they found has a test of
/// its own, because a story changes with everything that changes the number of steps.
const FOUND: [(u64, u64); 5] = [
    // An instance that slept unawares while a new epoch began did not notice: `lease::epoch_tracker`.
    (21, 40),
    (1_176, 40),
    // An instance that had slept kept what the store had under its name: `protocol::rules::r6_*`.
    (55_277, 20),
    // The heir had a stale view and never asked: `overlooked`, `fleet/reconcile/stalled_handover.rs`.
    (203_736, 40),
    (94_991, 20),
];

/// Plays these on a stack that has room for steps on top of each other, and names those that end badly.
fn play_all(seeds: impl Iterator<Item = (u64, u64)> + Send + 'static) {
    let body = move || {
        let outcomes = seeds.map(|(seed, faults)| (faults, play(seed, faults, false)));
        let failed = outcomes.filter_map(|(faults, it)| {
            Some(format!("make sim SEED={} FAULTS={faults}: {}", it.seed, it.failure?))
        });
        failed.collect::<Vec<_>>()
    };
    let thread = std::thread::Builder::new().stack_size(256 << 20).spawn(body).unwrap();
    let failed = thread.join().expect("no panic");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// G1, G2, G3 and one leader at every step; G4 to G7 and liveness when nothing goes wrong any more.
#[test]
fn whatever_goes_wrong_by_chance_every_promise_is_kept() {
    play_all(SEEDS.map(|it| (it, FAULTS)));
}

#[test]
fn what_the_simulation_once_found_stays_found() {
    play_all(FOUND.into_iter());
}

#[test]
fn a_seed_is_the_same_story_every_time() {
    let body = || {
        let [one, two] = [play(3, 10, true), play(3, 10, true)];
        assert!(one.steps > 1_000 && one.trace.len() > 100, "{} steps", one.steps);
        assert!(one.judged.changes > 10, "{} changes of a verdict are judged", one.judged.changes);
        assert_eq!((one.steps, one.trace), (two.steps, two.trace));
    };
    std::thread::Builder::new().stack_size(256 << 20).spawn(body).unwrap().join().unwrap();
}

/// What a debug build goes through in seconds; `make explore` looks further.
const SMALL: [Budget; 2] =
    [Budget { events: 2, ticks: 6, faults: 0 }, Budget { events: 2, ticks: 2, faults: 1 }];

/// A revocation, the last verification before it, and a takeover after it.
const REVOKED: Budget = Budget { events: 3, ticks: 3, faults: 0 };

#[test]
fn no_interleaving_of_the_small_case_has_two_owners() {
    for (budget, is_revocable) in [(SMALL[0], false), (SMALL[1], false), (REVOKED, true)] {
        let found = explore(budget, Case { is_revocable, weakness: Weakness::None });
        println!("{} states, {} interleavings", found.states, found.interleavings);
        assert_eq!(found.counterexample, None);
        assert!(found.states > 500, "{found:?}");
    }
}

/// The explorer sees what is there to be seen.
#[test]
fn a_weakened_protocol_has_two_owners_and_the_explorer_finds_them() {
    let case = |is_revocable, weakness| Case { is_revocable, weakness };
    for (budget, case) in [
        (SMALL[0], case(false, Weakness::FastServer)),
        (SMALL[1], case(false, Weakness::FalseNewFleet)),
        (REVOKED, case(true, Weakness::HastyTakeover)),
    ] {
        let (found, weakness) = (explore(budget, case), case.weakness);
        assert!(found.counterexample.is_some(), "{weakness:?}: {} states", found.states);
    }
}
