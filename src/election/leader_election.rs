//! Does this instance lead, who does otherwise, and how is that given up? The face of one election, for the threads of a program.

use std::io;
use std::time::Duration;
use std::{fmt, sync::Arc};

use crossbeam_channel::Receiver;

use crate::clock::{BootClock, Clock, Moment};
use crate::election::listeners::{PATIENCE as LISTENERS_PATIENCE, Registration};
use crate::election::{
    BuildError, Duty, ElectionBuilder, ElectionEvent, Elections, RoleState, State,
};
use crate::model::{FenceToken, InstanceId, Role};
use crate::thread::fail_stop::Failure;

/// An instance that stands for a role until it is stopped or dropped. Any number of threads may use it.
#[must_use = "dropping it gives the role up"]
pub struct LeaderElection {
    pub(super) role_state: Arc<RoleState>,
    ended: Receiver<()>,
    /// The threads that keep the role must outlive it. `None` once it was stopped.
    elections: Option<Elections>,
}

impl LeaderElection {
    /// Stands for `role`, with every setting at its default.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::LeaderElection;
    ///
    /// let election = LeaderElection::builder("cleanup")?.redis("redis://10.0.0.5:6379/0")?.start()?;
    /// # Ok(()) }
    /// ```
    pub fn builder(role: &str) -> Result<ElectionBuilder, BuildError> {
        ElectionBuilder::new(role)
    }

    pub(crate) fn new(
        role_state: Arc<RoleState>,
        elections: Elections,
        ended: Receiver<()>,
    ) -> Self {
        Self { role_state, ended, elections: Some(elections) }
    }

