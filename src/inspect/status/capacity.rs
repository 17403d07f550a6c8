//! Does each instance keep up with what it owns? What it tells about itself, against what was asked for.
//!
//! An instance knows the period of each of its endpoints exactly; results tell of the last poll only. So an instance that
//! polls once in one and a half intervals is found here, and not by the age of results.

use std::time::Duration;

use crate::inspect::status::{EndpointStatus, InstanceStatus, Status, counted};
use crate::model::{Behind, PollingInfo};

/// All workers are busy when this part of them is, in percent: a worker that has ended a poll waits a moment for the next.
const BUSY_FROM: usize = 85;
/// No more instances are named in the verdict.
const NAMED_MAX: usize = 3;
/// A poll that took longer is slow for its owner.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Why an instance polls its endpoints less often than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortfall {
    /// All of its workers are busy.
    Workers,
    /// It lacks descriptors, threads, memory or ports, so polls are put off.
    Resources,
    /// Its workers are idle, and polls begin late all the same.
    Starved,
}

impl Shortfall {
    fn of(polling: &PollingInfo) -> Option<Self> {
        polling.behind.as_ref()?;
        Some(match polling {
            it if it.busy * 100 >= it.workers * BUSY_FROM => Self::Workers,
            it if it.deferred_per_min > 0 => Self::Resources,
            _ => Self::Starved,
        })
    }
}

impl InstanceStatus {
    /// What it tells about its polling, if it is alive and tells.
    pub fn polling(&self) -> Option<&PollingInfo> {
        self.heartbeat.as_ref()?;
        self.info.as_ref()?.polling.as_ref()
    }

    /// How long it has been running, if it tells.
    pub fn up(&self, server_ms: u64) -> Option<Duration> {
        let started_at_ms = self.info.as_ref()?.started_at_ms?;
        Some(Duration::from_millis(server_ms.saturating_sub(started_at_ms)))
    }

    /// Why it does not keep up, if it does not.
    pub fn shortfall(&self) -> Option<Shortfall> {
        self.polling().and_then(Shortfall::of)
    }

    /// How many of its slow endpoints are polled less often than they should be.
    pub fn slow_behind(&self) -> usize {
        self.polling().map_or(0, |it| it.slow_behind)
    }

    /// What is behind, why, and the way out; without a full stop. `None` when it keeps up.
    pub fn shortfall_sentence(&self) -> Option<String> {
        let polling = self.polling()?;
        let (behind, why) = (polling.behind.as_ref()?, self.shortfall()?);
        let which = match (&behind.worst, behind.endpoints) {
            (Some(it), 1) => format!("1 endpoint of {} ({it})", self.id),
            (_, n) => format!("{} of {}", counted(n, "endpoint"), self.id),
        };
        Some(format!("{which} {}: {}", behind.pace(), polling.why_and_way_out(why)))
    }

    /// The same of endpoints that are slow themselves.
    pub fn slow_sentence(&self) -> Option<String> {
        let polling = self.polling().filter(|it| it.slow_behind > 0)?;
        let slow = counted(polling.slow_behind, "slow endpoint");
        let are = if polling.slow_behind == 1 { "is" } else { "are" };
        Some(format!(
            "{slow} of {} {are} polled more seldom, so that the others do not wait for {}: slow endpoints \
             may have half of LEASEHOLD_WORKERS ({})",
            self.id,
            if polling.slow_behind == 1 { "it" } else { "them" },
            polling.workers
        ))
    }
}

impl Behind {
    fn pace(&self) -> String {
        let are = if self.endpoints == 1 { "is" } else { "are" };
        format!("{are} polled every {} instead of {}", plain(self.period), plain(self.interval))
    }
}

impl PollingInfo {
    fn why_and_way_out(&self, why: Shortfall) -> String {
        match why {
            Shortfall::Workers if self.workers == 1 => {
                "its only worker is busy; raise LEASEHOLD_WORKERS there, or add an instance".into()
            }
            Shortfall::Workers => format!(
                "all {} workers are busy; raise LEASEHOLD_WORKERS there, or add an instance",
                self.workers
            ),
            Shortfall::Resources => format!(
                "{} are put off each minute, because the process lacks descriptors, threads, memory or \
                 ports; poll.deferred in its log says which, and leasehold doctor the way out",
                counted(usize::try_from(self.deferred_per_min).unwrap_or(usize::MAX), "poll")
            ),
            Shortfall::Starved => format!(
                "only {} of {} workers are busy, so the process gets too little CPU, or Redis answers it \
                 slowly; more workers do not help",
                self.busy, self.workers
            ),
        }
    }
}

