//! How does a program work while it leads, and only then? Calls the program when a leadership begins and when it ends.

use std::panic::resume_unwind;
use std::time::Duration;

use crate::clock::scheduler::Wait;
use crate::election::{Duty, LeaderElection};
use crate::lease::keeper::StartError;
use crate::model::FenceToken;
use crate::thread::Stop;

/// How often a thread that runs a leader's work looks whether it is told to stop, and whether the work has panicked.
const LOOK: Duration = Duration::from_millis(25);

impl LeaderElection {
    /// Calls `on_started` whenever this instance has become leader and `on_stopped` when that leadership has ended, until
    /// `until` is over.
    ///
    /// | what | where and when |
    /// |---|---|
    /// | `on_started(&duty)` | on a thread of its own, once for each term. It is the leader's work, and asks [`Duty::holds`] before each effect. |
    /// | `on_stopped(term)` | on the thread that called `run`, once for each `on_started`, as soon as the term has ended: lost, resigned, or because `until` is over. `on_started` may still run: this is the place to interrupt it. |
    /// | the role is given back | after a resignation, or when `until` is over, and not before `on_started` has returned. A role can still be *lost* meanwhile. |
    /// | `on_started` returns while this instance leads | the role is kept. `run` waits for the end of the term, and nothing delays a hand-over any more. |
    /// | `on_started` goes on after the end of its term | `run` waits for it: it calls `on_started` for no new term before, and does not return before. |
    /// | `on_started` panics | this instance resigns, `on_stopped` is called, and the panic goes on in the thread that called `run`. |
    ///
    /// Returns when `until` is over and `on_started` has returned, or after [`Elections::stop`](crate::Elections::stop). The election
    /// still stands then, and leads again two seconds later unless it is stopped. The error is
    /// [`StartError::Thread`] where no thread could be started, after a resignation, and [`StartError::Failed`] when a thread of
    /// the library has panicked: then nothing is led any more (R12).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{LeaderElection, Stop};
    ///
    /// let (source, until) = Stop::pair(); // drop the source, on any thread, to end this
    /// let election = LeaderElection::builder("cleanup")?.start()?;
    /// election.run(
    ///     &until,
    ///     |duty| {
    ///         while duty.holds() {
    ///             println!("cleans up one thing in term {}", duty.term());
    ///             # break;
    ///         }
    ///     },
    ///     |term| println!("term {term} is over"),
    /// )?;
    /// election.stop();
    /// # drop(source);
    /// # Ok(()) }
    /// ```
    pub fn run(
        &self,
        until: &Stop,
        mut on_started: impl FnMut(&Duty) + Send,
        mut on_stopped: impl FnMut(FenceToken),
    ) -> Result<(), StartError> {
        loop {
            if let Some(failure) = self.failure() {
                return Err(StartError::Failed(failure.clone()));
            }
            if until.is_over() || self.role_state.is_stopping() {
                return Ok(());
            }
            match self.enter() {
                Some(duty) => self.lead(until, duty, &mut on_started, &mut on_stopped)?,
                None => self.role_state.look_for_leadership(LOOK),
            }
        }
    }

    /// One term.
    fn lead(
        &self,
        until: &Stop,
        duty: Duty,
        on_started: &mut (impl FnMut(&Duty) + Send),
        on_stopped: &mut impl FnMut(FenceToken),
    ) -> Result<(), StartError> {
        let term = duty.term();
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("leading".into());
            let work = builder.spawn_scoped(scope, move || on_started(&duty));
            let mut work = Some(work.inspect_err(|_| self.resign())?);
            let mut panic = None;
            // A test's clock moves when `on_stopped` has returned.
            let call = Wait::begin(&*self.role_state.table().clock().0);
            while !self.role_state.wait_for_loss(term, LOOK) {
                if let Some(work) = work.take_if(|it| it.is_finished()) {
                    panic = work.join().err();
                }
                if panic.is_some() || until.is_over() {
                    self.resign();
                }
            }
            on_stopped(term);
            drop(call);
            let panic = panic.or_else(|| work.and_then(|it| it.join().err()));
            panic.map_or(Ok(()), |it| resume_unwind(it))
        })
    }
}
