//! Who should lead? Looks, stands, hands over: everything that is decided about one role.
//!
//! The thread `elector` steps through its candidates. What is held is kept by the renewal's and the
//! expiry's thread, as for every lease.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::clock::Moment;
use crate::config::{Config, ConfigError};
use crate::election::State;
use crate::election::office::Office;
use crate::event::Event;
use crate::model::{Epoch, FenceToken, InstanceId, Role, Tenure, Term};
use crate::pipeline::ownership::Rhythm;
use crate::pipeline::placement::spread;
use crate::store::{Acquire, Fault, Lasting, Store, StoreError, Wake};

/// How long after it gave up a role an instance leaves it to the others.
const REST: Duration = Duration::from_secs(2);
/// How long the others leave a role to the one it was given up for.
const HEIR_FIRST: Duration = Duration::from_millis(500);
/// A key is gone this much after the end it was seen to have.
const AFTER_END: Duration = Duration::from_millis(2);
/// While it leads there is nothing to look for; words and losses wake it.
const WHILE_HELD: Duration = Duration::from_secs(1);
/// An epoch that changes again and again is no reason to stand still for ever.
const ATTEMPTS_MAX: usize = 3;

/// How one instance stands for one role.
#[derive(Clone, Debug)]
pub struct Candidacy {
    /// The role.
    pub role: Role,
    /// How long it lasts without being renewed: the same for everybody who stands for it (R14).
    pub ttl: Duration,
    /// How often a leader renews it, and its heartbeat with it.
    pub heartbeat_interval: Duration,
    /// How often one that does not lead looks even if nothing happened.
    pub election_interval: Duration,
    /// Waits by chance up to this long before it first stands.
    pub startup_jitter: Duration,
    /// A leader gives way to one with a higher priority.
    pub priority: u32,
    /// Stands at all; otherwise it only knows who leads.
    pub stands: bool,
    /// Longest wait for any answer.
    pub store_timeout: Duration,
}

impl Candidacy {
    /// Refuses what [`Config::checked`] refuses.
    pub fn check(&self) -> Result<(), ConfigError> {
        let config = Config {
            lease_ttl: self.ttl,
            renew_interval: self.heartbeat_interval,
            heartbeat_ttl: self.ttl,
            heartbeat_interval: self.heartbeat_interval,
            election_interval: self.election_interval,
            startup_jitter: self.startup_jitter,
            store_timeout: self.store_timeout,
            host_name: "any".into(),
            ..Config::default()
        };
        config.checked().map(drop)
    }

    /// The times its table keeps.
    pub fn rhythm(&self) -> Rhythm {
        let lease = Term::new(self.ttl);
        let (renew_interval, store_timeout) = (self.heartbeat_interval, self.store_timeout);
        Rhythm { lease, heartbeat: lease, renew_interval, store_timeout }
    }
}

/// What came of a single attempt.
pub type Verdict = Result<Outcome, StoreError>;

/// Elected, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This one.
    Elected,
    /// Another.
    LedBy(InstanceId),
}

/// One role's elector.
pub struct Candidate {
    office: Arc<Office>,
    store: Arc<dyn Store>,
    candidacy: Candidacy,
    look_at: Moment,
    /// Not before: a delay at the start, the heir's turn, a rest.
    stand_at: Moment,
    /// When a leader of less priority may be asked again.
    ask_at: Moment,
    /// For a single attempt: whom to tell how it ended.
    verdict: Option<Sender<Verdict>>,
    away_since: Option<Moment>,
    held_off_in: Epoch,
}

impl Candidate {
    /// Stands from now on, after its delay.
    pub fn new(office: Arc<Office>, store: Arc<dyn Store>, candidacy: Candidacy) -> Self {
        let now = office.table().now();
        // By chance, but the same in every run of a test.
        let chance = spread(office.table().instance().as_str(), 1_000);
        let delay = candidacy.startup_jitter / 1_000 * u32::try_from(chance).unwrap_or(0);
        Self {
            office,
            store,
            candidacy,
            look_at: now,
            stand_at: now + delay,
            ask_at: now,
            verdict: None,
            away_since: None,
            held_off_in: Epoch::default(),
        }
    }

    /// Stands once, and never again: tells `verdict` how it ended.
    pub fn once(mut self, verdict: Sender<Verdict>) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// What this instance knows about the role.
    pub fn office(&self) -> &Arc<Office> {
        &self.office
    }

