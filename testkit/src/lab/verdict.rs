//! The judge: what the endpoint saw, and every result that was published.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::measure::{Stalls, gaps};
use crate::process::ms;
use crate::results::Results;
use crate::target::{Answer, Request, Target};

/// Half of the endpoints take their time: a fault meets polls that run.
const SLOW: Duration = ms(900);
const QUICK: Duration = ms(50);

/// What came of one scene.
pub struct Verdict {
    pub polls: usize,
    pub results: usize,
    pub overlaps: usize,
    pub stale: usize,
    /// The longest time that any endpoint went without a poll, since the fault began; from the end
    /// of one to the start of the next.
    pub gap: Duration,
    pub bound: Duration,
    /// How much of the longest gap the machine itself stood still.
    pub stalled: Duration,
    /// From the end of the fault until everything had been polled.
    pub again: Duration,
    pub wrong: Vec<String>,
    /// Whether one poller was promised at all.
    pub promised: bool,
}

/// What a scene is judged by.
pub struct Evidence<'a> {
    pub target: &'a Target,
    /// What each server announced and stored.
    pub results: &'a [Results],
    pub stalls: &'a Stalls,
    pub began: Instant,
    pub healed: Instant,
    /// Polls until everybody was told to stop.
    pub requests: &'a [Request],
    /// No endpoint may have been without a poll for longer, except for what the machine itself stood still.
    pub bound: Duration,
    /// The documentation allows up to this many overlapping polls; `None`: it promises nothing.
    pub overlaps_max: usize,
}

impl Evidence<'_> {
    /// `wrong` is what was found to be wrong before.
    pub fn verdict(&self, mut wrong: Vec<String>) -> Verdict {
        let again = last_of_firsts(self.requests, self.healed);
        let mut overlaps = self.target.overlaps();
        overlaps.extend(self.target.fence_regressions());
        overlaps.extend(shared_fences(self.requests));
        let stale = |it: &Results| it.stale(self.requests);
        let stale: Vec<String> = self.results.iter().flat_map(stale).collect();
        if overlaps.len() > self.overlaps_max {
            wrong.extend(overlaps.iter().cloned());
        }
        if self.overlaps_max < usize::MAX {
            wrong.extend(stale.iter().cloned());
        }
        let (mut longest, mut stood_still) = (Duration::ZERO, Duration::ZERO);
        for (path, span) in gaps(self.requests, self.began) {
            let ran = if is_slow(&path) { SLOW } else { QUICK };
            let gap = (span.end - span.start).saturating_sub(ran);
            let stalled = self.stalls.within(span);
            if gap > longest {
                (longest, stood_still) = (gap, stalled);
            }
            if gap > self.bound + stalled {
                wrong.push(format!("{path} was not polled for {gap:?}, stalled {stalled:?}"));
            }
        }
        let polls = self.target.requests().len();
        let results = self.results.iter().map(Results::len).max().unwrap_or(0);
        if results == 0 {
            wrong.push("no result was heard of".into());
        }
        let (overlaps, stale) = (overlaps.len(), stale.len());
        let (gap, stalled, bound) = (longest, stood_still, self.bound);
        let promised = self.overlaps_max < usize::MAX;
        Verdict { polls, results, overlaps, stale, gap, bound, stalled, again, wrong, promised }
    }
}

/// Lets every other endpoint take its time.
pub fn slow_down(target: &Target, endpoints: &[String]) {
    for endpoint in endpoints {
        let delay = if is_slow(endpoint) { SLOW } else { QUICK };
        target.answer(endpoint, Answer { delay, ..Answer::default() });
    }
}

/// Odd numbers.
fn is_slow(path: &str) -> bool {
    path.ends_with(['1', '3', '5'])
}

/// When the last endpoint had its first poll since `since`.
fn last_of_firsts(requests: &[Request], since: Instant) -> Duration {
    let mut firsts = BTreeMap::<&str, Instant>::new();
    for request in requests.iter().filter(|it| it.start >= since) {
        firsts.entry(&request.path).or_insert(request.start);
    }
    firsts.values().max().map_or(Duration::ZERO, |it| *it - since)
}

/// One grant, two who poll under it.
pub fn shared_fences(requests: &[Request]) -> Vec<String> {
    let mut owners = BTreeMap::<(&str, u64), &str>::new();
    let mut found = Vec::new();
    for it in requests {
        let owner = owners.entry((&it.path, it.fence)).or_insert(&it.instance);
        if *owner != it.instance {
            found.push(format!("{} under {} by {owner} and {}", it.path, it.fence, it.instance));
        }
    }
    found
}
