//! Who should lead? Looks, stands, hands over: everything that is decided about one role.
//!
//! The thread `elector` steps through its candidates. What is held is kept by the renewal's and the
//! expiry's thread, as for every lease.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::clock::Moment;
pub(crate) use crate::election::candidacy::Next;
pub use crate::election::candidacy::{Candidacy, Outcome, Verdict};
use crate::election::heirs::{Heirs, pause};
use crate::election::office::Office;
use crate::election::{State, rounds};
use crate::event::Event;
use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, Tenure, Term};
use crate::pipeline::ownership::Question;
use crate::pipeline::placement::spread;
use crate::store::{Acquire, Ask, Asked, Fault, Lasting, Seat, Stamped, Store, StoreError, Wake};

/// How long after it gave up a role an instance leaves it to the others.
const REST: Duration = Duration::from_secs(2);
/// How long the others leave a role to the one it was given up for.
const HEIR_FIRST: Duration = Duration::from_millis(500);
/// A key is gone this much after the end it was seen to have.
const AFTER_END: Duration = Duration::from_millis(2);
/// While it leads there is nothing to look for; words and losses wake it.
const WHILE_HELD: Duration = Duration::from_secs(1);

/// One role's elector.
pub struct Candidate {
    office: Arc<Office>,
    store: Arc<dyn Store>,
    candidacy: Candidacy,
    look_at: Moment,
    /// Not before: a delay at the start, the heir's turn.
    stand_at: Moment,
    /// It gave the role up: not before this, or before somebody else has led.
    rest_until: Moment,
    /// When a leader of less priority may be asked again.
    ask_at: Moment,
    /// A leader was asked, and the attempt that may follow has not come yet.
    has_asked: bool,
    /// How often it could not be elected, in a row.
    failures: u32,
    heirs: Heirs,
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
            rest_until: now,
            ask_at: now,
            has_asked: false,
            failures: 0,
            heirs: Heirs::default(),
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

    pub(crate) fn stands(&self) -> bool {
        self.candidacy.stands
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

    /// A round of its own: does what is due; how long to wait for the next.
    pub fn step(&mut self) -> Duration {
        let store = Arc::clone(&self.store);
        rounds::elect(&*store, [self], false).wait
    }

    /// How long until there is something to do.
    pub(crate) fn wait(&mut self) -> Duration {
        let now = self.office.table().now();
        if self.office.is_held() {
            // When it is lost, whatever was seen before is out of date.
            self.look_at = now;
            return WHILE_HELD;
        }
        self.look_at.since(now)
    }

    /// Whether it is time to look at the role.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = self.office.table().now();
        let is_due = !self.office.is_held() && now >= self.look_at && !self.office.is_stopping();
        if is_due {
            self.look_at = now + self.candidacy.election_interval;
        }
        is_due
    }

    pub(crate) fn role(&self) -> &EndpointId {
        self.candidacy.role.as_lease()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.candidacy.store_timeout
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
        if word.wants.contains(role)
            && word.priority > self.candidacy.priority
            && !is_void
            && self.heirs.may_have(&word.from, now)
        {
            self.office.resign(Some(word.from.clone()));
        }
        if word.freed.contains(role) {
            self.look_at = now;
            self.heirs.led_by(&word.from, now);
            self.rest_until = now;
            match &word.heir {
                Some(heir) if heir == me => self.stand_at = now,
                Some(heir) => {
                    self.heirs.await_one(heir);
                    self.stand_at = self.stand_at.max(now + HEIR_FIRST);
                }
                None => (),
            }
        }
        if word.took.contains(role) {
            self.look_at = now;
            self.heirs.led_by(&word.from, now);
            self.rest_until = now;
        }
    }

    /// The last step of giving up, when what was under way has ended: what to send. R4: the table has forgotten it.
    pub(crate) fn let_go(&mut self) -> Option<(Ask, Tenure, Wake)> {
        let (tenure, heir) = self.office.let_go()?;
        let table = self.office.table();
        let now = table.now();
        // The others come first: the heir and, if it does not come, those who led less lately.
        let rest = if heir.is_some() { HEIR_FIRST * 3 / 2 } else { REST };
        self.rest_until = now + rest;
        self.ask_at = self.ask_at.max(now + REST);
        heir.iter().for_each(|it| self.heirs.await_one(it));
        let freed = vec![tenure.endpoint.clone()];
        let word = Wake { freed, heir, ..Wake::new(table.instance(), None) };
        Some((table.question().ask, tenure, word))
    }

    /// What came of that.
    pub(crate) fn given_back(&mut self, failure: Option<&StoreError>) {
        failure.into_iter().for_each(|it| self.in_trouble(it));
        self.look_at = self.office.table().now();
    }

    /// Takes in how the role stands; what follows.
    pub(crate) fn looked(&mut self, seat: Seat) -> Next {
        self.out_of_trouble();
        self.office.saw(seat.leader.as_ref());
        let me = self.office.table().instance();
        match seat.leader {
            Some(leader) if leader.it != *me && !seat.is_stale => self.follow(&leader),
            _ => self.stand(),
        }
    }

