//! Is the fleet well (`status`), and are Redis and this host set up right (`doctor`)? Judges data that other modules read.

pub mod doctor;
pub(crate) mod moves;
pub(crate) mod printable;
pub(crate) mod short_names;
pub mod status;
pub(crate) mod utc;
