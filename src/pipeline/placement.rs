//! 2 — Who should own which endpoint? A pure function of what was seen.
//!
//! Rendezvous hashing (FR-013) gives each endpoint an order of preference; quotas make the counts
//! even, which hashing alone cannot (US4.1). Owners keep what is within their quota, so that a join or
//! a leave moves only what it must. Nothing here acts: every instance computes the plan and does its
//! own part, by asking (R8).

use std::cmp::Reverse;
use std::hash::Hasher;

use fnv::{FnvHashMap, FnvHasher};

use crate::model::{EndpointId, InstanceId, Weight};

/// What was seen: who is alive, what there is to poll, and who has it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Live instances with their weights.
    pub instances: Vec<(InstanceId, Weight)>,
    /// Everything that is to be polled.
    pub endpoints: Vec<EndpointId>,
    /// Owners as stored, alive or not.
    pub owners: FnvHashMap<EndpointId, InstanceId>,
}

/// What one instance should do about a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Mine, and nobody alive has it: take it.
    pub acquire: Vec<EndpointId>,
    /// Mine, but this owner has it: ask.
    pub ask: Vec<(InstanceId, EndpointId)>,
    /// Another's, and nobody alive has it: take it if the heir does not come; with my rank.
    pub fallback: Vec<(EndpointId, u32)>,
    /// Held by me, another's by plan: give it when asked.
    pub heirs: FnvHashMap<EndpointId, InstanceId>,
    /// No instance may be given anything.
    pub nobody: bool,
}

/// FNV-1a of a name, fed as bytes (a `str`'s own hash would add one).
fn fnv1a(text: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// How much `instance` wants `endpoint`. FNV alone leaves the high bits nearly equal for ids such as
/// `session-1`, `session-2`, which would give them all to one instance; the finalizer mixes them.
fn affinity(instance: u64, endpoint: u64) -> u64 {
    let mut mixed = instance ^ endpoint;
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

/// A number in `0..span` that is the same everywhere for the same text: jitter that repeats.
pub fn spread(text: &str, span: u64) -> u64 {
    affinity(fnv1a(text), 0) % span.max(1)
}

/// The instances in the order in which they should own `endpoint` (FR-013).
pub fn preference<'a>(endpoint: &EndpointId, instances: &'a [InstanceId]) -> Vec<&'a InstanceId> {
    let hash = fnv1a(endpoint.as_str());
    let mut order: Vec<&InstanceId> = instances.iter().collect();
    order.sort_by_key(|it| (Reverse(affinity(fnv1a(it.as_str()), hash)), *it));
    order
}

/// An instance while the plan is made.
struct Seat<'a> {
    id: &'a InstanceId,
    weight: u64,
    hash: u64,
    quota: usize,
    held: Vec<usize>,
}

/// Who should own each endpoint of the view, in its order; `None` where nobody may be given it.
pub fn assign(view: &View) -> Vec<Option<InstanceId>> {
    let mut seats = seats(view);
    let hashes: Vec<u64> = view.endpoints.iter().map(|it| fnv1a(it.as_str())).collect();
    let mut assigned: Vec<Option<usize>> = vec![None; view.endpoints.len()];
    let total: u64 = seats.iter().map(|it| it.weight).sum();
    if total > 0 {
        set_quotas(&mut seats, view.endpoints.len(), total);
    } else {
        // Nobody may be given anything, so everybody keeps what it has.
        seats.iter_mut().for_each(|it| it.quota = it.held.len());
    }
    for (index, seat) in seats.iter_mut().enumerate() {
        let mut held = std::mem::take(&mut seat.held);
        held.sort_unstable_by_key(|it| (Reverse(affinity(seat.hash, hashes[*it])), *it));
        held.truncate(seat.quota);
        seat.quota -= held.len();
        held.into_iter().for_each(|it| assigned[it] = Some(index));
    }
    for endpoint in 0..assigned.len() {
        if assigned[endpoint].is_none() {
            let open = seats.iter().enumerate().filter(|it| it.1.quota > 0);
            let best = open.max_by_key(|it| (affinity(it.1.hash, hashes[endpoint]), it.1.id));
            if let Some(index) = best.map(|it| it.0) {
                seats[index].quota -= 1;
                assigned[endpoint] = Some(index);
            }
        }
    }
    assigned.into_iter().map(|it| it.map(|index| seats[index].id.clone())).collect()
}

