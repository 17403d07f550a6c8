//! Several instances that stand for roles, in memory: the production steps of `election` on one manual
//! clock, put together as `src/election/runtime.rs` does, without a thread or a sleep.
//!
//! `pass` lets time go by in small steps. At every step of every thread it checks that at most one instance
//! is leader of a role, that nobody leads while another still holds it, if only until a duty has ended, and
//! that terms never go back. Faults: `crash` (gone), `cut_off` (runs, no store), `freeze` (stands still, then
//! wakes), `sleep` (the same on a clock that does not count it), and whatever happens to the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use leasehold::clock::{Clock, ManualClock, Moment};
use leasehold::election::Duty;
use leasehold::election::elector::Elector;
use leasehold::election::parts::{CandidateContext, RoleKeeper, RoleParts};
use leasehold::election::role_elector::attempt::Verdict;
use leasehold::election::role_state::RoleState;
use leasehold::election::{ElectionEvent, ElectionSettings, State};
use leasehold::lease::watch::Nudge;
use leasehold::model::{EndpointId, FenceToken, InstanceId, Role};
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::store::{PeerMessage, Push, Store, Subscription};
use parking_lot::Mutex;

use crate::cluster::SkewedClock;

pub const TTL: Duration = Duration::from_secs(3);
pub const MARGIN: Duration = Duration::from_millis(190);
/// Of a role whose TTL nobody knows: that of the default TTL of 30 s.
pub const UNKNOWN_HOLD_OFF: Duration = Duration::from_secs(31);
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// Long: whatever is noticed within seconds is not noticed by this.
pub const ELECTION: Duration = Duration::from_secs(15);
const TIMEOUT: Duration = Duration::from_millis(300);
pub const STEP: Duration = Duration::from_millis(10);

pub fn role(name: &str) -> Role {
    Role::parse(name).unwrap()
}

pub fn lease(name: &str) -> EndpointId {
    EndpointId::parse(name).unwrap()
}

/// As an instance with default settings stands, in the times of these tests.
pub fn settings(name: &str) -> ElectionSettings {
    ElectionSettings {
        role: role(name),
        ttl: TTL,
        heartbeat_interval: HEARTBEAT,
        election_interval: ELECTION,
        startup_jitter: Duration::ZERO,
        priority: 0,
        stands: true,
        store_timeout: TIMEOUT,
    }
}

/// One role of one instance.
pub struct Stand {
    pub role_state: Arc<RoleState>,
    /// Until the store has accepted the timing of the role.
    newcomer: Option<RoleParts>,
    pub events: Arc<Mutex<Vec<ElectionEvent>>>,
    duties: Vec<(Duty, Moment)>,
}

pub struct Member {
    pub me: InstanceId,
    pub store: MemoryStore,
    pub clock: Arc<SkewedClock>,
    pub stands: BTreeMap<String, Stand>,
    poked: Receiver<()>,
    poke: crossbeam_channel::Sender<()>,
    subscription: Option<Box<dyn Subscription>>,
    elector: Elector,
    keeper: RoleKeeper,
    due: Due,
    is_frozen: bool,
    /// Loses every message of the others.
    loses_messages: bool,
    /// When it last woke from a sleep its clock did not count. Nothing is promised of what it held before,
    /// until it has asked about it.
    woke_at: Moment,
}

/// When each thread of a member steps next.
#[derive(Default)]
struct Due {
    listen: Moment,
    elect: Moment,
    renew: Moment,
    expire: Moment,
}

pub struct Electorate {
    pub clock: Arc<ManualClock>,
    pub server: Arc<MemoryServer>,
    pub members: BTreeMap<String, Member>,
    starts: BTreeMap<String, u32>,
    newest: BTreeMap<String, FenceToken>,
    /// The test changed lease keys by hand, so two instances may hold one role.
    pub is_tampered: bool,
    ticks: usize,
}

impl Electorate {
    /// Nobody yet, on a store that has never seen an election.
    pub fn empty() -> Self {
        let clock = Arc::new(ManualClock::at(10_000_000_000_000));
        Self {
            server: MemoryServer::of_roles(&clock),
            clock,
            members: BTreeMap::new(),
            starts: BTreeMap::new(),
            newest: BTreeMap::new(),
            is_tampered: false,
            ticks: 0,
        }
    }

