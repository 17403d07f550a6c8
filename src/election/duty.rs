//! May a leader's work go on? A [`Duty`] delays the release of the role while the work runs. Reads only memory and the clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::election::role_state::RoleState;
use crate::election::runtime::Elections;
use crate::model::{FenceToken, Tenure};

/// Some of a leader's work, under way: the role is not given back before this is dropped. It can still be
/// lost; the worker asks [`Duty::holds`], or stops when [`Duty::remaining`] is over. Dropping the last handle of an election's
/// threads waits for them, at most a store timeout and a second.
#[must_use = "the role may be handed over once it is dropped"]
pub struct Duty {
    role_state: Arc<RoleState>,
    tenure: Tenure,
    /// Keeps the role while the work goes on, and gives it back after it, also when the election is gone.
    keeper: Option<Elections>,
}

impl Duty {
    pub(crate) fn new(role_state: Arc<RoleState>, tenure: Tenure) -> Self {
        Self { role_state, tenure, keeper: None }
    }

    pub(crate) fn kept_by(self, keeper: Option<&Elections>) -> Self {
        let mut duty = self;
        duty.keeper = keeper.cloned();
        duty
    }

    /// The term of this leadership. Send it along with every effect.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// election.run_if_leader(|duty| println!("DELETE … WHERE last_term < {}", duty.term()));
    /// # Ok(()) }
    /// ```
    pub fn term(&self) -> FenceToken {
        self.tenure.fence
    }

    /// Whether this instance still leads, so that an effect may happen now.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// # let files: Vec<std::path::PathBuf> = Vec::new();
    /// election.run_if_leader(|duty| {
    ///     for file in files.iter().take_while(|_| duty.holds()) {
    ///         println!("removes {}", file.display());
    ///     }
    /// });
    /// # Ok(()) }
    /// ```
    pub fn holds(&self) -> bool {
        self.role_state.term() == Some(self.tenure.fence)
    }

    /// How long this leadership lasts unless it is renewed; nothing when it does not hold. Do not begin an effect that takes
    /// longer.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// election.run_if_leader(|duty| println!("the request may take {:?}", duty.remaining()));
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        let deadline = self.deadline().filter(|_| self.holds());
        deadline.map_or(Duration::ZERO, |it| it.since(self.role_state.table().now()))
    }

    /// When this leadership ends unless it is renewed; `None` when it has ended or is being given up.
    #[doc(hidden)]
    pub fn deadline(&self) -> Option<Moment> {
        let held = self.role_state.table().holding(self.role_state.role().as_lease());
        held.filter(|it| it.fence == self.tenure.fence && !it.draining).map(|it| it.deadline)
    }
}

#[cfg(feature = "cli")]
impl Duty {
    /// Whether the role is being given up, and waits only for the end of this work.
    pub(crate) fn is_leaving(&self) -> bool {
        let held = self.role_state.table().holding(self.role_state.role().as_lease());
        held.is_some_and(|it| it.fence == self.tenure.fence && it.draining)
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        self.role_state.leave();
    }
}

impl fmt::Debug for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Duty({}, term {})", self.role_state.role(), self.tenure.fence)
    }
}
