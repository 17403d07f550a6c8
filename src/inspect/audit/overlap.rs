//! Did two owners poll at a time? By the times that their results tell, with the tolerance that these times need.
//!
//! `started_at_ms` is an instance's estimate of the server's clock. The estimate is the server's time in the last reply, plus the
//! time since the request of that reply was *sent*, so it runs ahead of the server's clock by the time that the request took to
//! be executed. A poll starts within a second after its lease was verified, and the estimate uses that request or a later one, so
//! it is never ahead by more than that second. It is behind by at most the difference of the clocks' rates (3 %) over the
//! same second. A duration is measured by the instance's clock, and is wrong by at most 3 %.

use std::time::Duration;

use crate::inspect::audit::Poll;
use crate::model::FenceToken;

/// By how much the starts of two polls of different instances may seem to be in the wrong order although they are not: a second for
/// the verification before a poll, 3 % of it for each of both clocks, and the rounding to milliseconds.
pub const START_TOLERANCE: Duration = Duration::from_millis(1_100);
/// Clocks run at rates within this many percent of each other.
const RATE_PERCENT: u64 = 3;

/// How long two polls ran at a time, in milliseconds, if it is longer than their times are inexact.
pub(super) fn overlap_ms(one: &Poll, other: &Poll) -> Option<u64> {
    let from = one.started_at_ms.max(other.started_at_ms);
    let until = one.ended_at_ms().min(other.ended_at_ms());
    let longest = one.duration_ms.max(other.duration_ms);
    let tolerance = tolerance_ms().saturating_add(longest / 100 * RATE_PERCENT);
    until.checked_sub(from).filter(|it| *it > tolerance)
}

/// How long after the grant of the higher fence `by` a poll began, if it is longer than its start is inexact. A fence is no less
/// than the server's time of its grant in microseconds, so the grant was not later than that.
pub(super) fn superseded_ms(poll: &Poll, by: FenceToken) -> Option<u64> {
    if by <= poll.holder.fence {
        return None;
    }
    let after = poll.started_at_ms.checked_sub(by.0.div_ceil(1_000))?;
    Some(after).filter(|it| *it > tolerance_ms())
}

fn tolerance_ms() -> u64 {
    u64::try_from(START_TOLERANCE.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LeaseDuration;
    use crate::polling::dispatch::VERIFIED_FOR;

    #[test]
    fn the_tolerance_covers_what_a_start_can_be_wrong_by() {
        let rate = VERIFIED_FOR * u32::from(u8::try_from(RATE_PERCENT).unwrap()) / 100;
        let wrong = VERIFIED_FOR + rate + rate + Duration::from_millis(2);
        assert!(wrong <= START_TOLERANCE && START_TOLERANCE < wrong * 2, "{wrong:?}");
        assert_eq!(RATE_PERCENT, u64::from(LeaseDuration::RATE_PERCENT));
    }
}
