//! How to test a program that holds leases and stands for a role, without Redis and without waiting: the tests at the end.
//!
//! ```text
//! cargo test --features testing --example test_my_service
//! ```
//!
//! The program takes its manager and its election from outside, so that a test can give it those of a `TestRedis`.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::io;
use std::time::Duration;

use leasehold::{LeaderElection, Lease, LeaseManager};

/// Writes one report after the other, each on one instance only.
struct Reports {
    manager: LeaseManager,
}

impl Reports {
    /// Writes the pages of a report while the lease of its name is held; how many were written. `None` if another
    /// instance was at it until `timeout`.
    fn write(
        &self,
        name: &str,
        timeout: Duration,
        mut page: impl FnMut(&Lease, u32) -> io::Result<()>,
    ) -> io::Result<Option<u32>> {
        let mut write = |lease: &Lease| {
            for number in 0..3 {
                // Right before each effect: a report that another instance writes now is none of our business.
                if !lease.holds() {
                    return Ok(number);
                }
                page(lease, number)?;
            }
            Ok(3)
        };
        match self.manager.acquire(name, timeout).map_err(io::Error::other)?.held() {
            Some(lease) => write(&lease).map(Some),
            None => Ok(None),
        }
    }
}

/// Cleans up on the leader only.
struct Cleanup {
    election: LeaderElection,
}

impl Cleanup {
    /// Whether it was this instance's turn.
    fn run(&self, mut clean: impl FnMut()) -> bool {
        self.election.run_if_leader(|_| clean()).is_some()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redis = "redis://127.0.0.1:6379";
    let config = leasehold::Config {
        redis: leasehold::RedisUrl::parse(redis)?,
        ..leasehold::Config::default()
    };
    let reports = Reports { manager: LeaseManager::start(&config.checked()?)? };
    let written = reports.write("nightly-report", Duration::from_secs(60), |lease, page| {
        println!("page {page} under fence {}", lease.fence());
        Ok(())
    })?;
    println!("{written:?} pages");
    let election = LeaderElection::builder("cleanup")?.redis(redis)?.start()?;
    println!("cleaned up: {}", Cleanup { election }.run(|| println!("cleaning up")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use leasehold::testing::TestRedis;

    use super::*;

    /// Longer than a lease, or a role, lasts by default (30 s).
    const LONG: Duration = Duration::from_secs(40);

    fn reports(redis: &TestRedis, host: &str) -> Result<Reports, Box<dyn Error>> {
        Ok(Reports { manager: redis.manager(host)? })
    }

    #[test]
    fn a_report_is_written_to_its_end_however_long_it_takes() -> Result<(), Box<dyn Error>> {
        let redis = TestRedis::new();
        let written = reports(&redis, "vm1")?.write("r", Duration::ZERO, |_, _| {
            redis.clock().advance(LONG); // the lease is renewed meanwhile
            Ok(())
        })?;
        assert_eq!(written, Some(3));
        assert_eq!(redis.owner("r"), None, "given back");
        Ok(())
    }

    #[test]
    fn my_lease_was_lost_while_i_worked() -> Result<(), Box<dyn Error>> {
        let redis = TestRedis::new();
        let (one, two) = (reports(&redis, "vm1")?, reports(&redis, "vm2")?);
        let mut fences = Vec::new();
        let written = one.write("r", Duration::ZERO, |lease, _| {
            fences.push(lease.fence());
            redis.cut_off(one.manager.instance_id());
            redis.clock().advance(LONG);
            Ok(())
        })?;
        assert_eq!(written, Some(1), "it stops before the second page");
        // Another instance took over, under a higher fence.
        let written = two.write("r", Duration::ZERO, |lease, _| {
            fences.push(lease.fence());
            Ok(())
        })?;
        assert_eq!(written, Some(3));
        assert!(fences[0] < fences[1]);
        Ok(())
    }

    #[test]
    fn redis_was_away_for_a_while() -> Result<(), Box<dyn Error>> {
        let redis = TestRedis::new();
        let one = reports(&redis, "vm1")?;
        redis.pause();
        assert!(one.write("r", Duration::ZERO, |_, _| Ok(())).is_err());
        redis.clock().advance(LONG);
        redis.resume();
        redis.clock().advance(Duration::from_secs(5)); // it beats again
        assert_eq!(one.write("r", Duration::ZERO, |_, _| Ok(()))?, Some(3));
        Ok(())
    }

    #[test]
    fn a_release_wakes_my_waiter() -> Result<(), Box<dyn Error>> {
        let redis = TestRedis::new();
        let (one, two) = (reports(&redis, "vm1")?, reports(&redis, "vm2")?);
        let lease = one.manager.try_acquire("r")?.held().ok_or("not free")?;
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| two.write("r", LONG, |_, _| Ok(())));
            redis.clock().wait_for_waiters(1); // it has asked, and waits
            drop(lease);
            assert!(matches!(waits.join(), Ok(Ok(Some(3)))));
        });
        assert_eq!(redis.clock().elapsed(), Duration::ZERO, "no time has gone by");
        Ok(())
    }

    #[test]
    fn my_leadership_was_lost_and_another_instance_took_over() -> Result<(), Box<dyn Error>> {
        let redis = TestRedis::new();
        let stand = |host: &str| -> Result<Cleanup, Box<dyn Error>> {
            let elections = redis.elections(host)?;
            let election = LeaderElection::builder("cleanup")?.start_in(&elections)?;
            Ok(Cleanup { election })
        };
        let (one, two) = (stand("vm1")?, stand("vm2")?);
        assert!(one.run(|| ()) && !two.run(|| ()));
        redis.cut_off(one.election.instance_id());
        redis.clock().advance(LONG);
        assert!(!one.run(|| ()) && two.run(|| ()));
        redis.restore(one.election.instance_id());
        redis.clock().advance(LONG);
        assert!(!one.run(|| ()) && two.run(|| ()), "the new leader stays");
        Ok(())
    }
}
