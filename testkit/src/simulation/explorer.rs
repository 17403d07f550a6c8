//! Every interleaving of the small case: two instances, one endpoint, one Redis with a replica.
//!
//! The tables, leases and epoch trackers are those of production; the server is the in-memory one with its scripts.
//! A state is reached by playing its choices from the beginning. A state that equals an earlier one, with as many choices
//! left, is not explored again. Two states are equal if tables, server and messages under way are: times are compared
//! relative to now, and numbers that only grow by their order.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock};
use leasehold::lease::table::{LeaseTimings, OwnershipTable, PendingRequest};
use leasehold::model::{EndpointId, InstanceId, InstanceInfo, LeaseDuration, Tenure, Weight};
use leasehold::store::memory::{MemoryServer, MemoryStore, Snapshot};
use leasehold::store::{
    Acquire, HeartbeatReply, Hint, Renew, RenewItem, Reply, Revocation, Revocations, Store, Verify,
};

const TTL: Duration = Duration::from_secs(3);
/// Five of these are just within a holder's rights of 2.81 s, six are more than the 3 s of the store.
const QUANTUM: Duration = Duration::from_millis(550);
const NAMES: [&str; 2] = ["a", "b"];

/// How far to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Messages sent, executed, answered or given up.
    pub events: u8,
    /// Times that a quantum passes.
    pub ticks: u8,
    /// Promotions and restarts.
    pub faults: u8,
}

/// A deliberate weakness, outside of production code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    None,
    /// The server's clock runs 9.5 % too fast. At 10 % questions are late (R4) and it is noticed (R5).
    FastServer,
    /// After a restart an operator says that nobody else runs, which is not true: no hold-off.
    FalseNewFleet,
    /// Questions never expire (R4).
    NeverLate,
    /// Leases of a revoked instance may be taken over half a second after its revocation, not 1.13 s (R16).
    HastyTakeover,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    pub states: u64,
    pub transitions: u64,
    pub interleavings: u128,
    /// How two owners come about, if they do.
    pub counterexample: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Asked, executed and answered at once.
    Exchange(usize, Verb),
    Send(usize, Verb),
    Execute(usize),
    Deliver(usize),
    GiveUp(usize),
    Tick,
    Replicate,
    Promote,
    RestartEmpty,
    /// A hint lies about this instance (R16).
    Revoke(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Beat,
    Renew,
    Acquire,
    Release,
    /// Only where instances may be revoked (R15).
    Verify,
}

const VERBS: [Verb; 5] = [Verb::Beat, Verb::Renew, Verb::Acquire, Verb::Release, Verb::Verify];

#[derive(Debug)]
enum Answer {
    Beat(Reply<HeartbeatReply>),
    Renew(Reply<Vec<Renew>>),
    Acquire(Reply<Vec<Acquire>>),
    Verify(Reply<Vec<Verify>>),
    Nothing,
}

#[derive(Debug)]
struct Message {
    from: usize,
    verb: Verb,
    request: PendingRequest,
    items: Vec<RenewItem>,
    tenures: Vec<Tenure>,
    answer: Option<Answer>,
    awaited: bool,
}

struct Small {
    clock: Arc<ManualClock>,
    server: Arc<MemoryServer>,
    store: MemoryStore,
    tables: Vec<OwnershipTable>,
    messages: Vec<Message>,
    replica: Snapshot,
    endpoint: EndpointId,
    case: Case,
}

fn table(
    clock: &Arc<ManualClock>,
    name: &str,
    new_fleet: bool,
    is_revocable: bool,
) -> OwnershipTable {
    let timings = LeaseTimings {
        lease: LeaseDuration::new(TTL),
        heartbeat: LeaseDuration::new(TTL),
        // Due again as soon as time has passed.
        renew_interval: Duration::from_millis(1),
        // So long that a question shows how much of the heartbeat is left.
        store_timeout: TTL,
    };
    let own: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    let table = OwnershipTable::new(InstanceId::new(name), timings, own, new_fleet);
    if is_revocable { table.revocable() } else { table }
}

/// Which small case is explored.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Instances may be revoked at any moment, and poll only under a fresh verification (R15, R16).
    pub is_revocable: bool,
    pub weakness: Weakness,
}

