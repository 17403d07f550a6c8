//! How does what was read look? Each view makes HTML of a snapshot. Pure.

pub(crate) mod chart;
pub(crate) mod endpoint;
pub(crate) mod endpoints;
pub(crate) mod fleet;
pub(crate) mod instance;
pub(crate) mod layout;
pub(crate) mod words;
