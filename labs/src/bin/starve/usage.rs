//! What a process needs, as the kernel counts it.

use std::fs;
use std::time::Duration;

/// Memory, threads and open files of a process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) resident_kb: u64,
    pub(crate) threads: u64,
    pub(crate) descriptors: u64,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|it| it.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or_default()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
        Self { resident_kb: number("VmRSS:"), threads: number("Threads:"), descriptors }
    }

    /// The larger of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            resident_kb: self.resident_kb.max(other.resident_kb),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }

    pub(crate) fn text(&self) -> String {
        let Self { resident_kb, threads, descriptors } = self;
        format!("{resident_kb} KB resident, {threads} threads, {descriptors} open files")
    }
}

/// The CPU that a process has spent, in steps of 10 ms. Threads that have ended are included.
pub(crate) fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").map_or("", |it| it.1).split(' ').skip(11).take(2);
    let ticks: u64 = fields.filter_map(|it| it.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
