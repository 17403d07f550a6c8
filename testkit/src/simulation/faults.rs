//! The faults that the simulator plays, and how each ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use leasehold::instance::shutdown::{PHASES, Phase};
use leasehold::store::memory::{MemoryStore, Mishap, Snapshot};
use leasehold::store::{Hint, Revocation, Revocations, Store};

use super::member::{LinkState, Member, Part};
use super::world::{Happening, MS, World, nanos};

/// Names of hosts.
pub const HOSTS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "y", "z"];
/// What an application wants of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Polled,
    Paused,
    Gone,
}

/// What happens at a planned time: a fault begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScheduledEvent {
    /// A random fault; then the next one is planned.
    Any,
    /// A process is started on this host, if there is none.
    Start(usize),
    Mend(usize),
    /// It wakes from a pause that its clock did not count.
    Awake(usize, u64),
    /// What a dead process left is given back (`ExecStopPost`).
    Revoke(usize),
    ServerRestarts(Memory),
    Promotion,
    /// The application stores its sessions again.
    Sessions,
}

/// What a server remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    Nothing,
    Old,
    Everything,
}

/// A kind of fault. The order is that of the draws: another order gives every seed another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Crash,
    Stop,
    Freeze,
    Suspend,
    UncountedPause,
    Partition,
    RequestsLost,
    RepliesLost,
    Weather,
    RestartEmpty,
    RestartOld,
    RestartWhole,
    LossyFailover,
    Demotion,
    FlushAll,
    ClockBack,
    ClockAhead,
    EpochEvicted,
    LeaseEvicted,
    HeartbeatEvicted,
    SessionChanged,
    Drained,
    LineBroken,
    MessagesLost,
    Garbage,
    ResultsLost,
    Revoked,
}

impl FaultKind {
    pub const ALL: [Self; 27] = [
        Self::Crash,
        Self::Stop,
        Self::Freeze,
        Self::Suspend,
        Self::UncountedPause,
        Self::Partition,
        Self::RequestsLost,
        Self::RepliesLost,
        Self::Weather,
        Self::RestartEmpty,
        Self::RestartOld,
        Self::RestartWhole,
        Self::LossyFailover,
        Self::Demotion,
        Self::FlushAll,
        Self::ClockBack,
        Self::ClockAhead,
        Self::EpochEvicted,
        Self::LeaseEvicted,
        Self::HeartbeatEvicted,
        Self::SessionChanged,
        Self::Drained,
        Self::LineBroken,
        Self::MessagesLost,
        Self::Garbage,
        Self::ResultsLost,
        Self::Revoked,
    ];

    /// The name in the count of what was played.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Stop => "stop",
            Self::Freeze => "freeze",
            Self::Suspend => "suspend",
            Self::UncountedPause => "pause that no clock counts",
            Self::Partition => "partition",
            Self::RequestsLost => "one-way: requests",
            Self::RepliesLost => "one-way: replies",
            Self::Weather => "weather",
            Self::RestartEmpty => "server restarts empty",
            Self::RestartOld => "server restarts from an old snapshot",
            Self::RestartWhole => "server restarts with everything",
            Self::LossyFailover => "failover that loses writes",
            Self::Demotion => "demotion",
            Self::FlushAll => "FLUSHALL",
            Self::ClockBack => "server clock back",
            Self::ClockAhead => "server clock ahead",
            Self::EpochEvicted => "epoch evicted",
            Self::LeaseEvicted => "lease evicted",
            Self::HeartbeatEvicted => "heartbeat evicted",
            Self::SessionChanged => "session added, paused, removed",
            Self::Drained => "drain",
            Self::LineBroken => "line breaks, roles resigned",
            Self::MessagesLost => "peer messages lost",
            Self::Garbage => "garbage in the epoch",
            Self::ResultsLost => "results lost",
            Self::Revoked => "revoked on a wrong hint",
        }
    }

    /// Whether the fault changes the server, so that it cannot befall one that is away.
    fn is_of_server(self) -> bool {
        let at = self as usize;
        (Self::RestartEmpty as usize..=Self::HeartbeatEvicted as usize).contains(&at)
            || self == Self::Garbage
    }
}

