//! How are sockets and processes waited for under a deadline, and interrupted? Knows nothing of leases.

pub mod abort;
pub(crate) mod deadline_stream;
pub mod http_server;
pub(crate) mod lookup;
pub mod shortage;
#[cfg(feature = "https")]
pub(crate) mod tls;
pub mod wait;
