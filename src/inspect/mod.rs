//! Is the fleet well (`status`), and are Redis and this host set up right (`doctor`)? Judges data that other modules read.

pub mod doctor;
pub mod status;
