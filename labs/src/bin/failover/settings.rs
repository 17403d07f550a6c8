//! The settings of a run, from variables that `make failover NAME=value` passes on.
//!
//! - `TIMES=200`: takeovers of each kind; `innocent` plays its rounds in the same proportion.
//! - `FLEETS=8`: fleets that run side by side.
//! - `TTL=3s`: lease TTL and heartbeat TTL, renewed at a third of it. Without it the instances get no option about time.
//! - `BOUND=4s`: the limit of a takeover instead of the aim of its kind; `BOUND=none` judges no time.
//! - `BACK=5s`: the limit until an instance that was cut off or stopped has its share again.
//! - `PHASE=2s`: a fault comes at a random moment within this time after the fleet has settled.
//! - `HANG=60s`: how long Redis hangs in `innocent`.

use std::time::Duration;

use crate::report::seconds;

/// The TTL of leases and heartbeats when no option sets it.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// What a takeover, or the way back to balance, may take beyond the TTL before the lab gives the fleet up.
const BEYOND_TTL: Duration = Duration::from_secs(60);

/// Which limit is held against the times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The aim of each kind.
    Aim,
    At(Duration),
    /// Times are reported and not judged.
    Unbounded,
}

pub(crate) struct Settings {
    pub(crate) times: usize,
    pub(crate) fleets: usize,
    ttl: Option<Duration>,
    bound: Bound,
    back: Duration,
    /// A fault comes at a random moment within this time after the fleet has settled.
    pub(crate) phase_ms: u64,
    /// How long Redis hangs.
    pub(crate) hang: Duration,
}

impl Settings {
    /// `Err` names the variable that cannot be read.
    pub(crate) fn from_env() -> Result<Self, String> {
        let bound = match text("BOUND").as_deref() {
            None => Bound::Aim,
            Some("none") => Bound::Unbounded,
            Some(_) => Bound::At(time("BOUND")?.unwrap_or_default()),
        };
        Ok(Self {
            times: number("TIMES", 200)?,
            fleets: number("FLEETS", 8)?,
            ttl: time("TTL")?,
            bound,
            back: time("BACK")?.unwrap_or(Duration::from_secs(5)),
            phase_ms: time("PHASE")?.unwrap_or(Duration::from_secs(2)).as_millis() as u64,
            hang: time("HANG")?.unwrap_or(Duration::from_secs(60)),
        })
    }

    /// The options about time of `leasehold run`: none for the defaults.
    pub(crate) fn run_options(&self) -> Vec<String> {
        let Some(ttl) = self.ttl else { return Vec::new() };
        let (ttl, third) = (ttl.as_millis(), ttl.as_millis() / 3);
        vec![
            format!("--lease-ttl={ttl}ms"),
            format!("--renew-interval={third}ms"),
            format!("--heartbeat-ttl={ttl}ms"),
            format!("--heartbeat-interval={third}ms"),
        ]
    }

    /// The options about time of `leasehold lead`: none for the defaults.
    pub(crate) fn lead_options(&self) -> Vec<String> {
        self.ttl.iter().map(|ttl| format!("--lease-ttl={}ms", ttl.as_millis())).collect()
    }

    /// For the heading of the numbers.
    pub(crate) fn told(&self) -> String {
        match self.ttl {
            None => "default timings".into(),
            Some(ttl) => format!("lease and heartbeat TTL {} instead of the default", seconds(ttl)),
        }
    }

    /// The limit of a takeover whose aim is `aim`.
    pub(crate) fn bound(&self, aim: Duration) -> Option<Duration> {
        match self.bound {
            Bound::Aim => Some(aim),
            Bound::At(bound) => Some(bound),
            Bound::Unbounded => None,
        }
    }

    /// The limit until an instance has its share again.
    pub(crate) fn back(&self) -> Option<Duration> {
        (self.bound != Bound::Unbounded).then_some(self.back)
    }

    /// After this time without a takeover or without balance something is broken.
    pub(crate) fn patience(&self) -> Duration {
        self.ttl.unwrap_or(DEFAULT_TTL) + BEYOND_TTL
    }

    /// The share of `rounds` for the number of takeovers that was asked for, at least one.
    pub(crate) fn share_of(&self, rounds: usize) -> usize {
        (rounds * self.times / 200).clamp(1, rounds)
    }
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

fn number(name: &str, default: usize) -> Result<usize, String> {
    let Some(text) = text(name) else { return Ok(default) };
    let number = text.parse().ok().filter(|it| *it > 0);
    number.ok_or_else(|| format!("{name}={text} is not a number above 0"))
}

fn time(name: &str) -> Result<Option<Duration>, String> {
    let Some(text) = text(name) else { return Ok(None) };
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => 0,
    };
    let time = digits.parse().ok().filter(|_| unit > 0).map(|it: u64| it * unit);
    time.map(|it| Some(Duration::from_millis(it)))
        .ok_or_else(|| format!("{name}={text} is not a time, for example 500ms, 3s or 1m"))
}
