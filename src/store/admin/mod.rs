//! What the commands of operators ask of Redis. A running instance never does, except `try_rights` at its start.

pub mod acl;
pub mod endpoint;
pub(crate) mod erase;
pub(crate) mod infos;
pub mod key_types;
pub mod last_result;
pub mod overview;
pub mod probe;
pub mod result_stream;
pub mod runs;
pub mod sessions;
