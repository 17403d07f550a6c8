//! Do the promises hold where the store is more than one server? `make topologies`: some minutes, as root.
//!
//! Three instances, each on a network of its own, poll a recording endpoint while real Sentinels and a real
//! cluster fail over, lose what was granted, are cut in two, and move slots; and while secrets are exchanged.
//! The judge is that of `make faults`: the endpoint's own record, and every result that was published.
//!
//! `make topologies ONLY=WORD` plays only the scenes that have WORD in their name.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

#[path = "../faults/apart.rs"]
mod apart;
mod cluster;
#[path = "../faults/groups.rs"]
#[allow(unused, reason = "no groups here")]
mod groups;
mod lab;
#[path = "../faults/net.rs"]
mod net;
#[path = "../faults/play.rs"]
mod play;
mod secrets;
mod sentinels;
#[path = "../faults/table.rs"]
mod table;
#[path = "../faults/verdict.rs"]
mod verdict;
mod wall;

use std::process::ExitCode;

fn main() -> ExitCode {
    play::run(&[sentinels::SCENES, cluster::SCENES, secrets::SCENES].concat())
}
