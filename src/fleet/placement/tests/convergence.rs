//! Does a fleet converge if each instance has a late view of its own, and leases move only on request (R8)?

use std::collections::BTreeMap;

use crate::fleet::placement::{Fallback, Plan, assign, plan};
use crate::fleet::view::View;
use crate::fleet::view::testing::{Facts, Random, instance, uuid, weight};
use crate::model::{EndpointId, InstanceId, Weight};

/// Every instance knows of a change after this many rounds; some at once.
const LATE_MAX: usize = 4;
/// A free endpoint is left to its heir for this many rounds, and to each instance before us in the order for as many again.
const FALLBACK_STEP: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Fine,
    /// Counts as alive, and does nothing.
    Hung,
    /// Acts on what it once saw.
    Blind,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Live,
    Endpoint(EndpointId),
}

struct Actor {
    mood: Mood,
    view: View,
    plan: Option<Plan>,
    /// What it will look at, and when.
    news: BTreeMap<News, usize>,
    free_since: BTreeMap<EndpointId, usize>,
}

impl Actor {
    fn saw(&mut self, endpoint: &EndpointId, owner: Option<&InstanceId>) {
        if self.view.set_owner(endpoint, owner) {
            self.plan = None;
        }
    }

    /// Takes in what it should know by now, as it is now.
    fn look(&mut self, facts: &Facts, round: usize) {
        if self.mood != Mood::Fine {
            return;
        }
        let due = self.news.iter().filter(|it| *it.1 <= round).map(|it| it.0.clone());
        for news in due.collect::<Vec<_>>() {
            self.news.remove(&news);
            self.plan = None;
            match news {
                News::Live => {
                    self.view.set_instances(&facts.instances());
                }
                News::Endpoint(it) => match facts.owners.get(&it) {
                    Some(owner) => {
                        self.view.add(&it);
                        self.view.set_owner(&it, owner.as_ref());
                    }
                    None => {
                        self.view.remove(&it);
                    }
                },
            }
        }
    }

    fn plan(&mut self, me: &InstanceId) -> &Plan {
        self.plan.get_or_insert_with(|| plan(&self.view, me))
    }

    /// What it would take now.
    fn wanted(&mut self, me: &InstanceId, round: usize) -> Vec<EndpointId> {
        let plan = self.plan(me).clone();
        let since = |it: &EndpointId| self.free_since.get(it).copied().unwrap_or(round);
        let waits = |it: &Fallback| (it.endpoint.clone(), since(&it.endpoint));
        self.free_since = plan.fallback.iter().map(waits).collect();
        let overdue = plan.fallback.into_iter().filter(|it| {
            round >= self.free_since[&it.endpoint] + FALLBACK_STEP * (1 + it.rank as usize)
        });
        plan.acquire.into_iter().chain(overdue.map(|it| it.endpoint)).collect()
    }
}

struct World {
    random: Random,
    facts: Facts,
    actors: BTreeMap<InstanceId, Actor>,
    round: usize,
    moves: usize,
}

impl World {
    /// Every instance has a view of its own.
    fn any(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let facts = Facts::any(&mut random, 12, 80);
        let ids: Vec<InstanceId> = facts.live.keys().cloned().collect();
        let mut world = Self { random, facts, actors: BTreeMap::new(), round: 0, moves: 0 };
        ids.iter().for_each(|it| world.enter(it));
        world
    }

    /// A newcomer, who has seen some of it.
    fn enter(&mut self, me: &InstanceId) {
        let mut seen = self.facts.clone();
        let ids: Vec<InstanceId> = seen.live.keys().cloned().collect();
        seen.live.retain(|it, _| it == me || !self.random.one_in(4));
        seen.owners.retain(|_, _| !self.random.one_in(5));
        for owner in seen.owners.values_mut().filter(|it| it.as_ref() != Some(me)) {
            if self.random.one_in(4) {
                *owner = Some(ids[self.random.below(ids.len())].clone()).filter(|it| it != me);
            }
        }
        let (mood, view) = (Mood::Fine, seen.view());
        let (plan, news, free_since) = (None, BTreeMap::new(), BTreeMap::new());
        let mut actor = Actor { mood, view, plan, news, free_since };
        for endpoint in self.facts.owners.keys() {
            let when = self.round + self.random.below(LATE_MAX + 1);
            actor.news.insert(News::Endpoint(endpoint.clone()), when);
        }
        actor.news.insert(News::Live, self.round + self.random.below(LATE_MAX + 1));
        self.actors.insert(me.clone(), actor);
    }

