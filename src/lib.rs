//! Leasehold lets a fleet of plain VMs share out polling work through Redis: one endpoint, one lease,
//! one poller. Start another instance and it takes its share; kill one and the others take over.
//!
//! The names below are the library. Modules are internal: they are public for the binary, the test kit and the labs, are
//! not documented here, and change without notice. ARCHITECTURE.md in the repository is their map.
//!
//! | to | use |
//! |---|---|
//! | hold leases in a program of your own | [`LeaseManager`] |
//! | run work on one instance at a time | [`LeaderElection`], or [`Elections`] for many roles |
//! | poll in your own way | [`Poller`] and [`Daemon`] |
//!
//! Synchronous: OS threads, no async runtime.
#![doc = ""]
#![doc = include_str!("../docs/library.md")]

#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod event;
#[doc(hidden)]
pub mod metrics;
pub(crate) mod backoff;
#[doc(hidden)]
pub mod thread;
#[doc(hidden)]
pub mod net;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod lease;
#[doc(hidden)]
pub mod fleet;
#[doc(hidden)]
pub mod supervise;
#[doc(hidden)]
pub mod polling;
#[doc(hidden)]
pub mod instance;
#[doc(hidden)]
pub mod inspect;
#[doc(hidden)]
pub mod manager;
#[doc(hidden)]
pub mod election;

pub use crate::config::{Config, ConfigError};
pub use crate::election::{
    BuildError, Duty, ElectionBuilder, ElectionEvent, ElectionSettings, Elections, LeaderElection,
    Leadership, LossReason, Registration, State,
};
pub use crate::instance::Daemon;
pub use crate::lease::keeper::StartError;
pub use crate::lease::permit::{PollPermit, Revoked};
pub use crate::manager::{LeaseInfo, LeaseManager, LeaseState};
pub use crate::model::{
    Address, EndpointId, FenceToken, InstanceId, Role, Sample, Session, Tenure,
};
pub use crate::polling::poller::Poller;
pub use crate::store::{Fault, StoreError};
pub use crate::thread::fail_stop::Failure;
pub use crate::thread::{Stop, stop_on_signal};

/// Its Rust is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
