//! What does a settings file say? Lines of `NAME=value`, as systemd reads an `EnvironmentFile`.
//!
//! The same file can be both, so the same rules hold: `#` and `;` begin a comment line, quotes and
//! backslashes mean what they mean there. Stricter in two things: a line that is no assignment, or a name
//! like ours that is none, makes the whole file wrong, because half a file must never be in force.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use crate::cli::options::is_stranger;

const BYTES_MAX: u64 = 1024 * 1024;

/// The variables that a file sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings(BTreeMap<String, String>);

/// What is at the place of a settings file that nobody named.
pub(crate) enum Found {
    Settings(Settings),
    Denied,
    Nothing,
}

/// Why a file cannot be used. Never repeats a line: it may hold a password.
#[derive(Debug)]
pub(crate) struct SettingsError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Unreadable(io::Error),
    NotText,
    NoAssignment { line: usize },
    OpenQuote { line: usize },
    Unknown { line: usize, name: String, meant: Option<String> },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--settings {}: ", self.path.display())?;
        match &self.why {
            Why::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Why::NotText => write!(f, "is no text of at most 1 MiB"),
            Why::NoAssignment { line } => write!(f, "line {line} is no NAME=value"),
            Why::OpenQuote { line } => write!(f, "the quote of line {line} is never closed"),
            Why::Unknown { line, name, meant } => {
                write!(f, "line {line} sets {name}, which is no setting: ")?;
                match meant {
                    Some(meant) => write!(f, "did you mean {meant}?"),
                    None => write!(f, "leasehold run --help lists them all"),
                }
            }
        }
    }
}

impl Settings {
    /// Reads `files`, of which a later one wins.
    pub(crate) fn read_all(files: &[PathBuf]) -> Result<Self, SettingsError> {
        let mut all = Self::default();
        for file in files {
            all.0.extend(Self::read(file)?.0);
        }
        Ok(all)
    }

    /// Reads the file at `path` if it is there and this user may.
    pub(crate) fn find(path: &Path) -> Result<Found, SettingsError> {
        match Self::read(path) {
            Ok(settings) => Ok(Found::Settings(settings)),
            Err(SettingsError { why: Why::Unreadable(error), .. }) => match error.kind() {
                io::ErrorKind::PermissionDenied => Ok(Found::Denied),
                _ => Ok(Found::Nothing),
            },
            Err(error) => Err(error),
        }
    }

    /// Reads the file at `path`.
    fn read(path: &Path) -> Result<Self, SettingsError> {
        let wrong = |why| SettingsError { path: path.into(), why };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|it| it.take(BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| wrong(Why::Unreadable(error)))?;
        let fits = bytes.len() as u64 <= BYTES_MAX;
        let text = String::from_utf8(bytes).ok().filter(|it| fits && !it.contains('\0'));
        parse(&text.ok_or_else(|| wrong(Why::NotText))?).map(Self).map_err(wrong)
    }

    /// What it says about `name`.
    pub(crate) fn value(&self, name: &str) -> Option<OsString> {
        self.0.get(name).map(OsString::from)
    }

    /// Whether it says anything about `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, String>, Why> {
    let mut values = BTreeMap::new();
    let mut rest = Source { chars: text.chars().peekable(), line: 1 };
    loop {
        rest.skip(char::is_whitespace);
        let line = rest.line;
        match rest.chars.peek() {
            None => return Ok(values),
            Some('#' | ';') => rest.skip_comment(),
            Some(_) => {
                let name = rest.name().ok_or(Why::NoAssignment { line })?;
                let value = rest.value().ok_or(Why::OpenQuote { line })?;
                if let Some(meant) = is_stranger(&name) {
                    return Err(Why::Unknown { line, name, meant });
                }
                values.insert(name, value); // the last one wins
            }
        }
    }
}

struct Source<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
}