impl Small {
    /// `a` holds the endpoint, both beat, nothing is under way, and the replica has it all.
    fn new(case: Case) -> Self {
        let clock = Arc::new(ManualClock::at(10_000_000_000_000));
        let server = MemoryServer::new(&clock);
        let mut small = Self {
            store: MemoryStore::new(&server),
            tables: NAMES.iter().map(|it| table(&clock, it, true, case.is_revocable)).collect(),
            messages: Vec::new(),
            replica: server.snapshot(),
            endpoint: EndpointId::parse("e").expect("legal"),
            clock,
            server,
            case,
        };
        for table in &small.tables {
            let _ = table.ensure_time_known(|timeout| small.store.time(timeout));
        }
        for (who, verb) in [(0, Verb::Beat), (1, Verb::Beat), (0, Verb::Acquire)] {
            // The first question only learns the epoch.
            for _ in 0..2 {
                small.send(who, verb);
                small.execute(0);
                small.deliver(0);
            }
        }
        small.replica = small.server.snapshot();
        small.clock.pass(Duration::from_millis(2));
        small
    }

    fn choices(&self, left: Budget) -> Vec<Choice> {
        let mut choices = Vec::new();
        if left.events > 0 {
            for (n, it) in self.messages.iter().enumerate() {
                match (&it.answer, it.awaited) {
                    (None, true) => choices.extend([Choice::Execute(n), Choice::GiveUp(n)]),
                    (None, false) => choices.push(Choice::Execute(n)),
                    (Some(_), true) => choices.extend([Choice::Deliver(n), Choice::GiveUp(n)]),
                    (Some(_), false) => (),
                }
            }
            if self.case.is_revocable {
                choices.extend((0..2).map(Choice::Revoke));
            }
            for (who, verb) in (0..2).flat_map(|who| VERBS.map(|verb| (who, verb))) {
                if self.may_send(who, verb) {
                    choices.extend([Choice::Exchange(who, verb), Choice::Send(who, verb)]);
                }
            }
        }
        if left.ticks > 0 {
            choices.push(Choice::Tick);
        }
        if left.faults > 0 {
            choices.extend([Choice::Replicate, Choice::Promote, Choice::RestartEmpty]);
        }
        choices
    }

    /// A thread asks one thing at a time, and only what makes sense to ask.
    fn may_send(&self, who: usize, verb: Verb) -> bool {
        let waits = |it: &Message| it.from == who && it.awaited && it.verb == verb;
        let held = self.tables[who].tenure(&self.endpoint).is_some();
        let sensible = match verb {
            Verb::Beat => true,
            Verb::Renew => self.tables[who].renewals().is_some(),
            Verb::Acquire => !held,
            Verb::Release => held,
            Verb::Verify => held && self.case.is_revocable,
        };
        self.messages.len() < 3 && sensible && !self.messages.iter().any(waits)
    }

    fn send(&mut self, from: usize, verb: Verb) {
        let table = &self.tables[from];
        let (mut items, mut tenures) = (Vec::new(), Vec::new());
        let mut request = table.request();
        if verb == Verb::Renew {
            let Some(renewals) = table.renewals() else { return };
            (request, items) = renewals;
        }
        if verb == Verb::Release {
            // R4: forgotten when it is sent.
            table.drain(&self.endpoint);
            tenures = table.take_drained(Duration::ZERO);
            request = table.release_request();
        }
        if verb == Verb::Verify {
            tenures.extend(table.tenure(&self.endpoint));
            request = table.verification(&tenures);
        }
        if self.case.weakness == Weakness::NeverLate {
            request.context.not_after_us = 0;
        }
        let awaited = verb != Verb::Release;
        self.messages.push(Message { from, verb, request, items, tenures, answer: None, awaited });
    }

