//! Is the systemd unit one under which a crash costs no time? Reads what `systemctl show` prints; pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::Config;
use crate::inspect::doctor::{Finding, files};

const CHECK: &str = "systemd";

/// What to ask `systemctl` for.
pub const PROPERTIES: &str =
    "Id,Type,WatchdogUSec,ExecStopPost,TimeoutStopUSec,ActiveState,LimitNOFILE";
/// Of which units.
pub const PATTERN: &str = "leasehold*.service";

/// Judges the units in `shown`, what `systemctl show` printed; `None` where there is no systemd.
pub fn judged(shown: Option<&str>, config: &Config) -> Vec<Finding> {
    let Some(shown) = shown else { return vec![Finding::ok(CHECK, "no systemd here")] };
    let units: Vec<BTreeMap<&str, &str>> = shown
        .split("\n\n")
        .map(|it| it.lines().filter_map(|line| line.split_once('=')).collect())
        .filter(|it: &BTreeMap<&str, &str>| it.contains_key("Id"))
        .collect();
    if units.is_empty() {
        return vec![Finding::ok(CHECK, format!("no unit {PATTERN} is loaded on this host"))];
    }
    units.iter().map(|it| unit(it, config)).collect()
}

fn unit(properties: &BTreeMap<&str, &str>, config: &Config) -> Finding {
    let get = |name: &str| properties.get(name).copied().unwrap_or_default();
    let (name, state) = (get("Id"), get("ActiveState"));
    let mut wrong: Vec<&str> = Vec::new();
    if !get("ExecStopPost").contains(" release") {
        wrong.push(
            "no ExecStopPost=leasehold release: after a crash its leases wait until they expire",
        );
    }
    if !get("Type").starts_with("notify") {
        wrong.push("its Type is not notify: it counts as started before it polls");
    }
    if span(get("WatchdogUSec")).is_none_or(|it| it.is_zero()) {
        wrong.push("no WatchdogSec: one that hangs but still beats keeps its share");
    }
    if span(get("TimeoutStopUSec")).is_some_and(|it| it <= config.drain_timeout) {
        wrong.push("TimeoutStopSec is not above --drain-timeout: a stop is killed while polls end");
    }
    // `infinity`, and a systemd that does not tell: enough.
    let files = get("LimitNOFILE").parse().ok().and_then(|it| files::too_few(it, config));
    wrong.extend(files.as_deref());
    if wrong.is_empty() {
        return Finding::ok(
            CHECK,
            format!("{name} is {state}: notify, watchdog and ExecStopPost are set"),
        );
    }
    let way_out = "take them over from systemd/leasehold.service (systemctl edit)";
    Finding::warn(CHECK, format!("{name} is {state}; {}", wrong.join("; ")), way_out)
}

/// `1min 30s`, as systemd prints a time; `None` for `infinity` and for anything that is not a time.
fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    for word in text.split_whitespace() {
        let at = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
        let (number, unit) = word.split_at(at);
        let number: f64 = number.parse().ok()?;
        let seconds = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" | "" => 1.0,
            "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * seconds).ok()?;
    }
    (!text.trim().is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::doctor::Grade;

    const GOOD: &str = "Type=notify\nTimeoutStopUSec=30s\nWatchdogUSec=1min\nExecStopPost={ path=/usr/\
        local/bin/leasehold ; argv[]=/usr/local/bin/leasehold release --runtime-dir /run/leasehold ; \
        ignore_errors=no }\nId=leasehold.service\nActiveState=active\n";

    #[test]
    fn a_unit_lacks_what_it_lacks() {
        let config = Config { drain_timeout: Duration::from_secs(10), ..Config::default() };
        let one = |text: &str| judged(Some(text), &config).remove(0);
        assert_eq!(one(GOOD).grade, Grade::Ok, "{:?}", one(GOOD));
        for (from, to, words) in [
            ("Type=notify", "Type=simple", "Type is not notify"),
            ("WatchdogUSec=1min", "WatchdogUSec=0", "no WatchdogSec"),
            ("WatchdogUSec=1min", "WatchdogUSec=infinity", "no WatchdogSec"),
            (" release ", " status ", "no ExecStopPost"),
            ("TimeoutStopUSec=30s", "TimeoutStopUSec=10s", "TimeoutStopSec"),
        ] {
            let it = one(&GOOD.replace(from, to));
            assert!(it.grade == Grade::Warn && it.found.contains(words), "{it:?}");
        }
        assert_eq!(one(&GOOD.replace("USec=30s", "USec=infinity")).grade, Grade::Ok);
        let files = |n: &str| one(&format!("{GOOD}LimitNOFILE={n}\n"));
        assert!(files("100").found.contains("open files"), "{:?}", files("100"));
        assert!(["65536", "infinity", ""].iter().all(|it| files(it).grade == Grade::Ok));
        let two = format!("{GOOD}\n{}", GOOD.replace("Type=notify", "Type=simple"));
        let grades: Vec<Grade> = judged(Some(&two), &config).iter().map(|it| it.grade).collect();
        assert_eq!(grades, [Grade::Ok, Grade::Warn]);
    }

    #[test]
    fn nothing_there_is_nothing_wrong() {
        for shown in [None, Some(""), Some("\n\n\n"), Some("garbage")] {
            let found = judged(shown, &Config::default());
            assert!(found.len() == 1 && found[0].grade == Grade::Ok, "{found:?}");
        }
    }

    #[test]
    fn times_are_read_as_systemd_prints_them() {
        for (text, is) in [
            ("1min 30s", 90_000),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("0", 0),
            ("1h 1ms", 3_600_001),
        ] {
            assert_eq!(span(text), Some(Duration::from_millis(is)), "{text}");
        }
        for text in ["", "infinity", "1min 30fortnights", "-1s"] {
            assert_eq!(span(text), None, "{text}");
        }
    }
}
