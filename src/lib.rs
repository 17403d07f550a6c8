//! Leasehold.
pub mod clock;
pub mod config;
pub mod event;
pub mod model;
pub mod store;
pub mod pipeline;
pub use model::{Sample, Session};
pub use pipeline::lease::{PollPermit, Revoked};
