//! What became of leases and of instances, for people? The entries of `poll:history`, a capped stream, and their
//! order. Pure: `redis/history.rs` writes and reads them.
//!
//! An entry's time is the server's when it was written, less its age then: no two clocks are compared.

use std::time::Duration;

use fnv::FnvHashMap;

use crate::model::{Change, FenceToken, InstanceId, Tenure, Verdict};

/// About this many entries are kept.
pub(crate) const KEPT: usize = 10_000;

/// A capped stream that is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// `poll:history`: what became of leases and instances.
    Leases,
    /// `poll:changes`: changes of a verdict.
    Changes,
}

/// An event of a lease or of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `acquired`, `released`, `lost` or `reclaimed`; of an instance, `started`, `stopped` or `revoked`.
    pub event: &'static str,
    /// Which grant; `None` of an instance.
    pub tenure: Option<Tenure>,
    /// Whose lease it was or is.
    pub instance: InstanceId,
    /// The reason, as in the log event; empty where there is no choice.
    pub reason: &'static str,
    /// For a loss: the new owner. For a revocation: the instance that revoked.
    pub owner: Option<InstanceId>,
    /// For whom it was given up.
    pub heir: Option<InstanceId>,
    /// How long ago it happened.
    pub age: Duration,
}

impl Note {
    /// Something that has just become of `instance`.
    pub fn of_instance(event: &'static str, instance: &InstanceId) -> Self {
        let (tenure, reason, owner, heir) = (None, "", None, None);
        Self { event, tenure, instance: instance.clone(), reason, owner, heir, age: Duration::ZERO }
    }
}

/// An entry as read; any client may have written it. An entry of an instance has no endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the stream.
    pub id: String,
    /// When it happened, by the server's clock.
    pub at_ms: u64,
    pub event: String,
    pub endpoint: String,
    pub instance: String,
    pub fence: Option<FenceToken>,
    pub reason: Option<String>,
    pub owner: Option<String>,
    pub heir: Option<String>,
}

impl Entry {
    /// A change of a verdict that was written at `at_ms`.
    pub(crate) fn of_change(id: String, at_ms: u64, it: Change) -> Self {
        let is_failing = it.state.verdict == Some(Verdict::Failing);
        let reason = match is_failing {
            true => it.error.or_else(|| Some(format!("status {}", it.status?))),
            false => Some(format!("after {} s", it.state.lasted_ms() / 1_000)),
        };
        Self {
            id,
            at_ms,
            event: if is_failing { "failing" } else { "recovered" }.into(),
            endpoint: it.tenure.endpoint.to_string(),
            instance: it.instance.to_string(),
            fence: Some(it.tenure.fence),
            reason,
            owner: None,
            heir: None,
        }
    }

    /// Its id as numbers: within a millisecond entries are counted.
    fn place(&self) -> (u64, u64) {
        let (ms, n) = self.id.split_once('-').unwrap_or((&self.id, "0"));
        (ms.parse().unwrap_or(0), n.parse().unwrap_or(0))
    }

    /// Where it stands in the life of a grant.
    fn stage(&self) -> u8 {
        match self.event.as_str() {
            "acquired" => 0,
            "released" | "lost" => 2,
            _ => 1,
        }
    }
}

/// How far back `entries` reach; `None` if nothing was trimmed.
pub fn reach(entries: &[Entry], server_ms: u64) -> Option<Duration> {
    let oldest = entries.iter().map(|it| it.place().0).min().filter(|_| entries.len() >= KEPT)?;
    Some(Duration::from_millis(server_ms.saturating_sub(oldest)))
}

/// In the order in which it happened: by time, within a millisecond by place, and for one endpoint by grant.
/// Times of different instances are only as exact as their connections are quick, but fences grow with
/// every grant.
pub fn in_order(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|it| (it.at_ms, it.place()));
    let mut places: FnvHashMap<String, Vec<usize>> = FnvHashMap::default();
    for (at, it) in entries.iter().enumerate().filter(|it| !it.1.endpoint.is_empty()) {
        places.entry(it.endpoint.clone()).or_default().push(at);
    }
    let mut ordered: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
    for places in places.into_values() {
        let mut life: Vec<Entry> = places.iter().filter_map(|it| ordered[*it].take()).collect();
        life.sort_by_key(|it| (it.fence, it.stage(), it.at_ms));
        places.iter().zip(life).for_each(|(at, it)| ordered[*at] = Some(it));
    }
    ordered.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner notes its release when it was answered; by then the heir may have noted its grant.
    #[test]
    fn a_release_comes_before_the_grant_that_follows_it_whatever_the_clocks_say() {
        let entry = |at_ms: u64, endpoint: &str, event: &str, fence: u64| Entry {
            id: format!("{at_ms}-0"),
            at_ms,
            event: event.into(),
            endpoint: endpoint.into(),
            instance: "a".into(),
            fence: Some(FenceToken(fence)),
            reason: None,
            owner: None,
            heir: None,
        };
        let found = vec![
            entry(7, "e", "released", 1),
            entry(6, "f", "acquired", 1),
            entry(5, "e", "acquired", 2),
            entry(3, "e", "reclaimed", 1),
            entry(3, "e", "acquired", 1),
        ];
        let told: Vec<String> = in_order(found)
            .iter()
            .map(|it| format!("{} {} {:?}", it.endpoint, it.event, it.fence.unwrap().0))
            .collect();
        let wanted =
            ["e acquired 1", "e reclaimed 1", "e released 1", "f acquired 1", "e acquired 2"];
        assert_eq!(told, wanted);
    }

    /// Whichever way they were read, and however many happened in one millisecond.
    #[test]
    fn within_a_millisecond_they_are_in_the_order_of_the_stream() {
        let entry = |n: u64| Entry {
            id: format!("5-{n}"),
            at_ms: 5,
            event: "acquired".into(),
            endpoint: format!("e{}", 7 * n % 13),
            instance: "a".into(),
            fence: Some(FenceToken(1)),
            reason: None,
            owner: None,
            heir: None,
        };
        let wanted: Vec<Entry> = (0..12).map(entry).collect();
        assert_eq!(in_order((0..12).rev().map(entry).collect()), wanted);
        assert_eq!(in_order(wanted.clone()), wanted);
        assert_eq!(reach(&wanted, 100), None, "nothing was forgotten");
    }
}
