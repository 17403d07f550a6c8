//! What is a single attempt to lead answered with? A guard, the leader, or that the attempt was given up.

use std::fmt;
use std::time::Duration;

use crate::election::LeaderElection;
use crate::model::{FenceToken, InstanceId};

/// The answer to a single attempt to lead a role: [`ElectionBuilder::try_lead`](crate::ElectionBuilder::try_lead).
#[derive(Debug)]
#[must_use = "an answer that is dropped resigns at once"]
#[non_exhaustive]
pub enum Attempt {
    /// This instance leads, for as long as the guard lives and [`Leadership::holds`].
    Elected(Leadership),
    /// This instance leads. Another thread of it has won the role, or it is another instance.
    LedBy(InstanceId),
    /// The caller gave up before anything was decided.
    Cancelled,
}

impl Attempt {
    /// The guard, if this instance was elected.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::LeaderElection;
    ///
    /// if let Some(leadership) = LeaderElection::builder("daily-report")?.try_lead()?.elected() {
    ///     println!("leads in term {:?}", leadership.term());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn elected(self) -> Option<Leadership> {
        match self {
            Self::Elected(leadership) => Some(leadership),
            Self::LedBy(_) | Self::Cancelled => None,
        }
    }
}

/// A sentence for people, such as `led by vm-2-…`.
impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elected(leadership) => write!(f, "elected: {}", leadership.election.role()),
            Self::LedBy(leader) => write!(f, "led by {leader}"),
            Self::Cancelled => f.write_str("given up before anything was decided"),
        }
    }
}

/// A leadership that was won in a single attempt. Dropping it resigns, and blocks as long as [`LeaderElection::stop`].
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership {
    election: LeaderElection,
}

impl Leadership {
    pub(crate) fn of(election: LeaderElection) -> Self {
        Self { election }
    }

    /// Whether an effect may happen now. Once lost it does not come back.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let attempt = leasehold::LeaderElection::builder("daily-report")?.try_lead()?;
    /// # let Some(leadership) = attempt.elected() else { return Ok(()) };
    /// if leadership.holds() {
    ///     println!("sends one page of the report");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn holds(&self) -> bool {
        self.election.is_leader()
    }

    /// The term, while it holds. Send it along with every effect.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let attempt = leasehold::LeaderElection::builder("daily-report")?.try_lead()?;
    /// # let Some(leadership) = attempt.elected() else { return Ok(()) };
    /// println!("{:?}", leadership.term());
    /// # Ok(()) }
    /// ```
    pub fn term(&self) -> Option<FenceToken> {
        self.election.term()
    }

    /// The election it was won in: to listen to, or to begin work that delays the release.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let attempt = leasehold::LeaderElection::builder("daily-report")?.try_lead()?;
    /// # let Some(leadership) = attempt.elected() else { return Ok(()) };
    /// leadership.election().run_if_leader(|duty| println!("reports in term {}", duty.term()));
    /// # Ok(()) }
    /// ```
    pub fn election(&self) -> &LeaderElection {
        &self.election
    }

    /// Resigns, and waits at most `timeout`: [`LeaderElection::stop_within`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let attempt = leasehold::LeaderElection::builder("daily-report")?.try_lead()?;
    /// # let Some(leadership) = attempt.elected() else { return Ok(()) };
    /// println!("given back: {}", leadership.stop_within(std::time::Duration::from_millis(500)));
    /// # Ok(()) }
    /// ```
    pub fn stop_within(self, timeout: Duration) -> bool {
        self.election.stop_within(timeout)
    }
}