    fn execute(&mut self, n: usize) {
        let it = &mut self.messages[n];
        let context = &it.request.context;
        let wanted = std::slice::from_ref(&self.endpoint);
        let info = InstanceInfo { beats: Some(1), ..InstanceInfo::default() };
        let info = Some(&info).filter(|_| self.case.is_revocable);
        it.answer = Some(match it.verb {
            Verb::Verify => {
                self.store.verify(context, &it.tenures).map_or(Answer::Nothing, Answer::Verify)
            }
            Verb::Beat => self
                .store
                .heartbeat(context, TTL, Weight(1), info)
                .map_or(Answer::Nothing, Answer::Beat),
            Verb::Renew => {
                self.store.renew(context, &it.items).map_or(Answer::Nothing, Answer::Renew)
            }
            Verb::Acquire => {
                self.store.acquire(context, wanted).map_or(Answer::Nothing, Answer::Acquire)
            }
            Verb::Release => {
                let _ = self.store.release(context, &it.tenures, &[]);
                Answer::Nothing
            }
        });
        if !it.awaited {
            self.messages.remove(n);
        }
    }

    fn deliver(&mut self, n: usize) {
        if !self.messages.get(n).is_some_and(|it| it.awaited) {
            return;
        }
        let it = self.messages.remove(n);
        let table = &self.tables[it.from];
        match &it.answer {
            Some(Answer::Beat(reply)) => drop(table.heartbeat_answered(&it.request, reply)),
            Some(Answer::Renew(reply)) => drop(table.renewed(&it.request, &it.items, reply)),
            Some(Answer::Acquire(reply)) => {
                let wanted = std::slice::from_ref(&self.endpoint);
                drop(table.granted(&it.request, wanted, reply));
            }
            Some(Answer::Verify(reply)) => drop(table.verified(&it.request, &it.tenures, reply)),
            _ => drop(table.unanswered(&it.items, "lost")),
        }
    }

    fn play(&mut self, choice: Choice) {
        match choice {
            Choice::Exchange(who, verb) => {
                self.send(who, verb);
                let last = self.messages.len() - 1;
                self.execute(last);
                self.deliver(last);
            }
            Choice::Send(who, verb) => self.send(who, verb),
            Choice::Execute(n) => self.execute(n),
            Choice::Deliver(n) => self.deliver(n),
            Choice::GiveUp(n) => {
                let it = &mut self.messages[n];
                it.awaited = false;
                self.tables[it.from].unanswered(&it.items, "no answer in time");
                if it.answer.is_some() {
                    self.messages.remove(n);
                }
            }
            Choice::Tick => {
                self.clock.pass(QUANTUM);
                if self.case.weakness == Weakness::FastServer {
                    self.server.step_clock(52);
                }
                self.tables.iter().for_each(|it| drop(it.expire()));
            }
            Choice::Revoke(who) => self.revoke(who),
            Choice::Replicate => self.replica = self.server.snapshot(),
            Choice::Promote => self.server.fail_over(&self.replica),
            Choice::RestartEmpty => {
                self.server.crash();
                self.server.restart(None);
                if self.case.weakness == Weakness::FalseNewFleet {
                    let stranger = table(&self.clock, "stranger", true, false);
                    let _ = stranger.ensure_time_known(|timeout| self.store.time(timeout));
                    let request = stranger.request();
                    let _ = self.store.heartbeat(&request.context, TTL, Weight(1), None);
                }
            }
        }
    }

    fn revoke(&self, who: usize) {
        let suspect = InstanceId::new(NAMES[who]);
        let revocation = Revocation { suspect, hint: Hint::Operator, not_after_us: 0 };
        let _ = self.store.revoke_instance(&revocation, TTL);
        if self.case.weakness == Weakness::HastyTakeover {
            self.server.hasten_revocations(600);
        }
    }

    fn has_two_owners(&self) -> bool {
        self.tables.iter().all(|it| it.may_start_poll(&self.endpoint))
    }

    /// Everything that can be seen, by its relation to now.
    fn state_hash(&self) -> u64 {
        let mut text = String::new();
        for it in &self.tables {
            let _ = write!(text, "{:?}{:?}", it.request(), it.holding(&self.endpoint));
            let _ = write!(text, "{:?}{:?}", it.hold_off(), it.next_renewal());
        }
        let _ = write!(text, "{:?}{:?}", self.server.snapshot(), self.replica);
        let mut messages: Vec<String> = self.messages.iter().map(|it| format!("{it:?}")).collect();
        messages.sort_unstable();
        let _ = write!(text, "{messages:?}");
        self.canonical(&text)
    }

