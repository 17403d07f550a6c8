//! Shows what a fleet does while it grows, shrinks, crashes and loses its Redis. `make demo`.
//!
//! Everything is real and private: a redis-server on a free port, instances of the binary next to
//! this example, and an HTTP endpoint in this process that records who polled what, when.
//! With `--picture FILE` another play is drawn instead of told: `make picture`.

mod chart;
mod fleet;
mod judge;
mod picture;
mod play;
mod screen;
mod stage;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use leasehold::{Stop, stop_on_signal};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // A signal ends this program, which ends everything it started.
    let until = stop_on_signal().map_err(io::Error::other);
    match until.and_then(|until| show(&args, &until)) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => (),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => (), // nobody reads any more
        Err(error) => drop(writeln!(io::stderr(), "demo: {error}")),
    }
    ExitCode::FAILURE
}

/// True if no rule was broken.
fn show(args: &[String], until: &Stop) -> io::Result<bool> {
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => play::play(until),
        ["--picture", file] => picture::draw(Path::new(file), until),
        _ => Err(io::Error::other("usage: demo [--picture FILE]")),
    }
}
