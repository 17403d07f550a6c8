//! Should this instance become leader of a role, or resign? Reads the role from the store, acquires it, and hands it over.
//!
//! The thread `elector` calls the steps of each [`RoleElector`]. The threads `role-renewal` and `role-expiry` keep a role that
//! is held.

pub mod attempt;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::election::State;
use crate::election::heirs::{ABSENT_PAUSE, Heirs, PAUSE_MAX};
use crate::election::role_elector::attempt::{Next, Outcome, Verdict};
use crate::election::role_state::RoleState;
use crate::election::settings::ElectionSettings;
use crate::event::Event;
use crate::lease::trouble::Outage;
use crate::model::spread;
use crate::model::{EndpointId, Epoch, InstanceId, Tenure};
use crate::store::{Lasting, PeerMessage, RequestContext, RoleStatus, Store, StoreError};

/// How long an instance that resigned leaves the role to others.
const REST: Duration = Duration::from_secs(2);
/// The same after a resignation for an heir: the heir has `HEIR_FIRST`, then the other candidates come before the old leader.
const REST_FOR_HEIR: Duration = Duration::from_millis(750);
/// How long the other candidates leave a role to its heir.
const HEIR_FIRST: Duration = Duration::from_millis(500);
/// How long after the expected end of a key the next look comes.
const AFTER_END: Duration = Duration::from_millis(2);
/// Interval of looks while this instance leads. Messages and losses wake the elector earlier.
const WHILE_HELD: Duration = Duration::from_secs(1);

/// One role's elector.
pub struct RoleElector {
    role_state: Arc<RoleState>,
    store: Arc<dyn Store>,
    settings: ElectionSettings,
    look_at: Moment,
    /// The earliest attempt: after the delay at the start, or after `HEIR_FIRST` (500 ms) for an heir.
    stand_at: Moment,
    /// After a resignation: no attempt before this, unless another instance has led.
    rest_until: Moment,
    asking: Asking,
    heirs: Heirs,
    /// For a single attempt: receives its outcome.
    verdict: Option<Sender<Verdict>>,
    outage: Outage,
    held_off_in: Epoch,
}

/// Requests to a leader of lower priority to give way.
struct Asking {
    /// When a leader may be asked again.
    next_at: Moment,
    /// A leader was asked, and the attempt that may follow has not come yet.
    is_pending: bool,
    /// A candidate that could not be elected asks less and less often.
    refusals: Backoff<()>,
}

impl RoleElector {
    /// Stands from now on, after its delay.
    pub fn new(
        role_state: Arc<RoleState>,
        store: Arc<dyn Store>,
        settings: ElectionSettings,
    ) -> Self {
        let now = role_state.table().now();
        // By chance, but the same in every run of a test.
        let chance = spread(role_state.table().instance().as_str(), 1_000);
        let delay = settings.startup_jitter / 1_000 * u32::try_from(chance).unwrap_or(0);
        Self {
            role_state,
            store,
            settings,
            look_at: now,
            stand_at: now + delay,
            rest_until: now,
            asking: Asking {
                next_at: now,
                is_pending: false,
                refusals: Backoff::new(ABSENT_PAUSE, PAUSE_MAX),
            },
            heirs: Heirs::new(),
            verdict: None,
            outage: Outage::default(),
            held_off_in: Epoch::default(),
        }
    }

    /// Stands once, and never again: tells `verdict` how it ended.
    pub fn once(mut self, verdict: Sender<Verdict>) -> Self {
        self.verdict = Some(verdict);
        self
    }

    pub(crate) fn stands(&self) -> bool {
        self.settings.stands
    }

    /// What this instance knows about the role.
    pub fn role_state(&self) -> &Arc<RoleState> {
        &self.role_state
    }

    /// R14: names the role's timing, or is refused it; learns the epoch. Grants nothing.
    #[cfg(any(test, feature = "__internals"))]
    pub fn introduce(&self) -> Result<(), StoreError> {
        crate::election::rounds::introduce(&*self.store, &[self]).remove(0)
    }

    /// Whether nothing is left to do for it.
    pub fn is_finished(&self) -> bool {
        self.role_state.is_stopping() && !self.role_state.has_leadership()
    }

    /// A round for this role alone; how long to wait for the next.
    #[cfg(any(test, feature = "__internals"))]
    pub fn step(&mut self) -> Duration {
        let store = Arc::clone(&self.store);
        crate::election::rounds::elect(&*store, [self], false).wait
    }

    /// How long until there is something to do.
    pub(crate) fn wait(&mut self) -> Duration {
        let now = self.role_state.table().now();
        if self.role_state.has_leadership() {
            // When the role is lost, the last look is out of date.
            self.look_at = now;
            return WHILE_HELD;
        }
        self.look_at.since(now)
    }

