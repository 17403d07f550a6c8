//! How many jobs may dispatch give out before pollers finish some, and how long does it rest between two rounds? Pure.
//!
//! A round of dispatch costs a round trip and three wake-ups, however many jobs it is about. So dispatch rests between two
//! rounds and reads no message meanwhile, and the next round is about more jobs. Fast pollers need enough waiting jobs for
//! a rest and a slow round. A job that waits longer than its verification is good for (R2) was verified in vain, so slow
//! pollers get no more jobs than they begin within that time.

use std::time::Duration;

use crate::clock::Moment;
use crate::config::Config;
use crate::polling::dispatch::VERIFIED_FOR;

/// What becomes due and what ends within this time is handled in one round.
const GATHER: Duration = Duration::from_millis(4);
/// … and this long while more is due than pollers can do.
const GATHER_FULL: Duration = Duration::from_millis(10);
/// Dispatch keeps this much work waiting, at the speed at which pollers last finished jobs.
const AHEAD: Duration = Duration::from_millis(50);
/// The speed of the pollers is measured over this time.
const MEASURED_FOR: Duration = Duration::from_millis(100);
/// Waiting jobs for each poller, at most.
const SPARE_MAX: usize = 16;

/// How fast the pollers take what they are given.
#[derive(Debug)]
pub(crate) struct DispatchWindow {
    workers: usize,
    /// Jobs done in this window, and when it began.
    done: (u32, Moment),
    /// How long it took all of them together to do one, in the last window.
    each: Option<Duration>,
}

/// Where dispatch stands after a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundStats {
    /// Jobs given out and not done, now.
    pub(crate) out: usize,
    /// The round gave out about all it could, and more may be due.
    pub(crate) is_behind: bool,
    /// How long the round took.
    pub(crate) took: Duration,
}

