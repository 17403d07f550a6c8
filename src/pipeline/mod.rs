//! The stages between a session in Redis and a published result, in the order data flows.
//!
//! Each stage is plain values and functions of `now`; none spawns, waits, or calls the next one.

pub mod discovery;
pub mod view;
pub mod placement;
pub mod epoch_tracker;
pub mod abort;
pub mod lease;
pub mod ownership;
pub mod schedule;
pub mod poll;
pub mod publish;
