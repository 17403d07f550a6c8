//! Did a fence go back? One source, one endpoint, in the order in which the server stored the results (G2).
//!
//! The script that stores a result announces it and appends the change in the same step, and refuses a result that is not newer
//! than the stored one by (fence, start). So within one source the order is exact, and no tolerance is needed. Two sources are
//! read on two connections, so the order between them means nothing.

use crate::inspect::audit::{Holder, Kind};

/// The newest that one source has told about an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Newest {
    pub(super) holder: Holder,
    /// Start of its last poll, where the source tells starts.
    pub(super) started_at_ms: Option<u64>,
}

/// What is wrong with an observation after `newest`; if nothing is, it is the newest from now on.
pub(super) fn judge_order(newest: &mut Option<Newest>, seen: Newest) -> Option<Kind> {
    if let Some(known) = newest {
        if seen.holder.fence < known.holder.fence {
            return Some(Kind::FenceBack);
        }
        if seen.holder == known.holder && seen.started_at_ms < known.started_at_ms {
            return Some(Kind::StartBack);
        }
    }
    *newest = Some(seen);
    None
}
