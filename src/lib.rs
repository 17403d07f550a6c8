//! Leasehold lets a fleet of plain VMs share out polling work through Redis: one endpoint, one lease,
//! one poller. Start another instance and it takes its share; kill one and the others take over.
//!
//! Data flows one way, and the modules are listed in that order:
//!
//! ```text
//! sessions in Redis → discovery → placement → ownership → schedule → poll → publish
//! ```
//!
//! [`store`] asks Redis and knows every answer; [`pipeline`] holds the stages, plain values and functions
//! of `now`; [`daemon`] is the threads around them. To hold leases in a program of your own use
//! [`LeaseManager`]; to poll in your own way implement [`Poller`] and start a [`Daemon`].

pub mod model;
pub mod clock;
pub mod config;
pub mod event;
pub mod metrics;
pub mod store;
pub mod pipeline;
pub mod status;
pub mod doctor;
pub mod daemon;
pub mod wrapped;
pub mod manager;
pub mod election;

pub use crate::config::Config;
pub use crate::daemon::Daemon;
pub use crate::daemon::keeper::StartError;
pub use crate::daemon::thread::{Stop, stop_on_signal};
pub use crate::manager::LeaseManager;
pub use crate::model::{Address, EndpointId, FenceToken, InstanceId, Sample, Session, Tenure};
pub use crate::pipeline::lease::{PollPermit, Revoked};
pub use crate::pipeline::poll::Poller;

/// Its Rust is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
