//! Does something only while this process, and no other, holds a lease.
//!
//! Run it twice, in two terminals: `cargo run --example hold_a_lease -- nightly-report`. One
//! process works. Stop it with Ctrl-C, and the other one takes over. The first start on a Redis waits 30 s.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use leasehold::{Config, EndpointId, FenceToken, LeaseManager, stop_on_signal};

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "nightly-report".into());
    let work = EndpointId::parse(&name)?;
    let until = stop_on_signal()?;
    // redis://127.0.0.1:6379/0; a lease lasts 30 s, and a thread renews it every 10 s.
    let leases = LeaseManager::start(Config::default().checked()?)?;
    say(&format!("this is {}", leases.instance_id()))?;
    loop {
        // True also when this process held the lease before. An error means that Redis could not be asked.
        match leases.try_acquire(&work) {
            Ok(true) => do_a_bit(&leases, &work)?,
            Ok(false) => say(&format!("waiting: {work} is {:?}", leases.info(&work)?.state))?,
            Err(error) => say(&format!("waiting: {error}"))?,
        }
        if until.within(Duration::from_secs(1)) {
            break;
        }
    }
    leases.stop(); // gives every lease back, so that the next owner need not wait for the TTL
    Ok(())
}

/// A lease can end at any moment, so the program asks for its fence right before the effect. The receiver of the effect
/// gets the fence, and refuses a fence that is older than the last one it saw.
fn do_a_bit(leases: &LeaseManager, work: &EndpointId) -> io::Result<()> {
    let prepared = "slow preparation comes first";
    leases.fence(work).map_or(Ok(()), |fence| effect(prepared, fence))
}

fn effect(what: &str, fence: FenceToken) -> io::Result<()> {
    say(&format!("working under fence {fence}: {what}"))
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}
