//! How does what things cost grow with endpoints and with instances? `make growth`.
//!
//! Every cost is taken for one endpoint (or one instance) at several sizes, so that what grows as fast as what
//! there is stays level. *grows like n^* is the slope of all of it on a log-log plot, over all sizes: 1 is
//! linear. The plot is docs/results/growth.svg, and is drawn anew with `BLESS=1`.

mod alone;
mod fleet;
mod plot;
mod stored;

use std::io;

use crate::say;
use testkit::bench::table::{self, Better, Row};

const PICTURE: &str = "docs/results/growth.svg";
/// What grows faster than this grows faster than what there is: explained in docs/results/performance.md.
const LINEAR: f64 = 1.1;

/// What a cost grows with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Per {
    Endpoint,
    Instance,
}

impl Per {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Instance => "instance",
        }
    }

    fn sizes(self, most: u32) -> Vec<u32> {
        let all: &[u32] = match self {
            Self::Endpoint => &[1_000, 10_000, 100_000, 1_000_000],
            Self::Instance => &[1, 10, 50],
        };
        all.iter().copied().filter(|it| *it <= most).collect()
    }
}

/// What one thing costs at several sizes, each time for one of them.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) per: Per,
    points: Vec<(u32, Vec<f64>)>,
}

impl Curve {
    /// Size, and the median of what all of it costs.
    pub(crate) fn totals(&self) -> Vec<(f64, f64)> {
        let total = |(n, samples): &(u32, Vec<f64>)| {
            let n = f64::from(*n);
            (n, n * Row::new("", "", Better::Less, samples).median())
        };
        self.points.iter().map(total).filter(|it| it.1 > 0.0).collect()
    }

    /// The exponent k of n^k that fits best, by least squares on logarithms.
    pub(crate) fn exponent(&self) -> Option<f64> {
        let logs: Vec<(f64, f64)> =
            self.totals().into_iter().map(|it| (it.0.ln(), it.1.ln())).collect();
        let n = f64::from(u32::try_from(logs.len()).ok().filter(|it| *it > 1)?);
        let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|it| it.0), mean(|it| it.1));
        let both: f64 = logs.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
        let own: f64 = logs.iter().map(|it| (it.0 - x).powi(2)).sum();
        Some(both / own)
    }

    fn rows(&self) -> Vec<Row> {
        let Self { name, unit, per, .. } = self;
        let row = |(n, samples): &(u32, Vec<f64>)| {
            let name = format!("{name}, per {}: {}", per.word(), amount(*n));
            Row::new(&name, unit, Better::Less, samples)
        };
        let mut rows: Vec<Row> = self.points.iter().map(row).collect();
        let grows = |it| {
            let name = format!("{name}: grows like n^");
            Row::new(&name, "", Better::Less, &[it]).goal(LINEAR)
        };
        rows.extend(self.exponent().map(grows));
        rows
    }
}

/// 1000000 as 1 M.
pub(crate) fn amount(n: u32) -> String {
    match n {
        1_000_000.. => format!("{} M", n / 1_000_000),
        1_000.. => format!("{} k", n / 1_000),
        _ => n.to_string(),
    }
}

/// Everything that was found, in the order in which it was first.
#[derive(Default)]
pub(crate) struct Curves(Vec<Curve>);

impl Curves {
    /// One of `n` costs so much.
    pub(crate) fn note(&mut self, per: Per, name: &str, unit: &'static str, n: u32, each: f64) {
        let known = self.0.iter().position(|it| it.name == name);
        let at = known.unwrap_or_else(|| {
            self.0.push(Curve { name: name.into(), unit, per, points: vec![] });
            self.0.len() - 1
        });
        let points = &mut self.0[at].points;
        match points.iter_mut().find(|it| it.0 == n) {
            Some(point) => point.1.push(each),
            None => points.push((n, vec![each])),
        }
    }
}

/// The rows, and what has to be known to read them.
pub(crate) fn measure(most: u32) -> io::Result<(String, Vec<Row>)> {
    let mut curves = Curves::default();
    for n in Per::Endpoint.sizes(most) {
        say(&format!("growth: {} endpoints …", amount(n)));
        alone::endpoints(n, &mut curves)?;
        stored::endpoints(n, &mut curves)?;
    }
    for n in Per::Instance.sizes(most) {
        say(&format!("growth: {n} instances …"));
        alone::instances(n, &mut curves)?;
        fleet::instances(n, &mut curves)?;
    }
    if table::is_blessed() {
        std::fs::write(PICTURE, plot::svg(&curves.0))?;
    }
    let rows = curves.0.iter().flat_map(Curve::rows).collect();
    Ok((format!("up to {} endpoints, up to 50 instances", amount(most)), rows))
}
