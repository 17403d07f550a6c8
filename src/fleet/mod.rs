//! Decides ownership: reads which endpoints and instances exist, plans which instance should own which endpoint, and
//! acquires and hands over leases towards that plan (R7–R10).
//!
//! May touch the store and the table of leases. Does not know polling: it sends a [`lease_change::LeaseChange`] to dispatch.

pub mod failure_detector;
pub mod informer;
pub mod lease_change;
pub mod live_instances;
pub mod placement;
pub mod reconcile;
pub mod session_cache;
mod suspicion;
pub mod view;
