//! Which certificates of endpoints end soon, or have ended? As their owners judged them at the last poll.

use crate::inspect::status::{EndpointStatus, State, Status, counted};

impl EndpointStatus {
    /// How many days its certificate is valid yet, where that deserves attention.
    pub fn short_certificate(&self) -> Option<i64> {
        let is_polled = !matches!(self.state, State::Paused | State::NoSession | State::Invalid);
        let left = self.result.as_ref()?.certificate?;
        (is_polled && left.is_short).then_some(left.days)
    }

    /// A sentence about its certificate, where that deserves attention.
    pub fn about_certificate(&self) -> Option<String> {
        let days = self.short_certificate()?;
        Some(format!("Its certificate {}: renew it.", ends(days)))
    }
}

impl Status {
    /// The endpoints whose certificates deserve attention, the most urgent first.
    pub fn expiring(&self) -> Vec<&EndpointStatus> {
        let mut found: Vec<_> =
            self.endpoints.iter().filter(|it| it.short_certificate().is_some()).collect();
        found.sort_by_key(|it| it.short_certificate());
        found
    }

    /// As a part of the verdict; empty if there is nothing to say.
    pub(super) fn about_certificates(&self) -> String {
        let found = self.expiring();
        let Some((first, days)) = found.first().and_then(|it| Some((it, it.short_certificate()?)))
        else {
            return String::new();
        };
        let (name, ends) = (&first.name, ends(days));
        match found.len() {
            1 => format!(" The certificate of {name} {ends}."),
            n => format!(" {} end soon; that of {name} {ends}.", counted(n, "certificate")),
        }
    }
}

fn ends(days: i64) -> String {
    match days {
        ..=-2 => format!("ended {} days ago", -days - 1),
        -1 => "has ended".into(),
        0 => "ends within a day".into(),
        1 => "ends in 1 day".into(),
        _ => format!("ends in {days} days"),
    }
}
