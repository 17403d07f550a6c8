//! Which instance should own which endpoint? A pure function of the view.
//!
//! Rendezvous hashing (FR-013) gives each endpoint an order of preference; quotas make the counts
//! even, which hashing alone cannot (US4.1). An owner keeps its leases up to its quota, so that a join or
//! a leave moves only what it must. Nothing here acts: every instance computes the plan and does its
//! own part, by requesting leases (R8).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use fnv::{FnvHashMap, FnvHashSet};

use crate::fleet::view::{EndpointSlot, KnownInstance, View};
use crate::model::{EndpointId, InstanceId, Weight, affinity, fnv1a};

/// A free lease that the plan gives to another instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The free endpoint.
    pub endpoint: EndpointId,
    /// How many instances may acquire it before this one, if the heir does not.
    pub rank: u32,
    /// The instance that should acquire it.
    pub heir: InstanceId,
}

/// What one instance should do about a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Free, and planned for this instance: acquire it.
    pub acquire: Vec<EndpointId>,
    /// Planned for this instance, but owned by another instance: request it.
    pub ask: Vec<(InstanceId, EndpointId)>,
    /// Free, and planned for another: acquire it if the heir does not.
    pub fallback: Vec<Fallback>,
    /// Owned by this instance, planned for that heir: release it on request.
    pub heirs: FnvHashMap<EndpointId, InstanceId>,
    /// Owners and heirs of the moves in which this instance has no part.
    pub others: BTreeSet<InstanceId>,
    /// Every instance has weight 0, so no instance may acquire anything.
    pub all_draining: bool,
}

/// The instances in the order in which they should own `endpoint` (FR-013).
pub fn preference<'a>(endpoint: &EndpointId, instances: &'a [InstanceId]) -> Vec<&'a InstanceId> {
    let hash = fnv1a(endpoint.as_str());
    let mut order: Vec<&InstanceId> = instances.iter().collect();
    order.sort_by_cached_key(|it| Reverse((affinity(fnv1a(it.as_str()), hash), *it)));
    order
}

/// The first of [`preference`].
pub fn preferred<'a>(endpoint: &EndpointId, instances: &'a [InstanceId]) -> Option<&'a InstanceId> {
    let hash = fnv1a(endpoint.as_str());
    instances.iter().max_by_key(|it| (affinity(fnv1a(it.as_str()), hash), *it))
}

/// A live instance while the plan is made. A plan names it by its index, in the order of ids.
struct InstanceLoad<'a> {
    id: &'a InstanceId,
    hash: u64,
    weight: u64,
    held: usize,
    quota: usize,
}

/// An endpoint that needs another owner, and the index of the instance that should own it.
struct Move<'a> {
    slot: &'a EndpointSlot,
    heir: Option<usize>,
}

/// The planned owner of each endpoint of the view; `None` where every instance has weight 0.
pub fn assign(view: &View) -> Vec<(EndpointId, Option<InstanceId>)> {
    let loads = loads(view);
    let moves = moves(view, &loads).into_iter().map(|it| (&it.slot.id, it.heir));
    let moves: FnvHashMap<&EndpointId, Option<usize>> = moves.collect();
    let heir = |slot: &EndpointSlot| match moves.get(&slot.id) {
        Some(heir) => heir.map(|it| loads[it].id.clone()),
        None => view.owner_of(slot).map(|it| it.id.clone()),
    };
    view.slots().map(|it| (it.id.clone(), heir(it))).collect()
}

/// What each live instance would own if endpoints could be divided, in the order of ids: what quotas round.
pub fn fair_shares(view: &View) -> Vec<f64> {
    let total: u64 = view.instances().map(|it| u64::from(it.1.0)).sum();
    let share = |weight: Weight| view.len() as f64 * f64::from(weight.0) / total.max(1) as f64;
    view.instances().map(|it| share(it.1)).collect()
}

