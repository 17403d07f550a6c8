//! Both stores answer any story alike: the in-memory one stands for Redis in every other test.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::model::{EndpointId, FenceToken, KnownVerdict, Tenure, Thresholds};
use leasehold::store::{Acquire, Publish, RenewItem};

use crate::store::contract::asker::{Asker, endpoint, only, publication};
use crate::store::contract::world::{MemoryWorld, RedisWorld, World};

const STORIES: u64 = 60;
const STEPS: usize = 80;

/// What other clients write into the epoch: no numbers, and numbers that it can have.
const WRITTEN: &[&str] =
    &["nan", "-5", "1e300", "9007199254740991", "", "0", "5", "7000000000000000"];

/// What must have been said in one story or another, or they show nothing.
const KINDS: &[&str] = &[
    "Free #",
    "Adopted #",
    "Takeover #",
    "HeldBy",
    "HoldOff",
    "NoHeartbeat",
    "Late",
    "Extended",
    "Reclaimed",
    "NotOwner(None)",
    "NotOwner(Some",
    "Held;",
    "Missing",
    "Stored(None)",
    "verdict: None",
    "verdict: Some(Ok)",
    "verdict: Some(Failing)",
    "Fenced",
    "Released",
    "unbroken: true",
    "unbroken: false",
    "hold-off=true",
    "hold-off=false",
    "epoch = \"nan\"",
];

/// Small numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// A story as it is told on one store: who asked what, and what was answered.
struct Story {
    dice: Dice,
    askers: Vec<Asker>,
    endpoints: Vec<EndpointId>,
    /// Every grant so far, by endpoint; fences are told by their place in here.
    grants: BTreeMap<EndpointId, Vec<FenceToken>>,
    /// What any of them saw stored last.
    known: BTreeMap<EndpointId, KnownVerdict>,
}

