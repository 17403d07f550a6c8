//! What was seen lately: how much each instance owned, and how the endpoints that somebody looks at answered. Bounded.

use std::collections::VecDeque;

use crate::clock::Moment;
use crate::inspect::status::{EndpointStatus, Status};
use crate::model::InstanceId;

/// Ten minutes, where a reading is quick.
const LOADS_MAX: usize = 600;
/// Endpoints whose latencies are kept: those that were looked at last.
const VIEWED_MAX: usize = 64;
/// Latencies of one endpoint that are kept.
pub(crate) const LATENCIES_MAX: usize = 60;
/// More instances than this share the last colour.
pub(crate) const COLOURS: usize = 8;

/// What each instance owned at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) at: Moment,
    /// Endpoints that are to be polled.
    pub(crate) wanted: usize,
    /// How many endpoints the instances of each colour owned.
    pub(crate) owned: [usize; COLOURS],
}

/// The loads of the last minutes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loads {
    pub(crate) samples: VecDeque<Load>,
    /// Which instance has which colour; `None` for a colour that is free.
    colours: [Option<InstanceId>; COLOURS - 1],
}

impl Loads {
    /// Adds what was read at `at`.
    pub(crate) fn add(&mut self, status: &Status, at: Moment) {
        self.give_colours(status);
        let mut owned = [0; COLOURS];
        for it in &status.instances {
            if let Some(sum) = owned.get_mut(self.colour(&it.id)) {
                *sum += it.owned;
            }
        }
        self.samples.push_back(Load { at, wanted: status.n_wanted(), owned });
        if self.samples.len() > LOADS_MAX {
            self.samples.pop_front();
        }
    }

    /// An instance keeps its colour. That of one that is gone is given to another when no colour is free.
    fn give_colours(&mut self, status: &Status) {
        let is_there = |id: &InstanceId| status.instances.iter().any(|it| it.id == *id);
        for it in &status.instances {
            if self.colours.iter().flatten().any(|id| *id == it.id) {
                continue;
            }
            let free = self.colours.iter().position(Option::is_none);
            let gone = || self.colours.iter().position(|it| !it.as_ref().is_some_and(is_there));
            if let Some(place) = free.or_else(gone).and_then(|at| self.colours.get_mut(at)) {
                *place = Some(it.id.clone());
            }
        }
    }

    /// The number of an instance's colour.
    pub(crate) fn colour(&self, id: &InstanceId) -> usize {
        let found = self.colours.iter().position(|it| it.as_ref() == Some(id));
        found.unwrap_or(COLOURS - 1)
    }
}

/// The last latencies of an endpoint in milliseconds; `None` for a poll that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latencies {
    pub(crate) last: VecDeque<Option<u64>>,
    started_at_ms: Option<u64>,
}

impl Latencies {
    /// Adds the last result unless it was added before.
    fn add(&mut self, endpoint: &EndpointStatus) {
        let Some(result) = &endpoint.result else { return };
        if self.started_at_ms == result.started_at_ms && !self.last.is_empty() {
            return;
        }
        self.started_at_ms = result.started_at_ms;
        self.last.push_back(result.duration_ms.filter(|_| result.ok));
        if self.last.len() > LATENCIES_MAX {
            self.last.pop_front();
        }
    }
}

/// The endpoints that somebody looks at, the one looked at last at the end.
#[derive(Debug, Default)]
pub(crate) struct Viewed(VecDeque<(String, Latencies)>);

impl Viewed {
    /// Somebody looks at this endpoint.
    pub(crate) fn note(&mut self, endpoint: &EndpointStatus) -> Latencies {
        let found = self.0.iter().position(|it| it.0 == endpoint.name);
        let kept = found.and_then(|at| self.0.remove(at));
        let (name, mut latencies) =
            kept.unwrap_or_else(|| (endpoint.name.clone(), Latencies::default()));
        latencies.add(endpoint);
        self.0.push_back((name, latencies.clone()));
        if self.0.len() > VIEWED_MAX {
            self.0.pop_front();
        }
        latencies
    }

    /// Adds what was read of them.
    pub(crate) fn add<'a>(&mut self, find: impl Fn(&str) -> Option<&'a EndpointStatus>) {
        for (name, latencies) in &mut self.0 {
            if let Some(endpoint) = find(name) {
                latencies.add(endpoint);
            }
        }
    }
}
