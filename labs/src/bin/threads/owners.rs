//! Two managers, 32 threads each, 16 names; a third of the grants is released at once, the rest a little later.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::clock::BootClock;
use leasehold::lease::keeper::Connections;
use leasehold::model::InstanceId;
use leasehold::{EndpointId, LeaseManager};
use std::sync::Arc;

use testkit::cluster::{endpoint, random};
use testkit::redis::RedisServer;

const THREADS: u64 = 64;
const NAMES: u64 = 16;

#[derive(Default)]
struct Counts {
    grants: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
    /// Grants under which both managers were seen to own the name.
    overlaps: AtomicU64,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn run(redis: &RedisServer, time: Duration) -> Vec<String> {
    let config = crate::config(redis);
    let manager = |name: &str| {
        let (me, lines) = (InstanceId::generate_now(name), Connections::redis(&config));
        LeaseManager::start_on(&config, me, &lines, Arc::new(BootClock)).unwrap()
    };
    let managers = [manager("a"), manager("b")];
    let (rounds, wrong_answers) = ask_together(&managers[0], time / 6);
    println!("  {rounds} rounds of {THREADS} threads that ask for one name: {wrong_answers} wrong");
    let counts = Counts::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (managers, counts) = (&managers, &counts);
            scope.spawn(move || hold_and_release(managers, thread, time, counts));
        }
    });
    let Counts { grants, refused, unanswered, overlaps } = &counts;
    let [grants, refused, unanswered, overlaps] =
        [grants, refused, unanswered, overlaps].map(|it| it.load(Ordering::Relaxed));
    println!(
        "  {grants} grants, {refused} refusals, {unanswered} without an answer; {overlaps} \
         grants were seen to be owned by both"
    );
    let mut wrong = Vec::new();
    if wrong_answers > 0 {
        wrong.push(format!("{wrong_answers} of {rounds} rounds had wrong answers"));
    }
    if overlaps > 0 {
        wrong.push(format!("{overlaps} of {grants} grants had two owners"));
    }
    if grants == 0 {
        wrong.push("nothing was granted".into());
    }
    wrong
}

/// Everybody asks one manager for the same new name: all are to be told yes, and the same fence.
fn ask_together(manager: &LeaseManager, time: Duration) -> (u64, u64) {
    let began = Instant::now();
    let (mut rounds, mut wrong) = (0, 0);
    while began.elapsed() < time {
        let name = endpoint(&format!("round-{rounds}"));
        let ready = Barrier::new(THREADS as usize);
        let ask = || {
            ready.wait();
            let told = manager.try_acquire(&name).ok();
            (told, manager.fence(&name))
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let fence = manager.fence(&name);
        rounds += 1;
        // On a machine that stands still for a second nothing can be said.
        if fence.is_some() && answers.iter().any(|it| *it != (Some(true), fence)) {
            wrong += 1;
        }
        let _ = manager.release(&name);
    }
    (rounds, wrong)
}

fn hold_and_release(managers: &[LeaseManager; 2], thread: u64, time: Duration, counts: &Counts) {
    let began = Instant::now();
    let mut random = random(thread + 1);
    let (mine, other) = (thread as usize % 2, (thread as usize + 1) % 2);
    let (mine, other) = (&managers[mine], &managers[other]);
    while began.elapsed() < time {
        let name = endpoint(&format!("name-{}", random(NAMES)));
        match mine.try_acquire(&name) {
            Ok(true) => add(&counts.grants),
            Ok(false) => {
                add(&counts.refused);
                std::thread::yield_now();
                continue;
            }
            Err(_) => {
                add(&counts.unanswered);
                continue;
            }
        }
        let mut both = both_own(mine, other, &name);
        if random(3) > 0 {
            for _ in 0..random(4) {
                std::thread::sleep(Duration::from_millis(1));
                both |= both_own(mine, other, &name);
            }
        }
        if both {
            add(&counts.overlaps);
        }
        let _ = mine.release(&name);
    }
}

/// One fence before and after: then it was owned all the time in between, when the other was asked.
fn both_own(mine: &LeaseManager, other: &LeaseManager, name: &EndpointId) -> bool {
    let before = mine.fence(name);
    let theirs = other.is_owned(name);
    theirs && before.is_some() && before == mine.fence(name)
}
