//! How long does a lease or heartbeat last, and how much earlier must its owner stop (R1)? Pure.

use std::time::Duration;

/// The TTL of a lease or a heartbeat. Its owner stops [`Self::margin`] before the key expires in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseDuration {
    /// The TTL of the key in Redis.
    pub ttl: Duration,
}

impl LeaseDuration {
    /// Rates of two clocks may differ by this much, in percent (docs/protocol.md, "Assumptions").
    pub const RATE_PERCENT: u32 = 3;
    /// The shortest lease TTL that a configuration can have and a store accepts (R14).
    pub const TTL_MIN: Duration = Duration::from_millis(500);
    /// The longest lease TTL.
    pub const TTL_MAX: Duration = Duration::from_secs(3_600);
    const MARGIN_FLOOR: Duration = Duration::from_millis(100);
    const VERIFICATION_MIN: Duration = Duration::from_secs(1);

    /// For a key that expires after `ttl`.
    pub const fn new(ttl: Duration) -> Self {
        Self { ttl }
    }

    /// R1: 3 % of the TTL for clocks that run at different rates, and 100 ms for everything else.
    pub fn margin(self) -> Duration {
        (self.ttl.saturating_mul(Self::RATE_PERCENT) / 100).saturating_add(Self::MARGIN_FLOOR)
    }

    /// R1: how long the owner may rely on it, counted from before the request.
    pub fn usable(self) -> Duration {
        self.ttl.saturating_sub(self.margin())
    }

    /// R15: how long a verification of a lease counts: a thirtieth of the TTL (1 s of 30 s), at least `VERIFICATION_MIN`
    /// (1 s), and at most a third of the TTL. It follows from the TTL, so a fleet that agrees on the one (R14) agrees on the other.
    pub fn verification(self) -> Self {
        Self::new((self.ttl / 30).max(Self::VERIFICATION_MIN).min(self.ttl / 3))
    }

    /// R16: how long after a revocation the leases of the revoked instance may be taken over. Its last verification has
    /// ended by then, on its own clock, and its polls were aborted.
    pub fn revocation(self) -> Duration {
        self.verification().hold_off()
    }

    /// R5: how long a new epoch grants nothing.
    pub fn hold_off(self) -> Duration {
        self.ttl.saturating_add(self.margin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R1: the holder must have stopped when Redis forgets, however the two clocks run.
    #[test]
    fn a_holder_stops_before_redis_forgets_at_a_rate_difference_of_three_percent() {
        for ttl_ms in [500_u64, 3_000, 6_000, 30_000, 600_000] {
            let term = LeaseDuration::new(Duration::from_millis(ttl_ms));
            assert!(term.usable().mul_f64(1.0 / 0.97) < term.ttl, "{ttl_ms} ms");
            assert!(term.usable().mul_f64(1.03) < term.hold_off(), "{ttl_ms} ms");
        }
        assert_eq!(LeaseDuration::new(Duration::from_secs(30)).margin(), Duration::from_secs(1));
    }

    /// R16: a revoked owner must have stopped when its leases may be taken over, however the two clocks run. A loss of data may
    /// lose the revocation, and its hold-off must last longer.
    #[test]
    fn a_verification_ends_before_a_takeover_and_a_hold_off_outlasts_both() {
        for (ttl_ms, verified_ms) in
            [(500, 166), (3_000, 1_000), (6_000, 1_000), (30_000, 1_000), (600_000, 20_000)]
        {
            let duration = LeaseDuration::new(Duration::from_millis(ttl_ms));
            let verification = duration.verification().ttl;
            assert_eq!(verification.as_millis(), verified_ms, "{ttl_ms} ms");
            assert!(verification.mul_f64(1.0 / 0.97) < duration.revocation(), "{ttl_ms} ms");
            assert!(duration.revocation() < duration.hold_off(), "{ttl_ms} ms");
        }
        let revocation = LeaseDuration::new(Duration::from_secs(30)).revocation();
        assert_eq!(revocation, Duration::from_millis(1_130));
    }
}