impl Status {
    /// A sentence about each instance that does not keep up, the worst first; empty where there are none.
    pub(crate) fn about_capacity(&self) -> String {
        let mut short: Vec<(usize, String)> = Vec::new();
        for it in &self.instances {
            let behind =
                it.polling().and_then(|it| it.behind.as_ref()).map_or(0, |it| it.endpoints);
            short.extend(it.shortfall_sentence().map(|sentence| (behind, sentence)));
        }
        short.sort_by_key(|it| std::cmp::Reverse(it.0));
        let slow: Vec<String> =
            self.instances.iter().filter_map(InstanceStatus::slow_sentence).collect();
        let short: Vec<String> = short.into_iter().map(|it| it.1).collect();
        sentences(&short, "do not keep up") + &sentences(&slow, "poll slow endpoints more seldom")
    }

    /// What its owner tells that concerns this endpoint, with a name of the likely reason; `None` where the owner keeps up.
    pub fn owners_reason(&self, it: &EndpointStatus) -> Option<String> {
        let owner = &it.lease.as_ref()?.value;
        let owner = self.instances.iter().find(|it| it.id == *owner)?;
        let took = it.result.as_ref().and_then(|it| it.duration_ms).map(Duration::from_millis);
        if took.is_some_and(|it| it > SLOW_AFTER) {
            return owner.slow_sentence();
        }
        let sentence = owner.shortfall_sentence()?;
        Some(match owner.shortfall()? {
            Shortfall::Workers => format!("{} has too few workers: {sentence}", owner.id),
            Shortfall::Resources => format!("{} has too few resources: {sentence}", owner.id),
            Shortfall::Starved => format!("{} is starved: {sentence}", owner.id),
        })
    }
}

fn sentences(all: &[String], what: &str) -> String {
    let mut out: String = all.iter().take(NAMED_MAX).map(|it| format!(" {it}.")).collect();
    if all.len() > NAMED_MAX {
        let more = counted(all.len() - NAMED_MAX, "more instance");
        out.push_str(&format!(" {more} {what}."));
    }
    out
}

