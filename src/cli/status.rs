//! `leasehold status`: who polls what, and is all well? For a person at three in the morning.
//!
//! Says what was read; judging it is `crate::inspect::status`. The exit code says only whether it could be read.

mod check;
mod endpoints;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::leaders::{self, Leaders};
use crate::cli::short_names;
pub(crate) use crate::cli::status::check::unknown;
pub(crate) use crate::cli::status::endpoints::last_result_after;
use crate::cli::table::{Cell, Paint, Painter, Side, Table, brief, printable};
use crate::cli::task::{Output, StatusHow};
use crate::cli::{FAILED, fail, say};
use crate::config::Config;
pub(crate) use crate::inspect::status::json::{
    document, endpoint_document, millis, without_controls,
};
use crate::inspect::status::left::{Lately, Left, left_lately};
use crate::inspect::status::{Alarm, InstanceStatus, Status};
use crate::model::InstanceId;
use crate::store::redis::RedisStore;
use crate::store::{Fault, StoreError, StoreResult};

/// Up to this many endpoints or odd keys are always listed.
const FEW: usize = 20;
/// An instance that left longer ago is of no interest any more.
const LATELY: Duration = Duration::from_secs(3_600);
/// No more of those are named.
const LEFT_MAX: usize = 5;

/// Reads, judges, and shows it.
pub(crate) fn status(config: &Config, how: &StatusHow) -> ExitCode {
    if let Some(what) = how.check {
        return check::check(config, how.stale_after, what);
    }
    let overview = RedisStore::of_endpoints(config).overview(config.store_timeout);
    match overview.and_then(|it| Ok((it, led(config)?))) {
        Err(error) => failed(&error),
        Ok((overview, led)) => {
            let status = Status::of(overview, how.stale_after);
            match shown(config, &status, &led, how) {
                Ok(text) => say(&text),
                Err(why) => fail(FAILED, &why),
            }
        }
    }
}

fn shown(
    config: &Config,
    status: &Status,
    led: &Leaders,
    how: &StatusHow,
) -> Result<String, String> {
    let left = left(config, status);
    let narrow = endpoints::narrow(status, &how.which)?;
    let painter = Painter::for_stdout();
    Ok(match how.output {
        Output::Json => document(&config.redis, status, &narrow, led, left.as_ref()),
        Output::Names => narrow.iter().map(|it| printable(&it.name) + "\n").collect(),
        _ => {
            let page = match how.which.is_narrow() {
                true => endpoints::listed(status, &narrow, how, painter),
                false => page(status, led, left.as_ref(), how, painter),
            };
            page + &format!("\nAs read from {}.\n", config.redis)
        }
    })
}

/// Says why nothing could be read.
pub(crate) fn failed(error: &StoreError) -> ExitCode {
    let way_out = match error.fault {
        Fault::Unreachable => ": check that it runs, and --redis",
        _ => "", // the reason has it
    };
    fail(FAILED, &format!("{}{way_out}", printable(&error.to_string())))
}

/// Who may not see the keys of roles is not told of any.
fn led(config: &Config) -> StoreResult<Leaders> {
    match RedisStore::of_roles(config).role_overview(config.store_timeout) {
        Err(error) if error.fault == Fault::Misconfigured => Ok(vec![]),
        led => led,
    }
}

/// Who left lately; nothing is known where the history may not be read.
fn left(config: &Config, status: &Status) -> Option<Lately> {
    let store = RedisStore::of_endpoints(config);
    let entries = store.whole_history(config.store_timeout).ok()?;
    Some(left_lately(entries, status, LATELY))
}

fn page(
    status: &Status,
    led: &Leaders,
    left: Option<&Lately>,
    how: &StatusHow,
    painter: Painter,
) -> String {
    let mut out = painter.paint(paint(status.alarm()), &printable(&status.verdict())) + "\n";
    if let Some(left) = status.hold_off {
        let words = format!(
            "Hold-off: Redis is new or has lost its memory, so nothing is granted for another {}. \
             Owners from before go on.",
            brief(left)
        );
        out += &(painter.paint(Paint::Watch, &words) + "\n");
    }
    if !status.drained.is_empty() {
        out += &format!("Drained: {}\n", printable(&status.drained.join(", ")));
    }
    if !status.instances.is_empty() {
        out += &format!("\n{}", instances(status).shown(painter));
    }
    if status.instances.iter().any(|it| it.info.is_some()) {
        out += &format!("\n{}", achieved(status).shown(painter));
    }
    if let Some(lately) = left {
        out += &who_left(&lately.left, painter);
        out += &how_far_back(lately.reach);
    }
    if !led.is_empty() {
        out += &format!("\n{}", leaders::table(led).shown(painter));
    }
    if !status.endpoints.is_empty() {
        out += &format!("\n{}", endpoints::worth_showing(status, how, painter));
    }
    out + &odd_keys(status, how.all)
}

pub(crate) fn paint(alarm: Alarm) -> Paint {
    match alarm {
        Alarm::None => Paint::Good,
        Alarm::Watch => Paint::Watch,
        Alarm::Act => Paint::Bad,
    }
}

