//! One question about a name at a time: threads that ask for the same lease at once share an answer.
//!
//! Every acquire is a new grant with a new fence (R7). So of two that are on their way at once one would end the
//! tenure of the other, and who has been told "yes" would be left with a fence that is too old.

use fnv::FnvHashMap;
use parking_lot::{Condvar, Mutex};

use crate::model::EndpointId;
use crate::store::StoreError;

type Answer = Result<bool, StoreError>;

/// The questions that are on their way, by name.
#[derive(Default)]
pub(super) struct Turns {
    names: Mutex<FnvHashMap<EndpointId, Name>>,
    /// A question was answered, or given up.
    ended: Condvar,
}

/// Exists while a thread asks or waits.
#[derive(Default)]
struct Name {
    /// How many threads ask or wait.
    threads: usize,
    /// The number of the last question that was begun.
    begun: u64,
    is_asking: bool,
    /// The number of the last question that was answered, and its answer.
    answered: Option<(u64, Answer)>,
}

impl Turns {
    /// What `known` says, as soon as it says anything; otherwise the answer of a question that began after this
    /// call: an earlier one may be about what was before. Asks itself if nobody else does. So nobody waits for more than two
    /// questions, unless what was granted is released at once.
    pub(super) fn ask(
        &self,
        endpoint: &EndpointId,
        known: impl Fn() -> Option<bool>,
        ask: impl FnOnce() -> Answer,
    ) -> Answer {
        let turn = self.join(endpoint);
        let mut names = self.names.lock();
        while let Some(name) = names.get_mut(endpoint) {
            if let Some(known) = known() {
                return Ok(known);
            }
            if name.is_asking {
                self.ended.wait(&mut names);
                continue;
            }
            match &name.answered {
                // A yes is for the table to say: it may have been released since.
                Some((number, Ok(false) | Err(_))) if *number > turn.joined_at => {
                    return name.answered.clone().map_or(Ok(false), |it| it.1);
                }
                _ => (),
            }
            name.begun += 1;
            name.is_asking = true;
            break;
        }
        drop(names);
        turn.finish(ask)
    }

    fn join<'a>(&'a self, endpoint: &'a EndpointId) -> Turn<'a> {
        let mut names = self.names.lock();
        let name = names.entry(endpoint.clone()).or_default();
        name.threads += 1;
        Turn { turns: self, endpoint, joined_at: name.begun, asks: false }
    }
}

/// A thread that asks or waits. Its end is noted in any case, also when what it calls panics.
struct Turn<'a> {
    turns: &'a Turns,
    endpoint: &'a EndpointId,
    /// The number of the last question that had begun when it came.
    joined_at: u64,
    asks: bool,
}

impl Turn<'_> {
    fn finish(mut self, ask: impl FnOnce() -> Answer) -> Answer {
        self.asks = true;
        let answer = ask();
        if let Some(name) = self.turns.names.lock().get_mut(self.endpoint) {
            name.answered = Some((name.begun, answer.clone()));
        }
        answer
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut names = self.turns.names.lock();
        let Some(name) = names.get_mut(self.endpoint) else { return };
        name.threads -= 1;
        if self.asks {
            name.is_asking = false;
        }
        if name.threads == 0 {
            names.remove(self.endpoint);
        }
        drop(names);
        if self.asks {
            self.turns.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use crossbeam_channel::{Receiver, bounded};

    use super::*;
    use crate::clock::{BootClock, Clock};

    /// For what happens at once, or never.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn endpoint() -> EndpointId {
        EndpointId::parse("e").unwrap()
    }

    #[test]
    fn nothing_is_left_when_nobody_asks() {
        let turns = Turns::default();
        let e = endpoint();
        assert!(!turns.ask(&e, || None, || Ok(false)).unwrap());
        assert!(turns.ask(&e, || Some(true), || Ok(false)).unwrap());
        assert!(turns.names.lock().is_empty());
    }

    type Ask = Box<dyn FnOnce() -> Answer + Send>;

    /// A thread that asks; what it is told comes through the channel. Not joined: one that waits for ever must not
    /// keep a test from failing.
    fn run(turns: &Arc<Turns>, ask: Ask) -> Receiver<Answer> {
        let (told, answer) = bounded(1);
        let turns = Arc::clone(turns);
        let body = move || drop(told.send(turns.ask(&endpoint(), || None, ask)));
        std::thread::Builder::new().spawn(body).unwrap();
        answer
    }

    /// Until this many threads are there, and one of them asks.
    fn wait_for(turns: &Turns, threads: usize) {
        let asking = |it: &Name| if it.is_asking { it.threads } else { 0 };
        let joined = || turns.names.lock().get(&endpoint()).map_or(0, asking);
        let late = BootClock.now() + PATIENCE;
        while joined() != threads {
            assert!(BootClock.now() < late, "{} threads ask, not {threads}", joined());
            std::thread::yield_now();
        }
    }

    /// A thread that comes while a question is on its way asks anew when that one is refused: the refusal may be
    /// older than its own question.
    #[test]
    fn a_refusal_from_before_is_no_answer_and_a_later_one_is_for_all() {
        let turns = Arc::new(Turns::default());
        let (go_on, may_go_on) = bounded::<()>(0);
        let refused = move || {
            let _ = may_go_on.recv_timeout(PATIENCE);
            Ok(false)
        };
        let first = run(&turns, Box::new(refused));
        wait_for(&turns, 1);
        let asked = Arc::new(AtomicUsize::new(0));
        let later: Vec<_> = (0..3)
            .map(|_| {
                let (same, asked) = (Arc::clone(&turns), Arc::clone(&asked));
                let ask = move || {
                    asked.fetch_add(1, Ordering::SeqCst);
                    wait_for(&same, 3); // the first has its own answer, and is gone
                    Ok(false)
                };
                run(&turns, Box::new(ask))
            })
            .collect();
        wait_for(&turns, 4);
        drop(go_on);
        for answer in std::iter::once(first).chain(later) {
            assert!(!answer.recv_timeout(PATIENCE).expect("an answer").unwrap());
        }
        let asked = asked.load(Ordering::SeqCst);
        assert_eq!(asked, 1, "one of the three asks, and the others hear of it");
    }

    #[test]
    fn a_question_that_panics_holds_up_nobody() {
        let turns = Arc::new(Turns::default());
        let (go_on, may_go_on) = bounded::<()>(0);
        let panics = move || -> Answer {
            let _ = may_go_on.recv_timeout(PATIENCE);
            panic!("deliberately");
        };
        let first = run(&turns, Box::new(panics));
        wait_for(&turns, 1);
        let second = run(&turns, Box::new(|| Ok(true)));
        drop(go_on);
        assert!(first.recv_timeout(PATIENCE).is_err(), "it panicked");
        assert!(second.recv_timeout(PATIENCE).expect("the second asks itself").unwrap());
    }
}
