//! The curves as one SVG on two log-log planes: total CPU over endpoints, and over instances.

use std::fmt::Write;

use crate::growth::{Curve, Per, amount};
use testkit::svg::{Page, escaped};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 900.0;
const LEFT: f64 = 70.0;
/// The planes end here; what lies right of it are the names of the lines.
const RIGHT: f64 = 560.0;
const NAMES: f64 = 600.0;
/// Top and bottom of each plane.
const PLANES: [(f64, f64); 2] = [(66.0, 486.0), (566.0, 836.0)];
/// Between two names.
const LINE: f64 = 16.0;
/// One after the other; each can be seen on light and on dark ground.
const COLOURS: [&str; 7] =
    ["#2f81f7", "#d97706", "#2da44e", "#cc79a7", "#8250df", "#0d9488", "#d1242f"];

const TITLE: &str = "What all of it costs, by how much there is";
const NOTE: &str = "A line as steep as a dashed one grows as fast as what there is. CPU, without what is waited for.";

/// Only what is CPU: other units would need other axes. And of calls only what the server spends, or nobody could
/// tell the lines apart: the client's part is level.
pub(crate) fn svg(curves: &[Curve]) -> String {
    let mut out = String::new();
    let is_drawn = |it: &&Curve| micros(it).is_some() && !it.name.ends_with(": client");
    let curves: Vec<&Curve> = curves.iter().filter(is_drawn).collect();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, &curves);
    out
}

