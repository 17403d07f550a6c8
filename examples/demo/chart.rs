//! Writes a stacked step chart as SVG, by hand. The same data always gives the same bytes.
//!
//! Readable on light and dark pages: it brings its own background and follows the reader's scheme.

use std::fmt::Write;

use testkit::svg::{Page, escaped};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 428.0;
/// The plot, within the margins for axes, markers and legend.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 944.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 352.0;
/// Between two rows of marker labels.
const ROW: f64 = 17.0;
/// About what a letter takes at 12 px, to keep labels apart.
const LETTER: f64 = 6.6;
/// The chart writes a count into a band that is at least this high for at least this number of seconds.
const ROOM: f64 = 14.0;
const STEADY: f64 = 1.2;
const SECONDS_A_TICK: usize = 5;

/// One colour each, told apart also by the colour-blind; the last is what nobody has.
const BANDS: [&str; 5] = ["#56b4e9", "#e69f00", "#4dbd98", "#cc79a7", "url(#hatch)"];

const HATCH: &str = r#"<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0V6" stroke-width="3"/></pattern></defs>
"#;

/// Counts over time, one band on top of the other.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What one sees, for those who cannot.
    pub(crate) description: String,
    /// Names of the bands, lowest first; the last is hatched.
    pub(crate) bands: [&'static str; BANDS.len()],
    /// From this second on, the count of each band.
    pub(crate) steps: Vec<(f64, [usize; BANDS.len()])>,
    /// What happened when.
    pub(crate) markers: Vec<(f64, String)>,
    /// Where the time axis ends.
    pub(crate) end: f64,
    /// A line below everything.
    pub(crate) note: String,
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let page = Page {
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            title: &self.title,
            description: &self.description,
            defs: HATCH,
        };
        page.open(out)?;
        (0..BANDS.len()).try_for_each(|band| self.band(out, band))?;
        self.axes(out)?;
        self.counts(out)?;
        self.markers(out)?;
        self.legend(out)?;
        writeln!(out, "</svg>")
    }

    fn total(&self) -> usize {
        self.steps.iter().map(|it| it.1.iter().sum()).max().unwrap_or(1)
    }

    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    fn y(&self, count: usize) -> f64 {
        BOTTOM - (BOTTOM - TOP) * count as f64 / self.total() as f64
    }

    fn x(&self, second: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * second / self.end
    }

    /// The upper edge from left to right, and the lower one back.
    fn band(&self, out: &mut String, band: usize) -> std::fmt::Result {
        let edge = |below: usize| -> Vec<(f64, f64)> {
            let height = |it: &[usize]| self.y(it[..below].iter().sum());
            let mut points: Vec<(f64, f64)> = Vec::new();
            for (second, counts) in &self.steps {
                let y = height(counts);
                if let Some(before) = points.last().map(|it| it.1) {
                    if same(before, y) {
                        continue;
                    }
                    points.push((self.x(*second), before));
                }
                points.push((self.x(*second), y));
            }
            let last = points.last().map_or(BOTTOM, |it| it.1);
            points.push((RIGHT, last));
            points
        };
        write!(out, r#"<path fill="{}" d="M"#, BANDS[band])?;
        for (x, y) in edge(band + 1).into_iter().chain(edge(band).into_iter().rev()) {
            write!(out, "{x:.1} {y:.1} ")?;
        }
        writeln!(out, r#"Z"/>"#)
    }

    fn axes(&self, out: &mut String) -> std::fmt::Result {
        let total = self.total();
        for count in (0..=4).map(|quarter| total * quarter / 4) {
            let y = self.y(count);
            writeln!(out, r#"<path class="axis" d="M{LEFT} {y:.1}h-5"/>"#)?;
            let (x, y) = (LEFT - 8.0, y + 4.0);
            writeln!(out, r#"<text x="{x}" y="{y:.1}" text-anchor="end">{count}</text>"#)?;
        }
        for tick in (0_u32..).step_by(SECONDS_A_TICK).take_while(|it| f64::from(*it) <= self.end) {
            let (x, y) = (self.x(tick.into()), BOTTOM + 18.0);
            writeln!(out, r#"<path class="axis" d="M{x:.1} {BOTTOM}v5"/>"#)?;
            writeln!(out, r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{tick}</text>"#)?;
        }
        writeln!(out, r#"<path class="axis" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>"#)?;
        let (x, y) = (RIGHT, BOTTOM + 34.0);
        writeln!(out, r#"<text class="faint" x="{x}" y="{y}" text-anchor="end">seconds</text>"#)?;
        let middle = f64::midpoint(TOP, BOTTOM);
        writeln!(
            out,
            r#"<text class="faint" transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">leases owned</text>"#
        )
    }

    /// Numbers in the middle of every stretch in which nothing moves.
    fn counts(&self, out: &mut String) -> std::fmt::Result {
        let mut steps: Vec<&(f64, [usize; BANDS.len()])> = Vec::new();
        for step in &self.steps {
            if steps.last().is_none_or(|it| it.1 != step.1) {
                steps.push(step);
            }
        }
        for (index, (begin, counts)) in steps.iter().enumerate() {
            let end = steps.get(index + 1).map_or(self.end, |it| it.0);
            if end - begin < STEADY {
                continue;
            }
            for band in 0..BANDS.len() - 1 {
                let below: usize = counts[..band].iter().sum();
                let (low, high) = (self.y(below), self.y(below + counts[band]));
                if low - high >= ROOM {
                    let (x, y) = (self.x(f64::midpoint(*begin, end)), f64::midpoint(low, high));
                    let (y, count) = (y + 4.0, counts[band]);
                    writeln!(out, r#"<text class="count" x="{x:.1}" y="{y:.1}">{count}</text>"#)?;
                }
            }
        }
        Ok(())
    }

    /// Each label in the lowest row in which it meets no other.
    fn markers(&self, out: &mut String) -> std::fmt::Result {
        let mut rows: Vec<f64> = Vec::new();
        for (second, label) in &self.markers {
            let width = LETTER * f64::from(u32::try_from(label.chars().count()).unwrap_or(0));
            let at = self.x(*second);
            let from = (at + 4.0).min(RIGHT - width);
            let row = rows.iter().position(|taken| *taken <= from).unwrap_or(rows.len());
            rows.resize(rows.len().max(row + 1), 0.0);
            rows[row] = from + width + LETTER;
            let y = TOP - 8.0 - ROW * f64::from(u32::try_from(row).unwrap_or(0));
            let (top, label) = (y - 10.0, escaped(label));
            writeln!(out, r#"<path class="marker" d="M{at:.1} {top:.1}V{BOTTOM}"/>"#)?;
            writeln!(out, r#"<text x="{from:.1}" y="{y:.1}">{label}</text>"#)?;
        }
        Ok(())
    }

    fn legend(&self, out: &mut String) -> std::fmt::Result {
        let (mut x, y) = (LEFT, BOTTOM + 40.0);
        for (name, fill) in self.bands.iter().zip(BANDS) {
            let (top, text) = (y - 10.0, x + 17.0);
            writeln!(out, r#"<rect x="{x:.1}" y="{top}" width="12" height="12" fill="{fill}"/>"#)?;
            writeln!(out, r#"<text x="{text:.1}" y="{y}">{name}</text>"#)?;
            x = text + LETTER * f64::from(u32::try_from(name.len()).unwrap_or(0)) + 18.0;
        }
        let (y, note) = (y + 22.0, escaped(&self.note));
        writeln!(out, r#"<text class="faint" x="{LEFT}" y="{y}">{note}</text>"#)
    }
}

/// To a tenth of a pixel, which is all that is written.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.05
}
