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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::inspect::status::Alarm;
    use crate::model::{CertificateLeft, EndpointId, InstanceId, Weight};
    use crate::store::admin::overview::{LastResult, Overview, Stored};
    use crate::store::{Lasting, RawSession};

    fn polled(id: &str, is_paused: bool, days: i64) -> Stored {
        let session = format!(
            r#"{{"id":"{id}","address":"https://h/","intervalMs":9000,"isPaused":{is_paused}}}"#
        );
        let result = LastResult {
            ok: true,
            status: Some(200),
            error: None,
            started_at_ms: Some(1_000),
            duration_ms: Some(1),
            interval_ms: Some(9_000),
            fence: None,
            instance: None,
            state: None,
            certificate: Some(CertificateLeft { days, is_short: days < 14 }),
        };
        Stored {
            id: EndpointId::parse(id).unwrap(),
            session: Some(RawSession::Value(session.into_bytes())),
            lease: Some(Lasting { value: InstanceId::new("a"), left: Duration::MAX }),
            granted: None,
            result: Some(result),
        }
    }

    fn status(endpoints: Vec<Stored>) -> Status {
        let instances =
            vec![(InstanceId::new("a"), Lasting { value: Weight(1), left: Duration::MAX })];
        let overview = Overview { server_ms: 1_000, instances, endpoints, ..Overview::default() };
        Status::of(overview, Duration::from_secs(120))
    }

    #[test]
    fn certificates_that_end_soon_are_a_part_of_the_verdict() {
        let well = status(vec![polled("e1", false, 14), polled("e2", true, 3)]);
        assert_eq!(well.alarm(), Alarm::None, "a paused endpoint needs no certificate");
        assert!(!well.verdict().contains("certificate"), "{}", well.verdict());
        for (days, words) in [
            (13, "The certificate of e2 ends in 13 days."),
            (1, "The certificate of e2 ends in 1 day."),
            (0, "The certificate of e2 ends within a day."),
            (-1, "The certificate of e2 has ended."),
            (-4, "The certificate of e2 ended 3 days ago."),
        ] {
            let status = status(vec![polled("e1", false, 90), polled("e2", false, days)]);
            assert_eq!(status.alarm(), Alarm::Watch);
            let alarms = (status.fleet_alarm(), status.targets_alarm());
            assert_eq!(alarms, (Alarm::None, Alarm::Watch), "a certificate is the target's");
            assert!(status.verdict().ends_with(words), "{}", status.verdict());
            let sentences: Vec<_> =
                status.endpoints.iter().filter_map(EndpointStatus::about_certificate).collect();
            assert_eq!(sentences.len(), 1, "{sentences:?}");
        }
        let two = status(vec![polled("e1", false, 9), polled("e2", false, 3)]);
        let verdict = two.verdict();
        assert!(
            verdict.ends_with("2 certificates end soon; that of e2 ends in 3 days."),
            "{verdict}"
        );
    }
}
