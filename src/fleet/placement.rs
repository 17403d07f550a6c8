//! Who should own which endpoint? A pure function of what was seen.
//!
//! Rendezvous hashing (FR-013) gives each endpoint an order of preference; quotas make the counts
//! even, which hashing alone cannot (US4.1). Owners keep what is within their quota, so that a join or
//! a leave moves only what it must. Nothing here acts: every instance computes the plan and does its
//! own part, by asking (R8).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use fnv::{FnvHashMap, FnvHashSet};

use crate::fleet::view::{EndpointSlot, KnownInstance, View};
use crate::model::{EndpointId, InstanceId, Weight, affinity, fnv1a};

/// A free lease that is another's by plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// What is free.
    pub endpoint: EndpointId,
    /// How many instances come before this one, if the heir does not.
    pub rank: u32,
    /// Whose it is.
    pub heir: InstanceId,
}

/// What one instance should do about a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Mine, and nobody alive has it: take it.
    pub acquire: Vec<EndpointId>,
    /// Mine, but this owner has it: ask.
    pub ask: Vec<(InstanceId, EndpointId)>,
    /// Another's, and nobody alive has it: take it if the heir does not come.
    pub fallback: Vec<Fallback>,
    /// Held by me, another's by plan: give it when asked.
    pub heirs: FnvHashMap<EndpointId, InstanceId>,
    /// Those between whom something else is to move: owners, and heirs.
    pub others: BTreeSet<InstanceId>,
    /// No instance may be given anything.
    pub all_draining: bool,
}

/// The instances in the order in which they should own `endpoint` (FR-013).
pub fn preference<'a>(endpoint: &EndpointId, instances: &'a [InstanceId]) -> Vec<&'a InstanceId> {
    let hash = fnv1a(endpoint.as_str());
    let mut order: Vec<&InstanceId> = instances.iter().collect();
    order.sort_by_cached_key(|it| Reverse((affinity(fnv1a(it.as_str()), hash), *it)));
    order
}

/// A live instance while the plan is made. Seats are numbered in the order of ids.
struct InstanceLoad<'a> {
    id: &'a InstanceId,
    hash: u64,
    weight: u64,
    held: usize,
    quota: usize,
}

/// An endpoint that should not stay where it is, and the seat that should have it.
struct Move<'a> {
    slot: &'a EndpointSlot,
    heir: Option<usize>,
}

/// Who should own each endpoint of the view; `None` where nobody may be given it.
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
        match view.owner_of(slot).and_then(|it| it.seat) {
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

/// Hashes and numbers of the seats that are `wanted`: flat, because they are gone through for every endpoint.
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
        // Where nobody may be given anything, everybody keeps what it has.
        quota: it.owns,
    });
    let mut loads: Vec<InstanceLoad<'_>> = live.collect();
    let total: u64 = loads.iter().map(|it| it.weight).sum();
    if total > 0 {
        set_quotas(&mut loads, view.len(), total);
    }
    loads
}

/// The weighted fair share, rounded down or up so that the quotas add up. Rounded up first for those
/// who already hold more than their share rounded down: every other choice would move more.
fn set_quotas(loads: &mut [InstanceLoad<'_>], endpoints: usize, total: u64) {
    let endpoints = endpoints as u128;
    let total = u128::from(total);
    let share = |weight: u64| endpoints * u128::from(weight);
    let mut open = endpoints;
    for seat in loads.iter_mut() {
        let floor = share(seat.weight) / total;
        open -= floor;
        seat.quota = usize::try_from(floor).unwrap_or(usize::MAX);
    }
    let mut rest: Vec<usize> =
        (0..loads.len()).filter(|it| share(loads[*it].weight) % total > 0).collect();
    rest.sort_by_key(|it| {
        let seat = &loads[*it];
        // An instance that holds more than that may hold any number more: leases are on their way, and the choice
        // must not change with each of them.
        let (remainder, held) = (share(seat.weight) % total, seat.held.min(seat.quota + 1));
        (Reverse(held > seat.quota), Reverse(remainder), Reverse(held), Reverse(seat.hash), *it)
    });
    for index in rest.into_iter().take(usize::try_from(open).unwrap_or(usize::MAX)) {
        loads[index].quota += 1;
    }
}

/// Everything that needs another owner, and who that is: the most preferred with room.
fn moves<'a>(view: &'a View, loads: &[InstanceLoad<'_>]) -> Vec<Move<'a>> {
    let mut homeless = homeless(view, loads);
    // Room goes to who comes first, so everybody has to take them in the same order.
    homeless.sort_unstable_by_key(|(hash, slot)| (*hash, &slot.id));
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
    homeless.into_iter().map(give).collect()
}

/// What nobody alive has, and what its owner has above its quota, the least preferred first to go.
fn homeless<'a>(view: &'a View, loads: &[InstanceLoad<'_>]) -> Vec<(u64, &'a EndpointSlot)> {
    let mut homeless = Vec::new();
    let mut crowded: Vec<Vec<(Reverse<u64>, &EndpointSlot)>> = vec![Vec::new(); loads.len()];
    for slot in view.slots() {
        match view.owner_of(slot).and_then(|it| it.seat) {
            None => homeless.push((slot.hash, slot)),
            Some(index) if loads[index].held > loads[index].quota => {
                crowded[index].push((Reverse(affinity(loads[index].hash, slot.hash)), slot));
            }
            Some(_) => (),
        }
    }
    for (seat, mut held) in loads.iter().zip(crowded).filter(|it| !it.1.is_empty()) {
        held.select_nth_unstable_by(seat.quota, |a, b| (a.0, &a.1.id).cmp(&(b.0, &b.1.id)));
        homeless.extend(held.drain(seat.quota..).map(|it| (it.1.hash, it.1)));
    }
    homeless
}

impl View {
    /// Whether `me` is the most preferred live instance of weight > 0 other than the owner of `endpoint`:
    /// the one that is to notice when it becomes free.
    pub fn watches(&self, me: &InstanceId, endpoint: &EndpointId) -> bool {
        let (Some(me), Some(slot)) = (self.known(me), self.slot(endpoint)) else { return false };
        self.is_next(me, slot)
    }

    /// Walks the view in a circle, up to `count` endpoints on from `cursor`. Those with a live owner other
    /// than `me` for which `me` is the most preferred of all other live instances of weight > 0.
    pub fn watched(&self, me: &InstanceId, cursor: &mut usize, count: usize) -> Vec<EndpointId> {
        let Some(me) = self.known(me) else { return Vec::new() };
        let owned = |slot: &&EndpointSlot| self.owner_of(slot).is_some_and(|it| it.seat.is_some());
        let walk = (0..count.min(self.len())).filter_map(|_| self.next_slot(cursor));
        let watched = walk.filter(owned).filter(|it| self.is_next(me, it));
        watched.map(|it| it.id.clone()).collect()
    }

    fn is_next(&self, me: &KnownInstance, slot: &EndpointSlot) -> bool {
        let owner = self.owner_of(slot).and_then(|it| it.seat);
        let wants = |it: &KnownInstance| (affinity(it.hash, slot.hash), it.seat);
        let may = |it: &KnownInstance| it.seat.is_some() && it.weight.0 > 0 && it.seat != owner;
        may(me) && !self.live().any(|it| may(it) && wants(it) > wants(me))
    }
}

#[cfg(test)]
mod tests;
