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
}
