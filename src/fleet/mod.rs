//! Decides ownership: which endpoints exist, which instances live, and who should own what (R7–R10).
//!
//! May touch the store and the table of leases. Knows nothing of polling: it sends each change of ownership on.

pub mod informer;
pub mod lease_change;
pub mod placement;
pub mod reconcile;
pub mod session_cache;
pub mod view;
