//! Rows of numbers, each with its spread and its goal: printed, kept as JSON, compared with the last that were kept.
//!
//! `target/bench.json` has what was measured last, part by part; `docs/results/bench.json` what was committed. With
//! `BLESS=1` in the environment what is measured is put there, too, and into the pages that show it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bench::million;

const COMMITTED: &str = "docs/results/bench.json";
const PAGE: &str = "docs/results/performance.md";
/// What follows from it on paper.
const PAPER: &str = "docs/results/million.md";
/// What stands on the page below this line is written here.
const MARK: &str = "<!-- from here on: make bench bystanders growth peers BLESS=1 -->";

/// Which way a number gets better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
}

/// One number: the median of some samples, and between what the middle half of them lies.
pub struct Row {
    name: String,
    unit: &'static str,
    better: Better,
    median: f64,
    low: f64,
    high: f64,
    goal: Option<f64>,
}

impl Row {
    pub fn new(name: &str, unit: &'static str, better: Better, samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().max(1) - 1;
        let at = [last / 4, last / 2, (3 * last).div_ceil(4)];
        let [low, median, high] = at.map(|it| sorted.get(it).copied().unwrap_or(f64::NAN));
        Self { name: name.into(), unit, better, median, low, high, goal: None }
    }

    pub fn goal(self, goal: f64) -> Self {
        Self { goal: Some(goal), ..self }
    }

    pub fn median(&self) -> f64 {
        self.median
    }

    fn is_met(&self) -> Option<bool> {
        self.goal.map(|it| match self.better {
            Better::More => self.median >= it,
            Better::Less => self.median <= it,
        })
    }

    fn json(&self) -> Value {
        let better = if self.better == Better::More { "more" } else { "less" };
        json!({
            "name": self.name, "unit": self.unit, "better": better, "median": rounded(self.median),
            "low": rounded(self.low), "high": rounded(self.high), "goal": self.goal,
        })
    }

    /// Each median is outside of the other's spread, and on the wrong side of it.
    fn is_worse_than(&self, old: &Value) -> bool {
        let [Some(median), Some(low), Some(high)] =
            ["median", "low", "high"].map(|it| old[it].as_f64())
        else {
            return false;
        };
        match self.better {
            Better::More => rounded(self.median) < low && rounded(self.high) < median,
            Better::Less => rounded(self.median) > high && rounded(self.low) > median,
        }
    }

    fn line(&self, width: usize, old: Option<&Value>) -> String {
        let Self { name, unit, .. } = self;
        let spread = format!("{}–{}", short(self.low), short(self.high));
        let sign = if self.better == Better::More { "≥" } else { "≤" };
        let goal = self.goal.map(|it| format!("{sign} {it}")).unwrap_or_default();
        let met = self.is_met().map_or("", |it| if it { "met" } else { "MISSED" });
        let was = old.and_then(|it| it["median"].as_f64());
        let was = was.map(|it| format!("{} → {}", short(it), short(self.median)));
        let worse = if old.is_some_and(|it| self.is_worse_than(it)) { "  WORSE" } else { "" };
        let median = short(self.median);
        let was = was.unwrap_or_default();
        let line = format!(
            "  {name:<width$} {median:>7} {unit:<2} {spread:>13} {goal:>7} {met:<6}  {was}{worse}"
        );
        line.trim_end().into()
    }
}

/// What one part of the benchmark found.
pub struct Part {
    pub name: &'static str,
    /// What has to be known to read it: sizes, turns, versions.
    pub note: String,
    pub rows: Vec<Row>,
    pub took_s: f64,
    /// The machine's when it began.
    pub load: f64,
}

impl Part {
    fn json(&self) -> Value {
        let Self { name, note, took_s, load, .. } = self;
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let took_s = rounded(*took_s);
        json!({ "part": name, "note": note, "took_s": took_s, "load": load, "rows": rows })
    }
}

