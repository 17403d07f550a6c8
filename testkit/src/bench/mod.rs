//! What the benchmarks share: an instance that holds leases, a meter of CPU and traffic, and the table of numbers.

pub mod holder;
pub mod meter;
pub mod million;
pub mod table;