/// What `me` should do about `view`.
pub fn plan(view: &View, me: &InstanceId) -> Plan {
    let loads = loads(view);
    let mut plan = Plan { all_draining: loads.iter().all(|it| it.weight == 0), ..Plan::default() };
    let Some(mine) = loads.iter().position(|it| it.id == me) else { return plan };
    let takers = hashes(&loads, |it| loads[it].weight > 0);
    let mut others = FnvHashSet::default();
    for Move { slot, heir } in moves(view, &loads) {
        let Some(heir) = heir else { continue };
        let endpoint = || slot.id.clone();
        match view.owner_of(slot).and_then(|it| it.live_index) {
            Some(owner) if owner == mine => {
                plan.heirs.insert(endpoint(), loads[heir].id.clone());
            }
            Some(owner) if heir == mine => plan.ask.push((loads[owner].id.clone(), endpoint())),
            Some(owner) => others.extend([owner, heir]),
            None if heir == mine => plan.acquire.push(endpoint()),
            None if loads[mine].weight > 0 => {
                let (me, other) = ((loads[mine].hash, mine), (loads[heir].hash, heir));
                let rank = rank(slot, &takers, me, other);
                let heir = loads[heir].id.clone();
                plan.fallback.push(Fallback { endpoint: endpoint(), rank, heir });
            }
            _ => (),
        }
    }
    plan.others = others.into_iter().map(|it: usize| loads[it].id.clone()).collect();
    plan
}

/// How many instances that may take it, other than the heir, are preferred to `mine`.
fn rank(
    slot: &EndpointSlot,
    takers: &[(u64, usize)],
    mine: (u64, usize),
    heir: (u64, usize),
) -> u32 {
    let wants = |it: (u64, usize)| (affinity(it.0, slot.hash), it.1);
    let mine = wants(mine);
    let ahead = takers.iter().filter(|it| wants(**it) > mine).count();
    u32::try_from(ahead - usize::from(wants(heir) > mine)).unwrap_or(u32::MAX)
}

/// Hashes and indices of the instances that are `wanted`: flat, because every endpoint goes through all of them.
fn hashes(loads: &[InstanceLoad<'_>], wanted: impl Fn(usize) -> bool) -> Vec<(u64, usize)> {
    (0..loads.len()).filter(|it| wanted(*it)).map(|it| (loads[it].hash, it)).collect()
}

/// The live instances, each with its quota.
fn loads(view: &View) -> Vec<InstanceLoad<'_>> {
    let live = view.live().map(|it| InstanceLoad {
        id: &it.id,
        hash: it.hash,
        weight: it.weight.0.into(),
        held: it.owns,
        // If every instance has weight 0, each keeps what it owns.
        quota: it.owns,
    });
    let mut loads: Vec<InstanceLoad<'_>> = live.collect();
    let total: u64 = loads.iter().map(|it| it.weight).sum();
    if total > 0 {
        set_quotas(&mut loads, view.len(), total);
    }
    loads
}

