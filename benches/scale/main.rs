//! 100,000 sessions on ten daemons next to their Redis, on one machine: does it hold? `make scale`.
//!
//! Real processes of the release binary with the default timings, a private Redis, and a target that answers
//! at once. `make scale FOR=60s ONLY="polling hanging"` watches for less long, and only those. `make scale FOR=3m ONLY=hanging`
//! shows that endpoints that hang keep no poll from the others. What is meant by each number is in `docs/results/performance.md`.

mod fleet;
mod parts;
mod scene;
mod takeover;
mod target;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};

use crate::parts::Load;
use testkit::bench::table::{self, Part, Row};

const USUAL_TIME: Duration = Duration::from_secs(600);
const USUAL_COUNT: u32 = 100_000;
const OPEN_FILES: u64 = 3_000;

type Found = io::Result<(String, Vec<Row>)>;
type Measure = fn(u32, Duration) -> Found;

const PARTS: [(&str, &str, Measure); 5] = [
    ("rest", "scale: at rest", |n, _| parts::rest(n)),
    ("polling", "scale: polling", |n, time| parts::polling(n, time, Load::Usual)),
    ("workers", "scale: 4,096 workers", |n, time| parts::polling(n, time, Load::Workers)),
    ("starved", "scale: half a core", |n, time| parts::polling(n, time, Load::Starved)),
    ("hanging", "scale: a tenth hangs", |n, time| parts::polling(n, time, Load::Hanging)),
];

fn main() -> ExitCode {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let (mut named, mut time, mut count) = (Vec::new(), USUAL_TIME, USUAL_COUNT);
    for word in &words {
        if let Some(part) = PARTS.iter().find(|it| it.0 == word) {
            named.push(part.0);
        } else if let Ok(number) = word.parse() {
            count = number;
        } else if let Some(given) = duration(word) {
            time = given;
        } else {
            let parts = PARTS.map(|it| it.0).join(", ");
            say(&format!("{word} is neither a time such as 90s or 10m nor one of {parts}"));
            return ExitCode::FAILURE;
        }
    }
    // Polls that hang keep a connection of the target's each: half of 256 workers on ten instances.
    let files = testkit::limits::raise_open_files();
    if files < OPEN_FILES {
        say(&format!(
            "{files} open files are allowed here: with fewer than {OPEN_FILES} what hangs refuses polls"
        ));
    }
    let (mut parts, mut code) = (Vec::new(), ExitCode::SUCCESS);
    for (word, name, measure) in PARTS {
        if !named.is_empty() && !named.contains(&word) {
            continue;
        }
        say(&format!("{word} …"));
        match part(name, || measure(count, time)) {
            Ok(part) => parts.push(part),
            Err(error) => {
                say(&format!("{word}: {error}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    if let Err(error) = table::tell(&parts) {
        say(&format!("the table: {error}"));
        code = ExitCode::FAILURE;
    }
    code
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        _ => return None,
    };
    Some(Duration::from_secs(seconds * number.parse::<u64>().ok()?))
}

fn part(name: &'static str, measure: impl FnOnce() -> Found) -> io::Result<Part> {
    let (load, began) = (table::load(), BootClock.now());
    let (note, rows) = measure()?;
    Ok(Part { name, note, rows, took_s: BootClock.now().since(began).as_secs_f64(), load })
}

/// How far it is, beside the table.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
