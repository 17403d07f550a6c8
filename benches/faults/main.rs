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
mod failover;
mod groups;
mod lab;
mod network;
mod process;
mod server;
#[path = "../../tests/it/support/mod.rs"]
#[allow(unused, missing_docs, unreachable_pub, clippy::print_stderr, reason = "the tests' own")]
mod support;
mod table;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::lab::{Net, Verdict};
use crate::table::{Outcome, Row};

const LANES: usize = 3;

/// What a scene is called, what is done in it, and the scene.
type Scenario = (&'static str, &'static str, Play);
/// Says why if it cannot be played here.
type Play = fn(Option<&Net>) -> Result<Verdict, String>;

fn main() -> ExitCode {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let scenes: Vec<Scenario> =
        [network::SCENES, server::SCENES, failover::SCENES, process::SCENES, clocks::SCENES]
            .concat();
    let chosen = |it: &&Scenario| words.is_empty() || words.iter().any(|word| it.0.contains(word));
    let scenes: Vec<&Scenario> = scenes.iter().filter(chosen).collect();
    if scenes.is_empty() {
        println!("no scene has one of {words:?} in its name");
        return ExitCode::FAILURE;
    }
    match apart::enter() {
        apart::Place::Inside => {
            Net::switch();
            play(&scenes, &(0..LANES).map(|lane| Some(Net::build(lane))).collect::<Vec<_>>())
        }
        apart::Place::Left(code) => code,
        apart::Place::Nowhere(why) => {
            println!("no namespaces of our own: {why}");
            play(&scenes, &[const { None }; LANES])
        }
    }
}

/// Most of a scene is waiting: so many are played at a time.
fn play(scenes: &[&Scenario], lanes: &[Option<Net>]) -> ExitCode {
    let began = Instant::now();
    let (todo, rows) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for net in lanes {
            scope.spawn(|| {
                loop {
                    let n = todo.fetch_add(1, Ordering::Relaxed);
                    let Some(&&scene) = scenes.get(n) else { return };
                    let row = play_one(scene, net.as_ref());
                    let mut rows = rows.lock();
                    rows.insert(n, row);
                    println!("{} of {}: {}", rows.len(), scenes.len(), rows[&n].line());
                }
            });
        }
    });
    table::show(&rows.into_inner().into_values().collect::<Vec<_>>(), began.elapsed())
}

fn play_one((name, what, scene): Scenario, net: Option<&Net>) -> Row {
    println!("{name}: {what} …");
    let outcome = match catch_unwind(AssertUnwindSafe(|| scene(net))) {
        Ok(Ok(verdict)) => Outcome::Judged(verdict),
        Ok(Err(why)) => Outcome::Skipped(why),
        Err(_) => Outcome::Broken, // said why already
    };
    if let Some(net) = net {
        net.heal();
    }
    Row { name, what, outcome }
}
