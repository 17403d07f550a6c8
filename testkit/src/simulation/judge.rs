//! Checks the promises (G1–G3): at every step while faults happen, and at the end.
//!
//! A process gains a right only in a step of its own, and rights end by themselves. So after each step it is enough to
//! compare what that process may do with what all others may do at that moment.

use std::cell::{Cell, RefCell};

use leasehold::PollPermit;
use leasehold::model::{EndpointId, InstanceId, KnownVerdict, Thresholds, VerdictState};
use leasehold::store::RenewItem;
use leasehold::store::memory::Announced;

use super::member::{Member, Part, index};
use super::scene::Scene;
use super::world::{START, World, nanos};

/// How many results in a row change a verdict in every simulated instance.
pub const THRESHOLDS: Thresholds = Thresholds { fail_after: 2, ok_after: 2 };

/// Endpoints in one word of [`Member::may`].
const WORD: usize = u64::BITS as usize;

/// The newest announced result of an endpoint.
#[derive(Clone, Copy, Default)]
struct Newest {
    /// Fence and start: what results are ordered by.
    order: (u64, u64),
    /// The store has lost memory since: its owner may publish the same result once more.
    forgotten: bool,
    /// The verdict after it.
    state: VerdictState,
}

pub struct Judge {
    /// The newest result that was announced, of each endpoint.
    newest: RefCell<Vec<Newest>>,
    results: Cell<usize>,
    /// How many results of each instance were announced.
    announced: RefCell<std::collections::BTreeMap<InstanceId, u64>>,
    /// When each endpoint was last polled; the beginning, if never.
    pub polled_at: RefCell<Vec<u64>>,
    /// Until when nothing is promised of it, because a fault changed its key.
    pub tampered_until: RefCell<Vec<u64>>,
    /// The member that released each endpoint for an heir, until it is granted again.
    given_by: RefCell<Vec<Option<usize>>>,
    /// How often a lease went back to the instance that had released it for an heir.
    pub take_backs: Cell<usize>,
    terms: RefCell<Vec<u64>>,
    pub polls: Cell<u64>,
    /// How often an instance noticed that its results get no answer.
    pub stuck: Cell<u64>,
    /// How many changes of a verdict were announced.
    pub changes: Cell<u64>,
    /// How many comparisons were made.
    pub checks: Cell<u64>,
}

impl Judge {
    pub fn new(scene: &Scene) -> Self {
        Self {
            newest: RefCell::new(vec![Newest::default(); scene.endpoints]),
            results: Cell::new(0),
            announced: RefCell::default(),
            polled_at: RefCell::new(vec![START; scene.endpoints]),
            tampered_until: RefCell::new(vec![0; scene.endpoints]),
            given_by: RefCell::new(vec![None; scene.endpoints]),
            take_backs: Cell::new(0),
            terms: RefCell::new(vec![0; scene.roles]),
            polls: Cell::new(0),
            stuck: Cell::new(0),
            changes: Cell::new(0),
            checks: Cell::new(0),
        }
    }

    /// `member` releases this for an heir.
    pub fn given_away(&self, member: usize, endpoint: &EndpointId) {
        self.given_by.borrow_mut()[index(endpoint.as_str())] = Some(member);
    }

    /// `member` was granted this.
    pub fn granted(&self, member: usize, endpoint: &EndpointId) {
        let given_by = self.given_by.borrow_mut()[index(endpoint.as_str())].take();
        self.take_backs.set(self.take_backs.get() + usize::from(given_by == Some(member)));
    }

    /// A thread of `member` has stepped.
    pub fn stepped(&self, world: &World, member: &Member, part: Part) {
        // All others only take rights away.
        if matches!(part, Part::RoleElector | Part::RoleRenewal) {
            self.leaders(world, member);
        }
        let stuck = !member.table.is_publishing();
        if stuck && !member.observed.stuck.replace(stuck) {
            self.stuck.set(self.stuck.get() + 1);
        }
        member.observed.stuck.set(stuck);
        let gives = matches!(part, Part::Heartbeat | Part::Renewal | Part::Reconcile)
            || (matches!(part, Part::Dispatch | Part::Verify)
                && member.table.verified_for().is_some());
        if gives && (member.observed.answered.replace(false) || part == Part::Reconcile) {
            self.owners(world, member);
        }
    }

