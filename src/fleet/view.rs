//! What is known: who is alive, what there is to poll, and who has it.
//!
//! Kept up to date, never rebuilt, because a plan is made of it after every change. Endpoints sit in a flat
//! array and name their owner by a number, so that a plan is one pass that compares and copies no ids. Where
//! an endpoint sits differs between instances that know the same: nothing may be decided by it.

use fnv::FnvHashMap;

use crate::model::{EndpointId, InstanceId, Weight, fnv1a};

/// What is known: who is alive, what there is to poll, and who has it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// An endpoint stays where it is until it is removed, so that a walk in a circle misses none.
    slots: Vec<Option<EndpointSlot>>,
    holes: Vec<usize>,
    index: FnvHashMap<EndpointId, usize>,
    /// Who lives or owns something. An entry nobody needs any more is used for the next: instance ids are
    /// never reused, and a fleet that restarts every day would fill this for ever.
    known: Vec<KnownInstance>,
    unused: Vec<u32>,
    numbers: FnvHashMap<InstanceId, u32>,
    /// The live ones, sorted by id.
    live: Vec<u32>,
}

/// An endpoint, with all that a plan asks about it.
#[derive(Clone, Debug)]
pub(crate) struct EndpointSlot {
    pub(crate) id: EndpointId,
    pub(crate) hash: u64,
    owner: Option<u32>,
}

// A plan reads every one of them, and there may be millions.
const _: () = assert!(size_of::<Option<EndpointSlot>>() <= 32);

/// An instance that lives or owns something.
#[derive(Clone, Debug)]
pub(crate) struct KnownInstance {
    pub(crate) id: InstanceId,
    pub(crate) hash: u64,
    /// How many endpoints have it as their owner.
    pub(crate) owns: usize,
    /// Its place among the live ones; none when it is not alive.
    pub(crate) seat: Option<usize>,
    pub(crate) weight: Weight,
}

impl View {
    /// Replaces the live set; true when an id or a weight changed.
    pub fn set_instances(&mut self, live: &[(InstanceId, Weight)]) -> bool {
        let mut live: Vec<&(InstanceId, Weight)> = live.iter().collect();
        live.sort_unstable();
        live.dedup_by_key(|it| &it.0);
        if self.instances().eq(live.iter().map(|it| (&it.0, it.1))) {
            return false;
        }
        let before = std::mem::take(&mut self.live);
        before.iter().for_each(|it| self.known[*it as usize].seat = None);
        for (seat, (id, weight)) in live.into_iter().enumerate() {
            let number = self.number(id);
            let known = &mut self.known[number as usize];
            (known.seat, known.weight) = (Some(seat), *weight);
            self.live.push(number);
        }
        before.into_iter().for_each(|it| self.forget_if_unused(it));
        true
    }

    /// The live ones, sorted by id.
    pub fn instances(&self) -> impl Iterator<Item = (&InstanceId, Weight)> {
        self.live().map(|it| (&it.id, it.weight))
    }

    /// How many are alive.
    pub fn instance_count(&self) -> usize {
        self.live.len()
    }

    /// Whether `instance` is alive.
    pub fn is_live(&self, instance: &InstanceId) -> bool {
        self.weight(instance).is_some()
    }

    /// The share of `instance`; none when it is not alive.
    pub fn weight(&self, instance: &InstanceId) -> Option<Weight> {
        self.known(instance).filter(|it| it.seat.is_some()).map(|it| it.weight)
    }

