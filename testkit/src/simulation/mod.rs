//! A whole fleet on one thread: the production steps on the in-memory store and a manual clock, with
//! everything that can go wrong, by chance. A seed is a story, the same every time.

pub mod electors;
pub mod explorer;
pub mod faults;
pub mod judge;
pub mod network;
pub mod member;
pub mod course;
pub mod scene;
pub mod trace;
pub mod world;

use std::time::Duration;

use crate::random::Random;
use scene::Scene;
use world::World;

/// What came of a seed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub seed: u64,
    pub failure: Option<String>,
    pub scene: String,
    pub trace: Vec<String>,
    /// Production steps and executed calls.
    pub steps: u64,
    pub calls: u64,
    pub polls: u64,
    pub grants: usize,
    pub judged: Judged,
    pub played: Duration,
    /// How long it took after the last fault until everything was owned, and in balance.
    pub owned_after: Duration,
    pub settled_after: Duration,
    /// The same in lives of a lease, times a hundred.
    pub settled_percent: u64,
    pub faults: Vec<u64>,
}

/// What the judge counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Judged {
    /// How often an instance noticed that its results get no answer.
    pub stuck: u64,
    /// How many changes of a verdict were announced.
    pub changes: u64,
}

/// Plays one seed: `faults` faults on average, then the checks at rest.
pub fn play(seed: u64, faults: u64, traced: bool) -> Outcome {
    let dice = Random::new(seed ^ 0x005c_e4e5);
    let scene = Scene::new(&dice, faults);
    let mut outcome = Outcome { seed, scene: format!("{scene:?}"), ..Outcome::default() };
    let world = World::begin(scene, seed, traced);
    course::run(&world, &mut outcome);
    outcome.failure = world.failure();
    outcome.steps = world.steps.get();
    outcome.calls = world.calls.get();
    outcome.polls = world.judge.polls.get();
    let (stuck, changes) = (world.judge.stuck.get(), world.judge.changes.get());
    outcome.judged = Judged { stuck, changes };
    outcome.grants = world.server.acquires().1;
    outcome.played = Duration::from_nanos(world.now() - world::START);
    outcome.faults = world.faults.counts.borrow().clone();
    outcome.trace = world.trace.lines();
    drop(world);
    World::end();
    outcome
}
