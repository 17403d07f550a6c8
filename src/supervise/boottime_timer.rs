//! When has a deadline passed, even if the machine was suspended? A `CLOCK_BOOTTIME` timer with a descriptor for `poll(2)`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::clock::Moment;

/// A descriptor that becomes readable at a set moment. The timeout of `poll(2)` stops during a suspend; this timer goes off
/// when the machine resumes.
#[derive(Debug)]
pub(crate) struct BoottimeTimer(TimerFd);

impl BoottimeTimer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?))
    }

    /// Sets the timer to `at`, and cancels any earlier setting.
    pub(crate) fn set(&self, at: Moment) -> io::Result<()> {
        // Zero would disarm the timer.
        let nanos = i64::try_from(at.as_nanos().max(1)).unwrap_or(i64::MAX);
        let at = TimeSpec::new(nanos / 1_000_000_000, nanos % 1_000_000_000);
        Ok(self.0.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

impl AsFd for BoottimeTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags};

    use super::*;
    use crate::clock::{BootClock, Clock};
    use crate::net::wait::{is_ready, wait};

    fn goes_off(alarm: &BoottimeTimer, within: Duration) -> bool {
        let mut fds = [PollFd::new(alarm.as_fd(), PollFlags::POLLIN)];
        wait(&mut fds, within).unwrap();
        is_ready(&fds[0])
    }

    #[test]
    fn an_alarm_goes_off_at_its_moment_and_only_at_the_last_one_set() {
        let alarm = BoottimeTimer::new().unwrap();
        assert!(!goes_off(&alarm, Duration::ZERO), "it was never set");
        for past in [Moment::MIN, BootClock.now()] {
            alarm.set(past).unwrap();
            assert!(goes_off(&alarm, Duration::from_secs(5)), "{past:?}");
        }
        alarm.set(Moment::MAX).unwrap();
        assert!(!goes_off(&alarm, Duration::ZERO), "it remembers an earlier moment");
        let at = BootClock.now() + Duration::from_millis(30);
        alarm.set(at).unwrap();
        assert!(goes_off(&alarm, Duration::from_secs(5)) && BootClock.now() >= at);
    }
}
