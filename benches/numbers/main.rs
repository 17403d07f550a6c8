//! The numbers: what the lease engine, planning, looking and standing still cost. `make bench`,
//! `make bystanders`, `make growth`.
//!
//! `cargo bench --bench numbers -- engine footprint` measures only these parts; a number among the words is
//! how many leases there are to be. Everything is a ratio, or taken by turns in one run, and stands in one
//! table with its spread and its goal: `docs/results/performance.md`.

mod before;
mod bystanders;
mod discovery;
mod engine;
mod fleet;
mod footprint;
mod growth;
mod others;
mod permits;
mod placement;
mod plain;
mod polling;
mod process;
mod reader;
mod sessions;
mod target;

use std::io::{self, Write};
use std::process::ExitCode;

use leasehold::clock::{BootClock, Clock};

use testkit::bench::table::{self, Part, Row};

/// What is measured when nothing is named; `bystanders` and `growth` take a million, `before` another binary: they have to be asked for.
const USUAL: [&str; 5] = ["engine", "placement", "discovery", "polling", "footprint"];

type Found = io::Result<(String, Vec<Row>)>;
type Measure = fn(Option<u32>) -> Found;

const PARTS: [(&str, Measure); 8] = [
    ("engine", |leases| engine::measure(leases.unwrap_or(100_000))),
    ("placement", |_| Ok(placement::measure())),
    ("discovery", |_| discovery::measure()),
    ("polling", |_| polling::measure()),
    ("footprint", |_| footprint::measure()),
    ("before", |_| before::measure()),
    ("bystanders", |leases| bystanders::measure(leases.unwrap_or(1_000_000))),
    ("growth", |most| growth::measure(most.unwrap_or(1_000_000))),
];

fn main() -> ExitCode {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let leases = words.iter().find_map(|it| it.parse().ok());
    let is_known =
        |it: &&String| it.parse::<u32>().is_ok() || PARTS.iter().any(|part| part.0 == *it);
    if let Some(word) = words.iter().find(|it| !is_known(it)) {
        let parts = PARTS.map(|it| it.0).join(", ");
        say(&format!("{word} is no part of it: {parts}"));
        return ExitCode::FAILURE;
    }
    let named: Vec<&str> =
        PARTS.iter().map(|it| it.0).filter(|it| words.iter().any(|word| word == it)).collect();
    let named = if named.is_empty() { USUAL.to_vec() } else { named };
    let (mut parts, mut code) = (Vec::new(), ExitCode::SUCCESS);
    for (name, measure) in PARTS.into_iter().filter(|it| named.contains(&it.0)) {
        say(&format!("{name} …"));
        match part(name, || measure(leases)) {
            Ok(part) => parts.push(part),
            Err(error) => {
                say(&format!("{name}: {error}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    match table::tell(&parts) {
        Ok(()) => code,
        Err(error) => {
            say(&format!("the table: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn part(name: &'static str, measure: impl FnOnce() -> Found) -> io::Result<Part> {
    let (load, began) = (table::load(), BootClock.now());
    let (note, rows) = measure()?;
    Ok(Part { name, note, rows, took_s: BootClock.now().since(began).as_secs_f64(), load })
}

/// How far it is, beside the table.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
