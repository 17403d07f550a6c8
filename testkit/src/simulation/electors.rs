//! The roles of one simulated process: the product's `Elector`, `RoleKeeper` and `Watch`, stepped by the simulator.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, unbounded};
use leasehold::clock::Clock;
use leasehold::election::ElectionSettings;
use leasehold::election::elector::Elector;
use leasehold::election::parts::{CandidateContext, RoleKeeper, RoleParts};
use leasehold::election::role_state::RoleState;
use leasehold::lease::watch::{Nudge, Watch};
use leasehold::model::{InstanceId, Role};
use leasehold::store::Store;

use super::course::UNABLE;
use super::member::{Member, Part, until_deadline};
use super::world::World;

pub struct Electors {
    role_states: Vec<Arc<RoleState>>,
    /// Roles whose timing the store has not accepted yet (`RoleElector::introduce`).
    newcomers: RefCell<Vec<RoleParts>>,
    elector: RefCell<Elector>,
    keeper: RoleKeeper,
    watch: RefCell<Watch>,
    nudges: Receiver<Nudge>,
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
        let (nudge, nudges) = unbounded();
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
            let context = CandidateContext {
                me: id,
                clock,
                new_fleet: false,
                elector: line,
                renewal: line,
                poke: &poke,
            };
            RoleParts::assemble(settings, &context)
        };
        let newcomers: Vec<RoleParts> = (0..scene.roles).map(stand).collect();
        let role_states = newcomers.iter().map(|it| Arc::clone(&it.role_state)).collect();
        let keeper = RoleKeeper::new(Arc::clone(line));
        let elector = Elector::new(Arc::clone(line), keeper.clone());
        let nudge = move |it| drop(nudge.send(it));
        let watch = Watch::new(Arc::clone(line), id.clone(), timeout, nudge);
        let (newcomers, elector) = (RefCell::new(newcomers), RefCell::new(elector));
        let watch = RefCell::new(watch);
        Some(Self { role_states, newcomers, elector, keeper, watch, nudges, poked })
    }

    pub fn step(&self, world: &World, member: &Member, part: Part) -> Option<Duration> {
        match part {
            Part::RoleRenewal => Some(self.keeper.renew()),
            Part::RoleExpiry => {
                let wait = self.keeper.expire();
                let deadlines = self.role_states.iter().map(|it| until_deadline(it.table()));
                self.wake_elector(world, member);
                deadlines.min().map(|it| it.max(wait))
            }
            Part::RoleWatch => {
                let mut watch = self.watch.borrow_mut();
                let wait = watch.step();
                let mut before = 0;
                while self.nudges.len() > before {
                    before = self.nudges.len();
                    watch.step();
                }
                self.wake_elector(world, member);
                Some(if wait.is_zero() { Duration::from_secs(2) } else { wait })
            }
            _ => Some(self.elect()),
        }
    }

    /// Introduces newcomers, as `Elections` does; then one turn of the loop of `Elector::run`.
    fn elect(&self) -> Duration {
        while self.poked.try_recv().is_ok() {}
        let mut elector = self.elector.borrow_mut();
        let retry = self.introduce(&mut elector);
        self.nudges.try_iter().for_each(|it| elector.apply(&it));
        let wait = elector.step().min(retry.unwrap_or(Duration::from_secs(1)));
        // A poke that came meanwhile has to be served at once.
        if self.poked.is_empty() { wait } else { Duration::ZERO }
    }

    /// When to try again, if the store has not accepted all of them.
    fn introduce(&self, elector: &mut Elector) -> Option<Duration> {
        let newcomers = self.newcomers.take();
        let mut retry = None;
        for parts in newcomers {
            if parts.elector.introduce().is_err() {
                retry = Some(parts.role_state.table().timings().retry_interval());
                self.newcomers.borrow_mut().push(parts);
            } else if let Some(candidate) = self.keeper.keep(parts) {
                elector.welcome(candidate, bounded(1).0);
            }
        }
        retry
    }

    fn wake_elector(&self, world: &World, member: &Member) {
        if !self.poked.is_empty() || !self.nudges.is_empty() {
            member.wake(world, Part::RoleElector, 0);
        }
    }

    pub fn stop(&self) {
        self.role_states.iter().for_each(|it| it.stop());
    }

    /// Whether every role was given back. False in the middle of a step: a release may be on its way.
    pub fn is_finished(&self) -> bool {
        let is_over = |it: &Arc<RoleState>| it.is_stopping() && !it.has_leadership();
        self.elector.try_borrow().is_ok() && self.role_states.iter().all(is_over)
    }

    pub fn resign(&self) {
        self.role_states.iter().for_each(|it| it.resign(None));
    }

    /// Which roles it may act as leader of, a bit each.
    pub fn leads(&self) -> u64 {
        let bit = |(n, it): (usize, &Arc<RoleState>)| u64::from(it.is_leader()) << n;
        self.role_states.iter().enumerate().map(bit).sum()
    }

    pub fn terms(&self) -> Vec<Option<u64>> {
        self.role_states.iter().map(|it| it.term().map(|it| it.get())).collect()
    }
}

fn priority(world: &World) -> u32 {
    u32::try_from(world.dice.below(3).saturating_sub(1)).unwrap_or(0)
}
