//! Is somebody to be told, and who? The fleet and its targets are judged apart: different people mend them.

use std::time::Duration;

use crate::inspect::status::{Alarm, EndpointStatus, State, Status, brief, counted};
use crate::model::Verdict;
use crate::store::admin::overview::LastResult;

/// No more are named in a sentence.
const NAMED_MAX: usize = 3;

impl State {
    /// Whether this state is the target's, or its session's, and no instance can do anything about it.
    fn is_of_target(self) -> bool {
        matches!(self, Self::Failing | Self::Invalid)
    }
}

impl EndpointStatus {
    /// Whether it is polled and its verdict is `failing`.
    fn is_failing(&self) -> bool {
        let says_so = self.result.as_ref().and_then(LastResult::verdict) == Some(Verdict::Failing);
        self.state == State::Failing || self.state == State::Late && says_so
    }
}

impl Status {
    /// How bad it is that the fleet does not do its work. Without an instance nothing is polled, and nothing new would be.
    pub fn fleet_alarm(&self) -> Alarm {
        if self.n_live() == 0 {
            return Alarm::Act;
        }
        let states = self.endpoints.iter().map(|it| it.state).filter(|it| !it.is_of_target());
        states.map(State::alarm).max().unwrap_or(Alarm::None).max(self.general_alarm())
    }

    /// How bad it is what the targets answer. A session that cannot be understood is a mistake of its author, and no outage.
    pub fn targets_alarm(&self) -> Alarm {
        if !self.failing().is_empty() {
            return Alarm::Act;
        }
        let is_short = !self.expiring().is_empty();
        if is_short || self.count(State::Invalid) > 0 { Alarm::Watch } else { Alarm::None }
    }

    /// What the fleet lacks, or that it polls.
    pub fn about_fleet(&self) -> String {
        let mut parts = self.counts(&[
            (State::Unowned, "unowned"),
            (State::Abandoned, "left by the dead"),
            (State::Stale, "not polled for long"),
            (State::Late, "polled late"),
            (State::Uncertain, "uncertain"),
            (State::New, "not polled yet"),
        ]);
        if self.n_live() == 0 {
            parts.insert(0, "no instance is running".into());
        }
        if self.n_to_move() > 0 {
            parts.push(format!("{} to move", self.n_to_move()));
        }
        parts.extend(self.hold_off.map(|it| format!("holding off for {}", brief(it))));
        if !self.odd_keys.is_empty() {
            parts.push(counted(self.odd_keys.len(), "odd key"));
        }
        if self.takes_nothing() {
            parts.push("every instance has weight 0".into());
        }
        parts.extend(self.wrong_types.iter().map(|it| it.sentence()));
        let capacity = self.about_capacity();
        parts.extend(Some(capacity.trim().trim_end_matches('.').to_owned()));
        parts.retain(|it| !it.is_empty());
        let (instances, endpoints) =
            (counted(self.n_live(), "instance"), counted(self.n_wanted(), "endpoint"));
        if parts.is_empty() { format!("{instances}, {endpoints}") } else { parts.join(", ") }
    }

    /// Which targets fail, or how many answer.
    pub fn about_targets(&self) -> String {
        let failing = self.failing();
        let invalid: Vec<String> = self
            .endpoints
            .iter()
            .filter(|it| it.state == State::Invalid)
            .map(|it| it.name.clone())
            .collect();
        let mut parts = vec![];
        if !failing.is_empty() {
            let of = self.n_wanted();
            let named: Vec<String> = failing.iter().map(|it| self.since(it)).collect();
            parts.push(format!("{} of {of} failing: {}", failing.len(), few(named)));
        }
        if !invalid.is_empty() {
            parts.push(format!("{}: {}", counted(invalid.len(), "invalid session"), few(invalid)));
        }
        let certificates = self.about_certificates();
        parts.extend(Some(certificates.trim().trim_end_matches('.').to_owned()));
        parts.retain(|it| !it.is_empty());
        if parts.is_empty() {
            format!("none of {} failing", self.n_wanted())
        } else {
            parts.join(", ")
        }
    }

    /// The endpoints that fail, the longest first.
    pub fn failing(&self) -> Vec<&EndpointStatus> {
        let mut failing: Vec<&EndpointStatus> =
            self.endpoints.iter().filter(|it| it.is_failing()).collect();
        failing.sort_by_key(|it| failing_since(it).unwrap_or(u64::MAX));
        failing
    }

    fn since(&self, it: &EndpointStatus) -> String {
        let ago = failing_since(it).map(|it| self.server_ms.saturating_sub(it));
        let ago = ago.map(|it| format!(" for {}", brief(Duration::from_millis(it))));
        it.name.clone() + &ago.unwrap_or_default()
    }
}

fn failing_since(it: &EndpointStatus) -> Option<u64> {
    it.result.as_ref()?.verdict_since_ms()
}

/// The first few names, and how many there are.
fn few(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
