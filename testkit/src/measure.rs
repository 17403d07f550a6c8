//! How long things took, as a distribution, and how much of that was the machine's own doing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;

use crate::process::ms;
use crate::redis::RedisServer;
use crate::target::Request;

/// What the control sleeps between two questions.
const TICK: Duration = ms(5);
/// So much later than planned is what waking up costs anyway.
const USUAL: Duration = ms(2);

/// The control: a thread that does nothing but sleep and ask Redis for a PONG, over and over. When it
/// is late, so is everybody, and no bound of Leasehold's can be held against Leasehold.
pub struct Stalls {
    /// When each round ended, and how late.
    late: Arc<Mutex<Vec<(Instant, Duration)>>>,
    /// Dropping it ends the control.
    _running: Sender<()>,
}

impl Stalls {
    pub fn watch(redis: &RedisServer) -> Self {
        let mut connection = redis.connect().unwrap();
        Self::between(move || redis::cmd("PING").exec(&mut connection).is_ok())
    }

    /// Without asking anybody: for scenes in which Redis itself stands still.
    pub fn of_the_machine() -> Self {
        Self::between(|| true)
    }

    /// Until `ask` finds nobody any more.
    fn between(mut ask: impl FnMut() -> bool + Send + 'static) -> Self {
        let late = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&late);
        let (running, over) = bounded(0);
        std::thread::spawn(move || {
            let mut began = Instant::now();
            while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if !ask() {
                    return; // the scene is over
                }
                let beyond = began.elapsed().saturating_sub(TICK);
                if beyond > USUAL {
                    kept.lock().push((Instant::now(), beyond));
                }
                began = Instant::now();
            }
        });
        Self { late, _running: running }
    }

    /// How long, within `span`, one that wanted to run could not, added up.
    pub fn within(&self, span: Range<Instant>) -> Duration {
        let shared = |(end, late): &(Instant, Duration)| {
            let begin = *end - *late;
            span.end.min(*end).saturating_duration_since(span.start.max(begin))
        };
        self.late.lock().iter().map(shared).sum()
    }
}

/// Times of one kind, and for each how much of it the machine stood still.
pub struct Measured {
    pub what: String,
    times: Vec<(Duration, Duration, String)>,
}

impl Measured {
    pub fn new(what: &str) -> Self {
        Self { what: what.into(), times: Vec::new() }
    }

    /// `told` says which one it was, should it be too long.
    pub fn add(&mut self, took: Duration, stalled: Duration, told: impl Into<String>) {
        self.times.push((took, stalled, told.into()));
    }

    pub fn len(&self) -> usize {
        self.times.len()
    }

    fn quantile(&self, share: f64) -> Duration {
        let mut sorted: Vec<Duration> = self.times.iter().map(|it| it.0).collect();
        sorted.sort();
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    }

    /// Milliseconds that this share of all did not exceed.
    pub fn at(&self, share: f64) -> u128 {
        self.quantile(share).as_millis()
    }

    fn summary(&self) -> String {
        let at = |share| self.quantile(share).as_millis();
        let stalled = self.times.iter().map(|it| it.1).max().unwrap_or_default();
        format!(
            "{}: n {}, min {} median {} p95 {} max {} ms; the machine stood still for up to {} ms",
            self.what,
            self.times.len(),
            at(0.0),
            at(0.5),
            at(0.95),
            at(1.0),
            stalled.as_millis()
        )
    }

    /// Those beyond `bound`, what the machine stood still excepted.
    fn late(&self, bound: Duration) -> Vec<String> {
        let late = self.times.iter().filter(|(took, stalled, _)| *took > bound + *stalled);
        late.map(|(took, stalled, told)| format!("{told}: {took:?}, stalled {stalled:?}")).collect()
    }

    pub fn say(&self) {
        println!("measured: {}", self.summary());
    }

    /// Prints the distribution next to `bound`; those beyond it that the machine does not excuse.
    pub fn against(&self, bound: Duration) -> Vec<String> {
        let (beyond, late) =
            (self.times.iter().filter(|it| it.0 > bound).count(), self.late(bound));
        let (bound, missed) = (bound.as_millis(), late.len());
        let judged = format!("bound {bound} ms: {beyond} beyond it, {missed} of them not excused");
        println!("measured: {}; {judged}", self.summary());
        late
    }

    /// Holds every one against `bound`, except for what the machine stood still meanwhile, and the
    /// median without exception: a machine that is always a little late excuses no habit.
    #[track_caller]
    pub fn assert_within(&self, bound: Duration) {
        let late = self.against(bound);
        assert!(late.is_empty(), "beyond {bound:?}: {late:#?}\n{}", self.summary());
        assert!(self.quantile(0.5) <= bound, "the median is beyond {bound:?}: {}", self.summary());
    }

    /// None was shorter than `bound`, the machine's doing excepted.
    #[track_caller]
    pub fn assert_at_least(&self, bound: Duration) {
        let early = self.times.iter().find(|it| it.0 + it.1 < bound);
        assert!(early.is_none(), "before {bound:?}: {early:?}\n{}", self.summary());
    }
}

/// An endpoint changed hands: the last poll of the one, the first of the other.
#[derive(Clone, Debug)]
pub struct Move {
    pub endpoint: String,
    pub last: Request,
    pub first: Request,
}

impl Move {
    /// From the beginning of the one poll to the beginning of the other.
    pub fn pause(&self) -> Duration {
        self.first.start - self.last.start
    }

    pub fn span(&self) -> Range<Instant> {
        self.last.start..self.first.start
    }
}

/// Every change of hands in `requests`, which are in the order in which they came.
pub fn moves(requests: &[Request]) -> Vec<Move> {
    let mut last: BTreeMap<&str, &Request> = BTreeMap::new();
    let mut found = Vec::new();
    for request in requests {
        if let Some(before) = last.insert(&request.path, request)
            && before.instance != request.instance
        {
            let endpoint = request.path.trim_start_matches('/').to_owned();
            found.push(Move { endpoint, last: before.clone(), first: request.clone() });
        }
    }
    found
}

/// From the poll before it to each poll since `since`, by path. The caller has waited for a last one.
pub fn gaps(requests: &[Request], since: Instant) -> Vec<(String, Range<Instant>)> {
    let mut last: BTreeMap<&str, Instant> = BTreeMap::new();
    let mut found = Vec::new();
    for request in requests {
        if let Some(before) = last.insert(&request.path, request.start)
            && request.start >= since
        {
            found.push((request.path.clone(), before..request.start));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_as_far_as_it_lies_in_the_span() {
        let (now, late) = (Instant::now(), Arc::<Mutex<Vec<_>>>::default());
        let stalls = Stalls { late: Arc::clone(&late), _running: bounded(0).0 };
        let at = |n| now + ms(n);
        late.lock().extend([(at(100), ms(50)), (at(300), ms(20))]);
        assert_eq!(stalls.within(at(0)..at(50)), ms(0));
        assert_eq!(stalls.within(at(60)..at(90)), ms(30));
        assert_eq!(stalls.within(at(70)..at(400)), ms(50));
    }

    #[test]
    fn a_late_one_is_excused_as_far_as_the_machine_stood_still() {
        let mut times = Measured::new("a test");
        times.add(ms(90), ms(0), "in time");
        times.add(ms(120), ms(30), "excused");
        times.add(ms(120), ms(10), "late");
        assert_eq!(times.late(ms(100)), ["late: 120ms, stalled 10ms"]);
    }
}
