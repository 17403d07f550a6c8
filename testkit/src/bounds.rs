//! Says what was measured next to its bound, and remembers what missed it.

use std::process::ExitCode;
use std::time::Duration;

use crate::measure::Measured;
use crate::target::Target;

/// How many polls that broke SC-001 are named.
const NAMED: usize = 10;

/// Goes on after a miss: one run shows everything.
#[derive(Default)]
pub struct Verdict {
    missed: Vec<String>,
    /// What was measured and missed since it was last taken.
    said: Vec<String>,
}

impl Verdict {
    /// Prints what was measured, and keeps it for a page.
    pub fn say(&mut self, text: &str) {
        println!("measured: {text}");
        self.said.push(text.into());
    }

    /// What was measured and missed since the last call.
    pub fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    pub fn within(&mut self, times: &Measured, bound: Duration) {
        let late = times.against(bound);
        if let Some(worst) = late.first() {
            self.miss(&format!("{}: {} beyond {bound:?}, e.g. {worst}", times.what, late.len()));
        }
    }

    pub fn at_most(&mut self, what: &str, value: f64, bound: f64) {
        println!("measured: {what}: {value:.2} (bound {bound:.2})");
        if value > bound {
            self.miss(&format!("{what}: {value:.2} is more than {bound:.2}"));
        }
    }

    /// What was measured is printed by the caller; `text` says what was missed.
    pub fn hold(&mut self, is_kept: bool, text: &str) {
        if !is_kept {
            self.miss(text);
        }
    }

    /// SC-001.
    pub fn sound(&mut self, target: &Target) {
        let (overlaps, back) = (target.overlaps(), target.fence_regressions());
        for text in overlaps.iter().chain(&back).take(NAMED) {
            println!("unsound: {text}");
        }
        let (overlaps, back) = (overlaps.len(), back.len());
        let polls = target.requests().len();
        self.say(&format!("{polls} polls, {overlaps} overlaps, {back} fences that went back"));
        if overlaps + back > 0 {
            self.miss(&format!("{overlaps} overlaps, {back} fences that went back"));
        }
    }

    fn miss(&mut self, text: &str) {
        println!("MISSED: {text}");
        self.missed.push(text.into());
        self.said.push(format!("**MISSED:** {text}"));
    }

    pub fn code(&self) -> ExitCode {
        match &self.missed[..] {
            [] => println!("\nevery bound was kept"),
            missed => println!("\nmissed:\n  {}", missed.join("\n  ")),
        }
        if self.missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
