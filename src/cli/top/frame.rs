//! How does the screen of `top` look? A view becomes the lines of a screen, as many as fit, the most important first.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cli::status::{busy, lag, last_result_after, paint};
use crate::cli::table::{Paint, Side, brief};
use crate::cli::top::line::{Cell, Line, Signs, aligned, wrapped};
use crate::cli::top::picture::{SAMPLES, Samples};
use crate::cli::top::terminal::Size;
use crate::cli::top::view::View;
use crate::cli::{history, short_names, utc};
use crate::clock::Moment;
use crate::inspect::status::{EndpointStatus, InstanceStatus, State, counted};
use crate::model::InstanceId;

/// How wide the bar of an instance is.
const BAR: usize = 20;
/// No more events than this, unless the endpoints leave rows free.
const RECENT_MAX: usize = 5;
/// Title, headings and empty lines of endpoints and events, and the events themselves.
const ROWS_BESIDE_INSTANCES: usize = 7 + RECENT_MAX;
/// Title, headings and empty lines of endpoints and events.
const ROWS_BESIDE_EVENTS: usize = 5;
/// With fewer rows left the events are not shown, and with fewer still the instances are not.
const ROWS_FOR_RECENT: usize = 18;
const ROWS_FOR_INSTANCES: usize = 9;

/// A picture that is older says nothing about now; one that takes long to read may be older.
const OLD_AFTER: Duration = Duration::from_secs(10);

/// The verdict has at most one line in this many.
const ROWS_PER_LINE_OF_VERDICT: usize = 8;

const HELP: &[&str] = &[
    "q, Ctrl-C         quit; Ctrl-Z stops it, fg goes on",
    "up, down, k, j    scroll; PgUp, PgDn, Home, End, too",
    "s                 sort by state, endpoint, owner, age, latency, left",
    "r                 the other way round",
    "/                 filter by endpoint, owner or state; Enter keeps it, Esc clears it",
    "p                 pause; p again goes on",
    "?                 this; any key goes back",
];

/// What is told beside the picture.
pub(crate) struct Surroundings<'a> {
    pub(crate) redis: &'a str,
    pub(crate) now: Moment,
    pub(crate) signs: Signs,
}

/// The lines of the screen, exactly as many as it has.
pub(crate) fn frame(view: &mut View, size: Size, around: &Surroundings<'_>) -> Vec<Line> {
    let mut lines = head(view, size, around);
    lines.truncate(size.rows);
    let left = size.rows.saturating_sub(lines.len());
    let foot = usize::from(left > 1);
    lines.extend(match view.helps {
        true => HELP.iter().map(|it| Line::new(Paint::Plain, it)).take(left - foot).collect(),
        false => body(view, left - foot, around),
    });
    lines.resize_with(size.rows - foot.min(size.rows), Line::default);
    if foot > 0 {
        lines.push(footer(view));
    }
    lines
}

/// How old the picture is, if that is too old to judge by: Redis does not answer, or nobody asks it.
fn outdated(view: &View, around: &Surroundings<'_>) -> Option<Duration> {
    let age = around.now.since(view.picture.read_at);
    let usual = view.picture.took.saturating_mul(20).max(OLD_AFTER);
    (view.trouble.is_some() || age > usual).then_some(age)
}

fn head(view: &View, size: Size, around: &Surroundings<'_>) -> Vec<Line> {
    let status = &view.picture.status;
    let age = brief(around.now.since(view.picture.read_at));
    let took = view.picture.took.as_millis();
    let mut second = Line::new(Paint::Plain, around.redis)
        .with(Paint::Plain, &format!("  read {age} ago in {took} ms"));
    if view.paused {
        second = second.with(Paint::Watch, "  PAUSED: p goes on");
    }
    let verdict_max = (size.rows / ROWS_PER_LINE_OF_VERDICT).max(1);
    let mut lines = match outdated(view, around) {
        // What was well then need not be well now.
        Some(age) => {
            let words = format!("How the fleet is now is not known: this is {} old.", brief(age));
            vec![Line::new(Paint::Watch, &words)]
        }
        None => wrapped(paint(status.alarm()), &status.verdict(), size.columns, verdict_max),
    };
    lines.push(second);
    if let Some((since, error)) = &view.trouble {
        let away = around.now.since(*since).as_secs();
        lines.push(Line::new(Paint::Bad, &format!("No answer for {away} s: {error}")));
    }
    if let Some(left) = status.hold_off {
        let words = format!("Hold-off: nothing is granted for another {}.", brief(left));
        lines.push(Line::new(Paint::Watch, &words));
    }
    if !status.drained.is_empty() {
        let words = format!("Drained: {}", status.drained.join(", "));
        lines.push(Line::new(Paint::Watch, &words));
    }
    lines
}

