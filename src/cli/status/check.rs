//! `status --check`: one line and an exit code for a monitoring system.
//!
//! The codes are those of monitoring plugins, which say that a check that could not be made is neither good nor bad.

use std::process::ExitCode;
use std::time::Duration;

use crate::cli::table::printable;
use crate::cli::task::Check;
use crate::cli::{explained, say};
use crate::config::Config;
use crate::inspect::status::{Alarm, State, Status};
use crate::store::redis::RedisStore;

/// It could not be found out.
const UNKNOWN: u8 = 3;

/// Says how the fleet and its targets are.
pub(super) fn check(config: &Config, stale_after: Duration, what: Check) -> ExitCode {
    let overview = RedisStore::of_endpoints(config).overview(config.store_timeout);
    match overview {
        Err(error) => unknown(&explained(error.to_string())),
        Ok(overview) => {
            let status = Status::of(overview, stale_after);
            let (code, word) = worded(match what {
                Check::Fleet => status.fleet_alarm(),
                Check::FleetAndTargets => status.fleet_alarm().max(status.targets_alarm()),
            });
            ended(code, &format!("{word}: {}", line(&status, what)), &numbers(&status))
        }
    }
}

/// Why it could not be found out.
pub(crate) fn unknown(why: &str) -> ExitCode {
    ended(UNKNOWN, &format!("UNKNOWN: {why}"), "")
}

fn worded(alarm: Alarm) -> (u8, &'static str) {
    match alarm {
        Alarm::None => (0, "OK"),
        Alarm::Watch => (1, "WARNING"),
        Alarm::Act => (2, "CRITICAL"),
    }
}

fn line(status: &Status, what: Check) -> String {
    let part = |name, alarm, about: String| {
        format!("{name} {} ({about})", worded(alarm).1.to_ascii_lowercase())
    };
    let fleet = part("fleet", status.fleet_alarm(), status.about_fleet());
    match what {
        Check::Fleet => fleet,
        Check::FleetAndTargets => {
            let targets = part("targets", status.targets_alarm(), status.about_targets());
            format!("{fleet}, {targets}")
        }
    }
}

/// What such systems draw curves of.
fn numbers(status: &Status) -> String {
    let numbers = [
        ("instances", status.n_live()),
        ("endpoints", status.n_wanted()),
        ("failing", status.failing().len()),
        ("late", status.late().len()),
        ("unowned", status.count(State::Unowned) + status.count(State::Abandoned)),
    ];
    numbers.map(|(name, n)| format!("{name}={n}")).join(" ")
}

/// One line; what is behind a bar are numbers, so there is none in the sentence.
fn ended(code: u8, sentence: &str, numbers: &str) -> ExitCode {
    let sentence = printable(sentence).replace('|', "/");
    let bar = if numbers.is_empty() { "" } else { " | " };
    let told = say(&format!("{sentence}{bar}{numbers}\n"));
    if told == ExitCode::SUCCESS { ExitCode::from(code) } else { ExitCode::from(UNKNOWN) }
}
