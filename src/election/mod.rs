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
mod leader_election;
mod leadership;
pub mod runtime;
mod listeners;
pub mod role_state;
mod rounds;
mod run;
mod standing;

use crate::model::{FenceToken, InstanceId, Role};

pub use crate::election::builder::{BuildError, ElectionBuilder};
pub use crate::election::duty::Duty;
pub use crate::election::leader_election::LeaderElection;
pub use crate::election::leadership::{Attempt, Leadership};
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
#[non_exhaustive]
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
#[non_exhaustive]
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
