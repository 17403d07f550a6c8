//! Does something only while this process, and no other, holds a lease.
//!
//! Run it twice, in two terminals: `cargo run --example hold_a_lease -- nightly-report`. One
//! process works. Stop it with Ctrl-C, and the other one takes over. The first start on a Redis waits 30 s.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use leasehold::{Acquired, Lease, LeaseManager, stop_on_signal};

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "nightly-report".into());
    let until = stop_on_signal()?;
    // redis://127.0.0.1:6379/0, unless LEASEHOLD_REDIS names another; a lease lasts 30 s, and a thread renews it every 10 s.
    let manager = LeaseManager::builder().from_env()?.start()?;
    say(&format!("this is {}", manager.instance_id()))?;
    loop {
        // An error means that Redis could not be asked.
        match manager.try_acquire(&name) {
            Ok(Acquired::Held(lease)) => work(&lease, || until.within(Duration::from_secs(1)))?,
            Ok(refused) => say(&format!("waiting: {refused}"))?,
            Err(error) => say(&format!("waiting: {error}"))?,
        }
        if until.within(Duration::from_secs(1)) {
            break;
        }
    }
    manager.stop(); // gives every lease back, so that the next owner need not wait for the TTL
    Ok(())
}

/// Works until the lease is lost, or the program is to stop. The guard is dropped behind this, which gives the lease back.
fn work(lease: &Lease, is_over: impl Fn() -> bool) -> io::Result<()> {
    while !lease.wait_lost(Duration::ZERO) && !is_over() {
        let prepared = "slow preparation comes first";
        // A lease can end at any moment, so the program asks right before the effect. The receiver of the effect gets the
        // fence, and refuses a fence that is older than the last one it saw.
        if lease.holds() {
            effect(prepared, lease.fence())?;
        }
    }
    Ok(())
}

fn effect(what: &str, fence: impl Display) -> io::Result<()> {
    say(&format!("working under fence {fence}: {what}"))
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}
