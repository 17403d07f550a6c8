//! Polls: when an endpoint is due, who polls it, how, and where the result goes (R2, R3, G2).
//!
//! May touch the table of leases, the store (to verify and to publish) and the endpoints themselves.

mod certificates;
#[cfg(feature = "cli")]
pub mod command;
#[cfg(feature = "cli")]
mod connect;
pub mod dispatch;
#[cfg(feature = "cli")]
pub mod http;
#[cfg(feature = "cli")]
pub mod hooks;
pub mod intervals;
pub mod job_queue;
#[cfg(feature = "cli")]
pub mod net_poller;
pub mod poller;
pub mod poller_pool;
pub mod outbox;
#[cfg(feature = "cli")]
mod program;
pub mod publisher;
mod reach;
pub mod reverify;
pub mod schedule;
mod slow_lane;
#[cfg(feature = "cli")]
pub mod targets;
mod throughput;
#[cfg(feature = "cli")]
pub mod tcp;
#[cfg(test)]
mod testing;
mod window;
pub mod verdicts;
pub mod worker;
