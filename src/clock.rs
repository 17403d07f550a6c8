//! What time is it here, on a clock that also counts while the VM is suspended?
//!
//! Nothing in this crate compares clocks of two machines; every deadline is counted on one.

pub mod scheduler;

use std::ops::{Add, Sub};
use std::sync::Arc;
#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::clock::scheduler::Scheduler;

/// A moment on one machine's `CLOCK_BOOTTIME`, in nanoseconds. Meaningless anywhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Moment(u64);

impl Moment {
    /// Before every other moment: a deadline that was never set.
    pub const MIN: Moment = Moment(0);
    /// Later than any.
    pub const MAX: Moment = Moment(u64::MAX);

    /// A moment by its nanoseconds since the clock began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Reads the time. Tests replace it.
pub trait Clock: Send + Sync {
    /// The time on this machine's clock.
    fn now(&self) -> Moment;

    /// What moves this clock; `None` where time does.
    fn scheduler(&self) -> Option<&Arc<dyn Scheduler>> {
        None
    }
}

/// `CLOCK_BOOTTIME`. Rust's `Instant` is `CLOCK_MONOTONIC`, which stands still in a suspend (R1).
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        // The call can only fail for a clock id the kernel does not know, and every Linux since
        // 2.6.39 knows this one; without a clock nothing here may go on.
        let time =
            clock_gettime(ClockId::CLOCK_BOOTTIME).expect("this kernel has no CLOCK_BOOTTIME");
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
        Moment(seconds * 1_000_000_000 + nanos)
    }
}

/// A clock that moves only when told to, for tests and simulation.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

#[cfg(any(test, feature = "testing"))]
impl ManualClock {
    /// A clock that stands at `nanos`.
    pub fn at(nanos: u64) -> Self {
        Self(AtomicU64::new(nanos))
    }

    /// Lets `duration` go by.
    pub fn pass(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

#[cfg(any(test, feature = "testing"))]
impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_never_goes_back() {
        let first = BootClock.now();
        assert!(BootClock.now() >= first);
        assert!(first > Moment::MIN);
    }

    #[test]
    fn a_moment_minus_more_than_its_age_is_the_beginning() {
        assert_eq!(Moment::from_nanos(5) - Duration::from_secs(1), Moment::MIN);
        assert_eq!(Moment::from_nanos(5).since(Moment::from_nanos(9)), Duration::ZERO);
    }
}
