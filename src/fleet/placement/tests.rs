//! Balance with the fewest moves: the cases a reader can check by hand.

/// Properties of every plan.
mod properties;
/// Properties of a fleet whose instances have different views.
mod convergence;

use crate::fleet::placement::{Plan, assign, plan};
use crate::fleet::view::View;
use crate::model::{EndpointId, InstanceId, Weight};

fn fleet(n: usize) -> Vec<(InstanceId, Weight)> {
    (0..n).map(|it| (InstanceId::new(&format!("vm{it}-17{it}-abc{it}")), Weight(1))).collect()
}

fn endpoint(n: usize) -> EndpointId {
    EndpointId::parse(&format!("session-{n}")).unwrap()
}

fn view(instances: usize, endpoints: usize) -> View {
    let mut view = View::default();
    view.set_instances(&fleet(instances));
    (0..endpoints).for_each(|it| assert!(view.add(&endpoint(it))));
    view
}

/// Everything goes where the plan wants it; how many moved.
fn settle(view: &mut View) -> usize {
    let assigned = assign(view);
    assigned.iter().filter(|(endpoint, heir)| view.set_owner(endpoint, heir.as_ref())).count()
}

fn settled(instances: usize, endpoints: usize) -> View {
    let mut view = view(instances, endpoints);
    settle(&mut view);
    view
}

fn counts(view: &View) -> Vec<usize> {
    view.instances().map(|it| view.owned_by(it.0).len()).collect()
}

/// US4.1, SC-004, FR-013: also on the ids that plain FNV-1a gives to one instance.
#[test]
fn counts_differ_by_at_most_one_whatever_the_ids() {
    for n in 1..12 {
        for m in [0, 1, 7, 9, 100, 1_001] {
            let counts = counts(&settled(n, m));
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1, "{m} endpoints on {n} instances: {counts:?}");
        }
    }
}

/// G6: a settled fleet stays as it is.
#[test]
fn a_settled_fleet_moves_nothing() {
    assert_eq!(settle(&mut settled(7, 100)), 0);
}

/// US4.2, G6: the newcomer gets its share and nothing else moves.
#[test]
fn a_join_moves_just_what_the_newcomer_gets() {
    let mut view = settled(2, 10);
    view.set_instances(&fleet(3));
    let moved = settle(&mut view);
    assert_eq!(moved, 3, "{:?}", counts(&view));
}

/// G6: leases move one by one, and every instance plans again after each. Found by simulation.
#[test]
fn a_join_moves_no_more_when_it_is_planned_anew_after_every_move() {
    for (before, endpoints, least) in [(4, 36, 7), (3, 30, 7), (5, 50, 8)] {
        let mut view = settled(before, endpoints);
        view.set_instances(&fleet(before + 1));
        let mut moved = 0;
        loop {
            let owners = fleet(before);
            // The one that holds most gives first, so that nobody stays ahead.
            let gives = |it: &InstanceId| plan(&view, it).heirs.into_iter().next();
            let most = owners.iter().filter(|it| gives(&it.0).is_some());
            let Some(giver) = most.max_by_key(|it| view.owned_by(&it.0).len()) else { break };
            let (endpoint, heir) = gives(&giver.0).unwrap();
            view.set_owner(&endpoint, Some(&heir));
            moved += 1;
        }
        assert_eq!(moved, least, "{endpoints} on {before} and one: {:?}", counts(&view));
    }
}

/// G6: what a leaver had is shared out and nothing else moves.
#[test]
fn a_leave_moves_just_what_the_leaver_had() {
    let mut view = settled(5, 102);
    let had = *counts(&view).last().unwrap();
    view.set_instances(&fleet(4));
    assert_eq!(settle(&mut view), had);
}

#[test]
fn a_weight_is_a_share_and_zero_is_none() {
    let mut view = view(0, 100);
    let mut fleet = fleet(3);
    (fleet[0].1, fleet[2].1) = (Weight(3), Weight(0));
    view.set_instances(&fleet);
    settle(&mut view);
    assert_eq!(counts(&view), [75, 25, 0]);
}

#[test]
fn when_every_weight_is_zero_everybody_keeps_what_it_has_and_nothing_is_given() {
    let mut view = view(0, 4);
    let mut fleet = fleet(2);
    fleet.iter_mut().for_each(|it| it.1 = Weight(0));
    view.set_instances(&fleet);
    view.set_owner(&endpoint(0), Some(&fleet[0].0));
    view.set_owner(&endpoint(1), Some(&InstanceId::new("dead")));
    for (it, heir) in assign(&view) {
        assert_eq!(heir.as_ref(), (it == endpoint(0)).then_some(&fleet[0].0));
    }
    let plan = plan(&view, &fleet[1].0);
    assert!(plan.all_draining && plan.acquire.is_empty() && plan.fallback.is_empty());
}

/// R8: each plan says only what its own instance should do, and all plans together cover everything.
#[test]
fn the_plans_of_all_instances_fit_together() {
    let mut view = settled(3, 30);
    view.set_instances(&fleet(4));
    let newcomer = fleet(4).remove(3).0;
    let wanted = plan(&view, &newcomer).ask;
    assert_eq!(wanted.len(), 7);
    for (owner, endpoint) in wanted {
        assert_eq!(plan(&view, &owner).heirs.get(&endpoint), Some(&newcomer));
    }
}

/// FR-014: the heir takes it, the others wait their turn, and no two have the same.
#[test]
fn a_free_endpoint_has_one_heir_and_everybody_else_a_different_rank() {
    let view = view(5, 1);
    let plans: Vec<Plan> = view.instances().map(|it| plan(&view, it.0)).collect();
    assert_eq!(plans.iter().filter(|it| it.acquire.len() == 1).count(), 1);
    let mut ranks: Vec<u32> = plans.iter().flat_map(|it| &it.fallback).map(|it| it.rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2, 3]);
}

#[test]
fn who_is_not_seen_alive_plans_nothing() {
    let stranger = plan(&view(2, 3), &InstanceId::new("nobody"));
    assert!(stranger.acquire.is_empty() && stranger.fallback.is_empty());
}