fn write_all(out: &mut String, curves: &[&Curve]) -> std::fmt::Result {
    let fits = |it: &&Curve| Some(format!("{} n^{:.2}", it.name, it.exponent()?));
    let fits: Vec<String> = curves.iter().filter_map(fits).collect();
    let description = format!("Log-log lines, and the power that fits each: {}.", fits.join("; "));
    let (left, defs) = (LEFT, "");
    Page { width: WIDTH, height: HEIGHT, left, title: TITLE, description: &description, defs }
        .open(out)?;
    for (per, (top, bottom)) in [Per::Endpoint, Per::Instance].into_iter().zip(PLANES) {
        let lines: Vec<&Curve> = curves.iter().copied().filter(|it| it.per == per).collect();
        if let Some(plane) = Plane::around(&lines, top, bottom) {
            plane.write(out, &lines, per)?;
        }
    }
    let y = HEIGHT - 16.0;
    writeln!(out, r#"<text class="faint" x="{LEFT}" y="{y}">{NOTE}</text>"#)?;
    writeln!(out, "</svg>")
}

/// What its unit is in microseconds, if it is a time.
fn micros(curve: &Curve) -> Option<f64> {
    match curve.unit {
        "µs" => Some(1.0),
        "ms" => Some(1_000.0),
        _ => None,
    }
}

/// In microseconds.
fn points(curve: &Curve) -> Vec<(f64, f64)> {
    let unit = micros(curve).unwrap_or(1.0);
    curve.totals().into_iter().map(|it| (it.0, it.1 * unit)).collect()
}

/// From one power of ten to another, both ways.
struct Plane {
    x: (f64, f64),
    y: (f64, f64),
    top: f64,
    bottom: f64,
}

impl Plane {
    fn around(curves: &[&Curve], top: f64, bottom: f64) -> Option<Self> {
        let all: Vec<(f64, f64)> = curves.iter().flat_map(|it| points(it)).collect();
        let range = |of: fn(&(f64, f64)) -> f64| {
            let logs = all.iter().map(|it| of(it).log10());
            logs.fold(None, |seen: Option<(f64, f64)>, it| {
                let (low, high) = seen.unwrap_or((it, it));
                Some((low.min(it), high.max(it)))
            })
        };
        let (x, y) = (range(|it| it.0)?, range(|it| it.1)?);
        Some(Self { x, y: (y.0.floor(), y.1.ceil()), top, bottom })
    }

    fn x(&self, n: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (n.log10() - self.x.0) / (self.x.1 - self.x.0)
    }

    fn y(&self, micros: f64) -> f64 {
        let height = self.bottom - self.top;
        self.bottom - height * (micros.log10() - self.y.0) / (self.y.1 - self.y.0)
    }

    fn write(&self, out: &mut String, curves: &[&Curve], per: Per) -> std::fmt::Result {
        self.linear(out)?;
        self.axes(out, curves, per)?;
        let ends = curves.iter().map(|it| points(it).last().map_or(self.bottom, |it| self.y(it.1)));
        let names = apart(ends.collect(), self.top, self.bottom);
        for ((curve, name_y), colour) in curves.iter().zip(names).zip(COLOURS.iter().cycle()) {
            let points: Vec<(f64, f64)> =
                points(curve).into_iter().map(|it| (self.x(it.0), self.y(it.1))).collect();
            write!(out, r#"<path fill="none" stroke="{colour}" stroke-width="2" d="M"#)?;
            points.iter().try_for_each(|(x, y)| write!(out, "{x:.1} {y:.1} "))?;
            writeln!(out, r#""/>"#)?;
            for (x, y) in &points {
                writeln!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#)?;
            }
            let Some((x, y)) = points.last() else { continue };
            let (x, near) = (x + 5.0, NAMES - 4.0);
            writeln!(
                out,
                r#"<path fill="none" stroke="{colour}" d="M{x:.1} {y:.1}L{near} {name_y:.1}"/>"#
            )?;
            let power = curve.exponent().map(|it| format!("  n^{it:.2}")).unwrap_or_default();
            let (name, y) = (escaped(&curve.name), name_y + 4.0);
            writeln!(out, r#"<text x="{NAMES}" y="{y:.1}">{name}{power}</text>"#)?;
        }
        Ok(())
    }

    /// Slopes of one, a factor of a hundred apart.
    fn linear(&self, out: &mut String) -> std::fmt::Result {
        let (from, to) = (10_f64.powf(self.x.0), 10_f64.powf(self.x.1));
        let mut level = self.y.0;
        while level < self.y.1 {
            // Up to the upper edge, or to the right one.
            let rise = (self.y.1 - level).min(self.x.1 - self.x.0);
            let (x, y) = (self.x(from), self.y(10_f64.powf(level)));
            let (x2, y2) = (self.x((from * 10_f64.powf(rise)).min(to)), 10_f64.powf(level + rise));
            let y2 = self.y(y2);
            writeln!(
                out,
                r#"<path class="marker" opacity="0.4" d="M{x:.1} {y:.1}L{x2:.1} {y2:.1}"/>"#
            )?;
            level += 2.0;
        }
        Ok(())
    }

    fn axes(&self, out: &mut String, curves: &[&Curve], per: Per) -> std::fmt::Result {
        let (top, bottom) = (self.top, self.bottom);
        writeln!(out, r#"<path class="axis" d="M{LEFT} {top}V{bottom}H{RIGHT}"/>"#)?;
        let mut level = self.y.0;
        while level <= self.y.1 {
            let y = self.y(10_f64.powf(level));
            writeln!(out, r#"<path class="axis" d="M{LEFT} {y:.1}h-5"/>"#)?;
            let (x, y, label) = (LEFT - 8.0, y + 4.0, time(level));
            writeln!(out, r#"<text x="{x}" y="{y:.1}" text-anchor="end">{label}</text>"#)?;
            level += 1.0;
        }
        let sizes = curves.iter().map(|it| it.points.iter().map(|it| it.0).collect::<Vec<_>>());
        for n in sizes.max_by_key(Vec::len).unwrap_or_default() {
            let (x, y, label) = (self.x(n.into()), bottom + 18.0, amount(n));
            writeln!(out, r#"<path class="axis" d="M{x:.1} {bottom}v5"/>"#)?;
            writeln!(out, r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{label}</text>"#)?;
        }
        let (x, y, word) = (RIGHT, bottom + 36.0, per.word());
        writeln!(out, r#"<text class="faint" x="{x}" y="{y}" text-anchor="end">{word}s</text>"#)
    }
}

/// A power of ten of microseconds.
fn time(level: f64) -> String {
    let micros = 10_f64.powf(level);
    match level {
        it if it < 0.0 => format!("{micros:.*} µs", if it < -1.0 { 2 } else { 1 }),
        it if it < 3.0 => format!("{micros:.0} µs"),
        it if it < 6.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.0} s", micros / 1e6),
    }
}

/// The same heights, in the same order, each pushed down until it is off the one above; all of it up again where
/// that leaves the plane.
fn apart(heights: Vec<f64>, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]));
    let mut placed = heights;
    let mut free = top;
    for at in &order {
        placed[*at] = placed[*at].max(free);
        free = placed[*at] + LINE;
    }
    let mut free = bottom + LINE;
    for at in order.iter().rev() {
        placed[*at] = placed[*at].min(free);
        free = placed[*at] - LINE;
    }
    placed
}
