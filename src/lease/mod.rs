//! Holds rights: until when this instance may act under a lease, and the threads that keep it (R1–R6, R13).
//!
//! May touch the store. Does not decide who should own a lease, and polls nothing. Also here, because fleet, polling and
//! election all stand on it: pushes (`watch`), reports and history.

pub mod epoch_tracker;
pub mod expiry;
pub mod heartbeat;
pub(crate) mod heartbeat_deadline;
pub mod history;
pub mod keeper;
pub(crate) mod log_limiter;
pub mod parts;
pub mod permit;
pub mod renewal;
pub mod report;
pub(crate) mod running_polls;
pub mod shutdown_release;
pub mod table;
#[cfg(any(test, feature = "__internals"))]
pub mod testing;
pub(crate) mod trouble;
pub mod watch;