    fn canonical(&self, text: &str) -> u64 {
        // Fences, floors and epochs only grow: their order counts. Everything else is a time.
        let grows = |at: usize| {
            ["Token(", "Epoch(", "granted: ", "released: ", "floor_us: ", "fence: ", "epoch: "]
                .iter()
                .any(|it| text[..at].ends_with(it))
        };
        let growing = big_numbers(text).filter(|it| grows(it.0));
        let mut numbers: Vec<u64> = growing.map(|it| it.1).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let now_ns = self.clock.now().as_nanos();
        let now_us = 1_700_000_000_000_000 + now_ns / 1_000;
        let mut hasher = DefaultHasher::new();
        let mut from = 0;
        for (at, number, length) in big_numbers(text).map(|it| (it.0, it.1, it.2)) {
            text[from..at].hash(&mut hasher);
            from = at + length;
            let (now, unit) = match number {
                1_000_000_000_000_001.. => (now_us, 50_000),
                // Revocations; the simulated clock begins later.
                1_600_000_000_000..2_000_000_000_000 => (now_us / 1_000, 50),
                _ => (now_ns, 50_000_000),
            };
            if grows(at) {
                numbers.binary_search(&number).hash(&mut hasher);
            } else {
                let distance = i128::from(number) - i128::from(now) + i128::from(unit) / 2;
                distance.div_euclid(i128::from(unit)).hash(&mut hasher);
            }
        }
        text[from..].hash(&mut hasher);
        hasher.finish()
    }
}

/// Where numbers stand that are moments, fences or epochs; which, and how long.
fn big_numbers(text: &str) -> impl Iterator<Item = (usize, u64, usize)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            if !bytes[at].is_ascii_digit() {
                at += 1;
                continue;
            }
            let from = at;
            while at < bytes.len() && bytes[at].is_ascii_digit() {
                at += 1;
            }
            // Seconds and fractions of durations are shorter.
            if (13..=16).contains(&(at - from)) {
                return text[from..at].parse().ok().map(|it| (from, it, at - from));
            }
        }
        None
    })
}

struct Explorer {
    case: Case,
    seen: HashMap<(u64, Budget), u128>,
    states: HashMap<u64, ()>,
    found: Explored,
}

/// Plays everything that can be chosen.
pub fn explore(budget: Budget, case: Case) -> Explored {
    let (seen, states) = (HashMap::new(), HashMap::new());
    let mut explorer = Explorer { case, seen, states, found: Explored::default() };
    let interleavings = explorer.walk(&mut Vec::new(), budget);
    let states = explorer.states.len() as u64;
    Explored { interleavings, states, ..explorer.found }
}

impl Explorer {
    /// How many ways there are from here to the end.
    fn walk(&mut self, path: &mut Vec<Choice>, left: Budget) -> u128 {
        let mut small = Small::new(self.case);
        path.iter().for_each(|it| small.play(*it));
        if small.has_two_owners() {
            let path = path.iter().map(|it| format!("{it:?}")).collect();
            self.found.counterexample = Some(path);
        }
        if self.found.counterexample.is_some() {
            return 0;
        }
        let key = (small.state_hash(), left);
        if let Some(ways) = self.seen.get(&key) {
            return *ways;
        }
        self.states.insert(key.0, ());
        let choices = small.choices(left);
        drop(small);
        let mut ways = u128::from(choices.is_empty());
        for choice in choices {
            self.found.transitions += 1;
            path.push(choice);
            ways += self.walk(path, left.after(choice));
            path.pop();
        }
        self.seen.insert(key, ways);
        ways
    }
}

impl Budget {
    fn after(self, choice: Choice) -> Self {
        match choice {
            Choice::Tick => Self { ticks: self.ticks - 1, ..self },
            Choice::Replicate | Choice::Promote | Choice::RestartEmpty => {
                Self { faults: self.faults - 1, ..self }
            }
            _ => Self { events: self.events - 1, ..self },
        }
    }
}
