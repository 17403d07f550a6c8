//! How does a person write a length of time? `500ms`, `30s`, `5m`, `1h`: a whole number and a unit.

use std::fmt;
use std::time::Duration;

/// The units, longest first, with their length in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// Nothing, or nothing that begins with a digit.
    NoNumber,
    /// A number with a fraction.
    NotWhole,
    /// A number and nothing else: it could be seconds or milliseconds.
    NoUnit,
    /// Something else than `ms`, `s`, `m` or `h` after the number.
    UnknownUnit,
    /// More milliseconds than 64 bits can count.
    TooLong,
}

/// Reads `500ms`, `30s`, `5m` or `1h`.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err(DurationError::NoNumber);
    }
    if unit.is_empty() {
        return Err(DurationError::NoUnit);
    }
    if unit.starts_with(['.', ',']) {
        return Err(DurationError::NotWhole);
    }
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    let (_, length) = known.ok_or(DurationError::UnknownUnit)?;
    // Only digits are left, so the one thing that can go wrong is their number.
    let number: u64 = number.parse().map_err(|_| DurationError::TooLong)?;
    let millis = number.checked_mul(*length).ok_or(DurationError::TooLong)?;
    Ok(Duration::from_millis(millis))
}

/// Writes a duration the way [`parse_duration`] reads it, whole milliseconds only.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".into();
    }
    let mut fitting = UNITS.iter().filter(|(_, length)| millis.is_multiple_of(u128::from(*length)));
    let (unit, length) = fitting.next().unwrap_or(&UNITS[3]);
    format!("{}{unit}", millis / u128::from(*length))
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "is no duration: write a number and a unit, such as 500ms or 30s",
            Self::NotWhole => "has a fraction: write 1500ms instead of 1.5s",
            Self::NoUnit => "has no unit: write ms, s, m or h after the number, such as 30s",
            Self::UnknownUnit => "has an unknown unit: write ms, s, m or h, such as 30s",
            Self::TooLong => "is longer than can be counted: write something like 1h",
        })
    }
}

impl std::error::Error for DurationError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_and_a_unit_is_a_duration() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("0s", 0),
            ("007s", 7_000),
            ("18446744073709551615ms", u64::MAX),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_the_reason() {
        use DurationError::*;
        for (text, why) in [
            ("", NoNumber),
            (" ", NoNumber),
            ("s", NoNumber),
            ("-5s", NoNumber),
            ("+5s", NoNumber),
            (" 5s", NoNumber),
            (".5s", NoNumber),
            ("NaN", NoNumber),
            ("inf", NoNumber),
            ("٣s", NoNumber),
            ("½h", NoNumber),
            ("\0", NoNumber),
            ("1.5s", NotWhole),
            ("1,5s", NotWhole),
            ("30", NoUnit),
            ("0", NoUnit),
            ("5S", UnknownUnit),
            ("5 s", UnknownUnit),
            ("5s ", UnknownUnit),
            ("5s\n", UnknownUnit),
            ("5sec", UnknownUnit),
            ("5d", UnknownUnit),
            ("5us", UnknownUnit),
            ("5µs", UnknownUnit),
            ("1h30m", UnknownUnit),
            ("1e3s", UnknownUnit),
            ("0x10s", UnknownUnit),
            ("5\u{200b}s", UnknownUnit),
            ("18446744073709551616ms", TooLong),
            ("18446744073709551615s", TooLong),
            ("5124095576031h", TooLong),
            ("99999999999999999999999999999999h", TooLong),
        ] {
            assert_eq!(parse_duration(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        for millis in (0..5_000).chain([59_999, 60_000, 90_000, 3_600_000, 86_400_000, u64::MAX]) {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
        }
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
        assert_eq!(show_duration(Duration::from_secs(120)), "2m");
        assert_eq!(show_duration(Duration::from_micros(1_999)), "1ms");
    }

    #[test]
    fn no_text_of_a_few_odd_characters_makes_it_panic() {
        let odd = ["", "0", "9", "s", "m", "h", ".", "-", " ", "é", "\u{0}", "9999999999999999999"];
        for a in odd {
            for b in odd {
                for c in odd {
                    let text = format!("{a}{b}{c}");
                    if let Ok(duration) = parse_duration(&text) {
                        assert!(parse_duration(&show_duration(duration)).is_ok(), "{text:?}");
                    }
                }
            }
        }
    }
}
