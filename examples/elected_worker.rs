//! A worker that runs on every VM and works only on the elected one: `cargo run --example elected_worker -- redis://127.0.0.1:6379`.
//!
//! Start it three times and kill the leader: another process takes over. Ctrl-C hands the role over at once.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use leasehold::{ElectionEvent, LeaderElection};

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let signalled = leasehold::stop_on_signal()?;
    let election = LeaderElection::builder("worker")?
        .redis(&url)?
        .ttl(Duration::from_secs(3))
        .start_waiting(&signalled)?;
    let mut out = std::io::stdout();
    let _registration = election.listen(move |event| {
        if let ElectionEvent::StateChanged { from, to, .. } = event {
            let _ = writeln!(out, "{from:?} -> {to:?}");
        }
    })?;
    while !signalled.within(Duration::from_millis(500)) {
        election.run_if_leader(|duty| {
            let _ = writeln!(std::io::stdout(), "working in term {}", duty.term());
        });
    }
    election.stop();
    Ok(())
}