/// Prints one table of these parts beside what was committed, and keeps them.
pub fn tell(parts: &[Part]) -> io::Result<()> {
    let committed = Kept::read(Path::new(COMMITTED));
    let rows = parts.iter().flat_map(|it| &it.rows);
    let width = rows.map(|it| it.name.chars().count()).max().unwrap_or_default();
    let mut out = io::stdout().lock();
    let [none, median, half, goal] = ["", "median", "middle half", "goal"];
    writeln!(
        out,
        "  {none:<width$} {median:>7} {none:<2} {half:>13} {goal:>7}         last → now"
    )?;
    for part in parts {
        let Part { name, note, rows, took_s, load } = part;
        writeln!(out, "{name}: {note} ({took_s:.0} s, load {load:.1})")?;
        for row in rows {
            writeln!(out, "{}", row.line(width, committed.row(part, &row.name)))?;
        }
    }
    keep(&measured(), parts)?;
    if !is_blessed() {
        return Ok(());
    }
    keep(Path::new(COMMITTED), parts)?;
    let page = fs::read_to_string(PAGE)?;
    let prose = page.split(MARK).next().unwrap_or_default();
    let tables: String = Kept::read(Path::new(COMMITTED)).0.iter().map(markdown).collect();
    fs::write(PAGE, format!("{prose}{MARK}\n{tables}"))?;
    // A part that was never measured is no reason not to keep the others.
    let paper = fs::read_to_string(PAPER)?;
    let derived = million::page(&paper, &Kept::read(Path::new(COMMITTED)).0);
    derived.map_or(Ok(()), |it| fs::write(PAPER, it))
}

/// Whether what is measured is to be kept.
pub fn is_blessed() -> bool {
    std::env::var("BLESS").is_ok_and(|it| !it.is_empty() && it != "0")
}

fn markdown(part: &Value) -> String {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let number = |it: &Value| it.as_f64().map(short).unwrap_or_default();
    let row = |row: &Value| {
        let sign = if row["better"] == "more" { "≥" } else { "≤" };
        let goal = row["goal"].as_f64().map(|it| format!("{sign} {it}")).unwrap_or_default();
        let (name, unit, median) = (text(&row["name"]), text(&row["unit"]), number(&row["median"]));
        let (low, high) = (number(&row["low"]), number(&row["high"]));
        format!("| {name} | {median} {unit} | {low}–{high} | {goal} |\n")
    };
    let rows: String = part["rows"].as_array().into_iter().flatten().map(row).collect();
    let (name, note, load) = (text(&part["part"]), text(&part["note"]), number(&part["load"]));
    format!(
        "\n**{name}**: {note}; load {load}\n\n| | median | middle half | goal |\n|---|---|---|---|\n{rows}"
    )
}

/// The machine's load of the last minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(f64::NAN)
}

fn measured() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    target.join("bench.json")
}

/// Parts as they are stored.
struct Kept(Vec<Value>);

impl Kept {
    /// Nothing, where there is nothing that can be read.
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let parts = serde_json::from_str::<Value>(&text).ok();
        Self(parts.and_then(|it| it.as_array().cloned()).unwrap_or_default())
    }

    /// What was kept of this row, if it was measured at the same size on the same server.
    fn row(&self, part: &Part, name: &str) -> Option<&Value> {
        let alike = |it: &&Value| it["part"] == part.name && it["note"] == part.note;
        self.0.iter().find(alike)?["rows"].as_array()?.iter().find(|it| it["name"] == name)
    }
}

/// Puts each part where it was before, or behind all others. A row is a line, so that a diff can be read.
fn keep(path: &Path, parts: &[Part]) -> io::Result<()> {
    let Kept(mut kept) = Kept::read(path);
    for part in parts.iter().map(Part::json) {
        match kept.iter_mut().find(|it| it["part"] == part["part"]) {
            Some(old) => *old = part,
            None => kept.push(part),
        }
    }
    let part = |it: &Value| {
        let rows = it["rows"].as_array().into_iter().flatten().map(|row| format!("   {row}"));
        let rows = rows.collect::<Vec<_>>().join(",\n");
        let [name, note, took, load] = ["part", "note", "took_s", "load"].map(|key| &it[key]);
        format!(r#"{{"part": {name}, "note": {note}, "took_s": {took}, "load": {load}, "rows": ["#)
            + &format!("\n{rows}\n]}}")
    };
    let parts: Vec<String> = kept.iter().map(part).collect();
    fs::write(path, format!("[\n{}\n]\n", parts.join(",\n")))
}

/// Three digits are more than the spread leaves.
fn short(number: f64) -> String {
    match number.abs() {
        it if it >= 100.0 => format!("{number:.0}"),
        it if it >= 10.0 => format!("{number:.1}"),
        it if it >= 0.1 || it == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