fn body(view: &mut View, rows: usize, around: &Surroundings<'_>) -> Vec<Line> {
    let (signs, aged) = (around.signs, outdated(view, around).unwrap_or_default());
    let ids: Vec<InstanceId> = instances_in(view);
    let names = short_names::short(ids.iter());
    let mut above = Vec::new();
    if rows >= ROWS_FOR_INSTANCES && !view.picture.status.instances.is_empty() {
        above.push(Line::default());
        // More than a quarter where the endpoints leave rows free.
        let free = rows.saturating_sub(view.order.len() + ROWS_BESIDE_INSTANCES);
        above.extend(instances(view, free.max(rows / 4), &names, signs));
    }
    let mut below = Vec::new();
    if rows >= ROWS_FOR_RECENT && !view.picture.recent.is_empty() {
        below.push(Line::default());
        let free = rows.saturating_sub(above.len() + view.order.len() + ROWS_BESIDE_EVENTS);
        below.extend(recent(view, free.max(RECENT_MAX), &names));
    }
    let title = if rows > 3 { 2 } else { 0 };
    // The headings of the table are a row, too.
    view.room = rows.saturating_sub(above.len() + below.len() + title + 1).max(1);
    view.scroll_to(view.scrolled);
    if title > 0 {
        above.extend([Line::default(), summary(view)]);
    }
    let mut lines = above;
    lines.extend(endpoints(view, &names, signs, aged));
    lines.resize_with(rows.saturating_sub(below.len()), Line::default);
    lines.extend(below);
    lines.truncate(rows);
    lines
}

fn instances_in(view: &View) -> Vec<InstanceId> {
    let status = &view.picture.status;
    let owners = status.endpoints.iter().filter_map(|it| Some(it.lease.as_ref()?.value.clone()));
    let told = view.picture.recent.iter().flat_map(history::instances);
    status.instances.iter().map(|it| it.id.clone()).chain(owners).chain(told).collect()
}

fn instances(
    view: &View,
    most: usize,
    names: &BTreeMap<&InstanceId, String>,
    signs: Signs,
) -> Vec<Line> {
    let all = &view.picture.status.instances;
    let most = if all.len() > most { most.saturating_sub(1).max(1) } else { most };
    let scale = all.iter().map(load).fold(1.0, f64::max);
    let row = |it: &InstanceStatus| {
        let (beat, short) = (it.heartbeat.as_ref(), it.shortfall().is_some());
        let heartbeat = match beat {
            None => (Paint::Bad, "gone".into()),
            Some(_) if it.revoked => (Paint::Bad, "revoked".into()),
            Some(_) if it.drained => (Paint::Watch, "drained".into()),
            Some(beat) => (Paint::Plain, format!("{} left", brief(beat.left))),
        };
        vec![
            (Paint::Plain, named(&it.id, names)),
            bar(it, scale, signs),
            (Paint::Plain, it.owned.to_string()),
            (Paint::Plain, format!("{:.1}", it.fair_share)),
            (Paint::Plain, beat.map_or("-".into(), |it| it.value.to_string())),
            heartbeat,
            (if short { Paint::Bad } else { Paint::Plain }, busy(it)),
            (if short { Paint::Bad } else { Paint::Plain }, lag(it)),
            (Paint::Plain, it.polling().map_or("-".into(), |it| it.skipped_per_min.to_string())),
            (Paint::Plain, it.info.as_ref().map_or("-".into(), |it| it.version.clone())),
        ]
    };
    let headings = [
        ("INSTANCE", Side::Left),
        ("LOAD", Side::Left),
        ("OWNED", Side::Right),
        ("SHARE", Side::Right),
        ("WEIGHT", Side::Right),
        ("HEARTBEAT", Side::Left),
        ("BUSY", Side::Right),
        ("LAG", Side::Right),
        ("SKIP/MIN", Side::Right),
        ("VERSION", Side::Left),
    ];
    let mut lines = aligned(&headings, all.iter().take(most).map(row).collect());
    if all.len() > most {
        let more = format!("and {} more", counted(all.len() - most, "instance"));
        lines.push(Line::new(Paint::Plain, &more));
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "for a bar of twenty places")]
fn load(it: &InstanceStatus) -> f64 {
    it.fair_share.max(it.owned as f64)
}

/// What it owns, with a mark where its fair share ends.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "for a bar of twenty places"
)]
fn bar(it: &InstanceStatus, scale: f64, signs: Signs) -> Cell {
    let places = |load: f64| (load / scale * BAR as f64).round() as usize;
    let (owned, share) = (places(it.owned as f64), places(it.fair_share));
    let sign = |at: usize| match at {
        at if at < owned => signs.full,
        at if at + 1 == share => signs.mark,
        _ => ' ',
    };
    let off = (it.owned as f64 - it.fair_share).abs() >= 1.0;
    let paint = if off { Paint::Watch } else { Paint::Good };
    (paint, (0..BAR).map(sign).collect())
}

fn named(id: &InstanceId, names: &BTreeMap<&InstanceId, String>) -> String {
    names.get(id).cloned().unwrap_or_else(|| id.to_string())
}

