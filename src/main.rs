//! leasehold
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("guardian") => leasehold::pipeline::poll::guardian::guardian_main(&args[2..]),
        _ => ExitCode::SUCCESS,
    }
}