/// `15 s`, `1.5 s`, `200 ms`: comparable with what a setting says.
fn plain(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => {
            let tenths = (ms + 50) / 100;
            let tenth = tenths % 10;
            let rest = if tenth > 0 { format!(".{tenth}") } else { String::new() };
            format!("{}{rest} s", tenths / 10)
        }
        _ => format!("{} min", (ms + 30_000) / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::status::Alarm;
    use crate::model::{EndpointId, InstanceId, InstanceInfo, Weight};
    use crate::store::Lasting;
    use crate::store::admin::overview::Overview;

    fn instance(polling: PollingInfo) -> InstanceStatus {
        let polling = Some(polling);
        let (version, protocol, started_at_ms) = ("1.0".into(), 1, Some(5));
        InstanceStatus {
            id: InstanceId::new("vm1"),
            heartbeat: Some(Lasting { value: Weight(1), left: Duration::from_secs(9) }),
            owned: 9,
            fair_share: 9.0,
            drained: false,
            revoked: false,
            info: Some(InstanceInfo { version, protocol, started_at_ms, beats: None, polling }),
        }
    }

    fn behind(endpoints: usize, busy: usize, deferred_per_min: u64) -> InstanceStatus {
        let (period, interval) = (Duration::from_secs(15), Duration::from_secs(5));
        let worst = EndpointId::parse("e17").ok();
        let behind = Some(Behind { endpoints, period, interval, worst });
        let polling =
            PollingInfo { workers: 48, busy, deferred_per_min, behind, ..Default::default() };
        instance(polling)
    }

    #[test]
    fn each_shortfall_has_a_sentence_with_the_way_out() {
        for (it, shortfall, sentence) in [
            (
                behind(1_900, 48, 0),
                Shortfall::Workers,
                "1900 endpoints of vm1 are polled every 15 s instead of 5 s: all 48 workers are busy; \
                 raise LEASEHOLD_WORKERS there, or add an instance",
            ),
            (
                behind(1, 41, 3),
                Shortfall::Workers,
                "1 endpoint of vm1 (e17) is polled every 15 s instead of 5 s: all 48 workers are busy; \
                 raise LEASEHOLD_WORKERS there, or add an instance",
            ),
            (
                behind(2, 40, 3),
                Shortfall::Resources,
                "2 endpoints of vm1 are polled every 15 s instead of 5 s: 3 polls are put off each \
                 minute, because the process lacks descriptors, threads, memory or ports; poll.deferred \
                 in its log says which, and leasehold doctor the way out",
            ),
            (
                behind(2, 40, 0),
                Shortfall::Starved,
                "2 endpoints of vm1 are polled every 15 s instead of 5 s: only 40 of 48 workers are busy, \
                 so the process gets too little CPU, or Redis answers it slowly; more workers do not help",
            ),
        ] {
            assert_eq!(it.shortfall(), Some(shortfall));
            assert_eq!(it.shortfall_sentence().unwrap(), sentence);
        }
    }

    #[test]
    fn an_instance_that_keeps_up_is_dead_or_of_an_older_version_has_none() {
        let busy = instance(PollingInfo { workers: 4, busy: 4, ..Default::default() });
        let dead = InstanceStatus { heartbeat: None, ..behind(9, 48, 0) };
        let older = InstanceStatus { info: None, ..behind(9, 48, 0) };
        for it in [busy, dead, older] {
            assert_eq!(
                (it.shortfall(), it.shortfall_sentence(), it.slow_behind()),
                (None, None, 0)
            );
        }
    }

    #[test]
    fn slow_endpoints_are_told_of_with_the_setting_that_bounds_them() {
        let slow = |slow_behind| {
            let it = instance(PollingInfo { workers: 8, slow_behind, ..Default::default() });
            assert_eq!(it.shortfall(), None, "it keeps up");
            it.slow_sentence().unwrap()
        };
        let (one, two) = (slow(1), slow(2));
        assert!(one.starts_with("1 slow endpoint of vm1 is polled more seldom"), "{one}");
        assert!(two.starts_with("2 slow endpoints of vm1 are polled more seldom"), "{two}");
        assert!(two.ends_with("slow endpoints may have half of LEASEHOLD_WORKERS (8)"), "{two}");
    }

    /// Results may be fresh whenever one looks.
    #[test]
    fn a_fleet_with_an_instance_that_does_not_keep_up_is_not_well() {
        let status = |it: InstanceStatus| {
            let heartbeat = it.heartbeat.clone().unwrap();
            Status::of(
                Overview {
                    instances: vec![(it.id.clone(), heartbeat)],
                    infos: it.info.into_iter().map(|info| (it.id.clone(), info)).collect(),
                    ..Overview::default()
                },
                Duration::from_secs(120),
            )
        };
        let short = status(behind(9, 48, 0));
        assert_eq!(short.alarm(), Alarm::Act);
        assert!(short.verdict().ends_with(", or add an instance."), "{}", short.verdict());
        let slow =
            status(instance(PollingInfo { workers: 8, slow_behind: 2, ..Default::default() }));
        assert_eq!(slow.alarm(), Alarm::Watch);
        assert!(slow.verdict().ends_with(" LEASEHOLD_WORKERS (8)."), "{}", slow.verdict());
        let well = status(instance(PollingInfo::default()));
        assert_eq!((well.alarm(), well.about_capacity().as_str()), (Alarm::None, ""));
    }

    #[test]
    fn times_are_written_as_settings_are() {
        let written = [200, 1_000, 1_449, 7_500, 15_020, 119_000, 600_000];
        let written = written.map(|it| plain(Duration::from_millis(it)));
        assert_eq!(written, ["200 ms", "1 s", "1.4 s", "7.5 s", "15 s", "119 s", "10 min"]);
    }
}