/// How many there are of which kind, and which of them are shown in which order.
fn summary(view: &View) -> Line {
    let status = &view.picture.status;
    let counts = State::ALL.iter().rev().map(|it| (status.count(*it), it.word()));
    let counts: Vec<String> =
        counts.filter(|it| it.0 > 0).map(|(n, word)| format!("{n} {word}")).collect();
    let total = counted(status.endpoints.len(), "endpoint");
    let line = match counts.is_empty() {
        true => Line::new(Paint::Plain, &total),
        false => Line::new(Paint::Plain, &format!("{total}: {}", counts.join(", "))),
    };
    let (first, shown) = (view.scrolled, view.order.len());
    let last = (first + view.room).min(shown);
    let place = match shown {
        0 => "none shown".into(),
        _ => format!("{}-{last} of {shown}", first + 1),
    };
    let order = if view.reversed { ", reversed" } else { "" };
    let line = line.with(Paint::Plain, &format!("  [{place}, by {}{order}]", view.sort.word()));
    match view.filter.is_empty() {
        true => line,
        false => line.with(Paint::Watch, &format!("  filter: {}", view.filter)),
    }
}

/// Of a lease that was read this long ago; one that never ends has no less left.
fn left(left: Duration, aged: Duration) -> Duration {
    if left == Duration::MAX { left } else { left.saturating_sub(aged) }
}

/// With their ages as they are now: `aged` is how long ago they were read, where that matters.
fn endpoints(
    view: &View,
    names: &BTreeMap<&InstanceId, String>,
    signs: Signs,
    aged: Duration,
) -> Vec<Line> {
    let headings = [
        ("ENDPOINT", Side::Left),
        ("STATE", Side::Left),
        ("OWNER", Side::Left),
        ("LEFT", Side::Right),
        ("LATENCY", Side::Left),
        ("LAST RESULT", Side::Left),
        ("FENCE", Side::Right),
    ];
    let shown = view.order.iter().skip(view.scrolled).take(view.room);
    let row = |it: &EndpointStatus| {
        let colour = match it.state {
            State::Ok => Paint::Plain,
            state => paint(state.alarm()),
        };
        let lease = it.lease.as_ref();
        let result = last_result_after(it, aged);
        vec![
            (Paint::Plain, it.name.clone()),
            (colour, it.state.word().into()),
            (Paint::Plain, lease.map_or("-".into(), |it| named(&it.value, names))),
            (Paint::Plain, lease.map_or("-".into(), |it| brief(left(it.left, aged)))),
            sparkline(view.latencies.of(&it.name), signs),
            (result.1, result.0),
            (Paint::Plain, it.fence.map_or("-".into(), |it| it.to_string())),
        ]
    };
    let endpoints = &view.picture.status.endpoints;
    aligned(&headings, shown.filter_map(|it| endpoints.get(*it)).map(row).collect())
}

/// The slowest seen is the highest.
fn sparkline(samples: Option<&Samples>, signs: Signs) -> Cell {
    let Some(samples) = samples else { return (Paint::Plain, "-".into()) };
    let highest = samples.last.iter().flatten().copied().max().unwrap_or(0).max(1);
    let sign = |it: &Option<u64>| match it {
        None => signs.failed,
        Some(ms) => {
            let place = usize::try_from(ms.saturating_mul(7) / highest).unwrap_or(0);
            signs.bars[place.min(7)]
        }
    };
    let failed = samples.last.back().is_some_and(Option::is_none);
    let paint = if failed { Paint::Bad } else { Paint::Good };
    let signs: String = samples.last.iter().map(sign).collect();
    (paint, format!("{signs:<SAMPLES$}"))
}

fn recent(view: &View, most: usize, names: &BTreeMap<&InstanceId, String>) -> Vec<Line> {
    let recent = &view.picture.recent;
    let newest = &recent[recent.len().saturating_sub(most)..];
    let row = |it: &crate::store::history::Entry| {
        vec![
            (Paint::Plain, utc::time(it.at_ms)),
            (Paint::Plain, history::endpoint(it).into()),
            (history::paint(it), it.event.clone()),
            (Paint::Plain, history::name(&it.instance, names)),
            (Paint::Plain, history::why(it, names)),
        ]
    };
    let headings = [
        ("TIME", Side::Left),
        ("ENDPOINT", Side::Left),
        ("EVENT", Side::Left),
        ("WHO", Side::Left),
        ("WHY", Side::Left),
    ];
    aligned(&headings, newest.iter().map(row).collect())
}

fn footer(view: &View) -> Line {
    if view.typing {
        return Line::new(Paint::Heading, &format!("/{}_", view.filter))
            .with(Paint::Plain, "  Enter keeps it, Esc clears it");
    }
    Line::new(Paint::Plain, "q quit  s sort  r reverse  / filter  p pause  ? help")
}

/// How long until something on the screen changes by itself.
pub(crate) const TICK: Duration = Duration::from_secs(1);