/// Shutdowns that were interrupted, by the phase in which they were (R11).
pub const INTERRUPTED: [&str; PHASES.len()] = [
    "shutdown interrupted: moves end",
    "shutdown interrupted: dispatch ends",
    "shutdown interrupted: others plan without it",
    "shutdown interrupted: polls end",
    "shutdown interrupted: the rest is published",
    "shutdown interrupted: the heartbeat ends",
    "shutdown interrupted: leases are released",
];

pub struct Faults {
    pub calm: Cell<bool>,
    pub mishaps: Cell<u64>,
    pub latency_us: Cell<u64>,
    pub wanted: RefCell<Vec<Wanted>>,
    pub drained: RefCell<Vec<bool>>,
    pub counts: RefCell<Vec<u64>>,
    /// Peer messages that are lost now, of a thousand.
    messages_lost: Cell<u64>,
    /// A peer message may have been lost at some time.
    pub ever_lost_messages: Cell<bool>,
    /// When the server's clock was last stepped; 0: never.
    pub stepped_at: Cell<u64>,
    /// Until when something may be executed that was sent long before.
    pub late_until: Cell<u64>,
    server: ServerState,
}

/// What the server can lose, and whether it is there.
#[derive(Default)]
struct ServerState {
    /// What the replica has, of polls and of roles.
    replica: RefCell<Option<(Snapshot, Snapshot)>>,
    /// What a restart from an old snapshot brings back.
    old: RefCell<Option<(Snapshot, Snapshot)>>,
    /// Down, or demoted.
    is_away: Cell<bool>,
    is_down: Cell<bool>,
}

impl Faults {
    pub fn new(endpoints: usize) -> Self {
        Self {
            calm: Cell::new(true),
            mishaps: Cell::new(0),
            latency_us: Cell::new(300),
            wanted: RefCell::new(vec![Wanted::Polled; endpoints]),
            drained: RefCell::new(vec![false; HOSTS.len()]),
            counts: RefCell::new(vec![0; FaultKind::ALL.len() + INTERRUPTED.len()]),
            messages_lost: Cell::new(0),
            ever_lost_messages: Cell::new(false),
            stepped_at: Cell::new(0),
            late_until: Cell::new(0),
            server: ServerState::default(),
        }
    }

    pub fn loses_message(&self, world: &World) -> bool {
        self.messages_lost.get() > 0 && world.dice.permille(self.messages_lost.get())
    }

    /// Faults begin.
    pub fn begin(&self, world: &World) {
        self.calm.set(false);
        self.latency_us.set(world.scene.latency_us);
        world.after(0, Happening::Fault(ScheduledEvent::Any));
    }

    /// Faults end: the server is up, processes run, and no process is cut off.
    pub fn end(&self, world: &World) {
        self.calm.set(true);
        world.trace.say(world.now(), || "--- nothing goes wrong any more".into());
        self.mishaps.set(0);
        self.messages_lost.set(0);
        self.latency_us.set(300);
        if self.server.is_away.replace(false) {
            self.revive(world, Memory::Everything);
        }
        for member in world.living() {
            member.link.state.set(LinkState::Open);
            member.link.results_lost_until.set(0);
            member.thaw(world);
        }
        let hosts = world.scene.instances;
        for host in 0..hosts {
            let running = host_of(world, host).is_some();
            if !running && (host < 2 || world.dice.permille(500)) {
                start(world, host);
            }
        }
        // At least one instance must be able to take leases.
        let takes = |it: &Rc<Member>| it.weight > 0 && !it.is_to_stop();
        if !world.living().iter().any(takes) {
            Member::start(world, HOSTS[HOSTS.len() - 1], 1_000_000, 1);
        }
        let takers: Vec<String> =
            world.living().iter().filter(|it| takes(it)).map(|it| it.name[..1].into()).collect();
        let mut drained = self.drained.borrow_mut();
        let is_taker = |n: usize| takers.iter().any(|it| it == HOSTS[n]);
        if !(0..HOSTS.len()).any(|it| is_taker(it) && !drained[it]) {
            drained.fill(false);
        }
        drop(drained);
        self.put_sessions(world);
    }

