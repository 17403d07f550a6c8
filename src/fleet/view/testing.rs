//! Fleets by chance, and what balance means for them. Each repeats for its seed.

use std::collections::BTreeMap;

use crate::fleet::view::View;
use crate::model::{EndpointId, InstanceId, Weight};

/// Two pairs of names with the same FNV-1a: only the id can tell which comes first.
const TWINS: [[&str; 2]; 2] = [
    ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"],
    ["gMPflVXtwGDXbIhP73TX", "LtHf1prlU1bCeYZEdqWf"],
];

/// The random numbers of all tests, as indices.
pub(crate) struct Random(testkit::random::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(testkit::random::Random::new(seed))
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.0.below(n as u64)).unwrap()
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.below(1 << 32) << 32 | self.0.below(1 << 32)
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// The live instances, and every endpoint with its owner, which may be dead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) live: BTreeMap<InstanceId, Weight>,
    pub(crate) owners: BTreeMap<EndpointId, Option<InstanceId>>,
}

impl Facts {
    /// Up to this many of each, most often few.
    pub(crate) fn any(random: &mut Random, instances: usize, endpoints: usize) -> Self {
        let size = |random: &mut Random, most: usize| {
            let most = if random.one_in(50) { most } else { most.min(10 + random.below(90)) };
            random.below(most + 1)
        };
        let n = 1 + size(random, instances - 1);
        let ids: Vec<InstanceId> = (0..n).map(|it| instance(random, it)).collect();
        let plain = random.one_in(2); // most fleets have no weights
        let live: BTreeMap<InstanceId, Weight> = ids
            .iter()
            .map(|it| (it.clone(), if plain { Weight(1) } else { weight(random) }))
            .collect();
        let names: fn(&mut Random, usize) -> EndpointId =
            if random.one_in(2) { sequential } else { uuid };
        let dead: Vec<InstanceId> = (0..3).map(|it| instance(random, 100 + it)).collect();
        // Some fleets begin with everything in few hands, which makes for many moves.
        let hands = 1 + random.below(ids.len());
        let mut owners = BTreeMap::new();
        for n in 0..size(random, endpoints) {
            let owner = match random.below(8) {
                0 | 1 => None,
                2 => Some(dead[random.below(dead.len())].clone()),
                _ => Some(ids[random.below(hands)].clone()),
            };
            owners.insert(names(random, n), owner);
        }
        if random.one_in(4) {
            for name in TWINS.iter().flatten() {
                let owner = random.one_in(2).then(|| ids[random.below(hands)].clone());
                owners.insert(EndpointId::parse(name).unwrap(), owner);
            }
        }
        Self { live, owners }
    }

    pub(crate) fn view(&self) -> View {
        let mut view = View::default();
        view.set_instances(&self.instances());
        for (endpoint, owner) in &self.owners {
            view.add(endpoint);
            view.set_owner(endpoint, owner.as_ref());
        }
        view
    }

    pub(crate) fn instances(&self) -> Vec<(InstanceId, Weight)> {
        self.live.iter().map(|(id, weight)| (id.clone(), *weight)).collect()
    }

    /// Who owns `endpoint` and is alive.
    pub(crate) fn live_owner(&self, endpoint: &EndpointId) -> Option<&InstanceId> {
        self.owners.get(endpoint)?.as_ref().filter(|it| self.live.contains_key(*it))
    }

    /// Whether nobody may be given anything.
    pub(crate) fn all_draining(&self) -> bool {
        self.live.values().all(|it| it.0 == 0)
    }

    /// For each live instance: its fair share rounded down and up, and what it has.
    pub(crate) fn shares(&self) -> Vec<(usize, usize, usize)> {
        let mut counts: BTreeMap<&InstanceId, usize> = BTreeMap::new();
        for owner in self.owners.values().flatten() {
            *counts.entry(owner).or_default() += 1;
        }
        let total: usize = self.live.values().map(|it| it.0 as usize).sum();
        let share = |weight: &Weight| self.owners.len() * weight.0 as usize;
        let rounded = self.live.iter().map(|(id, weight)| {
            let count = counts.get(id).copied().unwrap_or(0);
            (share(weight) / total, share(weight).div_ceil(total), count)
        });
        rounded.collect()
    }

    /// The fewest moves after which every instance owns its fair share, rounded down or up. An instance below its share
    /// rounded down needs the difference. Of the endpoints that rounding down leaves over, each instance above its share
    /// can keep one; the others have to move.
    pub(crate) fn fewest_moves(&self) -> usize {
        let shares = self.shares();
        let floors: usize = shares.iter().map(|it| it.0).sum();
        let lacking: usize = shares.iter().map(|it| it.0.saturating_sub(it.2)).sum();
        let roundable = shares.iter().filter(|it| it.1 > it.0 && it.2 > it.0).count();
        lacking + (self.owners.len() - floors).saturating_sub(roundable)
    }
}

pub(crate) fn sequential(_: &mut Random, n: usize) -> EndpointId {
    EndpointId::parse(&format!("session-{n}")).unwrap()
}

pub(crate) fn uuid(random: &mut Random, _: usize) -> EndpointId {
    let (a, b) = (random.next(), random.next());
    let [x, y, z] = [a >> 16 & 0xffff, a & 0xfff, b >> 48 & 0x3fff | 0x8000];
    let text = format!("{:08x}-{x:04x}-4{y:03x}-{z:04x}-{:012x}", a >> 32, b & 0xffff_ffff_ffff);
    EndpointId::parse(&text).unwrap()
}

/// An id of the usual form, which sorts before the twins or behind them; seldom a twin itself.
pub(crate) fn instance(random: &mut Random, n: usize) -> InstanceId {
    if random.one_in(10) {
        return InstanceId::new(TWINS[0][random.below(2)]);
    }
    let nanos = 1_794_806_411_005_251_162 + random.below(1_000_000_000);
    let host = if random.one_in(2) { "1st" } else { "vm" };
    InstanceId::new(&format!("{host}{n}-{nanos}-{:08x}", random.next() >> 32))
}

pub(crate) fn weight(random: &mut Random) -> Weight {
    Weight(u32::try_from(random.below(11)).unwrap())
}
