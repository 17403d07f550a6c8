//! Properties of every plan, tried on thousands of random fleets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::fleet::placement::{Fallback, Plan, assign, plan, preference};
use crate::fleet::view::View;
use crate::fleet::view::testing::{Facts, Random, instance, uuid, weight};
use crate::model::{EndpointId, InstanceId, Weight};
use crate::model::{affinity, fnv1a};

type Assigned = BTreeMap<EndpointId, Option<InstanceId>>;

fn assigned(view: &View) -> Assigned {
    assign(view).into_iter().collect()
}

/// Everything goes where the plan wants it; how many moved.
fn settle(facts: &mut Facts) -> usize {
    let assigned = assigned(&facts.view());
    let moves = assigned.iter().filter(|it| facts.owners[it.0] != *it.1).count();
    facts.owners = assigned;
    moves
}

/// G5, G6: from anything to balance with the fewest moves, and then never another.
#[test]
fn any_fleet_settles_in_balance_with_the_fewest_moves() {
    for seed in 0..1_000 {
        let mut facts = Facts::any(&mut Random::new(seed), 50, 5_000);
        if facts.all_draining() {
            continue;
        }
        let fewest = facts.fewest_moves();
        assert_eq!(settle(&mut facts), fewest, "seed {seed}");
        for (least, most, count) in facts.shares() {
            assert!((least..=most).contains(&count), "seed {seed}: {count}, not {least} or {most}");
        }
        assert_eq!(settle(&mut facts), 0, "seed {seed}: a settled fleet moved");
    }
}

/// G6: one instance more, one less, another weight.
#[test]
fn a_join_and_a_leave_cost_the_fewest_moves() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed);
        let mut facts = Facts::any(&mut random, 50, 2_000);
        if facts.all_draining() {
            continue;
        }
        settle(&mut facts);
        let somebody = facts.live.keys().nth(random.below(facts.live.len())).unwrap().clone();
        match random.below(3) {
            0 => drop(facts.live.insert(instance(&mut random, 77), Weight(1))),
            1 => drop(facts.live.remove(&somebody)),
            _ => drop(facts.live.insert(somebody, weight(&mut random))),
        }
        if !facts.all_draining() {
            let fewest = facts.fewest_moves();
            assert_eq!(settle(&mut facts), fewest, "seed {seed}");
        }
    }
}

/// G6: where all weights are equal, a new endpoint is given to one instance and nothing else moves; a removed
/// endpoint moves at most one other, from an instance above its share to one below it.
#[test]
fn one_endpoint_more_or_less_hardly_moves_another() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed);
        let mut facts = Facts::any(&mut random, 50, 2_000);
        facts.live.values_mut().for_each(|it| *it = Weight(1));
        settle(&mut facts);
        let before = facts.clone();
        facts.owners.insert(uuid(&mut random, 0), None);
        assert_eq!(settle(&mut facts), 1, "seed {seed}: one more");
        facts = before;
        let gone = facts.owners.keys().nth(random.below(facts.owners.len().max(1))).cloned();
        gone.map(|it| facts.owners.remove(&it));
        let fewest = facts.fewest_moves();
        assert!(fewest <= 1, "seed {seed}");
        assert_eq!(settle(&mut facts), fewest, "seed {seed}: one less");
    }
}

