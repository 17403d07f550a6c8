//! What does one client hold, and what has it been told? The state of a session, shared by its thread and the thread `agent`.
//!
//! Everything a client reads goes through the outbox, under one lock: answers in the order of its lines, pushes in the order
//! of the changes. Right before an answer, every change is told. So no answer is newer than a push that the client has not
//! got yet. Nothing here waits for Redis; what does is handed out, for the session's thread.

mod answering;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::agent::candidacy::Candidacy;
use crate::agent::places::Places;
use crate::agent::promise::Promise;
use crate::agent::protocol::{Answer, Bye, Push};
use crate::agent::role_lines::RoleLines;
pub(crate) use crate::agent::session::answering::Answering;
use crate::clock::{BootClock, Clock, Moment};
use crate::election::LeaderElection;
use crate::manager::{Lease, LeaseLoss};
use crate::model::{EndpointId, Role};

/// Most leases and roles of one client.
pub(crate) const NAMES_MAX: usize = 256;
/// Most bytes that wait for a client that does not read.
const UNREAD_MAX: usize = 64 * 1_024;
/// Longest wait before a promise is read again: the clock of a wait stands still in a suspend, that of a promise does not.
const WAIT: Duration = Duration::from_millis(250);

/// One client.
pub(crate) struct Session {
    pub(crate) id: u64,
    inner: Mutex<Inner>,
    /// The client can be told nothing more. Lines that wait are not carried out.
    is_gone: AtomicBool,
    /// No further line comes: waits end, and what has come is carried out.
    is_closing: AtomicBool,
    /// Everything is given back.
    is_over: AtomicBool,
    changed: Condvar,
}

struct Inner {
    promise: Promise,
    outbox: Vec<u8>,
    leases: BTreeMap<EndpointId, HeldLease>,
    roles: BTreeMap<Role, Candidacy>,
    /// Guards of tenures that have ended, for the session's thread to drop.
    ended: Vec<Lease>,
    /// What the session's thread waits for.
    waits_for: Option<EndpointId>,
    /// Why the agent ends the connection.
    bye: Option<Bye>,
    is_taken_down: bool,
}

struct HeldLease {
    lease: Lease,
    is_certain: bool,
}

/// The lines in which clients stand beside each other.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    pub(crate) places: &'a Places,
    pub(crate) roles: &'a RoleLines,
}

/// Everything of a client that has ended.
pub(crate) struct Remains {
    pub(crate) leases: Vec<Lease>,
    pub(crate) names: Vec<EndpointId>,
    pub(crate) roles: Vec<(Role, Candidacy)>,
}

