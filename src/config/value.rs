//! How is the text of a value read? One sentence if it cannot be.

use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::config::{DurationError, RedisUrlError, parse_duration};
use crate::model::InvalidRole;

/// Why a value does not fit its option. Keeps the given text only where it cannot be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    NotText,
    Empty,
    Duration { shown: Option<String>, why: DurationError },
    Number { shown: Option<String> },
    Choice { shown: Option<String>, choices: &'static str },
    Redis(RedisUrlError),
    Role(InvalidRole),
    Listen,
    Header,
    Zero,
    Mode,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Duration { shown: Some(shown), .. }
        | Self::Number { shown: Some(shown) }
        | Self::Choice { shown: Some(shown), .. } = self
        {
            write!(f, "{shown} ")?;
        }
        match self {
            Self::NotText => write!(f, "is not valid UTF-8"),
            Self::Empty => write!(f, "is empty: give it a value, or leave it out"),
            Self::Duration { why, .. } => write!(f, "{why}"),
            Self::Number { .. } => {
                write!(f, "is no whole number that fits: write digits, such as 16")
            }
            Self::Choice { choices, .. } => write!(f, "is none of {choices}"),
            Self::Redis(why) => write!(f, "{why}"),
            Self::Role(why) => write!(f, "{why}"),
            Self::Zero => write!(f, "is 0, which would show nothing: write 1 or more"),
            Self::Header => write!(f, "has no colon: write NAME:VALUE"),
            Self::Mode => write!(f, "is no mode of a file: write digits from 0 to 7, such as 0660"),
            Self::Listen => write!(f, "is no address with a port: write 127.0.0.1:9464"),
        }
    }
}

impl std::error::Error for ValueError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Duration { why, .. } => Some(why),
            Self::Redis(why) => Some(why),
            Self::Role(why) => Some(why),
            _ => None,
        }
    }
}

/// The text in quotes, if it can be shown: a URL that strayed here may have a password in it.
pub(crate) fn showable(text: &str) -> Option<String> {
    let harmless = |c: char| c.is_ascii_graphic() && c != '@' && c != ':' || c == ' ';
    (text.len() <= 40 && text.chars().all(harmless)).then(|| format!("{text:?}"))
}

pub(crate) fn text(value: &OsStr) -> Result<&str, ValueError> {
    value.to_str().ok_or(ValueError::NotText)
}

/// A program and its arguments, split at spaces.
pub(crate) fn words(value: &OsStr) -> Result<Vec<String>, ValueError> {
    Ok(text(value)?.split(' ').filter(|it| !it.is_empty()).map(String::from).collect())
}

pub(crate) fn path(value: &OsStr) -> Result<PathBuf, ValueError> {
    if value.is_empty() { Err(ValueError::Empty) } else { Ok(value.into()) }
}

pub(crate) fn address(value: &OsStr) -> Result<SocketAddr, ValueError> {
    text(value)?.parse().map_err(|_| ValueError::Listen)
}

/// Names separated by commas.
pub(crate) fn hosts(value: &OsStr) -> Result<Vec<String>, ValueError> {
    let names = text(value)?.split(',').map(str::trim).filter(|it| !it.is_empty());
    Ok(names.map(str::to_owned).collect())
}

pub(crate) fn duration(value: &OsStr) -> Result<Duration, ValueError> {
    let value = text(value)?;
    parse_duration(value).map_err(|why| ValueError::Duration { shown: showable(value), why })
}

pub(crate) fn number<T: FromStr>(value: &OsStr) -> Result<T, ValueError> {
    let value = text(value)?;
    // FromStr would take a sign, too.
    let digits = value.bytes().all(|c| c.is_ascii_digit());
    let parsed = value.parse().ok().filter(|_| digits);
    parsed.ok_or_else(|| ValueError::Number { shown: showable(value) })
}

#[cfg(feature = "cli")]
pub(crate) fn at_least_one(value: &OsStr) -> Result<usize, ValueError> {
    number(value).and_then(|it| if it > 0 { Ok(it) } else { Err(ValueError::Zero) })
}

pub(crate) fn switch(value: &OsStr) -> Result<bool, ValueError> {
    let value = text(value)?;
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" | "" => Ok(false),
        _ => Err(ValueError::Choice { shown: showable(value), choices: "true or false" }),
    }
}

/// One of `all`, by its name.
pub(crate) fn choice<T: Copy>(
    value: &OsStr,
    choices: &'static str,
    all: &[(&str, T)],
) -> Result<T, ValueError> {
    let value = text(value)?;
    let found = all.iter().find(|it| it.0.eq_ignore_ascii_case(value));
    found.map(|it| it.1).ok_or_else(|| ValueError::Choice { shown: showable(value), choices })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_said_in_several_ways_and_in_no_other() {
        for yes in ["1", "true", "yes", "on", "TRUE"] {
            assert_eq!(switch(OsStr::new(yes)), Ok(true), "{yes}");
        }
        for no in ["0", "false", "no", "off", "", "Off"] {
            assert_eq!(switch(OsStr::new(no)), Ok(false), "{no}");
        }
        for bad in ["2", "maybe", "y", " "] {
            assert!(switch(OsStr::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_is_digits_that_fit() {
        assert_eq!(number::<u32>(OsStr::new("16")), Ok(16));
        for bad in ["", "-1", "+1", "1.0", "1e3", "0x10", " 1", "NaN", "4294967296", "١"] {
            assert!(number::<u32>(OsStr::new(bad)).is_err(), "{bad}");
        }
    }
}
