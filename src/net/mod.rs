//! Waiting for sockets and processes under a deadline and with a way to be interrupted. Knows nothing of leases.

pub mod abort;
pub(crate) mod deadline_stream;
pub(crate) mod lookup;
pub mod shortage;
#[cfg(feature = "https")]
pub(crate) mod tls;
pub mod wait;
