//! What does an instance tell about itself beside its heartbeat? Plain values, and how they are spelled in the store.

use std::time::Duration;

use crate::model::EndpointId;

/// The rules that this version keeps, for later versions to know what an instance understands.
pub const PROTOCOL: u32 = 2;

/// No version is longer. Another client may have written anything.
const VERSION_CHARS_MAX: usize = 40;

/// What an instance tells with each heartbeat. It is for operators, but for the signs of life (R16).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceInfo {
    /// The version that runs.
    pub version: String,
    /// [`PROTOCOL`] of that version.
    pub protocol: u32,
    /// When the process started, by the server's clock.
    pub started_at_ms: Option<u64>,
    /// How many signs of life it has given. `None`: it does not keep R15, so it cannot be revoked.
    pub beats: Option<u64>,
    /// What its polling achieves; `None` for an instance that does not poll.
    pub polling: Option<PollingInfo>,
}

/// What the polling of an instance achieved in the last minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollingInfo {
    /// The most polls at a time.
    pub workers: usize,
    /// Polls that ran at a time, on average.
    pub busy: usize,
    /// Poller threads that are alive.
    pub threads: usize,
    /// Workers that poll slow endpoints.
    pub slow: usize,
    /// Polls that ended.
    pub polls_per_min: u64,
    /// Polls that came a round too late.
    pub skipped_per_min: u64,
    /// Polls put off because this process lacked something.
    pub deferred_per_min: u64,
    /// How much later than it was due the latest poll began, or still waits. Slow endpoints do not count.
    pub lag: Duration,
    /// Endpoints that answer quickly and are polled less often than they should be; `None` if there are none.
    pub behind: Option<Behind>,
    /// Slow endpoints that are polled less often than they should be: they share a part of the workers.
    pub slow_behind: usize,
}

/// Endpoints that are polled less often than they should be, for several rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// How many.
    pub endpoints: usize,
    /// From one poll to the next, in the middle of them all.
    pub period: Duration,
    /// How long that should be.
    pub interval: Duration,
    /// The endpoint that is furthest behind.
    pub worst: Option<EndpointId>,
}

impl InstanceInfo {
    /// Every field of the hash, in the order in which it is written and read.
    pub const FIELDS: [&'static str; 17] = [
        "version",
        "protocol",
        "started_at_ms",
        "beats",
        "workers",
        "busy",
        "threads",
        "slow",
        "polls_per_min",
        "skipped_per_min",
        "deferred_per_min",
        "lag_ms",
        "behind",
        "period_ms",
        "interval_ms",
        "worst",
        "slow_behind",
    ];

    /// The fields to write, with their values. An instance writes the same fields each time, so that none is left from before.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let text = |it: Option<u64>| it.map_or(String::new(), |it| it.to_string());
        let (started, beats) = (text(self.started_at_ms), text(self.beats));
        let mut values = vec![self.version.clone(), self.protocol.to_string(), started, beats];
        values.extend(self.polling.iter().flat_map(PollingInfo::values));
        Self::FIELDS.into_iter().zip(values).collect()
    }

    /// From the values of [`Self::FIELDS`], as far as they make sense; `None` without a version.
    pub fn parse(values: &[Option<String>]) -> Option<Self> {
        let text = |name: &str| {
            let at = Self::FIELDS.iter().position(|it| *it == name)?;
            values.get(at)?.as_deref().filter(|it| !it.is_empty())
        };
        let number = |name: &str| text(name).and_then(|it| it.parse::<u64>().ok());
        let count = |name: &str| number(name).and_then(|it| usize::try_from(it).ok());
        let millis = |name: &str| Duration::from_millis(number(name).unwrap_or(0));
        let version = text("version")?.chars().take(VERSION_CHARS_MAX).collect();
        let behind = count("behind").filter(|it| *it > 0).map(|endpoints| Behind {
            endpoints,
            period: millis("period_ms"),
            interval: millis("interval_ms"),
            worst: text("worst").and_then(|it| EndpointId::parse(it).ok()),
        });
        let polling = count("workers").map(|workers| PollingInfo {
            workers,
            busy: count("busy").unwrap_or(0),
            threads: count("threads").unwrap_or(0),
            slow: count("slow").unwrap_or(0),
            polls_per_min: number("polls_per_min").unwrap_or(0),
            skipped_per_min: number("skipped_per_min").unwrap_or(0),
            deferred_per_min: number("deferred_per_min").unwrap_or(0),
            lag: millis("lag_ms"),
            behind,
            slow_behind: count("slow_behind").unwrap_or(0),
        });
        let protocol = number("protocol").and_then(|it| u32::try_from(it).ok()).unwrap_or(0);
        let (started_at_ms, beats) = (number("started_at_ms"), number("beats"));
        Some(Self { version, protocol, started_at_ms, beats, polling })
    }
}

