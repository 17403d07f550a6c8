//! Do endpoints that hang delay endpoints that answer? `make starve`: several minutes of the whole machine.
//!
//! Real processes of the release binary with default settings, a private Redis, and a target that records every poll. Every
//! poll of an endpoint that answers takes 150 ms. `docs/results/starvation.md` says what each scene shows; `BLESS=1` writes
//! what was measured there. After `make build`, `cargo run --profile lab -p labs --bin starve -- WORD`
//! plays only the scenes whose name contains WORD. `soak` takes an hour, or the time that is given (`10m`), and is played
//! only when it is named.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a lab")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a lab")]
#![allow(clippy::cast_precision_loss, reason = "a lab")]

mod fleet;
mod hanging;
mod kinds;
mod page;
mod pool;
mod soak;
mod usage;

use std::process::ExitCode;
use std::time::Duration;

use testkit::bounds::Verdict;

use crate::page::Section;

const SOAK: Duration = Duration::from_secs(3_600);
const SEED: u64 = 1;

type Play = Box<dyn Fn(&mut Verdict)>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|it| it == kinds::COMMAND) {
        return kinds::command();
    }
    let time = words.iter().find_map(|it| duration(it)).unwrap_or(SOAK);
    let words: Vec<String> = words.into_iter().filter(|it| duration(it).is_none()).collect();
    let scenes: [(&str, Play); 9] = [
        ("a tenth hangs", Box::new(|it| hanging::some_hang(it, 600, 60))),
        ("half hangs", Box::new(|it| hanging::some_hang(it, 600, 300))),
        ("nine tenths hang", Box::new(|it| hanging::some_hang(it, 600, 540))),
        ("all hang for a minute", Box::new(hanging::all_hang)),
        ("two thousand", Box::new(hanging::two_thousand)),
        ("pool of 4,096", Box::new(pool::pool)),
        ("commands", Box::new(kinds::commands)),
        ("pollers of a program's own", Box::new(kinds::pollers)),
        ("soak", Box::new(move |it| soak::soak(it, time, SEED))),
    ];
    let names: Vec<&'static str> = scenes.iter().map(|it| it.0).collect();
    let (mut verdict, mut sections) = (Verdict::default(), Vec::new());
    for (name, scene) in scenes {
        let is_usual = name != "soak" && words.is_empty();
        if is_usual || words.iter().any(|it| name.contains(it.as_str())) {
            println!("\n{name}");
            let section = Section::begin(name);
            scene(&mut verdict);
            sections.push(section.end(verdict.take_said()));
            page::write(&names, &sections);
        }
    }
    verdict.code()
}

/// `90s`, `10m` or `1h`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    Some(Duration::from_secs(seconds * number.parse::<u64>().ok()?))
}
