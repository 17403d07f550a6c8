//! Do the promises hold where the store is more than one server? `make topologies`: some minutes, as root.
//!
//! Three instances, each on a network of its own, poll a recording endpoint while real Sentinels and a real
//! cluster fail over, lose what was granted, are cut in two, and move slots; and while secrets are exchanged.
//! The judge is that of `make faults`: the endpoint's own record, and every result that was published.
//!
//! `make topologies ONLY=WORD` plays only the scenes that have WORD in their name.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

mod cluster;
mod lab;
mod secrets;
mod sentinels;
mod wall;

use std::process::ExitCode;

fn main() -> ExitCode {
    testkit::lab::play::run(&[sentinels::SCENES, cluster::SCENES, secrets::SCENES].concat())
}