impl PollingInfo {
    /// In the order of [`InstanceInfo::FIELDS`].
    fn values(&self) -> [String; 13] {
        let behind = self.behind.as_ref();
        let millis = |it: Option<Duration>| it.unwrap_or_default().as_millis().to_string();
        [
            self.workers.to_string(),
            self.busy.to_string(),
            self.threads.to_string(),
            self.slow.to_string(),
            self.polls_per_min.to_string(),
            self.skipped_per_min.to_string(),
            self.deferred_per_min.to_string(),
            self.lag.as_millis().to_string(),
            behind.map_or(0, |it| it.endpoints).to_string(),
            millis(behind.map(|it| it.period)),
            millis(behind.map(|it| it.interval)),
            behind.and_then(|it| it.worst.as_ref()).map_or(String::new(), ToString::to_string),
            self.slow_behind.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(info: &InstanceInfo) -> Option<InstanceInfo> {
        let fields = info.fields();
        let value = |name: &&str| fields.iter().find(|it| it.0 == *name).map(|it| it.1.clone());
        InstanceInfo::parse(&InstanceInfo::FIELDS.iter().map(value).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_written_is_read_back() {
        let behind = Behind {
            endpoints: 1_900,
            period: Duration::from_secs(15),
            interval: Duration::from_secs(5),
            worst: EndpointId::parse("e17").ok(),
        };
        let polling = PollingInfo {
            workers: 48,
            busy: 47,
            threads: 46,
            slow: 5,
            polls_per_min: 6,
            skipped_per_min: 7,
            deferred_per_min: 8,
            lag: Duration::from_millis(9),
            behind: Some(behind),
            slow_behind: 10,
        };
        let quiet = PollingInfo { behind: None, ..polling.clone() };
        for polling in [None, Some(polling), Some(quiet)] {
            let started_at_ms = Some(1_700_000_000_000);
            let (version, beats) = ("1.2.3".into(), Some(8));
            let info = InstanceInfo { version, protocol: 1, started_at_ms, beats, polling };
            assert_eq!(read_back(&info).as_ref(), Some(&info));
        }
    }

    #[test]
    fn nonsense_is_nothing_and_a_later_version_may_say_less() {
        let parse = |values: &[&str]| {
            InstanceInfo::parse(&values.iter().map(|it| Some((*it).into())).collect::<Vec<_>>())
        };
        assert_eq!((parse(&[]), parse(&["", "1", "2", "3"])), (None, None));
        let odd = parse(&["9".repeat(99).as_str(), "-1", "x", "y", "4", "many"]).unwrap();
        assert_eq!((odd.version.len(), odd.protocol, odd.started_at_ms), (40, 0, None));
        assert_eq!(odd.beats, None);
        assert_eq!(odd.polling, Some(PollingInfo { workers: 4, ..PollingInfo::default() }));
        assert_eq!(parse(&["1.0", "2", "3"]).unwrap().polling, None);
    }
}
