//! Two managers, 32 threads each, 16 names; a third of the guards is given back at once, the rest a little later: by a drop,
//! by a release of the guard, or by the name.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::clock::BootClock;
use leasehold::lease::keeper::Connections;
use leasehold::model::InstanceId;
use leasehold::{Acquired, FenceToken, Lease, LeaseManager};
use std::sync::Arc;

use testkit::cluster::{endpoint, random};
use testkit::redis::RedisServer;

const THREADS: u64 = 64;
const NAMES: u64 = 16;
const WAIT: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Counts {
    grants: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
    /// Grants under which both managers were seen to own the name.
    overlaps: AtomicU64,
    /// Guards that held although a higher fence of their name had been seen.
    fences_back: AtomicU64,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn run(redis: &RedisServer, time: Duration) -> Vec<String> {
    let config = crate::config(redis).checked().unwrap();
    let manager = |name: &str| {
        let (me, lines) = (InstanceId::generate_now(name), Connections::redis(&config));
        LeaseManager::start_on(&config, me, &lines, Arc::new(BootClock)).unwrap()
    };
    let managers = [manager("a"), manager("b")];
    let (rounds, wrong_answers) = ask_together(&managers[0], time / 6);
    println!("  {rounds} rounds of {THREADS} threads that ask for one name: {wrong_answers} wrong");
    let counts = Counts::default();
    let highest: Vec<AtomicU64> = (0..NAMES).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (managers, highest, counts) = (&managers, &highest, &counts);
            scope.spawn(move || hold_and_release(managers, thread, time, highest, counts));
        }
    });
    let Counts { grants, refused, unanswered, overlaps, fences_back } = &counts;
    let [grants, refused, unanswered, overlaps, fences_back] =
        [grants, refused, unanswered, overlaps, fences_back].map(|it| it.load(Ordering::Relaxed));
    println!(
        "  {grants} grants, {refused} refusals, {unanswered} without an answer; {overlaps} \
         grants were seen to be owned by both, {fences_back} guards held behind a higher fence"
    );
    let mut wrong = Vec::new();
    if wrong_answers > 0 {
        wrong.push(format!("{wrong_answers} of {rounds} rounds had wrong answers"));
    }
    if overlaps > 0 {
        wrong.push(format!("{overlaps} of {grants} grants had two owners"));
    }
    if fences_back > 0 {
        wrong.push(format!("{fences_back} guards held although a higher fence had been seen"));
    }
    let left: usize = managers.iter().map(|it| it.owned().len()).sum();
    if left > 0 {
        wrong.push(format!("{left} leases are held although no guard is left"));
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
            let lease = manager.try_acquire(&name).ok().and_then(Acquired::held);
            (lease, manager.fence(&name))
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let fence = manager.fence(&name);
        rounds += 1;
        // On a machine that stands still for a second nothing can be said.
        let is_right = |(lease, told): &(Option<Lease>, Option<FenceToken>)| {
            *told == fence && lease.as_ref().is_some_and(|it| Some(it.fence()) == fence)
        };
        if fence.is_some() && !answers.iter().all(is_right) {
            wrong += 1;
        }
        drop(answers);
        // The last guard is gone: a tenure that is left would be renewed for ever.
        if manager.owned().contains(&name) {
            wrong += 1;
        }
    }
    (rounds, wrong)
}

fn hold_and_release(
    managers: &[LeaseManager; 2],
    thread: u64,
    time: Duration,
    highest: &[AtomicU64],
    counts: &Counts,
) {
    let began = Instant::now();
    let mut random = random(thread + 1);
    let (mine, other) = (thread as usize % 2, (thread as usize + 1) % 2);
    let (mine, other) = (&managers[mine], &managers[other]);
    while began.elapsed() < time {
        let number = random(NAMES);
        let name = format!("name-{number}");
        // One in four waits a while, so that hand-overs between the managers are heard, too.
        let waits = if random(4) == 0 { WAIT } else { Duration::ZERO };
        let lease = match mine.acquire(&name, waits) {
            Ok(Acquired::Held(lease)) => lease,
            Ok(_) => {
                add(&counts.refused);
                std::thread::yield_now();
                continue;
            }
            Err(_) => {
                add(&counts.unanswered);
                continue;
            }
        };
        add(&counts.grants);
        let mut both = both_own(&lease, other);
        // Seen before this guard was asked: then a guard with an older fence must be over.
        let before = highest[number as usize].fetch_max(lease.fence().get(), Ordering::SeqCst);
        if before > lease.fence().get() && lease.holds() {
            add(&counts.fences_back);
        }
        if random(3) > 0 {
            for _ in 0..random(4) {
                std::thread::sleep(Duration::from_millis(1));
                both |= both_own(&lease, other);
            }
        }
        if both {
            add(&counts.overlaps);
        }
        match random(8) {
            0 => drop(mine.release(&name)),
            1..4 => drop(lease.release()),
            _ => drop(lease),
        }
    }
}

/// One guard holds before and after: then it held all the time in between, when the other was asked.
fn both_own(lease: &Lease, other: &LeaseManager) -> bool {
    lease.holds() && other.is_owned(lease.name()) && lease.holds()
}
