//! What follows from all observations so far? Keeps a little about each endpoint, and tells each finding once.

use fnv::{FnvHashMap, FnvHashSet};

use crate::inspect::audit::attendance::{Absence, Looks, judge_absence};
use crate::inspect::audit::order::{Newest, judge_order};
use crate::inspect::audit::overlap::{overlap_ms, superseded_ms};
use crate::inspect::audit::{
    Finding, Holder, Kind, Look, Observation, Party, Poll, Read, Source, Unattended,
};
use crate::model::{EndpointId, FenceToken, InstanceId};

/// Most endpoints of which anything is kept. Beyond it, what is known of those that were not observed for the longest time is
/// forgotten: anybody may announce results of endpoints that do not exist.
pub(super) const ENDPOINTS_MAX: usize = 200_000;
/// Most instance ids that endpoints share. Beyond it each endpoint keeps ids of its own.
const INSTANCES_MAX: usize = 10_000;
/// How many findings of one endpoint are remembered as told.
const TOLD_MAX: usize = 8;
/// By how much the history's times of two grants may be in the wrong order although the grants were not: an entry is older than it
/// says by the time that a request to Redis may take, which `--store-timeout` limits to 2 s by default.
const GRANT_TOLERANCE_MS: u64 = 5_000;

/// How much was observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub results: u64,
    pub changes: u64,
    pub lease_events: u64,
    pub looks: u64,
    /// Messages and entries that no instance of a fleet writes.
    pub foreign: u64,
    /// How long each source could not be observed, in milliseconds, in the order of [`Source::ALL`].
    pub unobserved_ms: [u64; 4],
    /// Endpoints that were forgotten because there were too many.
    pub forgotten: u64,
    /// Findings by kind, in the order of [`Kind::ALL`]. Each kind counts once for each pair of tenures of an endpoint.
    pub findings: [u64; 6],
}

impl Counts {
    /// How many findings there were.
    pub fn n_findings(&self) -> u64 {
        self.findings.iter().sum()
    }

    /// How long some source was not observed: the longest.
    pub fn unobserved_ms(&self) -> u64 {
        self.unobserved_ms.into_iter().max().unwrap_or_default()
    }
}

/// Judges observations in the order in which they come.
#[derive(Debug, Default)]
pub struct Judge {
    endpoints: FnvHashMap<EndpointId, Known>,
    instances: FnvHashSet<InstanceId>,
    looks: Looks,
    unattended: Vec<Unattended>,
    /// How many observations there were, to know the endpoints that were not observed for the longest time.
    n_observed: u64,
    counts: Counts,
}

/// What is kept about an endpoint.
#[derive(Debug, Default)]
struct Known {
    /// The newest announced result.
    announced: Option<Newest>,
    /// The newest change of a verdict.
    changed: Option<Newest>,
    /// The highest grant of the history, and when it was.
    granted: Option<(Holder, u64)>,
    /// The owner with the highest fence that any source told.
    highest: Option<Holder>,
    /// The last polls of the two highest tenures.
    polls: [Option<Poll>; 2],
    absence: Option<Absence>,
    /// The findings that were told, the latest last.
    told: Vec<(Kind, FenceToken, FenceToken)>,
    observed: u64,
}

impl Judge {
    /// What there is to tell about this observation.
    pub fn observe(&mut self, it: Observation) -> Vec<Finding> {
        self.n_observed += 1;
        match it {
            Observation::Result { endpoint, poll, read } => {
                self.counts.results += 1;
                let poll = Poll { holder: self.shared(poll.holder), ..poll };
                self.judged(endpoint, |known, endpoint| known.take_poll(endpoint, &poll, read))
            }
            Observation::Change { endpoint, holder, at_ms } => {
                self.counts.changes += 1;
                let holder = self.shared(holder);
                self.judged(endpoint, |known, endpoint| known.take_change(endpoint, &holder, at_ms))
            }
            Observation::Lease { endpoint, holder, at_ms, event } => {
                self.counts.lease_events += 1;
                let is_grant = matches!(event.as_str(), "acquired" | "reclaimed");
                let holder = self.shared(holder);
                self.judged(endpoint, |known, endpoint| {
                    let grant = is_grant.then_some(at_ms);
                    known.take_lease(endpoint, &holder, at_ms, grant)
                })
            }
            Observation::Unattended(it) => {
                if self.unattended.len() < ENDPOINTS_MAX {
                    self.unattended.push(it);
                }
                vec![]
            }
            Observation::Look(look) => self.judge_look(&look),
            Observation::Unobserved { source, for_ms } => {
                let unobserved = &mut self.counts.unobserved_ms[source as usize];
                *unobserved = unobserved.saturating_add(for_ms);
                if source == Source::Looks {
                    self.looks.from_number = self.looks.number + 1;
                }
                vec![]
            }
            Observation::Foreign => {
                self.counts.foreign += 1;
                vec![]
            }
        }
    }

