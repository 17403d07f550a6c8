//! Has the store lost data, or has its clock jumped? Remembers the epoch, clock and fences of the replies for the next request.
//!
//! Pure arithmetic. The tracker never compares the server's clock with ours, only the progress of both: from before an
//! earlier request to after a later reply, so that latency never looks like a jump.

use std::time::Duration;

use crate::clock::Moment;
use crate::model::{Epoch, FenceToken, InstanceId, LeaseDuration};
use crate::store::{RequestContext, Stamp};

/// How far the server's clock may seem to run ahead beyond the rate difference.
const STEP_TOLERANCE: Duration = Duration::from_millis(50);

/// A time of the server's clock, read at some moment after `asked_at`.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    asked_at: Moment,
    server_us: u64,
}

impl ClockReading {
    /// The highest time the server's clock can show at `now`, unless it jumped.
    fn latest_us(self, now: Moment) -> u64 {
        let gone = micros(now.since(self.asked_at));
        self.server_us + gone + gone * u64::from(LeaseDuration::RATE_PERCENT) / 100
    }

    /// How far the server's clock is ahead of `latest_us`, if it is.
    fn ahead(self, now: Moment, stamp: &Stamp) -> Option<Duration> {
        let limit = self.latest_us(now) + micros(STEP_TOLERANCE);
        (stamp.server_us > limit).then(|| Duration::from_micros(stamp.server_us - limit))
    }
}

/// What one instance knows about the store it talks to.
#[derive(Debug)]
pub struct EpochTracker {
    me: InstanceId,
    duration: LeaseDuration,
    new_fleet: bool,
    epoch: Epoch,
    data_epoch: Epoch,
    floor_us: u64,
    /// The highest fence that was granted to this instance.
    highest_fence: FenceToken,
    /// The reading that gives the lowest upper bound of the server's clock.
    tightest_reading: Option<ClockReading>,
    /// The last reading, for `server_ms`. The tightest one may be old where our own clock is slow.
    last: Option<ClockReading>,
    suspect: bool,
    hold_off_until: Moment,
}

/// What a reply says about the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockAnomaly {
    /// The server's clock ran ahead by this much more than ours can explain.
    pub ran_ahead: Option<Duration>,
    /// The data epoch in which the clock ran ahead by more than a margin. This instance may have been suspended while
    /// another instance was granted one of its leases. If the store loses its data after that, such a lease may not be
    /// reclaimed (R6).
    pub slept_in: Option<Epoch>,
}

impl EpochTracker {
    /// A tracker that has no reply yet.
    pub fn new(me: InstanceId, duration: LeaseDuration, new_fleet: bool) -> Self {
        Self {
            me,
            duration,
            new_fleet,
            epoch: Epoch::default(),
            data_epoch: Epoch::default(),
            floor_us: 0,
            highest_fence: FenceToken(0),
            tightest_reading: None,
            last: None,
            suspect: false,
            hold_off_until: Moment::MIN,
        }
    }

    /// The context of a request sent at `now`.
    ///
    /// R4: a grant or a reclaim is executed at most a margin late. If the server's clock jumps ahead by more than the
    /// margin, another owner's lease may have ended early; the request then counts as late, too.
    pub fn context(&self, now: Moment, timeout: Duration) -> RequestContext {
        let slack = micros(timeout.min(self.duration.margin()));
        RequestContext {
            instance: self.me.clone(),
            duration: self.duration,
            epoch: self.epoch,
            suspect: self.suspect,
            floor_us: self.floor_us,
            highest_fence: self.highest_fence,
            owner_only: false,
            not_after_us: self.tightest_reading.map_or(0, |it| it.latest_us(now) + slack),
            // Only before the first reply: for a running instance a missing epoch is a loss of data. And only in a request
            // with a latest execution time: a late one could be executed after a loss of data.
            new_fleet: self.new_fleet && self.epoch == Epoch::default() && self.knows_time(),
            revocable: false,
            obeyed_ms: 0,
            timeout,
        }
    }

    /// Whether a request sent now has a latest execution time.
    pub fn knows_time(&self) -> bool {
        self.tightest_reading.is_some()
    }

    /// Takes a reading of the server's clock that was requested at `asked_at`, so that the first request has a latest
    /// execution time, too.
    pub fn observe_time(&mut self, asked_at: Moment, server_us: u64) {
        self.floor_us = self.floor_us.max(server_us);
        self.tightest_reading.get_or_insert(ClockReading { asked_at, server_us });
    }

    /// The request context of a release. Raises the floor first, so that every renewal sent before has a lower floor and
    /// cannot bring the leases back (R4).
    pub fn release_request(&mut self, now: Moment, timeout: Duration) -> RequestContext {
        self.floor_us += 1;
        RequestContext { owner_only: true, ..self.context(now, timeout) }
    }