impl Session {
    pub(crate) fn new(id: u64) -> Self {
        let inner = Inner {
            promise: Promise::new(BootClock.now()),
            outbox: Vec::new(),
            leases: BTreeMap::new(),
            roles: BTreeMap::new(),
            ended: Vec::new(),
            waits_for: None,
            bye: None,
            is_taken_down: false,
        };
        Self {
            id,
            inner: Mutex::new(inner),
            is_gone: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }

    /// Tells what has changed.
    pub(crate) fn look(&self, beside: Beside<'_>) {
        self.inner.lock().look(self.id, beside);
    }

    /// Tells what has changed, then the answer, which is made under the same lock.
    pub(crate) fn answer(
        &self,
        beside: Beside<'_>,
        answer: impl FnOnce(&mut Answering<'_>) -> Answer,
    ) {
        let mut inner = self.inner.lock();
        inner.look(self.id, beside);
        let answer = answer(&mut Answering::new(self, &mut inner, beside));
        inner.say(&answer);
    }

    /// Whether the client holds or stands for as much as it may.
    pub(crate) fn is_full(&self) -> bool {
        let inner = self.inner.lock();
        inner.leases.len() + inner.roles.len() >= NAMES_MAX
    }

    pub(crate) fn has_lease(&self, name: &EndpointId) -> bool {
        self.inner.lock().leases.contains_key(name)
    }

    pub(crate) fn has_role(&self, role: &Role) -> bool {
        self.inner.lock().roles.contains_key(role)
    }

    /// The guard of a lease that is to be given back.
    pub(crate) fn take(&self, name: &EndpointId) -> Option<Lease> {
        self.inner.lock().leases.remove(name).map(|it| it.lease)
    }

    /// Stands for a role from now on, from this place in line; false if it does already.
    pub(crate) fn add_role(&self, role: &Role, place: u64) -> bool {
        match self.inner.lock().roles.entry(role.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Candidacy::at(place));
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    pub(crate) fn take_role(&self, role: &Role) -> Option<Candidacy> {
        self.inner.lock().roles.remove(role)
    }

    /// The client is at the front of the line for a role; the election again if it has left that place.
    pub(crate) fn stand(
        &self,
        role: &Role,
        place: u64,
        election: LeaderElection,
    ) -> Result<(), LeaderElection> {
        match self.inner.lock().roles.get_mut(role).filter(|it| it.place() == place) {
            Some(candidacy) => {
                candidacy.stand(election);
                Ok(())
            }
            None => Err(election),
        }
    }

    /// Guards of tenures that have ended. Dropping them may wait.
    pub(crate) fn take_ended(&self) -> Vec<Lease> {
        std::mem::take(&mut self.inner.lock().ended)
    }

    /// Notes what the session's thread waits for, and until when a wait that ends at `until` goes on.
    pub(crate) fn wait_for(&self, name: Option<&EndpointId>) {
        self.inner.lock().waits_for = name.cloned();
    }

    pub(crate) fn waits_for(&self) -> Option<EndpointId> {
        self.inner.lock().waits_for.clone()
    }

    /// `until`, or at once when the client is going.
    pub(crate) fn until(&self, until: Moment) -> Moment {
        if self.is_closing.load(Ordering::Acquire) { Moment::MIN } else { until }
    }

    /// The client was heard.
    pub(crate) fn heard(&self, now: Moment) {
        self.inner.lock().promise.heard_at = now;
    }

    /// No further line comes. The caller wakes whatever the session's thread waits for.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Nobody is there any more.
    pub(crate) fn gone(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.close();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// The agent ends the connection. The first reason counts.
    pub(crate) fn evict(&self, why: Bye) {
        let mut inner = self.inner.lock();
        if inner.bye.is_none() {
            inner.bye = Some(why);
            inner.say(&Push::Bye(why));
        }
    }

    /// Why the agent is to end the connection, if it is: the client does not read, or is silent.
    pub(crate) fn due_bye(&self, now: Moment) -> Option<Bye> {
        let inner = self.inner.lock();
        if inner.outbox.len() > UNREAD_MAX {
            return Some(Bye::Unread);
        }
        (now >= inner.promise.silent_at()).then_some(Bye::Silent)
    }

    /// The agent stops at `until`: nothing is promised past that.
    pub(crate) fn tell_stop(&self, now: Moment, until: Moment) {
        let mut inner = self.inner.lock();
        inner.promise.stops_at = until;
        let lasts = inner.promise.give(now, until);
        inner.say(&Push::Stopping(lasts));
    }

    /// Sends what waits; `send` never blocks, and says how much it took.
    pub(crate) fn send(&self, send: impl FnOnce(&[u8]) -> usize) {
        let mut inner = self.inner.lock();
        if !inner.outbox.is_empty() {
            let sent = send(&inner.outbox);
            inner.outbox.drain(..sent);
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.inner.lock().outbox.is_empty()
    }

    /// Takes every role that the client was not told to lead.
    pub(crate) fn take_followers(&self) -> Vec<(Role, Candidacy)> {
        let mut inner = self.inner.lock();
        let roles = std::mem::take(&mut inner.roles);
        let (leading, following) = roles.into_iter().partition(|it| it.1.leads_or_did());
        inner.roles = leading;
        Vec::from_iter::<BTreeMap<_, _>>(following)
    }

    /// Waits until nothing is left of what the client was told, if the agent has ended the connection: a client that is
    /// frozen counts on it. One that has gone itself counts on nothing.
    pub(crate) fn wait_out_promises(&self, is_hurried: impl Fn() -> bool) {
        let mut inner = self.inner.lock();
        while inner.bye.is_some() && !is_hurried() {
            let left = inner.promise.over_at().since(BootClock.now());
            if left.is_zero() {
                return;
            }
            self.changed.wait_for(&mut inner, left.min(WAIT));
        }
    }

    /// Takes everything that the client has. Nothing is added after that.
    pub(crate) fn take_down(&self) -> Remains {
        let mut inner = self.inner.lock();
        inner.is_taken_down = true;
        let leases = std::mem::take(&mut inner.leases);
        let roles = std::mem::take(&mut inner.roles);
        drop(inner);
        let (names, leases) = leases.into_iter().map(|(name, it)| (name, it.lease)).unzip();
        Remains { leases, names, roles: roles.into_iter().collect() }
    }

    pub(crate) fn over(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(crate) fn bye(&self) -> Option<Bye> {
        self.inner.lock().bye
    }
}

impl Inner {
    fn say(&mut self, line: &impl Display) {
        if self.outbox.len() <= UNREAD_MAX {
            self.outbox.extend_from_slice(format!("{line}\n").as_bytes());
        }
    }

    fn look(&mut self, client: u64, beside: Beside<'_>) {
        if self.bye.is_some() {
            return; // nothing more is promised to a client that the agent has left
        }
        let Self { promise, leases, roles, .. } = self;
        let (now, mut pushes, mut lost) = (BootClock.now(), Vec::new(), Vec::new());
        for (name, held) in leases.iter_mut() {
            match held.look(name, promise, now) {
                Some(push @ Push::Lost { .. }) => {
                    pushes.push(push);
                    lost.push(name.clone());
                }
                push => pushes.extend(push),
            }
        }
        for (role, candidacy) in roles {
            pushes.extend(
                beside.roles.with_leader(role, |leader| candidacy.look(role, leader, promise, now)),
            );
        }
        for name in lost {
            // The next client in line may ask; this guard is of a tenure that is over.
            beside.places.leave(&name, client);
            self.ended.extend(self.leases.remove(&name).map(|it| it.lease));
        }
        pushes.iter().for_each(|it| self.say(it));
    }
}

impl HeldLease {
    fn look(&mut self, name: &EndpointId, promise: &mut Promise, now: Moment) -> Option<Push> {
        let (name, fence) = (name.clone(), self.lease.fence());
        if self.lease.wait_lost(Duration::ZERO) {
            let loss = self.lease.watch().loss().unwrap_or(LeaseLoss::Expired);
            return Some(Push::Lost { name, fence, loss });
        }
        let is_certain = self.lease.holds();
        if std::mem::replace(&mut self.is_certain, is_certain) == is_certain {
            return None;
        }
        Some(if is_certain {
            let lasts = promise.give(now, now + self.lease.remaining());
            Push::Certain { name, fence, lasts }
        } else {
            Push::Uncertain { name, fence }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::places::Turn;
    use crate::clock::ManualClock;
    use crate::config::Config;
    use crate::lease::keeper::Connections;
    use crate::manager::LeaseManager;
    use crate::model::InstanceId;
    use crate::store::Store;
    use crate::store::memory::{MemoryServer, MemoryStore};

    struct Rig {
        manager: LeaseManager,
        places: Places,
        roles: RoleLines,
        session: Session,
        name: EndpointId,
    }

    impl Rig {
        /// A client that was told that it holds a lease.
        fn new() -> Self {
            let server = MemoryServer::new(&Arc::new(ManualClock::at(10_000_000_000_000)));
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&server));
            let config = Config { new_fleet: true, ..Config::default() }.checked().unwrap();
            let (me, connections) = (InstanceId::new("a"), Connections::shared(&store));
            let clock = Arc::new(BootClock);
            let manager = LeaseManager::start_on(&config, me, &connections, clock).unwrap();
            let (places, roles) = (Places::default(), RoleLines::new());
            let (session, name) = (Session::new(1), EndpointId::parse("n").unwrap());
            let rig = Self { manager, places, roles, session, name };
            rig.places.wait(&rig.name, 1, || Moment::MAX);
            rig.places.held(&rig.name);
            let lease = rig.manager.try_acquire("n").unwrap().held().unwrap();
            rig.session.answer(rig.beside(), |it| it.keep(&rig.name, lease).unwrap());
            assert!(rig.told().starts_with("HELD n fence="));
            rig
        }

        fn beside(&self) -> Beside<'_> {
            Beside { places: &self.places, roles: &self.roles }
        }

        /// What waits for the client.
        fn told(&self) -> String {
            let mut told = String::new();
            self.session.send(|bytes| {
                told = String::from_utf8(bytes.to_vec()).unwrap();
                bytes.len()
            });
            told
        }
    }

    #[test]
    fn what_was_lost_is_told_before_the_next_answer_whatever_that_is_about() {
        let rig = Rig::new();
        assert!(rig.manager.release("n").is_ok()); // behind the client's back
        rig.session.answer(rig.beside(), |_| Answer::Pong);
        let told = rig.told();
        assert!(told.starts_with("!LOST n fence=") && told.ends_with(" expired\nPONG\n"), "{told}");
        rig.session.answer(rig.beside(), |it| it.holds(&rig.name));
        assert_eq!(rig.told(), "NOTHELD n\n", "told once");
        assert_eq!(rig.session.take_ended().len(), 1, "for the session's thread to drop");
    }

    #[test]
    fn the_next_client_in_line_is_at_the_front_as_soon_as_the_lease_is_lost() {
        let rig = Rig::new();
        assert_eq!(rig.places.wait(&rig.name, 2, || Moment::MIN), Turn::Held);
        assert!(rig.manager.release("n").is_ok());
        rig.session.look(rig.beside());
        assert_eq!(rig.places.wait(&rig.name, 2, || Moment::MIN), Turn::Front);
    }

    #[test]
    fn a_client_that_the_agent_has_left_is_told_and_promised_nothing_more() {
        let rig = Rig::new();
        let over_at = rig.session.inner.lock().promise.over_at();
        rig.session.evict(Bye::Unread);
        rig.session.evict(Bye::Silent);
        assert_eq!(rig.told(), "!BYE unread\n");
        assert!(rig.manager.release("n").is_ok());
        rig.session.look(rig.beside());
        assert_eq!(rig.told(), "");
        assert_eq!(rig.session.inner.lock().promise.over_at(), over_at);
    }

    #[test]
    fn a_grant_for_a_client_that_has_gone_is_not_kept() {
        let rig = Rig::new();
        let lease = rig.manager.try_acquire("m").unwrap().held().unwrap();
        rig.session.gone();
        let (mut back, name) = (None, EndpointId::parse("m").unwrap());
        rig.session.answer(rig.beside(), |it| {
            back = it.keep(&name, lease).err();
            Answer::Pong
        });
        assert!(back.is_some());
    }

    #[test]
    fn what_waits_for_a_client_that_does_not_read_has_a_bound() {
        let rig = Rig::new();
        for _ in 0..10_000 {
            rig.session.answer(rig.beside(), |_| Answer::Help);
        }
        assert_eq!(rig.session.due_bye(Moment::MIN), Some(Bye::Unread));
        assert!(rig.told().len() < UNREAD_MAX + 1_000);
    }
}
