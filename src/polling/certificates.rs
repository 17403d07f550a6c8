//! Which endpoints have a certificate that ends soon? Remembers them, so that each change is logged once.

use std::sync::Arc;

use fnv::FnvHashMap;
use parking_lot::Mutex;

use crate::event::Event;
use crate::model::{CertificateLeft, EndpointId, FenceToken, Tenure};

/// What was logged of the certificates of this instance's endpoints. A new owner logs it once more.
#[derive(Clone, Debug, Default)]
pub(super) struct Certificates(Arc<Mutex<FnvHashMap<EndpointId, FenceToken>>>);

impl Certificates {
    /// What there is to say of the certificate that a poll under `tenure` saw. `holds` says whether a tenure still lasts.
    pub(super) fn news<'a>(
        &self,
        tenure: &'a Tenure,
        left: CertificateLeft,
        holds: impl Fn(&Tenure) -> bool,
    ) -> Option<Event<'a>> {
        let (endpoint, days) = (&tenure.endpoint, left.days);
        let mut said = self.0.lock();
        if !left.is_short {
            let was_said = said.remove(endpoint) == Some(tenure.fence);
            return was_said.then_some(Event::EndpointCertRenewed { endpoint, days });
        }
        if said.get(endpoint) == Some(&tenure.fence) {
            return None;
        }
        // Before it grows, which is seldom: endpoints that went to others are forgotten.
        if said.len() == said.capacity() {
            said.retain(|endpoint, fence| {
                holds(&Tenure { endpoint: endpoint.clone(), fence: *fence })
            });
        }
        said.insert(endpoint.clone(), tenure.fence);
        Some(Event::EndpointCertExpiring { endpoint, days })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenure(name: &str, fence: u64) -> Tenure {
        Tenure { endpoint: EndpointId::parse(name).unwrap(), fence: FenceToken(fence) }
    }

    fn said(certificates: &Certificates, tenure: &Tenure, days: i64) -> Option<String> {
        let left = CertificateLeft { days, is_short: days < 14 };
        let event = certificates.news(tenure, left, |it| it.fence.0 > 1);
        event.map(|it| format!("{}{it}", it.name()))
    }

    #[test]
    fn each_change_is_said_once_in_a_tenure() {
        let (all, first, second) = (Certificates::default(), tenure("e", 2), tenure("e", 3));
        let expiring = |days| Some(format!("endpoint.cert_expiring endpoint=e days={days}"));
        assert_eq!(said(&all, &first, 14), None);
        assert_eq!(said(&all, &first, 13), expiring(13));
        assert_eq!(said(&all, &first, 12), None);
        assert_eq!(said(&all, &second, 11), expiring(11), "a new owner");
        assert_eq!(said(&all, &second, 11), None);
        let renewed = said(&all, &second, 90);
        assert_eq!(renewed.as_deref(), Some("endpoint.cert_renewed endpoint=e days=90"));
        assert_eq!(said(&all, &second, 90), None);
        assert_eq!(said(&all, &second, -1), expiring(-1));
    }

    #[test]
    fn endpoints_that_went_to_others_are_forgotten() {
        let all = Certificates::default();
        for n in 0..10_000 {
            assert!(said(&all, &tenure(&format!("gone{n}"), 1), 0).is_some());
        }
        assert!(said(&all, &tenure("held", 2), 0).is_some());
        assert!(all.0.lock().len() < 100, "{}", all.0.lock().len());
        assert_eq!(said(&all, &tenure("held", 2), 0), None);
    }
}