impl Source<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn skip(&mut self, unwanted: impl Fn(char) -> bool) {
        while self.chars.peek().is_some_and(|it| unwanted(*it)) {
            self.next();
        }
    }

    /// A backslash at its end continues a comment, too.
    fn skip_comment(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\\' => drop(self.next()),
                '\n' => return,
                _ => (),
            }
        }
    }

    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.chars.peek()? {
                '\n' => return None,
                '=' => break,
                _ => name.extend(self.next()),
            }
        }
        self.next();
        let name = name.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let digit_first = name.starts_with(|c: char| c.is_ascii_digit());
        (!name.is_empty() && !digit_first && name.chars().all(plain)).then(|| name.into())
    }

    /// Up to the end of the line; spaces around what is not quoted do not count.
    fn value(&mut self) -> Option<String> {
        self.skip(|c| c == ' ' || c == '\t');
        let mut value = String::new();
        // How much of it is there to stay, spaces or not.
        let mut kept = 0;
        while let Some(c) = self.next() {
            match c {
                '\n' => break,
                '\'' => self.quoted(&mut value, '\'')?,
                '"' => self.quoted(&mut value, '"')?,
                '\\' => match self.next() {
                    Some('\n') | None => continue,
                    Some(c) => value.push(c),
                },
                c => {
                    value.push(c);
                    if c.is_whitespace() {
                        continue;
                    }
                }
            }
            kept = value.len();
        }
        value.truncate(kept);
        Some(value)
    }

    fn quoted(&mut self, value: &mut String, quote: char) -> Option<()> {
        loop {
            match self.next()? {
                c if c == quote => return Some(()),
                '\\' if quote == '"' => match self.next()? {
                    '\n' => (),
                    c @ ('"' | '\\' | '`' | '$') => value.push(c),
                    c => value.extend(['\\', c]),
                },
                c => value.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap().into_iter().collect()
    }

    fn value(text: &str) -> String {
        values(&format!("A={text}\n")).pop().unwrap().1
    }

    #[test]
    fn a_file_is_read_as_systemd_reads_it() {
        for (text, wanted) in [
            ("x", "x"),
            ("  two words \t", "two words"),
            ("", ""),
            ("a=b=c", "a=b=c"),
            ("\"two  words \"", "two  words "),
            ("'it is \"so\" \\n'", "it is \"so\" \\n"),
            ("\"a \\\"b\\\" \\$c \\d\"", "a \"b\" $c \\d"),
            ("one\\\ntwo", "onetwo"),
            ("a\\ b", "a b"),
            ("'a'b\"c\"", "abc"),
            ("x # no comment", "x # no comment"),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
        let text = "# comment\n; another\n\n  A = 1 \nB=2\nA=3";
        assert_eq!(values(text), [("A".into(), "3".into()), ("B".into(), "2".into())]);
    }

    #[test]
    fn the_example_settings_say_nothing_until_they_are_uncommented() {
        let example = include_str!("../../systemd/leasehold.env.example");
        assert_eq!(values(example), []);
        let lines = example.lines().filter_map(|it| it.strip_prefix("#LEASEHOLD_"));
        let all: String = lines.map(|it| format!("LEASEHOLD_{it}\n")).collect();
        assert!(values(&all).len() > 20);
    }

    #[test]
    fn what_is_no_assignment_makes_the_whole_file_wrong_and_is_named_by_its_line_only() {
        for (text, line) in [("A=1\nhunter2\nB=2\n", 2), ("=x", 1), ("\n\nA B=1", 3), ("1A=x", 1)] {
            let why = parse(text).unwrap_err();
            let error = SettingsError { path: "f".into(), why }.to_string();
            assert_eq!(error, format!("--settings f: line {line} is no NAME=value"), "{text}");
        }
        let odd = |text: &str| {
            SettingsError { path: "f".into(), why: parse(text).unwrap_err() }.to_string()
        };
        let meant = |name| format!("--settings f: line 2 sets {name}, which is no setting: ");
        assert_eq!(
            odd("TZ=UTC\nLEASEHOLD_REDS=hunter2"),
            meant("LEASEHOLD_REDS") + "did you mean LEASEHOLD_REDIS?"
        );
        assert_eq!(
            odd("\nleasehold_redis=hunter2"),
            meant("leasehold_redis") + "did you mean LEASEHOLD_REDIS?"
        );
        assert_eq!(
            odd("# x\nLEASEHOLD_SOMETHING_ELSE=hunter2"),
            meant("LEASEHOLD_SOMETHING_ELSE") + "leasehold run --help lists them all"
        );
        let others = "LEASEHOLD_JSON=on\nLEASEHOLD_FENCE=7\nRUST_BACKTRACE=1\nLEASEHOLD=1";
        assert_eq!(values(others).len(), 4);
        let error = SettingsError { path: "f".into(), why: parse("A=1\nB='x").unwrap_err() };
        assert_eq!(error.to_string(), "--settings f: the quote of line 2 is never closed");
    }
}