    /// Some instances learn it at once, all of them in time.
    fn tell(&mut self, news: &News) {
        for actor in self.actors.values_mut() {
            let late = if self.random.one_in(2) { 0 } else { 1 + self.random.below(LATE_MAX) };
            let when = actor.news.entry(news.clone()).or_insert(usize::MAX);
            *when = (*when).min(self.round + late);
        }
    }

    fn moved(&mut self, endpoint: &EndpointId, to: &InstanceId) {
        self.facts.owners.insert(endpoint.clone(), Some(to.clone()));
        self.actors.get_mut(to).unwrap().saw(endpoint, Some(to));
        self.moves += 1;
        self.tell(&News::Endpoint(endpoint.clone()));
    }

    fn step(&mut self, me: &InstanceId) {
        let round = self.round;
        let actor = self.actors.get_mut(me).unwrap();
        if actor.mood == Mood::Hung {
            return;
        }
        actor.look(&self.facts, round);
        let (wanted, asks) = (actor.wanted(me, round), actor.plan(me).ask.clone());
        for endpoint in wanted {
            match self.facts.live_owner(&endpoint).cloned() {
                _ if !self.facts.owners.contains_key(&endpoint) => (),
                None => self.moved(&endpoint, me),
                // The store says who has it.
                owner => self.actors.get_mut(me).unwrap().saw(&endpoint, owner.as_ref()),
            }
        }
        for (owner, endpoint) in asks {
            let owns = self.facts.live_owner(&endpoint) == Some(&owner);
            let Some(asked) = self.actors.get_mut(&owner).filter(|it| it.mood != Mood::Hung) else {
                continue;
            };
            if owns && asked.plan(&owner).heirs.get(&endpoint) == Some(me) {
                asked.saw(&endpoint, None);
                self.moved(&endpoint, me);
            }
        }
    }

    fn rounds(&mut self, n: usize) {
        for _ in 0..n {
            let mut order: Vec<InstanceId> = self.actors.keys().cloned().collect();
            self.random.shuffle(&mut order);
            order.iter().for_each(|it| self.step(it));
            self.round += 1;
        }
    }

    fn any_instance(&mut self) -> InstanceId {
        self.facts.live.keys().nth(self.random.below(self.facts.live.len())).unwrap().clone()
    }

    fn join(&mut self) -> InstanceId {
        let id = instance(&mut self.random, 200 + self.round);
        self.facts.live.insert(id.clone(), Weight(1));
        self.enter(&id);
        id
    }

    /// Something happens to the fleet.
    fn happens(&mut self) {
        match self.random.below(9) {
            0 => drop(self.join()),
            1 => (0..2 + self.random.below(4)).for_each(|_| drop(self.join())),
            2 | 3 if self.facts.live.len() > 1 => {
                let gone = self.any_instance();
                self.facts.live.remove(&gone);
                self.actors.remove(&gone);
            }
            4 => {
                let (instance, weight) = (self.any_instance(), weight(&mut self.random));
                self.facts.live.insert(instance, weight);
            }
            5 => {
                let endpoint = uuid(&mut self.random, 0);
                self.facts.owners.insert(endpoint.clone(), None);
                self.tell(&News::Endpoint(endpoint));
            }
            6 if !self.facts.owners.is_empty() => {
                let at = self.random.below(self.facts.owners.len());
                let endpoint = self.facts.owners.keys().nth(at).unwrap().clone();
                self.facts.owners.remove(&endpoint);
                self.tell(&News::Endpoint(endpoint));
            }
            _ => {
                let mood = [Mood::Fine, Mood::Hung, Mood::Blind][self.random.below(3)];
                let chosen = self.any_instance();
                self.actors.get_mut(&chosen).unwrap().mood = mood;
            }
        }
        self.tell(&News::Live);
    }

    /// A fleet to which much has happened, and to which nothing happens any more.
    fn after_a_storm(seed: u64) -> Self {
        let mut world = Self::any(seed);
        for _ in 0..20 {
            if world.random.one_in(3) {
                world.happens();
            }
            world.rounds(1);
        }
        (0..4).for_each(|_| world.happens()); // and at last much at once
        world
    }

    fn heal(&mut self, ill: Mood) {
        let ill = self.actors.values_mut().filter(|it| it.mood == ill);
        ill.for_each(|it| it.mood = Mood::Fine);
    }

    /// Every instance has just seen everything.
    fn agree(&mut self) {
        for actor in self.actors.values_mut() {
            (actor.view, actor.plan) = (self.facts.view(), None);
            actor.news.clear();
            actor.free_since.clear();
        }
    }

