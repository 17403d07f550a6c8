//! Can two versions of leasehold share one fleet? `make upgrade` builds both from git and lets them find out (3 minutes once both are built).
//!
//! Each scene starts real processes of both versions on a private Redis: a rolling upgrade, a rolling downgrade, mishaps in a
//! fleet that is half old and half new, and one elected role through the same. The endpoint's record of its polls and
//! every published result are the judge, as in `make faults`.
//!
//! `make upgrade BEFORE=REVISION AFTER=REVISION` compares other versions; `ONLY=WORD` plays the scenes with WORD in their name.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]

mod fleet;
mod role;
mod versions;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(why) = versions::build() {
        println!("{why}");
        return ExitCode::FAILURE;
    }
    testkit::lab::play::run_on_loopback(&[fleet::SCENES, role::SCENES].concat())
}