    /// Takes the stamp of a reply that arrived by `now`, to a request sent at `asked_at`.
    pub fn observe(&mut self, asked_at: Moment, now: Moment, stamp: &Stamp) -> ClockAnomaly {
        let mut seen = ClockAnomaly::default();
        self.floor_us = self.floor_us.max(stamp.server_us);
        if stamp.epoch < self.epoch {
            return seen; // a late reply of an old connection
        }
        let is_new = stamp.epoch > self.epoch;
        // A new epoch may be another machine, whose clock has nothing to do with that of the first. But it may be the same
        // machine: then its clock jumped, or this instance was suspended. To verify all leases again costs little.
        let before = self.tightest_reading.filter(|_| !(is_new && self.suspect));
        if let Some(ahead) = before.and_then(|it| it.ahead(now, stamp)) {
            self.suspect = true;
            seen.ran_ahead = Some(ahead);
            seen.slept_in = (ahead > self.duration.margin()).then_some(self.data_epoch);
        }
        if is_new {
            self.data_epoch = stamp.data_epoch;
            self.epoch = stamp.epoch;
            self.tightest_reading = None;
            self.suspect = false;
        }
        self.hold_off_until = match stamp.hold_off {
            Duration::ZERO => Moment::MIN,
            left => now + left + left * LeaseDuration::RATE_PERCENT / 100,
        };
        let reading = ClockReading { asked_at, server_us: stamp.server_us };
        if is_new || self.last.is_none_or(|it| it.asked_at <= asked_at) {
            self.last = Some(reading);
        }
        // A server's clock that was set back gives a lower bound, too, so the lowest bound is never out of date.
        if self.tightest_reading.is_none_or(|it| reading.latest_us(now) <= it.latest_us(now)) {
            self.tightest_reading = Some(reading);
        }
        seen
    }

    /// Takes the fence of a grant: every later fence must be higher.
    pub fn observe_fence(&mut self, fence: FenceToken) {
        self.floor_us = self.floor_us.max(fence.0);
        self.highest_fence = self.highest_fence.max(fence);
    }

    /// The epoch of the last reply.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The epoch that began with the store's last loss of data.
    pub fn data_epoch(&self) -> Epoch {
        self.data_epoch
    }

    /// How long the store still grants nothing, by its last reply; `None` if it grants.
    pub fn hold_off(&self, now: Moment) -> Option<Duration> {
        (now < self.hold_off_until).then(|| self.hold_off_until.since(now))
    }

