//! Leasehold lets a fleet of plain VMs share out polling work through Redis: one endpoint, one lease,
//! one poller. Start another instance and it takes its share; kill one and the others take over.
//!
//! Data flows one way, and the modules are listed in that order:
//!
//! ```text
//! sessions in Redis → fleet (who owns what) → lease (until when) → polling (poll, publish)
//! ```
//!
//! [`store`] asks Redis and knows every answer. [`lease`] holds rights, [`fleet`] decides ownership, [`polling`] polls,
//! [`election`] elects, and [`instance`] wires them together and starts the threads. To hold leases in a program of your
//! own use [`LeaseManager`]; to poll in your own way implement [`Poller`] and start a [`Daemon`].

pub mod model;
pub mod clock;
pub mod config;
pub mod event;
pub mod metrics;
pub(crate) mod backoff;
pub mod thread;
pub mod net;
pub mod store;
pub mod lease;
pub mod fleet;
pub mod supervise;
pub mod polling;
pub mod instance;
pub mod inspect;
pub mod manager;
pub mod election;

pub use crate::config::Config;
pub use crate::instance::Daemon;
pub use crate::lease::keeper::StartError;
pub use crate::lease::permit::{PollPermit, Revoked};
pub use crate::manager::LeaseManager;
pub use crate::model::{Address, EndpointId, FenceToken, InstanceId, Sample, Session, Tenure};
pub use crate::polling::poller::Poller;
pub use crate::thread::{Stop, stop_on_signal};

/// Its Rust is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Its Rust is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct LibraryPage;
