//! The roles a process stands for: the production steps of `election`, put together as its hub does.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, unbounded};
use leasehold::clock::Clock;
use leasehold::election::parts::{RoleParts, Standing};
use leasehold::election::role_elector::RoleElector;
use leasehold::election::role_state::RoleState;
use leasehold::election::{ElectionSettings, rounds};
use leasehold::lease::expiry::Expiry;
use leasehold::lease::renewal::Renewal;
use leasehold::lease::watch::Nudge;
use leasehold::lease::watch::Watch;
use leasehold::model::{InstanceId, Role};
use leasehold::store::{Push, Store};

use super::member::{Member, Part, until_deadline};
use super::rest::UNABLE;
use super::world::World;

struct Stand {
    role_state: Arc<RoleState>,
    candidate: RefCell<RoleElector>,
    renewal: Renewal,
    expiry: Expiry,
    introduced: std::cell::Cell<bool>,
}

pub struct Electors {
    line: Arc<dyn Store>,
    is_away: std::cell::Cell<bool>,
    stands: Vec<Stand>,
    watch: RefCell<Watch>,
    said: Receiver<Nudge>,
    poked: Receiver<()>,
}

impl Electors {
    /// None where a scene has no roles.
    pub fn new(
        world: &World,
        id: &InstanceId,
        line: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
    ) -> Option<Self> {
        let scene = &world.scene;
        if scene.roles == 0 {
            return None;
        }
        let (poke, poked) = bounded(1);
        let (words, said) = unbounded();
        let timeout = scene.timings.store_timeout;
        let stand = |n: usize| {
            let settings = ElectionSettings {
                role: Role::parse(&format!("r{n}")).expect("legal"),
                ttl: scene.timings.lease.ttl,
                heartbeat_interval: scene.timings.renew_interval,
                election_interval: Duration::from_secs(15),
                startup_jitter: Duration::ZERO,
                priority: if id.host() == UNABLE { 9 } else { priority(world) },
                stands: true,
                store_timeout: timeout,
            };
            let standing = Standing {
                me: id,
                clock,
                new_fleet: false,
                elector: line,
                renewal: line,
                poke: &poke,
            };
            let RoleParts { role_state, elector, renewal, expiry } =
                RoleParts::assemble(settings, &standing);
            Stand {
                candidate: RefCell::new(elector),
                renewal,
                expiry,
                role_state,
                introduced: std::cell::Cell::new(false),
            }
        };
        let nudge = move |nudge| drop(words.send(nudge));
        let watch = RefCell::new(Watch::new(Arc::clone(line), id.clone(), timeout, nudge));
        let (line, is_away) = (Arc::clone(line), std::cell::Cell::new(false));
        let stands = (0..scene.roles).map(stand).collect();
        Some(Self { line, is_away, stands, watch, said, poked })
    }

    pub fn step(&self, world: &World, member: &Member, part: Part) -> Option<Duration> {
        let all = self.stands.iter();
        match part {
            Part::RoleRenewal => rounds::renew(&*self.line, all.map(|it| &it.renewal)),
            Part::RoleExpiry => {
                let step = |it: &Stand| it.expiry.step().max(until_deadline(it.role_state.table()));
                let wait = all.map(step).min();
                self.wake_elector(world, member);
                wait
            }
            Part::RoleWatch => {
                let mut watch = self.watch.borrow_mut();
                let wait = watch.step();
                let mut before = 0;
                while self.said.len() > before {
                    before = self.said.len();
                    watch.step();
                }
                self.wake_elector(world, member);
                Some(if wait.is_zero() { Duration::from_secs(2) } else { wait })
            }
            _ => Some(self.elect()),
        }
    }

    /// As `Elector::run` does.
    fn elect(&self) -> Duration {
        while self.poked.try_recv().is_ok() {}
        let nudges: Vec<Nudge> = self.said.try_iter().collect();
        let mut wait = Duration::from_secs(1);
        for stand in &self.stands {
            let mut candidate = stand.candidate.borrow_mut();
            if !stand.introduced.get() {
                stand.introduced.set(candidate.introduce().is_ok());
                wait = wait.min(stand.role_state.table().timings().retry_interval());
            }
            for nudge in &nudges {
                match nudge {
                    Nudge::Push(Push::Word(word)) => candidate.hear(word),
                    _ => candidate.look_now(),
                }
            }
        }
        let standing = self.stands.iter().filter(|it| it.introduced.get());
        let mut standing: Vec<_> = standing.map(|it| it.candidate.borrow_mut()).collect();
        standing.retain(|it| !it.is_finished());
        let candidates = standing.iter_mut().map(|it| &mut **it);
        let round = rounds::elect(&*self.line, candidates, self.is_away.get());
        self.is_away.set(round.is_away);
        wait = wait.min(round.wait);
        // One that is poked has something to do at once.
        if self.poked.is_empty() { wait } else { Duration::ZERO }
    }

    fn wake_elector(&self, world: &World, member: &Member) {
        if !self.poked.is_empty() || !self.said.is_empty() {
            member.wake(world, Part::RoleElector, 0);
        }
    }

    pub fn stop(&self) {
        self.stands.iter().for_each(|it| it.role_state.stop());
    }

    pub fn is_finished(&self) -> bool {
        self.stands
            .iter()
            .all(|it| it.candidate.try_borrow().is_ok_and(|candidate| candidate.is_finished()))
    }

    pub fn resign(&self) {
        self.stands.iter().for_each(|it| it.role_state.resign(None));
    }

    /// Which roles it may act as leader of, a bit each.
    pub fn leads(&self) -> u64 {
        let bit = |(n, it): (usize, &Stand)| u64::from(it.role_state.is_leader()) << n;
        self.stands.iter().enumerate().map(bit).sum()
    }

    pub fn terms(&self) -> Vec<Option<u64>> {
        self.stands.iter().map(|it| it.role_state.term().map(|it| it.0)).collect()
    }
}

fn priority(world: &World) -> u32 {
    u32::try_from(world.dice.below(3).saturating_sub(1)).unwrap_or(0)
}