    /// G1, from the tables.
    fn owners(&self, world: &World, member: &Member) {
        if member.pause.unaware_of_sleep.get() {
            return;
        }
        let mut may = vec![0; world.endpoints.len().div_ceil(WORD)];
        if !member.table.is_empty() {
            for (n, endpoint) in world.endpoints.iter().enumerate() {
                may[n / WORD] |= u64::from(member.table.may_start_poll(endpoint)) << (n % WORD);
            }
        }
        self.checks.set(self.checks.get() + 1);
        for other in world.members.borrow().iter() {
            if other.n == member.n || other.gone.get() {
                continue;
            }
            for (at, word) in other.observed.may.borrow_mut().iter_mut().enumerate() {
                let mut both = *word & may[at];
                while both != 0 {
                    let bit = both.trailing_zeros() as usize;
                    both &= both - 1;
                    let n = at * WORD + bit;
                    let endpoint = &world.endpoints[n];
                    if !other.table.may_start_poll(endpoint) || other.pause.unaware_of_sleep.get() {
                        *word &= !(1 << bit);
                    } else if world.now() >= self.tampered_until.borrow()[n] {
                        let (one, two) = (&member.name, &other.name);
                        world.fail(format!("G1: {endpoint} may be polled by {one} and {two}"));
                    }
                }
            }
        }
        *member.observed.may.borrow_mut() = may;
    }

    /// G1, from the polls themselves; and G3.
    pub fn poll_begins(&self, world: &World, member: &Member, n: usize, permit: &PollPermit) {
        self.polls.set(self.polls.get() + 1);
        self.polled_at.borrow_mut()[n] = world.now();
        let name = &member.name;
        world.trace.say(world.now(), || {
            format!("{name} polls e{n} under {}", permit.tenure().fence.get())
        });
        if member.pause.unaware_of_sleep.get() || world.now() < self.tampered_until.borrow()[n] {
            return;
        }
        if member.observed.uncertain.borrow().contains(permit.tenure()) {
            world.fail(format!("G3: {name} polls e{n}, whose renewal got no answer"));
        }
        let margin = nanos(world.scene.timings.lease.margin());
        for other in world.members.borrow().iter() {
            if other.n == member.n || other.gone.get() || other.pause.unaware_of_sleep.get() {
                continue;
            }
            let them = &other.name;
            if other.table.may_start_poll(&world.endpoints[n]) {
                world.fail(format!("G1: {name} polls e{n}, which {them} may poll"));
            }
            // A process that stands still, or has just woken, cannot abort a poll that is on the wire.
            let awake =
                other.is_awake(world) && world.now() >= other.pause.thawed_at.get() + margin;
            let mut running = other.observed.running.borrow().clone().into_iter();
            if awake && running.any(|it| it.0 == n && !it.1.is_fired()) {
                world.fail(format!("G1: {name} polls e{n} while a poll of {them} runs"));
            }
        }
    }

    /// G3: a renewal was answered, or not.
    pub fn renewed(&self, member: &Member, items: &[RenewItem], answered: bool) {
        let mut uncertain = member.observed.uncertain.borrow_mut();
        if !uncertain.is_empty() {
            uncertain
                .retain(|it| member.table.has(it) && !items.iter().any(|item| item.tenure == *it));
        }
        if !answered {
            uncertain.extend(items.iter().map(|it| it.tenure.clone()));
        }
    }

