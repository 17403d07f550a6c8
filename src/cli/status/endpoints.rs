//! The endpoints of `status`: which are listed, and in which columns.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cli::status::{FEW, paint, short_names};
use crate::cli::table::{Cell, Paint, Painter, Side, Table, brief, printable, width_of_stdout};
use crate::cli::task::{Output, StatusHow, Which};
use crate::cli::usage::nearest;
use crate::inspect::status::{Alarm, EndpointStatus, State, Status, counted};
use crate::model::InstanceId;

/// At most this many are listed unasked: in an outage it would be all.
const ATTENTION_MAX: usize = 50;

const COLUMNS: &[(&str, Side)] = &[
    ("ENDPOINT", Side::Left),
    ("STATE", Side::Left),
    ("OWNER", Side::Left),
    ("ADDRESS", Side::Left),
    ("LAST RESULT", Side::Left),
];
/// What is cut on a terminal, in this order, and how much of it stays. The name of an endpoint comes last: it is what an
/// operator copies.
const CUT: &[(usize, usize)] = &[(4, 30), (3, 16), (4, 14), (3, 10), (2, 8), (0, 12)];
/// On a narrower terminal lines are as long, and it breaks them.
const NARROWEST: usize = 80;
const WIDE: &[(&str, Side)] = &[
    ("ENDPOINT", Side::Left),
    ("STATE", Side::Left),
    ("OWNER", Side::Left),
    ("PREFERRED", Side::Left),
    ("FENCE", Side::Right),
    ("LEFT", Side::Right),
    ("ADDRESS", Side::Left),
    ("LAST RESULT", Side::Left),
];

/// Those that were asked for; an error for an owner that nobody knows.
pub(super) fn narrow<'a>(
    status: &'a Status,
    which: &Which,
) -> Result<Vec<&'a EndpointStatus>, String> {
    let of_owner = |id: &InstanceId| {
        which.owner.as_ref().is_none_or(|it| it == id.as_str() || it == id.host())
    };
    let living = status.instances.iter().map(|it| &it.id);
    if let Some(owner) = which.owner.as_ref().filter(|_| !living.clone().any(of_owner)) {
        let names = living.flat_map(|it| [it.host(), it.as_str()]);
        let way_out = match nearest(owner, names.chain(status.drained.iter().map(String::as_str))) {
            Some(near) => format!("did you mean {}?", printable(near)),
            None => "leasehold status lists them".into(),
        };
        let owner = printable(owner);
        return Err(format!("no instance {owner} is alive or owns anything: {way_out}"));
    }
    let wanted = |it: &&EndpointStatus| {
        let owner = it.lease.as_ref().map(|it| &it.value);
        (which.states.is_empty() || which.states.contains(&it.state))
            && owner.map_or(which.owner.is_none(), of_owner)
    };
    Ok(status.endpoints.iter().filter(wanted).collect())
}

/// Exactly these.
pub(super) fn listed(
    status: &Status,
    narrow: &[&EndpointStatus],
    how: &StatusHow,
    painter: Painter,
) -> String {
    let total = counted(status.endpoints.len(), "endpoint");
    match narrow.len() {
        0 => format!("None of {total}.\n"),
        n => format!("{n} of {total}:\n{}", table(status, narrow, how).shown(painter)),
    }
}

/// How many are in which state, and those that are to be seen.
pub(super) fn worth_showing(status: &Status, how: &StatusHow, painter: Painter) -> String {
    let total = status.endpoints.len();
    let wanted = |it: &&EndpointStatus| how.all || total <= FEW || it.state.alarm() != Alarm::None;
    let most = if how.all { usize::MAX } else { ATTENTION_MAX };
    let to_show: Vec<&EndpointStatus> = status.endpoints.iter().filter(wanted).collect();
    let counts = State::ALL.iter().rev().map(|it| (status.count(*it), it.word()));
    let counts: Vec<String> =
        counts.filter(|it| it.0 > 0).map(|(n, word)| format!("{n} {word}")).collect();
    let mut out = format!("{}: {}.", counted(total, "endpoint"), counts.join(", "));
    match to_show.len() {
        0 => return out + " --all lists them.\n",
        n if n > most => out += &format!(" The {most} worst (--all lists every one):"),
        n if n < total => out += " Those that need attention (--all lists every one):",
        _ => (),
    }
    let to_show = &to_show[..to_show.len().min(most)];
    format!("{out}\n{}", table(status, to_show, how).shown(painter))
}

fn table(status: &Status, endpoints: &[&EndpointStatus], how: &StatusHow) -> Table {
    let wide = how.output == Output::Wide;
    let mut table = Table::new(if wide { WIDE } else { COLUMNS });
    let names = short_names(status);
    for it in endpoints {
        table.row(row(it, &names, wide));
    }
    // What goes through a pipe may be searched, and an operator who asks for all gets all.
    let columns = width_of_stdout().filter(|_| !wide && !how.all);
    if let Some(columns) = columns {
        table.fit(columns.max(NARROWEST), CUT);
    }
    table
}

fn row(endpoint: &EndpointStatus, names: &BTreeMap<&InstanceId, String>, wide: bool) -> Vec<Cell> {
    let named = |id: Option<&InstanceId>| {
        Cell::new(id.map_or("-", |it| names.get(it).map_or(it.as_str(), String::as_str)))
    };
    let colour = match endpoint.state {
        State::Ok => Paint::Plain,
        state => paint(state.alarm()),
    };
    let lease = endpoint.lease.as_ref();
    let mut cells = vec![
        Cell::new(&endpoint.name),
        Cell::painted(endpoint.state.word(), colour),
        named(lease.map(|it| &it.value)),
    ];
    if wide {
        cells.push(named(endpoint.preferred.as_ref()));
        cells.push(Cell::new(&endpoint.fence.map_or("-".into(), |it| it.to_string())));
    }
    let (result, colour_of_result) = last_result(endpoint);
    if wide {
        cells.push(Cell::new(&lease.map_or("-".into(), |it| brief(it.left))));
    }
    cells.push(Cell::new(&address(endpoint)));
    cells.push(Cell::painted(&result, colour_of_result));
    cells
}

/// As short as a session may have it: `host:port/path` for `http://host:port/path`.
fn address(endpoint: &EndpointStatus) -> String {
    let Some(address) = endpoint.address().map(ToString::to_string) else { return "-".into() };
    let Some(plain) = address.strip_prefix("http://") else { return address };
    plain.strip_suffix('/').filter(|it| !it.contains('/')).unwrap_or(plain).into()
}

/// Why there can be none, where there cannot.
fn last_result(endpoint: &EndpointStatus) -> (String, Paint) {
    last_result_after(endpoint, Duration::ZERO)
}

/// The same, when it was read this long ago.
pub(crate) fn last_result_after(endpoint: &EndpointStatus, aged: Duration) -> (String, Paint) {
    if let Some(error) = endpoint.invalid() {
        return (error.to_string(), Paint::Bad);
    }
    let Some(result) = &endpoint.result else { return ("-".into(), Paint::Plain) };
    let mut words = endpoint.age.map_or(String::new(), |it| format!("{} ago: ", brief(it + aged)));
    words += if result.ok { "ok" } else { "failed" };
    if let Some(status) = result.status {
        words += &format!(" {status}");
    }
    if let Some(ms) = result.duration_ms {
        words += &format!(" in {ms} ms");
    }
    if let Some(error) = &result.error {
        words += &format!(", {error}");
    }
    (words, if result.ok { Paint::Plain } else { Paint::Bad })
}