fn instances(status: &Status) -> Table {
    let mut table = Table::new(&[
        ("INSTANCE", Side::Left),
        ("WEIGHT", Side::Right),
        ("OWNED", Side::Right),
        ("SHARE", Side::Right),
        ("HEARTBEAT", Side::Left),
    ]);
    for it in &status.instances {
        let weight = it.heartbeat.as_ref().map_or("-".into(), |it| it.value.to_string());
        let share =
            if it.heartbeat.is_some() { format!("{:.1}", it.fair_share) } else { "-".into() };
        table.row(vec![
            Cell::new(it.id.as_str()),
            Cell::new(&weight),
            Cell::new(&it.owned.to_string()),
            Cell::new(&share),
            heartbeat(it),
        ]);
    }
    table
}

/// What the instances tell about themselves; a dash for what an older version does not tell.
fn achieved(status: &Status) -> Table {
    let mut table = Table::new(&[
        ("POLLING", Side::Left),
        ("VERSION", Side::Left),
        ("UP", Side::Right),
        ("BUSY", Side::Right),
        ("POLLS/MIN", Side::Right),
        ("SKIPPED/MIN", Side::Right),
        ("LAG", Side::Right),
    ]);
    let names = short_names(status);
    for it in status.instances.iter().filter(|it| it.heartbeat.is_some()) {
        let name = names.get(&it.id).map_or(it.id.as_str(), String::as_str);
        let polling = it.polling();
        let paint = if it.shortfall().is_some() { Paint::Bad } else { Paint::Plain };
        let rate = |rate: Option<u64>| rate.map_or("-".into(), |it| it.to_string());
        table.row(vec![
            Cell::new(name),
            Cell::new(it.info.as_ref().map_or("-", |it| it.version.as_str())),
            Cell::new(&it.up(status.server_ms).map_or("-".into(), brief)),
            Cell::painted(&busy(it), paint),
            Cell::new(&rate(polling.map(|it| it.polls_per_min))),
            Cell::new(&rate(polling.map(|it| it.skipped_per_min))),
            Cell::painted(&lag(it), paint),
        ]);
    }
    table
}

/// How many of its workers are busy: `47/48`.
pub(crate) fn busy(instance: &InstanceStatus) -> String {
    instance.polling().map_or("-".into(), |it| format!("{}/{}", it.busy, it.workers))
}

/// How late polls begin at worst.
pub(crate) fn lag(instance: &InstanceStatus) -> String {
    instance.polling().map_or("-".into(), |it| brief(it.lag))
}

/// The last first.
fn who_left(left: &[Left], painter: Painter) -> String {
    if left.is_empty() {
        return String::new();
    }
    let gone = |it: &Left| {
        let how = match (it.stopped, it.taken_over) {
            (true, _) => "stopped",
            (false, true) => "died or was cut off",
            (false, false) => "died or was cut off, last heard of",
        };
        format!("{} {how} {} ago", printable(it.id.as_str()), brief(it.ago))
    };
    let mut words: Vec<String> = left.iter().take(LEFT_MAX).map(gone).collect();
    if left.len() > LEFT_MAX {
        words.push(format!("and {} more", left.len() - LEFT_MAX));
    }
    let paint = if left.iter().all(|it| it.stopped) { Paint::Plain } else { Paint::Watch };
    painter.paint(paint, &format!("Left in the last hour: {}.", words.join(", "))) + "\n"
}

fn how_far_back(reach: Option<Duration>) -> String {
    let words =
        |it| format!("The history reaches back {}: who left before is not known.\n", brief(it));
    reach.map(words).unwrap_or_default()
}

pub(crate) fn heartbeat(instance: &InstanceStatus) -> Cell {
    let Some(heartbeat) = &instance.heartbeat else { return Cell::painted("gone", Paint::Bad) };
    let left = match heartbeat.left {
        Duration::MAX => "never ends".into(),
        left => format!("{} left", brief(left)),
    };
    if instance.revoked {
        return Cell::painted(&format!("{left}, revoked"), Paint::Bad);
    }
    if instance.drained {
        return Cell::painted(&format!("{left}, drained"), Paint::Watch);
    }
    Cell::new(&left)
}

/// The ids themselves are in the table of instances.
pub(super) fn short_names(status: &Status) -> BTreeMap<&InstanceId, String> {
    let owners = status.endpoints.iter().filter_map(|it| Some(&it.lease.as_ref()?.value));
    short_names::short(status.instances.iter().map(|it| &it.id).chain(owners))
}

fn odd_keys(status: &Status, all: bool) -> String {
    let (n, most) = (status.odd_keys.len(), if all { usize::MAX } else { FEW });
    let lines = status.odd_keys.iter().take(most);
    let mut out: String = lines.map(|(key, why)| format!("{} {why}\n", printable(key))).collect();
    if n > most {
        out += &format!("... and {} more (--all lists every one)\n", n - most);
    }
    if n > 0 { format!("\nKeys that are not as they should be:\n{out}") } else { out }
}
