//! Judges what was read: how a fleet is (`status`), and whether everything is set up right (`doctor`). Pure functions.

pub mod doctor;
pub mod status;
