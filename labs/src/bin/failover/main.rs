//! How long after an instance dies does another instance poll its endpoints? `make failover`: 20 minutes, as root.
//!
//! Real processes of the release binary, each on a machine (network namespace) of its own. Several fleets run side by side, each
//! with a private Redis and endpoints that record every poll. An instance is killed, cut off or stopped again and again, and each
//! fleet is balanced before the next fault. `docs/results/failover.md` says what is measured; `BLESS=1` writes the numbers there.
//! [`settings`] lists the variables that change a run.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a lab")]
#![allow(clippy::print_stderr, clippy::cast_possible_truncation, reason = "a lab")]
#![allow(clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a lab")]

mod deaths;
mod fleet;
mod innocent;
mod machine;
mod page;
mod report;
mod roles;
mod settings;

use std::process::ExitCode;

use testkit::lab::apart::{self, Place};

use crate::deaths::Death;
use crate::page::Section;
use crate::report::Report;
use crate::settings::Settings;

/// The kinds of faults, in the order in which they are played and printed.
const KINDS: [&str; 6] = ["sigkill", "vm", "partition", "sigstop", "lead", "innocent"];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |it: &&&str| words.is_empty() || words.iter().any(|word| it == &word);
    let kinds: Vec<&str> = KINDS.iter().filter(is_chosen).copied().collect();
    if kinds.is_empty() {
        println!("{words:?} are no kinds: ONLY takes one of {}", KINDS.join(", "));
        return ExitCode::FAILURE;
    }
    let settings = match Settings::from_env() {
        Ok(settings) => settings,
        Err(why) => {
            println!("{why}");
            return ExitCode::FAILURE;
        }
    };
    match apart::enter() {
        Place::Inside => play(&kinds, &settings),
        Place::Left(code) => code,
        Place::Nowhere(why) => {
            println!("no network namespaces here, and this lab needs them: {why}");
            ExitCode::FAILURE
        }
    }
}

fn play(kinds: &[&'static str], settings: &Settings) -> ExitCode {
    machine::switch();
    let (mut sections, mut wrong) = (Vec::new(), Vec::new());
    for &kind in kinds {
        let section = Section::begin(kind, settings);
        let report = measure(kind, settings);
        wrong.extend(report.wrong.iter().map(|it| format!("{kind}: {it}")));
        let section = section.end(&report);
        println!("{}", section.text());
        sections.push(section);
        page::write(&KINDS, &sections);
    }
    match &wrong[..] {
        [] => println!("every bound was kept"),
        wrong => println!("missed:\n  {}", wrong.join("\n  ")),
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(kind: &'static str, settings: &Settings) -> Report {
    match kind {
        "sigkill" => deaths::measure(Death::Sigkill, settings),
        "vm" => deaths::measure(Death::Vm, settings),
        "partition" => deaths::measure(Death::Partition, settings),
        "sigstop" => deaths::measure(Death::Sigstop, settings),
        "lead" => roles::measure(settings),
        _ => innocent::measure(settings),
    }
}