    /// R14: names the role's timing, or is refused it; learns the epoch. Grants nothing.
    pub fn introduce(&self) -> Result<(), StoreError> {
        if !self.candidacy.stands {
            return Ok(());
        }
        let table = self.office.table();
        table.learn_time(|timeout| self.store.time(timeout))?;
        let question = table.question();
        let nothing = Tenure::new(self.candidacy.role.as_lease().clone(), FenceToken(0));
        let reply = self.store.verify(&question.ask, &[nothing])?;
        table.saw(&question, &reply);
        Ok(())
    }

    /// Whether nothing is left to do for it.
    pub fn is_finished(&self) -> bool {
        self.office.is_stopping() && !self.office.is_held()
    }

    /// Does what is due; how long to wait for the next.
    pub fn step(&mut self) -> Duration {
        self.give_back();
        let now = self.office.table().now();
        if !self.office.is_held() && now >= self.look_at && !self.office.is_stopping() {
            self.look_at = now + self.candidacy.election_interval;
            self.look();
        }
        if self.office.is_held() {
            // When it is lost, whatever was seen before is out of date.
            self.look_at = now;
            return WHILE_HELD;
        }
        self.look_at.since(self.office.table().now())
    }

    /// Something may have been missed.
    pub fn look_now(&mut self) {
        self.look_at = self.office.table().now();
    }

    /// Another instance said something.
    pub fn hear(&mut self, word: &Wake) {
        let (role, now) = (self.candidacy.role.as_lease(), self.office.table().now());
        let me = self.office.table().instance();
        if word.from == *me {
            return;
        }
        if word.resign.contains(role) {
            self.office.resign(None);
        }
        // R8: it is asked for, so somebody lives who wants it. R10: who could not be granted it yet.
        let is_void = self.office.table().hold_off().is_some();
        if word.wants.contains(role) && word.priority > self.candidacy.priority && !is_void {
            self.office.resign(Some(word.from.clone()));
        }
        if word.freed.contains(role) {
            self.look_at = now;
            match &word.heir {
                Some(heir) if heir == me => self.stand_at = now,
                Some(_) => self.stand_at = self.stand_at.max(now + HEIR_FIRST),
                None => (),
            }
        }
        if word.took.contains(role) {
            self.look_at = now;
        }
    }

    /// The last step of giving up: what was under way has ended.
    fn give_back(&mut self) {
        let Some((tenure, heir)) = self.office.let_go() else { return };
        let table = self.office.table();
        let freed = vec![tenure.endpoint.clone()];
        let word = Wake { freed, heir, ..Wake::new(table.instance(), None) };
        if let Err(error) = self.store.release(&table.question().ask, &[tenure], &[word]) {
            self.in_trouble(&error);
        }
        let now = self.office.table().now();
        self.look_at = now;
        self.stand_at = now + REST;
    }

    fn look(&mut self) {
        let role = self.candidacy.role.as_lease().clone();
        let seen = self.store.seats(&[role], self.candidacy.store_timeout);
        let seat = match seen.map(|it| it.into_iter().next()) {
            Ok(Some(seat)) => seat,
            Ok(None) => return,
            Err(error) => return self.could_not(error),
        };
        self.out_of_trouble();
        self.office.saw(seat.leader.as_ref());
        let me = self.office.table().instance();
        match seat.leader {
            Some(leader) if leader.it != *me && !seat.is_stale => self.follow(&leader),
            _ => self.stand(),
        }
    }

    /// Somebody leads. R9: looks again right when that would end.
    fn follow(&mut self, leader: &Lasting<InstanceId>) {
        self.office.follow();
        let now = self.office.table().now();
        self.look_at = self.look_at.min(now + leader.left + AFTER_END);
        if self.decide(Ok(Outcome::LedBy(leader.it.clone()))) {
            return;
        }
        let may_ask = now >= self.stand_at && now >= self.ask_at;
        if self.candidacy.priority > 0 && self.candidacy.stands && may_ask {
            self.ask_at = now + self.candidacy.election_interval.min(self.candidacy.ttl);
            // Also one that hears nothing is to see what it was given, while others leave it to it.
            self.look_at = self.look_at.min(now + HEIR_FIRST / 2);
            let wants = vec![self.candidacy.role.as_lease().clone()];
            let priority = self.candidacy.priority;
            let word = Wake::new(self.office.table().instance(), Some(leader.it.clone()));
            let word = Wake { wants, priority, ..word };
            // Lost, it is said again at a later look.
            let _ = self.store.wake(&[word], self.candidacy.store_timeout);
        }
    }

