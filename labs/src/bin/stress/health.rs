//! What instances that live through all of it need: memory, threads, descriptors.

use std::fs;
use std::time::{Duration, Instant};

use testkit::process::Instance;

const EVERY: Duration = Duration::from_secs(2);
/// What may come on top, of memory in KiB: the allocator's doing, and a larger share now and then.
const MORE_KIB: u64 = 4_096;

#[derive(Clone, Copy)]
struct Sample {
    kib: u64,
    threads: u64,
    descriptors: u64,
}

type Value = fn(&Sample) -> u64;

/// Of a few processes, added up.
pub(crate) struct Health {
    pids: Vec<u32>,
    samples: Vec<Sample>,
    next: Instant,
}

impl Health {
    pub(crate) fn new(instances: &[Instance]) -> Self {
        let pids = instances.iter().map(Instance::pid).collect();
        Self { pids, samples: Vec::new(), next: Instant::now() }
    }

    pub(crate) fn look(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        let mut sum = Sample { kib: 0, threads: 0, descriptors: 0 };
        for pid in &self.pids {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let number = |key: &str| {
                let line = status.lines().find_map(|it| it.strip_prefix(key));
                line.and_then(|it| it.split_whitespace().next()?.parse().ok()).unwrap_or(0)
            };
            sum.kib += number("VmRSS:");
            sum.threads += number("Threads:");
            sum.descriptors +=
                fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count) as u64;
        }
        self.samples.push(sum);
    }

    pub(crate) fn now(&self) -> String {
        let n = self.pids.len() as u64;
        let Some(it) = self.samples.last() else { return String::new() };
        let (kib, threads, descriptors) =
            (it.kib / n, it.threads as f64 / n as f64, it.descriptors as f64 / n as f64);
        format!("{kib} KiB, {threads:.1} threads, {descriptors:.1} descriptors each")
    }

    /// The second quarter of the time against the last: both are in the middle of it.
    pub(crate) fn judge(&self) -> Vec<String> {
        let n = self.samples.len();
        let median = |part: &[Sample], what: Value| {
            let mut values: Vec<u64> = part.iter().map(what).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        };
        let (early, late) = (&self.samples[n / 4..n / 2], &self.samples[n - n / 4..]);
        let each = self.pids.len() as u64;
        let kinds: [(&str, Value, u64); 3] = [
            ("KiB", |it| it.kib, MORE_KIB * each),
            ("threads", |it| it.threads, each),
            ("descriptors", |it| it.descriptors, 2 * each),
        ];
        let mut wrong = Vec::new();
        for (what, value, more) in kinds {
            let (early, late) = (median(early, value), median(late, value));
            println!("measured: {what} of {each} instances: {early} early, {late} late");
            if late > early + more {
                wrong.push(format!("{what} grew from {early} to {late}"));
            }
        }
        wrong
    }
}