/// The same decision, told plainly: everything sorted, nothing clever.
fn plainly(facts: &Facts) -> Assigned {
    let total: u64 = facts.live.values().map(|it| u64::from(it.0)).sum();
    let mut held: BTreeMap<&InstanceId, Vec<&EndpointId>> =
        facts.live.keys().map(|it| (it, Vec::new())).collect();
    for endpoint in facts.owners.keys() {
        if let Some(owner) = facts.live_owner(endpoint) {
            held.get_mut(owner).unwrap().push(endpoint);
        }
    }
    let mut quota: BTreeMap<&InstanceId, usize> =
        held.iter().map(|it| (*it.0, it.1.len())).collect();
    if total > 0 {
        let share = |id: &InstanceId| facts.owners.len() as u64 * u64::from(facts.live[id].0);
        quota.iter_mut().for_each(|it| *it.1 = usize::try_from(share(it.0) / total).unwrap());
        let mut rest: Vec<&InstanceId> = facts.live.keys().collect();
        rest.retain(|it| share(it) % total > 0);
        rest.sort_by_key(|it| {
            // One more or many more is the same here: leases may be on their way.
            let (has, hash) = (held[*it].len().min(quota[*it] + 1), fnv1a(it.as_str()));
            Reverse((has > quota[*it], share(it) % total, has, hash, Reverse(*it)))
        });
        let open = facts.owners.len() - quota.values().sum::<usize>();
        rest[..open].iter().for_each(|it| *quota.get_mut(it).unwrap() += 1);
    }
    let mut assigned: Assigned = facts.owners.keys().map(|it| (it.clone(), None)).collect();
    for (id, mut held) in held {
        let wants = |it: &EndpointId| affinity(fnv1a(id.as_str()), fnv1a(it.as_str()));
        held.sort_by_key(|it| (Reverse(wants(it)), *it));
        held.truncate(quota[id]);
        *quota.get_mut(id).unwrap() -= held.len();
        held.into_iter().for_each(|it| drop(assigned.insert(it.clone(), Some(id.clone()))));
    }
    let ids: Vec<InstanceId> = facts.live.keys().cloned().collect();
    let mut open: Vec<(&EndpointId, &mut Option<InstanceId>)> = assigned.iter_mut().collect();
    open.retain(|it| it.1.is_none());
    open.sort_by_key(|it| (fnv1a(it.0.as_str()), it.0));
    for (endpoint, heir) in open {
        *heir = preference(endpoint, &ids).into_iter().find(|it| quota[*it] > 0).cloned();
        if let Some(heir) = heir {
            *quota.get_mut(heir).unwrap() -= 1;
        }
    }
    assigned
}

#[test]
fn the_plan_is_the_one_that_was_described() {
    for seed in 0..1_000 {
        let facts = Facts::any(&mut Random::new(seed), 30, 300);
        assert_eq!(assigned(&facts.view()), plainly(&facts), "seed {seed}");
    }
}

/// What each instance should do for everything to go where `assigned` says.
fn expected(facts: &Facts, assigned: &Assigned) -> BTreeMap<InstanceId, Plan> {
    let empty = Plan { all_draining: facts.all_draining(), ..Plan::default() };
    let mut plans: BTreeMap<InstanceId, Plan> =
        facts.live.keys().map(|it| (it.clone(), empty.clone())).collect();
    let takers: Vec<InstanceId> =
        facts.live.iter().filter(|it| it.1.0 > 0).map(|it| it.0.clone()).collect();
    let mut order: Vec<&EndpointId> = assigned.keys().collect();
    order.sort_by_key(|it| (fnv1a(it.as_str()), *it));
    for endpoint in order {
        let Some(heir) = &assigned[endpoint] else { continue };
        let mut plan = |id: &InstanceId, tell: &dyn Fn(&mut Plan)| tell(plans.get_mut(id).unwrap());
        match facts.live_owner(endpoint) {
            Some(owner) if owner == heir => (),
            Some(owner) => {
                plan(owner, &|it| drop(it.heirs.insert(endpoint.clone(), heir.clone())));
                plan(heir, &|it| it.ask.push((owner.clone(), endpoint.clone())));
                for it in facts.live.keys().filter(|it| *it != owner && *it != heir) {
                    plan(it, &|it| it.others.extend([owner.clone(), heir.clone()]));
                }
            }
            None => {
                plan(heir, &|it| it.acquire.push(endpoint.clone()));
                let others = preference(endpoint, &takers).into_iter().filter(|it| *it != heir);
                for (rank, other) in (0..).zip(others) {
                    let (endpoint, heir) = (endpoint.clone(), heir.clone());
                    let fallback = Fallback { endpoint, rank, heir };
                    plan(other, &|it| it.fallback.push(fallback.clone()));
                }
            }
        }
    }
    plans
}

/// R8, FR-014: a lease that one instance requests, its owner releases. A free lease has one heir, and every other instance a
/// different rank.
#[test]
fn the_plans_of_all_fit_together() {
    for seed in 0..600 {
        let facts = Facts::any(&mut Random::new(seed), 20, 150);
        let view = facts.view();
        for (id, expected) in expected(&facts, &assigned(&view)) {
            assert_eq!(plan(&view, &id), expected, "seed {seed}: {id}");
        }
    }
}

