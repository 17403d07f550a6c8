//! What the tests, the labs and the benchmarks share: private servers, real and in-memory fleets, and judges of what
//! they did.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::new_without_default,
    clippy::len_without_is_empty,
    missing_docs,
    reason = "written for tests"
)]

pub mod agent;
pub mod audit;
pub mod bench;
pub mod bounds;
pub mod cluster;
pub mod electorate;
pub mod fake;
pub mod hooked;
pub mod lab;
pub mod lead;
pub mod limits;
pub mod measure;
pub mod paths;
pub mod pids;
pub mod private_redis;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod random;
pub mod redis;
pub mod results;
pub mod sections;
pub mod sentinel;
pub mod shards;
pub mod simulation;
pub mod site;
pub mod svg;
pub mod takeovers;
pub mod target;
pub mod temp_dir;
pub mod terminal;
