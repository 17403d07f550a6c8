//! What the tests are written with.

pub mod cluster;
pub mod electorate;
pub mod fake;
pub mod hooked;
pub mod lead;
pub mod measure;
pub mod pids;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod redis;
pub mod results;
pub mod sentinel;
pub mod shards;
pub mod site;
pub mod takeovers;
pub mod target;
pub mod temp_dir;
pub mod terminal;
