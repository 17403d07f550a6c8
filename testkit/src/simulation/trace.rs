//! What happened, for people. Kept only while a seed is replayed: writing it costs more than playing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Once;

use super::world::{START, world};

/// Lines kept before the end.
const LINES_MAX: usize = 4_000;

#[derive(Default)]
pub struct Trace {
    on: bool,
    lines: RefCell<VecDeque<String>>,
}

thread_local! {
    static LISTENING: Cell<bool> = const { Cell::new(false) };
}

impl Trace {
    pub fn new(on: bool) -> Self {
        static LOGGER: Once = Once::new();
        LISTENING.set(on);
        if on {
            LOGGER.call_once(|| {
                if log::set_logger(&Listener).is_ok() {
                    log::set_max_level(log::LevelFilter::Debug);
                }
            });
        }
        Self { on, lines: RefCell::default() }
    }

    pub fn say(&self, now: u64, line: impl FnOnce() -> String) {
        if self.on {
            let mut lines = self.lines.borrow_mut();
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            let us = (now - START) / 1_000;
            lines.push_back(format!("{:>6}.{:06} {}", us / 1_000_000, us % 1_000_000, line()));
        }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.borrow().iter().cloned().collect()
    }
}

/// What the instances log, among everything else.
struct Listener;

impl log::Log for Listener {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        LISTENING.get()
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        let routine = ["renewal.round", "poll.ok", "lease.renewed"];
        if LISTENING.get() && !routine.iter().any(|it| line.contains(it)) {
            let world = world();
            world.trace.say(world.now(), || line);
        }
    }

    fn flush(&self) {}
}