/// Comes to know the same in another order, by way of much that is no longer true.
fn roundabout(facts: &Facts, random: &mut Random) -> View {
    let past = Facts::any(random, 20, 200);
    let mut gone: Vec<&EndpointId> = past.owners.keys().collect();
    gone.retain(|it| !facts.owners.contains_key(*it));
    let mut news: Vec<_> = facts.owners.iter().chain(&facts.owners).collect();
    random.shuffle(&mut gone);
    random.shuffle(&mut news);
    let mut view = past.view();
    for (endpoint, owner) in news {
        if random.one_in(3) {
            view.remove(endpoint);
        }
        if let Some(gone) = gone.pop() {
            view.remove(gone);
        }
        if random.one_in(10) {
            view.set_instances(&facts.instances());
        }
        view.add(endpoint);
        view.set_owner(endpoint, owner.as_ref());
    }
    for endpoint in gone {
        view.remove(endpoint);
    }
    view.set_instances(&facts.instances());
    view
}

/// Instances hear of things in different orders, and have to come to the same decision.
#[test]
fn the_order_in_which_things_became_known_does_not_matter() {
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let facts = Facts::any(&mut random, 50, 500);
        let (straight, roundabout) = (facts.view(), roundabout(&facts, &mut random));
        assert_eq!(assigned(&straight), assigned(&roundabout), "seed {seed}");
        let me = facts.live.keys().nth(random.below(facts.live.len())).unwrap();
        assert_eq!(plan(&straight, me), plan(&roundabout, me), "seed {seed}");
    }
}

/// R9: exactly one other instance watches each owned lease: the next in line for it.
#[test]
fn everything_owned_is_watched_by_the_next_in_line() {
    for seed in 0..600 {
        let facts = Facts::any(&mut Random::new(seed), 20, 150);
        let view = facts.view();
        let takers: Vec<InstanceId> =
            facts.live.iter().filter(|it| it.1.0 > 0).map(|it| it.0.clone()).collect();
        let mut watched: BTreeMap<EndpointId, InstanceId> = BTreeMap::new();
        for me in facts.live.keys() {
            for endpoint in view.next_in_line_for(me, &mut 0, usize::MAX) {
                assert!(view.is_next_in_line(me, &endpoint), "seed {seed}");
                assert_eq!(
                    watched.insert(endpoint, me.clone()),
                    None,
                    "seed {seed}: watched twice"
                );
            }
        }
        for endpoint in facts.owners.keys() {
            let owner = facts.live_owner(endpoint);
            let mut order = preference(endpoint, &takers).into_iter();
            let next = order.find(|it| Some(*it) != owner);
            let watchers = facts.live.keys().filter(|it| view.is_next_in_line(it, endpoint));
            assert!(watchers.eq(next), "seed {seed}: {endpoint}");
            assert_eq!(watched.get(endpoint), next.filter(|_| owner.is_some()), "seed {seed}");
        }
    }
}

/// Piece by piece, from anywhere, while others come and go: a round misses nothing that stays.
#[test]
fn a_walk_in_a_circle_misses_nothing() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let facts = Facts::any(&mut random, 5, 150);
        let mut view = facts.view();
        let me = facts.live.keys().next().unwrap();
        let stay: BTreeSet<EndpointId> =
            view.next_in_line_for(me, &mut 0, view.len()).into_iter().collect();
        let mut others: Vec<EndpointId> = (0..40).map(|it| uuid(&mut random, it)).collect();
        let (mut cursor, mut seen) = (random.below(1_000), BTreeSet::new());
        let mut left = view.len();
        while left > 0 {
            let other = others.swap_remove(random.below(others.len()));
            // What is added lengthens the round by one, also when it comes back.
            left += usize::from(view.add(&other) || !view.remove(&other));
            others.push(other);
            let piece = (1 + random.below(20)).min(left);
            seen.extend(view.next_in_line_for(me, &mut cursor, piece));
            left -= piece;
        }
        assert_eq!(seen, stay, "seed {seed}");
    }
}

#[test]
fn a_walk_through_nothing_ends() {
    let me = InstanceId::new("me");
    let mut view = View::default();
    view.set_instances(&[(me.clone(), Weight(1))]);
    assert!(view.next_in_line_for(&me, &mut 7, 100).is_empty());
    let gone = uuid(&mut Random::new(1), 0);
    view.add(&gone);
    view.remove(&gone);
    assert!(view.next_in_line_for(&me, &mut 7, 100).is_empty());
}