    /// The store forgot grants. Where a key was evicted before, two may have thought it theirs, and the one
    /// whose newer grant is forgotten may have announced something under it.
    pub fn forgotten(&self, world: &World) {
        for (newest, until) in
            self.newest.borrow_mut().iter_mut().zip(&*self.tampered_until.borrow())
        {
            newest.forgotten = true;
            if world.now() < *until {
                *newest = Newest { forgotten: true, ..Newest::default() };
            }
        }
    }

    pub fn announced_by(&self, id: &InstanceId) -> u64 {
        self.announced.borrow().get(id).copied().unwrap_or(0)
    }

    /// G2: what is announced is newer than everything before it, by fence and start.
    pub fn results(&self, world: &World) {
        let news = world.server.announced_since(self.results.get());
        self.results.set(self.results.get() + news.len());
        for it in news {
            *self.announced.borrow_mut().entry(it.instance.clone()).or_default() += 1;
            let tenure = &it.publication.tenure;
            let n = index(tenure.endpoint.as_str());
            let newest = &mut self.newest.borrow_mut()[n];
            let order = (tenure.fence.get(), it.publication.started_at_ms);
            // Not promised: the store has forgotten a revocation together with the takeover after it.
            let is_unpromised = newest.forgotten && world.server.was_revoked(&it.instance);
            let is_old = order < newest.order && !is_unpromised;
            if is_old || (order == newest.order && !newest.forgotten) {
                let (who, newest) = (&it.instance, newest.order);
                world.fail(format!("G2: {who:?} announces {order:?} of e{n} after {newest:?}"));
            }
            if order >= newest.order {
                self.verdict(world, newest, &it);
            }
            *newest = Newest { order, forgotten: false, state: it.state };
        }
    }

    /// Each change is announced once, whatever owner counts. Where the store has lost its memory, the owner has to know what
    /// was announced last, or the count goes on from something older.
    fn verdict(&self, world: &World, newest: &Newest, it: &Announced) {
        self.changes.set(self.changes.get() + u64::from(it.is_change()));
        let last = |known: &KnownVerdict| (known.fence.get(), known.started_at_ms) == newest.order;
        let publication = &it.publication;
        if newest.forgotten && !publication.judging.known.as_ref().is_some_and(last) {
            return;
        }
        let started_at_ms = publication.started_at_ms;
        let state = newest.state.after(publication.sample.ok, started_at_ms, THRESHOLDS);
        if state != it.state {
            let (who, e) = (&it.instance, &publication.tenure.endpoint);
            world.fail(format!(
                "a verdict of {e}, stored by {who:?}: {:?} is not {state:?}",
                it.state
            ));
        }
    }

    /// One leader for each role, and terms that grow.
    fn leaders(&self, world: &World, member: &Member) {
        let unaware_of_sleep =
            |it: &Member| world.now() < it.pause.roles_unaware_of_sleep_until.get();
        if !member.observed.answered.replace(false) || unaware_of_sleep(member) {
            return;
        }
        let leads = |it: &Member| it.stages.electors.borrow().as_ref().map_or(0, |it| it.leads());
        let mine = leads(member);
        if mine == 0 {
            return;
        }
        self.checks.set(self.checks.get() + 1);
        for other in world.members.borrow().iter().filter(|it| it.n != member.n && !it.gone.get()) {
            let both = mine & leads(other);
            if both != 0 && !unaware_of_sleep(other) {
                let (one, two, n) = (&member.name, &other.name, both.trailing_zeros());
                world.fail(format!("two leaders: {one} and {two} lead r{n}"));
            }
        }
        let terms =
            member.stages.electors.borrow().as_ref().map(|it| it.terms()).unwrap_or_default();
        for (n, term) in terms.into_iter().enumerate() {
            let newest = &mut self.terms.borrow_mut()[n];
            if term.is_some_and(|it| it < *newest) {
                let name = &member.name;
                world.fail(format!("{name} leads r{n} in term {term:?} after {newest}"));
            }
            *newest = (*newest).max(term.unwrap_or(0));
        }
    }
}