    /// How much was observed so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many endpoints something is known of.
    pub fn n_endpoints(&self) -> usize {
        self.endpoints.len()
    }

    /// The same owner, with an id that all endpoints share.
    fn shared(&mut self, holder: Holder) -> Holder {
        if let Some(instance) = self.instances.get(&holder.instance) {
            return Holder { instance: instance.clone(), ..holder };
        }
        if self.instances.len() < INSTANCES_MAX {
            self.instances.insert(holder.instance.clone());
        }
        holder
    }

    fn judged(
        &mut self,
        endpoint: EndpointId,
        judge: impl FnOnce(&mut Known, &EndpointId) -> Option<Finding>,
    ) -> Vec<Finding> {
        self.make_room(&endpoint);
        let known = self.endpoints.entry(endpoint.clone()).or_default();
        known.observed = self.n_observed;
        let finding = judge(known, &endpoint).filter(|it| known.is_news(it));
        self.counted(finding.into_iter().collect())
    }

    fn judge_look(&mut self, look: &Look) -> Vec<Finding> {
        self.counts.looks += 1;
        self.looks.number += 1;
        let mut found = vec![];
        for seen in std::mem::take(&mut self.unattended) {
            self.make_room(&seen.endpoint);
            let known = self.endpoints.entry(seen.endpoint.clone()).or_default();
            known.observed = self.n_observed;
            if let Some(for_ms) = judge_absence(&mut known.absence, &seen, look, self.looks) {
                let earlier = seen.owner.map(|holder| Party { holder, poll: None });
                let (endpoint, at_ms) = (seen.endpoint, look.server_ms);
                let (kind, later) = (Kind::Unpolled, None);
                found.push(Finding { kind, endpoint, at_ms, for_ms, earlier, later });
            }
        }
        self.counted(found)
    }

    fn counted(&mut self, found: Vec<Finding>) -> Vec<Finding> {
        found.iter().for_each(|it| self.counts.findings[it.kind as usize] += 1);
        found
    }

    /// Forgets the half that was not observed for the longest time, where a new endpoint would be one too many.
    fn make_room(&mut self, endpoint: &EndpointId) {
        if self.endpoints.len() < ENDPOINTS_MAX || self.endpoints.contains_key(endpoint) {
            return;
        }
        let mut observed: Vec<u64> = self.endpoints.values().map(|it| it.observed).collect();
        let middle = observed.len() / 2;
        let (_, oldest_kept, _) = observed.select_nth_unstable(middle);
        let (before, oldest_kept) = (self.endpoints.len(), *oldest_kept);
        self.endpoints.retain(|_, it| it.observed > oldest_kept);
        self.counts.forgotten += (before - self.endpoints.len()) as u64;
    }
}

impl Known {
    fn take_poll(&mut self, endpoint: &EndpointId, poll: &Poll, read: Read) -> Option<Finding> {
        let seen =
            Seen { endpoint, holder: &poll.holder, poll: Some(poll), at_ms: poll.ended_at_ms() };
        let shared = self.shared_fence(&seen);
        let newest =
            Newest { holder: poll.holder.clone(), started_at_ms: Some(poll.started_at_ms) };
        let before = self.announced.clone();
        let disorder = match read {
            Read::Announced if shared.is_none() => judge_order(&mut self.announced, newest),
            _ => None,
        };
        let overlap = self.polls.iter().flatten().find_map(|other| {
            let is_other = other.holder != poll.holder;
            let for_ms = overlap_ms(other, poll).filter(|_| is_other)?;
            Some(seen.contradicts(Kind::Overlap, &other.holder, Some(other), for_ms))
        });
        let disorder = disorder.zip(before).map(|(kind, before)| {
            let newest = self.polls.iter().flatten().find(|it| it.holder == before.holder);
            seen.contradicts(kind, &before.holder, newest, 0)
        });
        let superseded = self.superseded_by_highest(&seen);
        self.keep_poll(poll);
        shared.or(overlap).or(disorder).or(superseded).or_else(|| self.raise(&seen))
    }

    fn take_change(
        &mut self,
        endpoint: &EndpointId,
        holder: &Holder,
        at_ms: u64,
    ) -> Option<Finding> {
        let seen = Seen { endpoint, holder, poll: None, at_ms };
        let shared = self.shared_fence(&seen);
        let before = self.changed.clone();
        let newest = Newest { holder: holder.clone(), started_at_ms: None };
        let disorder = match shared {
            None => judge_order(&mut self.changed, newest),
            Some(_) => None,
        };
        let disorder = disorder
            .zip(before)
            .map(|(kind, before)| seen.contradicts(kind, &before.holder, None, 0));
        shared.or(disorder).or_else(|| self.raise(&seen))
    }

