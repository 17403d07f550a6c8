//! `BLESS=1` writes what was measured into docs/results/failover.md, kind by kind. Kinds that were not played stay.

use std::process::Command;
use std::thread::available_parallelism;

use testkit::bench::table::load;
use testkit::paths::root;
use testkit::sections;

use crate::report::Report;
use crate::settings::Settings;

const PAGE: &str = "docs/results/failover.md";
/// What stands on the page below this line is written here.
const MARK: &str = "<!-- from here on: make failover BLESS=1 -->";

/// What was measured of one kind.
pub(crate) struct Section {
    kind: &'static str,
    text: String,
}

impl Section {
    /// Before the kind is played: the load is the machine's without it.
    pub(crate) fn begin(kind: &'static str, settings: &Settings) -> Self {
        let (commit, redis, cores) =
            (commit(), redis(), available_parallelism().map_or(0, Into::into));
        let (load, told) = (load(), settings.told());
        let text = format!(
            "Commit {commit}, {redis}, {cores} cores, load {load:.2} at the beginning, {told}."
        );
        Self { kind, text }
    }

    pub(crate) fn end(self, report: &Report) -> Self {
        Self { text: format!("{} {}", self.text, report.text()), ..self }
    }

    pub(crate) fn text(&self) -> String {
        sections::text(self.kind, &self.text)
    }
}

/// Keeps what these kinds measured, in the order of `kinds`, if that was asked for.
pub(crate) fn write(kinds: &[&str], sections: &[Section]) {
    let sections: Vec<_> = sections.iter().map(|it| (it.kind, it.text())).collect();
    sections::keep(PAGE, MARK, kinds, &sections);
}

fn said(command: &mut Command) -> String {
    let output = command.output();
    output
        .map_or_else(|_| String::new(), |it| String::from_utf8_lossy(&it.stdout).trim().to_owned())
}

/// The commit of the source tree, and whether the tree differs from it.
fn commit() -> String {
    let commit =
        said(Command::new("git").current_dir(root()).args(["rev-parse", "--short", "HEAD"]));
    let mut status = Command::new("git");
    status.current_dir(root()).args(["status", "--porcelain", "--", "src", "labs", "testkit"]);
    if said(&mut status).is_empty() { commit } else { format!("{commit} with changes") }
}

fn redis() -> String {
    let told = said(Command::new(testkit::redis::program()).arg("--version"));
    let version = told.split(" v=").nth(1).and_then(|it| it.split(' ').next());
    format!("Redis {}", version.unwrap_or("of an unknown version"))
}