    /// Adds an endpoint that nobody owns; false when it is already there.
    pub fn add(&mut self, endpoint: &EndpointId) -> bool {
        if self.contains(endpoint) {
            return false;
        }
        let hash = fnv1a(endpoint.as_str());
        let slot = Some(EndpointSlot { id: endpoint.clone(), hash, owner: None });
        let place = self.holes.pop().unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[place] = slot;
        }
        self.index.insert(endpoint.clone(), place);
        true
    }

    /// Removes an endpoint; false when it is not there.
    pub fn remove(&mut self, endpoint: &EndpointId) -> bool {
        self.set_owner(endpoint, None);
        let Some(place) = self.index.remove(endpoint) else { return false };
        self.slots[place] = None;
        self.holes.push(place);
        true
    }

    /// Whether `endpoint` is there.
    pub fn contains(&self, endpoint: &EndpointId) -> bool {
        self.index.contains_key(endpoint)
    }

    /// How many endpoints there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is nothing to poll.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Every endpoint, in any order.
    pub fn endpoints(&self) -> impl Iterator<Item = &EndpointId> {
        self.slots().map(|it| &it.id)
    }

    /// Where `endpoint` sits, as long as it is there.
    pub(crate) fn place(&self, endpoint: &EndpointId) -> Option<usize> {
        self.index.get(endpoint).copied()
    }

    /// How many places there are, taken or not.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// The endpoints from `place` on, at most `count`; `place` is then behind the last of them.
    pub(crate) fn page(&self, place: &mut usize, count: usize) -> Vec<EndpointId> {
        let mut page = Vec::new();
        while page.len() < count && *place < self.slots.len() {
            page.extend(self.slots[*place].iter().map(|it| it.id.clone()));
            *place += 1;
        }
        page
    }

    /// Notes who owns `endpoint`, alive or not. True when that is news; nothing for unknown endpoints.
    pub fn set_owner(&mut self, endpoint: &EndpointId, owner: Option<&InstanceId>) -> bool {
        let Some(place) = self.index.get(endpoint).copied() else { return false };
        if self.owner(endpoint) == owner {
            return false;
        }
        let after = owner.map(|it| self.number(it));
        let Some(slot) = &mut self.slots[place] else { return false };
        let before = std::mem::replace(&mut slot.owner, after);
        if let Some(number) = after {
            self.known[number as usize].owns += 1;
        }
        if let Some(number) = before {
            self.known[number as usize].owns -= 1;
            self.forget_if_unused(number);
        }
        true
    }

    /// Who owns `endpoint`, alive or not.
    pub fn owner(&self, endpoint: &EndpointId) -> Option<&InstanceId> {
        self.owner_of(self.slot(endpoint)?).map(|it| &it.id)
    }

    /// Whether no live instance owns `endpoint`.
    pub(crate) fn is_free(&self, endpoint: &EndpointId) -> bool {
        self.owner(endpoint).is_none_or(|it| !self.is_live(it))
    }

    /// Everything that `instance` owns.
    pub fn owned_by(&self, instance: &InstanceId) -> Vec<EndpointId> {
        let Some(number) = self.numbers.get(instance) else { return Vec::new() };
        let owned = self.slots().filter(|it| it.owner.as_ref() == Some(number));
        owned.map(|it| it.id.clone()).collect()
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &EndpointSlot> {
        self.slots.iter().flatten()
    }

    pub(crate) fn slot(&self, endpoint: &EndpointId) -> Option<&EndpointSlot> {
        self.slots[*self.index.get(endpoint)?].as_ref()
    }

    /// The next endpoint after `cursor`, which wraps around.
    pub(crate) fn next_slot(&self, cursor: &mut usize) -> Option<&EndpointSlot> {
        (0..self.slots.len()).find_map(|_| {
            let place = *cursor % self.slots.len();
            *cursor = place + 1;
            self.slots[place].as_ref()
        })
    }

    pub(crate) fn owner_of(&self, slot: &EndpointSlot) -> Option<&KnownInstance> {
        slot.owner.map(|it| &self.known[it as usize])
    }

    pub(crate) fn known(&self, instance: &InstanceId) -> Option<&KnownInstance> {
        self.numbers.get(instance).map(|it| &self.known[*it as usize])
    }

    /// The live ones, sorted by id.
    pub(crate) fn live(&self) -> impl Iterator<Item = &KnownInstance> {
        self.live.iter().map(|it| &self.known[*it as usize])
    }

    /// The number of `instance`, a new one if need be.
    fn number(&mut self, instance: &InstanceId) -> u32 {
        if let Some(number) = self.numbers.get(instance) {
            return *number;
        }
        let hash = fnv1a(instance.as_str());
        let known =
            KnownInstance { id: instance.clone(), hash, owns: 0, seat: None, weight: Weight(0) };
        let number = match self.unused.pop() {
            Some(number) => {
                self.known[number as usize] = known;
                number
            }
            None => {
                self.known.push(known);
                u32::try_from(self.known.len() - 1).expect("fewer instances than 2^32")
            }
        };
        self.numbers.insert(instance.clone(), number);
        number
    }

    fn forget_if_unused(&mut self, number: u32) {
        let known = &self.known[number as usize];
        if known.seat.is_none() && known.owns == 0 {
            self.numbers.remove(&known.id);
            self.unused.push(number);
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::fleet::view::testing::{Facts, Random, instance, sequential, weight};

    /// Everything that can be asked, against what is the case.
    fn check(view: &View, facts: &Facts, seed: u64) {
        assert!(view.instances().map(|it| (it.0.clone(), it.1)).eq(facts.instances()), "{seed}");
        assert_eq!(view.instance_count(), facts.live.len(), "seed {seed}");
        assert_eq!((view.len(), view.is_empty()), (facts.owners.len(), facts.owners.is_empty()));
        let endpoints: BTreeSet<&EndpointId> = view.endpoints().collect();
        assert!(endpoints.into_iter().eq(facts.owners.keys()), "seed {seed}");
        assert_eq!(view.endpoints().count(), view.len(), "seed {seed}: one is there twice");
        let mut owned: BTreeMap<&InstanceId, Vec<EndpointId>> = BTreeMap::new();
        for (endpoint, owner) in &facts.owners {
            assert_eq!(view.owner(endpoint), owner.as_ref(), "seed {seed}: {endpoint}");
            if let Some(owner) = owner {
                owned.entry(owner).or_default().push(endpoint.clone());
            }
        }
        for known in owned.keys().copied().chain(facts.live.keys()) {
            let mut has = view.owned_by(known);
            has.sort();
            assert_eq!(&has, owned.get(known).unwrap_or(&vec![]), "seed {seed}: {known}");
            assert_eq!(view.known(known).unwrap().owns, has.len(), "seed {seed}: {known}");
            assert_eq!(view.weight(known), facts.live.get(known).copied(), "seed {seed}: {known}");
            assert_eq!(view.is_live(known), facts.live.contains_key(known), "seed {seed}");
        }
        let needed: BTreeSet<&InstanceId> = owned.into_keys().chain(facts.live.keys()).collect();
        assert_eq!(view.numbers.len(), needed.len(), "seed {seed}: remembers who is gone");
    }

    /// Says of every change whether it was one, and always knows what is the case.
    #[test]
    fn whatever_happens_the_view_is_what_is_the_case() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut facts = Facts::any(&mut random, 6, 20);
            let mut view = facts.view();
            for _ in 0..60 {
                let owners: Vec<InstanceId> =
                    facts.live.keys().cloned().chain([instance(&mut random, 9)]).collect();
                let somebody = owners[random.below(owners.len())].clone();
                let number = random.below(25);
                let endpoint = sequential(&mut random, number);
                match random.below(6) {
                    0 => {
                        let news = !facts.owners.contains_key(&endpoint);
                        assert_eq!(view.add(&endpoint), news, "seed {seed}");
                        facts.owners.entry(endpoint).or_default();
                    }
                    1 => {
                        let there = facts.owners.remove(&endpoint).is_some();
                        assert_eq!(view.remove(&endpoint), there, "seed {seed}");
                    }
                    2 | 3 => {
                        let owner = (!random.one_in(3)).then_some(somebody);
                        let before = facts.owners.get(&endpoint).cloned();
                        let news = before.is_some_and(|it| it != owner);
                        assert_eq!(view.set_owner(&endpoint, owner.as_ref()), news, "seed {seed}");
                        facts.owners.entry(endpoint).and_modify(|it| *it = owner);
                    }
                    _ => {
                        let before = facts.live.clone();
                        if random.one_in(2) {
                            facts.live.remove(&somebody);
                        } else {
                            facts.live.insert(somebody, weight(&mut random));
                        }
                        let mut told = facts.instances();
                        told.extend(told.first().cloned());
                        random.shuffle(&mut told);
                        assert_eq!(view.set_instances(&told), facts.live != before, "seed {seed}");
                    }
                }
                check(&view, &facts, seed);
            }
        }
    }

    /// Instance ids are never reused: years of daily restarts must not fill the memory.
    #[test]
    fn those_who_are_gone_leave_nothing_behind() {
        let mut random = Random::new(1);
        let mut view = View::default();
        let endpoints: Vec<EndpointId> = (0..20).map(|it| sequential(&mut random, it)).collect();
        endpoints.iter().for_each(|it| assert!(view.add(it)));
        for day in 0..2_000 {
            let fleet: Vec<_> =
                (0..5).map(|it| (instance(&mut random, day * 5 + it), Weight(1))).collect();
            view.set_instances(&fleet);
            for (endpoint, owner) in endpoints.iter().zip(fleet.iter().cycle()) {
                view.set_owner(endpoint, Some(&owner.0));
            }
        }
        assert!(view.known.len() <= 10 && view.numbers.len() <= 5, "{}", view.known.len());
    }

    /// A hole is filled before the array grows.
    #[test]
    fn sessions_that_come_and_go_need_no_more_room_than_there_are_at_once() {
        let mut view = View::default();
        for n in 0..5_000 {
            let id = |n: usize| EndpointId::parse(&format!("session-{n}")).unwrap();
            view.add(&id(n));
            view.remove(&id(n.wrapping_sub(9)));
        }
        assert_eq!((view.len(), view.slots.len()), (9, 10));
    }
}
