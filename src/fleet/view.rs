//! What does this instance know of the fleet? Its live instances, its endpoints, and the owner of each.
//!
//! The view is updated in place, because every change leads to a new plan. Endpoints are kept in a flat array of slots and
//! name their owner by a number, so a plan is one pass that neither compares nor copies ids. Two instances with the same
//! knowledge may have an endpoint in different slots, so no decision may depend on the slot.

use fnv::FnvHashMap;

use crate::model::{EndpointId, InstanceId, Weight, fnv1a};

/// The live instances, the endpoints, and the owner of each endpoint.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// An endpoint keeps its slot until it is removed, so a walk over the slots misses no endpoint.
    slots: Vec<Option<EndpointSlot>>,
    free_slots: Vec<usize>,
    index: FnvHashMap<EndpointId, usize>,
    /// Instances that live or own something. An entry that is not needed any more is used for the next instance: ids are
    /// never reused, so a fleet that restarts every day would otherwise fill the memory.
    known: Vec<KnownInstance>,
    unused: Vec<u32>,
    numbers: FnvHashMap<InstanceId, u32>,
    /// The numbers of the live instances, sorted by id.
    live: Vec<u32>,
}

/// An endpoint, with everything that a plan needs.
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
    /// Its index among the live instances, sorted by id; `None` when it is not alive.
    pub(crate) live_index: Option<usize>,
    pub(crate) weight: Weight,
}

// `is_next_in_line` and `next_in_line_for` are in `placement.rs`: they need the order of preference.
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
        before.iter().for_each(|it| self.known[*it as usize].live_index = None);
        for (live_index, (id, weight)) in live.into_iter().enumerate() {
            let number = self.number(id);
            let known = &mut self.known[number as usize];
            (known.live_index, known.weight) = (Some(live_index), *weight);
            self.live.push(number);
        }
        before.into_iter().for_each(|it| self.forget_if_unused(it));
        true
    }

    /// The live instances, sorted by id.
    pub fn instances(&self) -> impl Iterator<Item = (&InstanceId, Weight)> {
        self.live().map(|it| (&it.id, it.weight))
    }

    /// How many instances are alive.
    pub fn instance_count(&self) -> usize {
        self.live.len()
    }

    /// Whether `instance` is alive.
    pub fn is_live(&self, instance: &InstanceId) -> bool {
        self.weight(instance).is_some()
    }

    /// The weight of `instance`; `None` when it is not alive.
    pub fn weight(&self, instance: &InstanceId) -> Option<Weight> {
        self.known(instance).filter(|it| it.live_index.is_some()).map(|it| it.weight)
    }

    /// Adds an endpoint without an owner; false when it is already there.
    pub fn add(&mut self, endpoint: &EndpointId) -> bool {
        if self.contains(endpoint) {
            return false;
        }
        let hash = fnv1a(endpoint.as_str());
        let slot = Some(EndpointSlot { id: endpoint.clone(), hash, owner: None });
        let at = self.free_slots.pop().unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[at] = slot;
        }
        self.index.insert(endpoint.clone(), at);
        true
    }

    /// Removes an endpoint; false when it is not there.
    pub fn remove(&mut self, endpoint: &EndpointId) -> bool {
        self.set_owner(endpoint, None);
        let Some(at) = self.index.remove(endpoint) else { return false };
        self.slots[at] = None;
        self.free_slots.push(at);
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

    /// The slot of `endpoint`, if the view has it.
    pub(crate) fn slot_index(&self, endpoint: &EndpointId) -> Option<usize> {
        self.index.get(endpoint).copied()
    }

    /// How many slots there are, used or free.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The endpoints from slot `cursor` on, at most `count`. Moves `cursor` behind the last of them.
    pub(crate) fn page(&self, cursor: &mut usize, count: usize) -> Vec<EndpointId> {
        let mut page = Vec::new();
        while page.len() < count && *cursor < self.slots.len() {
            page.extend(self.slots[*cursor].iter().map(|it| it.id.clone()));
            *cursor += 1;
        }
        page
    }

    /// Sets the owner of `endpoint`, which may be dead. True when the owner changed; false for an unknown endpoint.
    pub fn set_owner(&mut self, endpoint: &EndpointId, owner: Option<&InstanceId>) -> bool {
        let Some(at) = self.index.get(endpoint).copied() else { return false };
        if self.owner(endpoint) == owner {
            return false;
        }
        let after = owner.map(|it| self.number(it));
        let Some(slot) = &mut self.slots[at] else { return false };
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

    /// The owner of `endpoint`, which may be dead.
    pub fn owner(&self, endpoint: &EndpointId) -> Option<&InstanceId> {
        self.owner_of(self.slot(endpoint)?).map(|it| &it.id)
    }

    /// Whether no live instance owns `endpoint`.
    pub(crate) fn is_free(&self, endpoint: &EndpointId) -> bool {
        self.owner(endpoint).is_none_or(|it| !self.is_live(it))
    }

    /// The endpoints that `instance` owns.
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

    /// The next endpoint from slot `cursor` on, which wraps around.
    pub(crate) fn next_slot(&self, cursor: &mut usize) -> Option<&EndpointSlot> {
        (0..self.slots.len()).find_map(|_| {
            let at = *cursor % self.slots.len();
            *cursor = at + 1;
            self.slots[at].as_ref()
        })
    }

    pub(crate) fn owner_of(&self, slot: &EndpointSlot) -> Option<&KnownInstance> {
        slot.owner.map(|it| &self.known[it as usize])
    }

    pub(crate) fn known(&self, instance: &InstanceId) -> Option<&KnownInstance> {
        self.numbers.get(instance).map(|it| &self.known[*it as usize])
    }

    /// The live instances, sorted by id.
    pub(crate) fn live(&self) -> impl Iterator<Item = &KnownInstance> {
        self.live.iter().map(|it| &self.known[*it as usize])
    }

    /// The number of `instance`, a new one if need be.
    fn number(&mut self, instance: &InstanceId) -> u32 {
        if let Some(number) = self.numbers.get(instance) {
            return *number;
        }
        let hash = fnv1a(instance.as_str());
        let known = KnownInstance {
            id: instance.clone(),
            hash,
            owns: 0,
            live_index: None,
            weight: Weight(0),
        };
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
        if known.live_index.is_none() && known.owns == 0 {
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

    /// Compares every answer of the view with the facts.
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
        assert_eq!(
            view.numbers.len(),
            needed.len(),
            "seed {seed}: remembers an instance that is gone"
        );
    }

    /// Every method reports whether it changed the view, and the view always equals the facts.
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

    /// A free slot is used before the array grows.
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