    /// An entry of the history; `granted_at_ms` of a grant or a reclaim.
    fn take_lease(
        &mut self,
        endpoint: &EndpointId,
        holder: &Holder,
        at_ms: u64,
        granted_at_ms: Option<u64>,
    ) -> Option<Finding> {
        let seen = Seen { endpoint, holder, poll: None, at_ms };
        let shared = self.shared_fence(&seen);
        let granted_at_ms = granted_at_ms.filter(|_| shared.is_none());
        let disorder = granted_at_ms.and_then(|at_ms| self.judge_grant(&seen, at_ms));
        shared.or(disorder).or_else(|| self.raise(&seen))
    }

    /// The order of two grants is that of their times, because entries are written in any order.
    fn judge_grant(&mut self, seen: &Seen<'_>, at_ms: u64) -> Option<Finding> {
        match &self.granted {
            Some((known, known_at_ms)) if seen.holder.fence < known.fence => {
                let later_ms = at_ms.saturating_sub(*known_at_ms);
                let goes_back = later_ms > GRANT_TOLERANCE_MS;
                goes_back.then(|| seen.contradicts(Kind::FenceBack, known, None, 0))
            }
            Some((known, _)) if seen.holder.fence == known.fence => None,
            _ => {
                self.granted = Some((seen.holder.clone(), at_ms));
                None
            }
        }
    }

    /// Whether another instance is known under the same fence: each grant has a fence of its own.
    fn shared_fence(&self, seen: &Seen<'_>) -> Option<Finding> {
        let newest = [&self.announced, &self.changed].into_iter().flatten().map(|it| &it.holder);
        let granted = self.granted.iter().map(|it| &it.0).chain(&self.highest);
        let polled = self.polls.iter().flatten().map(|it| &it.holder);
        let mut known = newest.chain(granted).chain(polled);
        let other = known
            .find(|it| it.fence == seen.holder.fence && it.instance != seen.holder.instance)?;
        Some(seen.contradicts(Kind::SharedFence, other, None, 0))
    }

    fn superseded_by_highest(&self, seen: &Seen<'_>) -> Option<Finding> {
        let highest = self.highest.as_ref()?;
        let for_ms = superseded_ms(seen.poll?, highest.fence)?;
        Some(seen.contradicts(Kind::Superseded, highest, None, for_ms))
    }

    /// Takes a fence that may be the highest; a known poll that began long after its grant was one too many.
    fn raise(&mut self, seen: &Seen<'_>) -> Option<Finding> {
        if self.highest.as_ref().is_some_and(|it| it.fence >= seen.holder.fence) {
            return None;
        }
        self.highest = Some(seen.holder.clone());
        self.polls.iter().flatten().find_map(|poll| {
            let for_ms = superseded_ms(poll, seen.holder.fence)?;
            let at_ms = poll.started_at_ms;
            let late = Seen { holder: &poll.holder, poll: Some(poll), at_ms, ..*seen };
            Some(late.contradicts(Kind::Superseded, seen.holder, seen.poll, for_ms))
        })
    }

    /// Keeps the last poll of each of the two highest tenures.
    fn keep_poll(&mut self, poll: &Poll) {
        let of_tenure =
            |it: &&mut Option<Poll>| it.as_ref().is_some_and(|it| it.holder == poll.holder);
        if let Some(Some(known)) = self.polls.iter_mut().find(of_tenure) {
            if known.started_at_ms <= poll.started_at_ms {
                *known = poll.clone();
            }
            return;
        }
        let fence = |it: &Option<Poll>| it.as_ref().map(|it| it.holder.fence);
        let lowest = usize::from(fence(&self.polls[1]) < fence(&self.polls[0]));
        if fence(&self.polls[lowest]) < Some(poll.holder.fence) {
            self.polls[lowest] = Some(poll.clone());
        }
    }

    /// Whether this has not been told yet. A second owner goes on polling, and one finding says it all.
    fn is_news(&mut self, it: &Finding) -> bool {
        let fence = |it: &Option<Party>| it.as_ref().map_or(FenceToken(0), |it| it.holder.fence);
        let (one, other) = (fence(&it.earlier), fence(&it.later));
        let told = (it.kind, one.min(other), one.max(other));
        if self.told.contains(&told) {
            return false;
        }
        if self.told.len() == TOLD_MAX {
            self.told.remove(0);
        }
        self.told.push(told);
        true
    }
}

/// An owner that an observation is about.
#[derive(Clone, Copy)]
struct Seen<'a> {
    endpoint: &'a EndpointId,
    holder: &'a Holder,
    poll: Option<&'a Poll>,
    at_ms: u64,
}

impl Seen<'_> {
    /// The finding that it contradicts what is known of another owner.
    fn contradicts(
        &self,
        kind: Kind,
        holder: &Holder,
        poll: Option<&Poll>,
        for_ms: u64,
    ) -> Finding {
        let times = |it: Option<&Poll>| it.map(|it| (it.started_at_ms, it.duration_ms));
        Finding {
            kind,
            endpoint: self.endpoint.clone(),
            at_ms: self.at_ms,
            for_ms,
            earlier: Some(Party { holder: holder.clone(), poll: times(poll) }),
            later: Some(Party { holder: self.holder.clone(), poll: times(self.poll) }),
        }
    }
}
