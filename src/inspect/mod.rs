//! Is the fleet well (`status`), did it keep its promises (`audit`), and are Redis and this host set up right (`doctor`)?
//! Judges data that other modules read.

pub mod audit;
pub mod doctor;
pub(crate) mod moves;
pub(crate) mod printable;
pub(crate) mod short_names;
pub mod status;
pub(crate) mod utc;
