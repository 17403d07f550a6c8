//! Polls: when an endpoint is due, who polls it, how, and where the result goes (R2, R3, G2).
//!
//! May touch the table of leases, the store (to verify and to publish) and the endpoints themselves.

pub mod command;
mod connect;
pub mod dispatch;
pub mod http;
pub mod intervals;
pub mod job_queue;
pub mod poller;
pub mod poller_pool;
pub mod outbox;
pub mod publisher;
mod reach;
pub mod schedule;
mod slow_lane;
pub mod targets;
mod throughput;
pub mod tcp;
#[cfg(test)]
mod testing;
mod window;
pub mod worker;
