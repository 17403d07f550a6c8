//! Threads that want one name: who asks, who is told what, and who gives back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use crate::clock::scheduler::Wait;
use crate::clock::{BootClock, Clock};
use crate::lease::table::LeaseTimings;
use crate::manager::turns::*;
use crate::model::{Epoch, FenceToken, InstanceId, LeaseDuration};
use crate::store::{Acquire, Grant, HeartbeatReply, Reply, Stamp};

/// For what happens at once, or never.
const PATIENCE: Duration = Duration::from_secs(10);

fn endpoint() -> EndpointId {
    EndpointId::parse("e").unwrap()
}

fn owner() -> Refusal {
    Refusal::HeldBy(InstanceId::new("b"))
}

/// The table of an instance with a heartbeat, and the turns of its threads.
struct Process {
    table: OwnershipTable,
    turns: Turns,
}

fn reply<T>(answer: T) -> Reply<T> {
    let (epoch, hold_off) = (Epoch(1), Duration::ZERO);
    let stamp = Stamp { epoch, hold_off, server_us: 1, data_epoch: epoch, revoked_until_ms: None };
    Reply { stamp, answer: Some(answer) }
}

impl Process {
    fn new() -> Arc<Self> {
        let lease = LeaseDuration::new(Duration::from_secs(60));
        let (renew_interval, store_timeout) = (Duration::from_secs(20), Duration::from_secs(2));
        let timings = LeaseTimings { lease, heartbeat: lease, renew_interval, store_timeout };
        let (me, clock) = (InstanceId::new("a"), Arc::new(BootClock));
        let table = OwnershipTable::new(me, timings, clock, true);
        let beat = HeartbeatReply { unbroken: true, weight: crate::model::Weight(0) };
        table.heartbeat_answered(&table.request(), &reply(beat));
        Arc::new(Self { table, turns: Turns::default() })
    }

    fn grant(&self, fence: u64) -> Tenure {
        let (fence, grant) = (FenceToken(fence), Grant::Free);
        let answer = vec![Acquire::Granted { fence, grant }];
        self.table.granted(&self.table.request(), &[endpoint()], &reply(answer));
        Tenure::new(endpoint(), fence)
    }

    /// What a thread that wants the name is told; `ask` is its question.
    fn ask(&self, ask: impl FnOnce() -> Result<Tenure, Refused>) -> Result<Arc<Hold>, Refused> {
        let (mut place, mut ask) = (self.turns.join(&endpoint()), Some(ask));
        loop {
            match place.next(&self.table, &Wait::begin(&BootClock), &|| Moment::MIN) {
                Next::Hold(hold) => return Ok(hold),
                Next::Refused(told) => return Err(told),
                Next::Ask => match ask.take().expect("it asks once")() {
                    Ok(tenure) => assert!(place.granted(&self.table, &tenure)),
                    Err(told) => place.refused(told, None),
                },
            }
        }
    }

    fn part(&self, hold: &Arc<Hold>) -> &'static str {
        match self.turns.part(hold, &self.table) {
            Parted::Shared => "shared",
            Parted::Over => "over",
            Parted::Last(_) => "last",
        }
    }

    fn is_clean(&self) -> bool {
        self.turns.names.lock().is_empty()
    }
}

type Ask = Box<dyn FnOnce() -> Result<Tenure, Refused> + Send>;

/// A thread that asks; what it is told comes through the channel. Not joined: one that waits for ever must not
/// keep a test from failing.
fn run(process: &Arc<Process>, ask: Ask) -> Receiver<Result<Arc<Hold>, Refused>> {
    let (told, answer) = bounded(1);
    let process = Arc::clone(process);
    let body = move || drop(told.send(process.ask(ask)));
    std::thread::Builder::new().spawn(body).unwrap();
    answer
}

/// Until this many threads are in line, and one of them asks.
fn wait_for(process: &Process, threads: usize) {
    let asking = |it: &Name| if it.is_busy { it.line.len() } else { 0 };
    let joined = || process.turns.names.lock().get(&endpoint()).map_or(0, asking);
    let late = BootClock.now() + PATIENCE;
    while joined() != threads {
        assert!(BootClock.now() < late, "{} threads are in line, not {threads}", joined());
        std::thread::yield_now();
    }
}

#[test]
fn nothing_is_left_when_nobody_asks_or_holds() {
    let process = Process::new();
    assert!(matches!(process.ask(|| Err(Ok(owner()))), Err(Ok(it)) if it == owner()));
    assert!(process.is_clean());
    let hold = process.ask(|| Ok(process.grant(1))).unwrap();
    assert!(!process.is_clean());
    assert_eq!((process.part(&hold), process.is_clean()), ("last", true));
}

/// A thread that comes while a question is on its way asks anew when that question is refused: the refusal may be
/// older than its own question.
#[test]
fn a_refusal_from_before_is_no_answer_and_a_later_one_is_for_all() {
    let process = Process::new();
    let (go_on, may_go_on) = bounded::<()>(0);
    let refused = move || {
        let _ = may_go_on.recv_timeout(PATIENCE);
        Err(Ok(owner()))
    };
    let first = run(&process, Box::new(refused));
    wait_for(&process, 1);
    let asked = Arc::new(AtomicUsize::new(0));
    let later: Vec<_> = (0..3)
        .map(|_| {
            let (same, asked) = (Arc::clone(&process), Arc::clone(&asked));
            let ask = move || {
                asked.fetch_add(1, Ordering::SeqCst);
                wait_for(&same, 3); // the first has its own answer, and is gone
                Err(Ok(owner()))
            };
            run(&process, Box::new(ask))
        })
        .collect();
    wait_for(&process, 4);
    drop(go_on);
    for answer in std::iter::once(first).chain(later) {
        assert!(answer.recv_timeout(PATIENCE).expect("an answer").is_err());
    }
    let asked = asked.load(Ordering::SeqCst);
    assert_eq!(asked, 1, "one of the three asks, and the others hear of it");
}