    /// How many leases move in `n` rounds.
    fn moves_in(&mut self, n: usize) -> usize {
        let before = self.moves;
        self.rounds(n);
        self.moves - before
    }

    fn is_able(&self, id: &InstanceId) -> bool {
        self.actors[id].mood == Mood::Fine
    }
}

/// Every instance owns what it should, or every weight is 0.
fn assert_balance(facts: &Facts, seed: u64) {
    if !facts.all_draining() {
        for (least, most, count) in facts.shares() {
            assert!((least..=most).contains(&count), "seed {seed}: {count}, not {least} or {most}");
        }
    }
}

/// G5: whatever went wrong, balance is back three delays after it ended, and then nothing moves any more.
#[test]
fn views_that_differ_come_to_rest_in_balance() {
    for seed in 0..120 {
        let mut world = World::after_a_storm(seed);
        world.heal(Mood::Blind);
        world.heal(Mood::Hung);
        world.rounds(3 * LATE_MAX);
        assert_balance(&world.facts, seed);
        assert_eq!(world.moves_in(3 * LATE_MAX), 0, "seed {seed}: moves in circles");
    }
}

/// G6: from a common view the fewest moves are made, although every instance learns late of each of them.
/// What one of them has not heard of yet may cost another move, but that is seldom.
#[test]
fn from_a_common_view_hardly_a_move_is_in_vain() {
    let (mut fewest_in_all, mut moves_in_all) = (0, 0);
    for seed in 0..120 {
        let mut world = World::after_a_storm(seed);
        world.heal(Mood::Blind);
        world.heal(Mood::Hung);
        world.agree();
        if world.facts.all_draining() {
            continue;
        }
        let fewest = world.facts.fewest_moves();
        let moves = world.moves_in(3 * LATE_MAX);
        assert!(moves <= 2 * fewest, "seed {seed}: {moves} moves instead of {fewest}");
        assert_balance(&world.facts, seed);
        (fewest_in_all, moves_in_all) = (fewest_in_all + fewest, moves_in_all + moves);
    }
    assert!(fewest_in_all > 500, "nothing was tried: {fewest_in_all}");
    assert!(moves_in_all * 100 <= fewest_in_all * 101, "{moves_in_all} instead of {fewest_in_all}");
}

/// R8: what an instance that hangs should be given stays where it is or falls to another, what it has stays
/// with it, and the others are in balance apart from that.
#[test]
fn only_what_concerns_those_who_hang_is_left_undone() {
    let mut left_undone = 0;
    for seed in 0..120 {
        let mut world = World::after_a_storm(seed);
        world.heal(Mood::Blind);
        let n_instances = world.actors.len();
        world.rounds(3 * LATE_MAX + FALLBACK_STEP * n_instances);
        for (endpoint, heir) in assign(&world.facts.view()) {
            let Some(heir) = heir else { continue };
            let owner = world.facts.live_owner(&endpoint);
            let concerned = [owner, Some(&heir)].into_iter().flatten();
            let hangs = concerned.clone().any(|it| !world.is_able(it));
            assert!(owner == Some(&heir) || hangs, "seed {seed}: {endpoint} stayed with {owner:?}");
            let taker = world.facts.live.iter().find(|it| it.1.0 > 0 && world.is_able(it.0));
            assert!(owner.is_some() || taker.is_none(), "seed {seed}: {endpoint} is free");
            left_undone += usize::from(owner != Some(&heir));
        }
        assert_eq!(world.moves_in(3 * LATE_MAX), 0, "seed {seed}: moves in circles");
    }
    assert!(left_undone > 100, "hardly anybody hung: {left_undone}");
}

/// R8: pushing leases at who hangs would move them in circles. Asking does not move one, also not when those
/// who hang have come new and should be given a share.
#[test]
fn who_hangs_moves_nothing_among_the_others() {
    for seed in 0..120 {
        let mut world = World::any(seed);
        world.facts.live.values_mut().for_each(|it| *it = Weight(1));
        world.agree();
        world.rounds(3 * LATE_MAX);
        let chosen = world.any_instance();
        world.actors.get_mut(&chosen).unwrap().mood = Mood::Hung;
        assert_eq!(world.moves_in(2 * LATE_MAX), 0, "seed {seed}: {chosen} hangs");
        let newcomer = world.join();
        world.actors.get_mut(&newcomer).unwrap().mood = Mood::Hung;
        world.tell(&News::Live);
        assert_eq!(world.moves_in(3 * LATE_MAX), 0, "seed {seed}: {newcomer} hangs");
    }
}