/// The weighted fair share, rounded down or up so that the quotas add up. Rounded up first for instances that
/// already own more than their share rounded down: every other choice would move more leases.
fn set_quotas(loads: &mut [InstanceLoad<'_>], endpoints: usize, total: u64) {
    let endpoints = endpoints as u128;
    let total = u128::from(total);
    let share = |weight: u64| endpoints * u128::from(weight);
    let mut open = endpoints;
    for load in loads.iter_mut() {
        let floor = share(load.weight) / total;
        open -= floor;
        load.quota = usize::try_from(floor).unwrap_or(usize::MAX);
    }
    let mut rest: Vec<usize> =
        (0..loads.len()).filter(|it| share(loads[*it].weight) % total > 0).collect();
    rest.sort_by_key(|it| {
        let load = &loads[*it];
        // An instance that holds more than that may hold any number more: leases are on their way, and the choice
        // must not change with each of them.
        let (remainder, held) = (share(load.weight) % total, load.held.min(load.quota + 1));
        (Reverse(held > load.quota), Reverse(remainder), Reverse(held), Reverse(load.hash), *it)
    });
    for index in rest.into_iter().take(usize::try_from(open).unwrap_or(usize::MAX)) {
        loads[index].quota += 1;
    }
}

/// Every endpoint that needs another owner, with its heir: the most preferred instance below its quota.
fn moves<'a>(view: &'a View, loads: &[InstanceLoad<'_>]) -> Vec<Move<'a>> {
    let mut to_place = to_place(view, loads);
    // The first endpoint gets the room, so every instance has to go through them in the same order.
    to_place.sort_unstable_by_key(|(hash, slot)| (*hash, &slot.id));
    let mut room: Vec<usize> = loads.iter().map(|it| it.quota.saturating_sub(it.held)).collect();
    let mut open = hashes(loads, |it| room[it] > 0);
    let give = |(hash, slot)| {
        // Of equals the last is taken, which is the one with the greatest id.
        let heir = open.iter().max_by_key(|it| affinity(it.0, hash)).map(|it| it.1);
        if let Some(heir) = heir {
            room[heir] -= 1;
            if room[heir] == 0 {
                open.retain(|it| it.1 != heir);
            }
        }
        Move { slot, heir }
    };
    to_place.into_iter().map(give).collect()
}

/// Endpoints without a live owner, and those above the quota of their owner: of these the least preferred.
fn to_place<'a>(view: &'a View, loads: &[InstanceLoad<'_>]) -> Vec<(u64, &'a EndpointSlot)> {
    let mut to_place = Vec::new();
    let mut over_quota: Vec<Vec<(Reverse<u64>, &EndpointSlot)>> = vec![Vec::new(); loads.len()];
    for slot in view.slots() {
        match view.owner_of(slot).and_then(|it| it.live_index) {
            None => to_place.push((slot.hash, slot)),
            Some(index) if loads[index].held > loads[index].quota => {
                over_quota[index].push((Reverse(affinity(loads[index].hash, slot.hash)), slot));
            }
            Some(_) => (),
        }
    }
    for (load, mut held) in loads.iter().zip(over_quota).filter(|it| !it.1.is_empty()) {
        held.select_nth_unstable_by(load.quota, |a, b| (a.0, &a.1.id).cmp(&(b.0, &b.1.id)));
        to_place.extend(held.drain(load.quota..).map(|it| (it.1.hash, it.1)));
    }
    to_place
}

impl View {
    /// Whether `me` is the most preferred live instance of weight > 0 other than the owner of `endpoint`:
    /// the one that is to notice when it becomes free.
    pub fn is_next_in_line(&self, me: &InstanceId, endpoint: &EndpointId) -> bool {
        let (Some(me), Some(slot)) = (self.known(me), self.slot(endpoint)) else { return false };
        self.is_next(me, slot)
    }

    /// Walks the view in a circle, up to `count` endpoints on from `cursor`. Those with a live owner other
    /// than `me` for which `me` is the most preferred of all other live instances of weight > 0.
    pub fn next_in_line_for(
        &self,
        me: &InstanceId,
        cursor: &mut usize,
        count: usize,
    ) -> Vec<EndpointId> {
        let Some(me) = self.known(me) else { return Vec::new() };
        let owned =
            |slot: &&EndpointSlot| self.owner_of(slot).is_some_and(|it| it.live_index.is_some());
        let walk = (0..count.min(self.len())).filter_map(|_| self.next_slot(cursor));
        let ours = walk.filter(owned).filter(|it| self.is_next(me, it));
        ours.map(|it| it.id.clone()).collect()
    }

    fn is_next(&self, me: &KnownInstance, slot: &EndpointSlot) -> bool {
        let owner = self.owner_of(slot).and_then(|it| it.live_index);
        let wants = |it: &KnownInstance| (affinity(it.hash, slot.hash), it.live_index);
        let may = |it: &KnownInstance| {
            it.live_index.is_some() && it.weight.0 > 0 && it.live_index != owner
        };
        may(me) && !self.live().any(|it| may(it) && wants(it) > wants(me))
    }
}

#[cfg(test)]
mod tests;
