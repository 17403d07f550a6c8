//! One attempt to be elected: the request for the role, and every answer the store gives (R5).

use crate::election::role_elector::{AFTER_END, RoleElector};
use crate::event::Event;
use crate::lease::table::PendingRequest;
use crate::model::{InstanceId, LeaseDuration};
use crate::store::{Acquire, Fault, PeerMessage, StampedResult, StoreError, StoreResult};

/// The outcome of a single attempt.
pub type Verdict = Result<Outcome, StoreError>;

/// Elected, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This instance.
    Elected,
    /// Another instance.
    LedBy(InstanceId),
}

/// What to do after a look at the role.
pub(crate) enum Next {
    /// Nothing.
    Wait,
    /// Ask the leader to resign.
    AskLeader(PeerMessage),
    /// Try to acquire the role.
    Stand,
}

impl RoleElector {
    /// The request to acquire the role (R1).
    pub(crate) fn request(&self) -> StoreResult<PendingRequest> {
        let table = self.role_state.table();
        table.ensure_time_known(|timeout| self.store.time(timeout))?;
        Ok(table.request())
    }

    /// Applies the reply. True if the epoch changed and the request must be sent again (R5).
    pub(crate) fn attempted(
        &mut self,
        request: &PendingRequest,
        reply: StampedResult<Vec<Acquire>>,
    ) -> bool {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                if error.fault == Fault::Unreachable {
                    self.role_state.given_back(false); // it may have been granted
                }
                self.could_not_stand(error);
                return false;
            }
        };
        let wanted = std::slice::from_ref(self.settings.role.as_lease());
        let (gained, _) = self.role_state.table().granted(request, wanted, &reply);
        if let Some(gained) = gained.first() {
            self.role_state.elected(&gained.tenure);
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

    /// A leader gives up its work for a candidate that asks. So a candidate that then cannot be elected asks less and less often.
    fn not_elected(&mut self, is_refused: bool) {
        if is_refused || self.asking.is_pending {
            self.asking.refusals.fail(&(), self.role_state.table().now());
            self.asking.next_at = self.asking.next_at.max(self.asking.refusals.until(&()));
        }
        self.asking.is_pending = false;
    }

    fn answered(&mut self, answer: Acquire) {
        let now = self.role_state.table().now();
        match answer {
            Acquire::Granted { .. } if self.role_state.has_leadership() => {
                let me = self.role_state.table().instance();
                self.heirs.led_by(me, now);
                self.asking.refusals.end(&());
                self.asking.is_pending = false;
                self.decide(Ok(Outcome::Elected));
            }
            Acquire::HeldBy(winner) => {
                self.heirs.led_by(&winner, now);
                self.not_elected(false);
                self.role_state.not_elected(Some(&winner), &format!("{winner} was elected"));
                // To learn until when. A stale leader stays until the end of a hold-off: no hurry then.
                match self.role_state.table().hold_off() {
                    None => self.look_at = now,
                    Some(_) => self.look_soon(),
                }
                self.decide(Ok(Outcome::LedBy(winner)));
            }
            // R5: the server's clock was stepped, which begins the hold-off anew. The sooner it begins, the sooner it ends.
            Acquire::HoldOff if self.role_state.table().request().context.suspect => {
                self.look_at = now
            }
            Acquire::HoldOff => self.wait_for_end_of_hold_off(),
            // Too late to be of use: once more. Until then the role stays granted.
            Acquire::Granted { .. } => {
                self.role_state.given_back(false);
                self.look_soon();
            }
            Acquire::Late | Acquire::NoHeartbeat => self.look_soon(),
            Acquire::Failed(why) => {
                self.not_elected(true);
                let (op, target) = ("acquire", self.settings.role.to_string());
                self.could_not(StoreError { op, target, fault: Fault::Refused, reason: why });
            }
        }
    }

    /// R5: a candidate until then, because nothing is decided.
    fn wait_for_end_of_hold_off(&mut self) {
        let table = self.role_state.table();
        let left = table.hold_off().unwrap_or_default();
        if self.held_off_in != table.epoch() {
            self.held_off_in = table.epoch();
            let epoch = table.epoch().0;
            Event::StoreHoldoff { left, epoch }.log(table.instance());
        }
        // `hold_off` includes the largest rate difference; an early request is only answered `HoldOff` again.
        let left = left * 100 / (100 + LeaseDuration::RATE_PERCENT) + AFTER_END;
        self.look_at = self.look_at.min(table.now() + left);
    }
}
