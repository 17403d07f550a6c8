//! The parameters of a seed: the size of the fleet, its timings, and how many faults there are.

use std::time::Duration;

use leasehold::lease::table::LeaseTimings;
use leasehold::model::LeaseDuration;

use leasehold::store::BATCH_MAX;

use crate::random::Random;

/// Of a thousand seeds this many play a fleet whose calls take several batches.
const LARGE_PERMILLE: u64 = 10;

/// Everything that stays the same for a seed.
#[derive(Clone, Debug)]
pub struct Scene {
    pub instances: usize,
    pub endpoints: usize,
    pub roles: usize,
    pub timings: LeaseTimings,
    pub heartbeat_interval: Duration,
    /// R16: zero for a fleet that revokes nobody.
    pub suspect_after: Duration,
    pub poll_interval: Duration,
    /// The slowest and the fastest clock of an instance, in millionths of the server's rate.
    pub rates: (u64, u64),
    /// The server forgets, or its clock goes back: together they may repeat a fence ("Fences" in docs/protocol.md).
    pub clock_goes_back: bool,
    /// Between two faults, on average.
    pub fault_gap: Duration,
    /// Calls that go wrong while faults are on, of a thousand.
    pub mishaps: u64,
    /// Longest usual way of a call, in microseconds.
    pub latency_us: u64,
    /// How long things go wrong.
    pub faults_for: Duration,
    /// The server pushes changes of keys.
    pub delivers_changes: bool,
    /// The server passes on peer messages.
    pub delivers_messages: bool,
    /// The latency of the instance that joins at the end, in milliseconds each way.
    pub far_ms: u64,
    /// At the end an instance joins that can request leases and cannot acquire them.
    pub half_able: bool,
}

impl Scene {
    /// Chosen at random, with `faults` faults on average.
    pub fn new(dice: &Random, faults: u64) -> Self {
        let ttl = Duration::from_secs(*dice.pick(&[3, 3, 3, 6, 10, 30]));
        let fault_gap = ttl * u32::try_from(dice.between(1, 10)).unwrap_or(1) / 10;
        let faults = u32::try_from(dice.between(faults / 2, faults * 3 / 2)).unwrap_or(1);
        let beat = if dice.permille(500) { ttl } else { ttl.min(Duration::from_secs(6)) / 2 };
        let timeout = (ttl.min(beat) / 10).min(Duration::from_secs(2));
        let endpoints = if dice.permille(700) { 12 } else { 50 };
        // All within 3 % of each other, the server's at one.
        // Rounded inwards: a clock that is a millionth too slow is suspected in the end.
        let slowest = (1_000_000 * 100_u64).div_ceil(100 + dice.below(4));
        let fastest = slowest * 103 / 100;
        let spread = dice.permille(700);
        let scene = Self {
            instances: usize::try_from(dice.between(2, 8)).unwrap_or(2),
            endpoints: usize::try_from(dice.between(1, endpoints)).unwrap_or(1),
            roles: usize::try_from(dice.below(5).saturating_sub(2)).unwrap_or(0),
            timings: LeaseTimings {
                lease: LeaseDuration::new(ttl),
                heartbeat: LeaseDuration::new(beat),
                renew_interval: ttl / 3,
                store_timeout: timeout,
            },
            heartbeat_interval: beat / 3,
            suspect_after: Duration::ZERO,
            poll_interval: Duration::from_millis(*dice.pick(&[1_000, 5_000, 10_000])),
            rates: if spread { (slowest, fastest.max(1_000_000)) } else { (1_000_000, 1_000_000) },
            clock_goes_back: dice.permille(300),
            fault_gap,
            mishaps: *dice.pick(&[0, 5, 50, 200]),
            latency_us: *dice.pick(&[300, 1_000, 10_000, 60_000]),
            faults_for: fault_gap * faults,
            delivers_changes: dice.permille(800),
            delivers_messages: true,
            far_ms: 0,
            half_able: false,
        };
        let scene = if dice.permille(LARGE_PERMILLE) { scene.large(dice) } else { scene };
        let scene = Self {
            delivers_messages: dice.permille(750),
            far_ms: *dice.pick(&[0, 0, 0, 150]),
            half_able: dice.permille(300),
            ..scene
        };
        let shortest = scene.timings.lease.ttl.min(scene.timings.heartbeat.ttl);
        let suspect_after = shortest / u32::try_from(dice.between(3, 5)).unwrap_or(3);
        // Where a call takes as long as that, nobody is ever seen to be alive in time.
        let is_possible = scene.far_ms == 0 || suspect_after >= Duration::from_secs(1);
        let suspects = dice.permille(750) && is_possible;
        Self { suspect_after: if suspects { suspect_after } else { Duration::ZERO }, ..scene }
    }

    /// More endpoints than fit into one call for each of two instances, polled seldom.
    fn large(self, dice: &Random) -> Self {
        let most = BATCH_MAX as u64;
        let endpoints =
            usize::try_from(dice.between(2 * most + 100, 3 * most)).unwrap_or(BATCH_MAX);
        let instances = self.instances.min(3);
        Self { instances, endpoints, poll_interval: Duration::from_secs(60), ..self }
    }

    /// How far the server's clock may be stepped ahead within the life of a lease: what the margin leaves
    /// when the slowest clock has taken its part.
    pub fn step_ahead_max(&self) -> Duration {
        let left = |duration: LeaseDuration| {
            let slowest = u32::try_from(self.rates.0).unwrap_or(1);
            duration.ttl.saturating_sub(duration.usable() * 1_000 / (slowest / 1_000).max(1))
        };
        let expiry = left(self.timings.lease).min(left(self.timings.heartbeat));
        let verification = self.timings.lease.verification().ttl;
        let slowest = u32::try_from(self.rates.0).unwrap_or(1);
        let verified_for = verification * 1_000 / (slowest / 1_000).max(1);
        let revocation = self.timings.lease.revocation().saturating_sub(verified_for);
        let least = if self.suspect_after.is_zero() { expiry } else { expiry.min(revocation) };
        least * 8 / 10
    }

    /// One life of a lease and its hold-off, whichever clock counts.
    pub fn hold_off(&self) -> Duration {
        self.timings.lease.hold_off()
    }
}