/// No thread in line is overtaken: the grant is shared out before any of them runs again.
#[test]
fn a_grant_is_shared_by_every_thread_in_line_and_the_last_gives_it_back() {
    const THREADS: usize = 64;
    let process = Process::new();
    let (go_on, may_go_on) = bounded::<()>(0);
    let same = Arc::clone(&process);
    let granted = move || {
        let _ = may_go_on.recv_timeout(PATIENCE);
        Ok(same.grant(1))
    };
    let first = run(&process, Box::new(granted));
    wait_for(&process, 1);
    let never = || -> Ask { Box::new(|| panic!("the grant is for all")) };
    let others: Vec<_> = (1..THREADS).map(|_| run(&process, never())).collect();
    wait_for(&process, THREADS);
    drop(go_on);
    let told = std::iter::once(first).chain(others);
    let holds: Vec<_> =
        told.map(|it| it.recv_timeout(PATIENCE).expect("an answer").unwrap()).collect();
    let parted: Vec<_> = holds.iter().map(|it| process.part(it)).collect();
    assert!(parted[..THREADS - 1].iter().all(|it| *it == "shared"), "{parted:?}");
    assert_eq!(parted[THREADS - 1], "last");
    assert!(process.is_clean() && !process.table.holds(&endpoint()));
}

/// A thread that comes while the release is on its way gets no share of what is being given back.
#[test]
fn a_tenure_that_is_being_released_is_shared_with_nobody() {
    let process = Process::new();
    let hold = process.ask(|| Ok(process.grant(1))).unwrap();
    let Parted::Last(busy) = process.turns.part(&hold, &process.table) else { panic!("not last") };
    assert!(!process.table.is_usable(&hold.tenure) && hold.loss().is_none());
    let same = Arc::clone(&process);
    let newcomer = run(&process, Box::new(move || Ok(same.grant(5))));
    wait_for(&process, 1);
    assert!(newcomer.is_empty(), "it waits for the release");
    drop(busy);
    let newer = newcomer.recv_timeout(PATIENCE).expect("it asks anew").unwrap();
    assert_eq!(newer.tenure.fence, FenceToken(5));
    assert_eq!(process.part(&hold), "over", "an old guard ends nothing");
    assert!(process.table.is_usable(&newer.tenure) && !process.table.is_usable(&hold.tenure));
}

#[test]
fn a_guard_of_a_lost_tenure_is_never_good_again_and_gives_nothing_back() {
    let process = Process::new();
    let old = process.ask(|| Ok(process.grant(1))).unwrap();
    let gone = crate::lease::table::Loss::Gone;
    assert!(process.table.forget_tenure(&old.tenure));
    process.turns.lost(&Lost { tenure: old.tenure.clone(), loss: gone });
    assert!(old.loss().is_some() && old.wait_for_end(&process.table, PATIENCE));
    let new = process.ask(|| Ok(process.grant(2))).unwrap();
    assert!(process.table.is_usable(&new.tenure) && !process.table.is_usable(&old.tenure));
    assert_eq!(process.part(&old), "over");
    assert!(process.table.is_usable(&new.tenure));
    assert!(!new.wait_for_end(&process.table, Duration::ZERO));
    assert_eq!(process.part(&new), "last");
}

/// One that was granted, and panicked before it could say so, must not leave a lease that nobody can use.
#[test]
fn a_question_that_panics_holds_up_nobody_and_its_grant_is_not_wasted() {
    for is_granted in [false, true] {
        let process = Process::new();
        let (go_on, may_go_on) = bounded::<()>(0);
        let same = Arc::clone(&process);
        let panics = move || -> Result<Tenure, Refused> {
            let _ = may_go_on.recv_timeout(PATIENCE);
            if is_granted {
                same.grant(1);
            }
            panic!("deliberately");
        };
        let first = run(&process, Box::new(panics));
        wait_for(&process, 1);
        let same = Arc::clone(&process);
        let second = run(&process, Box::new(move || Ok(same.grant(2))));
        wait_for(&process, 2);
        drop(go_on);
        assert!(first.recv_timeout(PATIENCE).is_err(), "it panicked");
        let hold = second.recv_timeout(PATIENCE).expect("the second is answered").unwrap();
        assert_eq!(hold.tenure.fence, FenceToken(if is_granted { 1 } else { 2 }));
        assert_eq!((process.part(&hold), process.is_clean()), ("last", true));
    }
}

/// The answer to a question came, and the lease was lost before its threads were told.
#[test]
fn a_grant_that_has_ended_already_is_shared_with_nobody() {
    let process = Process::new();
    let mut place = process.turns.join(&endpoint());
    assert!(matches!(
        place.next(&process.table, &Wait::begin(&BootClock), &|| Moment::MIN),
        Next::Ask
    ));
    let tenure = process.grant(1);
    assert!(process.table.forget_tenure(&tenure));
    assert!(!place.granted(&process.table, &tenure));
    place.refused(Ok(Refusal::NotNow(NotNow::Late)), None);
    drop(place);
    assert!(process.is_clean());
}