    /// What the application and the operator have stored.
    pub fn put_sessions(&self, world: &World) {
        for (n, wanted) in self.wanted.borrow().iter().enumerate() {
            let (id, paused) = (format!("e{n}"), *wanted == Wanted::Paused);
            let json = format!(r#"{{"id":"{id}","address":"127.0.0.1:1","isPaused":{paused}}}"#);
            match wanted {
                Wanted::Gone => world.server.remove_session(&id),
                _ => world.server.put_session(&id, json.as_bytes()),
            }
        }
        for (host, drained) in self.drained.borrow().iter().enumerate() {
            world.server.set_drain(HOSTS[host], *drained);
        }
        world.wake_subscribers();
    }

    fn snapshot(world: &World) -> (Snapshot, Snapshot) {
        (world.server.snapshot(), world.roles.snapshot())
    }

    fn revive(&self, world: &World, memory: Memory) {
        self.server.is_away.set(false);
        self.server.is_down.set(false);
        let everything = Self::snapshot(world);
        let old = self.server.old.borrow().clone();
        let from = match memory {
            Memory::Nothing => None,
            Memory::Old => old,
            Memory::Everything => Some(everything),
        };
        world.server.restart(from.as_ref().map(|it| &it.0));
        world.roles.restart(from.as_ref().map(|it| &it.1));
        if memory != Memory::Everything {
            world.judge.forgotten(world);
            world.after(world.dice.skewed(3_000) * MS, Happening::Fault(ScheduledEvent::Sessions));
        }
    }

    pub fn happen(&self, world: &World, event: ScheduledEvent) {
        if self.calm.get() && !matches!(event, ScheduledEvent::Revoke(_)) {
            return;
        }
        if event != ScheduledEvent::Any {
            world.trace.say(world.now(), || format!("--- {event:?}"));
        }
        match event {
            ScheduledEvent::Any => {
                self.any(world);
                let gap = nanos(world.scene.fault_gap);
                world.after(world.dice.below(2 * gap), Happening::Fault(ScheduledEvent::Any));
            }
            ScheduledEvent::Start(host) => {
                if host_of(world, host).is_none() {
                    start(world, host);
                }
            }
            ScheduledEvent::Mend(n) => world.member(n).link.state.set(LinkState::Open),
            ScheduledEvent::Awake(n, slept) => world.member(n).slept(world, slept),
            ScheduledEvent::Revoke(n) => {
                // Another process on the same host, with a connection of its own.
                let store = MemoryStore::new(&world.server);
                let _ =
                    store.revoke(world.member(n).table.instance(), true, Duration::from_secs(1));
                world.wake_subscribers();
            }
            ScheduledEvent::ServerRestarts(memory) if self.server.is_down.get() => {
                self.revive(world, memory);
            }
            // Nobody is promoted while the server is down: it comes back by itself.
            ScheduledEvent::Promotion if !self.server.is_down.get() => {
                self.server.is_away.set(false);
                if let Some((polls, roles)) = self.server.replica.take() {
                    world.server.fail_over(&polls);
                    world.roles.fail_over(&roles);
                    world.judge.forgotten(world);
                    world.after(
                        world.dice.skewed(2_000) * MS,
                        Happening::Fault(ScheduledEvent::Sessions),
                    );
                }
            }
            ScheduledEvent::Sessions => self.put_sessions(world),
            ScheduledEvent::ServerRestarts(_) | ScheduledEvent::Promotion => (),
        }
    }

    /// Plays a random fault.
    fn any(&self, world: &World) {
        let (dice, scene) = (&world.dice, &world.scene);
        let living = world.living();
        if living.is_empty() {
            return start(world, 0);
        }
        let drawn = usize::try_from(dice.below(FaultKind::ALL.len() as u64)).unwrap_or(0);
        let kind = FaultKind::ALL[drawn];
        let forgets = matches!(
            kind,
            FaultKind::RestartEmpty
                | FaultKind::RestartOld
                | FaultKind::LossyFailover
                | FaultKind::FlushAll
                | FaultKind::EpochEvicted
                | FaultKind::Garbage
        );
        let is_unpromised = matches!(
            kind,
            FaultKind::UncountedPause | FaultKind::LeaseEvicted | FaultKind::HeartbeatEvicted
        );
        let away = self.server.is_away.get();
        let last = scene.step_ahead_max();
        let too_soon = world.now() < self.stepped_at.get() + 3 * nanos(scene.hold_off());
        // An instance cannot detect its own pause if the server's clock goes back meanwhile.
        let skip = ((forgets || kind == FaultKind::UncountedPause) && scene.clock_goes_back)
            || (kind == FaultKind::ClockBack && !scene.clock_goes_back)
            || (kind == FaultKind::ClockAhead
                && (too_soon || last < Duration::from_millis(2)))
            || (away && kind.is_of_server())
            // Faults for which nothing is promised are rare, because they excuse what follows.
            || (is_unpromised && !dice.permille(250));
        if skip {
            return;
        }
        self.counts.borrow_mut()[kind as usize] += 1;
        let member = Rc::clone(dice.pick(&living));
        let ttl = nanos(scene.timings.lease.ttl);
        // Up to two TTLs, short times more often.
        let span = dice.skewed(2 * ttl / MS) * MS;
        let name = &member.name;
        world.trace.say(world.now(), || format!("--- {}: {name}, {} ms", kind.name(), span / MS));
        match kind {
            FaultKind::LeaseEvicted | FaultKind::HeartbeatEvicted => {
                self.evict(world, &member, kind);
            }
            FaultKind::Garbage => write_garbage(world),
            FaultKind::SessionChanged => {
                let n = usize::try_from(dice.below(scene.endpoints as u64)).unwrap_or(0);
                let wanted = [Wanted::Polled, Wanted::Polled, Wanted::Paused, Wanted::Gone];
                self.wanted.borrow_mut()[n] = *dice.pick(&wanted);
                self.put_sessions(world);
            }
            FaultKind::Drained => {
                let host = usize::try_from(dice.below(scene.instances as u64)).unwrap_or(0);
                let drained = dice.permille(300);
                self.drained.borrow_mut()[host] = drained;
                world.server.set_drain(HOSTS[host], drained);
                world.wake_subscribers();
            }
            FaultKind::MessagesLost => {
                self.messages_lost.set(*dice.pick(&[0, 0, 100, 1_000]));
                self.ever_lost_messages
                    .set(self.ever_lost_messages.get() || self.messages_lost.get() > 0);
            }
            _ if kind.is_of_server() => self.befall_server(world, kind, span),
            _ => self.befall(world, &member, kind, span),
        }
    }

    /// A phase of a shutdown begins. A crash, a freeze, or a loss of Redis or of its replies may happen right now.
    pub fn in_shutdown(&self, world: &World, member: &Member, phase: Phase) {
        let dice = &world.dice;
        if self.calm.get() || !dice.permille(150) {
            return;
        }
        let at = PHASES.iter().position(|it| *it == phase).unwrap_or(0);
        self.counts.borrow_mut()[FaultKind::ALL.len() + at] += 1;
        let ttl = nanos(world.scene.timings.lease.ttl);
        let kinds = [
            FaultKind::Crash,
            FaultKind::Freeze,
            FaultKind::Partition,
            FaultKind::RequestsLost,
            FaultKind::RepliesLost,
        ];
        let (kind, span) = (*dice.pick(&kinds), dice.skewed(2 * ttl / MS) * MS);
        let name = &member.name;
        world.trace.say(world.now(), || format!("--- {}: {name}, {} ms", kind.name(), span / MS));
        self.befall(world, member, kind, span);
    }

    fn befall(&self, world: &World, member: &Member, kind: FaultKind, span: u64) {
        let dice = &world.dice;
        let mend = |way| {
            member.link.state.set(way);
            member.link.mended_at.set(world.now() + span);
            world.after(span, Happening::Fault(ScheduledEvent::Mend(member.n)));
        };
        let freeze = || {
            member
                .pause
                .frozen_until
                .set((world.now() + span).max(member.pause.frozen_until.get()));
            member.pause.thawed_at.set(member.pause.frozen_until.get());
        };
        let host = HOSTS.iter().position(|it| member.name.starts_with(it)).unwrap_or(0);
        match kind {
            FaultKind::Crash => {
                member.gone.set(true);
                world.server.hang_up(member.table.instance());
                member.observed.running.borrow_mut().clear();
                if dice.permille(300) {
                    let after = dice.skewed(1_000) * MS;
                    world.after(after, Happening::Fault(ScheduledEvent::Revoke(member.n)));
                }
                world.after(span, Happening::Fault(ScheduledEvent::Start(host)));
            }
            FaultKind::Stop => {
                member.wake(world, Part::Stop, 0);
                world.after(2_000 * MS + span, Happening::Fault(ScheduledEvent::Start(host)));
            }
            FaultKind::Freeze => freeze(),
            FaultKind::Suspend => {
                freeze();
                member.link.breaks.set(member.link.breaks.get() + 1);
            }
            FaultKind::UncountedPause if member.pause.frozen_until.get() <= world.now() => {
                freeze();
                world.after(span, Happening::Fault(ScheduledEvent::Awake(member.n, span)));
            }
            FaultKind::Partition => mend(LinkState::Cut),
            FaultKind::RequestsLost => mend(LinkState::NoRequests),
            FaultKind::RepliesLost => mend(LinkState::NoReplies),
            FaultKind::Weather => {
                self.mishaps.set(*dice.pick(&[0, world.scene.mishaps]));
                self.latency_us.set(*dice.pick(&[300, world.scene.latency_us]));
            }
            // For long enough to be noticed.
            FaultKind::ResultsLost => {
                let noticed = 2 * nanos(world.scene.timings.lease.ttl);
                member.link.results_lost_until.set(world.now() + noticed + span);
            }
            FaultKind::Revoked => revoke_instance(world, member),
            FaultKind::LineBroken => {
                member.link.breaks.set(member.link.breaks.get() + 1);
                if let Some(electors) = &*member.stages.electors.borrow() {
                    electors.resign();
                }
            }
            _ => (),
        }
    }

    fn befall_server(&self, world: &World, kind: FaultKind, span: u64) {
        let dice = &world.dice;
        match kind {
            FaultKind::RestartEmpty | FaultKind::RestartOld | FaultKind::RestartWhole => {
                let memory = match kind {
                    FaultKind::RestartEmpty => Memory::Nothing,
                    FaultKind::RestartOld => Memory::Old,
                    _ => Memory::Everything,
                };
                self.server.is_away.set(true);
                self.server.is_down.set(true);
                world.server.crash();
                world.roles.crash();
                world.after(span, Happening::Fault(ScheduledEvent::ServerRestarts(memory)));
            }
            // The replica stops here; or has everything.
            FaultKind::LossyFailover => {
                self.server.replica.replace(Some(Self::snapshot(world)));
                world.after(dice.skewed(5_000) * MS, Happening::Fault(ScheduledEvent::Promotion));
            }
            FaultKind::Demotion => {
                self.server.is_away.set(true);
                self.server.replica.replace(Some(Self::snapshot(world)));
                world.server.demote();
                world.roles.demote();
                world.after(span, Happening::Fault(ScheduledEvent::Promotion));
            }
            FaultKind::FlushAll => {
                world.server.flush();
                world.roles.flush();
                world.judge.forgotten(world);
                world.wake_subscribers();
                world.after(dice.skewed(3_000) * MS, Happening::Fault(ScheduledEvent::Sessions));
            }
            FaultKind::ClockBack => {
                let back = i64::try_from(dice.skewed(86_400_000)).unwrap_or(1);
                world.server.step_clock(-back);
                world.roles.step_clock(-back);
            }
            FaultKind::ClockAhead => {
                self.stepped_at.set(world.now());
                let max = u64::try_from(world.scene.step_ahead_max().as_millis()).unwrap_or(1);
                let ahead = i64::try_from(dice.between(1, max)).unwrap_or(1);
                world.server.step_clock(ahead);
                world.roles.step_clock(ahead);
            }
            _ => {
                world.server.delete_epoch();
                world.roles.delete_epoch();
            }
        }
        if dice.permille(300) {
            self.server.old.replace(Some(Self::snapshot(world)));
        }
    }

    /// Not promised (R14 refuses a server that evicts): what it concerns is left out of G1 for a while.
    fn evict(&self, world: &World, member: &Member, kind: FaultKind) {
        let excused = world.now() + 2 * nanos(world.scene.hold_off());
        for (n, endpoint) in world.endpoints.iter().enumerate() {
            // Granted, and maybe not heard of yet.
            let granted = world.server.owner(endpoint).as_ref() == Some(member.table.instance());
            let theirs = granted || member.table.tenure(endpoint).is_some();
            if theirs && (kind == FaultKind::HeartbeatEvicted || world.dice.permille(300)) {
                world.judge.tampered_until.borrow_mut()[n] = excused;
                if kind == FaultKind::LeaseEvicted {
                    world.server.delete_lease(endpoint);
                }
            }
        }
        if kind == FaultKind::HeartbeatEvicted {
            world.server.delete_node(member.table.instance());
            world.wake_subscribers();
        }
    }
}

/// A hint lies: whatever the instance does, it is revoked, now or by a request that arrives late.
fn revoke_instance(world: &World, member: &Member) {
    let store = MemoryStore::new(&world.server);
    if world.dice.permille(300) {
        let late = Duration::from_millis(world.dice.skewed(2_000));
        store.plan("revoke_instance", Mishap::ExecuteLate(late));
        world.after(nanos(late), Happening::CatchUp);
    }
    let suspect = member.table.instance().clone();
    let revocation = Revocation { suspect, hint: Hint::Operator, not_after_us: 0 };
    let reply = store.revoke_instance(&revocation, Duration::from_secs(1));
    world.trace.say(world.now(), || format!("--- revoke {}: {reply:?}", member.name));
    world.wake_subscribers();
}

/// Writes a value that is no number into a field of the epoch.
fn write_garbage(world: &World) {
    let dice = &world.dice;
    let text = *dice.pick(&["nan", "-5", "1e300", "inf", "", "9007199254740991"]);
    let field = *dice.pick(&["epoch", "since_ms", "floor_us", "born", "lease_ttl_ms"]);
    world.trace.say(world.now(), || format!("--- {field} = {text:?}"));
    for server in [&world.server, &world.roles] {
        server.write_epoch(field, text);
    }
}

/// The process that runs on this host, if one does.
fn host_of(world: &World, host: usize) -> Option<Rc<Member>> {
    world.living().into_iter().find(|it| it.name.starts_with(HOSTS[host]))
}

/// Starts a process on this host.
pub fn start(world: &World, host: usize) {
    let (slow, fast) = world.scene.rates;
    let dice = &world.dice;
    let rate = *dice.pick(&[slow, fast, dice.between(slow, fast)]);
    let weight = *dice.pick(&[1, 1, 1, 1, 1, 1, 3, 2, 0]);
    Member::start(world, HOSTS[host], rate, u32::try_from(weight).unwrap_or(1));
}
