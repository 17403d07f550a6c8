//! The lines that `leasehold sessions import` reads, checked before anything is stored.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use crate::inspect::status::counted;
use crate::model::{EndpointId, OddField, SESSION_MAX_BYTES, Session};
use crate::store::BATCH_MAX;
use serde_json::Value;

use crate::cli::sessions::NAMED_MAX;
use crate::cli::warn;

/// What is to be imported.
pub(crate) struct Lines {
    pub(crate) lines: Vec<(EndpointId, Vec<u8>)>,
    pub(crate) odd: OddLines,
    /// How many lines do not count, because a later one has the same id.
    pub(crate) repeated: usize,
}

/// Every line, or the mistakes of the first few bad lines: a file is stored as a whole or not at all. `done` is what was not
/// done then.
pub(crate) fn checked_lines(from: Option<&Path>, done: &str) -> Result<Lines, String> {
    let input: Box<dyn Read> = match from {
        None => Box::new(io::stdin()),
        Some(path) => {
            let opened = File::open(path);
            Box::new(opened.map_err(|error| format!("cannot read {}: {error}", path.display()))?)
        }
    };
    let name = from.map_or_else(|| "stdin".into(), |it| PathBuf::from(it).display().to_string());
    let (mut lines, mut wrong) = (BTreeMap::new(), Vec::new());
    let mut reader = BufReader::new(input);
    let (mut n_wrong, mut repeated, mut odd) = (0, 0, OddLines::default());
    for number in 1.. {
        let mut line = Vec::new();
        // One byte more than fits is enough to see that it does not.
        let limit = SESSION_MAX_BYTES as u64 + 2;
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line);
        if read.map_err(|error| format!("cannot read {name}: {error}"))? == 0 {
            break;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match session_in(text) {
            Ok((id, fields)) => {
                odd.add(number, &fields);
                repeated += usize::from(lines.insert(id, text.to_vec()).is_some());
            }
            Err(why) => {
                n_wrong += 1;
                if wrong.len() < NAMED_MAX {
                    wrong.push(format!("line {number}: {why}"));
                }
            }
        }
    }
    if n_wrong > 0 {
        let wrong = wrong.join("; ");
        return Err(format!("nothing was {done}: {n_wrong} lines of {name} are wrong: {wrong}"));
    }
    Ok(Lines { lines: lines.into_iter().collect(), repeated, odd })
}

/// Lines with fields that are ignored and were probably meant to be others: the first few, and how many there are.
#[derive(Default)]
pub(crate) struct OddLines {
    named: Vec<String>,
    n_lines: usize,
}

impl OddLines {
    fn add(&mut self, line: usize, fields: &[OddField]) {
        self.n_lines += usize::from(!fields.is_empty());
        let room = NAMED_MAX.saturating_sub(self.named.len());
        self.named.extend(fields.iter().take(room).map(|it| format!("line {line}: {it}")));
    }

    /// On stderr: everything was stored all the same.
    pub(crate) fn tell(&self) {
        for it in &self.named {
            warn(it);
        }
        if self.n_lines > NAMED_MAX {
            let n = counted(self.n_lines, "line");
            warn(&format!("{n} have such fields: leasehold sessions list shows each"));
        }
    }
}

fn session_in(text: &[u8]) -> Result<(EndpointId, Vec<OddField>), String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let id = value.get("id").and_then(Value::as_str).unwrap_or("");
    // A missing field is reported before any other mistake of the line.
    let id = if id.is_empty() { "-" } else { id };
    let read = Session::parse_with_odd_fields(id, text).map_err(|error| error.to_string())?;
    Ok((read.0.endpoint, read.1))
}

/// A bar on a terminal, and nothing elsewhere.
pub(crate) struct Progress {
    total: usize,
    is_shown: bool,
}

impl Progress {
    const WIDTH: usize = 40;

    pub(crate) fn of(total: usize) -> Self {
        Self { total, is_shown: total > BATCH_MAX && io::stderr().is_terminal() }
    }

    pub(crate) fn show(&self, done: usize) {
        if self.is_shown {
            let full = Self::WIDTH * done / self.total.max(1);
            let (bar, rest) = ("#".repeat(full), ".".repeat(Self::WIDTH - full.min(Self::WIDTH)));
            let line = format!("\r[{bar}{rest}] {done} of {}", self.total);
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    /// Whatever is said next stands on a line of its own.
    pub(crate) fn clear(&self) {
        if self.is_shown {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }

    pub(crate) fn end(&self) {
        if self.is_shown {
            let _ = io::stderr().write_all(b"\n");
        }
    }
}