    /// Whether it is time to look at the role.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = self.role_state.table().now();
        let is_due = !self.role_state.has_leadership()
            && now >= self.look_at
            && !self.role_state.is_stopping();
        if is_due {
            self.look_at = now + self.settings.election_interval;
        }
        is_due
    }

    pub(crate) fn role(&self) -> &EndpointId {
        self.settings.role.as_lease()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.settings.store_timeout
    }

    /// Something may have been missed.
    pub fn look_now(&mut self) {
        self.look_at = self.role_state.table().now();
    }

    /// Applies a message of another instance.
    pub fn apply_message(&mut self, message: &PeerMessage) {
        let (role, now) = (self.settings.role.as_lease(), self.role_state.table().now());
        let me = self.role_state.table().instance();
        if message.from == *me {
            return;
        }
        if message.resign.contains(role) {
            self.role_state.resign(None);
        }
        // R8: a live candidate asks for the role. R10: during a hold-off it could not be granted the role.
        let is_void = self.role_state.table().hold_off().is_some();
        if message.wants.contains(role)
            && message.priority > self.settings.priority
            && !is_void
            && self.heirs.may_have(&message.from, now)
        {
            self.role_state.resign(Some(message.from.clone()));
        }
        if message.freed.contains(role) {
            self.look_at = now;
            self.heirs.led_by(&message.from, now);
            // The rest was for others to lead, and one has.
            self.rest_until = now;
            match &message.heir {
                Some(heir) if heir == me => self.stand_at = now,
                Some(heir) => {
                    self.heirs.await_one(heir);
                    self.stand_at = self.stand_at.max(now + HEIR_FIRST);
                }
                None => (),
            }
        }
        if message.took.contains(role) {
            self.look_at = now;
            self.heirs.led_by(&message.from, now);
        }
    }

    /// The release to send once all duties have ended. R4: the table has forgotten the tenure.
    pub(crate) fn let_go(&mut self) -> Option<(RequestContext, Tenure, PeerMessage)> {
        let (tenure, heir) = self.role_state.let_go()?;
        let table = self.role_state.table();
        let now = table.now();
        let rest = if heir.is_some() { REST_FOR_HEIR } else { REST };
        self.rest_until = now + rest;
        self.asking.next_at = self.asking.next_at.max(now + REST);
        heir.iter().for_each(|it| self.heirs.await_one(it));
        let freed = vec![tenure.endpoint.clone()];
        let message = PeerMessage { freed, heir, ..PeerMessage::new(table.instance(), None) };
        Some((table.request().context, tenure, message))
    }

    /// Applies the outcome of the release.
    pub(crate) fn given_back(&mut self, failure: Option<&StoreError>) {
        self.role_state.given_back(failure.is_none());
        failure.into_iter().for_each(|it| self.note_failure(it));
        self.look_at = self.role_state.table().now();
    }

    /// Applies a read of the role and decides what follows.
    pub(crate) fn looked(&mut self, status: RoleStatus) -> Next {
        self.note_answer();
        self.role_state.saw(status.leader.as_ref());
        let me = self.role_state.table().instance();
        match status.leader {
            Some(leader) if leader.value != *me && !status.is_stale => self.follow(&leader),
            _ => self.stand(),
        }
    }

    /// Another instance leads. R9: looks again right when its lease would end.
    fn follow(&mut self, leader: &Lasting<InstanceId>) -> Next {
        self.role_state.follow();
        let now = self.role_state.table().now();
        self.heirs.led_by(&leader.value, now);
        self.look_at = self.look_at.min(now + leader.left + AFTER_END);
        if self.decide(Ok(Outcome::LedBy(leader.value.clone()))) {
            return Next::Wait;
        }
        let ask_at = self.asking.next_at.max(self.stand_at);
        let may_ask = now >= ask_at;
        if self.settings.priority > 0 && self.settings.stands && !may_ask {
            // Not when the lease ends: then all candidates read the role, and one could take it before it receives the
            // message that names the heir.
            self.look_at = self.look_at.min(ask_at);
        }
        if self.settings.priority > 0 && self.settings.stands && may_ask {
            self.asking.next_at = now + self.settings.election_interval.min(self.settings.ttl);
            self.asking.is_pending = true;
            // A candidate that receives no messages reads the role while the others leave it to the heir.
            self.look_at = self.look_at.min(now + HEIR_FIRST / 2);
            let wants = vec![self.settings.role.as_lease().clone()];
            let priority = self.settings.priority;
            let message =
                PeerMessage::new(self.role_state.table().instance(), Some(leader.value.clone()));
            return Next::AskLeader(PeerMessage { wants, priority, ..message });
        }
        Next::Wait
    }

    /// No instance leads, or the leader's heartbeat is stale.
    fn stand(&mut self) -> Next {
        let now = self.role_state.table().now();
        if !self.settings.stands {
            self.role_state.follow();
            return Next::Wait;
        }
        let stand_at = self.stand_at.max(self.rest_until);
        if now < stand_at {
            self.look_at = stand_at;
            return Next::Wait;
        }
        self.role_state.stand();
        Next::Stand
    }

    pub(crate) fn look_soon(&mut self) {
        let table = self.role_state.table();
        self.look_at = table.now() + table.timings().retry_interval();
    }

    /// Nothing is known: fails closed.
    pub(crate) fn could_not(&mut self, error: StoreError) {
        self.note_failure(&error);
        if self.role_state.state() == State::Candidate {
            self.role_state.not_elected(None, &error.to_string());
        }
        self.look_soon();
        self.decide(Err(error));
    }

    fn note_failure(&mut self, error: &StoreError) {
        let table = self.role_state.table();
        if self.outage.begin(table.now()) {
            Event::StoreUnreachable { error }.log(table.instance());
        }
    }

    fn note_answer(&mut self) {
        let table = self.role_state.table();
        if let Some(away) = self.outage.end(table.now()) {
            Event::StoreReachable { away }.log(table.instance());
        }
    }

    /// Ends a single attempt; false for one that stands on and on.
    fn decide(&mut self, verdict: Verdict) -> bool {
        let Some(waiting) = self.verdict.take() else { return false };
        self.settings.stands = false;
        let _ = waiting.send(verdict);
        true
    }
}
