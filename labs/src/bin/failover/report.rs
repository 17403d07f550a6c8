//! What was measured, as distributions next to their bounds, and what was wrong.

use std::time::Duration;

/// How many violations of one kind of fault are told.
const TOLD: usize = 10;
const HEAD: &str = "\n| from | to | n | min | p50 | p90 | p99 | max | bound |\n|---|---|---|---|---|---|---|---|---|\n";

/// One instance lost its endpoints: how long after the fault others polled them.
#[derive(Clone, Copy)]
pub(crate) struct Takeover {
    /// The endpoint that was polled first.
    pub(crate) first: Duration,
    pub(crate) median: Duration,
    /// The endpoint that was polled last.
    pub(crate) last: Duration,
    /// When the instance itself began its last poll; zero if it polled no more.
    pub(crate) own: Duration,
    /// How much of the time until the last one the lab's machine stood still.
    pub(crate) stalled: Duration,
}

/// What the endpoints and the results of some fleets showed.
#[derive(Default)]
pub(crate) struct Judgement {
    pub(crate) polls: usize,
    pub(crate) results: usize,
    pub(crate) overlaps: usize,
    pub(crate) stale: usize,
    pub(crate) revocations: usize,
    pub(crate) wrong: Vec<String>,
}

impl Judgement {
    /// Of a fleet in which something did not happen that had to.
    pub(crate) fn broken(why: String) -> Self {
        Self { wrong: vec![why], ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.polls += other.polls;
        self.results += other.results;
        self.overlaps += other.overlaps;
        self.stale += other.stale;
        self.revocations += other.revocations;
        self.wrong.extend(other.wrong);
    }

    fn text(&self) -> String {
        let Self { polls, results, overlaps, stale, revocations, .. } = self;
        format!(
            "{polls} polls, {results} results, {overlaps} overlaps, {stale} stale results, {revocations} revocations"
        )
    }
}

/// What came of one kind of fault.
pub(crate) struct Report {
    text: String,
    rows: String,
    pub(crate) wrong: Vec<String>,
}

impl Report {
    pub(crate) fn new(what: String, judgement: Judgement) -> Self {
        let mut report = Self { text: format!("{what}\n"), rows: HEAD.into(), wrong: Vec::new() };
        report.say(&judgement.text());
        judgement.wrong.into_iter().for_each(|it| report.miss(it));
        report
    }

    /// A report with a table of its own.
    pub(crate) fn with_table(what: String, head: &str) -> Self {
        Self { text: format!("{what}\n"), rows: head.into(), wrong: Vec::new() }
    }

    pub(crate) fn row(&mut self, row: &str) {
        self.rows += &format!("{row}\n");
    }

    fn say(&mut self, line: &str) {
        self.text += &format!("\n- {line}.");
    }

    /// Something is wrong: the lab fails.
    pub(crate) fn miss(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// Three distributions: of the first, the median and the last endpoint of each instance. The last one is judged.
    pub(crate) fn takeovers(&mut self, takeovers: &[Takeover], bound: Option<Duration>) {
        let times = |of: fn(&Takeover) -> Duration| -> Vec<(Duration, Duration)> {
            takeovers.iter().map(|it| (of(it), it.stalled)).collect()
        };
        self.times("the fault | first endpoint", &times(|it| it.first), None);
        self.times("the fault | median endpoint", &times(|it| it.median), None);
        self.times("the fault | last endpoint", &times(|it| it.last), bound);
    }

    /// A distribution of times, `from | to`, each with how long the machine stood still meanwhile. A time may be longer than `bound` by that.
    pub(crate) fn times(
        &mut self,
        what: &str,
        times: &[(Duration, Duration)],
        bound: Option<Duration>,
    ) {
        let mut sorted: Vec<Duration> = times.iter().map(|it| it.0).collect();
        sorted.sort_unstable();
        let [min, p50, p90, p99, max] =
            [0.0, 0.5, 0.9, 0.99, 1.0].map(|it| seconds(quantile(&sorted, it)));
        let told = bound.map_or("none".into(), seconds);
        let n = times.len();
        self.row(&format!("| {what} | {n} | {min} | {p50} | {p90} | {p99} | {max} | {told} |"));
        let Some(bound) = bound else { return };
        let what = what.replace(" | ", " to ");
        let beyond: Vec<_> = times.iter().filter(|it| it.0 > bound).collect();
        let late: Vec<_> = beyond.iter().filter(|it| it.0 > bound + it.1).collect();
        if !beyond.is_empty() {
            let (beyond, late) = (beyond.len(), late.len());
            self.say(&format!("{what}: {beyond} of {n} beyond the bound, {late} of these not excused by a machine that stood still"));
        }
        if let Some((took, stalled)) = late.iter().max() {
            let (took, stalled) = (seconds(*took), seconds(*stalled));
            self.miss(format!("{what}: after {took}, bound {told}, stalled {stalled}"));
        }
    }

    /// Holds the number of takeovers against the number that was asked for.
    pub(crate) fn count(&mut self, done: usize, wanted: usize) {
        if done < wanted {
            self.miss(format!("{done} of {wanted} takeovers were measured"));
        }
    }

    /// How long the lab ran, and how much of that the machine stood still.
    pub(crate) fn took(&mut self, stalled: Duration, took: Duration) {
        let (stalled, took) = (seconds(stalled), took.as_secs());
        self.say(&format!(
            "The lab took {took} s; a thread that only sleeps woke up late by {stalled} in all"
        ));
    }

    pub(crate) fn text(&self) -> String {
        let told = self.wrong.iter().take(TOLD).map(|it| format!("\n- **MISSED:** {it}"));
        let wrong: String = told.collect();
        let gap = if wrong.is_empty() { "" } else { "\n" };
        format!("{}\n{}{wrong}{gap}", self.text, self.rows)
    }
}

/// The shortest time that this share of all does not exceed.
pub(crate) fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