    /// These instances, all standing for the role `r`, led by the first of them.
    pub fn led_by_first(names: &[&str]) -> Self {
        let mut all = Self::empty();
        all.join_with(names[0], settings("r"), 1_000, true);
        all.pass(STEP);
        assert_eq!(all.leader("r"), Some(names[0].into()));
        names[1..].iter().for_each(|it| all.join(it, settings("r")));
        all.pass(20 * STEP);
        all
    }

    pub fn join(&mut self, name: &str, settings: ElectionSettings) {
        self.join_with(name, settings, 1_000, false);
    }

    /// Never the same id twice, as in life: the n-th start of "b" is "b", "b~2", "b~3" …
    pub fn join_with(
        &mut self,
        name: &str,
        settings: ElectionSettings,
        rate: u64,
        new_fleet: bool,
    ) {
        if !self.members.contains_key(name) {
            let starts = self.starts.entry(name.into()).or_insert(0);
            *starts += 1;
            let id = if *starts == 1 { name.into() } else { format!("{name}~{starts}") };
            let member = Member::new(&id, &self.server, SkewedClock::new(&self.clock, rate));
            self.members.insert(name.into(), member);
        }
        self.members.get_mut(name).unwrap().stand(settings, new_fleet, None);
    }

    /// Stands once; where it is told how that ended.
    pub fn join_once(&mut self, name: &str, settings: ElectionSettings) -> Receiver<Verdict> {
        let (verdict, decided) = bounded(1);
        let member = Member::new(name, &self.server, SkewedClock::new(&self.clock, 1_000));
        self.members.insert(name.into(), member);
        self.members.get_mut(name).unwrap().stand(settings, false, Some(verdict));
        decided
    }

    pub fn member(&self, name: &str) -> &Member {
        self.members.get(name).unwrap_or_else(|| panic!("{name} is gone"))
    }

    pub fn role_state(&self, name: &str, role: &str) -> &Arc<RoleState> {
        &self.member(name).stands[role].role_state
    }

    pub fn id(&self, name: &str) -> InstanceId {
        self.member(name).me.clone()
    }

    pub fn state(&self, name: &str, role: &str) -> State {
        self.role_state(name, role).state()
    }

    /// What listeners were told since this was last asked.
    pub fn news(&self, name: &str, role: &str) -> Vec<ElectionEvent> {
        std::mem::take(&mut *self.member(name).stands[role].events.lock())
    }

    pub fn forget_news(&self) {
        let stands = self.members.values().flat_map(|it| it.stands.values());
        stands.for_each(|it| it.events.lock().clear());
    }

    pub fn crash(&mut self, name: &str) {
        let member = self.members.remove(name).unwrap();
        // What it had begun ended with its process.
        drop(member);
    }

    pub fn cut_off(&self, name: &str, cut: bool) {
        self.member(name).store.cut_off(cut);
    }

    pub fn freeze(&mut self, name: &str, frozen: bool) {
        self.members.get_mut(name).unwrap().is_frozen = frozen;
    }

    pub fn lose_messages(&mut self, name: &str, lost: bool) {
        self.members.get_mut(name).unwrap().loses_messages = lost;
    }

    /// Paused by its hypervisor, on a clock that does not count the pause.
    pub fn sleep(&mut self, name: &str, duration: Duration) {
        self.freeze(name, true);
        let fell_asleep_at = self.member(name).clock.now();
        self.pass(duration);
        let member = self.members.get_mut(name).unwrap();
        member.clock.sleep(member.clock.now().since(fell_asleep_at));
        member.woke_at = member.clock.now();
        member.is_frozen = false;
    }

    pub fn resign(&self, name: &str, role: &str) {
        self.role_state(name, role).resign(None);
    }

    /// Asks it to end; it is gone when every role of it has been given back.
    pub fn stop(&self, name: &str) {
        self.member(name).stands.values().for_each(|it| it.role_state.stop());
    }

    /// Begins some of the leader's work, which takes so long unless it sees that it must stop.
    pub fn work(&mut self, name: &str, role: &str, duration: Duration) -> bool {
        let member = self.members.get_mut(name).unwrap();
        let until = member.clock.now() + duration;
        let stand = member.stands.get_mut(role).unwrap();
        let Some(duty) = stand.role_state.enter() else { return false };
        stand.duties.push((duty, until));
        true
    }