impl Story {
    fn begin(world: &dyn World, seed: u64) -> Self {
        let new_fleet = !seed.is_multiple_of(3);
        Self {
            dice: Dice(seed),
            askers: ["a", "b", "c"].map(|it| Asker::new(world, it, new_fleet)).into(),
            endpoints: ["e", "f"].map(endpoint).into(),
            grants: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// One that was granted at some time, more often a late one; or a fence nobody has.
    fn tenure(&mut self, endpoint: &EndpointId) -> Tenure {
        let known = self.grants.get(endpoint).map_or(0, Vec::len);
        let back = self.dice.below(3).min(self.dice.below(3));
        let fence = match known.checked_sub(1 + back) {
            Some(at) => self.grants[endpoint][at],
            None => FenceToken::new(5),
        };
        Tenure::new(endpoint.clone(), fence)
    }

    fn step(&mut self, world: &mut dyn World) -> String {
        let (verb, who) = (self.dice.below(21), self.dice.below(3));
        let endpoint = self.endpoints[self.dice.below(2)].clone();
        let tenure = self.tenure(&endpoint);
        let late = self.dice.below(6) == 0;
        let (may_reclaim, start) = (self.dice.below(4) > 0, self.dice.below(3) as u64);
        let fence_checked = self.dice.below(2) > 0;
        let asker = &mut self.askers[who];
        let told = match verb {
            0..=2 => format!("{:?}", asker.beat()),
            3..=6 => {
                let one = std::slice::from_ref(&endpoint);
                let answer = match late {
                    true => asker.store.acquire(&asker.late_ask(), one).unwrap().answer.map(only),
                    false => Some(asker.acquire(&endpoint)),
                };
                let polled_at_ms = (!world.of_roles()).then(|| asker.last_polled(&endpoint));
                format!("{} {polled_at_ms:?}", self.acquired(&endpoint, answer))
            }
            7..=9 => {
                let items = [RenewItem { tenure, may_reclaim, fence_checked }];
                match late {
                    true => format!(
                        "{:?}",
                        asker.store.renew(&asker.late_ask(), &items).unwrap().answer
                    ),
                    false => format!(
                        "{:?}",
                        asker.answered(|store, context| store.renew(context, &items))
                    ),
                }
            }
            10 => format!("{:?} {:?}", asker.verify(&tenure), asker.verify_by_name(&tenure)),
            11 | 12 if world.of_roles() => {
                let statuses =
                    asker.store.role_statuses(&self.endpoints, Duration::from_secs(5)).unwrap();
                let told = statuses.iter().map(|it| {
                    let leader = it.leader.as_ref().map(|it| it.value.clone());
                    (leader, it.is_stale, it.heartbeat_age.is_some(), it.ttl)
                });
                format!("{:?}", told.collect::<Vec<_>>())
            }
            11 | 12 => {
                let oks = [(1, fence_checked), (2, may_reclaim)];
                let told = oks.map(|(n, ok)| self.publish(who, &tenure, start + n, ok));
                told.join(" ")
            }
            13 if fence_checked => format!("{:?}", asker.free(&tenure)),
            13 => format!("{:?}", asker.release(&tenure)),
            14 if world.of_roles() => format!("{:?}", world.set_leader_beat(&asker.me, None)),
            14 => format!("{:?}", asker.withdraw()),
            15 => format!("{:?}", world.delete_lease(&endpoint)),
            16 => format!("{:?}", world.delete_result(&endpoint)),
            17 => format!("{:?}", world.delete_node(&asker.me)),
            18 if late => format!("{:?}", asker.suspect()),
            18 if world.of_roles() => String::new(),
            18 => {
                format!(
                    "{:?}",
                    asker.store.revoke(&asker.me, true, Duration::from_secs(5)).unwrap()
                )
            }
            19 => {
                let text = WRITTEN[self.dice.below(WRITTEN.len())];
                let fields = ["epoch", "since_ms", "floor_us", "born", "heartbeat_ttl_ms"];
                let field = fields[self.dice.below(fields.len())];
                world.write_epoch(field, text);
                format!("{field} = {text:?}")
            }
            _ if late => format!("{:?}", world.flush()),
            _ => self.after_the_hold_off(world),
        };
        let holds_off = self.askers[who].holds_off();
        let owners = self.endpoints.iter().map(|it| self.askers[who].owner(it));
        let owners: Vec<_> = owners.collect();
        let beaten = self.askers.iter().map(|it| world.leader_beat(&it.me).is_some());
        let beaten: Vec<bool> = beaten.collect();
        format!(
            "{verb} {who} {endpoint} late={late}: {told}; {owners:?} {beaten:?} hold-off={holds_off}"
        )
    }

    /// A result of one that knows what any of them saw stored last.
    fn publish(&mut self, who: usize, tenure: &Tenure, started_at_ms: u64, ok: bool) -> String {
        let known = self.known.get(&tenure.endpoint).copied();
        let mut it = publication(tenure, started_at_ms);
        it.sample.ok = ok;
        it.judging.known = known;
        it.judging.thresholds = Thresholds { fail_after: 2, ok_after: 2 };
        let results = [it];
        let told = self.askers[who].answered(|store, context| store.publish(context, &results));
        if let [Publish::Stored(state)] = told[..] {
            let state = state.or(known.map(|it| it.state)).unwrap();
            let known = KnownVerdict { fence: tenure.fence, started_at_ms, state };
            self.known.insert(tenure.endpoint.clone(), known);
        }
        format!("{told:?}")
    }

    fn acquired(&mut self, endpoint: &EndpointId, answer: Option<Acquire>) -> String {
        let Some(Acquire::Granted { fence, grant }) = answer else {
            return format!("{answer:?}");
        };
        let before = self.grants.entry(endpoint.clone()).or_default();
        assert!(before.last().is_none_or(|it| *it < fence), "{fence} after {before:?}");
        before.push(fence);
        format!("{grant:?} #{}", before.len())
    }

    /// The in-memory clock has to pass for this, and takes leases and heartbeats along.
    fn after_the_hold_off(&mut self, world: &mut dyn World) -> String {
        world.end_hold_off();
        for asker in &self.askers {
            match world.of_roles() {
                false => world.delete_node(&asker.me),
                true => world.set_leader_beat(&asker.me, None),
            }
        }
        for endpoint in &self.endpoints {
            world.delete_lease(endpoint);
        }
        String::new()
    }
}

#[test]
fn both_stores_answer_any_story_alike() {
    tell_all(RedisWorld::new(), MemoryWorld::new, KINDS);
}

/// The same with roles: what is never asked about them is passed over.
#[test]
fn both_stores_answer_any_story_of_roles_alike() {
    let never = ["NoHeartbeat", "Stored", "verdict", "Fenced", "unbroken: false"];
    let kinds: Vec<&str> = KINDS
        .iter()
        .copied()
        .filter(|it| !never.iter().any(|never| it.starts_with(never)))
        .collect();
    tell_all(RedisWorld::of_roles(), MemoryWorld::of_roles, &kinds);
}

fn tell_all(mut on_redis: RedisWorld, in_memory: impl Fn() -> MemoryWorld, kinds: &[&str]) {
    let mut everything = String::new();
    for seed in 0..STORIES {
        let mut in_memory = in_memory();
        on_redis.flush();
        let mut stories = [Story::begin(&in_memory, seed), Story::begin(&on_redis, seed)];
        let mut so_far = Vec::new();
        for asker in 0..3 {
            stories[0].askers[asker].beat();
            stories[1].askers[asker].beat();
        }
        for step in 0..STEPS {
            in_memory.pass(Duration::from_millis(1));
            let told = [stories[0].step(&mut in_memory), stories[1].step(&mut on_redis)];
            assert_eq!(told[0], told[1], "story {seed}, step {step}, after {so_far:#?}");
            everything.push_str(&told[0]);
            so_far.push(told[0].clone());
        }
        let count = |world: &mut dyn World| world.announced().len();
        let heard = (count(&mut in_memory), count(&mut on_redis));
        assert_eq!(heard.0, heard.1, "announced in story {seed}: {so_far:#?}");
        // A story may flush the stream.
        let told = (in_memory.changes(), on_redis.changes());
        assert!(told.0.ends_with(&told.1), "changes in story {seed}: {told:?} {so_far:#?}");
        on_redis.forget_announcements();
    }
    for kind in kinds {
        assert!(everything.contains(kind), "no story came to {kind}");
    }
}