    /// Nobody leads, or one whose heartbeat is over.
    fn stand(&mut self) {
        let now = self.office.table().now();
        if !self.candidacy.stands {
            return self.office.follow();
        }
        if now < self.stand_at {
            self.look_at = self.stand_at;
            return;
        }
        self.office.stand();
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt() {
                Ok(Some(answer)) => return self.answered(answer),
                Ok(None) => (),
                Err(error) => return self.could_not(error),
            }
        }
        self.look_soon();
    }

    /// Asks for the role; `None` when the epoch changed under the question (R5).
    fn attempt(&self) -> Result<Option<Acquire>, StoreError> {
        let table = self.office.table();
        let wanted = std::slice::from_ref(self.candidacy.role.as_lease());
        table.learn_time(|timeout| self.store.time(timeout))?;
        let question = table.question();
        let reply = self.store.acquire(&question.ask, wanted)?;
        let (gained, _) = table.granted(&question, wanted, &reply);
        if let Some(gained) = gained.first() {
            self.office.elected(&gained.tenure);
        }
        Ok(reply.answer.and_then(|it| it.into_iter().next()))
    }

    fn answered(&mut self, answer: Acquire) {
        let now = self.office.table().now();
        match answer {
            Acquire::Granted { .. } if self.office.is_held() => {
                self.decide(Ok(Outcome::Elected));
            }
            Acquire::HeldBy(winner) => {
                self.office.not_elected(Some(&winner), &format!("{winner} was elected"));
                // To learn until when. A stale leader stays until the end of a hold-off: no hurry then.
                match self.office.table().hold_off() {
                    None => self.look_at = now,
                    Some(_) => self.look_soon(),
                }
                self.decide(Ok(Outcome::LedBy(winner)));
            }
            Acquire::HoldOff => self.wait_for_end_of_hold_off(),
            // Granted too late to be of use, or asked too late: once more.
            Acquire::Granted { .. } | Acquire::Late | Acquire::NoHeartbeat => self.look_soon(),
            Acquire::Failed(why) => {
                let (op, target) = ("acquire", self.candidacy.role.to_string());
                self.could_not(StoreError { op, target, fault: Fault::Refused, reason: why });
            }
        }
    }

    /// R5: a candidate until then, because nothing is decided.
    fn wait_for_end_of_hold_off(&mut self) {
        let table = self.office.table();
        let left = table.hold_off().unwrap_or_default();
        if self.held_off_in != table.epoch() {
            self.held_off_in = table.epoch();
            let epoch = table.epoch().0;
            Event::StoreHoldoff { left, epoch }.log(table.instance());
        }
        // What we know of it is on the safe side of a rate difference; asking early does no harm.
        let left = left * 100 / (100 + Term::RATE_PERCENT) + AFTER_END;
        self.look_at = self.look_at.min(table.now() + left);
    }

    fn look_soon(&mut self) {
        let table = self.office.table();
        self.look_at = table.now() + table.rhythm().retry_interval();
    }

    /// Nothing is known: fails closed.
    fn could_not(&mut self, error: StoreError) {
        self.in_trouble(&error);
        if self.office.state() == State::Candidate {
            self.office.not_elected(None, &error.to_string());
        }
        self.look_soon();
        self.decide(Err(error));
    }

    fn in_trouble(&mut self, error: &StoreError) {
        let table = self.office.table();
        if self.away_since.is_none() {
            Event::StoreUnreachable { error }.log(table.instance());
        }
        self.away_since.get_or_insert(table.now());
    }

    fn out_of_trouble(&mut self) {
        let table = self.office.table();
        if let Some(since) = self.away_since.take() {
            Event::StoreReachable { away: table.now().since(since) }.log(table.instance());
        }
    }

    /// Ends a single attempt; false for one that stands on and on.
    fn decide(&mut self, verdict: Verdict) -> bool {
        let Some(waiting) = self.verdict.take() else { return false };
        self.candidacy.stands = false;
        let _ = waiting.send(verdict);
        true
    }
}
