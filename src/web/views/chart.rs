//! The drawings: load of each instance over the last minutes, a bar of load, latencies of an endpoint. SVG without text, so
//! that it may be as wide as the screen is; the words are beside it.

use crate::clock::Moment;
use crate::inspect::status::{InstanceStatus, brief};
use crate::web::history::{COLOURS, Latencies, Load, Loads};
use crate::web::html::{Html, put};
use crate::web::views::words::grouped;

const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 160.0;
/// Samples further apart are not joined: nobody looked in between.
const GAP_SECONDS: f64 = 45.0;
/// The shortest time shown, in seconds.
const SPAN_MIN: f64 = 60.0;

/// Stacked by instance. What belongs to nobody is the gap below the upper line.
pub(crate) fn loads(html: &mut Html, loads: &Loads, now: Moment) {
    let mut samples: Vec<&Load> = loads.samples.iter().collect();
    let (Some(began), true) = (samples.first().map(|it| it.at), samples.len() > 1) else { return };
    let span = now.since(began).as_secs_f64().max(SPAN_MIN);
    let x = |it: &Load| WIDTH - now.since(it.at).as_secs_f64() / span * WIDTH;
    // What was read last holds until now, unless that is too long ago.
    let last = samples.last().filter(|it| now.since(it.at).as_secs_f64() < GAP_SECONDS);
    let until_now = last.map(|it| Load { at: now, ..(*it).clone() });
    samples.extend(until_now.as_ref());
    let most =
        samples.iter().map(|it| it.wanted.max(it.owned.iter().sum())).max().unwrap_or(1).max(1);
    let y = |n: usize| HEIGHT - float(n) / float(most) * HEIGHT;
    put!(html; "<figure class=\"loads\"><svg viewBox=\"0 0 " (WIDTH) " " (HEIGHT)
        "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Endpoints owned by each instance in the last "
        (brief(now.since(began))) "\">");
    for piece in samples.chunk_by(|a, b| b.at.since(a.at).as_secs_f64() < GAP_SECONDS) {
        for colour in 0..COLOURS {
            let below = |it: &Load| it.owned.iter().take(colour).sum::<usize>();
            let upper = |it: &Load| below(it) + it.owned.get(colour).copied().unwrap_or(0);
            if piece.iter().all(|it| below(it) == upper(it)) {
                continue;
            }
            put!(html; "<path class=\"c" (colour) "\" d=\"");
            steps(html, piece.iter().map(|it| (x(it), y(upper(it)))), 'M');
            steps_back(html, &piece.iter().map(|it| (x(it), y(below(it)))).collect::<Vec<_>>());
            put!(html; "Z\"/>");
        }
        put!(html; "<path class=\"wanted\" d=\"");
        steps(html, piece.iter().map(|it| (x(it), y(it.wanted))), 'M');
        put!(html; "\"/>");
    }
    put!(html; "</svg><figcaption><span>" (brief(std::time::Duration::from_secs_f64(span)))
        " ago</span><span>owned, of " (grouped(most)) "</span><span>now</span></figcaption></figure>");
}

/// From left to right: a value holds until the next.
fn steps(html: &mut Html, points: impl Iterator<Item = (f64, f64)>, verb: char) {
    for (n, (x, y)) in points.enumerate() {
        match n {
            0 => put!(html; (verb) (short(x)) " " (short(y))),
            _ => put!(html; "H" (short(x)) "V" (short(y))),
        }
    }
}

/// The same way back.
fn steps_back(html: &mut Html, points: &[(f64, f64)]) {
    let mut points = points.iter().rev();
    let Some((x, y)) = points.next() else { return };
    put!(html; "L" (short(*x)) " " (short(*y)));
    for (x, y) in points {
        put!(html; "V" (short(*y)) "H" (short(*x)));
    }
}

/// What an instance owns, with a mark where its fair share ends.
pub(crate) fn bar(html: &mut Html, it: &InstanceStatus, scale: f64, colour: usize) {
    let (owned, share) = (float(it.owned) / scale * 100.0, it.fair_share / scale * 100.0);
    put!(html; "<svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
        <rect class=\"track\" width=\"100\" height=\"10\"/><rect class=\"c" (colour) "\" width=\"" (short(owned))
        "\" height=\"10\"/><path class=\"mark\" d=\"M" (short(share)) " 0V10\"/></svg>");
}

pub(crate) fn load_of(it: &InstanceStatus) -> f64 {
    it.fair_share.max(float(it.owned))
}

/// A bar for each poll, the slowest the highest; a failed one is as high as can be, and red.
pub(crate) fn latencies(html: &mut Html, latencies: &Latencies) {
    let known: Vec<u64> = latencies.last.iter().flatten().copied().collect();
    let most = known.iter().max().copied().unwrap_or(1).max(1);
    let failed = latencies.last.len() - known.len();
    let least = known.iter().min().map_or("–".into(), u64::to_string);
    put!(html; "<figure class=\"latencies\"><svg viewBox=\"0 0 300 40\" preserveAspectRatio=\"none\" role=\"img\" \
        aria-label=\"Latency of the last " (latencies.last.len()) " polls: " (least) " to " (most) " ms, " (failed)
        " failed\">");
    let from = crate::web::history::LATENCIES_MAX - latencies.last.len();
    for (at, it) in latencies.last.iter().enumerate() {
        let height = it.map_or(40.0, |ms| (ms_float(ms) / ms_float(most) * 38.0).max(2.0));
        put!(html; "<rect class=\"" (if it.is_some() { "poll" } else { "poll bad" }) "\" x=\"" (5 * (from + at))
            "\" y=\"" (short(40.0 - height)) "\" width=\"4\" height=\"" (short(height)) "\"/>");
    }
    put!(html; "</svg><figcaption><span>" (latencies.last.len()) " polls since this page was opened</span><span>");
    if !known.is_empty() {
        put!(html; (least) "–" (most) " ms");
    }
    put!(html; "</span></figcaption></figure>");
}

fn short(number: f64) -> String {
    format!("{number:.1}")
}

#[expect(clippy::cast_precision_loss, reason = "for a drawing")]
fn float(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "for a drawing")]
fn ms_float(ms: u64) -> f64 {
    ms as f64
}
