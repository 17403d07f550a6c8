//! What the labs share that break real networks, servers and processes: namespaces, control groups, the run of the
//! scenarios, and the verdict.

pub mod apart;
pub mod groups;
pub mod net;
pub mod play;
pub mod table;
pub mod verdict;