    /// Somebody leads. R9: looks again right when that would end.
    fn follow(&mut self, leader: &Lasting<InstanceId>) -> Next {
        self.office.follow();
        let now = self.office.table().now();
        self.heirs.led_by(&leader.it, now);
        // The rest was for others to lead, and one does.
        self.rest_until = now;
        self.look_at = self.look_at.min(now + leader.left + AFTER_END);
        if self.decide(Ok(Outcome::LedBy(leader.it.clone()))) {
            return Next::Rest;
        }
        let ask_at = self.ask_at.max(self.stand_at);
        let may_ask = now >= ask_at;
        if self.candidacy.priority > 0 && self.candidacy.stands && !may_ask {
            // Not at the end of the lease: all the others look then, and one of them would find the role free before
            // it hears for whom.
            self.look_at = self.look_at.min(ask_at);
        }
        if self.candidacy.priority > 0 && self.candidacy.stands && may_ask {
            self.ask_at = now + self.candidacy.election_interval.min(self.candidacy.ttl);
            self.has_asked = true;
            // Also one that hears nothing is to see what it was given, while others leave it to it.
            self.look_at = self.look_at.min(now + HEIR_FIRST / 2);
            let wants = vec![self.candidacy.role.as_lease().clone()];
            let priority = self.candidacy.priority;
            let word = Wake::new(self.office.table().instance(), Some(leader.it.clone()));
            return Next::Ask(Wake { wants, priority, ..word });
        }
        Next::Rest
    }

    /// Nobody leads, or one whose heartbeat is over.
    fn stand(&mut self) -> Next {
        let now = self.office.table().now();
        if !self.candidacy.stands {
            self.office.follow();
            return Next::Rest;
        }
        let stand_at = self.stand_at.max(self.rest_until);
        if now < stand_at {
            self.look_at = stand_at;
            return Next::Rest;
        }
        self.office.stand();
        Next::Stand
    }

    /// For the role, now.
    pub(crate) fn question(&self) -> Asked<Question> {
        let table = self.office.table();
        table.learn_time(|timeout| self.store.time(timeout))?;
        Ok(table.question())
    }

    /// Takes in what came of asking for the role; whether to ask again, because the epoch changed under the
    /// question (R5).
    pub(crate) fn attempted(&mut self, question: &Question, reply: Stamped<Vec<Acquire>>) -> bool {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                self.could_not_stand(error);
                return false;
            }
        };
        let wanted = std::slice::from_ref(self.candidacy.role.as_lease());
        let (gained, _) = self.office.table().granted(question, wanted, &reply);
        if let Some(gained) = gained.first() {
            self.office.elected(&gained.tenure);
        }
        match reply.answer.and_then(|it| it.into_iter().next()) {
            Some(answer) => {
                self.answered(answer);
                false
            }
            None => true,
        }
    }

    /// The role could not be asked for.
    pub(crate) fn could_not_stand(&mut self, error: StoreError) {
        self.not_elected(error.fault != Fault::Unreachable);
        self.could_not(error);
    }

    /// A leader gives up for who asks, and its work with it: whoever then cannot be elected asks less and less often.
    fn not_elected(&mut self, is_refused: bool) {
        if is_refused || self.has_asked {
            self.failures = self.failures.saturating_add(1);
            self.ask_at = self.ask_at.max(self.office.table().now() + pause(self.failures));
        }
        self.has_asked = false;
    }

    fn answered(&mut self, answer: Acquire) {
        let now = self.office.table().now();
        match answer {
            Acquire::Granted { .. } if self.office.is_held() => {
                let me = self.office.table().instance();
                self.heirs.led_by(me, now);
                (self.failures, self.has_asked) = (0, false);
                self.decide(Ok(Outcome::Elected));
            }
            Acquire::HeldBy(winner) => {
                self.heirs.led_by(&winner, now);
                self.not_elected(false);
                self.office.not_elected(Some(&winner), &format!("{winner} was elected"));
                // To learn until when. A stale leader stays until the end of a hold-off: no hurry then.
                match self.office.table().hold_off() {
                    None => self.look_at = now,
                    Some(_) => self.look_soon(),
                }
                self.decide(Ok(Outcome::LedBy(winner)));
            }
            // R5: the server's clock was stepped, which begins the hold-off anew. The sooner it begins, the sooner it ends.
            Acquire::HoldOff if self.office.table().question().ask.suspect => self.look_at = now,
            Acquire::HoldOff => self.wait_for_end_of_hold_off(),
            // Granted too late to be of use, or asked too late: once more.
            Acquire::Granted { .. } | Acquire::Late | Acquire::NoHeartbeat => self.look_soon(),
            Acquire::Failed(why) => {
                self.not_elected(true);
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

    pub(crate) fn look_soon(&mut self) {
        let table = self.office.table();
        self.look_at = table.now() + table.rhythm().retry_interval();
    }

    /// Nothing is known: fails closed.
    pub(crate) fn could_not(&mut self, error: StoreError) {
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
