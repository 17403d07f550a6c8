//! Two managers, 32 threads each, 16 names: guards, `with_lease` and batches, with waiting and without. A third of the guards is
//! given back at once, the rest a little later: by a drop, by a release of the guard, by the name, or in a batch.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::clock::BootClock;
use leasehold::lease::keeper::Connections;
use leasehold::model::InstanceId;
use leasehold::{Acquired, FenceToken, Lease, LeaseError, LeaseManager};
use std::sync::Arc;

use testkit::cluster::{endpoint, random};
use testkit::redis::RedisServer;

const THREADS: u64 = 64;
const NAMES: u64 = 16;
const WAIT: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Counts {
    grants: AtomicU64,
    releases: AtomicU64,
    /// Answers that cannot be right.
    wrong: AtomicU64,
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
    let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
    let (grants, wrong_told) = (count(&counts.grants), count(&counts.wrong));
    let (overlaps, fences_back) = (count(&counts.overlaps), count(&counts.fences_back));
    let [releases, refused, unanswered] =
        [&counts.releases, &counts.refused, &counts.unanswered].map(count);
    println!(
        "  {grants} grants by guards, scopes and batches, {refused} refusals, {releases} releases, \
         {unanswered} without an answer; {overlaps} grants were seen to be owned by both, \
         {fences_back} guards held behind a higher fence, {wrong_told} answers were wrong"
    );
    let mut wrong = Vec::new();
    if wrong_answers > 0 {
        wrong.push(format!("{wrong_answers} of {rounds} rounds had wrong answers"));
    }
    if wrong_told > 0 {
        wrong.push(format!("{wrong_told} answers were wrong"));
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

/// What one thread works with.
struct Hand<'a> {
    mine: &'a LeaseManager,
    other: &'a LeaseManager,
    highest: &'a [AtomicU64],
    counts: &'a Counts,
    random: Box<dyn FnMut(u64) -> u64 + 'a>,
}

fn hold_and_release(
    managers: &[LeaseManager; 2],
    thread: u64,
    time: Duration,
    highest: &[AtomicU64],
    counts: &Counts,
) {
    let began = Instant::now();
    let (mine, other) = (thread as usize % 2, (thread as usize + 1) % 2);
    let (mine, other) = (&managers[mine], &managers[other]);
    let mut hand = Hand { mine, other, highest, counts, random: Box::new(random(thread + 1)) };
    while began.elapsed() < time {
        match (hand.random)(8) {
            0 => hand.use_batch(),
            1 => hand.use_scope(),
            _ => hand.use_guard(),
        }
    }
}

impl Hand<'_> {
    fn some_name(&mut self) -> (usize, String) {
        let number = (self.random)(NAMES);
        (number as usize, format!("name-{number}"))
    }

    /// One in four waits a while, so that hand-overs between the managers are heard, too.
    fn patience(&mut self) -> Duration {
        if (self.random)(4) == 0 { WAIT } else { Duration::ZERO }
    }

    /// A guard, given back by its release, by its drop or by the name.
    fn use_guard(&mut self) {
        let (number, name) = self.some_name();
        let waits = self.patience();
        let Some(lease) = self.told(&name, self.mine.acquire(&name, waits)) else { return };
        self.hold(number, &lease);
        add(&self.counts.releases);
        let told = match (self.random)(8) {
            0 => self.mine.release(&name),
            1..4 => lease.release(),
            _ => return drop(lease),
        };
        if told.is_err() {
            add(&self.counts.unanswered);
        }
    }

    fn use_scope(&mut self) {
        let (number, name) = self.some_name();
        let (waits, manager) = (self.patience(), self.mine);
        let mut ran = 0;
        let told = manager.with_lease(&name, waits, |lease| {
            ran += 1;
            self.hold(number, lease);
            lease.fence()
        });
        match told {
            Ok(Some(_)) => add(&self.counts.grants),
            Ok(None) => add(&self.counts.refused),
            Err(_) => add(&self.counts.unanswered),
        }
        // It ran once, or not at all.
        if told.is_ok_and(|it| u32::from(it.is_some()) != ran) {
            add(&self.counts.wrong);
        }
    }

    /// A batch in which one name may stand twice.
    fn use_batch(&mut self) {
        let wanted: Vec<(usize, String)> = (0..4).map(|_| self.some_name()).collect();
        let told = self.mine.try_acquire_many(wanted.iter().map(|it| &it.1));
        if told.len() != wanted.len() {
            add(&self.counts.wrong);
        }
        let mut leases = Vec::new();
        for ((number, name), told) in wanted.iter().zip(told) {
            let Some(lease) = self.told(name, told) else { continue };
            self.hold(*number, &lease);
            leases.push(lease);
        }
        let guards = leases.len();
        let told = self.mine.release_many(leases);
        self.counts.releases.fetch_add(guards as u64, Ordering::Relaxed);
        if told.len() != guards {
            add(&self.counts.wrong);
        }
    }

    /// Counts an answer, and whether it can be right.
    fn told(&self, name: &str, told: Result<Acquired, LeaseError>) -> Option<Lease> {
        match told {
            Ok(Acquired::Held(lease)) => {
                add(&self.counts.grants);
                if lease.name() != name {
                    add(&self.counts.wrong);
                }
                return Some(lease);
            }
            Ok(Acquired::HeldBy(owner)) => {
                add(&self.counts.refused);
                if owner != *self.other.instance_id() {
                    add(&self.counts.wrong);
                }
            }
            Ok(_) => add(&self.counts.refused),
            Err(_) => add(&self.counts.unanswered),
        }
        std::thread::yield_now();
        None
    }

    /// Holds it for a moment, and looks whether the other manager owns it, too, and whether anything is told that is not so.
    fn hold(&mut self, number: usize, lease: &Lease) {
        let mut both = both_own(lease, self.other);
        // Seen before this guard was asked: then a guard with an older fence must be over.
        let before = self.highest[number].fetch_max(lease.fence().get(), Ordering::SeqCst);
        if before > lease.fence().get() && lease.holds() {
            add(&self.counts.fences_back);
        }
        // While the guard holds, its manager tells the same by the name.
        let (fence, left) = (self.mine.fence(lease.name()), lease.remaining());
        if lease.holds() && (fence != Some(lease.fence()) || left.is_zero()) {
            add(&self.counts.wrong);
        }
        if (self.random)(3) > 0 {
            for _ in 0..(self.random)(4) {
                std::thread::sleep(Duration::from_millis(1));
                both |= both_own(lease, self.other);
            }
        }
        if both {
            add(&self.counts.overlaps);
        }
    }
}

/// One guard holds before and after: then it held all the time in between, when the other was asked.
fn both_own(lease: &Lease, other: &LeaseManager) -> bool {
    lease.holds() && other.is_owned(lease.name()) && lease.holds()
}