fn seats(view: &View) -> Vec<Seat<'_>> {
    let mut seats: Vec<Seat<'_>> = view
        .instances
        .iter()
        .map(|(id, weight)| Seat {
            id,
            weight: weight.0.into(),
            hash: fnv1a(id.as_str()),
            quota: 0,
            held: Vec::new(),
        })
        .collect();
    seats.sort_by_key(|it| it.id);
    seats.dedup_by_key(|it| it.id);
    let index: FnvHashMap<&InstanceId, usize> =
        seats.iter().enumerate().map(|(index, it)| (it.id, index)).collect();
    for (position, endpoint) in view.endpoints.iter().enumerate() {
        if let Some(index) = view.owners.get(endpoint).and_then(|it| index.get(it)) {
            seats[*index].held.push(position);
        }
    }
    seats
}

/// The weighted fair share, rounded down or up so that the quotas add up. Rounded up first for those
/// who already hold more than their share rounded down: every other choice would move more.
fn set_quotas(seats: &mut [Seat<'_>], endpoints: usize, total: u64) {
    let endpoints = endpoints as u128;
    let total = u128::from(total);
    let share = |weight: u64| endpoints * u128::from(weight);
    let mut open = endpoints;
    for seat in seats.iter_mut() {
        let floor = share(seat.weight) / total;
        open -= floor;
        seat.quota = usize::try_from(floor).unwrap_or(usize::MAX);
    }
    let mut rest: Vec<usize> =
        (0..seats.len()).filter(|it| share(seats[*it].weight) % total > 0).collect();
    rest.sort_by_key(|it| {
        let seat = &seats[*it];
        let remainder = share(seat.weight) % total;
        let held = seat.held.len();
        (Reverse(held > seat.quota), Reverse(remainder), Reverse(held), Reverse(seat.hash), *it)
    });
    for index in rest.into_iter().take(usize::try_from(open).unwrap_or(usize::MAX)) {
        seats[index].quota += 1;
    }
}

/// What `me` should do about `view`.
pub fn plan(view: &View, me: &InstanceId) -> Plan {
    let mut plan = Plan { nobody: view.instances.iter().all(|it| it.1.0 == 0), ..Plan::default() };
    let Some((_, my_weight)) = view.instances.iter().find(|it| it.0 == *me) else { return plan };
    let live: FnvHashMap<&InstanceId, Weight> =
        view.instances.iter().map(|(id, weight)| (id, *weight)).collect();
    for (endpoint, heir) in view.endpoints.iter().zip(assign(view)) {
        let owner = view.owners.get(endpoint).filter(|it| live.contains_key(it));
        let Some(heir) = heir else { continue };
        match owner {
            Some(owner) if owner == me && heir != *me => {
                plan.heirs.insert(endpoint.clone(), heir);
            }
            Some(owner) if heir == *me && owner != me => {
                plan.ask.push((owner.clone(), endpoint.clone()));
            }
            None if heir == *me => plan.acquire.push(endpoint.clone()),
            None if my_weight.0 > 0 => {
                plan.fallback.push((endpoint.clone(), rank(endpoint, me, &heir, &live)));
            }
            _ => (),
        }
    }
    plan
}

/// How many instances that may take it, other than the heir, are preferred to `me`.
fn rank(
    endpoint: &EndpointId,
    me: &InstanceId,
    heir: &InstanceId,
    live: &FnvHashMap<&InstanceId, Weight>,
) -> u32 {
    let hash = fnv1a(endpoint.as_str());
    let wants = |it: &InstanceId| affinity(fnv1a(it.as_str()), hash);
    let mine = (wants(me), me);
    let ahead = live.iter().filter(|(id, weight)| {
        weight.0 > 0 && **id != heir && **id != me && (wants(id), **id) > mine
    });
    u32::try_from(ahead.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(n: usize) -> Vec<(InstanceId, Weight)> {
        (0..n).map(|it| (InstanceId::new(&format!("vm{it}-17{it}-abc{it}")), Weight(1))).collect()
    }

    fn endpoints(n: usize) -> Vec<EndpointId> {
        (0..n).map(|it| EndpointId::parse(&format!("session-{it}")).unwrap()).collect()
    }

    fn settle(view: &mut View) -> usize {
        let assigned = assign(view);
        let mut moves = 0;
        for (endpoint, owner) in view.endpoints.clone().into_iter().zip(assigned) {
            let owner = owner.unwrap();
            let before = view.owners.insert(endpoint, owner.clone());
            moves += usize::from(before != Some(owner));
        }
        moves
    }

    fn counts(view: &View) -> Vec<usize> {
        view.instances
            .iter()
            .map(|(id, _)| view.owners.values().filter(|it| *it == id).count())
            .collect()
    }

    /// US4.1, SC-004, FR-013: also on the ids that plain FNV-1a gives to one instance.
    #[test]
    fn counts_differ_by_at_most_one_whatever_the_ids() {
        for n in 1..12 {
            for m in [0, 1, 7, 9, 100, 1_001] {
                let mut view =
                    View { instances: fleet(n), endpoints: endpoints(m), ..View::default() };
                settle(&mut view);
                let counts = counts(&view);
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 1, "{m} endpoints on {n} instances: {counts:?}");
            }
        }
    }

    /// G6: a settled fleet stays as it is.
    #[test]
    fn a_settled_fleet_moves_nothing() {
        let mut view = View { instances: fleet(7), endpoints: endpoints(100), ..View::default() };
        settle(&mut view);
        assert_eq!(settle(&mut view), 0);
    }

    /// US4.2, G6: the newcomer gets its share and nothing else moves.
    #[test]
    fn a_join_moves_just_what_the_newcomer_gets() {
        let mut view = View { instances: fleet(2), endpoints: endpoints(10), ..View::default() };
        settle(&mut view);
        view.instances = fleet(3);
        let moved = settle(&mut view);
        assert_eq!(moved, 3, "{:?}", counts(&view));
    }

    /// G6: what a leaver had is shared out and nothing else moves.
    #[test]
    fn a_leave_moves_just_what_the_leaver_had() {
        let mut view = View { instances: fleet(5), endpoints: endpoints(102), ..View::default() };
        settle(&mut view);
        let had = *counts(&view).last().unwrap();
        view.instances.pop();
        assert_eq!(settle(&mut view), had);
    }

    #[test]
    fn a_weight_is_a_share_and_zero_is_none() {
        let mut view = View { instances: fleet(3), endpoints: endpoints(100), ..View::default() };
        view.instances[0].1 = Weight(3);
        view.instances[2].1 = Weight(0);
        settle(&mut view);
        assert_eq!(counts(&view), [75, 25, 0]);
    }

    #[test]
    fn when_every_weight_is_zero_everybody_keeps_what_it_has_and_nothing_is_given() {
        let mut view = View { instances: fleet(2), endpoints: endpoints(4), ..View::default() };
        view.owners.insert(view.endpoints[0].clone(), view.instances[0].0.clone());
        view.instances.iter_mut().for_each(|it| it.1 = Weight(0));
        let assigned = assign(&view);
        assert_eq!(assigned[0].as_ref(), Some(&view.instances[0].0));
        assert!(assigned[1..].iter().all(Option::is_none));
        let plan = plan(&view, &view.instances[1].0);
        assert!(plan.nobody && plan.acquire.is_empty() && plan.fallback.is_empty());
    }

    /// R8: the plan of each says only what that one should do, and together they cover everything.
    #[test]
    fn the_plans_of_all_instances_fit_together() {
        let mut view = View { instances: fleet(3), endpoints: endpoints(30), ..View::default() };
        settle(&mut view);
        view.instances = fleet(4);
        let newcomer = view.instances[3].0.clone();
        let wanted = plan(&view, &newcomer).ask;
        assert_eq!(wanted.len(), 7);
        for (owner, endpoint) in wanted {
            assert_eq!(plan(&view, &owner).heirs.get(&endpoint), Some(&newcomer));
        }
    }

    /// FR-014: the heir takes it, the others wait their turn, and no two have the same.
    #[test]
    fn a_free_endpoint_has_one_heir_and_everybody_else_a_different_rank() {
        let view = View { instances: fleet(5), endpoints: endpoints(1), ..View::default() };
        let plans: Vec<Plan> = view.instances.iter().map(|it| plan(&view, &it.0)).collect();
        assert_eq!(plans.iter().filter(|it| it.acquire.len() == 1).count(), 1);
        let mut ranks: Vec<u32> = plans.iter().flat_map(|it| &it.fallback).map(|it| it.1).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1, 2, 3]);
    }

    #[test]
    fn who_is_not_seen_alive_plans_nothing() {
        let view = View { instances: fleet(2), endpoints: endpoints(3), ..View::default() };
        let stranger = plan(&view, &InstanceId::new("nobody"));
        assert!(stranger.acquire.is_empty() && stranger.fallback.is_empty());
    }

    /// Repeats for a seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 >> 11).unwrap() % n
        }
    }

    /// A fleet of any size, weights from 0 to 10, any ownership to begin with, the dead among it.
    fn any_view(random: &mut Random) -> View {
        let mut instances = fleet(1 + random.below(20));
        for instance in &mut instances {
            let weight = u32::try_from(random.below(11)).unwrap();
            instance.1 = if random.below(2) == 0 { Weight(1) } else { Weight(weight) };
        }
        instances[0].1 = Weight(1); // somebody may be given something
        let endpoints = endpoints(random.below(300));
        let mut owners = FnvHashMap::default();
        for endpoint in &endpoints {
            match random.below(4) {
                0 => (),
                1 => drop(owners.insert(endpoint.clone(), InstanceId::new("dead"))),
                _ => {
                    let owner = instances[random.below(instances.len())].0.clone();
                    owners.insert(endpoint.clone(), owner);
                }
            }
        }
        View { instances, endpoints, owners }
    }

    /// The fair share of each, rounded down, and whether there is a rest.
    fn shares(view: &View) -> Vec<(usize, bool)> {
        let total: usize = view.instances.iter().map(|it| it.1.0 as usize).sum();
        let share = |weight: usize| view.endpoints.len() * weight;
        let it = view.instances.iter().map(|it| it.1.0 as usize);
        it.map(|it| (share(it) / total, share(it) % total > 0)).collect()
    }

    /// The fewest moves after which every count is the fair share rounded down or up.
    fn fewest_moves(view: &View) -> usize {
        let (shares, counts) = (shares(view), counts(view));
        let both = || shares.iter().zip(&counts);
        let floors: usize = shares.iter().map(|it| it.0).sum();
        let lacking: usize = both().map(|(share, held)| share.0.saturating_sub(*held)).sum();
        let roundable = both().filter(|(share, held)| share.1 && **held > share.0).count();
        lacking + (view.endpoints.len() - floors).saturating_sub(roundable)
    }

    /// G5, G6: from anything to balance with the fewest moves, and then never another.
    #[test]
    fn any_fleet_settles_in_balance_with_the_fewest_moves() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for round in 0..2_000 {
            let mut view = any_view(&mut random);
            let fewest = fewest_moves(&view);
            assert_eq!(settle(&mut view), fewest, "round {round}");
            for ((floor, rest), count) in shares(&view).into_iter().zip(counts(&view)) {
                let fair = count == floor || (rest && count == floor + 1);
                assert!(fair, "round {round}: {count} instead of {floor}, rest {rest}");
            }
            assert_eq!(settle(&mut view), 0, "round {round}: a settled fleet moved");
        }
    }

    /// G6: one instance or one endpoint more or less, on a settled fleet.
    #[test]
    fn a_change_to_a_settled_fleet_costs_the_fewest_moves() {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        for round in 0..2_000 {
            let mut view = any_view(&mut random);
            settle(&mut view);
            match random.below(4) {
                0 => view.instances.push((InstanceId::new("newcomer"), Weight(1))),
                1 if view.instances.len() > 1 => drop(view.instances.pop()),
                2 => view.endpoints.push(EndpointId::parse("one-more").unwrap()),
                _ => {
                    if let Some(gone) = view.endpoints.pop() {
                        view.owners.remove(&gone);
                    }
                }
            }
            let fewest = fewest_moves(&view);
            assert_eq!(settle(&mut view), fewest, "round {round}");
        }
    }
}