    /// Says something to all, as a stranger could.
    pub fn say(&self, message: &PeerMessage) {
        MemoryStore::new(&self.server).wake(std::slice::from_ref(message), TIMEOUT).unwrap();
    }

    /// Who may act as leader.
    pub fn leaders(&self, role: &str) -> Vec<&str> {
        let leads = |it: &&Member| it.stands.get(role).is_some_and(|it| it.role_state.is_leader());
        let all = self.members.iter().filter(|it| leads(&it.1));
        all.map(|it| it.0.as_str()).collect()
    }

    pub fn leader(&self, role: &str) -> Option<String> {
        self.leaders(role).first().map(|it| (*it).to_owned())
    }

    /// Passes until `holds`, for at most `limit`; how long it took.
    #[track_caller]
    pub fn pass_until(&mut self, limit: Duration, holds: impl Fn(&Self) -> bool) -> Duration {
        let from = self.clock.now();
        while !holds(self) {
            let waited = self.clock.now().since(from);
            assert!(waited < limit, "not within {limit:?}: {}", self.story());
            self.pass(STEP);
        }
        self.clock.now().since(from)
    }

    fn story(&self) -> String {
        let member = |(name, it): (&String, &Member)| {
            let stands = it.stands.iter().map(|(role, it)| {
                let role_state = &it.role_state;
                let leads = if role_state.is_leader() { " leads" } else { "" };
                format!("{role}: {:?}{leads}, sees {:?}", role_state.state(), role_state.leader())
            });
            format!("{name} [{}]", stands.collect::<Vec<_>>().join("; "))
        };
        self.members.iter().map(member).collect::<Vec<_>>().join(", ")
    }

    pub fn pass(&mut self, duration: Duration) {
        let end = self.clock.now() + duration;
        while self.clock.now() < end {
            self.clock.pass(STEP);
            self.server.catch_up();
            self.ticks += 1;
            let mut names: Vec<String> = self.members.keys().cloned().collect();
            // Not always the same first.
            let turn = self.ticks % names.len().max(1);
            names.rotate_left(turn);
            for name in names {
                for thread in 0..4 {
                    let member = self.members.get_mut(&name).unwrap();
                    if !member.is_frozen {
                        member.step((thread + self.ticks) % 4);
                    }
                    self.check();
                }
                if self.members[&name].stands.is_empty() {
                    self.members.remove(&name);
                }
            }
        }
    }

    fn check(&mut self) {
        let mut leading: BTreeMap<&str, Vec<(&str, FenceToken)>> = BTreeMap::new();
        let mut holding: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, member) in &self.members {
            let now = member.clock.now();
            for (role, stand) in &member.stands {
                let held = stand.role_state.table().holding(stand.role_state.role().as_lease());
                let Some(held) = held.filter(|it| it.renewed_at > member.woke_at) else {
                    continue;
                };
                if let Some(term) = stand.role_state.term() {
                    leading.entry(role).or_default().push((name, term));
                }
                if now < held.deadline {
                    holding.entry(role).or_default().push(name);
                }
            }
        }
        for (role, leaders) in leading {
            assert!(leaders.len() == 1, "{role} is led by {leaders:?}");
            let held = holding.remove(role).unwrap_or_default();
            assert!(
                self.is_tampered || held.len() <= 1,
                "{role} is led by {leaders:?}, held by {held:?}"
            );
            let newest = self.newest.entry(role.into()).or_insert(FenceToken::new(0));
            assert!(leaders[0].1 >= *newest, "{role} is led by {leaders:?} after term {newest}");
            *newest = leaders[0].1;
        }
    }
}

impl Member {
    fn new(id: &str, server: &Arc<MemoryServer>, clock: Arc<SkewedClock>) -> Self {
        let (poke, poked) = bounded(1);
        let store = MemoryStore::new(server);
        let shared: Arc<dyn Store> = Arc::new(store.share());
        let keeper = RoleKeeper::new(Arc::clone(&shared));
        Self {
            me: InstanceId::new(id),
            store,
            clock,
            elector: Elector::new(shared, keeper.clone()),
            keeper,
            stands: BTreeMap::new(),
            poked,
            poke,
            subscription: None,
            due: Due::default(),
            is_frozen: false,
            loses_messages: false,
            woke_at: Moment::MIN,
        }
    }

