//! One leader per role. An election is a lease whose name is a role: the same scripts, deadlines and
//! hold-off, and the fence is called *term*.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::LeaderElection;
//!
//! let election = LeaderElection::builder("cleanup")?.redis("redis://127.0.0.1:6379")?.start()?;
//! loop {
//!     // Only on the leader; the role is not handed over before the closure has ended.
//!     election.run_if_leader(|duty| println!("cleaning up in term {}", duty.term()));
//!     # break;
//! }
//! # Ok(()) }
//! ```
//!
//! Does not fence what a leader does: send [`Duty::term`] along with every effect that must not come from a
//! leader of the past. A leader that was frozen can be in the middle of something when it wakes; it learns
//! from [`LeaderElection::is_leader`] that it leads no more, but nobody can call back what it had begun.

mod builder;
mod settings;
pub mod parts;
pub mod role_elector;
mod duty;
pub mod elector;
mod heirs;
pub mod runtime;
mod listeners;
pub mod role_state;
mod rounds;

use std::io;
use std::time::Duration;
use std::{fmt, sync::Arc};

use crossbeam_channel::Receiver;

use crate::model::{FenceToken, InstanceId, Role};

pub use crate::election::builder::{BuildError, ElectionBuilder};
pub use crate::election::duty::Duty;
pub use crate::election::listeners::Registration;
pub use crate::election::role_state::RoleState;
pub use crate::election::runtime::{Elections, RoleConnections};
pub use crate::election::settings::ElectionSettings;

/// What this instance is for a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Another leads, or this one cannot or will not.
    Follower,
    /// Nobody leads, and this one stands.
    Candidate,
    /// This one leads.
    Leader,
}

/// Why a leadership ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// It could not be renewed in time.
    Expired,
    /// Another instance leads.
    Taken(InstanceId),
    /// It is gone and cannot be reclaimed.
    Gone,
    /// It was given up.
    Resigned,
}

/// What listeners are told, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionEvent {
    /// Told of every change of state, before what follows from it.
    StateChanged {
        /// Of which role.
        role: Role,
        /// What it was.
        from: State,
        /// What it is.
        to: State,
    },
    /// This instance leads.
    LeadershipAcquired {
        /// Which role.
        role: Role,
        /// Under which term.
        term: FenceToken,
    },
    /// This instance leads no more.
    LeadershipLost {
        /// Which role.
        role: Role,
        /// The term that is over.
        term: FenceToken,
        /// Why.
        reason: LossReason,
    },
    /// This instance stood, and was not elected.
    ElectionFailed {
        /// For which role.
        role: Role,
        /// Who was, if anybody.
        winner: Option<InstanceId>,
        /// Why, in a sentence.
        reason: String,
    },
}

/// An instance that stands for a role until it is stopped or dropped.
pub struct LeaderElection {
    role_state: Arc<RoleState>,
    ended: Receiver<()>,
    // After the state of the role: the threads that keep it must outlive it.
    elections: Elections,
}

impl LeaderElection {
    /// Stands for `role`, with every setting at its default.
    pub fn builder(role: &str) -> Result<ElectionBuilder, BuildError> {
        ElectionBuilder::new(role)
    }

    pub(crate) fn new(
        role_state: Arc<RoleState>,
        elections: Elections,
        ended: Receiver<()>,
    ) -> Self {
        Self { role_state, ended, elections }
    }

    /// Whether this instance may act as the leader, right now. Never true after the role could have moved;
    /// false also while a renewal has gone unanswered, until one is answered.
    pub fn is_leader(&self) -> bool {
        self.role_state.is_leader()
    }

    /// What this instance is.
    pub fn state(&self) -> State {
        self.role_state.state()
    }

    /// The term it leads under, while [`Self::is_leader`].
    pub fn term(&self) -> Option<FenceToken> {
        self.role_state.term()
    }

    /// Asks for [`Self::term`] from elsewhere, also when this is gone.
    pub fn term_teller(&self) -> impl Fn() -> Option<FenceToken> + Send + 'static {
        let role_state = Arc::downgrade(&self.role_state);
        move || role_state.upgrade()?.term()
    }

    /// Who leads, as far as known.
    pub fn leader(&self) -> Option<InstanceId> {
        self.role_state.leader()
    }

    /// What it stands for.
    pub fn role(&self) -> &Role {
        self.role_state.role()
    }

    /// Who stands.
    pub fn instance_id(&self) -> &InstanceId {
        self.elections.instance_id()
    }

    /// Calls `listener` for every event from now on, in order, on a thread of its own. It may take its time. It is
    /// first told what is the case, as if it had listened from the beginning: nothing while this instance follows, the
    /// change of state while it stands, and the leadership with its term while it leads.
    pub fn listen(
        &self,
        listener: impl FnMut(&ElectionEvent) + Send + 'static,
    ) -> io::Result<Registration> {
        self.role_state.listen(listener)
    }

    /// The same on the thread that caused the event. Keep it short: nothing is elected, renewed or ended
    /// meanwhile, for any role of these [`Elections`]. Do not stop the election in it, nor begin another:
    /// both wait for the thread it runs on.
    pub fn listen_inline(
        &self,
        listener: impl FnMut(&ElectionEvent) + Send + 'static,
    ) -> Registration {
        self.role_state.listen_inline(listener)
    }

    /// Runs `work` if this instance leads; `None` if not. The role is not handed over before it has ended,
    /// but it can be lost: `work` asks [`Duty::holds`] before each effect.
    pub fn run_if_leader<T>(&self, work: impl FnOnce(&Duty) -> T) -> Option<T> {
        self.enter().map(|duty| work(&duty))
    }

    /// Begins some of the leader's work, for whom a closure is too narrow.
    pub fn enter(&self) -> Option<Duty> {
        self.role_state.enter().map(|it| it.kept_by(&self.elections))
    }

    /// Waits until this instance leads, at most for the given time; false if it does not.
    pub fn wait_for_leadership(&self, timeout: Duration) -> bool {
        self.role_state.wait_for_leadership(timeout)
    }

    /// Gives the role up, for another instance to lead: it stands again after two seconds, or once another has led. Nothing
    /// if it does not lead. What runs under [`Self::run_if_leader`] ends before it is given back.
    pub fn resign(&self) {
        self.role_state.resign(None);
    }

    /// Gives the role up and stands no more. Dropping does the same. Waits for the work under
    /// [`Self::run_if_leader`] or a [`Duty`], but at most until the deadline that the leadership has at this moment (at
    /// most a TTL): the caller may itself be that work. The role is given back when the work ends, in any case.
    /// While Redis does not answer, all elections of a process together wait for one store timeout.
    pub fn stop(self) {}
}

impl Drop for LeaderElection {
    fn drop(&mut self) {
        self.role_state.stop();
        self.elections.wait_for_end(&self.role_state, &self.ended);
        self.role_state.listeners.close();
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaderElection({}, {:?})", self.role(), self.state())
    }
}

/// A leadership that was won in a single attempt. Dropping it resigns.
#[derive(Debug)]
pub struct Leadership {
    election: LeaderElection,
}

impl Leadership {
    pub(crate) fn of(election: LeaderElection) -> Self {
        Self { election }
    }

    /// Whether an effect may happen now. Once lost it does not come back.
    pub fn holds(&self) -> bool {
        self.election.is_leader()
    }

    /// The term, while it holds.
    pub fn term(&self) -> Option<FenceToken> {
        self.election.term()
    }

    /// The election it was won in.
    pub fn election(&self) -> &LeaderElection {
        &self.election
    }
}
