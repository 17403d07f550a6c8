//! Do the promises hold on a machine that really fails? `make faults`: some minutes, as root.
//!
//! Real processes, each on a network of its own, a real Redis, and faults of the kernel's own making:
//! dropped packets, frozen groups, exhausted memory, stepped clocks. The judge is the endpoint's own
//! record of its polls, and every result that was published.
//!
//! `make faults ONLY=WORD` plays only the scenes that have WORD in their name. What cannot be done
//! here is reported as skipped, with the reason, and never as passed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

mod apart;
mod clocks;
mod groups;
mod lab;
mod network;
mod process;
mod server;
#[path = "../../tests/it/support/mod.rs"]
#[allow(unused, missing_docs, unreachable_pub, clippy::print_stderr, reason = "the tests' own")]
mod support;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::lab::{Net, Verdict};
use crate::table::{Outcome, Row};

/// What a scene is called, what is done in it, and the scene.
type Scenario = (&'static str, &'static str, Play);
/// Says why if it cannot be played here.
type Play = fn(Option<&Net>) -> Result<Verdict, String>;

fn main() -> ExitCode {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let scenes: Vec<Scenario> =
        [network::SCENES, server::SCENES, process::SCENES, clocks::SCENES].concat();
    let chosen = |it: &&Scenario| words.is_empty() || words.iter().any(|word| it.0.contains(word));
    let scenes: Vec<&Scenario> = scenes.iter().filter(chosen).collect();
    if scenes.is_empty() {
        println!("no scene has one of {words:?} in its name");
        return ExitCode::FAILURE;
    }
    match apart::enter() {
        apart::Place::Inside => play(&scenes, Some(&Net::build())),
        apart::Place::Left(code) => code,
        apart::Place::Nowhere(why) => {
            println!("no namespaces of our own: {why}");
            play(&scenes, None)
        }
    }
}

fn play(scenes: &[&Scenario], net: Option<&Net>) -> ExitCode {
    let began = Instant::now();
    let mut rows = Vec::new();
    for (n, &&(name, what, scene)) in scenes.iter().enumerate() {
        println!("\n{} of {}: {name}: {what}", n + 1, scenes.len());
        let outcome = match catch_unwind(AssertUnwindSafe(|| scene(net))) {
            Ok(Ok(verdict)) => Outcome::Judged(verdict),
            Ok(Err(why)) => Outcome::Skipped(why),
            Err(_) => Outcome::Broken, // said why already
        };
        if let Some(net) = net {
            net.heal();
        }
        let row = Row { name, what, outcome };
        println!("{}", row.line());
        rows.push(row);
    }
    table::show(&rows, began.elapsed())
}