    /// Whether this instance may act as the leader, right now. Never true after the role could have moved;
    /// false also while a renewal has gone unanswered, until one is answered.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// if election.is_leader() {
    ///     println!("cleans up");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn is_leader(&self) -> bool {
        self.role_state.is_leader()
    }

    /// What this instance is.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// println!("{:?}", election.state()); // Follower, Candidate or Leader
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> State {
        self.role_state.state()
    }

    /// The term it leads under, while [`Self::is_leader`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// if let Some(term) = election.term() {
    ///     println!("leads in term {term}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn term(&self) -> Option<FenceToken> {
        self.role_state.term()
    }

    /// Asks for [`Self::term`] from elsewhere, also when this is gone.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// let term = election.term_teller();
    /// std::thread::spawn(move || println!("{:?}", term()));
    /// # Ok(()) }
    /// ```
    pub fn term_teller(&self) -> impl Fn() -> Option<FenceToken> + Send + 'static {
        let role_state = Arc::downgrade(&self.role_state);
        move || role_state.upgrade()?.term()
    }

    /// Who leads, as far as known.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// if let Some(leader) = election.leader() {
    ///     println!("{leader} cleans up");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn leader(&self) -> Option<InstanceId> {
        self.role_state.leader()
    }

    /// What it stands for.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// assert_eq!(election.role().as_str(), "cleanup");
    /// # Ok(()) }
    /// ```
    pub fn role(&self) -> &Role {
        self.role_state.role()
    }

    /// Who stands.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// println!("{}", election.instance_id());
    /// # Ok(()) }
    /// ```
    pub fn instance_id(&self) -> &InstanceId {
        self.role_state.table().instance()
    }

    /// The thread of the library that panicked, if one has (R12): from then on nothing is led here, and nobody stands. Stop this
    /// election, and start another.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// if let Some(failure) = election.failure() {
    ///     eprintln!("{failure}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn failure(&self) -> Option<&Failure> {
        self.elections.as_ref().and_then(Elections::failure)
    }

    /// Calls `listener` for every event from now on, in order, on a thread of its own. It may take its time. It is
    /// first told what is the case, as if it had listened from the beginning: nothing while this instance follows, the
    /// change of state while it stands, and the leadership with its term while it leads.
    /// [`ElectionBuilder::on_event`] registers a listener before anything can happen.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// let _stays = election.listen(|event| println!("{event:?}"))?;
    /// # Ok(()) }
    /// ```
    pub fn listen(
        &self,
        listener: impl FnMut(&ElectionEvent) + Send + 'static,
    ) -> io::Result<Registration> {
        self.role_state.listen(listener)
    }

    /// The same on the thread that caused the event. It is told what is the case on the thread that calls this, before this
    /// returns, unless another thread delivers an event at that moment: then by that thread. Keep it short: nothing is elected,
    /// renewed or ended meanwhile, for any role of these [`Elections`]. Do not stop the election in it, nor begin another:
    /// both wait for the thread it runs on.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// let (tell, events) = std::sync::mpsc::channel();
    /// let _stays = election.listen_inline(move |event| drop(tell.send(event.clone())));
    /// println!("{:?}", events.recv()?);
    /// # Ok(()) }
    /// ```
    pub fn listen_inline(
        &self,
        listener: impl FnMut(&ElectionEvent) + Send + 'static,
    ) -> Registration {
        self.role_state.listen_inline(listener)
    }

    /// Runs `work` if this instance leads; `None` if not. The role is not handed over before it has ended,
    /// but it can be lost: `work` asks [`Duty::holds`] before each effect.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// election.run_if_leader(|duty| println!("cleans up in term {}", duty.term()));
    /// # Ok(()) }
    /// ```
    pub fn run_if_leader<T>(&self, work: impl FnOnce(&Duty) -> T) -> Option<T> {
        self.enter().map(|duty| work(&duty))
    }

    /// Begins some of the leader's work, for whom a closure is too narrow.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// if let Some(duty) = election.enter() {
    ///     println!("cleans up, for at least {:?}", duty.remaining());
    /// } // the role may be handed over from here on
    /// # Ok(()) }
    /// ```
    pub fn enter(&self) -> Option<Duty> {
        self.role_state.enter().map(|it| it.kept_by(self.elections.as_ref()))
    }

    /// Waits until this instance leads, at most for the given time; false if it does not.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// if !election.wait_for_leadership(std::time::Duration::from_secs(60)) {
    ///     println!("still no leader after a minute: {:?} leads", election.leader());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn wait_for_leadership(&self, timeout: Duration) -> bool {
        self.role_state.wait_for_leadership(timeout)
    }

    /// Gives the role up, for another instance to lead: it stands again after two seconds, or once another has led. Nothing
    /// if it does not lead. What runs under [`Self::run_if_leader`] ends before it is given back. Does not wait.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// election.resign();
    /// # Ok(()) }
    /// ```
    pub fn resign(&self) {
        self.role_state.resign(None);
    }

    /// Gives the role up and stands no more. Dropping does the same.
    ///
    /// | it waits for | at most |
    /// |---|---|
    /// | the work under [`Self::run_if_leader`] or a [`Duty`] | until the deadline that the leadership has at this moment (at most a TTL): the caller may itself be that work. The role is given back when the work ends, in any case |
    /// | Redis | one store timeout and a second; all elections of a process together wait for it once |
    /// | listeners that still hear of it | 5 s |
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// election.stop();
    /// # Ok(()) }
    /// ```
    pub fn stop(self) {}

    /// [`Self::stop`], but waits at most `timeout`. True if Redis knows that this instance does not lead; false if Redis did not
    /// answer in time, or if work under a [`Duty`] still runs: the role is renewed until it ends, and given back then. Nothing is
    /// led any more when this returns, in any case: [`Duty::holds`] is false.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// let given_back = election.stop_within(std::time::Duration::from_millis(500));
    /// # let _ = given_back;
    /// # Ok(()) }
    /// ```
    pub fn stop_within(mut self, timeout: Duration) -> bool {
        self.end(Some(BootClock.now() + timeout))
    }

    /// Gives the role up, and waits until `until`, or for as long as [`Self::stop`] says. Nothing the second time.
    fn end(&mut self, until: Option<Moment>) -> bool {
        let Some(elections) = self.elections.take() else { return true };
        self.role_state.stop();
        let in_time = |longest: Duration| until.unwrap_or_else(|| BootClock.now() + longest);
        let end = in_time(self.role_state.patience());
        let is_given_back = elections.wait_for_end(&self.role_state, &self.ended, end);
        let patience = in_time(LISTENERS_PATIENCE).since(BootClock.now());
        self.role_state.listeners.close(patience);
        if let Some(until) = until {
            elections.end_by(until);
        }
        is_given_back
    }
}

impl Drop for LeaderElection {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaderElection({}, {:?})", self.role(), self.state())
    }
}