    fn stand(
        &mut self,
        settings: ElectionSettings,
        new_fleet: bool,
        verdict: Option<crossbeam_channel::Sender<Verdict>>,
    ) {
        let clock: Arc<dyn Clock> = Arc::<SkewedClock>::clone(&self.clock);
        let line: Arc<dyn Store> = Arc::new(self.store.share());
        let (me, poke) = (&self.me, &self.poke);
        let role = settings.role.clone();
        let context =
            CandidateContext { me, clock: &clock, new_fleet, elector: &line, renewal: &line, poke };
        let mut newcomer = RoleParts::assemble(settings, &context);
        if let Some(verdict) = verdict {
            newcomer.elector = newcomer.elector.once(verdict);
        }
        let role_state = Arc::clone(&newcomer.role_state);
        let events = Arc::<Mutex<Vec<ElectionEvent>>>::default();
        let heard = Arc::clone(&events);
        let _stays = role_state.listen_inline(move |it| heard.lock().push(it.clone()));
        let stand = Stand { role_state, newcomer: Some(newcomer), events, duties: Vec::new() };
        self.stands.insert(role.as_str().into(), stand);
        self.due = Due { listen: self.due.listen, ..Due::default() };
    }

    fn step(&mut self, thread: usize) {
        let now = self.clock.now();
        match thread {
            0 => self.elect(now),
            1 if now >= self.due.renew => self.due.renew = now + self.keeper.renew(),
            2 if now >= self.due.expire => self.due.expire = now + self.keeper.expire(),
            1 | 2 => (),
            _ => {
                for stand in self.stands.values_mut() {
                    let role_state = &stand.role_state;
                    let lost = |it: &Duty| {
                        role_state
                            .table()
                            .tenure(role_state.role().as_lease())
                            .is_none_or(|held| held.fence != it.term())
                    };
                    stand.duties.retain(|(duty, until)| now < *until && !lost(duty));
                }
            }
        }
    }

    /// Introduces newcomers, as `Elections` does; then one turn of the loop of `Elector::run`.
    fn elect(&mut self, now: Moment) {
        let (messages, is_news) = self.listen(now);
        let is_poked = self.poked.try_recv().is_ok();
        if !is_news && !is_poked && messages.is_empty() && now < self.due.elect {
            return;
        }
        let mut wait = Duration::from_secs(1);
        for stand in self.stands.values_mut() {
            let Some(newcomer) = stand.newcomer.take() else { continue };
            if newcomer.elector.introduce().is_err() {
                stand.newcomer = Some(newcomer);
                wait = TTL / 12;
            } else if let Some(candidate) = self.keeper.keep(newcomer) {
                self.elector.welcome(candidate, bounded(1).0);
            }
        }
        if is_news {
            let (messages, changes, refused) = (true, false, None);
            self.elector.apply(&Nudge::Listening { messages, changes, refused });
        }
        messages.into_iter().for_each(|it| self.elector.apply(&Nudge::Push(Push::Message(it))));
        wait = wait.min(self.elector.step());
        let is_over = |it: &RoleState| it.is_stopping() && !it.has_leadership();
        self.stands.retain(|_, it| !is_over(&it.role_state) || !it.duties.is_empty());
        self.due.elect = now + wait;
    }

    /// As the thread `role-watch` does: the messages, and whether some may have been missed.
    fn listen(&mut self, now: Moment) -> (Vec<PeerMessage>, bool) {
        let Some(subscription) = &mut self.subscription else {
            if now < self.due.listen {
                return (vec![], false);
            }
            self.due.listen = now + TIMEOUT;
            self.subscription = self.store.listen(&self.me, TIMEOUT).ok();
            return (vec![], self.subscription.is_some());
        };
        let mut messages = Vec::new();
        loop {
            match subscription.next(Duration::ZERO) {
                Ok(None) => return (messages, false),
                Ok(Some(Push::Message(message))) if !self.loses_messages => messages.push(message),
                Ok(Some(_)) => (),
                Err(_) => {
                    self.subscription = None;
                    return (messages, true);
                }
            }
        }
    }
}
