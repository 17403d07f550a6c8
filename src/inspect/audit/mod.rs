//! Did two owners poll one endpoint at a time, did a fence go back, and was an endpoint polled by nobody for longer than promised?
//!
//! The [`Judge`] takes what a reader observed, one [`Observation`] at a time, and returns [`Finding`]s. It reads no clock
//! and no store, so a recorded file is judged as the live fleet was.
//!
//! Every judgement is one that a fleet that keeps G1, G2 and G4 cannot cause. An observation that is missing never makes a
//! finding: a lost message, a history entry that was dropped and a look that failed only make the audit weaker.

mod attendance;
mod judge;
mod order;
mod overlap;
pub(crate) mod record;
pub(crate) mod words;

use crate::model::{EndpointId, FenceToken, InstanceId};
use crate::store::admin::overview::{EpochRecord, LastResult};
use crate::store::admin::result_stream::Announced;
use crate::store::history::{Entry, Stream};

pub use attendance::{Unattended, unattended};
pub use judge::{Counts, Judge};
pub use overlap::START_TOLERANCE;

/// Fences of this value and above are ignored: doubles lose integer precision near 2^53, so no real grant has one.
const FENCE_END: u64 = 9_000_000_000_000_000;
/// Longest instance id that is kept. No real id is half as long.
const INSTANCE_MAX_CHARS: usize = 255;

/// An owner under one grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub fence: FenceToken,
    pub instance: InstanceId,
}

/// One poll, as its result tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    pub holder: Holder,
    /// When it began, by the instance's estimate of the server's clock.
    pub started_at_ms: u64,
    /// How long it took, by the instance's clock; 0 where the result does not say.
    pub duration_ms: u64,
}

impl Poll {
    fn ended_at_ms(&self) -> u64 {
        self.started_at_ms.saturating_add(self.duration_ms)
    }
}

/// Where a poll was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// On the channel `poll:results:<endpoint>`: in the order in which the server stored the results.
    Announced,
    /// In the hash `poll:result:<endpoint>`: the last one, in no order.
    Stored,
}

/// What a reader observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The result of a poll.
    Result { endpoint: EndpointId, poll: Poll, read: Read },
    /// A change of a verdict, in the order of the stream `poll:changes`: the server stored a result of this owner.
    Change { endpoint: EndpointId, holder: Holder, at_ms: u64 },
    /// An entry of `poll:history` about a lease. Entries are written late and out of order.
    Lease { endpoint: EndpointId, holder: Holder, at_ms: u64, event: String },
    /// An endpoint that should be polled and was not, when the reader looked. Belongs to the next [`Observation::Look`].
    Unattended(Unattended),
    /// The end of one look at all sessions, leases and results.
    Look(Look),
    /// For this long a source could not be observed.
    Unobserved { source: Source, for_ms: u64 },
    /// Something that no instance of a fleet writes.
    Foreign,
}

/// What a reader observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Results,
    Changes,
    Leases,
    Looks,
}

impl Source {
    pub(crate) const ALL: [Self; 4] = [Self::Results, Self::Changes, Self::Leases, Self::Looks];

    /// Its name in documents.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Results => "results",
            Self::Changes => "changes",
            Self::Leases => "leaseEvents",
            Self::Looks => "looks",
        }
    }
}

/// One look at all sessions, leases and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub server_ms: u64,
    /// The store's epoch, which says the lease TTL; `None` where no instance has ever run.
    pub epoch: Option<EpochRecord>,
    /// How many endpoints are to be polled.
    pub wanted: usize,
}

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    pub endpoint: EndpointId,
    /// When, by the server's clock.
    pub at_ms: u64,
    /// By how much or for how long; 0 where there is no such thing.
    pub for_ms: u64,
    /// The owner that was seen first, or the one with the higher fence; of an endpoint that nobody polls, its owner if it has one.
    pub earlier: Option<Party>,
    /// The owner that contradicts it.
    pub later: Option<Party>,
}

/// An owner in a finding, with its poll if it is about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    pub holder: Holder,
    /// Start and duration in milliseconds.
    pub poll: Option<(u64, u64)>,
}

/// What kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Two polls of different owners ran at a time.
    Overlap,
    /// A poll began after a higher fence had been granted.
    Superseded,
    /// A result, a change or a grant has a lower fence than one before it.
    FenceBack,
    /// Within one tenure a result began before the one stored before it.
    StartBack,
    /// Two instances have the same fence.
    SharedFence,
    /// Nobody polled an endpoint for longer than promised.
    Unpolled,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Overlap,
        Self::Superseded,
        Self::FenceBack,
        Self::StartBack,
        Self::SharedFence,
        Self::Unpolled,
    ];

    /// Its name in documents and at the beginning of lines.
    pub fn word(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::Superseded => "superseded",
            Self::FenceBack => "fenceBack",
            Self::StartBack => "startBack",
            Self::SharedFence => "sharedFence",
            Self::Unpolled => "unpolled",
        }
    }
}

/// An owner that an instance can be, from untrusted text.
pub(crate) fn holder(fence: Option<u64>, instance: Option<&str>) -> Option<Holder> {
    let fence = fence.filter(|it| (1..FENCE_END).contains(it))?;
    let instance = instance.filter(|it| !it.is_empty() && it.len() <= INSTANCE_MAX_CHARS)?;
    Some(Holder { fence: FenceToken(fence), instance: InstanceId::new(instance) })
}

impl Observation {
    /// An announced result.
    pub(crate) fn of_announced(it: &Announced) -> Self {
        let result = EndpointId::parse(&it.endpoint).ok().zip(poll_of(&it.result));
        match result {
            Some((endpoint, poll)) => Self::Result { endpoint, poll, read: Read::Announced },
            None => Self::Foreign,
        }
    }

    /// The stored result of an endpoint.
    pub(crate) fn of_stored(endpoint: &EndpointId, result: &LastResult) -> Self {
        match poll_of(result) {
            Some(poll) => Self::Result { endpoint: endpoint.clone(), poll, read: Read::Stored },
            None => Self::Foreign,
        }
    }

    /// An entry of a stream; `None` for the start or the stop of an instance.
    pub(crate) fn of_entry(stream: Stream, it: &Entry) -> Option<Self> {
        if stream == Stream::Leases
            && it.endpoint.is_empty()
            && matches!(it.event.as_str(), "started" | "stopped")
        {
            return None;
        }
        let holder = holder(it.fence.map(|it| it.0), Some(&it.instance));
        let Some((endpoint, holder)) = EndpointId::parse(&it.endpoint).ok().zip(holder) else {
            return Some(Self::Foreign);
        };
        let at_ms = it.at_ms;
        Some(match (stream, it.event.as_str()) {
            (Stream::Changes, "failing" | "recovered") => Self::Change { endpoint, holder, at_ms },
            (Stream::Leases, "acquired" | "reclaimed" | "released" | "lost") => {
                Self::Lease { endpoint, holder, at_ms, event: it.event.clone() }
            }
            _ => Self::Foreign,
        })
    }
}

fn poll_of(it: &LastResult) -> Option<Poll> {
    Some(Poll {
        holder: holder(it.fence.map(|it| it.0), it.instance.as_ref().map(InstanceId::as_str))?,
        started_at_ms: it.started_at_ms?,
        duration_ms: it.duration_ms.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
