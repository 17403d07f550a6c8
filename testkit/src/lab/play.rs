//! Scenes, played side by side, and the table of what came of them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::lab::apart;
use crate::lab::net::Net;
use crate::lab::table::{self, Outcome, Row};
use crate::lab::verdict::Verdict;

const LANES: usize = 3;

/// What a scene is called, what is done in it, and the scene.
pub type Scenario = (&'static str, &'static str, Play);
/// Says why if it cannot be played here.
pub type Play = fn(Option<&Net>) -> Result<Verdict, String>;

/// Plays the scenes that the arguments of this program name, or all, on networks of their own.
pub fn run(scenes: &[Scenario]) -> ExitCode {
    let Some(scenes) = chosen(scenes) else { return ExitCode::FAILURE };
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

/// The same one after the other, on the loopback of this machine and without its root.
pub fn run_on_loopback(scenes: &[Scenario]) -> ExitCode {
    chosen(scenes).map_or(ExitCode::FAILURE, |scenes| play(&scenes, &[None]))
}

/// The scenes with one of the arguments in their name; all of them without an argument.
fn chosen(scenes: &[Scenario]) -> Option<Vec<&Scenario>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |it: &&Scenario| words.is_empty() || words.iter().any(|word| it.0.contains(word));
    let scenes: Vec<&Scenario> = scenes.iter().filter(chosen).collect();
    if scenes.is_empty() {
        println!("no scene has one of {words:?} in its name");
        return None;
    }
    Some(scenes)
}

/// Plays one scene in each lane at a time, because most of a scene is waiting.
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
