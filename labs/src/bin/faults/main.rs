//! Do the promises hold on a machine that really fails? `make faults`: some minutes, as root.
//!
//! Real processes, each on a network of its own, a real Redis, and faults of the kernel's own making:
//! dropped packets, frozen groups, exhausted memory, stepped clocks. The judge is the endpoint's own
//! record of its polls, and every result that was published.
//!
//! `make faults ONLY=WORD` plays only the scenes that have WORD in their name. What cannot be done
//! here is reported as skipped, with the reason, and never as passed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

mod clocks;
mod failover;
mod lab;
mod network;
mod process;
mod server;

use std::process::ExitCode;

fn main() -> ExitCode {
    let scenes =
        [network::SCENES, server::SCENES, failover::SCENES, process::SCENES, clocks::SCENES];
    testkit::lab::play::run(&scenes.concat())
}
