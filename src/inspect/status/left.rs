//! Which instances left lately, as far as the history tells? Those that are in it and have no heartbeat any more.
//!
//! An instance notes its start and its stop there. The history has no word of a death. But what the
//! dead held is granted to others, and that is in it: so an instance that did not give back what it held was
//! still there then, at the latest.

use std::collections::BTreeMap;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::inspect::status::Status;
use crate::model::InstanceId;
use crate::store::history::{Entry, in_order, reach};

/// An instance that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its id.
    pub id: InstanceId,
    /// It said that it stops, or gave back what it held. Otherwise it died, or was cut off.
    pub stopped: bool,
    /// Another instance was granted what it held.
    pub taken_over: bool,
    /// How long ago it was last heard of, or taken over from.
    pub ago: Duration,
}

/// What is known of those that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lately {
    /// The last first.
    pub left: Vec<Left>,
    /// How far back the history reaches, where that is less than was asked about.
    pub reach: Option<Duration>,
}

/// What an instance was last heard of for.
#[derive(Clone, Copy, Default)]
struct Trace {
    at_ms: u64,
    stopped: bool,
    taken_over: bool,
}

/// Those that left no longer than `lately` ago. `entries` are all there are, in any order.
pub fn left_lately(entries: Vec<Entry>, status: &Status, lately: Duration) -> Lately {
    let reach = reach(&entries, status.server_ms).filter(|it| *it < lately);
    let entries = in_order(entries);
    let mut traces: BTreeMap<&str, Trace> = BTreeMap::new();
    let mut holders: FnvHashMap<&str, &str> = FnvHashMap::default();
    for it in entries.iter().filter(|it| !it.instance.is_empty()) {
        // Drained first, as before a reboot, it has nothing left to give back when it stops.
        let stopped = match it.event.as_str() {
            "released" => matches!(it.reason.as_deref(), Some("shutdown" | "drain")),
            event => event == "stopped",
        };
        traces.insert(&it.instance, Trace { at_ms: it.at_ms, stopped, taken_over: false });
        if it.event == "stopped" {
            // Whatever it held it has given back, even if there is no word of that.
            holders.retain(|_, holder| *holder != it.instance);
        }
        if it.endpoint.is_empty() {
            continue;
        }
        let before = match it.event.as_str() {
            "acquired" | "reclaimed" => holders.insert(&it.endpoint, &it.instance),
            _ => {
                holders.remove(it.endpoint.as_str());
                None
            }
        };
        if let Some(heir_of) = before.filter(|before| *before != it.instance) {
            let trace = Trace { at_ms: it.at_ms, stopped: false, taken_over: true };
            traces.insert(heir_of, trace);
        }
    }
    let lives = |id: &str| status.instances.iter().any(|it| it.id.as_str() == id);
    let gone = traces.into_iter().filter(|it| !lives(it.0)).map(|(id, trace)| Left {
        id: InstanceId::new(id),
        stopped: trace.stopped,
        taken_over: trace.taken_over,
        ago: Duration::from_millis(status.server_ms.saturating_sub(trace.at_ms)),
    });
    let mut gone: Vec<Left> = gone.filter(|it| it.ago <= lately).collect();
    gone.sort_by_key(|it| it.ago);
    Lately { left: gone, reach }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Weight;
    use crate::store::Lasting;
    use crate::store::admin::overview::Overview;

    fn entry(at_ms: u64, endpoint: &str, event: &str, instance: &str, reason: &str) -> Entry {
        Entry {
            id: format!("{at_ms}-0"),
            at_ms,
            event: event.into(),
            endpoint: endpoint.into(),
            instance: instance.into(),
            fence: None,
            reason: Some(reason.into()),
            owner: None,
            heir: None,
        }
    }

    fn told(entries: &[Entry], lately_ms: u64) -> Vec<String> {
        let beat = Lasting { value: Weight(1), left: Duration::MAX };
        let overview = Overview {
            server_ms: 1_000,
            instances: vec![(InstanceId::new("alive"), beat)],
            ..Overview::default()
        };
        let status = Status::of(overview, Duration::MAX);
        let left = left_lately(entries.to_vec(), &status, Duration::from_millis(lately_ms));
        let left = left.left;
        let word = |it: &Left| if it.stopped { "stopped" } else { "died" };
        left.iter().map(|it| format!("{} {} {}", it.id, word(it), it.ago.as_millis())).collect()
    }

    #[test]
    fn whoever_gave_everything_back_has_stopped_and_whoever_was_taken_over_from_has_died() {
        let entries = [
            entry(100, "e1", "acquired", "a", "preferred"),
            entry(110, "e2", "acquired", "b", "preferred"),
            entry(120, "e3", "acquired", "alive", "preferred"),
            entry(300, "e1", "released", "a", "shutdown"),
            entry(310, "e1", "acquired", "alive", "takeover"),
            entry(900, "e2", "acquired", "alive", "takeover"),
        ];
        assert_eq!(told(&entries, 1_000), ["b died 100", "a stopped 700"]);
        assert_eq!(told(&entries, 200), ["b died 100"]);
        let mut late = entries.to_vec();
        late.reverse();
        assert_eq!(told(&late, 1_000), told(&entries, 1_000), "in any order");
        assert_eq!(told(&[], 1_000), Vec::<String>::new());
    }

    /// As before a reboot: nothing is left to give back at the stop.
    #[test]
    fn whoever_was_drained_first_has_stopped() {
        let entries = [
            entry(100, "e1", "acquired", "a", "preferred"),
            entry(200, "e1", "released", "a", "drain"),
            entry(210, "e1", "acquired", "alive", "handover"),
        ];
        assert_eq!(told(&entries, 1_000), ["a stopped 800"]);
    }

    /// A spare one, and one whose releases did not fit into the queue.
    #[test]
    fn whoever_says_that_it_stops_has_stopped_whatever_it_held() {
        let entries = [
            entry(100, "", "started", "spare", ""),
            entry(110, "", "started", "killed", ""),
            entry(120, "e1", "acquired", "a", "preferred"),
            entry(300, "", "stopped", "spare", ""),
            entry(400, "", "stopped", "a", ""),
            entry(410, "e1", "acquired", "alive", "preferred"),
        ];
        assert_eq!(
            told(&entries, 1_000),
            ["a stopped 600", "spare stopped 700", "killed died 890"]
        );
    }

    /// Its word came late, or it was cut off and lost what it held before it died.
    #[test]
    fn whoever_handed_over_is_not_taken_for_dead_by_that() {
        let entries = [
            entry(100, "e1", "acquired", "a", "preferred"),
            entry(200, "e1", "released", "a", "rebalance"),
            entry(210, "e1", "acquired", "alive", "handover"),
            entry(300, "e9", "released", "a", "shutdown"),
        ];
        assert_eq!(told(&entries, 1_000), ["a stopped 700"]);
    }
}
