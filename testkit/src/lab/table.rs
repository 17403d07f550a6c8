//! What came of it, a line each, in the form in which docs/results/faults.md has it.

use std::process::ExitCode;
use std::time::Duration;

use crate::lab::verdict::Verdict;

pub enum Outcome {
    Judged(Verdict),
    Skipped(String),
    /// Something did not happen that had to.
    Broken,
}

pub struct Row {
    pub name: &'static str,
    pub what: &'static str,
    pub outcome: Outcome,
}

fn seconds(it: Duration) -> String {
    format!("{:.1} s", it.as_secs_f64())
}

/// The longest, and what excuses it if it is beyond its bound.
fn gap(it: &Verdict) -> String {
    let text = seconds(it.gap);
    if it.gap <= it.bound { text } else { format!("{text}, stalled {}", seconds(it.stalled)) }
}

impl Row {
    fn passed(&self) -> bool {
        matches!(&self.outcome, Outcome::Judged(it) if it.wrong.is_empty())
    }

    fn verdict(&self) -> &'static str {
        match &self.outcome {
            Outcome::Judged(it) if it.wrong.is_empty() && !it.promised => "not promised",
            Outcome::Judged(it) if it.wrong.is_empty() => "passed",
            Outcome::Skipped(_) => "skipped",
            Outcome::Judged(_) | Outcome::Broken => "FAILED",
        }
    }

    pub fn line(&self) -> String {
        match &self.outcome {
            Outcome::Judged(it) => {
                let mut text = format!(
                    "{}: {}: {} polls, {} results, {} overlaps, {} stale, longest gap {} (bound {}), again after {}",
                    self.name,
                    self.verdict(),
                    it.polls,
                    it.results,
                    it.overlaps,
                    it.stale,
                    gap(it),
                    seconds(it.bound),
                    seconds(it.again),
                );
                for wrong in &it.wrong {
                    text += &format!("\n  {wrong}");
                }
                text
            }
            Outcome::Skipped(why) => format!("{}: skipped: {why}", self.name),
            Outcome::Broken => format!("{}: FAILED: see above", self.name),
        }
    }

    fn markdown(&self) -> String {
        let (name, what, verdict) = (self.name, self.what, self.verdict());
        match &self.outcome {
            Outcome::Judged(it) => format!(
                "| {name} | {what} | {} | {} | {} | {} | {} | {} | {verdict} |",
                it.polls,
                it.overlaps,
                it.stale,
                gap(it),
                seconds(it.bound),
                seconds(it.again),
            ),
            Outcome::Skipped(why) => {
                format!("| {name} | {what} | | | | | | | {verdict}: {why} |")
            }
            Outcome::Broken => format!("| {name} | {what} | | | | | | | {verdict} |"),
        }
    }
}

pub fn show(rows: &[Row], took: Duration) -> ExitCode {
    println!(
        "\n| scene | what happens | polls | overlaps | stale results | longest gap | its bound | all polled again after | |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in rows {
        println!("{}", row.markdown());
    }
    let count = |verdict: &str| rows.iter().filter(|it| it.verdict() == verdict).count();
    println!(
        "\n{} passed, {} not promised, {} skipped, {} failed, in {} s",
        count("passed"),
        count("not promised"),
        count("skipped"),
        count("FAILED"),
        took.as_secs()
    );
    for row in rows.iter().filter(|it| !it.passed()) {
        println!("{}", row.line());
    }
    if count("FAILED") == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
