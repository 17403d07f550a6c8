//! Did nobody poll an endpoint for longer than promised (G4)? Judged by looks at sessions, leases and stored results, never by
//! messages that did not come.
//!
//! `status` says which endpoints are unowned, abandoned, stale or late; an endpoint that stays so for longer than promised
//! is a finding. The promise is the lease TTL and its margin, counted from the first look that saw it, or from the end of a
//! hold-off (R5). The lateness of `status` already allows for the interval and the timeout, light polling and slow endpoints.

use std::time::Duration;

use crate::inspect::audit::{Holder, Look};
use crate::inspect::status::late::grace;
use crate::inspect::status::{EndpointStatus, State, Status};
use crate::model::{EndpointId, FenceToken};
use crate::store::admin::overview::EpochRecord;

/// The promise where no instance has ever run: the default lease TTL and its margin.
const PROMISE_WITHOUT_EPOCH: Duration = Duration::from_secs(31);

/// An endpoint that should be polled and was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unattended {
    pub endpoint: EndpointId,
    /// As `status` calls it.
    pub state: String,
    /// Its owner, if it has one.
    pub owner: Option<Holder>,
    /// When its last poll began.
    pub polled_at_ms: Option<u64>,
    /// The fence of its last grant; `None` where it is stale, which it is whatever owners it had meanwhile.
    pub granted: Option<FenceToken>,
    /// Since when it is late by what is stored, where that may be believed; `None`: since a look saw it.
    pub since_ms: Option<u64>,
}

/// The endpoints that `status` says nobody polls in time, and how many are to be polled.
pub fn unattended(status: &Status, took: Duration) -> (Vec<Unattended>, usize) {
    let is_unattended = |it: &&EndpointStatus| {
        matches!(it.state, State::Unowned | State::Abandoned | State::Stale | State::Late)
    };
    let found = status.endpoints.iter().filter(is_unattended);
    let found = found.filter_map(|it| Unattended::of(it, status.server_ms, took));
    (found.collect(), status.n_wanted())
}

impl Unattended {
    fn of(it: &EndpointStatus, server_ms: u64, took: Duration) -> Option<Self> {
        let owner = it.lease.as_ref().map(|it| it.value.clone());
        let owner =
            owner.map(|instance| Holder { fence: it.fence.unwrap_or(FenceToken(0)), instance });
        let beyond = it.overdue.or_else(|| it.surely_late(grace(took)));
        let beyond_ms = beyond.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        Some(Self {
            endpoint: EndpointId::parse(&it.name).ok()?,
            state: it.state.word().into(),
            owner,
            polled_at_ms: it.result.as_ref().and_then(|it| it.started_at_ms),
            granted: it.fence.filter(|_| it.state != State::Stale),
            since_ms: beyond_ms.map(|it| server_ms.saturating_sub(it)),
        })
    }
}

/// An endpoint that the looks since then found unattended, without a poll or a grant in between: an heir may die, too, and
/// the promise holds from each grant.
#[derive(Clone, Debug)]
pub(super) struct Absence {
    since_ms: u64,
    polled_at_ms: Option<u64>,
    granted: Option<FenceToken>,
    /// The number of the last look that found it so.
    look: u64,
    told: bool,
}

/// Which look, and what it may not count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    pub(super) number: u64,
    /// Looks before this one failed: what was seen earlier does not count.
    pub(super) from_number: u64,
}

/// How long the endpoint has been without a poll when this look ended, the first time that it is longer than promised.
pub(super) fn judge_absence(
    known: &mut Option<Absence>,
    seen: &Unattended,
    look: &Look,
    looks: Looks,
) -> Option<u64> {
    let goes_on = |it: &Absence| {
        it.look + 1 == looks.number
            && it.look >= looks.from_number
            && it.polled_at_ms == seen.polled_at_ms
            && it.granted == seen.granted
    };
    let absence = match known.take().filter(goes_on) {
        Some(absence) => known.insert(Absence { look: looks.number, ..absence }),
        None => known.insert(Absence {
            since_ms: look.server_ms,
            polled_at_ms: seen.polled_at_ms,
            granted: seen.granted,
            look: looks.number,
            told: false,
        }),
    };
    let (promise, granting_from_ms) = promise(look.epoch);
    let since_ms = seen.since_ms.unwrap_or(absence.since_ms).max(granting_from_ms);
    let lasted_ms = look.server_ms.saturating_sub(since_ms);
    // A single look is no proof: a session may have been resumed, or its interval shortened, a moment ago.
    let is_confirmed = absence.since_ms < look.server_ms;
    if absence.told || !is_confirmed || lasted_ms <= promise {
        return None;
    }
    absence.told = true;
    Some(lasted_ms)
}

/// How long an endpoint may be without an owner, and from when on Redis grants leases (R5), in milliseconds.
fn promise(epoch: Option<EpochRecord>) -> (u64, u64) {
    let Some(epoch) = epoch else {
        return (u64::try_from(PROMISE_WITHOUT_EPOCH.as_millis()).unwrap_or(u64::MAX), 0);
    };
    let promise = epoch.lease_ttl_ms.saturating_add(epoch.margin_ms);
    (promise, epoch.since_ms.saturating_add(promise))
}