    /// The server's clock about now, in milliseconds; `None` before the first reply.
    pub fn server_ms(&self, now: Moment) -> Option<u64> {
        self.last
            .or(self.tightest_reading)
            .map(|it| (it.server_us + micros(now.since(it.asked_at))) / 1_000)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn stamp(epoch: u64, server_ms: u64) -> Stamp {
        let (epoch, server_us) = (Epoch(epoch), server_ms * 1_000);
        let (hold_off, data_epoch) = (Duration::ZERO, epoch);
        Stamp { epoch, hold_off, server_us, data_epoch, revoked_until_ms: None }
    }

    fn epoch_tracker() -> EpochTracker {
        let mut it = EpochTracker::new(InstanceId::new("a"), LeaseDuration::new(TTL), false);
        it.observe(at(1_000), at(1_010), &stamp(1, 500_000));
        it
    }

    /// R5: "so that latency never looks like a step".
    #[test]
    fn a_slow_reply_is_no_step_of_the_servers_clock() {
        let mut it = epoch_tracker();
        let slow = it.observe(at(1_100), at(9_000), &stamp(1, 507_900));
        assert_eq!(slow.ran_ahead, None);
        let quick = it.observe(at(9_000), at(9_001), &stamp(1, 508_000));
        assert_eq!(quick.ran_ahead, None);
    }

    /// R5: a step of the server's clock, or a pause of this VM that its clock did not count.
    #[test]
    fn a_server_clock_that_runs_ahead_is_suspected_until_a_new_epoch_begins() {
        let mut it = epoch_tracker();
        let stepped = it.observe(at(2_000), at(2_010), &stamp(1, 521_000));
        assert!(stepped.ran_ahead.is_some_and(|ahead| ahead > Duration::from_secs(19)));
        assert!(it.context(at(2_020), TTL).suspect);
        // By the suspicion itself: nothing was forgotten.
        let same_life = Stamp { data_epoch: Epoch(1), ..stamp(2, 521_030) };
        let told = it.observe(at(2_030), at(2_040), &same_life);
        assert_eq!((told, it.epoch()), (ClockAnomaly::default(), Epoch(2)));
        assert!(!it.context(at(2_050), TTL).suspect);
    }

    /// R5: an instance that slept while a new epoch began learns both from the same answer. Found by simulation.
    #[test]
    fn a_clock_that_ran_ahead_is_seen_across_epochs_too() {
        let mut it = epoch_tracker();
        let slept = it.observe(at(2_000), at(2_010), &stamp(2, 521_000));
        assert!(slept.ran_ahead.is_some_and(|ahead| ahead > Duration::from_secs(19)));
        assert!(!it.context(at(2_020), TTL).suspect, "this epoch began after it");
        assert_eq!(it.observe(at(2_020), at(2_030), &stamp(2, 521_020)), ClockAnomaly::default());
        assert_eq!(it.observe(at(3_000), at(3_010), &stamp(3, 400_000)), ClockAnomaly::default());
    }

    #[test]
    fn the_time_of_a_server_is_told_by_the_last_answer_also_where_our_clock_is_slow() {
        let mut it = epoch_tracker();
        for n in 0..600 {
            // A second of ours is 1.03 of the server's, which looks like no step. The first answer was the quickest.
            let server_ms = 10_000 + 1_030 * n + u64::from(n > 0);
            it.observe(at(1_000 * n), at(1_000 * n + 2), &stamp(1, server_ms));
        }
        let told = it.server_ms(at(599_100)).unwrap();
        assert!(told.abs_diff(10_000 + 1_030 * 599 + 103) < 50, "{told}");
    }

    #[test]
    fn a_rate_difference_of_three_percent_is_not_suspected_over_an_hour() {
        let mut it = epoch_tracker();
        for second in 1..3_600 {
            let reply = stamp(1, 500_000 + second * 1_029);
            let seen = it.observe(at(1_000 + second * 1_000), at(1_001 + second * 1_000), &reply);
            assert_eq!(seen.ran_ahead, None, "second {second}");
        }
    }

    /// R6: what was held before may have been another instance's in between.
    #[test]
    fn a_new_epoch_whose_clock_is_a_margin_ahead_is_one_that_we_may_have_slept_into() {
        let mut it = epoch_tracker();
        let honest = it.observe(at(2_000), at(2_010), &stamp(2, 502_000));
        assert_eq!(honest.slept_in, None, "another server's clock, a little ahead");
        let slept = it.observe(at(3_000), at(3_010), &stamp(3, 540_000));
        assert!(slept.slept_in == Some(Epoch(2)) && slept.ran_ahead.is_some());
        let first = EpochTracker::new(InstanceId::new("a"), LeaseDuration::new(TTL), false)
            .observe(at(1_000), at(1_010), &stamp(1, 500_000));
        assert_eq!(first, ClockAnomaly::default(), "nothing was seen before");
    }

    /// R4: the latest server time at which a grant may be executed.
    #[test]
    fn a_question_expires_a_margin_after_the_latest_time_the_server_can_have() {
        let it = epoch_tracker();
        let context = it.context(at(11_000), Duration::from_secs(2));
        let latest = 500_000_000 + 10_000_000 * 103 / 100;
        assert_eq!(context.not_after_us, latest + 1_000_000);
        assert_eq!(
            it.context(at(11_000), Duration::from_millis(300)).not_after_us,
            latest + 300_000
        );
    }

    #[test]
    fn an_old_epochs_late_reply_changes_nothing_but_the_floor() {
        let mut it = epoch_tracker();
        it.observe(at(2_000), at(2_001), &stamp(5, 501_000));
        let late = it.observe(at(1_500), at(2_002), &stamp(1, 900_000));
        assert_eq!(late, ClockAnomaly::default());
        assert_eq!(it.epoch(), Epoch(5));
        assert_eq!(it.context(at(2_003), TTL).floor_us, 900_000_000);
    }

    /// `--new-fleet` skips exactly the first start; a running instance knows that a fleet exists.
    #[test]
    fn the_word_that_nobody_else_runs_is_given_only_before_the_first_reply() {
        let mut it = EpochTracker::new(InstanceId::new("a"), LeaseDuration::new(TTL), true);
        it.observe_time(at(0), 1);
        assert!(it.context(at(1), TTL).new_fleet);
        it.observe(at(1), at(2), &stamp(1, 1));
        assert!(!it.context(at(3), TTL).new_fleet);
    }

    /// R4: executed late, the word that nobody else runs would skip the hold-off of a loss of memory.
    #[test]
    fn the_word_that_nobody_else_runs_is_given_only_with_a_latest_execution_time() {
        let mut it = EpochTracker::new(InstanceId::new("a"), LeaseDuration::new(TTL), true);
        let unframed = it.context(at(1), TTL);
        assert_eq!((unframed.new_fleet, unframed.not_after_us), (false, 0));
        it.observe_time(at(1), 500_000_000);
        let framed = it.context(at(1), Duration::from_secs(2));
        assert_eq!((framed.new_fleet, framed.not_after_us), (true, 501_000_000));
    }

    #[test]
    fn a_hold_off_is_over_when_a_reply_says_so_or_its_time_has_passed() {
        let mut it = epoch_tracker();
        let held = Stamp { hold_off: Duration::from_secs(10), ..stamp(1, 501_000) };
        it.observe(at(2_000), at(2_001), &held);
        assert!(it.hold_off(at(11_000)).is_some());
        assert!(it.hold_off(at(12_400)).is_none());
        it.observe(at(2_100), at(2_101), &stamp(1, 501_100));
        assert!(it.hold_off(at(2_102)).is_none());
    }
}
