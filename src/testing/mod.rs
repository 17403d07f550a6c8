//! Tests of your own program without Redis and without waiting (feature `testing`).
//!
//! [`TestRedis`] is a Redis in memory, and [`TestClock`] its time, which stands still until a test moves it. Managers and
//! elections on it are the real ones: the same requests, deadlines and decisions, without their threads. What these would
//! do by themselves happens inside of [`TestClock::advance`], one step at a time and always in the same order.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use leasehold::testing::TestRedis;
//!
//! let redis = TestRedis::new();
//! let (one, two) = (redis.manager("vm1")?, redis.manager("vm2")?);
//! let lease = one.try_acquire("nightly-report")?.held().expect("it was free");
//! assert!(two.try_acquire("nightly-report")?.held().is_none());
//!
//! redis.cut_off(one.instance_id()); // and its Redis does not answer it any more
//! redis.clock().advance(Duration::from_secs(40)); // longer than a lease lasts
//! assert!(!lease.holds());
//! let taken = two.try_acquire("nightly-report")?.held().expect("its owner is gone");
//! assert!(taken.fence() > lease.fence());
//! # Ok(()) }
//! ```
//!
//! # Threads that wait
//!
//! [`LeaseManager::acquire`](crate::LeaseManager::acquire), [`Lease::wait_lost`](crate::Lease::wait_lost),
//! [`LeaderElection::wait_for_leadership`](crate::LeaderElection::wait_for_leadership) and the others wait by the test clock. A
//! test moves the clock on one thread while another waits; [`TestClock::wait_for_waiters`] tells when the other has begun
//! to. A release wakes a thread that waits without any move of the clock. A test with one thread waits with a zero timeout. A
//! wait that nobody can end panics after a minute.
//!
//! Listeners keep their threads. [`TestClock::advance`] returns when they have heard everything and have returned, so a listener
//! must not wait for the thread that moves the clock.
//!
//! # What it does not do
//!
//! A request takes no time. One that is not answered fails at once, and not after `store_timeout`. There is no
//! [`Daemon`](crate::Daemon) on it: a [`Poller`](crate::Poller) is a function to be called.

mod scheduler;
mod test_redis;

pub use crate::testing::test_redis::{TestClock, TestRedis};
