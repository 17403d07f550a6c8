//! Leasehold lets a fleet of plain VMs share out polling work through Redis: one endpoint, one lease,
//! one poller. Start another instance and it takes its share; kill one and the others take over.
//!
//! | to | use |
//! |---|---|
//! | hold leases in your own program | [`LeaseManager`] |
//! | run work on one instance at a time | [`LeaderElection`], or [`Elections`] for many roles |
//! | poll in your own way | [`Poller`] and [`Daemon`] |
//!
//! All names stand at the root. The modules are private; ARCHITECTURE.md in the repository is their map.
#![doc = ""]
#![doc = include_str!("../docs/library.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    feature = "__internals",
    allow(missing_docs, reason = "modules are public for testkit and labs, which read the source")
)]
#![cfg_attr(
    not(feature = "__internals"),
    allow(
        unreachable_pub,
        reason = "`pub` in a module is for testkit and labs, by the feature `__internals`"
    )
)]
#![cfg_attr(
    not(all(feature = "cli", feature = "https")),
    allow(
        dead_code,
        unused_imports,
        reason = "the library without its program or without TLS still compiles what only those call; the linker leaves it out"
    )
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "leasehold runs on Linux only: its deadlines need CLOCK_BOOTTIME, which goes on while a host is suspended"
);

/// Public modules with a feature, and private ones without it. Under the name of the crate `cfg_if`, because rustfmt looks into
/// a macro of that name for the files of modules, and into no other.
macro_rules! cfg_if {
    (if #[cfg($feature:meta)] { $($public:item)* } else { $($private:item)* }) => {
        $(#[cfg($feature)] #[doc(hidden)] $public)*
        $(#[cfg(not($feature))] $private)*
    };
}

cfg_if! {
    if #[cfg(feature = "__internals")] {
        pub mod model;
        pub mod clock;
        pub mod config;
        pub mod event;
        pub mod metrics;
        pub mod backoff;
        pub mod thread;
        pub mod net;
        pub mod store;
        pub mod lease;
        pub mod fleet;
        #[cfg(feature = "cli")]
        pub mod supervise;
        pub mod polling;
        pub mod instance;
        #[cfg(feature = "cli")]
        pub mod inspect;
        pub mod manager;
        pub mod election;
    } else {
        mod model;
        mod clock;
        mod config;
        mod event;
        mod metrics;
        mod backoff;
        mod thread;
        mod net;
        mod store;
        mod lease;
        mod fleet;
        #[cfg(feature = "cli")]
        mod supervise;
        mod polling;
        mod instance;
        #[cfg(feature = "cli")]
        mod inspect;
        mod manager;
        mod election;
    }
}
#[cfg(feature = "cli")]
mod agent;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
#[cfg(feature = "cli")]
mod web;

pub use crate::config::{
    Access, CheckedConfig, Config, ConfigError, LogLevel, LogRenewals, OnChange, PollAccess,
    RedisUrl, RedisUrlError,
};
pub use crate::election::{
    Attempt, BuildError, Duty, ElectionBuilder, ElectionEvent, ElectionSettings, Elections,
    LeaderElection, Leadership, LossReason, Registration, State,
};
pub use crate::instance::Daemon;
pub use crate::lease::keeper::StartError;
pub use crate::lease::permit::{PollPermit, Revoked};
pub use crate::manager::{
    Acquired, Lease, LeaseError, LeaseInfo, LeaseLoss, LeaseManager, LeaseManagerBuilder,
    LeaseState, LeaseWatch, LossListener, LostLease, NotNow, Released,
};
pub use crate::model::{
    Address, EndpointId, FenceToken, InstanceId, InvalidId, InvalidRole, Role, Sample, Session,
    SessionError, Tenure, Thresholds,
};
pub use crate::net::abort::Abort;
pub use crate::polling::poller::Poller;
pub use crate::store::{Fault, StoreError};
pub use crate::thread::fail_stop::Failure;
#[cfg(feature = "cli")]
#[cfg_attr(docsrs, doc(cfg(feature = "cli")))]
pub use crate::thread::signals::stop_on_signal;
pub use crate::thread::{Stop, StopSource};

/// The program `leasehold`, for src/main.rs.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub use crate::cli::main as command_line;

/// Its Rust is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