impl DispatchWindow {
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers, done: (0, Moment::MIN), each: None }
    }

    /// A job is done.
    pub(crate) fn completed(&mut self) {
        self.done.0 = self.done.0.saturating_add(1);
    }

    /// Jobs that may be given out and not done: one for each poller, and those that wait.
    pub(crate) fn out_max(&self) -> usize {
        (self.workers + self.spare()).min(2 * Config::WORKERS_MAX)
    }

    /// One for each poller where nothing is known. At least one: a poller that is done must find something.
    fn spare(&self) -> usize {
        let workers = self.workers.max(1);
        let Some(each) = self.each else { return workers };
        let eaten_in = |time: Duration| {
            usize::try_from(time.as_nanos() / each.as_nanos().max(1)).unwrap_or(usize::MAX)
        };
        let in_time = eaten_in(VERIFIED_FOR).max(1);
        eaten_in(AHEAD).clamp(workers.min(in_time), SPARE_MAX * workers)
    }

    /// How long dispatch may rest after a round. While more is due than it could give out pollers must not run
    /// out of jobs meanwhile: half of the time that what waits for them lasts, and the next round falls into it, too.
    pub(crate) fn rest(&mut self, round: &RoundStats, now: Moment) -> Duration {
        let (done, since) = self.done;
        let elapsed = now.since(since);
        // Nothing done by pollers that all have something to do says that they need longer, not how long.
        let all_at_work = round.out >= self.workers;
        let is_too_early = done == 0 && all_at_work && since != Moment::MIN;
        if elapsed >= MEASURED_FOR && !is_too_early {
            self.each = elapsed.checked_div(done);
            self.done = (0, now);
        }
        let waiting = u32::try_from(round.out.saturating_sub(self.workers)).unwrap_or(u32::MAX);
        match self.each {
            Some(each) if round.is_behind => {
                let lasts = each.saturating_mul(waiting);
                GATHER_FULL.min((lasts / 2).saturating_sub(round.took))
            }
            _ => GATHER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: usize = 64;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// More is due than can be given out, and that is as much as there may be.
    fn full(window: &DispatchWindow, took: Duration) -> RoundStats {
        RoundStats { out: window.out_max(), is_behind: true, took }
    }

    /// Pollers that completed this many jobs in 100 ms.
    fn after(workers: usize, done: u32) -> DispatchWindow {
        let mut window = DispatchWindow::new(workers);
        let now = Moment::from_nanos(1_000_000_000);
        window.rest(&full(&window, ms(0)), now);
        (0..done).for_each(|_| window.completed());
        window.rest(&full(&window, ms(0)), now + ms(100));
        window
    }

    /// How long dispatch rests then, if a round takes so long.
    fn rest(window: &mut DispatchWindow, took: Duration) -> Duration {
        window.rest(&full(window, took), window.done.1)
    }

    #[test]
    fn pollers_that_are_fast_have_50_ms_of_work_waiting_and_others_as_much_as_they_are() {
        for (done, out) in [(0, 64 + 64), (10, 64 + 64), (500, 64 + 250), (9_000, 64 + 16 * 64)] {
            assert_eq!(after(WORKERS, done).out_max(), out, "{done} done in 100 ms");
        }
        assert_eq!(after(Config::WORKERS_MAX, 90_000).out_max(), 2 * Config::WORKERS_MAX);
    }

    /// R2: what waits longer than a second is verified in vain.
    #[test]
    fn pollers_that_are_slow_have_a_second_of_work_waiting_and_at_least_one_job() {
        assert_eq!(after(WORKERS, 1).out_max(), 64 + 10);
        // 64 polls of 20 s: about one is done in 300 ms, and none in most windows.
        let mut window = DispatchWindow::new(WORKERS);
        let mut now = Moment::from_nanos(1_000_000_000);
        window.rest(&full(&window, ms(0)), now);
        for _ in 0..5 {
            for _ in 0..75 {
                now = now + ms(4);
                window.rest(&full(&window, ms(0)), now);
            }
            window.completed();
            window.rest(&full(&window, ms(0)), now);
            assert_eq!(window.out_max(), 64 + 3);
        }
        let mut one = DispatchWindow::new(1);
        one.rest(&full(&one, ms(0)), now);
        one.completed();
        one.rest(&full(&one, ms(0)), now + ms(1_200));
        assert_eq!(one.out_max(), 1 + 1);
    }

    #[test]
    fn pollers_do_not_run_out_of_jobs_while_dispatch_rests() {
        assert_eq!(rest(&mut after(WORKERS, 1_000), ms(1)), GATHER_FULL);
        assert_eq!(
            rest(&mut after(1, 1_000), ms(0)),
            ms(16) / 20,
            "half of sixteen jobs of 100 µs"
        );
        assert_eq!(rest(&mut after(1, 5), ms(1)), GATHER_FULL);
        assert_eq!(rest(&mut after(WORKERS, 0), ms(1)), GATHER);
    }

    /// On a machine that is busy the store answers late: what waits has to last that long, too.
    #[test]
    fn the_longer_a_round_takes_the_sooner_the_next_begins() {
        let mut window = after(WORKERS, 1_000); // what waits lasts 50 ms
        let rests = [0, 15, 20, 25, 90].map(|it| rest(&mut window, ms(it)));
        assert_eq!(rests, [10, 10, 5, 0, 0].map(ms));
        // More fitted than goes into a round: the rest of it at once, as nobody has anything in reserve.
        let round = RoundStats { out: WORKERS, is_behind: true, took: ms(0) };
        assert_eq!(window.rest(&round, window.done.1), ms(0));
    }

    #[test]
    fn who_is_not_behind_rests_as_long_as_it_likes() {
        let mut window = after(1, 1_000);
        let round = RoundStats { out: 0, is_behind: false, took: ms(50) };
        assert_eq!(window.rest(&round, window.done.1), GATHER);
    }

    /// What was known of them is known until they do something else, or nothing although they could.
    #[test]
    fn pollers_that_are_all_at_work_keep_their_pace() {
        for (out, spare) in [(WORKERS, 500), (WORKERS - 1, WORKERS)] {
            let mut window = after(WORKERS, 1_000);
            let round = RoundStats { out, is_behind: false, took: ms(0) };
            window.rest(&round, window.done.1 + ms(100));
            assert_eq!(window.out_max(), WORKERS + spare, "{out} at work");
        }
    }
}
